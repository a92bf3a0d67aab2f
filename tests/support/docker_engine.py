"""A Docker engine of the tests' own: its data, its socket, its end. Base image and wheels are kept between sessions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.programs import TRAINJOB
from tests.support.waiting import until

BASE = "trainjob-tests/debian-python:bookworm"
IMAGE = "trainjob:cpu"
TORCH = "torch==2.13.0"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trainjob"


@dataclass(frozen=True)
class Engine:
    """A running engine; `folder` is for its socket and whatever must be seen by other users."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": f"unix://{self.folder}/socket"}

    def docker(self, *words: str | Path, code: int | None = 0, text: str | None = None) -> str:
        """Return what `docker` printed on both streams; it has to exit with `code`, whatever that is when None."""
        ended = subprocess.run(
            ["docker", *map(str, words)],
            env=self.environ,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert code in (None, ended.returncode), (words, ended.returncode, ended.stdout)
        return ended.stdout

    def containers(self, *flags: str) -> list[str]:
        return self.docker("ps", "--quiet", "--no-trunc", *flags).split()

    def trainjob(self, *words: str | Path, code: int = 0) -> str:
        ended = subprocess.run(
            [TRAINJOB, *map(str, words)],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        assert ended.returncode == code, (words, ended.returncode, ended.stdout[-4000:])
        return ended.stdout


# No bridge and no firewall rules: nothing of the machine's network is touched. It watches the tests' own process, ends
# the engine after it, however that ended, and holds the lock of the data folder meanwhile.
_GUARD = """\
dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver=overlay2 \\
  --data-root "$2" --exec-root "$1/exec" -p "$1/pid" -H "unix://$1/socket" >"$1/log" 2>&1 &
engine=$!
# Another process may have its number by now.
began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
watched=$(began "$3")
while [ "$(began "$3")" = "${watched:-gone}" ] && kill -0 "$engine" 2>/dev/null; do sleep 0.5; done
export DOCKER_HOST="unix://$1/socket"
docker ps --all --quiet | xargs --no-run-if-empty docker rm --force
# What newer sources have made stale; the rest is the cache of the next session.
docker image prune --force --filter until=48h
kill "$engine"
wait "$engine"
umount "$1"/exec/netns/*
rm -rf "$1"
"""


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold off the other workers of this session."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def started(dockerd: Path) -> Engine:
    """Return the engine that all workers of this session share; whoever comes first starts it."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    watched = os.getppid() if session else os.getpid()
    folder = Path(f"/tmp/trainjob-docker-{session or watched}")  # a socket's path is short
    folder.mkdir(mode=0o755, exist_ok=True)
    engine = Engine(folder)
    with alone(folder):
        if not (folder / "socket").exists():
            _start(engine, dockerd, watched)
        until(lambda: engine.docker("version", code=None).count("Version:") > 1, f"{dockerd} answers")
    return engine


def _start(engine: Engine, dockerd: Path, watched: int) -> None:
    data, lock = _data_root(engine.folder)
    environ = {**os.environ, "PATH": f"{dockerd.parent}:{os.environ['PATH']}"}
    words = ["sh", "-c", _GUARD, "sh", str(engine.folder), str(data), str(watched)]
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    guard = subprocess.Popen(words, env=environ, pass_fds=[lock], start_new_session=True, **quiet)
    guard.returncode = 0  # it outlives this worker
    os.close(lock)
    until((engine.folder / "socket").exists, "the socket is there")


def _data_root(folder: Path) -> tuple[Path, int]:
    """Return the kept data folder, or a new one while another session has that; and a descriptor that holds it."""
    kept = _CACHE / "docker"
    kept.mkdir(parents=True, exist_ok=True)
    lock = os.open(_CACHE / "docker.lock", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return folder / "data", lock
    return kept, lock


def base_archive(mmdebstrap: Path) -> Path:
    """Return the tar file of a Debian with Python, made once from the distribution's packages."""
    tar = _CACHE / "debian-bookworm-python3-venv.tar"
    with alone(_CACHE):
        if not tar.exists():
            part = tar.with_suffix(f".{os.getpid()}.tar")
            options = ["--quiet", "--variant=apt", "--include=python3-venv"]
            words: list[str | Path] = [mmdebstrap, *options, "bookworm", part]
            subprocess.run(words, check=True, timeout=900)
            part.replace(tar)
    return tar


def base_image(engine: Engine, mmdebstrap: Path) -> str:
    """Return the name of an image of that Debian."""
    if engine.docker("image", "inspect", BASE, code=None).startswith("[]"):
        engine.docker("import", base_archive(mmdebstrap), BASE)
    return BASE


def wheelhouse() -> Path:
    """Return a folder of all wheels that the image needs, for Debian's Python 3.11, downloaded once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [TORCH, *project["dependencies"], *project["optional-dependencies"]["train"]]
    folder = _CACHE / f"wheels-{sha256(repr(wanted).encode()).hexdigest()[:12]}"
    with alone(_CACHE):
        if not folder.exists():
            part = folder.with_suffix(f".{os.getpid()}")
            words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version=3.11"]
            subprocess.run([*words, "--dest", str(part), *wanted], check=True, timeout=900)
            part.replace(folder)
    return folder
