"""A server and a trainer on one node of a real Slurm, each with its share of the node's GPUs and CPUs."""

from __future__ import annotations

import json

import pytest

from tests.support.local_runs import Here
from tests.support.role_programs import roles
from tests.support.slurm_jobs import Login, everything_printed
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = pytest.mark.timeout(600)

NODES = {"count": 2, "accelerator": "gpu", "accelerators": 4, "cpus": 8, "memory_gb": 2}
# Each says which GPUs and how many CPUs it was given. The trainer ends when it has.
SERVER = """\
import os, pathlib, time
print("GPUs", os.environ["CUDA_VISIBLE_DEVICES"], "CPUs", os.environ["SLURM_CPUS_PER_TASK"], flush=True)
(pathlib.Path(os.environ["TRAINJOB_RUN_DIR"]) / "roles" / "server" / "up").touch()
time.sleep(600)
"""
TRAINER = """\
import os
print("GPUs", os.environ["SLURM_STEP_GPUS"], "CPUs", os.environ["SLURM_CPUS_PER_TASK"], flush=True)
"""


@pytest.mark.parametrize("memory", [{"mem": "100M"}, {"mem-per-cpu": "10M"}, {"exclusive": True}])
def test_roles_share_a_node_with_a_share_of_its_gpus(
    slurm: PrivateSlurm, here: Here, memory: dict[str, str | bool]
) -> None:
    here.write("server.py", SERVER)
    here.write("trainer.py", TRAINER)
    login = Login(here, slurm, nodes=NODES, directives=memory)
    job = {"roles": roles(gpus=1, ready="file:up")}
    file = here.folder / "job.yaml"
    file.write_text(json.dumps(job))
    run, number = login.submit("--job", str(file), "--hosts", "1")
    login.wait(number)
    assert run.word("state") == "COMPLETED", everything_printed(run)
    trained = run.log(0).splitlines()[1].split()
    served = (run.folder / "roles/server/logs/rank-0000.log").read_text().splitlines()[1].split()
    assert (len(trained[1].split(",")), len(served[1].split(","))) == (3, 1)
    assert (trained[3], served[3]) == ("2", "2")


# Neither waits for the other's GPUs or CPUs: the trainer has all that the job has, and the server runs meanwhile.
STORE = SERVER.replace('"CPUs"', 'os.environ.get("SLURM_STEP_GPUS"), "CPUs"')


@pytest.mark.parametrize("request_by", ["gres", "gpus-per-node", "none"])
def test_a_server_without_a_gpu_is_beside_a_trainer_that_has_all_of_the_one_node(
    slurm: PrivateSlurm, here: Here, request_by: str
) -> None:
    here.write("server.py", STORE)
    here.write("trainer.py", TRAINER.replace('os.environ["SLURM_STEP_GPUS"]', 'os.environ.get("SLURM_STEP_GPUS")'))
    # The file says one node, so a server with nodes of its own would be refused.
    login = Login(here, slurm, nodes={**NODES, "count": 1}, request=request_by)
    file = here.folder / "job.yaml"
    file.write_text(json.dumps({"roles": roles(gpus=0, ready="file:up")}))
    run, number = login.submit("--job", str(file))
    login.wait(number)
    assert run.word("state") == "COMPLETED", everything_printed(run)
    log = (run.folder / "roles/server/logs/rank-0000.log").read_text()
    (served,) = [line for line in log.splitlines() if line.startswith("GPUs")]
    assert served == "GPUs  None CPUs 8"
    (trained,) = {line for line in run.log(0).splitlines() if line.startswith("GPUs")}
    assert trained == ("GPUs None CPUs 2" if request_by == "none" else "GPUs 0,1,2,3 CPUs 2")
