"""A Slurm whose commands hang, lie, die and lose what they were told, one fault after the other under every command.

What must hold: no job is submitted twice, none is lost from sight, none comes back, and no lie becomes a state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import trainjob
from tests.support.attack import Attack
from tests.support.standin_slurm import StandinSlurm, files_say
from trainjob.backends.slurm import backend

KIND = "controller faults"
# Before a program does its work, and after it.
BEFORE = ("hang", "down", "garbage", "binary", "empty", "refused", "killed")
AFTER = ("hang-after", "lost", "silent-after", "garbage-after", "fails-after")


def submit(slurm: StandinSlurm) -> None:
    with contextlib.suppress(trainjob.UserError):
        slurm.submit()
    slurm.mend()
    with contextlib.suppress(trainjob.UserError):
        slurm.submit()
    (job,) = slurm.alive()
    found = [run.status() for run in trainjob.runs()]
    assert [one.state for one in found if one.scheduler.get("job_id") == job] == ["PENDING"]


def status(slurm: StandinSlurm) -> None:
    (run,) = trainjob.runs()
    assert run.status().state == "RUNNING"
    slurm.mend()
    assert run.status().state == "RUNNING"


def cancel(slurm: StandinSlurm) -> None:
    (run,) = trainjob.runs()
    with contextlib.suppress(trainjob.UserError):
        run.cancel(grace_s=0)
    slurm.mend()
    assert run.cancel(grace_s=0).state == "CANCELLED"
    assert slurm.alive() == []


def resume(slurm: StandinSlurm) -> None:
    (run,) = trainjob.runs()
    files_say(run.folder, state="FAILED", exit_code=1)
    slurm.set_job("101", state="FAILED")
    with contextlib.suppress(trainjob.UserError):
        run.resume()
    slurm.mend()
    with contextlib.suppress(trainjob.UserError):
        run.resume()
    (job,) = slurm.alive()
    assert (run.status().state, run.status().scheduler["job_id"]) == ("PENDING", job)


Fault = tuple[Callable[[StandinSlurm], None], dict[str, str]]


def _faults() -> list[Fault]:
    found: list[Fault] = []
    for command in (submit, resume):
        found += [(command, {"sbatch": fault}) for fault in (*BEFORE, *AFTER)]
        found += [(command, {"squeue": fault}) for fault in BEFORE]
    for command in (status, cancel):
        found += [(command, {"squeue": fault}) for fault in (*BEFORE, *AFTER)]
        # A queue that is empty by mistake is confirmed by the controller, which errs, too.
        found += [(command, {"squeue": "empty", "scontrol": fault}) for fault in BEFORE]
    return found + [(cancel, {"scancel": fault}) for fault in (*BEFORE, *AFTER)]


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "SUBMIT_DELAYS_S", (0.05, 0.05))
    monkeypatch.setattr(backend, "CANCEL_DELAYS_S", (0.05,))
    monkeypatch.setattr(backend, "END_S", 1.0)
    monkeypatch.setattr(backend, "POLL_S", 0.1)


def _try(attack: Attack, folder: Path, faults: list[Fault]) -> None:
    with attack(KIND) as trials:
        for number, (command, broken) in enumerate(faults):
            words = ", ".join(f"{program}: {fault}" for program, fault in broken.items())
            with pytest.MonkeyPatch.context() as patch, trials.trial(f"{command.__name__} while {words}"):
                slurm = StandinSlurm(folder / str(number), patch)
                if command is not submit:
                    files_say(slurm.submit().folder, attempt=1, state="RUNNING")
                for program, fault in broken.items():
                    slurm.break_(program, fault)
                command(slurm)


def test_a_selection_of_faults(attack: Attack, tmp_path: Path) -> None:
    once_broke = (cancel, {"squeue": "empty", "scontrol": "empty"})
    _try(attack, tmp_path, [*_faults()[::8], once_broke])


@pytest.mark.full
@pytest.mark.timeout(900)
def test_every_fault(attack: Attack, tmp_path: Path) -> None:
    assert len(_faults()) > 80
    _try(attack, tmp_path, _faults())
