"""The verdict on a batch file, from records of every shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from batchfiles.commands.rehearse import print_verdict
from batchfiles.rehearsal.recording import Call, EndedJob, RankGroup, RecordedProcess, Recording, Rendezvous, SlurmStep
from batchfiles.rehearsal.verdict import BatchVerdict, judge
from batchfiles.rules.codes import Finding
from tests.support.cases import each

TRAINED = "after 10 s of training"


def process(rank: int | None = None, size: int = 4, world: str | None = "a", **fields: Any) -> RecordedProcess:
    """Return a rank of `size`, two on each node, that used a GPU of its own."""
    number = rank or 0
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1", **fields.pop("environment", {})}
    chosen: dict[str, Any] = {
        **dict.fromkeys(("error", "missing", "line"), None),
        **dict.fromkeys(("handles", "signals"), ()),
        "node": f"node{number // 2 + 1}",
        "pid": number,
        "parent": 1,
        "began_at": 0.0,
        "words": ("python", "train.py"),
        "folder": "/p",
        "cpus": 2,
        "threads": 1,
        "torch": "2.13.0",
        "meeting": None if rank is None else Rendezvous(rank, size, "node1", 29500),
        "world": None if rank is None or world is None else RankGroup(world, rank, size, "nccl"),
        "visible_gpus": (0, 1),
        "used_gpus": (number % 2,) if world else (),
        "has_ended": False,
        "cpu_s": 1.0,
    }
    return RecordedProcess(environment=environment, **{**chosen, **fields})


def launcher(node: str, *words: str) -> RecordedProcess:
    return process(None, words=("python3", "/v/bin/torchrun", *words), node=node, used_gpus=())


def judged(
    processes: Sequence[RecordedProcess],
    *codes: str,
    inject: str | None = None,
    stopped: str | None = TRAINED,
    **of_job: Any,
) -> BatchVerdict:
    chosen = {"state": "RUNNING", "exit_code": 0, "signal": 0, "restarts": 0, "reason": "None", "output": "", **of_job}
    job = EndedJob("7", nodes=("node1", "node2"), output_file="/p/log", **chosen)
    recording = Recording([job], (), processes, (), 2, stopped)
    return judge(recording, [Finding(code, 9, "text") for code in codes], inject)


def waiting(devices: str, **of_launcher: str) -> RecordedProcess:
    """Return a rank whose program is not here."""
    told = {"CUDA_VISIBLE_DEVICES": devices, "SLURM_STEP_ID": "0", **of_launcher}
    if of_launcher:
        told["TORCHELASTIC_RUN_ID"] = "x"
    return process(None, environment=told, torch=None, used_gpus=(), visible_gpus=None)


GOOD = [process(rank) for rank in range(4)]


def test_one_world_with_a_gpu_for_each_rank_passes() -> None:
    verdict = judged(GOOD, "nnodes-missing", "more-processes-than-gpus", "gpus-unused", "port-fixed")
    assert verdict.passed
    assert verdict.facts[0] == "4 ranks on 2 nodes formed one world (nccl)"
    assert [one.is_confirmed for one in verdict.confirmations] == [False, False, False, None]


@pytest.mark.parametrize("codes", [("port-fixed",), ("port-fixed", "command-not-found", "nnodes-missing")])
def test_what_it_does_not_show_stands_apart_and_errors_limit_the_last_word(
    codes: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_verdict(judged(GOOD, *codes), 53.0)
    *_, warnings, last = capsys.readouterr().out.splitlines()
    assert warnings == "doctor finds warnings that this rehearsal does not show: port-fixed"
    limit = ", but for errors that doctor finds and this rehearsal does not show: command-not-found"
    assert last == "PASSED in 53.0 s" + limit * ("command-not-found" in codes)


@each(
    ("processes", "code", "problem"),
    [
        (
            [
                process(0, 2, "a"),
                process(1, 2, "a"),
                process(0, 2, "b", node="node2"),
                process(1, 2, "b", node="node2"),
            ],
            "nnodes-missing",
            "2 worlds (2 of 2 ranks)",
        ),
        ([process(0, world=None), process(0, world=None, node="node2")], "rank-expanded-early", "2 of them are rank 0"),
        ([process(0, 2), process(1, 2)], "no-srun", "nothing trained on node2"),
        ([launcher("node1")], "no-srun", "the launcher on node1 waited for others, and nothing was started on node2"),
        (
            [process(rank, used_gpus=(0,)) for rank in range(4)],
            "more-processes-than-gpus",
            "ranks 0, 1 share GPU 0 of node1",
        ),
        ([process(0, 2), process(1, 2, node="node2", used_gpus=(0,))], "gpus-unused", "GPU 1 of node1 was never used"),
        ([process(rank, visible_gpus=(), used_gpus=()) for rank in range(4)], "more-processes-than-gpus", "saw no GPU"),
        ([waiting("0"), waiting("0")], "more-processes-than-gpus", "2 ranks of node1 can see 1 GPU in all"),
        ([waiting("1")], "gpus-unused", "GPU 0 of node1 was never used"),
        ([waiting("0,1", LOCAL_RANK="0")], "gpus-unused", "GPU 1 of node1 was never used"),
        (
            [process(rank, environment={"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}) for rank in range(4)],
            "addr-localhost",
            "meet at localhost:1",
        ),
        (
            [*GOOD, launcher("node1", "--rdzv-endpoint=127.0.0.1:29500", "x.py")],
            "addr-localhost",
            "meet at 127.0.0.1:29500",
        ),
    ],
)
def test_a_wrong_start_fails_and_confirms_what_doctor_says(
    processes: list[RecordedProcess], code: str, problem: str
) -> None:
    verdict = judged(processes, code)
    assert problem in "; ".join(verdict.problems)
    assert verdict.confirmations[0].is_confirmed is True


def test_the_fault_that_would_show_a_finding_is_named() -> None:
    verdict = judged(GOOD, "no-kill-on-bad-exit", "time-limit-unhandled", "port-fixed")
    assert [one.shown_by for one in verdict.confirmations] == ["rank-death", "timeout", None]


def test_a_node_where_a_launcher_waits_is_named() -> None:
    verdict = judged([process(0, 2), process(1, 2), launcher("node2")])
    assert verdict.problems[0] == "nothing trained on node2, where a launcher waits for others: the job has 2 nodes"


def test_tasks_that_never_meet_fail() -> None:
    alone = [
        process(None, environment={"SLURM_STEP_ID": "0"}, used_gpus=(0,), node=node) for node in ("node1", "node2")
    ]
    assert "2 tasks of step 0 run the same program, and each trains alone" in judged(alone).problems


def test_tasks_without_torch_may_find_each_other_by_what_slurm_tells_them() -> None:
    tasks = [
        process(None, environment={"SLURM_STEP_ID": "0"}, torch=None, used_gpus=(), node=f"node{n}") for n in (1, 2)
    ]
    assert judged(tasks).passed


def test_the_own_name_of_a_node_may_mean_another_address_on_the_cluster() -> None:
    ranks = [process(rank, environment={"MASTER_ADDR": "127.0.1.1", "MASTER_PORT": "1"}) for rank in range(4)]
    verdict = judged(ranks, "addr-hostname-ip")
    assert (verdict.passed, verdict.confirmations[0].is_confirmed) == (True, True)
    assert any("the own name of a node here" in fact for fact in verdict.facts)


def test_steps_one_after_another_do_not_crowd_a_node() -> None:
    steps = [replace(waiting("0"), environment={**waiting("0").environment, "SLURM_STEP_ID": str(n)}) for n in (0, 1)]
    assert not any("in all" in problem for problem in judged(steps).problems)


def test_a_log_that_went_elsewhere_says_nothing_of_its_folder() -> None:
    job = EndedJob("7", "COMPLETED", 0, 0, ("node1", "node2"), 0, "None", "", "/p/slurm-7.out")
    verdict = judge(Recording([job], (), GOOD, (), 2), [Finding("log-folder-must-exist", 3, "logs/")])
    assert verdict.confirmations[0].is_confirmed is None


def test_a_second_launcher_that_failed_clears_nothing_and_is_named() -> None:
    second = replace(launcher("node1"), error="DistNetworkError: address already in use\nmore")
    verdict = judged(
        [*GOOD, launcher("node1"), second], "tasks-times-torchrun", state="FAILED", exit_code=1, stopped=None
    )
    assert verdict.confirmations[0].is_confirmed is None
    assert verdict.problems == ["the job is FAILED, with exit code 1; DistNetworkError: address already in use"]


@pytest.mark.parametrize(
    ("output", "named"),
    [
        (
            "x\n/t/spool-node1/job1/slurm_script: line 9: lamin: command not found\nbye\n",
            "; line 9: lamin: command not found",
        ),
        (
            "srun: error: Hostlist is empty!\nsrun: error: node1: task 0: Exited with exit code 2\n",
            "; error: Hostlist is empty!",
        ),
        ("bye\n", ""),
    ],
)
def test_the_last_error_of_the_batch_shell_is_named(output: str, named: str) -> None:
    verdict = judged([], state="FAILED", exit_code=127, output=output, stopped=None)
    assert verdict.problems == [f"no training started: the job is FAILED, with exit code 127{named}"]


def test_an_address_of_torchrun_s_own_is_no_fault() -> None:
    environment = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
    ranks = [process(rank, environment=environment) for rank in range(4)]
    assert judged([*ranks, launcher("node1", "--rdzv-endpoint", "node1:29500", "x.py")]).passed


def test_missing_data_is_no_fault_of_the_batch_file_and_is_said() -> None:
    reported = {"RANK": "0", "WORLD_SIZE": "1"}
    ended = process(
        None, environment=reported, missing="data.bin", error="FileNotFoundError: x", line="t.py:3", used_gpus=()
    )
    verdict = judged([ended], state="FAILED", exit_code=1, stopped=None)
    assert verdict.passed
    assert any(
        "training stopped (at t.py:3) because data.bin is missing on this machine" in fact for fact in verdict.facts
    )


def test_an_error_of_a_rank_fails_and_a_lost_exit_code_is_named() -> None:
    ended = [process(rank, error="ValueError: no", line="t.py:3", has_ended=True) for rank in range(4)]
    verdict = judged(ended, "exit-code-lost", state="COMPLETED", stopped=None)
    assert verdict.problems[0] == "rank 0 ended with ValueError: no at t.py:3"
    assert "exit code is lost" in verdict.problems[1]
    assert verdict.confirmations[0].is_confirmed is True


def test_an_error_of_the_ranks_for_which_others_wait_is_named() -> None:
    gone = process(1, meeting=None, world=None, error="RuntimeError: no such GPU", line="train.py:9", has_ended=True)
    verdict = judged([process(0, 2, None), gone], stopped="after 45 s without a world")
    assert "1 rank waited for a world of 2 that never formed" in verdict.problems
    assert any("ended with RuntimeError: no such GPU at train.py:9" in one for one in verdict.problems)


def test_a_job_without_a_log_folder_is_explained() -> None:
    verdict = judged([], "log-folder-must-exist", state="FAILED", signal=53, stopped=None)
    assert "can't write the job's output to /p/log" in verdict.problems[0]
    assert verdict.confirmations[0].is_confirmed is True


def test_a_refusal_of_sbatch_is_repeated() -> None:
    verdict = judge(Recording((), (), (), (), 0, refused="invalid partition"))
    assert list(verdict.problems) == ["sbatch refuses the file: invalid partition"]


@each(
    ("inject", "code", "of_job", "passed"),
    [
        ("timeout", "time-limit-unhandled", {"state": "TIMEOUT", "stopped": None}, False),
        ("timeout", "time-limit-unhandled", {"restarts": 1}, True),
        ("node-failure", "no-set-e", {"state": "NODE_FAIL", "stopped": None}, False),
        ("preempt", "no-set-e", {"restarts": 1}, True),
        (
            "rank-death",
            "no-kill-on-bad-exit",
            {"stopped": "its other ranks have done nothing for 25 s, and wait"},
            False,
        ),
        ("rank-death", "no-kill-on-bad-exit", {"state": "FAILED", "stopped": None}, True),
        ("cancel", "no-set-e", {"state": "CANCELLED", "stopped": None}, True),
        ("cancel", "no-set-e", {"restarts": 1}, False),
    ],
)
def test_the_effect_of_a_fault(inject: str, code: str, of_job: dict[str, Any], passed: bool) -> None:
    again = [process(rank, environment={"SLURM_RESTART_COUNT": "1"}) for rank in range(4)]
    verdict = judged([*GOOD, *again], code, inject=inject, **of_job)
    assert verdict.passed is passed
    if code != "no-set-e":
        assert verdict.confirmations[0].is_confirmed is not passed


def test_what_was_stood_in_for_is_said() -> None:
    calls = [
        Call("node1", False, "/p", ("module", "load", "cuda")),
        Call("node1", False, "/p", ("cd", "/scratch/me")),
        Call("node2", True, "/p", ("apptainer", "exec", "img.sif", "python")),
    ]
    job = EndedJob("7", "RUNNING", 0, 0, ("node1", "node2"), 0, "", "", "")
    facts = judge(Recording([job], (), GOOD, calls, 2, TRAINED)).facts
    assert any("module load cuda" in fact for fact in facts)
    assert any("--map /scratch/me=FOLDER" in fact for fact in facts)
    assert any("what apptainer would start ran on this machine" in fact for fact in facts)


def in_step(cpus: int, **fields: Any) -> Recording:
    """Return the record of four ranks of one step of srun's, in a job that asks for 8 CPUs a task."""
    reported = {"SLURM_STEP_ID": "0", "SLURM_CPUS_PER_TASK": "8"}
    job = EndedJob("7", "COMPLETED", 0, 0, ("node1", "node2"), 0, "None", "", "/p/log")
    ranks = [process(rank, environment=reported, **fields) for rank in range(4)]
    pip = Call("node1", in_step=False, folder="/p", words=("pip", "install", "-q", "x"))
    return Recording([job], [SlurmStep("7.0", "python", ("node1", "node2"), 4, cpus)], ranks, [pip], 2)


@each(
    ("recording", "code", "confirmed"),
    [
        (in_step(4), "srun-loses-cpus", True),
        (in_step(32), "srun-loses-cpus", False),
        (in_step(32, visible_gpus=(0,)), "gpus-per-task-hides-peers", True),
        (in_step(32), "gpus-per-task-hides-peers", False),
        (in_step(32), "installs-in-job", True),
        (in_step(32, folder="/s/spool-node1/job00001"), "script-dir-is-spool", True),
        (in_step(32), "script-dir-is-spool", None),
        (in_step(32), "cancels-itself", False),
    ],
)
def test_what_was_seen_confirms_or_clears_a_finding(recording: Recording, code: str, confirmed: bool | None) -> None:
    assert judge(recording, [Finding(code, 9, "text")]).confirmations[0].is_confirmed is confirmed


def test_ranks_that_ended_before_they_met_show_that_gpus_are_hidden() -> None:
    seen = in_step(32, visible_gpus=(0,), meeting=None, world=None, torch=None, error="CUDA error")
    assert judge(seen, [Finding("gpus-per-task-hides-peers", 9, "text")]).confirmations[0].is_confirmed


def tasks(*environments: dict[str, str], words: tuple[str, ...] = ("python", "train.py")) -> list[RecordedProcess]:
    own = [{"SLURM_PROCID": str(number), **one} for number, one in enumerate(environments)]
    return [
        process(None, environment=one, words=words, node=f"node{at + 1}", used_gpus=()) for at, one in enumerate(own)
    ]


@each(
    ("processes", "code", "confirmed"),
    [
        (tasks({"RANK": "0"}, {"RANK": "0"}), "rank-expanded-early", True),
        (
            [*GOOD, launcher("node1", "--node_rank=0"), launcher("node2", "--node_rank", "0")],
            "rank-expanded-early",
            True,
        ),
        ([*GOOD, launcher("node1", "--node_rank=0"), launcher("node2", "--node_rank=1")], "rank-expanded-early", False),
        (tasks({"MASTER_ADDR": "10.0.0.1 172.17.0.1"}, {}), "addr-hostname-ip", True),
        (tasks({"MASTER_ADDR": "127.0.1.1"}, {}), "addr-hostname-ip", True),
        (tasks({"MASTER_ADDR": "fe80::1"}, {}), "addr-hostname-ip", True),
        (tasks({"MASTER_ADDR": "10.0.0.1"}, {}), "addr-hostname-ip", None),
        (tasks({"PYTHONPATH": "/s/spool-node1/job1"}, {}), "script-dir-is-spool", True),
    ],
)
def test_what_processes_were_told_confirms_a_finding(
    processes: list[RecordedProcess], code: str, confirmed: bool | None
) -> None:
    assert judged(processes, code).confirmations[0].is_confirmed is confirmed


def test_a_message_of_bash_shows_no_use_of_the_spool_folder() -> None:
    for output, confirmed in (
        ("/s/spool-node1/job7/slurm_script: line 5: x: command not found\n", None),
        ("/s/spool-node1/job7/slurm_script: line 5: cd: /s/spool-node1/job7/src: No such file or directory\n", True),
    ):
        assert judged(GOOD, "script-dir-is-spool", output=output).confirmations[0].is_confirmed is confirmed


def test_what_bash_can_not_read_is_confirmed_by_what_it_prints() -> None:
    for code in ("not-bash", "bash-under-sh"):
        assert judged([], code, output="x: line 9: syntax error near `fi'").confirmations[0].is_confirmed is True


def test_ranks_that_were_killed_while_they_saved_are_no_pass() -> None:
    back: dict[str, Any] = {"inject": "timeout", "stopped": None, "restarts": 1, "state": "RUNNING"}
    killed = [process(rank, signals=("USR1",)) for rank in range(4)]
    again = [replace(one, environment={**one.environment, "SLURM_RESTART_COUNT": "1"}) for one in GOOD]
    verdict = judged([*killed, *again], "wait-interrupted", **back)
    assert verdict.problems == ["the end of the batch shell killed 4 ranks that had been asked to save (line 9: text)"]
    assert verdict.confirmations[0].is_confirmed is True
    assert judged([*killed, *again], **back).passed  # such as those that save and go on, until the limit
    assert not judged([*killed, *again], **{**back, "exit_code": 138}).passed
    saved = [replace(one, has_ended=True) for one in killed]
    right = judged([*saved, *again], "wait-interrupted", **{**back, "exit_code": 138})
    assert (right.problems, right.confirmations[0].is_confirmed) == ([], False)


def test_a_rank_that_was_killed_shows_whether_the_exit_code_is_lost() -> None:
    for state, lost in (("COMPLETED", True), ("FAILED", False)):
        verdict = judged(GOOD, "exit-code-lost", inject="rank-death", stopped=None, state=state)
        assert verdict.confirmations[0].is_confirmed is lost


def test_an_exit_code_of_ranks_that_the_job_lost_is_named_with_its_line() -> None:
    ended = [process(rank, exit_code=42, has_ended=True) for rank in range(4)]
    verdict = judged(ended, "exit-code-lost", stopped=None, state="COMPLETED")
    assert verdict.problems == [
        "4 of 4 ranks ended with exit code 42",
        "the job is COMPLETED all the same: its exit code is lost (line 9: text)",
    ]
    assert [one.is_confirmed for one in verdict.confirmations] == [True]
    right = [process(rank, exit_code=0, has_ended=True) for rank in range(4)]
    assert judged(right, stopped=None, state="COMPLETED").problems == []


def test_trainings_one_after_another_are_no_worlds_apart() -> None:
    def training(world: str, began_at: float) -> list[RecordedProcess]:
        times: dict[str, Any] = {"began_at": began_at, "ended_at": began_at + 5, "has_ended": True}
        return [process(rank, world=world, pid=rank + int(began_at), **times) for rank in range(4)]

    right = judged([*training("a", 0), *training("b", 6)], stopped=None, state="COMPLETED")
    assert right.problems == []
    assert right.facts[0].endswith(" (2 times)")
    assert len(right.facts) == len(set(right.facts))
    together = judged([*training("a", 0), *training("b", 1)], stopped=None, state="COMPLETED").problems
    assert any("2 worlds" in problem for problem in together)
    failed = [*training("a", 0), *[replace(one, exit_code=3) for one in training("b", 6)]]
    assert judged(failed, stopped=None, state="COMPLETED").problems[0] == "4 of 4 ranks ended with exit code 3"
