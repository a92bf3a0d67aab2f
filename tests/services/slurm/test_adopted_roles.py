"""Batch files that bring up a server or Ray by hand, adopted, and the jobs that they become under a real Slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run
from tests.support.role_programs import RAY_MEMORY
from tests.support.slurm_jobs import Login, everything_printed
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = pytest.mark.timeout(900)

NODES = {"count": 2, "accelerator": "cpu", "cpus": 2, "memory_gb": 4}
TWO_NODES = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=2\n"
SERVER = """\
import argparse, http.server, time
asked = argparse.ArgumentParser()
asked.add_argument("--port", type=int)
time.sleep(1)
http.server.ThreadingHTTPServer(("", asked.parse_args().port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
TRAINER = """\
import os, sys, urllib.request
print("asked", sys.argv[1], urllib.request.urlopen(sys.argv[1]).status, os.environ["SERVER_URL"] == sys.argv[1])
"""
DRIVER = """\
import ray
ray.init()
print("alive", sum(node["Alive"] for node in ray.nodes()), flush=True)
"""


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    return Login(here, slurm, nodes=NODES, directives={"mem": "100M"})


def adopted(login: Login, text: str) -> Run:
    """Return the run of an adopted file that has ended, COMPLETED."""
    login.here.write("train.sbatch", text)
    login.here.run("adopt", "--cluster", "hpc", "train.sbatch", "-o", str(login.here.folder / "new"))
    return login.finished("--job", str(login.here.folder / "new" / "job.yaml"))


def test_a_server_that_was_awaited_by_a_sleep(login: Login) -> None:
    login.here.write("reward_server.py", SERVER)
    login.here.write("trainer.py", TRAINER)
    run = adopted(
        login,
        TWO_NODES
        + "PORT=8765\nHOSTS=($(scontrol show hostnames))\nSERVER=${HOSTS[1]}\n"
        + 'srun -N1 -n1 -w "$SERVER" python reward_server.py --port $PORT &\nsleep 600\n'
        + 'export SERVER_URL="http://$SERVER:$PORT/"\n'
        + 'srun -N1 -n1 --exclude="$SERVER" python trainer.py "$SERVER_URL"\n',
    )
    (asked,) = [line.split() for line in run.log(0).splitlines() if line.startswith("asked")]
    assert asked[2:] == ["200", "True"], everything_printed(run)
    assert ":8765" not in asked[1]


def test_ray_that_was_brought_up_by_hand(login: Login, needs: Callable[[str], Path]) -> None:
    login.here.write("driver.py", DRIVER)
    memory = "".join(f"export {name}={value}\n" for name, value in RAY_MEMORY.items())
    run = adopted(
        login,
        TWO_NODES
        + memory
        + "nodes=($(scontrol show hostnames))\nhead=${nodes[0]}\n"
        + "srun -N1 -n1 -w $head ray start --head --port=6379 --block &\nsleep 600\n"
        + "srun -N1 -n1 --exclude=$head ray start --address=$head:6379 --block &\nsleep 600\n"
        + f"{needs('ray')} -u driver.py\n",
    )
    assert "alive 2" in run.log(0).splitlines(), everything_printed(run)
