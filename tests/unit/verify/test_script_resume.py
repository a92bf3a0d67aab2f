"""The first update that differs is found in what ranks recorded, and what was lost is named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.support.cases import each
from tests.support.clock import Clock
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import updates
from trainjob.records.updates import UpdatePaths
from trainjob.verify.interruptions import PREEMPTION, TIME_LIMIT, WAYS, InterruptionPlan, PlannedStop, parse_stops
from trainjob.verify.scripts import final_states, update_log
from trainjob.verify.scripts import lost as lost_module
from trainjob.verify.scripts import resume as script_resume
from trainjob.verify.scripts.interruptions import Interrupted, ScriptInterruption, TornSave, drawn
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
    first = lost_module.first_apart(WHOLE, [AttemptLog(1, WHOLE.updates[:6]), AttemptLog(2, tuple(updates))])
    return [] if first is None else [one.code for one in lost_module.lost(first, WHOLE, longer=longer)]


def changed(number: int, **changes: object) -> ScriptUpdate:
    """Return an update that has lost something, and so leaves other weights."""
    return dataclasses.replace(update(number), weights="others", **changes)  # type: ignore[arg-type] # by name


def taken_from(number: int) -> dict[str, object]:
    return {"batches": update(number).batches}


@each(
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
        (changed(6, rates=(0.1,), random_before="others"), "scheduler"),
        (changed(6, weights_before="others"), "weights"),
        (changed(0, state_before="state 6", random_before="random 6"), "not-resumed"),
        (changed(6), "unknown"),
    ],
)
def test_what_the_first_update_has_lost_is_named(first: ScriptUpdate, code: str) -> None:
    assert lost([first]) == [code]


def test_another_loss_is_of_random_numbers_whatever_the_step_has_lost() -> None:
    assert lost([changed(6, rates=(0.1,), random_before="others", losses=(7.0,))]) == ["scheduler", "rng"]
    assert lost([changed(6, random_before="others", losses=(7.0,), **taken_from(4))]) == ["sampler-position"]


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
    events = (ScriptEvent(updates.PAUSED, 4, {}), ScriptEvent(updates.SAVED, saved_after, {"path": "last.pt"}))
    attempt = AttemptLog(1, WHOLE.updates[:saved_after], events)
    asked = ScriptInterruption(TIME_LIMIT, updates.AT_UPDATE, 1, 4, ("USR1",), states.STOPPED)
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 4, {"path": "last.pt"}),))
    again = AttemptLog(2, WHOLE.updates[saved_after:])
    run = RunPaths(tmp_path)
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (asked,), None), [[whole]], [[attempt, again]])
    assert [one.code for one in evidence.findings()] == codes


@pytest.mark.parametrize(
    ("after_wait", "words"), [((), "saves nothing"), ((ScriptEvent(updates.SAVED, 4, {"path": "last.pt"}),), "at TERM")]
)
def test_a_script_that_handles_term_alone_is_said_to_save_late(
    tmp_path: Path, after_wait: tuple[ScriptEvent, ...], words: str
) -> None:
    attempt = AttemptLog(1, WHOLE.updates[:4], (ScriptEvent(updates.PAUSED, 4, {}), *after_wait))
    asked = ScriptInterruption(TIME_LIMIT, updates.AT_UPDATE, 1, 4, ("TERM",), states.CANCELLED)
    run = RunPaths(tmp_path)
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (asked,), None), [[WHOLE]], [[attempt]])
    (note,) = [one for one in evidence.notes() if "USR1" in one]
    assert words in note


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated.\n", "killed by signal: Terminated"),
        (
            '  File "reductions.py", line 538, in rebuild_storage_fd\n    fd = df.detach()\n'
            "ConnectionResetError: [Errno 104] Connection reset by peer\n",
            "ConnectionResetError: [Errno 104] Connection reset by peer, from a worker",
        ),
        ("ConnectionResetError: [Errno 104] Connection reset by peer\n", ""),
    ],
)
def test_a_loader_whose_workers_the_signal_ended_is_named(tmp_path: Path, output: str, words: str) -> None:
    run = RunPaths(tmp_path)
    run.rank_log(0).parent.mkdir(parents=True)
    run.rank_log(0).write_text(f"--- attempt 1 \n{output}--- attempt 2 \n")
    attempt = AttemptLog(1, WHOLE.updates[:6], (ScriptEvent(updates.PAUSED, 6, {}),))
    asked = ScriptInterruption(PREEMPTION, updates.AT_UPDATE, 1, 6, ("TERM",), states.CANCELLED)
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 4, {"path": "last.pt"}),))
    attempts = [attempt, AttemptLog(2, WHOLE.updates[4:])]
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (asked,), None), [[whole]], [attempts])
    found = [one.evidence for one in evidence.findings() if one.code == "workers-killed"]
    assert [words in one for one in found] == [True] * bool(words)


@pytest.mark.parametrize(
    ("made", "state", "codes"),
    [(7, states.COMPLETED, ["complete-too-early"]), (12, states.COMPLETED, []), (7, states.STOPPED, [])],
)
def test_a_run_that_counts_as_complete_with_updates_left_is_a_finding(
    tmp_path: Path, made: int, state: str, codes: list[str]
) -> None:
    events = (ScriptEvent(updates.PAUSED, 6, {}), ScriptEvent(updates.SAVED, made, {"path": "last.pt"}))
    attempt = AttemptLog(1, WHOLE.updates[:made], events)
    asked = ScriptInterruption(TIME_LIMIT, updates.AT_UPDATE, 1, 6, ("USR1",), state)
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 4, {"path": "last.pt"}),))
    attempts = [attempt, AttemptLog(2, WHOLE.updates[made:])]
    run = RunPaths(tmp_path)
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (asked,), None), [[whole]], [attempts])
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


def saving(after: int, path: str = "last.pt", **content: object) -> ScriptEvent:
    """Return the event of a save; the weights were others than any that it has under a name of an average."""
    tensors = {key: digest for key, digest in content.items() if key in ("ema", "model")}
    return ScriptEvent(updates.SAVES, after, {"path": path, "content": content, "tensors": tensors, "weights": "raw"})


def itself(*attempts: AttemptLog, tolerance: float = 0.0) -> list[str]:
    """Return the codes of what attempts have lost that are compared with each other alone."""
    resumed = list(update_log.resumptions(attempts))
    first = lost_module.first_apart_from_itself(resumed, tolerance)
    way = AttemptLog(0, resumed[-1].way)
    return [] if first is None else [one.code for one in lost_module.lost(first, way, longer=False)]


def test_an_attempt_goes_on_as_the_one_before_it_did_from_the_same_checkpoint() -> None:
    before = AttemptLog(1, WHOLE.updates[:7])
    first, second = update_log.resumptions([before, AttemptLog(2, WHOLE.updates[4:])])
    assert (first.start, first.expected) == (0, ())
    assert (second.start, second.expected) == (4, WHOLE.updates[4:7])
    assert itself(before, AttemptLog(2, WHOLE.updates[4:])) == []
    assert itself(before, AttemptLog(2, WHOLE.updates[7:])) == []
    assert itself(before, AttemptLog(2, (changed(4, random_before="others", losses=(7.0,)),))) == ["rng"]
    assert itself(before, AttemptLog(2, (changed(5, **taken_from(4)),))) == ["sampler-position"]
    assert itself(before, AttemptLog(2, (changed(5, state_before=""),))) == ["optimizer"]


def test_a_generator_that_the_script_leaves_alone_has_not_to_be_restored(tmp_path: Path) -> None:
    """Those of Python and numpy begin at random in each process."""
    paths = RunPaths(tmp_path)
    lines = UpdatePaths(paths)
    lines.folder.mkdir()
    drawn = {"samples": [], "losses": [1.0], "rates": [0.1], "scale": None, "gradients": "", "norm": 1.0}
    states = {"weights_before": "", "state_before": "", "weights": "", "state": ""}
    lines.rank(0).write_text(
        "".join(
            json.dumps({"event": "update", "attempt": attempt, **drawn, **states, "random_before": before}) + "\n"
            for attempt, before in ((1, "t1.p1.n1"), (1, "t2.p1.n2"), (2, "t2.p2.n2"), (2, "t3.p2.n4"))
        )
    )
    ((first, second),) = update_log.read(paths)
    assert second.updates[0].draws_as(first.updates[1])  # Python's alone is another, and nothing was drawn from it
    assert not second.updates[0].draws_as(first.updates[0])
    assert not second.updates[1].draws_as(dataclasses.replace(second.updates[1], random_before="t3..n3"))


@pytest.mark.parametrize(
    ("tolerance", "losses", "codes"), [(0.0, (1 / 5,), ["unknown"]), (1e-3, (0.20001,), []), (1e-3, (0.21,), ["rng"])]
)
def test_losses_may_differ_as_far_as_the_profile_says(
    tolerance: float, losses: tuple[float, ...], codes: list[str]
) -> None:
    noisy = AttemptLog(2, (changed(4, losses=losses),))
    assert itself(AttemptLog(1, WHOLE.updates[:7]), noisy, tolerance=tolerance) == codes


def test_an_attempt_without_a_seed_that_begins_anew_is_what_the_next_goes_on_from() -> None:
    anew = AttemptLog(2, tuple(dataclasses.replace(one, **of_another_seed(one)) for one in WHOLE.updates[:7]))
    *_, last = update_log.resumptions([AttemptLog(1, WHOLE.updates[:2]), anew, AttemptLog(3, anew.updates[4:])])
    assert (last.start, last.expected) == (4, anew.updates[4:])


def of_another_seed(one: ScriptUpdate) -> dict[str, Any]:
    return {"weights_before": f"other {one.weights_before}", "weights": f"other {one.weights}"}


def test_weights_that_no_attempt_had_are_lost_without_a_seed_as_well() -> None:
    before = AttemptLog(1, WHOLE.updates[:7])
    assert itself(before, AttemptLog(2, (changed(4, weights_before="averaged"),))) == ["weights"]
    # Attempt 2 went on from an older checkpoint than the newest, which attempt 3 has again.
    older = [AttemptLog(2, WHOLE.updates[2:4]), AttemptLog(3, WHOLE.updates[6:])]
    assert itself(before, *older) == []


def test_a_state_that_is_lost_shows_where_no_attempt_went_past_its_checkpoint() -> None:
    assert itself(AttemptLog(1, WHOLE.updates[:4]), AttemptLog(2, (changed(4, state_before=""),))) == ["optimizer"]


def test_a_second_resume_that_is_wrong_says_that_the_first_was_right() -> None:
    attempts = [AttemptLog(number, WHOLE.updates[begin : begin + 2]) for number, begin in ((1, 0), (2, 2))]
    first = lost_module.first_apart(WHOLE, [*attempts, AttemptLog(3, (changed(6, **taken_from(4)),))])
    assert first is not None
    (found,) = lost_module.lost(first, WHOLE, longer=False)
    assert "the resume before was right" in found.evidence
    assert "from the beginning of the epoch" in found.cure


def test_an_attempt_that_had_nothing_to_load_is_no_right_resume() -> None:
    attempts = [AttemptLog(1, WHOLE.updates[:2]), AttemptLog(2, WHOLE.updates[:6])]
    first = lost_module.first_apart(WHOLE, [*attempts, AttemptLog(3, (changed(4, **taken_from(2)),))])
    assert first is not None
    assert first.right_resumes == 0
    resumed = list(update_log.resumptions([*attempts, AttemptLog(3, (changed(4, **taken_from(2)),))]))
    alone = lost_module.first_apart_from_itself(resumed, 0.0)
    assert alone is not None
    assert alone.right_resumes == 0


@pytest.mark.parametrize(
    ("resumed", "codes"),
    [
        ({"rates": (0.1,), **taken_from(0)}, ["scheduler"]),  # as in the first update, though the samples differ
        ({"rates": (0.7,), **taken_from(0)}, []),  # a rate that follows the samples
        ({"rates": (0.7,)}, ["scheduler"]),
        ({"state_before": "", "scale": 1.0, **taken_from(0)}, ["optimizer", "scaler"]),
        ({"random_before": "others", "losses": (7.0,)}, ["rng"]),
        ({"random_before": "others", "weights": "other 9"}, []),  # drawn, and used by nothing
        ({}, []),
    ],
)
def test_what_a_later_resume_loses_is_named_beside_what_the_first_lost(
    tmp_path: Path, resumed: dict[str, Any], codes: list[str]
) -> None:
    # Attempt 2 loses the position, and goes on to update 10; attempt 3 continues from 8, which 2 has saved.
    there = [
        dataclasses.replace(update(number), weights_before=f"other {number}", weights=f"other {number + 1}")
        for number in range(4, 10)
    ]
    there[0] = dataclasses.replace(there[0], weights_before="weights 4", **taken_from(6))  # type: ignore[arg-type] # by name
    again = dataclasses.replace(there[4], **{"weights": "others" if resumed else "other 9", **resumed})
    assert after_a_lost_position(tmp_path, there, again) == ["sampler-position", *codes]


def after_a_lost_position(tmp_path: Path, there: Sequence[ScriptUpdate], *again: ScriptUpdate) -> list[str]:
    attempts = [AttemptLog(1, WHOLE.updates[:6]), AttemptLog(2, tuple(there)), AttemptLog(3, again)]
    run = RunPaths(tmp_path)
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 4, {"path": "last.pt"}),))
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (), None), [[whole]], [attempts])
    return [one.code for one in evidence.findings()]


@pytest.mark.parametrize(
    ("saved", "resumed", "number", "codes"),
    [
        (4, 8, 1, ["sampler-position", "scheduler"]),
        (4, 8, 5, ["sampler-position"]),
        (1, 2, 1, ["sampler-position"]),  # in the first epoch, a rate may follow the place in it
    ],
)
def test_a_schedule_that_begins_anew_shows_after_a_rate_that_was_saved_with_the_optimizer(
    tmp_path: Path, saved: int, resumed: int, number: int, codes: list[str]
) -> None:
    there = {
        at: dataclasses.replace(update(at), weights_before=f"other {at}", weights=f"other {at + 1}")
        for at in range(saved, resumed + 2)
    }
    there[saved] = dataclasses.replace(there[saved], weights_before=f"weights {saved}", **taken_from(6))  # type: ignore[arg-type] # by name
    first = dataclasses.replace(there[resumed], **taken_from(0))  # type: ignore[arg-type] # by name
    second = dataclasses.replace(there[resumed + 1], rates=update(number).rates, **taken_from(1))  # type: ignore[arg-type] # by name
    assert after_a_lost_position(tmp_path, [*there.values()], first, second) == codes


@pytest.mark.parametrize(
    ("rates", "codes"),
    [
        ((0.1, 0.1, 0.1, 0.01), ["sampler-position", "scheduler"]),  # counts from 0: three epochs until it changes
        ((0.1, 0.1, 0.01, 0.01), ["sampler-position"]),  # repeats the epoch in which it was
        ((0.1, 0.01, 0.01, 0.01), ["sampler-position"]),  # begins with the next
        ((0.1, 0.1, 0.1, 0.1), ["sampler-position"]),  # follows something else
    ],
)
def test_a_schedule_by_epochs_that_counts_from_0_again_is_named_beside_a_lost_position(
    tmp_path: Path, rates: Sequence[float], codes: list[str]
) -> None:
    made = [
        dataclasses.replace(update(at), rates=(0.1 if at < 3 * LENGTH else 0.01,), scale=None)
        for at in range(6 * LENGTH)
    ]
    whole = AttemptLog(1, tuple(made), (ScriptEvent(updates.SAVED, 6, {"path": "last.pt"}),))
    taken = [4, *range(100, 100 + 4 * LENGTH)]
    again = [
        dataclasses.replace(
            made[6] if at == 0 else update(200 + at),
            rates=(rates[at // LENGTH],),
            batches=(LoadedBatch(at // LENGTH + 1, at % LENGTH, (f"sample {taken[at]}",)),),
            weights=f"other {at}",
            scale=None,
        )
        for at in range(4 * LENGTH)
    ]
    run = RunPaths(tmp_path)
    attempts = [AttemptLog(1, whole.updates[:6]), AttemptLog(2, tuple(again))]
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (), None), [[whole]], [attempts])
    assert [one.code for one in evidence.findings()] == codes


@pytest.mark.parametrize(
    ("torn", "others", "cure"),
    [
        ("model_000004.pt", {"optim_000004.pt": {"state": "b", "param_groups": "c"}}, "Continue from the newest step"),
        ("model.pt", {"opt.pt": {"state": "b", "param_groups": "c"}}, "(model.pt, opt.pt)"),
        ("model.pt", {"best.pt": {"0.weight": "a"}}, "os.replace"),
        ("model.pt", {}, "os.replace"),
    ],
)
def test_a_torn_checkpoint_of_several_files_has_a_cure_of_its_own(
    tmp_path: Path, torn: str, others: dict[str, dict[str, str]], cure: str
) -> None:
    saves = [
        ScriptEvent(updates.SAVES, 4, {"path": f"out/{name}", "content": inside, "tensors": {}, "weights": ""})
        for name, inside in {torn: {"0.weight": "a"}, **others}.items()
    ]
    whole = dataclasses.replace(WHOLE, events=(*saves, ScriptEvent(updates.SAVED, 4, {"path": f"out/{torn}"})))
    run = RunPaths(tmp_path)
    broken = Interrupted(run, (), None, (TornSave(2, tmp_path / "out" / torn, ("EOFError",)),))
    evidence = script_resume.ResumeEvidence(run, broken, [[whole]], [[AttemptLog(1, WHOLE.updates)]])
    found = next(evidence.findings())
    assert found.code == "torn-checkpoint"
    assert cure in found.cure


def test_an_epoch_after_the_resumed_one_that_is_short_is_reported() -> None:
    later = [
        dataclasses.replace(update(number), batches=(LoadedBatch(epoch, place, update(taken).batches[0].samples),))
        for number, epoch, place, taken in ((3, 1, 0, 3), (4, 2, 0, 6), (5, 2, 1, 7), (6, 3, 0, 8))
    ]
    made = (later[0], *(dataclasses.replace(one, weights="others") for one in later[1:]))
    first = lost_module.first_apart(WHOLE, [AttemptLog(1, WHOLE.updates[:3]), AttemptLog(2, made)])
    assert first is not None
    (found,) = lost_module.lost(first, WHOLE, longer=False)
    assert found.code == "sampler-position"
    assert "this epoch has 2 batches" in found.evidence


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/last.pt", "last.pt"),
        ("a/last.pt.tmp", "last.pt"),
        (".tmp_last.pt", "last.pt"),
        ("x.new12", "x"),
        (".", ""),
        ("a/model_part2", "model_part2"),  # one of several that stay
        ("state-new", "state-new"),
    ],
)
def test_a_file_that_is_moved_to_its_place_has_its_last_name(path: str, name: str) -> None:
    assert lost_module.name_of(path) == name


def test_averaged_weights_in_a_checkpoint_are_reported() -> None:
    ours = changed(6, weights_before="average")
    first = lost_module.FirstApart(AttemptLog(2, (ours,)), 0, 7, ours, WHOLE.updates[6])
    reported = lost_module.lost(first, WHOLE, longer=False, saves=[saving(6, model="average", ema="average")])
    assert "averaged" in next(reported).text
    assert "averaged" not in next(lost_module.lost(first, WHOLE, longer=False, saves=[saving(6, model="raw")])).text


@pytest.mark.parametrize(("rounded", "at_first", "is_told"), [("float16", "", True), ("float16", "float16", False)])
def test_weights_that_were_saved_in_less_precision_are_reported(rounded: str, at_first: str, is_told: bool) -> None:
    whole = AttemptLog(1, (dataclasses.replace(update(0), rounded=at_first), *WHOLE.updates[1:]))
    # All updates had been made before: what is expected is the last.
    attempts = [AttemptLog(1, whole.updates), AttemptLog(2, (changed(6, weights_before="others", rounded=rounded),))]
    first = lost_module.first_apart(whole, attempts)
    assert first is not None
    (found,) = lost_module.lost(first, whole, longer=False)
    assert found.code == "weights"
    assert found.evidence.startswith("attempt 2 began")
    assert (".half()" in found.cure) == is_told


def test_a_shuffle_whose_random_state_was_lost_is_no_lost_epoch() -> None:
    passes = tuple(ScriptEvent(updates.PASS, 0, {"number": one, "sampler": "RandomSampler"}) for one in range(1, 4))
    whole = dataclasses.replace(WHOLE, events=passes)
    first = lost_module.first_apart(whole, [AttemptLog(2, (changed(6, **taken_from(2)),))])
    assert first is not None
    assert [one.code for one in lost_module.lost(first, whole, longer=False)] == ["rng"]


@pytest.mark.parametrize(("drawn", "code"), [("random 6", "sampler-position"), ("random 0", "rng")])
def test_samples_that_no_loader_delivers_may_be_drawn_from_random_numbers(drawn: str, code: str) -> None:
    made = tuple(
        dataclasses.replace(one, batches=(LoadedBatch(0, number, one.samples[0]),))
        for number, one in enumerate(WHOLE.updates)
    )
    ours = changed(6, batches=made[0].batches, random_before=drawn)
    first = lost_module.FirstApart(AttemptLog(2, (ours,)), 0, 7, ours, made[6])
    (found,) = lost_module.lost(first, AttemptLog(1, made), longer=False)
    assert found.code == code


@pytest.mark.parametrize(("drawn", "code"), [("random 6", "samples-unseen"), ("others", "rng")])
def test_samples_that_nobody_sees_are_not_said_to_be_the_same(drawn: str, code: str) -> None:
    ours = changed(6, batches=(), losses=(7.0,), random_before=drawn)
    first = lost_module.FirstApart(AttemptLog(2, (ours,)), 0, 7, ours, dataclasses.replace(update(6), batches=()))
    (found,) = lost_module.lost(first, WHOLE, longer=False)
    assert found.code == code
    assert "aren't seen" in found.evidence


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        ({"ema": "1", "step": "2"}, []),
        ({"ema": "9", "step": "2"}, ["ema"]),
        ({"ema": "1", "step": "9"}, ["step-counter"]),
    ],
)
def test_a_value_that_is_saved_otherwise_after_the_same_update_is_reported(
    content: dict[str, str], codes: list[str]
) -> None:
    before = AttemptLog(1, WHOLE.updates[:8], (saving(8, "step8.pt", ema="1", step="2"),))
    again = AttemptLog(2, WHOLE.updates[4:], (saving(4, "step8.pt", **content),))
    assert [one.code for one in lost_module.first_saved_apart([(before, 0), (again, 4)], None)] == codes
    assert list(lost_module.first_saved_apart([(before, 0), (again, 4)], 8)) == []


@pytest.mark.parametrize(
    ("taken", "codes"), [((6, 7), []), ((4, 7), ["sampler-position"]), ((7, 5), ["sampler-epoch"])]
)
def test_an_epoch_whose_rest_has_samples_of_its_beginning_is_reported(taken: tuple[int, ...], codes: list[str]) -> None:
    # Stopped after update 6 of 8, in the middle of the second epoch, by a signal: nothing went on past the checkpoint.
    rest = [dataclasses.replace(update(6 + at), **taken_from(one)) for at, one in enumerate(taken)]  # type: ignore[arg-type] # by name
    attempts = [AttemptLog(1, WHOLE.updates[:6]), AttemptLog(2, tuple(rest))]
    found = lost_module.seen_twice(list(update_log.resumptions(attempts)), WHOLE)
    assert [one.code for one in found] == codes


@pytest.mark.parametrize(("step", "codes"), [(7, []), (3, ["step-counter"])])
def test_a_saved_count_has_to_grow_with_the_updates(step: int, codes: list[str]) -> None:
    whole = dataclasses.replace(WHOLE, events=(saving(4, step=4, epoch=1, size=8), saving(8, step=8, epoch=2, size=8)))
    again = AttemptLog(2, WHOLE.updates[4:], (saving(3, step=step, epoch=1, size=8),))
    assert [one.code for one in lost_module.lost_counts(whole, [(again, 4)])] == codes


def test_a_stop_is_written_as_it_is_read() -> None:
    text = "time-limit@update:7,kill@save:12"
    assert ",".join(map(str, parse_stops(text))) == text
    for wrong in ("kill", "kill@lunch:3", "bribe@save:3", "kill@save:x", ""):
        with pytest.raises(UserError, match="WAY@MOMENT:UPDATE"):
            parse_stops(wrong)


@each("seed", range(20))
def test_stops_are_drawn_within_the_run_and_the_same_again_from_their_seed(seed: int) -> None:
    whole = dataclasses.replace(WHOLE, events=(saving(4), ScriptEvent(updates.EVALUATES, 4, {})))
    stops = drawn(InterruptionPlan(6, WAYS, seed), whole)
    assert stops == drawn(InterruptionPlan(6, WAYS, seed), whole)
    assert len(stops) == 6
    assert all(1 <= one.after < PASSES * LENGTH for one in stops)


@pytest.mark.parametrize(
    ("needed", "left"),
    [
        ({"kill@save:5"}, ["kill@save:5"]),
        ({"kill@start:2", "kill@update:7"}, ["kill@start:2", "kill@update:7"]),
        ({"kill@start:2", "kill@save:5", "kill@update:7"}, ["kill@start:2", "kill@save:5", "kill@update:7"]),
    ],
)
def test_a_fault_is_shown_with_the_fewest_stops(needed: set[str], left: list[str]) -> None:
    stops = parse_stops("kill@start:2,kill@save:5,kill@update:7")
    found = script_resume.fewest(stops, lambda fewer: needed <= {str(one) for one in fewer})
    assert [str(one) for one in found] == left


@pytest.mark.parametrize(("weights", "codes"), [("weights 6", ["ema"]), ("nearly those", [])])
def test_what_is_saved_after_updates_that_differ_by_noise_may_be_another(
    tmp_path: Path, weights: str, codes: list[str]
) -> None:
    redone = [
        WHOLE.updates[4],
        dataclasses.replace(WHOLE.updates[5], weights=weights),
        dataclasses.replace(WHOLE.updates[6], weights_before=weights),
        *WHOLE.updates[7:],
    ]
    attempts = [
        AttemptLog(1, WHOLE.updates[:8], (saving(8, "step8.pt", ema="1"),)),
        AttemptLog(2, tuple(redone), (saving(4, "step8.pt", ema="9"),)),
    ]
    run = RunPaths(tmp_path)
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 8, {}),))
    evidence = script_resume.ResumeEvidence(
        run, Interrupted(run, (), None), [[whole]], [attempts], tolerance=lost_module.PROFILES["standard"]
    )
    assert [one.code for one in evidence.findings()] == codes


def test_the_search_for_fewer_stops_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tried = Clock(), []
    monkeypatch.setattr(script_resume, "clock", clock)

    def fails(fewer: Sequence[PlannedStop]) -> bool:
        tried.append(fewer)
        clock.now += 60.0
        return False

    stops = parse_stops("kill@start:2,kill@save:5,kill@update:7")
    assert script_resume.fewest(stops, fails) == stops
    assert len(tried) == 2


def test_a_count_that_is_lost_without_a_seed_is_no_lost_schedule(tmp_path: Path) -> None:
    # It goes on from update 8 with the rate of the first, and makes all updates once more.
    again = [dataclasses.replace(update(8 + number), rates=(0.1 * (number + 1),)) for number in range(12)]
    attempts = [AttemptLog(1, WHOLE.updates[:10], (saving(8, "last.pt"),)), AttemptLog(2, tuple(again))]
    run = RunPaths(tmp_path)
    evidence = script_resume.ResumeEvidence(
        run, Interrupted(run, (), None), [[WHOLE]], [attempts], tolerance=lost_module.PROFILES["standard"]
    )
    assert "step-counter" in [one.code for one in evidence.findings()]
    assert "scheduler" not in [one.code for one in evidence.findings()]


def test_the_rates_that_a_lost_schedule_leaves_in_the_optimizer_are_no_lost_optimizer(tmp_path: Path) -> None:
    before = (saving(4, optimizer="1"), saving(6, optimizer="2"))
    again = AttemptLog(2, (update(4), changed(5, rates=(0.1,))), (saving(1, optimizer="9"),))
    whole = dataclasses.replace(WHOLE, events=(*before, saving(5, optimizer="3")))
    run = RunPaths(tmp_path)
    attempts = [AttemptLog(1, WHOLE.updates[:4], before[:1]), again]
    evidence = script_resume.ResumeEvidence(run, Interrupted(run, (), None), [[whole]], [attempts])
    assert [one.code for one in evidence.findings()] == ["scheduler"]


@pytest.mark.parametrize(("scheduler", "codes"), [("9", ["scheduler"]), ("1", ["optimizer"])])
def test_a_save_in_which_the_schedule_is_another_has_its_rates_in_the_optimizer(
    tmp_path: Path, scheduler: str, codes: list[str]
) -> None:
    before = AttemptLog(1, WHOLE.updates[:8], (saving(8, optimizer="1", scheduler="1"),))
    again = AttemptLog(2, WHOLE.updates[4:], (saving(4, optimizer="9", scheduler=scheduler),))
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 4, {"path": "last.pt"}),))
    run = RunPaths(tmp_path)
    evidence = script_resume.ResumeEvidence(
        run, Interrupted(run, (), None), [[whole]], [[before, again]], tolerance=lost_module.PROFILES["standard"]
    )
    assert [one.code for one in evidence.findings()] == codes


@pytest.mark.parametrize(
    ("is_on_cluster", "made", "codes"),
    [(True, 1, ["not-interrupted"]), (True, 2, []), (False, 1, ["not-interrupted"]), (False, 2, [])],
)
def test_on_a_cluster_each_run_has_its_starts_and_every_stated_stop_has_to_be_met(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_on_cluster: bool, made: int, codes: list[str]
) -> None:
    run, starts = RunPaths(tmp_path), []
    whole = dataclasses.replace(WHOLE, events=(ScriptEvent(updates.SAVED, 4, {"path": "last.pt"}),))
    stops = parse_stops("kill@update:3,kill@update:7")
    asked = ScriptInterruption("kill", updates.AT_UPDATE, 1, 3, (), states.FAILED)

    def vary(**settings: Any) -> SimpleNamespace:
        return SimpleNamespace(max_attempts=settings.get("max_attempts", 1))

    def runs(request: SimpleNamespace) -> RunPaths:
        starts.append(request.max_attempts)
        return run

    def interrupts(_bench: object, request: SimpleNamespace, _stops: object) -> Interrupted:
        return Interrupted(runs(request), (asked,) * made, None)

    monkeypatch.setattr(script_resume, "interrupted", interrupts)
    monkeypatch.setattr(update_log, "read", lambda _paths: [[whole]])
    job = SimpleNamespace(env={})
    bench = SimpleNamespace(
        vary=vary,
        run=runs,
        say=print,
        is_on_cluster=is_on_cluster,
        remote=object(),
        folder_of_ranks=str(tmp_path),
        request=SimpleNamespace(job=job),
    )
    plan = InterruptionPlan(len(stops), WAYS, stated=stops)
    verdict = script_resume.verify_script(cast(Any, bench), instances=1, plan=plan, profile="standard")
    assert starts == [1, len(stops) + 2 if is_on_cluster else 1]
    assert [one.code for one in verdict.findings] == codes
    assert (verdict.equal, verdict.inconclusive) == (not codes, bool(codes))
