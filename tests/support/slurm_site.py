"""A site in small: a private Slurm whose login node is a real sshd, and a user who types `trainjob` beside it."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.login_node import LoginNode
from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB, ran
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records.files import read_word
from trainjob.rehearse.slurm.description import Description, SlurmPartition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

LIMIT_S = 120.0
ASKED_AFTER_S = 3.0
# What runs in a job has its part of a busy machine.
WAIT_S = 250.0
DESCRIPTION = Description(
    nodes=2,
    cpus=8,
    memory_mb=16 * 1024,
    gres="gpu",
    gres_count=4,
    partitions=(
        SlurmPartition("gpu", max_nodes=2, max_time="02:00:00"),
        SlurmPartition("short", max_nodes=1, max_time="00:10:00"),
    ),
)


@dataclass
class Ended:
    """What a command left."""

    code: int
    out: str
    err: str


@dataclass
class Site:
    """One cluster, and one user's folders. Everything the user runs, runs inside of the site's network."""

    slurm: PrivateSlurm
    node: LoginNode
    folder: Path
    sockets: Path  # of ssh's shared connections: two sites have the same names and ports
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def here(self) -> Path:
        """The folder that the user works in."""
        return self.folder / "here"

    @property
    def runs(self) -> Path:
        """runs_dir of the cluster files."""
        return self.folder / "shared" / "runs"

    def write_cluster(self, name: str, *, ssh: bool | str = False, **changes: Any) -> None:
        """Write a cluster file as JSON, which is YAML."""
        asked: dict[str, Any] = {
            "kind": "slurm",
            "nodes": {"count": 2, "cpus": 8, "memory_gb": 16},
            "limits": {"max_nodes": 2, "max_time": "02:00:00"},
            "directives": {"partition": "gpu"},
            "time_limit": "00:10:00",
            "python": sys.executable,
            "network": {"interface": "lo"},
            "runs_dir": str(self.runs),
            **({"ssh": {"host": ssh if isinstance(ssh, str) else "login"}} if ssh else {}),
            **changes,
        }
        folder = self.here / "clusters"
        folder.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in asked.items() if value is not None}
        (folder / f"{name}.yaml").write_text(json.dumps(kept))

    def run(self, *words: str, environment: Mapping[str, str] | None = None, timeout_s: float = LIMIT_S) -> Ended:
        """Run a command as the user, beside the login node."""
        asked = {**self.environment, **(environment or {})}
        ended = self.slurm.run(list(words), folder=self.here, environment=asked, timeout_s=timeout_s, check=False)
        return Ended(ended.code, ended.text, ended.stderr)

    def trainjob(self, *words: str, environment: Mapping[str, str] | None = None, timeout_s: float = LIMIT_S) -> Ended:
        return self.run(TRAINJOB, *words, environment=environment, timeout_s=timeout_s)

    def json(self, *words: str, environment: Mapping[str, str] | None = None) -> Any:
        ended = self.trainjob(*words, "--json", environment=environment)
        assert ended.code in (0, 1), ended.err
        return reported(ended.out)

    def submit(self, cluster: str, *words: str) -> str:
        """Return the id of a new run."""
        job = () if {"--task", "--job", "--"} & {*words} else ("--task", "digits-cnn")
        ended = self.trainjob("submit", "--cluster", cluster, "--json", "--again", *job, *words)
        assert ended.code == 0, ended.err
        found: str = json.loads(ended.out)["id"]
        return found

    def state(self, run: str) -> str:
        found: str = self.json("status", run)["state"]
        return found

    def wait(self, run: str, state: str) -> None:
        """Return when `status` says so. It is asked once the run's own file does, and else only now and then."""
        path, asked_at = RunPaths(self.runs / run).state, time.monotonic()

        def is_so() -> bool:
            nonlocal asked_at
            if read_word(path) != state and time.monotonic() < asked_at + ASKED_AFTER_S:
                return False
            answer = self.state(run) == state
            asked_at = time.monotonic()
            return answer

        until(is_so, f"{run} {state}", WAIT_S)

    def calls(self, program: str) -> list[str]:
        """Return the recorded calls of a program that `record` stands in for."""
        log = self.folder / f"{program}.calls"
        return log.read_text().splitlines() if log.exists() else []

    def record(self, program: str, body: str | None = None) -> None:
        """Put a recording stand-in for one of Slurm's commands on PATH; without `body` it calls the real one."""
        real = ran(["sh", "-c", f"command -v {program}"]).stdout.strip()
        log = shlex.quote(str(self.folder / f"{program}.calls"))
        body = body or f'exec {real} "$@"'
        self.node.stand_in(program, f'echo "$@" >>{log}\nreal={real}\n{body}')

    def real(self, program: str) -> None:
        """Take a stand-in away."""
        (self.node.bin / program).unlink(missing_ok=True)
        (self.folder / f"{program}.calls").unlink(missing_ok=True)


@contextmanager
def site(folder: Path, sshd: Path, description: Description = DESCRIPTION) -> Iterator[Site]:
    """Yield a site; nothing of it is left afterwards."""
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="rt") as sockets, private_slurm(description) as slurm:
        node = LoginNode(folder / "login", sshd, 2222)
        node.write()
        made = Site(slurm, node, folder, Path(sockets))
        made.environment = _environment(made)
        made.here.mkdir(parents=True)
        node.write_server({"PATH": made.environment["PATH"], "SLURM_CONF": str(slurm.folder / "slurm.conf")})
        slurm.run_as_root(["mkdir", "-p", "/run/sshd"])
        slurm.run_as_root([str(sshd), "-f", str(node.folder / "sshd_config"), "-E", str(node.folder / "sshd.log")])
        # It is a daemon before it listens.
        listens = ["bash", "-c", f": </dev/tcp/127.0.0.1/{node.port}"]
        until(lambda: slurm.run(listens, check=False).code == 0, "sshd to listen")
        made.write_cluster("here")
        made.write_cluster("far", ssh=True)
        yield made


def _environment(made: Site) -> dict[str, str]:
    return {
        "XDG_RUNTIME_DIR": str(made.sockets),
        "PATH": f"{made.node.bin}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(made.folder / "data"),
        "XDG_CONFIG_HOME": str(made.folder / "config"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        # The nodes share the cores of one machine, and each believes that all are its own.
        "OMP_NUM_THREADS": "1",
    }
