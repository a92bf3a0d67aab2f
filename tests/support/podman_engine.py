"""A machine's Podman: Debian trixie's, in a root file system that is made once, behind a program on PATH."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from tests.support.docker_engine import alone
from tests.support.programs import TRAINJOB
from trainjob.rehearse.slurm import releases

BASE = "localhost/trainjob-tests/debian-python:bookworm"
IMAGE = "trainjob:cpu"
ROOT = platformdirs.user_cache_path("trainjob") / "podman" / "trixie"
_PACKAGES = "podman,crun,uidmap,mount"
_HOLDER = Path(__file__).with_name("podman_machine.sh")
# What takes more rights than a container of CI has; and without netavark's bridge nothing of the machine's network is
# touched.
_CONFIGURATION = """\
[containers]
cgroups = "disabled"
netns = "none"
default_ulimits = ["nofile=20000:20000", "nproc=90000:90000"]
"""
_PROGRAM = """\
#!/bin/sh
exec nsenter --target {holder} --mount --root --wdns="$PWD" /usr/bin/podman "$@"
"""


@dataclass(frozen=True)
class Podman:
    """A Podman of its own images and containers; `folder` has the program that enters its namespace."""

    folder: Path

    @property
    def path(self) -> str:
        return f"{self.folder}:{os.environ['PATH']}"

    def podman(self, *words: str | Path, code: int | None = 0, stdin: Path | None = None) -> str:
        """Return what `podman` printed on both streams; it has to exit with `code`, whatever that is when None."""
        with (stdin or Path(os.devnull)).open("rb") as given:
            return _printed([self.folder / "podman", *words], self.path, self.folder, given.fileno(), code)

    def trainjob(self, *words: str | Path, folder: Path | None = None) -> str:
        return _printed([TRAINJOB, *words], self.path, folder or self.folder, subprocess.DEVNULL, 0)

    def containers(self, *flags: str) -> list[str]:
        return self.podman("ps", "--quiet", "--no-trunc", *flags).split()


def _printed(words: list[str | Path], path: str, folder: Path, stdin: int, code: int | None) -> str:
    ended = subprocess.run(
        [*map(str, words)],
        env={**os.environ, "PATH": path},
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert code in (None, ended.returncode), (words, ended.returncode, ended.stdout[-4000:])
    return ended.stdout


@contextlib.contextmanager
def podman_engine(mmdebstrap: Path) -> Iterator[Podman]:
    """Yield a Podman without images; its containers and images end with the block."""
    with alone(ROOT.parent):
        if not ROOT.exists():
            _make(mmdebstrap)
    with tempfile.TemporaryDirectory(prefix="trainjob-podman-") as name:
        folder = Path(name)
        words: list[str | Path] = ["unshare", "--mount", "sh", _HOLDER, ROOT, tempfile.gettempdir()]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            program = folder / "podman"
            program.write_text(_PROGRAM.format(holder=holder.pid))
            program.chmod(0o755)
            yield Podman(folder)


def _make(mmdebstrap: Path) -> None:
    part = ROOT.with_name(f"part-{os.getpid()}")
    mirror = releases.mirror()
    options = ["--quiet", "--variant=apt", f"--include={_PACKAGES}"]
    words: list[str | Path] = [mmdebstrap, *options, "trixie", part, *([mirror] if mirror else [])]
    subprocess.run(words, check=True, timeout=900)
    (part / "etc/containers/containers.conf").write_text(_CONFIGURATION)
    part.replace(ROOT)
