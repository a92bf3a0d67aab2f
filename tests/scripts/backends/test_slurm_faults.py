"""A Slurm whose commands stall, lie, and lose what they were told: what is submitted, shown and ended beside it."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import trainjob
from tests.support.standin_slurm import StandinSlurm, files_say
from trainjob.backends.slurm import backend
from trainjob.contract.paths import RunPaths
from trainjob.records import submission as submissions


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandinSlurm:
    monkeypatch.setattr(backend, "SUBMIT_DELAYS_S", (0.05, 0.05))
    monkeypatch.setattr(backend, "CANCEL_DELAYS_S", (0.05, 0.05))
    return StandinSlurm(tmp_path / "slurm", monkeypatch)


def running(slurm: StandinSlurm) -> trainjob.Run:
    run = slurm.submit()
    files_say(run.folder, attempt=1, state="RUNNING")
    return run


# --- Two of them.


def test_a_job_is_looked_for_in_the_slurm_that_has_it(slurm: StandinSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = slurm.submit()
    slurm.set_job("101", state="PENDING")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    in_other = slurm.submit(again=True)
    assert (waiting.status().state, in_other.status().scheduler["job_id"]) == ("PENDING", "102")
    with pytest.raises(trainjob.UserError, match="is PENDING: cancel it first"):
        waiting.resume()
    monkeypatch.delenv("SLURM_CONF")
    assert in_other.cancel(grace_s=0.1).state == "CANCELLED"
    assert waiting.cancel(grace_s=0.1).state == "CANCELLED"
    assert slurm.alive() == []


def test_what_the_site_says_of_a_job_that_it_takes_is_kept(slurm: StandinSlurm) -> None:
    """As a job_submit plugin does."""
    slurm.break_("sbatch", "says")
    submitted = submissions.read(RunPaths(slurm.submit().folder))
    assert submitted is not None
    assert submitted.native is not None
    assert submitted.native[submissions.SBATCH_MESSAGES] == "sbatch: lua: moved to partition short"


# --- Submitted twice.


@pytest.mark.parametrize("fault", ["lost", "fails-after", "garbage-after", "silent-after"])
def test_a_job_whose_answer_is_lost_is_found_by_its_folder(slurm: StandinSlurm, fault: str) -> None:
    slurm.break_("sbatch", fault)
    run = slurm.submit()
    assert run.status().scheduler["job_id"] == "101"
    assert (slurm.alive(), len(slurm.calls("sbatch"))) == (["101"], 1)


def test_an_sbatch_that_hangs_after_its_work_is_no_second_job(slurm: StandinSlurm) -> None:
    slurm.break_("sbatch", "hang-after")
    assert slurm.submit().status().state == "PENDING"
    assert slurm.alive() == ["101"]


def test_what_a_record_names_as_its_command_is_not_executed(slurm: StandinSlurm) -> None:
    slurm.break_("sbatch", "lost+down")
    with pytest.raises(trainjob.UserError):
        slurm.submit()
    slurm.mend()
    slurm.forget("101")
    (paths,) = slurm.runs()
    recorded = json.loads(paths.submission.read_text())
    argv = ["touch", f"{slurm.folder}/canary", "--wrap=touch canary", "--dependency=afterok:77:78"]
    paths.submission.write_text(json.dumps({**recorded, "argv": argv}))
    trainjob.run(paths.id).resume()
    assert not (slurm.folder / "canary").exists()
    assert slurm.calls("sbatch")[-1] == f"--parsable --job-name={paths.id} --dependency=afterok:77:78 job.sbatch"


def test_where_nobody_knows_what_became_of_it_the_run_stays_and_the_next_command_finds_its_job(
    slurm: StandinSlurm,
) -> None:
    slurm.break_("sbatch", "lost+down")
    with pytest.raises(trainjob.UserError) as error:
        slurm.submit()
    (paths,) = slurm.runs()
    assert f"Run {paths.id} may have been submitted or not" in error.value.text
    assert error.value.cure.startswith(f"`trainjob resume {paths.id}` looks for it in Slurm")
    with pytest.raises(trainjob.UserError, match=f"run {paths.id} is the same job, and may have been submitted"):
        slurm.submit()
    slurm.mend()
    with pytest.raises(trainjob.UserError, match=f"the same job was submitted as run {paths.id}"):
        slurm.submit()
    assert trainjob.run(paths.id).status().scheduler["job_id"] == "101"
    assert (slurm.alive(), len(slurm.calls("sbatch"))) == (["101"], 1)


def test_a_number_in_a_message_is_no_job_id(slurm: StandinSlurm) -> None:
    slurm.break_("sbatch", "garbage")  # "502 Bad Gateway"
    with pytest.raises(trainjob.UserError, match="may have been submitted or not"):
        slurm.submit()
    slurm.mend()
    assert slurm.submit().status().scheduler["job_id"] == "101"
    assert slurm.alive() == ["101"]


def test_a_refusal_leaves_nothing(slurm: StandinSlurm) -> None:
    slurm.break_("sbatch", "refused")
    with pytest.raises(trainjob.UserError, match="Access/permission denied"):
        slurm.submit()
    assert slurm.runs() == []


# --- What is shown.


def test_a_queue_that_hangs_is_given_its_limit_and_the_last_answer_with_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = StandinSlurm(tmp_path / "slurm", monkeypatch, query_timeout_s=3.0)
    run = running(slurm)
    slurm.set_job("101", reason="None")
    assert run.status().note is None
    slurm.break_("squeue", "stall")
    now = run.status()
    assert (now.state, now.is_stale, now.scheduler["nodes"]) == ("RUNNING", True, "n1")
    assert now.note is not None
    assert now.note.startswith("as seen ")
    assert "squeue on this machine did not answer within 3 s" in now.note


@pytest.mark.parametrize("fault", ["garbage", "binary", "empty", "down", "killed", "refused"])
def test_an_answer_that_is_none_never_is_a_state(slurm: StandinSlurm, fault: str) -> None:
    run = running(slurm)
    slurm.break_("squeue", fault)
    assert run.status().state == "RUNNING"
    slurm.break_("scontrol", fault)
    assert run.status().state == "RUNNING"


def test_a_job_that_two_questions_do_not_find_is_gone(slurm: StandinSlurm) -> None:
    run = running(slurm)
    slurm.forget("101")
    now = run.status()
    assert (now.state, now.note) == ("LOST", "Slurm has forgotten its job, and its files do not say how it ended")
    slurm.break_("scontrol", "down")
    assert run.status().state == "RUNNING"


def test_how_slurm_has_ended_a_job_is_remembered_when_slurm_has_forgotten_it(slurm: StandinSlurm) -> None:
    run = running(slurm)
    slurm.set_job("101", state="CANCELLED")
    assert run.status().state == "CANCELLED"
    slurm.forget("101")
    assert (run.status().state, run.status().note) == ("CANCELLED", "cancelled in Slurm")


@pytest.mark.parametrize("word", ["REQUEUED", None])
def test_a_job_that_waited_and_is_forgotten_was_cancelled(slurm: StandinSlurm, word: str | None) -> None:
    run = slurm.submit()
    if word:
        files_say(run.folder, attempt=1, state=word)
    slurm.forget("101")
    assert run.status().state == "CANCELLED"


def test_a_run_that_failed_and_whose_job_slurm_holds_waits(slurm: StandinSlurm) -> None:
    run = running(slurm)
    files_say(run.folder, state="FAILED", exit_code=1)
    assert run.status().state == "FAILED"
    slurm.set_job("101", state="PENDING", reason="launch failed requeued held")
    now = run.status()
    assert now.state == "PENDING"
    assert now.note is not None
    assert now.note.startswith("its last attempt ended as FAILED, and its scheduler holds the job: waits and is held")
    with pytest.raises(trainjob.UserError, match="is PENDING: cancel it first"):
        run.resume()
    assert run.cancel().state in ("CANCELLED", "FAILED")
    assert slurm.alive() == []


def test_a_run_that_failed_and_whose_job_slurm_has_started_again_begins(slurm: StandinSlurm) -> None:
    run = running(slurm)
    files_say(run.folder, state="FAILED", exit_code=1)
    assert run.status().state == "FAILED"  # it has just ended, and its job began five minutes ago
    minutes_ago = time.time() - 400.0
    os.utime(run.folder / "state", (minutes_ago, minutes_ago))
    now = run.status()
    assert (now.state, now.note) == (
        "PENDING",
        "its last attempt ended as FAILED, and its scheduler has started the job again",
    )


def test_a_run_that_failed_is_not_asked_for_once_slurm_has_forgotten_its_job(slurm: StandinSlurm) -> None:
    run = running(slurm)
    files_say(run.folder, state="FAILED", exit_code=1)
    slurm.forget("101")
    assert run.status().state == "FAILED"
    asked = len(slurm.calls("squeue"))
    assert run.status().state == "FAILED"
    assert len(slurm.calls("squeue")) == asked


# --- Resumed.


def test_resume_sees_the_jobs_of_every_attempt(slurm: StandinSlurm) -> None:
    run = running(slurm)
    files_say(run.folder, state="FAILED", exit_code=1)
    slurm.set_job("101", state="COMPLETED")
    run.resume()
    files_say(run.folder, attempt=2, state="FAILED")
    slurm.set_job("102", state="FAILED")
    # The controller starts the first attempt's job again, while status is looked away from it.
    slurm.set_job("101", state="PENDING", reason="JobHeldUser")
    with pytest.raises(trainjob.UserError, match="PENDING"):
        run.resume()
    assert slurm.alive() == ["101"]


def test_a_follow_up_job_that_ends_is_not_taken_for_the_resumed_one(slurm: StandinSlurm) -> None:
    """The job script has submitted it, so that no command has recorded it."""
    run = running(slurm)
    shutil.copytree(slurm.folder / "jobs" / "101", slurm.folder / "jobs" / "102")
    (slurm.folder / "last").write_text("102\n")
    slurm.set_job("101", state="FAILED")
    slurm.set_job("102", state="COMPLETING")
    files_say(run.folder, attempt=2, state="FAILED", exit_code=1, job_id=102)
    run.resume()
    assert slurm.alive() == ["103"]


def test_resume_waits_for_a_script_that_has_recorded_its_end_and_still_runs(
    slurm: StandinSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(slurm)
    files_say(run.folder, state="STOPPED", exit_code=0)
    with pytest.raises(trainjob.UserError, match=r"job 101 of an earlier attempt of run .* is RUNNING in Slurm"):
        run.resume()
    assert slurm.alive() == ["101"]

    def exits_meanwhile(seconds: float) -> None:
        if seconds == backend.SUBMIT_DELAYS_S[0]:
            slurm.set_job("101", state="COMPLETED")

    monkeypatch.setattr("trainjob.contract.clock.sleep", exits_meanwhile)
    run.resume()
    assert slurm.alive() == ["102"]


def test_a_resume_that_slurm_refuses_leaves_the_run_as_it_was(slurm: StandinSlurm) -> None:
    run = running(slurm)
    files_say(run.folder, state="FAILED", exit_code=1)
    slurm.set_job("101", state="FAILED")
    slurm.break_("sbatch", "refused")
    with pytest.raises(trainjob.UserError, match="permission denied"):
        run.resume()
    assert (run.status().state, run.status().attempt) == ("FAILED", 1)


# --- Ended.


@pytest.mark.parametrize("fault", ["hang", "garbage", "empty", "down"])
def test_cancel_reaches_scancel_whatever_squeue_says(slurm: StandinSlurm, fault: str) -> None:
    run = running(slurm)
    slurm.break_("squeue", fault)
    run.cancel(grace_s=5)
    assert slurm.alive() == []
    slurm.mend()
    assert run.status().state == "CANCELLED"


def test_cancel_reaches_a_follow_up_job_that_no_record_names_and_squeue_does_not_list(slurm: StandinSlurm) -> None:
    run = running(slurm)
    shutil.copytree(slurm.folder / "jobs/101", slurm.folder / "jobs/102")
    slurm.set_job("102", state="PENDING")
    slurm.break_("squeue", "empty", times=2)
    run.cancel(grace_s=5)
    assert slurm.alive() == []


def test_cancel_that_can_not_see_the_end_says_so(slurm: StandinSlurm) -> None:
    run = running(slurm)
    slurm.break_("squeue", "down")
    slurm.break_("scontrol", "hang")
    with pytest.raises(
        trainjob.UserError, match="Slurm was asked to cancel 101, and whether it has ended can't be seen"
    ):
        run.cancel(grace_s=5)
    assert slurm.alive() == []


def test_cancel_ends_only_a_job_of_the_runs_own_name(slurm: StandinSlurm) -> None:
    run = running(slurm)
    # Slurm was set up anew, and has given the number to another job of the user's.
    slurm.set_job("101", name="somebody-elses", folder="/elsewhere")
    run.cancel(grace_s=5)
    assert slurm.alive() == ["101"]


def test_cancel_ends_a_job_that_the_site_has_renamed(slurm: StandinSlurm) -> None:
    run = running(slurm)
    slurm.set_job("101", name="site-prefix-job")
    run.cancel(grace_s=5)
    assert slurm.alive() == []
    # By its number alone only once it was seen that the job in the run's folder still runs.
    assert slurm.calls("scancel") == [f"--name={run.id} 101", "101"]
