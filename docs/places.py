"""Where the commands run whose outputs the pages show: each place has a home, runs and files of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BIN = Path(sys.executable).parent
_LIMIT_S = 1800.0
# Stand-ins that were compiled once, and other releases of Slurm: no part of what a page shows.
_CACHE = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))


@dataclass(frozen=True)
class Place:
    """A folder to work in."""

    call: Callable[[str], tuple[int, str]]
    names: Mapping[str, str]  # what stands for a path of this place, the longest first

    def run(self, command: str) -> tuple[int, str]:
        """Return the exit code of a shell's command line, and what a terminal would show."""
        code, text = self.call(command)
        for path, name in self.names.items():
            text = text.replace(path, name)
        return code, text


def _environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": f"{_BIN}:{os.environ['PATH']}:/usr/sbin:/sbin",
        "XDG_CACHE_HOME": _CACHE,
        "LANG": "C.UTF-8",
        "COLUMNS": "120",
    }


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def here(files: Mapping[str, str]) -> Iterator[Place]:
    """Yield a user's home on this machine, with a project in it."""
    with tempfile.TemporaryDirectory(prefix="docs-") as home:
        project = Path(home, "project")
        _write(project, files)

        def call(command: str) -> tuple[int, str]:
            return _called(["bash", "-c", command], project, _environment(Path(home)))

        yield Place(call, {home: "~"})


def _called(words: list[str], folder: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    ended = subprocess.run(
        words,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    return ended.returncode, ended.stdout


@contextmanager
def slurm(files: Mapping[str, str]) -> Iterator[Place]:
    """Yield a folder from which `login.hpc` can be reached: a real sshd beside a private Slurm of two nodes.

    It has no GPUs, which no rank could use. What the page's own files call /shared lies in its folder.
    """
    from tests.support.slurm_site import site

    with tempfile.TemporaryDirectory(prefix="docs-") as name, site(Path(name), _program("sshd")) as made:
        config = made.node.config
        config.write_text(config.read_text().replace("Host login", "Host login login.hpc"))
        for cluster in ("here", "far"):
            (made.here / "clusters" / f"{cluster}.yaml").unlink(missing_ok=True)
        shared = {str(made.runs): "/shared/runs", str(_BIN): "/shared/venvs/torch/bin"}
        made.write_cluster("hpc", ssh="login.hpc")
        for path, shown in shared.items():
            files = {file: text.replace(shown, path) for file, text in files.items()}
        _write(made.here, files)

        def call(command: str) -> tuple[int, str]:
            environ = {"COLUMNS": "120", "LANG": "C.UTF-8", "PATH": f"{_BIN}:{made.environment['PATH']}"}
            ended = made.run("bash", "-c", f"{{ {command}; }} 2>&1", environment=environ, timeout_s=_LIMIT_S)
            return ended.code, ended.out + ended.err

        yield Place(call, {**shared, f"{name}/data": "~/.local/share", str(made.here): "~/project", name: "~"})


@contextmanager
def hosts(files: Mapping[str, str]) -> Iterator[Place]:
    """Yield a folder from which three hosts can be provisioned, each a real sshd; clusters/lab.yaml describes them.

    Its wheels come from a folder, and Horovod, which takes minutes to build, is left out.
    """
    from tests.support import provisioned, sshd_hosts

    names = ["node1", "node2", "node3"]
    with tempfile.TemporaryDirectory(prefix="docs-") as home, sshd_hosts.site(_program("sshd"), names) as made:
        project = Path(home, "project")
        _write(project, files)
        _write(project / "clusters", {"lab.yaml": json.dumps(_lab(provisioned.wheelhouse()))})

        def call(command: str) -> tuple[int, str]:
            environ = {**made.environment, **_environment(Path(home))}
            return _called(["bash", "-c", command], project, environ)

        yield Place(call, {home: "~"})


def _lab(wheelhouse: Path) -> dict[str, Any]:
    venv = {"kind": "cpu", "python": str(Path(sys.executable).resolve()), "shared": True, "wheelhouse": str(wheelhouse)}
    return {
        "kind": "slurm",
        "nodes": {"count": 3, "cpus": 2},
        "ssh": {"host": "node1", "user": "root"},
        "network": {"interface": "127.0.0.0/8"},
        "python": "/mnt/venvs/torch/bin/python",
        "data_dir": "/srv/data",
        "provision": {"hosts": "node[1-3]", "venv": venv, "data_sets": [{"name": "digits"}]},
    }


@contextmanager
def docker(files: Mapping[str, str]) -> Iterator[Place]:
    """Yield a home with a Docker engine of its own, in which the image trainjob:cpu is built from wheels."""
    from tests.support import docker_engine

    engine = docker_engine.started(_program("dockerd"))
    base = docker_engine.base_image(engine, _program("mmdebstrap"))
    offline = ("--wheelhouse", docker_engine.wheelhouse(), "--network", "none")
    engine.trainjob("container", "build", "cpu", "--engine", "docker", "--base", base, *offline)
    with tempfile.TemporaryDirectory(prefix="docs-") as home:
        _write(Path(home), files)

        def call(command: str) -> tuple[int, str]:
            environ = {**_environment(Path(home)), "DOCKER_HOST": engine.environ["DOCKER_HOST"]}
            return _called(["bash", "-c", command], Path(home), environ)

        yield Place(call, {home: "~"})


def _program(name: str) -> Path:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        sys.exit(f"{name} is not installed here, which the documentation's outputs need")
    return Path(found)


PLACES: dict[str, Callable[[Mapping[str, str]], AbstractContextManager[Place]]] = {
    "here": here,
    "slurm": slurm,
    "hosts": hosts,
    "docker": docker,
}
