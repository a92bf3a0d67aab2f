"""The first update that differs is found in what ranks recorded, and what was lost is named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.verify.scripts import final_states
from trainjob.verify.scripts import resume as script_resume
from trainjob.verify.scripts.interruptions import TIME_LIMIT, Interrupted, ScriptInterruption
from trainjob.verify.scripts.update_log import AttemptLog, LoadedBatch, ScriptEvent, ScriptUpdate, starts_at

PASSES, LENGTH = 3, 4


def update(number: int) -> ScriptUpdate:
    """Return update `number`, counted from 0, of a script whose epochs have 4 batches each."""
    batch = LoadedBatch(number // LENGTH + 1, number % LENGTH, (f"sample {number}",))
    return ScriptUpdate(
        batches=(batch,),
        losses=(1.0 / (number + 1),),
        rates=(0.1 * (number + 1),),
        scale=8.0,
        gradients=f"gradients {number}",
        norm=1.0,
        weights_before=f"weights {number}",
        state_before=f"state {number}" if number else "",
        random_before=f"random {number}",
        weights=f"weights {number + 1}",
        state=f"state {number + 1}",
    )


WHOLE = AttemptLog(1, tuple(update(number) for number in range(PASSES * LENGTH)))


def lost(updates: Sequence[ScriptUpdate], *, longer: bool = False) -> list[str]:
    """Return the codes of what an attempt that made `updates` has lost."""
    first = script_resume.first_apart(WHOLE, [AttemptLog(1, WHOLE.updates[:6]), AttemptLog(2, tuple(updates))])
    return [] if first is None else [one.code for one in script_resume.lost(first, WHOLE, longer=longer)]


def changed(number: int, **changes: object) -> ScriptUpdate:
    """Return an update that has lost something, and so leaves other weights."""
    return dataclasses.replace(update(number), weights="others", **changes)  # type: ignore[arg-type] # by name


def taken_from(number: int) -> dict[str, object]:
    return {"batches": update(number).batches}


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (changed(6, **taken_from(4)), "sampler-position"),
        (changed(6, **taken_from(0)), "sampler-position"),
        (changed(6, **taken_from(2)), "sampler-epoch"),
        (changed(6, batches=(LoadedBatch(1, 0, ("never seen",)),)), "rng"),
        (changed(6, random_before="others", losses=(7.0,)), "rng"),
        (changed(6, rates=(0.1,)), "scheduler"),
        (changed(6, scale=65536.0), "scaler"),
        (changed(6, state_before=""), "optimizer"),
        (changed(6, state_before="", rates=(0.1,)), "optimizer"),
        (changed(6, weights_before="others"), "weights"),
        (changed(6), "unknown"),
    ],
)
def test_what_the_first_update_has_lost_is_named(first: ScriptUpdate, code: str) -> None:
    assert lost([first]) == [code]


def test_updates_beyond_the_end_are_a_lost_count() -> None:
    assert lost([*WHOLE.updates[6:], update(PASSES * LENGTH)]) == ["step-counter"]
    assert lost([changed(6, rates=(0.1,))], longer=True) == ["step-counter"]


@pytest.mark.parametrize("start", [0, 3, 6])
def test_an_attempt_that_repeats_updates_is_the_same(start: int) -> None:
    assert lost(WHOLE.updates[start:]) == []
    assert starts_at(AttemptLog(2, WHOLE.updates[start:]), WHOLE) == start


@pytest.mark.parametrize("change", [lambda one: dataclasses.replace(one, losses=(float("nan"),))])
def test_nan_equals_itself(change: Callable[[ScriptUpdate], ScriptUpdate]) -> None:
    assert change(update(1)).same_losses(change(update(1)))


@pytest.mark.parametrize(("saved_after", "codes"), [(8, ["between-epochs"]), (7, [])])
def test_a_save_at_the_end_of_an_epoch_is_named_without_a_loader_that_says_so(
    tmp_path: Path, saved_after: int, codes: list[str]
) -> None:
    # Lightning counts batches, so no loader is asked for one more.
    events = (ScriptEvent(updates.PAUSED, 4, {}), ScriptEvent(updates.SAVED, saved_after, {}))
    attempt = AttemptLog(1, WHOLE.updates[:saved_after], events)
    asked = ScriptInterruption(TIME_LIMIT, updates.AT_UPDATE, 1, 4, ("USR1",), states.STOPPED)
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 4, {}),))
    again = AttemptLog(2, WHOLE.updates[saved_after:])
    run = RunPaths(tmp_path)
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (asked,), None), [[whole]], [[attempt, again]])
    assert [one.code for one in evidence.findings()] == codes


@pytest.mark.parametrize(("steps", "count", "codes"), [(15, 12, ["step-counter"]), (15, 15, []), (2, 12, [])])
def test_more_steps_up_to_the_same_count_are_a_lost_count(
    tmp_path: Path, steps: int, count: int, codes: list[str]
) -> None:
    runs = [RunPaths(tmp_path / name) for name in ("whole", "broken")]
    for run, made, counted in zip(runs, (12, steps), (12, count), strict=True):
        run.code.mkdir(parents=True)
        (run.code / "trainer_state.json").write_text(json.dumps({"global_step": counted, "epoch": 3.0}))
        torch.save({"last_epoch": made}, run.code / "scheduler.pt")
    attempts = [AttemptLog(1, WHOLE.updates[:6]), AttemptLog(2, (changed(6, **taken_from(0)),))]
    evidence = script_resume.ResumeEvidence(runs[0], Interrupted(runs[1], (), None), [[WHOLE]], [attempts])
    found = script_resume.by_states(final_states.compare(*runs), evidence, [])
    assert [one.code for one in found] == codes
