"""A Docker engine of the tests' own: its data, its socket, its end. Base image and wheels are kept between sessions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRAINJOB = str(Path(sys.executable).parent / "trainjob")
BASE = "trainjob-tests/debian-python:bookworm"
IMAGE = "trainjob:cpu"
TORCH = "torch==2.13.0"
LIMIT_S = 120.0
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trainjob"
# No bridge and no firewall rules: nothing of the machine's network is touched.
_FLAGS = ("--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=overlay2")


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


def until(found: Callable[[], Any], what: str) -> Any:
    """Return the first true answer of `found`."""
    deadline = time.monotonic() + LIMIT_S
    while not (answer := found()):
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT_S} s"
        time.sleep(0.1)
    return answer


@contextlib.contextmanager
def running(dockerd: Path) -> Iterator[Engine]:
    """Yield an engine that ends with the session; it dies with this process, however that ends."""
    folder = Path(tempfile.mkdtemp(prefix="trainjob-docker-", dir="/tmp"))  # a socket's path is short
    folder.chmod(0o755)
    with _data_root(folder) as data, (folder / "log").open("wb") as log:
        words = [dockerd, *_FLAGS, "--data-root", data, "--exec-root", folder / "exec"]
        words += ["-p", folder / "pid", "-H", f"unix://{folder}/socket"]
        daemon = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *map(str, words)], stdout=log, stderr=log, start_new_session=True
        )
        engine = Engine(folder)
        try:
            until(lambda: daemon.poll() is not None or engine.docker("version", code=None).count("Version:") > 1, "up")
            assert daemon.poll() is None, (folder / "log").read_text()[-4000:]
            yield engine
            # What the newest sources have made stale; the rest is the cache of the next session.
            engine.docker("image", "prune", "--force", "--filter", "until=48h")
        finally:
            _end(engine, daemon)
    shutil.rmtree(folder, ignore_errors=True)


def _end(engine: Engine, daemon: subprocess.Popen[bytes]) -> None:
    if daemon.poll() is None:
        left = engine.docker("ps", "--all", "--quiet", code=None).split()
        if left:
            engine.docker("rm", "--force", *left, code=None)
        daemon.terminate()
    daemon.wait(120)


@contextlib.contextmanager
def _data_root(folder: Path) -> Iterator[Path]:
    """Yield the kept data folder, or a new one while another session has that."""
    kept = _CACHE / "docker"
    kept.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "docker.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield folder / "data"
        else:
            yield kept


def base_image(engine: Engine, mmdebstrap: Path) -> str:
    """Return the name of a Debian with Python, made once from the distribution's packages."""
    if engine.docker("image", "inspect", BASE, code=None).startswith("[]"):
        tar = _CACHE / "debian-bookworm-python3-venv.tar"
        if not tar.exists():
            part = tar.with_suffix(f".{os.getpid()}.tar")
            words = [mmdebstrap, "--quiet", "--variant=apt", "--include=python3-venv", "bookworm", part]
            subprocess.run(words, check=True, timeout=900)
            part.replace(tar)
        engine.docker("import", tar, BASE)
    return BASE


def wheelhouse() -> Path:
    """Return a folder of all wheels that the image needs, for Debian's Python 3.11, downloaded once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [TORCH, *project["dependencies"], *project["optional-dependencies"]["train"]]
    folder = _CACHE / f"wheels-{sha256(repr(wanted).encode()).hexdigest()[:12]}"
    if not folder.exists():
        part = folder.with_suffix(f".{os.getpid()}")
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version=3.11"]
        subprocess.run([*words, "--dest", str(part), *wanted], check=True, timeout=900)
        part.replace(folder)
    return folder
