"""How runs end when something is killed: never RUNNING without a process, nothing left, and resumable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.local_runs import STAY, Here, Run, kill
from tests.support.waiting import until


def test_status_names_the_first_failing_rank_and_shows_its_last_lines(here: Here) -> None:
    words = "import os, sys; r = os.environ['RANK']; print('last words of', r); sys.exit(3 if r == '1' else 0)"
    run = here.follow("python", "-c", words, code=1)
    shown = here.run("status", run.id).stdout
    assert f"{run.id} · FAILED" in shown
    assert "failed first, with exit code 3. Its last lines:\n  | last words of 1\n" in shown
    assert "rank 1 on" in shown


GROUP_WITHOUT_GPU = """\
import torch.distributed as dist

def begin():
    dist.init_process_group("nccl")

begin()
"""


def test_an_early_failure_is_told_once(here: Here) -> None:
    here.write("train.py", GROUP_WITHOUT_GPU)
    command = ("submit", "--cluster", "local", "--instances", "2", "--follow", "--", "python", "train.py")
    shown = here.run(*command, code=1).stdout
    assert shown.count("Traceback") == 1
    # The traceback is the program's own, as it is without us, and the summary repeats its last line alone.
    assert 'train.py", line 4, in begin' in shown
    assert "trainjob_hooks" not in shown
    assert shown.count("RuntimeError: Distributed package doesn't have NCCL built in") == 2
    assert shown.count("failed first, with exit code 1. Its last line: RuntimeError: ") == 1
    assert shown.count("uses NCCL, which needs a GPU") == 1
    assert shown.count("failed with exit code") == 0
    run = shown.split()[2].rstrip(":")
    assert f"next: trainjob logs {run}" in shown
    assert "failed first" in here.run("report", run).stdout


# One script, launcher or rank: see tests/support/backend_suite.py.
KILLED: dict[str, tuple[Callable[[Run], list[int]], str, tuple[str, ...]]] = {
    "guard": (lambda run: run.launchers[:1], "FAILED", ()),
    "launcher": (lambda run: run.launchers[1:], "FAILED", ("--deaf",)),
    "both launchers": (lambda run: run.launchers, "FAILED", ()),
    "ranks": (lambda run: run.ranks(), "FAILED", ("--deaf",)),
    # The script first, which could record an end.
    "everything": (lambda run: [run.script, *run.processes(), *run.washed()], "LOST", ("--deaf",)),
}


@pytest.mark.parametrize("killed", KILLED)
def test_a_kill_leaves_nothing_and_the_run_resumes(here: Here, killed: str) -> None:
    victims, state, words = KILLED[killed]
    run = here.staying(*words)
    kill(victims(run))
    until(lambda: run.status()["state"] == state, state)
    if killed == "launcher":
        assert "SIGKILL ended the process that supervised the ranks" in here.run("status", run.id).stdout
    if killed in ("guard", "launcher", "both launchers"):
        named = "KILL may have ended the launcher (python -m trainjob.launch)"
        assert named in here.run("status", run.id).stdout
        assert named in here.run("report", run.id).stdout
    if killed != "both launchers":
        run.wait_until_nothing_is_left()
    here.run("resume", run.id)
    run.wait("COMPLETED")
    assert run.word("attempt") == "2"


def test_a_killed_script_is_reported_and_resume_first_ends_what_it_has_left(here: Here) -> None:
    run = here.staying("--deaf")
    kill([run.script])
    until(lambda: run.status()["state"] == "LOST", "LOST")
    assert "its processes are gone and recorded no end" in here.run("status", run.id).stdout
    assert "LOST" in here.run("report", run.id).stdout
    deaf = run.ranks()
    assert deaf
    here.run("resume", run.id)
    run.wait("COMPLETED")
    assert not set(deaf) & set(run.ranks())
    run.wait_until_nothing_is_left()


def test_a_script_killed_while_its_launcher_starts_leaves_nothing(here: Here) -> None:
    here.write("my_script.py", STAY)
    run = here.submit("python", "my_script.py")
    kill([run.script])
    until(lambda: run.status()["state"] == "LOST", "LOST")
    run.wait_until_nothing_is_left()
    assert "its processes are gone and recorded no end" in here.run("status", run.id).stdout


def test_a_hand_over_that_was_cut_is_lost_until_it_is_resumed(here: Here) -> None:
    run = here.staying()
    submission = run.folder / "submission.json"
    submission.write_text(submission.read_text().replace('"native": {', '"native": null, "was": {'))
    assert "its submission was interrupted" in here.run("status", run.id).stdout
    here.run("resume", run.id)
    run.wait("COMPLETED")
    run.wait_until_nothing_is_left()


def test_an_ended_run_is_not_resumed(here: Here) -> None:
    run = here.follow("true")
    assert f"run {run.id} is COMPLETED, so there is nothing left to resume" in here.run("resume", run.id, code=1).stderr


def test_a_running_run_is_not_resumed(here: Here) -> None:
    run = here.staying()
    assert f"run {run.id} is RUNNING: cancel it first" in here.run("resume", run.id, code=1).stderr
