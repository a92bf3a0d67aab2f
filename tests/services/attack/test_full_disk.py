"""A disk without space, or without room for another file: one line, nothing left running, and the next try succeeds."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.attack import Attack
from tests.support.local_runs import Here, Run
from tests.support.programs import TRAINJOB, ran
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)
_SIZE = "48m"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Here]:
    """A user's machine whose runs and index lie on a small disk."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    made = Here(tmp_path)
    disk = tmp_path / "data"
    disk.mkdir()
    options = f"size={_SIZE},nr_inodes=4000"
    mounted = ran(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk])
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield made
    made.end_everything()
    subprocess.run(["umount", "--lazy", disk], check=True)


def filled(disk: Path, but_bytes: int) -> Path:
    """Fill the disk until only `but_bytes` are left, and return the file that takes the space."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    with ballast.open("wb") as stream, contextlib.suppress(OSError):
        os.posix_fallocate(stream.fileno(), 0, max(4096, free.f_bavail * free.f_frsize - but_bytes))
    return ballast


def without_inodes(disk: Path) -> list[Path]:
    names = [disk / f"empty-{number}" for number in range(os.statvfs(disk).f_favail)]
    with contextlib.suppress(OSError):
        for name in names:
            name.touch()
    return names


def tried(here: Here, *words: str) -> subprocess.CompletedProcess[str]:
    """Return what a command printed; a traceback, or more than an error's one line, fails the trial."""
    ended = ran([TRAINJOB, *words], folder=here.project, environ=here.environ, timeout_s=150)
    assert ended.returncode in (0, 1), (ended.returncode, ended.stderr)
    assert "BUG" not in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


SUBMIT = ("submit", "--cluster", "local", "--again", "--no-check", "--instances", "1", "--", "true")


def test_submit_on_a_disk_that_fills_up(small: Here, attack: Attack) -> None:
    disk = small.folder / "data"
    small.write("my_script.py", "")
    before = os.statvfs(disk).f_bavail
    small.run(*SUBMIT)
    needed = (before - os.statvfs(disk).f_bavail) * os.statvfs(disk).f_frsize
    with attack("full disk") as trials:
        for share in (0.0, 0.2, 0.6, 0.9, 0.98, 0.995, 1.0):
            ballast = filled(disk, int(needed * share))
            with trials.trial(f"submit with {share} of the space that it needs"):
                whole_or_nothing(small)
            ballast.unlink()
        names = without_inodes(disk)
        with trials.trial("submit without room for another file"):
            whole_or_nothing(small)
        for name in names:
            name.unlink(missing_ok=True)
        with trials.trial("submit once there is space again"):
            assert tried(small, *SUBMIT).returncode == 0


def whole_or_nothing(here: Here) -> None:
    """Submit, and assert that a refused submission has left no run that runs."""
    before = {one["id"] for one in here.json("list")}  # of these, one may still be ending
    ended = tried(here, *SUBMIT)
    if ended.returncode == 1:
        assert len(ended.stderr.strip().splitlines()) <= 2, ended.stderr
        left = [one for one in here.json("list") if one["id"] not in before]
        assert "RUNNING" not in [one["state"] for one in left], left


def test_what_runs_on_a_full_disk_can_be_ended(small: Here, attack: Attack) -> None:
    disk = small.folder / "data"
    with attack("full disk") as trials:
        run = small.staying()
        ballast = filled(disk, 0)
        with trials.trial("cancel"):
            assert f"run {run.id} is CANCELLED" in tried(small, "cancel", run.id, "--grace-s", "0").stdout
            run.wait_until_nothing_is_left()
        with trials.trial("list, status, prune"):
            for words in (("list",), ("status", run.id), ("prune", "--older-than-days", "0")):
                assert tried(small, *words).returncode == 0
        with trials.trial("resume"):
            tried(small, "resume", run.id)
        ballast.unlink()
        with trials.trial("a run that fills the disk and ends is FAILED"):
            fails(small)


def fails(here: Here) -> None:
    here.write("filling.py", "import os\nopen('../../ballast', 'wb').write(bytes(64 << 20))\n")
    run: Run = here.submit("python", "filling.py", instances=1)
    until(lambda: run.status()["state"] not in ("PENDING", "RUNNING"), "the run ends")
    now = run.status()
    assert (now["state"], now["cause"]["code"]) == ("FAILED", "disk-full"), now
