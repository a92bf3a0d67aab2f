"""An administrator at work: a folder with a cluster file, and `trainjob provision` against hosts of a test site."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB, ran
from tests.support.sshd_hosts import Site
from tests.support.waiting import until
from trainjob.contract.package import companion
from trainjob.provision.events import CALLBACK, HostDone, parse

LIMIT_S = 900.0
PYTHON = str(Path(sys.executable).resolve())
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trainjob"
TORCH = "2.13.0"
_BESIDE = ("numpy", "tqdm", "cloudpickle", "psutil", "pyyaml", "packaging")


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        return reported(self.output)


class Administrator:
    """A working folder with clusters/site.yaml, and an empty cache of its own."""

    def __init__(self, folder: Path, site: Site | None, cluster: dict[str, Any]) -> None:
        self.folder, self.site = folder, site
        self.cache = folder / "cache"
        self.write(cluster)

    def write(self, cluster: dict[str, Any]) -> None:
        """Write clusters/site.yaml."""
        self.cluster = cluster
        (self.folder / "clusters").mkdir(parents=True, exist_ok=True)
        (self.folder / "clusters/site.yaml").write_text(yaml.safe_dump(cluster))

    @property
    def environment(self) -> dict[str, str]:
        reached = self.site.environment if self.site else dict(os.environ)
        return {**reached, "XDG_CACHE_HOME": str(self.cache), "PIP_CACHE_DIR": str(CACHE.parent / "pip")}

    def provision(self, *flags: str, limit_s: float = LIMIT_S) -> Ended:
        """Run `trainjob provision --cluster site`."""
        return self.run(TRAINJOB, "provision", "--cluster", "site", *flags, limit_s=limit_s)

    def run(self, *words: str, limit_s: float = LIMIT_S, **more: str) -> Ended:
        ended = ran(words, folder=self.folder, environ={**self.environment, **more}, timeout_s=limit_s)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def killed(self, when: Any) -> None:
        """Start `trainjob provision` and end it and everything it started by kill -9 as soon as `when()` is true."""
        process = subprocess.Popen(
            [TRAINJOB, "provision", "--cluster", "site"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until(when, "the moment to kill", LIMIT_S)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def plain(administrator: Administrator, inventory: dict[str, Any], *flags: str) -> tuple[int, list[HostDone]]:
    """Run plain ansible-playbook on site.yml and return its exit code and what it did on hosts."""
    path = administrator.folder / "inventory.yaml"
    path.write_text(yaml.safe_dump(inventory))
    ended = administrator.run(
        str(Path(sys.executable).parent / "ansible-playbook"),
        *("-i", str(path), *flags, str(companion("playbooks") / "site.yml")),
        ANSIBLE_CONFIG=str(companion("playbooks") / "ansible.cfg"),
        ANSIBLE_STDOUT_CALLBACK=CALLBACK,
    )
    events = [parse(line) for line in ended.output.splitlines()]
    assert any(events), ended.errors
    return ended.code, [event for event in events if isinstance(event, HostDone)]


def wheelhouse() -> Path:
    """Return a folder with the real torch for CPUs and what Horovod needs; filled once and kept."""
    folder = CACHE / f"wheelhouse-py{sys.version_info[0]}.{sys.version_info[1]}-torch{TORCH}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), f"torch=={TORCH}", *_BESIDE]
        ended = ran(words)
        if ended.returncode != 0:
            pytest.skip(f"pip can't fetch torch {TORCH}: {ended.stderr}")
        (folder / "complete").touch()
    return folder
