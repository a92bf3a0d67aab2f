"""One job on nodes of several groups, by plain sbatch: ranks are numbered through, and a requeue brings all back."""

from __future__ import annotations

import pytest

from tests.support.local_runs import Here
from tests.support.slurm_jobs import LIMIT_S, POLL_S, Login, everything_printed
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records import events
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = pytest.mark.timeout(900)

NODES = [
    {"name": "big", "count": 1, "cpus": 4, "memory_gb": 8, "directives": {"constraint": "big"}},
    {"name": "small", "count": 2, "cpus": 2, "memory_gb": 4, "directives": {"cpus-per-task": 1}},
]
SAYS = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $SLURM_CPUS_PER_TASK CPUs, $SLURMD_NODENAME"'
# Rank 0 alone takes the request; USR1 would end the others.
ASKED = """\
import os, pathlib, signal, time
run, rank = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"]), os.environ["RANK"]
if rank == "0":
    signal.signal(signal.SIGUSR1, lambda *_: (run / "last.pt").touch())
(run / f"ready-{rank}").touch()
while not (run / "last.pt").exists():
    time.sleep(0.2)
"""
LEAVES_FIRST = 'if [ "$TRAINJOB_ATTEMPT" = 1 ]; then echo 5 >$TRAINJOB_RUN_DIR/requeue; fi'


def test_ranks_are_numbered_through_all_groups_and_come_back_after_a_requeue(slurm: PrivateSlurm, here: Here) -> None:
    login = Login(here, slurm, nodes=NODES)
    run, job = login.submit("--", "sh", "-c", f"{SAYS}; {LEAVES_FIRST}")

    def reasons() -> list[str]:
        return slurm.run(["squeue", "--noheader", "--format=%r"]).text.split()

    until(lambda: run.word("state") == "REQUEUED" and "BeginTime" in reasons(), "the requeue", LIMIT_S, POLL_S)
    faults.start_soon(slurm, job)

    def is_over() -> bool:
        faults.trigger_backfill(slurm, job)
        return not reasons()

    until(is_over, "the job to end", LIMIT_S, POLL_S)
    assert (run.word("state"), run.word("attempt")) == ("COMPLETED", "2"), everything_printed(run)
    output = [(run.folder / f"logs/rank-000{rank}.log").read_text().splitlines() for rank in range(4)]
    expected = [
        "0 of 4, 0 of 2, 2 CPUs, node1",
        "1 of 4, 1 of 2, 2 CPUs, node1",
        "2 of 4, 0 of 1, 1 CPUs, node2",
        "3 of 4, 0 of 1, 1 CPUs, node3",
    ]
    assert [[line for line in lines if "CPUs" in line] for lines in output] == [[line] * 2 for line in expected]


def test_a_request_reaches_a_rank_and_ends_none_that_has_no_handler_for_it(slurm: PrivateSlurm, here: Here) -> None:
    login = Login(here, slurm, nodes=NODES)
    here.write("asked.py", ASKED)
    run, job = login.submit("--", "python", "asked.py")
    until(lambda: len([*run.folder.glob("ready-*")]) == 4, "the ranks to start", LIMIT_S, POLL_S)
    slurm.run(["scancel", "--signal=USR1", "--batch", job])
    until(lambda: run.word("state") not in ("", "RUNNING"), "the request to be taken", LIMIT_S, POLL_S)
    slurm.run(["scancel", job])
    assert "(USR1), ended with 0" in events.why_ended(events.read(RunPaths(run.folder)), 1), everything_printed(run)
