"""Run on an Apptainer machine: submits a job in a container to a private Slurm there, and prints what it left.

While its ranks are there, it runs a command next to one of them.

Usage: python apptainer_under_slurm.py BASE.tar [packed]

`packed`: the job is an array of eight elements on two whole nodes of two stand-in GPUs instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import until
from trainjob.kinds.lookup import find
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.rehearse.slurm.description import description_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

_CLUSTER = """
kind: slurm
nodes: {{count: 2, accelerator: {accelerator}, cpus: 4, memory_gb: 4}}
request: {request}
node_check: false
required_directives: []
directives: {{partition: main}}
runs_dir: {home}/runs
container: {{runtime: apptainer, image: {home}/image}}
python: python3
"""
_TELL = 'rank $RANK: $(. /etc/os-release; echo "$VERSION_CODENAME"), $(python3 --version), $(hostname), [$HOSTILE]'
_TELL_SHARE = (
    'element $SLURM_ARRAY_TASK_ID: $(. /etc/os-release; echo "$VERSION_CODENAME"), '
    "GPU $CUDA_VISIBLE_DEVICES of $SLURMD_NODENAME, $(nproc) CPUs"
)
_STAY = 'until [ -e "$TRAINJOB_RUN_DIR/release" ]; do sleep 0.2; done'
_LIMIT_S = 400.0


def main(archive: str, *, packed: bool) -> None:
    """Submit, wait, and print the state and the ranks' lines."""
    home = unpacked(archive)
    file = home / "site.yaml"
    gpus = ("gpu, accelerators: 2", "gres") if packed else ("cpu", "none")
    file.write_text(_CLUSTER.format(home=home, accelerator=gpus[0], request=gpus[1]))
    cluster = find(str(file)).cluster
    assert isinstance(cluster, SlurmCluster)
    with private_slurm(description_of(cluster, nodes_needed=2)) as slurm:
        submit = ["submit", "--cluster", str(file)]
        if packed:
            _pack(slurm, submit)
        else:
            _stay(slurm, submit, home)
        until(lambda: "· COMPLETED" in _trainjob(slurm, "status", "last"), "the end", _LIMIT_S, poll_s=0.5)
        print(_trainjob(slurm, "status", "last"))
        for run in [f"last:{number}" for number in range(8)] if packed else ["last"]:
            print(_trainjob(slurm, "logs", run))
    print("injected" if Path("/tmp/injected").exists() else "nothing was injected")


def _stay(slurm: PrivateSlurm, submit: list[str], home: Path) -> None:
    hostile = "a \"b\" $(touch /tmp/injected) 'c'"
    submit += ["--instances", "4", "--hosts", "2", "--env", f"HOSTILE={hostile}"]
    print(_trainjob(slurm, *submit, "--", "sh", "-c", f'echo "{_TELL}"; {_STAY}'))
    until(lambda: "rank 3: " in _trainjob(slurm, "logs", "last"), "rank 3 is there", _LIMIT_S, poll_s=0.5)
    print(_trainjob(slurm, "shell", "last", "--rank", "3", "--", "sh", "-c", f'echo "next to {_TELL} in $(pwd)"'))
    for run in (home / "runs").iterdir():
        (run / "release").touch()


def _pack(slurm: PrivateSlurm, submit: list[str]) -> None:
    submit += ["--pack", "2", "--array", "0-7", "--instances", "1", "--no-check"]
    print(_trainjob(slurm, *submit, "--", "sh", "-c", f'echo "{_TELL_SHARE}"; sleep 2'))


def unpacked(archive: str) -> Path:
    """Unpack the base as a folder `image` beside a folder `project`, and return the folder of both."""
    home = Path.home()
    for folder in ("image", "project"):
        (home / folder).mkdir()
    # An ordinary user makes no devices.
    subprocess.run(
        ["tar", "--extract", "--exclude=./dev/*", f"--file={archive}", f"--directory={home}/image"], check=True
    )
    return home


def _trainjob(slurm: PrivateSlurm, *words: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    ended = slurm.run(["trainjob", *words], folder=Path.home() / "project", environment=environ, check=False)
    return ended.text + ended.stderr


if __name__ == "__main__":
    main(sys.argv[1], packed=sys.argv[2:] == ["packed"])
