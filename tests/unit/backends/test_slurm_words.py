"""What Slurm's commands print, read. The recorded outputs are those of a private Slurm 22.05.8 (Debian 12) unless a
comment says otherwise; the lines of other states are the same format with the state's own word."""

from __future__ import annotations

import pytest

from tests.support.cases import each
from trainjob.backends.base import Liveness
from trainjob.backends.slurm import queue
from trainjob.contract import states
from trainjob.machines.slurm import commands, partitions
from trainjob.machines.slurm.partitions import PartitionNodes

SQUEUE = """\
3|3|N/A|PENDING|Resources|2026-11-21T12:42:05|0:00|10:00|10:00||/shared/runs/3nru-sleep
2|2|N/A|RUNNING|None|2026-11-21T12:32:04|1:05|10:00|8:55|n[1-2]|/shared/runs/kf|zw
7|6|4|PENDING|JobArrayTaskLimit|N/A|0:00|10:00|10:00||/shared/runs/swee
1|1|N/A|COMPLETED|None|2026-11-21T12:31:55|0:03|10:00|9:57|n1|/shared/runs/e45o
"""
SINFO = """\
gpu*|up|2:00:00|2|8|16384|gpu:4|1-2|1
short|up|10:00|2|8|16384|gpu:4|1|1
"""
# As Slurm's manual describes the fields, from sites with typed GRES, sockets and several kinds of node.
SINFO_OF_A_SITE = """\
main*|up|infinite|4|64|512000+|gpu:a100:4(S:0-1),nvme:1|1-infinite|1
main*|up|infinite|2|128|1024000|gpu:h100:8(S:0-3)|1-infinite|1
down|down|1-00:00:00|1|64|512000|(null)|1-infinite|1
"""


def test_squeue_is_read_and_a_folder_may_hold_the_sign_between_fields() -> None:
    found = list(queue.parse("squeue: warning\n" + SQUEUE))
    assert [job.id for job in found] == ["3", "2", "7", "1"]
    assert found[1].folder == "/shared/runs/kf|zw"
    assert [job.has_ended for job in found] == [False, False, False, True]
    assert [job.name for job in found] == ["3", "2", "6_4", "1"]
    assert found[2].run_folder == "/shared/runs/swee/tasks/4"


def test_the_parts_of_a_job_on_groups_of_nodes_are_one_job() -> None:
    line = "{0}|{1}|N/A|RUNNING|None|2026-11-21T12:00:00|1:05|10:00|8:55|{2}|/shared/runs/kfzw"
    parts = [line.format(5, "4+1", "n[2-3]"), line.format(4, "4+0", "n1"), line.format(6, "6", "n4")]
    assert [(job.id, job.array_id, job.nodes) for job in queue.parse("\n".join(parts))] == [
        ("4", "4", "n[2-3],n1"),
        ("6", "6", "n4"),
    ]
    shown = "JobId={} HetJobId=4 HetJobOffset={} JobState=RUNNING WorkDir=/shared/runs/kfzw StdErr="
    assert [job.id for job in queue.parse_shown(f"{shown.format(4, 0)}\n{shown.format(5, 1)}")] == ["4"]
    assert queue.parse_accounting("4+0|FAILED\n4+1|FAILED\n") == [("4", "FAILED")]


@each(
    ("reason", "words"),
    [
        ("PartitionNodeLimit", "forever: it asks for more or fewer nodes than its partition allows"),
        ("QOSMaxGRESPerUser", "until you use fewer accelerators (its QOS limits them)"),
        ("QOSMaxCpuPerUserLimit", "until you use fewer CPUs (its QOS limits them)"),
        ("QOSMaxJobsPerUserLimit", "until you have fewer running jobs (its QOS limits them)"),
        ("QOSGrpNodeLimit", "until its users use fewer nodes (its QOS limits them)"),
        ("QOSMaxNodePerJobLimit", "forever: its QOS allows a job fewer nodes"),
        ("QOSMaxWallDurationPerJobLimit", "forever: its QOS allows a job less time"),
        ("QOSMaxCpuPerNode", "forever: its QOS allows a job fewer CPUs of a node"),
        ("QOSMinCpuNotSatisfied", "forever: its QOS demands more CPUs of a job"),
        ("QOSMinGRES", "forever: its QOS demands more accelerators of a job"),
        ("AssocGrpCPURunMinutesLimit", "until your account's users have fewer CPU minutes of running jobs"),
        ("AssocGrpGRES", "until your account's users use fewer accelerators (your account limits them)"),
        ("AssocMaxJobsLimit", "until you have fewer running jobs (your account limits them)"),
        ("MaxGRESPerAccount", "until your account's users use fewer accelerators (its QOS or account limits them)"),
    ],
)
def test_the_limit_that_holds_a_job_back_is_said_plainly(reason: str, words: str) -> None:
    (job,) = queue.parse(f"1|1|N/A|PENDING|{reason}|N/A|0:00|1:00|1:00||/x")
    assert queue.waits(job).startswith(f"waits {words}")
    assert queue.waits(job).endswith(f"({reason})")


def test_why_a_job_waits_is_said_plainly() -> None:
    waiting, _, array, _ = queue.parse(SQUEUE)
    assert queue.waits(waiting) == "waits for nodes to become free (Resources); may start at 2026-11-21 12:42:05"
    assert queue.waits(array) == "waits for earlier elements of its array (JobArrayTaskLimit)"
    chained = next(queue.parse("4|4|N/A|PENDING|Dependency|N/A|0:00|1:00|1:00||/x"))
    assert queue.waits(chained, ["3nru-sleep"]) == "waits for run 3nru-sleep to be COMPLETED (Dependency)"
    assert queue.waits(chained) == "waits for the job that it depends on (Dependency)"
    unknown = next(queue.parse("1|1|N/A|PENDING|SomethingNew|N/A|0:00|1:00|1:00||/x"))
    assert queue.waits(unknown) == "waits: SomethingNew"


def test_a_job_has_its_id_its_nodes_and_its_times() -> None:
    waiting, running, element, _ = queue.parse(SQUEUE)
    assert queue.answer([waiting]).scheduler == {"job_id": "3", "time_limit": "10:00"}
    assert queue.answer([waiting, running]).scheduler == {
        "job_id": "2",
        "nodes": "n[1-2]",
        "elapsed": "1:05",
        "time_limit": "10:00",
        "time_left": "8:55",
    }
    assert queue.answer([element]).scheduler["job_id"] == "6_4"


@each(
    ("words", "liveness", "state"),
    [
        (["RUNNING"], Liveness.ALIVE, None),
        (["COMPLETED", "RUNNING"], Liveness.ALIVE, None),
        (["PENDING", "COMPLETED"], Liveness.ALIVE, states.PENDING),
        (["COMPLETING"], Liveness.ALIVE, None),
        (["REQUEUED"], Liveness.ALIVE, None),
        (["COMPLETED"], Liveness.GONE, None),
        (["FAILED", "TIMEOUT"], Liveness.GONE, states.TIMEOUT),
        (["CANCELLED"], Liveness.GONE, states.CANCELLED),
        (["OUT_OF_MEMORY"], Liveness.GONE, states.FAILED),
        (["NODE_FAIL"], Liveness.GONE, states.LOST),
        (["PREEMPTED"], Liveness.GONE, states.CANCELLED),
    ],
)
def test_the_jobs_of_a_run_make_one_answer(words: list[str], liveness: Liveness, state: str | None) -> None:
    lines = [f"{number}|{number}|N/A|{word}|None|N/A|0:01|1:00|0:59|n1|/x" for number, word in enumerate(words, 1)]
    found = queue.answer(list(queue.parse("\n".join(lines))))
    assert (found.liveness, found.state) == (liveness, state)


def test_accounting_is_read_and_steps_are_passed_over() -> None:
    message = "41|COMPLETED\n42|CANCELLED by 1000\n42.batch|CANCELLED\n43_7|TIMEOUT\nsacct: error\n||\n"
    assert queue.parse_accounting(message) == [("41", "COMPLETED"), ("42", "CANCELLED by 1000"), ("43_7", "TIMEOUT")]
    assert queue.ended("CANCELLED by 1000").state == states.CANCELLED
    assert queue.ended("CANCELLED+").state == states.CANCELLED


def test_sinfo_is_read() -> None:
    gpu, short = partitions.parse(SINFO)
    assert (gpu.name, gpu.is_default, gpu.is_up, gpu.max_time, gpu.max_nodes) == ("gpu", True, True, "2:00:00", 2)
    assert gpu.nodes == (PartitionNodes(2, 8, 16384, (("gpu", None, 4),)),)
    assert (short.is_default, short.max_nodes) == (False, 1)


def test_sinfo_of_a_site_with_several_kinds_of_node_is_read() -> None:
    main, down = partitions.parse(SINFO_OF_A_SITE)
    assert (main.max_time, main.max_nodes, main.node_count) == ("UNLIMITED", None, 6)
    assert [one.gres for one in main.nodes] == [(("gpu", "a100", 4), ("nvme", None, 1)), (("gpu", "h100", 8),)]
    assert (down.is_up, down.nodes[0].gres) == (False, ())


@pytest.mark.parametrize(
    ("message", "is_lost"),
    [
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", True),
    ],
)
def test_a_controller_that_is_down_is_distinguished_from_a_refusal(message: str, is_lost: bool) -> None:
    assert commands.DOWN.search(message)
    assert bool(commands.LOST.search(message)) == is_lost


@pytest.mark.parametrize(
    "message",
    [
        "sbatch: error: invalid partition specified: nowhere",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
    ],
)
def test_a_refusal_is_no_controller_that_is_down(message: str) -> None:
    assert not commands.DOWN.search(message)


def test_a_job_that_can_never_begin_names_the_runs_it_waited_for() -> None:
    (job,) = queue.parse("4|4|N/A|PENDING|DependencyNeverSatisfied|N/A|0:00|1:00|1:00||/x")
    own = "waits forever, because the job that it depends on has failed: cancel it (DependencyNeverSatisfied)"
    assert queue.waits(job) == own
    assert queue.waits(job, ["a"]) == own.replace(
        "the job that it depends on has failed", "run a did not become COMPLETED"
    )
    assert "because runs a, b did not become COMPLETED" in queue.waits(job, ["a", "b"])
    (other,) = queue.parse("4|4|N/A|PENDING|Priority|N/A|0:00|1:00|1:00||/x")
    assert queue.waits(other, ["a"]) == "waits because other jobs have priority (Priority)"


def test_a_job_is_called_by_its_own_number_that_of_its_array_and_by_elements_that_wait() -> None:
    line = "{}|{}|{}|PENDING|None|N/A|0:00|1:00|1:00||/x"
    element, waiting, alone = queue.parse(
        "\n".join(line.format(*one) for one in ((8, 7, 1), (7, 7, "2-9"), (5, 5, "N/A")))
    )
    names = ("7_1", "7", "7_3", "8", "5", "5_1", "9_3")
    assert [name for name in names if element.is_called(name)] == ["7_1", "7"]
    assert [name for name in names if waiting.is_called(name)] == ["7_1", "7", "7_3"]
    assert [name for name in names if alone.is_called(name)] == ["5", "5_1"]


def test_a_suspended_job_and_a_state_of_another_slurm_are_said() -> None:
    line = "{0}|{0}|N/A|{1}|None|N/A|0:00|1:00|1:00|n1|/x"
    assert queue.answer(list(queue.parse(line.format(1, "SUSPENDED")))).note == "Slurm has suspended it"
    assert queue.answer(list(queue.parse(line.format(1, "RUNNING")))).note is None
    assert queue.ended("ODD").note == "Slurm calls the job ODD"
    assert [queue.is_end(word) for word in ("FAILED+", "CANCELLED by 5", "RUNNING", "", " ")] == [
        True,
        True,
        *[False] * 3,
    ]
    last = line.format(10, "TIMEOUT") + "\n" + line.format(9, "FAILED")
    assert queue.answer(list(queue.parse(last))).state == states.TIMEOUT


def test_lines_that_are_no_jobs_are_passed_over() -> None:
    line = "{}|{}|N/A|{}|None|N/A|0:00|1:00|1:00|n1|/x"
    odd = [line.format("x", 1, "RUNNING"), line.format(1, "x", "RUNNING"), line.format(1, 1, "Running"), "1|2|3"]
    assert list(queue.parse("\n".join(odd))) == []
    shown = "JobId={} JobState={} WorkDir=/x Comment=JobId=9"
    odd = [shown.format("x", "RUNNING"), shown.format(1, "Running"), "JobId=1 JobState=RUNNING", "JobState=RUNNING"]
    assert list(queue.parse_shown("\n".join(odd))) == []
    (job,) = queue.parse_shown(
        "JobId=8 ArrayJobId=7 ArrayTaskId=3 JobState=PENDING Reason=Priority StartTime=Unknown NodeList=(null) "
        "RunTime=0:05 TimeLimit=1:00 WorkDir=/a b/c Command=x"
    )
    assert (job.id, job.name, job.reason, job.start, job.nodes) == ("8", "7_3", "Priority", "N/A", "")
    assert (job.elapsed, job.time_limit, job.folder) == ("0:05", "1:00", "/a b/c")


@pytest.mark.parametrize(
    ("output", "job_id"),
    [
        ("", None),
        ("12\n", "12"),
        ("see 99\n 12;cluster-1\n", "12"),
        ("11\n12\n", "12"),
        ("12 \n", "12"),
        ("x12\n", None),
        ("12;a b\n", None),
    ],
)
def test_the_id_of_a_new_job_is_a_line_of_its_own(output: str, job_id: str | None) -> None:
    assert queue.submitted_id(output) == job_id
