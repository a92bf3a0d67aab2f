"""Linux control groups: the folders of this process's groups, and how much CPU time they allow it."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List, Optional

TOP = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def own_folders(controller: str, top: Path = TOP, membership: Path = _MEMBERSHIP) -> Iterator[Path]:
    """Yield the folders of this process's groups of `controller` (memory, cpu), innermost first."""
    for line in (text(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounted = top / controller if controllers else top
        folder = mounted / path.lstrip("/")
        yield from (one for one in (folder, *folder.parents) if one == mounted or mounted in one.parents)


def cpu_quota(top: Path = TOP, membership: Path = _MEMBERSHIP) -> Optional[int]:
    """Return how many CPUs' time this process and its group may use; None without a limit.

    A container whose CPU time is limited sees all the CPUs of its host.
    """
    quotas = [quota for quota in (_quota(folder) for folder in own_folders("cpu", top, membership)) if quota]
    return max(1, int(min(quotas))) if quotas else None


def text(file: Path) -> Optional[str]:
    """Return the content of a file; None if it can't be read."""
    try:
        return file.read_text()
    except OSError:
        return None


def _quota(folder: Path) -> Optional[float]:
    words: List[str] = (text(folder / "cpu.max") or "").split()
    if not words:
        words = [(text(folder / name) or "").strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])
