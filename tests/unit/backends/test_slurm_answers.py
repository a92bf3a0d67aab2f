"""The back end for Slurm beside a Slurm that says what a test wants: what is asked, submitted, believed and ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import sleeps_skipped
from tests.support.records import record
from tests.support.run_folders import made, made_element, recorded
from trainjob.backends import mirror
from trainjob.backends.base import Answer, Liveness, NotSubmittedError, UnknownOutcomeError
from trainjob.backends.slurm import asking, backend, steps
from trainjob.backends.slurm.backend import Order
from trainjob.cluster.slurm_text import Array
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, user_data
from trainjob.machines.access import HERE
from trainjob.machines.process import CommandError, Completed
from trainjob.machines.slurm import commands
from trainjob.machines.slurm.commands import ControllerDownError, SlurmRefusedError
from trainjob.machines.ssh.failures import SshError
from trainjob.records import usage
from trainjob.records.submission import Remote

DOWN = ControllerDownError("the controller is down", is_lost=False)
LOST = ControllerDownError("sbatch did not answer", is_lost=True)
UNKNOWN_JOB = SlurmRefusedError("refused", "slurm_load_jobs error: Invalid job id specified")
NO_JOBS = "No jobs in the system\n"

Said = str | Exception | Callable[[Sequence[str]], str]


def listed(job: str, state: str, folder: str, array: str | None = None, index: str = "N/A") -> str:
    """Return a line of squeue."""
    return f"{job}|{array or job}|{index}|{state}|None|N/A|1:05|10:00|8:55|n1|{folder}\n"


def shown(job: str, state: str, folder: str) -> str:
    """Return a line of `scontrol show job -o`."""
    return f"JobId={job} JobName=x JobState={state} Reason=None RunTime=0:01 WorkDir={folder} StdErr=/x\n"


class Slurm:
    """Slurm's commands: each says what `says` has for its name, the last for ever; `calls` has their words."""

    def __init__(self) -> None:
        self.says: dict[str, list[Said]] = {
            "squeue": [""],
            "scontrol": [NO_JOBS],
            "sacct": [""],
            "scancel": [""],
            "srun": [""],
        }
        self.calls: list[tuple[str, ...]] = []
        self.slept_s: list[float] = []

    def call(self, _machine: object, words: Sequence[str], *, program: str | None = None, **_: Any) -> Completed:
        name = program or words[0]
        self.calls.append(("squeue",) if name == "squeue" else tuple(words))
        rest = self.says[name]
        said = rest.pop(0) if len(rest) > 1 else rest[0]
        if isinstance(said, Exception):
            raise said
        text = said if isinstance(said, str) else said(words)
        return Completed(tuple(words), 0, text.encode(), "")

    def called(self, name: str) -> list[tuple[str, ...]]:
        return [words for words in self.calls if words[0] == name]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    found = Slurm()
    monkeypatch.setattr(commands, "call", found.call)
    found.slept_s = sleeps_skipped(monkeypatch)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return found


def native(folder: str, job: str = "7", **more: Any) -> dict[str, Any]:
    return {"job_id": job, "folder": folder, "host": None, "user": None, **more}


def asked(folder: str = "/runs/a", job: str = "7", **more: Any) -> Answer:
    return asking.ask([native(folder, job, **more)])[0]


# --- What is said of a run's jobs.


def test_a_job_that_squeue_lists_is_asked_about_no_further(slurm: Slurm) -> None:
    slurm.says["squeue"] = [listed("7", "RUNNING", "/runs/a") + listed("8", "PENDING", "/runs/b")]
    first, second = asking.ask([native("/runs/a"), native("/runs/b", "8")])
    assert (first.liveness, first.state, first.scheduler["job_id"]) == (Liveness.ALIVE, None, "7")
    assert (second.liveness, second.state, second.scheduler["job_id"]) == (Liveness.ALIVE, states.PENDING, "8")
    assert slurm.calls == [("squeue",)]


def kept_listing() -> Path:
    (path,) = (user_data() / "trainjob" / "squeue").iterdir()
    return path


@pytest.mark.parametrize(
    ("age_s", "said"),
    [(1, "1 s"), (119, "119 s"), (121, "2 min"), (7100, "118 min"), (7300, "2 h"), (86400, "24 h"), (180000, "2 days")],
)
def test_a_controller_that_is_down_leaves_what_was_seen_last_and_its_age(slurm: Slurm, age_s: int, said: str) -> None:
    slurm.says["squeue"] = [listed("7", "RUNNING", "/runs/a"), DOWN]
    asked()
    assert kept_listing().stat().st_mode & 0o777 == 0o600
    os.utime(kept_listing(), (time.time() - age_s, time.time() - age_s))
    now = asked()
    assert (now.liveness, now.state, now.scheduler["job_id"]) == (Liveness.UNKNOWN, None, "7")
    assert now.note == f"as seen {said} ago; the controller is down"


def test_what_was_seen_last_says_why_a_job_waits_and_that_one_has_ended(slurm: Slurm) -> None:
    slurm.says["squeue"] = [listed("7", "PENDING", "/runs/a") + listed("8", "TIMEOUT", "/runs/b"), DOWN]
    asked()
    waits, ended, other = asking.ask([native("/runs/a"), native("/runs/b", "8"), native("/runs/c", "9")])
    assert waits.liveness is Liveness.UNKNOWN
    assert "ago, waits for the scheduler to consider it" in (waits.note or "")
    assert (ended.liveness, ended.state) == (Liveness.GONE, states.TIMEOUT)
    assert (other.liveness, other.note) == (Liveness.UNKNOWN, "the controller is down")


@pytest.mark.parametrize("said", [DOWN, "squeue: warning: whatever\n"])
def test_where_nothing_was_seen_before_nothing_is_known(slurm: Slurm, said: Said) -> None:
    slurm.says["squeue"] = [said]
    now = asked()
    assert (now.liveness, now.state, now.scheduler) == (Liveness.UNKNOWN, None, {})
    assert not (user_data() / "trainjob" / "squeue").exists()


def test_a_folders_ended_jobs_of_earlier_attempts_are_not_this_one(slurm: Slurm) -> None:
    earlier = listed("5", "FAILED", "/runs/a")
    slurm.says |= {"squeue": [earlier], "scontrol": [UNKNOWN_JOB, shown("5", "FAILED", "/runs/a")]}
    assert asked() == Answer(Liveness.GONE, note="Slurm has forgotten its job, and its files do not say how it ended")
    slurm.says["squeue"] = [earlier + listed("6", "RUNNING", "/runs/a")]
    assert asked().scheduler["job_id"] == "6", "one of an earlier attempt that still runs"
    slurm.says["squeue"] = [earlier + listed("7", "FAILED", "/runs/a")]
    assert (asked().liveness, asked().state) == (Liveness.GONE, states.FAILED)


def test_a_job_that_squeue_does_not_list_is_ended_only_if_the_controller_knows_no_other(slurm: Slurm) -> None:
    slurm.says |= {"sacct": ["7|TIMEOUT\n"], "scontrol": [UNKNOWN_JOB, NO_JOBS]}
    ended = asked()
    assert (ended.liveness, ended.state) == (Liveness.GONE, states.TIMEOUT)
    slurm.says["scontrol"] = [UNKNOWN_JOB, shown("9", "RUNNING", "/runs/a")]
    now = asked()
    assert (now.liveness, now.scheduler["job_id"]) == (Liveness.ALIVE, "9"), "a follow-up job"


@pytest.mark.parametrize("second", [[DOWN], [UNKNOWN_JOB, DOWN], ["garbage\n"]])
def test_without_the_controllers_word_an_end_is_not_believed(slurm: Slurm, second: list[Said]) -> None:
    slurm.says |= {"sacct": ["7|COMPLETED\n"], "scontrol": second}
    now = asked()
    assert now.liveness is Liveness.UNKNOWN
    assert (now.note or "").startswith("squeue does not list its job 7, and ")


def test_accounting_that_is_off_is_no_obstacle(slurm: Slurm) -> None:
    slurm.says |= {"sacct": [UserError("off")], "scontrol": [shown("7", "FAILED", "/runs/a")]}
    assert (asked().liveness, asked().state) == (Liveness.GONE, states.FAILED)


@pytest.mark.parametrize(("count", "questions"), [(20, 21), (21, 2)])
def test_many_jobs_that_squeue_does_not_list_are_asked_about_at_once(slurm: Slurm, count: int, questions: int) -> None:
    slurm.says["scontrol"] = [lambda words: NO_JOBS if len(words) == 4 else shown(words[4], "FAILED", "/runs/x")]
    found = asking.ask([native(f"/runs/{number}", str(number)) for number in range(1, count + 1)])
    assert {one.liveness for one in found} == {Liveness.GONE}
    assert len(slurm.called("scontrol")) == questions


def test_an_element_is_one_job_in_a_folder_below(slurm: Slurm) -> None:
    slurm.says["squeue"] = [
        listed("8", "RUNNING", "/runs/a", array="7", index="1") + listed("7", "FAILED", "/runs/a", index="2")
    ]
    one, two = asking.ask([native("/runs/a", element=number) for number in (1, 2)])
    assert (one.liveness, two.liveness, two.state) == (Liveness.ALIVE, Liveness.GONE, states.FAILED)


def test_of_two_slurms_the_one_that_has_the_job_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/one.conf")
    same, other, none = (
        asking.JobOfRun.of(native("/runs/a", slurm_conf=conf)).machine for conf in ("/etc/one.conf", "/etc/two", "")
    )
    assert same is HERE
    assert vars(other) != vars(none) != vars(HERE)
    assert "SLURM_CONF=/etc/two" in str(vars(other))


# --- Submitted once.


def order(paths: RunPaths, *earlier: str, is_first: bool = True, elements: frozenset[int] = frozenset()) -> Order:
    words = ["sbatch", "--parsable", "job.sbatch"]
    return Order(paths, HERE, str(paths.folder), words, set(earlier), is_first=is_first, elements=elements)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return made(tmp_path, "abcd", state=None, native=None, backend="slurm")


def test_a_job_is_submitted_and_its_id_is_the_line_of_its_own(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["sbatch"] = ["welcome 99 times\n101;cluster\n"]
    assert order(paths).submitted() == ("101", "")
    assert len(slurm.called("sbatch")) == 1
    assert [words for words in slurm.calls if words[0] == "scontrol"] == [], "a first try is not looked for twice"


def test_a_refusal_is_final(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["sbatch"] = [SlurmRefusedError("Invalid partition", "Invalid partition")]
    with pytest.raises(NotSubmittedError, match="Invalid partition"):
        order(paths).submitted()
    assert (len(slurm.called("sbatch")), slurm.slept_s) == (1, [0.0])


def test_a_controller_that_is_down_is_tried_again_for_a_while(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["sbatch"] = [DOWN, DOWN, "101\n"]
    assert order(paths).submitted()[0] == "101"
    slurm.says["sbatch"], slurm.calls = [DOWN], []
    with pytest.raises(NotSubmittedError, match=r"down\. It was tried 5 times, and nothing was submitted") as error:
        order(paths).submitted()
    assert error.value.is_out_of_reach
    assert len(slurm.called("sbatch")) == 5


@pytest.mark.parametrize(
    "lost",
    [
        LOST,
        CommandError("killed"),
        "no id\n",
        SlurmRefusedError("failed", "failed", "101\n"),
        SshError("x", "cut", reached=True),
    ],
)
def test_a_job_that_may_have_arrived_is_looked_for_and_never_submitted_again(
    slurm: Slurm, paths: RunPaths, lost: Said
) -> None:
    slurm.says["sbatch"] = [lost]
    slurm.says["squeue"] = ["", "", listed("101", "PENDING", str(paths.folder))]
    assert order(paths).submitted()[0] == "101"
    assert len(slurm.called("sbatch")) == 1
    slurm.says |= {"squeue": [""], "scontrol": [NO_JOBS]}
    with pytest.raises(UnknownOutcomeError, match="may have been submitted or not"):
        order(paths).submitted()
    assert len(slurm.called("sbatch")) == 2
    slurm.says |= {"scontrol": [shown("102", "PENDING", str(paths.folder))]}
    assert order(paths).submitted()[0] == "102", "that squeue lists none is not believed"


def test_a_login_node_that_is_not_reached_is_tried_once(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["squeue"] = [SshError("refused", "login is not reached")]
    with pytest.raises(NotSubmittedError, match="login is not reached"):
        order(paths).submitted()
    assert (slurm.slept_s, slurm.called("sbatch")) == ([0.0], [])


def test_a_question_without_an_answer_is_no_lost_job(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says |= {"squeue": [LOST, LOST, ""], "sbatch": ["101\n"]}
    assert order(paths).submitted()[0] == "101"


@pytest.mark.parametrize(("state", "tries"), [("RUNNING", 5), ("PENDING", 1), ("COMPLETING", 0)])
def test_no_attempt_begins_beside_one_that_still_runs(slurm: Slurm, paths: RunPaths, state: str, tries: int) -> None:
    line = listed("7", state, str(paths.folder))
    slurm.says |= {"squeue": [line], "scontrol": [shown("7", state, str(paths.folder))], "sbatch": ["101\n"]}
    if not tries:
        assert order(paths, "7", is_first=False).submitted()[0] == "101"
        return
    with pytest.raises(NotSubmittedError, match=f"job 7 of an earlier attempt of run abcd is {state} in Slurm"):
        order(paths, "7", is_first=False).submitted()
    assert (len(slurm.called("squeue")), slurm.called("sbatch")) == (tries, [])


def test_only_the_first_attempt_takes_a_job_that_has_ended_for_its_own(slurm: Slurm, paths: RunPaths) -> None:
    folder = str(paths.folder)
    found = listed("9", "FAILED", folder) + listed("10", "FAILED", folder) + listed("99", "RUNNING", "/other")
    slurm.says |= {"squeue": [found], "scontrol": [NO_JOBS], "sbatch": ["101\n"]}
    assert order(paths).submitted()[0] == "10"
    assert order(paths, "9", "10", is_first=False).submitted()[0] == "101"
    assert order(paths, "9", is_first=False).submitted()[0] == "101"


def test_of_an_array_the_job_of_these_elements_counts(slurm: Slurm, paths: RunPaths) -> None:
    other = listed("8", "RUNNING", str(paths.folder), index="1")
    slurm.says |= {"squeue": [other], "scontrol": [NO_JOBS], "sbatch": ["101\n"]}
    assert order(paths, is_first=False, elements=frozenset({2})).submitted()[0] == "101"
    slurm.says["squeue"] = [other + listed("9", "PENDING", str(paths.folder), index="2")]
    assert order(paths, is_first=False, elements=frozenset({2})).submitted()[0] == "9"


def test_what_was_recorded_adds_nothing_to_the_call_but_what_it_waits_for(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["sbatch"] = ["101\n"]
    submission = recorded(paths)
    argv = ["sbatch", "--dependency=afterok:5:6_1", "--dependency=singleton", "--wrap=rm", "job.sbatch"]
    found = backend.start(paths, submission.replace(argv=argv, script="job.sbatch", after=("r1",)))
    (words,) = slurm.called("sbatch")
    assert words == ("sbatch", "--parsable", "--job-name=abcd", "--dependency=afterok:5:6_1", "job.sbatch")
    assert found == native(str(paths.folder), "101", after=["r1"], slurm_conf="", query_timeout_s=10.0)


def test_elements_begin_as_one_array(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["sbatch"] = ["101\n"]
    submission = recorded(paths)
    again = submission.replace(script="job.sbatch", attempt=2, earlier=[native(str(paths.folder), "7_1")])
    found = backend.start_elements(paths, submission, Array((1, 3), None), {1: again, 3: again})
    assert slurm.called("sbatch")[0][-2:] == ("--array=1,3", "job.sbatch")
    assert [one["job_id"] for one in found.values()] == ["101_1", "101_3"]


def test_a_run_waits_for_all_that_continues_the_elements_of_an_array(
    slurm: Slurm, paths: RunPaths, tmp_path: Path
) -> None:
    other = made(tmp_path, "other", state=None, native=native("/runs/other"), backend="slurm")
    elements = [
        made_element(other, number, state) for number, state in ((1, "COMPLETED"), (2, "RUNNING"), (10, "RUNNING"))
    ]
    assert "--dependency=afterok:7" in backend.argv(paths, "job.sbatch", [other])
    elements[1].job_id.write_text("12_2\n")
    assert "--dependency=afterok:12_2:7_10" in backend.argv(paths, "job.sbatch", [other])
    array = record(command=["true"])
    array.request.job["array"] = "1-2,9-11%2"  # two have not begun
    other.job.write_text(array.to_json())
    assert "--dependency=afterok:12_2:7_10:7_9:7_11" in backend.argv(paths, "job.sbatch", [other])


def test_a_run_waits_for_no_array_whose_elements_have_all_ended_meanwhile(
    slurm: Slurm, paths: RunPaths, tmp_path: Path
) -> None:
    other = made(tmp_path, "other", state=None, native=native("/runs/other"), backend="slurm")
    made_element(other, 1, "COMPLETED").job_id.write_text("12_1\n")
    assert backend.argv(paths, "job.sbatch", [other])[-2:] == [f"--job-name={paths.id}", "job.sbatch"]


def test_a_run_waits_for_the_newest_job_of_another(slurm: Slurm, paths: RunPaths, tmp_path: Path) -> None:
    other = made(tmp_path, "other", state="RUNNING", native=native("/runs/other"), backend="slurm")
    assert "--dependency=afterok:7" in backend.argv(paths, "job.sbatch", [other])
    other.job_id.write_text("12\n")
    assert "--dependency=afterok:12" in backend.argv(paths, "job.sbatch", [other]), "a follow-up job"
    with pytest.raises(UserError, match="was never submitted"):
        backend.argv(other, "job.sbatch", [paths])
    assert slurm.calls == []


def test_a_submission_of_unknown_outcome_is_looked_for(slurm: Slurm, paths: RunPaths) -> None:
    submission = recorded(paths)
    assert backend.look_for(paths, submission) is None
    slurm.says["scontrol"] = [shown("9", "PENDING", str(paths.folder))]
    assert (backend.look_for(paths, submission) or {})["job_id"] == "9"
    paths.job_id.write_text("12\n")
    assert (backend.look_for(paths, submission) or {})["job_id"] == "9", "the job of an attempt before it"
    paths.attempt.write_text("1\n")
    slurm.calls = []
    assert (backend.look_for(paths, submission) or {})["job_id"] == "12"
    assert slurm.calls == [], "its own files say it"


# --- Told to a job.


def test_an_interruption_reaches_the_job_script_alone(slurm: Slurm) -> None:
    backend.interrupt(native("/runs/a", element=2))
    assert slurm.calls == [("scancel", "--batch", "--signal=USR1", "7_2")]


def test_a_requeued_job_starts_soon(slurm: Slurm) -> None:
    backend.start_soon(native("/runs/a"))
    assert slurm.calls == [("scontrol", "update", "JobId=7", "StartTime=now+5")]


def test_a_command_beside_a_rank_is_a_step_on_its_node(slurm: Slurm, tmp_path: Path) -> None:
    run = made(tmp_path, "run", state="RUNNING", native=native("/runs/run"), backend="slurm")
    submission = recorded(run)
    with pytest.raises(UserError, match="the node of rank 1 of run run is not known yet"):
        backend.next_to(run, submission, 1, ["sh"], terminal=True)
    usage.append(run, usage.UsageRecord(attempt=1, rank=1, host="n2", pid=1, time=1.0, cpus=1, memory_bytes=1))
    words = backend.next_to(run, submission, 1, ["sh"], terminal=True)
    assert words[words.index("--jobid=7") :] == [
        *("--jobid=7", "--nodelist=n2", "--pty", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "sh")
    ]
    assert "--pty" not in backend.next_to(run, submission, 1, ["sh"], terminal=False)


# --- Cancelled.


def cancelled(paths: RunPaths, **more: Any) -> None:
    backend.cancel(paths, recorded(paths).replace(native=native(str(paths.folder), **more)), 0.0)


def test_what_the_files_name_is_cancelled_first_by_number_and_name(slurm: Slurm, paths: RunPaths) -> None:
    paths.job_id.write_text("12\n")
    cancelled(paths)
    assert slurm.calls[:2] == [("scancel", "--name=abcd", "12"), ("scancel", "--name=abcd", "7")]
    assert slurm.calls[2:] == [("squeue",), ("scontrol", "show", "job", "-o")]


def test_an_element_is_cancelled_by_both_numbers(slurm: Slurm, paths: RunPaths) -> None:
    cancelled(paths, element=3)
    assert slurm.called("scancel") == [("scancel", "7_3")]


def test_what_still_runs_in_the_folder_is_asked_to_stop_once_without_a_name(slurm: Slurm, paths: RunPaths) -> None:
    alive = listed("20", "RUNNING", str(paths.folder))
    slurm.says["squeue"] = [alive, alive, listed("20", "COMPLETING", str(paths.folder)), ""]
    cancelled(paths)
    assert slurm.called("scancel") == [("scancel", "--name=abcd", "7"), ("scancel", "20")]
    assert slurm.slept_s == [backend.POLL_S] * 3


def test_a_job_that_has_ended_is_no_error_and_a_refusal_is_one(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["scancel"] = [UNKNOWN_JOB]
    cancelled(paths)
    slurm.says["scancel"] = [SlurmRefusedError("Access denied", "Access denied")]
    with pytest.raises(SlurmRefusedError):
        cancelled(paths)


def test_a_cancel_waits_for_a_controller_for_a_while(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["scancel"] = [DOWN, DOWN, DOWN, ""]
    cancelled(paths)
    assert (len(slurm.called("scancel")), slurm.slept_s) == (4, list(backend.CANCEL_DELAYS_S))
    slurm.says["scancel"], slurm.calls = [DOWN], []
    with pytest.raises(ControllerDownError):
        cancelled(paths)
    assert len(slurm.called("scancel")) == 4


def test_a_cancel_is_confirmed_by_the_controller_or_not_at_all(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["scontrol"] = [shown("20", "RUNNING", str(paths.folder)), NO_JOBS]
    cancelled(paths)
    assert ("scancel", "20") in slurm.calls
    slurm.says |= {"squeue": [DOWN], "scontrol": [DOWN]}
    with pytest.raises(UserError, match=r"to cancel 7, and whether it has ended can't be seen"):
        cancelled(paths)


def test_a_job_that_does_not_end_is_said_with_its_number(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["squeue"] = [listed("20", "RUNNING", str(paths.folder))]
    with pytest.raises(UserError, match=r"to cancel 20, 7, and has not ended them yet"):
        cancelled(paths)
    assert 85 < sum(slurm.slept_s) < 95


# --- The rest.


def test_a_folder_that_slurm_would_read_as_another_is_refused(tmp_path: Path) -> None:
    backend.refuse_folder(tmp_path / "a b")
    for name, why in (("a\\b", "has a backslash in its path, which Slurm drops"), ("a%b", "has a % in its path")):
        with pytest.raises(UserError, match=why):
            backend.refuse_folder(tmp_path / name)


def test_a_question_may_take_what_the_cluster_file_says(paths: RunPaths) -> None:
    assert asking.query_timeout_s(paths) == asking.QUERY_S
    record_of = paths.job.read_text()
    paths.job.write_text(record_of.replace('"kind": "local"', '"kind": "local", "query_timeout_s": 33', 1))
    assert asking.query_timeout_s(paths) == asking.query_timeout_s(paths.of_element(1)) == 33.0
    paths.job.write_text(record_of.replace('"kind": "local"', '"kind": "local", "query_timeout_s": "x"', 1))
    assert asking.query_timeout_s(paths) == asking.QUERY_S


def test_many_jobs_are_not_believed_to_have_ended_while_the_controller_is_down(slurm: Slurm) -> None:
    slurm.says["scontrol"] = [DOWN]
    found = asking.ask([native(f"/runs/{number}", str(number)) for number in range(1, 22)])
    assert {one.liveness for one in found} == {Liveness.UNKNOWN}
    assert "the controller is down" in (found[0].note or "")
    slurm.says["scontrol"] = ["garbage\n"]
    found = asking.ask([native(f"/runs/{number}", str(number)) for number in range(1, 22)])
    assert {one.liveness for one in found} == {Liveness.UNKNOWN}
    assert "but printed 'garbage'" in (found[0].note or "")


def test_of_many_jobs_each_has_what_the_controller_shows_of_it(slurm: Slurm) -> None:
    slurm.says["scontrol"] = ["".join(shown(str(job), "TIMEOUT", f"/runs/{job}") for job in range(2, 22))]
    found = asking.ask([native(f"/runs/{number}", str(number)) for number in range(1, 22)])
    assert [one.state for one in found] == [None, *[states.TIMEOUT] * 20]
    assert found[0].note == "Slurm has forgotten its job, and its files do not say how it ended"


def test_an_answer_that_names_no_job_is_no_answer(slurm: Slurm) -> None:
    slurm.says["squeue"] = ["this cluster is down for maintenance\nreally\n"]
    found = asked()
    assert found.liveness is Liveness.UNKNOWN
    assert "should list jobs, but printed 'this cluster is down for maintenance'" in (found.note or "")


def test_what_a_site_says_of_a_new_job_is_kept(slurm: Slurm, paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    call = slurm.call

    def says_more(*words: Any, **more: Any) -> Completed:
        return call(*words, **more)._replace(stderr="mind the quota\n")

    monkeypatch.setattr(commands, "call", says_more)
    slurm.says["sbatch"] = ["101\n"]
    assert order(paths).submitted() == ("101", "mind the quota")
    assert backend.start(paths, recorded(paths))["sbatch_messages"] == "mind the quota"


def test_a_run_on_another_machine_is_submitted_to_the_slurm_that_its_users_shell_has(
    slurm: Slurm, paths: RunPaths
) -> None:
    slurm.says["sbatch"] = ["101\n"]
    submission = recorded(paths).replace(remote=Remote("login", "ml", "/there/abcd"))
    found = backend.start(paths, submission)
    assert found == {
        "job_id": "101",
        "folder": "/there/abcd",
        "host": "login",
        "user": "ml",
        "query_timeout_s": asking.QUERY_S,
    }


def test_an_element_of_unknown_outcome_is_looked_for_among_the_jobs_of_its_array(slurm: Slurm, paths: RunPaths) -> None:
    element = paths.of_element(2)
    element.folder.mkdir(parents=True)
    submission = recorded(paths).replace(attempt=2)
    other = listed("8", "PENDING", str(paths.folder), array="7", index="1")
    slurm.says["squeue"] = [other + listed("9", "PENDING", str(paths.folder), array="9", index="2")]
    assert (backend.look_for(element, submission) or {})["job_id"] == "9_2"
    slurm.says |= {"squeue": [other], "scontrol": [NO_JOBS]}
    assert backend.look_for(element, submission) is None


def test_a_job_of_groups_of_nodes_is_entered_at_the_ranks_group(slurm: Slurm, paths: RunPaths) -> None:
    content = paths.job.read_text()
    each = [f'{{"name": "{name}", "hosts": 1, "instances_per_host": 1}}' for name in "ab"]
    groups = f'"groups": [{", ".join(each)}]'
    paths.job.write_text(content.replace('"groups": []', groups))
    submission = recorded(paths).replace(native=native(str(paths.folder)))
    for rank in (0, 1):
        sample = usage.UsageRecord(attempt=1, rank=rank, host=f"n{rank}", pid=1, time=1.0, cpus=1, memory_bytes=1)
        usage.append(paths, sample)
        words = backend.next_to(paths, submission, rank, ["sh"], terminal=False)
        assert f"--het-group={rank}" in words
        assert f"--nodelist=n{rank}" in words
    assert slurm.slept_s == []


@pytest.mark.parametrize("begun", [["n1"], []])
def test_the_node_of_a_rank_is_where_it_is_now(
    slurm: Slurm, paths: RunPaths, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    def sampled(host: str) -> None:
        usage.append(paths, usage.UsageRecord(attempt=1, rank=0, host=host, pid=1, time=1.0, cpus=1, memory_bytes=1))

    for host in begun:
        sampled(host)
    brought = iter([*([] if begun else [None]), "n2"])  # without a sample of before, nothing comes at first

    def refresh(*_: object) -> None:
        if host := next(brought, None):
            sampled(host)

    monkeypatch.setattr(mirror, "refresh_usage", refresh)
    submission = recorded(paths).replace(native=native(str(paths.folder)))
    assert "--nodelist=n2" in backend.next_to(paths, submission, 0, ["sh"], terminal=False)
    assert len(slurm.slept_s) == 1 - len(begun)


def test_the_node_of_a_rank_is_waited_for_a_while(slurm: Slurm, paths: RunPaths) -> None:
    submission = recorded(paths).replace(native=native(str(paths.folder)))
    with pytest.raises(UserError, match="the node of rank 0 of run abcd is not known yet"):
        backend.next_to(paths, submission, 0, ["sh"], terminal=False)
    assert backend.NODE_KNOWN_S < sum(slurm.slept_s) <= backend.NODE_KNOWN_S + backend.POLL_S


def test_of_an_element_that_is_cancelled_the_others_stay(slurm: Slurm, paths: RunPaths) -> None:
    element = paths.of_element(1)
    element.folder.mkdir(parents=True)
    both = "".join(listed(f"2{index}", "RUNNING", str(paths.folder), array="20", index=index) for index in "12")
    slurm.says["squeue"] = [both, both, ""]
    submission = recorded(paths).replace(native=None)
    backend.cancel(element, submission, 0.0)
    assert slurm.called("scancel") == [("scancel", "20_1")]
    slurm.calls, slurm.says["squeue"] = [], [both, ""]
    backend.cancel(paths, submission, 0.0)
    assert slurm.called("scancel") == [("scancel", "20")]


def test_a_run_without_a_known_job_says_so_where_slurm_can_not_be_asked(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says |= {"squeue": [DOWN], "scontrol": [DOWN]}
    with pytest.raises(UserError, match="run abcd: no job of it is recorded, and whether it has ended can't be seen"):
        backend.cancel(paths, recorded(paths), 0.0)


def test_a_number_that_is_none_is_not_cancelled(slurm: Slurm, paths: RunPaths) -> None:
    paths.job_id.write_text("--user=root\n")
    backend.cancel(paths, recorded(paths), 0.0)
    assert slurm.called("scancel") == []


# --- What is said of a run inside an allocation.


def test_a_run_inside_an_allocation_is_alive_as_long_as_it_has_a_step_there(slurm: Slurm) -> None:
    slurm.says["squeue"] = ["7 7.1 a\n7 7.2 b\n8 8.0 c\n", "7 7.1 a\n7 7.2 b\n7 7.3 d\n"]
    slurm.says["scontrol"] = [lambda words: shown(words[-1], "RUNNING", "/here")]
    natives = [native("/runs/a"), native("/runs/b"), native("/runs/c", "7"), native("/runs/d")]
    found = steps.ask(natives)
    # One is in another job, and one was seen by the second look alone.
    assert [one.liveness for one in found] == [Liveness.ALIVE, Liveness.ALIVE, Liveness.GONE, Liveness.ALIVE]
    assert found[2].note == "its step in job 7 has ended, and its files do not say how"
    assert slurm.calls == [("squeue",), ("scontrol", "show", "job", "-o", "7"), ("squeue",)]


def test_a_run_has_ended_with_the_job_that_it_was_inside_of(slurm: Slurm) -> None:
    other_element = shown("8", "RUNNING", "/here").replace("JobId=8", "JobId=8 ArrayJobId=7 ArrayTaskId=1")
    slurm.says["scontrol"] = [shown("7", "TIMEOUT", "/here") + other_element]
    (found,) = steps.ask([native("/runs/a")])
    assert (found.liveness, found.state) == (Liveness.GONE, states.TIMEOUT)
    assert found.note == "the job that it ran in, 7, has ended: Slurm ended it at its time limit"


@pytest.mark.parametrize("silent", ["squeue", "scontrol"])
def test_nothing_is_said_of_a_step_while_the_controller_is_down(slurm: Slurm, silent: str) -> None:
    slurm.says["squeue"] = ["7 7.1 a\n", DOWN] if silent == "squeue" else ["7 7.1 a\n"]
    slurm.says["scontrol"] = [DOWN]
    listed_one, other = steps.ask([native("/runs/a"), native("/runs/b", "8")])
    assert listed_one.liveness is Liveness.ALIVE
    assert (other.liveness, other.note) == (
        Liveness.UNKNOWN,
        "squeue has listed no step of it, and the controller is down",
    )


def test_one_empty_answer_of_squeue_leaves_no_step_behind(slurm: Slurm, paths: RunPaths) -> None:
    slurm.says["squeue"] = ["", "7 7.1 abcd\n7 7.2 abcd\n7 7.3 other\n", ""]
    steps.cancel(paths, recorded(paths).replace(inside="7", native=native(str(paths.folder))), 0.0)
    # URG: with TERM, the script's own srun would kill the ranks.
    assert slurm.called("scancel") == [("scancel", "--signal=23", "7.1")]


def test_a_run_has_no_steps_once_squeue_has_listed_none_twice(slurm: Slurm) -> None:
    slurm.says["squeue"] = ["", "8 8.1 a\n", "7 7.1 a\n"]
    assert steps.steps_of(asking.JobOfRun.of(native("/runs/a"))) == []
    assert slurm.calls == [("squeue",)] * 2


def test_a_step_that_stays_is_killed_with_all_others_of_its_run(slurm: Slurm, paths: RunPaths) -> None:
    stays = "7 7.1 abcd\n7 7.2 abcd\n"
    slurm.says["squeue"] = [stays, stays, stays, ""]
    steps.cancel(paths, recorded(paths).replace(inside="7", native=native(str(paths.folder))), 0.0)
    assert [words[1:] for words in slurm.called("scancel")[-2:]] == [("--signal=KILL", "7.1"), ("--signal=KILL", "7.2")]


# --- A run inside an allocation, started.


def test_a_step_is_started_in_the_job_that_is_named_and_in_none_else(slurm: Slurm, paths: RunPaths) -> None:
    with pytest.raises(NotSubmittedError, match="run abcd names no allocation"):
        steps.start(paths, recorded(paths))
    assert slurm.calls == []
    inside = recorded(paths).replace(inside="7", native=None)
    assert steps.start(paths, inside) == backend.native(paths, inside, "7")
    assert len(slurm.calls) == 1  # at a first attempt nothing is left to end


def test_before_a_further_attempt_the_steps_of_the_last_are_killed(slurm: Slurm, paths: RunPaths) -> None:
    def listed_steps(_words: Sequence[str]) -> str:
        ended = {words[-1] for words in slurm.called("scancel")}
        return "".join(f"{one}\n" for one in ("6 6.1 abcd", "7 7.2 abcd", "7 7.3 other") if one.split()[1] not in ended)

    slurm.says["squeue"] = [listed_steps]
    earlier = [native(str(paths.folder), "5"), native(str(paths.folder), "6")]
    again = recorded(paths).replace(inside="7", native=None, attempt=2, earlier=earlier)
    steps.start(paths, again)
    assert {words[-1] for words in slurm.called("scancel")} == {"6.1", "7.2"}
