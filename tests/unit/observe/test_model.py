"""The scaling model on runs that were made by a known law, so that what it should say is known."""

from __future__ import annotations

import math
import random

import pytest

from trainjob.observe.predictions.model import Observation, Target, fit, predict, student_95
from trainjob.records.prediction import Prediction

LATENCY_S, BYTES_PER_S, SIZE = 0.0005, 1e8, 4e6
COMPUTE_S = 0.02


def reduce_s(instances: int) -> float:
    return 2 * (instances - 1) * (LATENCY_S + SIZE / instances / BYTES_PER_S)


def run(instances: int, factor: float = 1.0, accumulation: int = 1, start_up_s: float = 4.0) -> Observation:
    return Observation(
        id=f"run-{instances}",
        instances=instances,
        accumulation=accumulation,
        compute_s=COMPUTE_S * factor,
        loader_s=0.0,
        reduce_s=reduce_s(instances) * factor,
        evaluation_s=0.5,
        evaluations=1.0,
        checkpoint_s=0.1,
        start_up_s=start_up_s,
        ending_s=1.0,
        memory_bytes=3e8,
        checkpoint_bytes=8e6,
        weights_bytes=SIZE,
    )


def target(instances: int, updates: int = 1000, **more: float) -> Target:
    values = {"accumulation": 1, "updates_per_epoch": 100, "checkpoint_every": 100, **more}
    return Target(instances=instances, updates=updates, **values)  # type: ignore[arg-type]


def predicted(observations: list[Observation], wanted: Target) -> Prediction:
    found = predict(observations, wanted, "tests")
    assert found is not None
    return found


def test_a_run_is_the_sum_of_its_parts() -> None:
    found = predicted([run(2)], target(2))
    each = COMPUTE_S + reduce_s(2)
    assert found.update_s.median == pytest.approx(each)
    assert found.epoch_s is not None
    assert found.epoch_s.median == pytest.approx(100 * each)
    # 10 evaluations and 10 checkpoints.
    assert found.run_s.median == pytest.approx(1000 * each + 5 + 1 + 4 + 1)
    assert found.memory_bytes is not None
    assert found.checkpoint_bytes is not None
    assert (found.memory_bytes.median, found.checkpoint_bytes.median) == (3e8, 8e6)


def test_two_numbers_of_instances_tell_latency_from_bandwidth() -> None:
    scaling = fit([run(1), run(2), run(4)], target(8))
    assert scaling.latency_s == pytest.approx(LATENCY_S)
    assert scaling.bytes_per_s == pytest.approx(BYTES_PER_S)
    assert scaling.reduce_s == pytest.approx(reduce_s(8))
    assert predicted([run(1), run(2), run(4)], target(8)).update_s.median == pytest.approx(COMPUTE_S + reduce_s(8))


def test_one_number_of_instances_leaves_all_to_bandwidth() -> None:
    scaling = fit([run(2)], target(4))
    assert scaling.latency_s == 0
    assert scaling.reduce_s == pytest.approx(reduce_s(2) * 1.5)


def test_one_instance_alone_does_not_tell_what_reducing_takes() -> None:
    assert predict([run(1)], target(2), "tests") is None
    assert predict([], target(1), "tests") is None
    assert predict([run(1)], target(1), "tests") is not None


def test_instances_beyond_the_cores_take_turns() -> None:
    assert fit([run(2)], target(8, cores=4)).compute_s == pytest.approx(2 * COMPUTE_S)
    assert fit([run(2)], target(4, cores=4)).compute_s == pytest.approx(COMPUTE_S)
    assert fit([run(8)], target(4, cores=4)).compute_s == pytest.approx(COMPUTE_S / 2)
    assert fit([run(2)], target(8)).compute_s == pytest.approx(COMPUTE_S)


def test_micro_batches_scale_computing_and_not_reducing() -> None:
    found = predicted([run(2, accumulation=4)], target(2, accumulation=3))
    assert found.update_s.median == pytest.approx(3 * COMPUTE_S + reduce_s(2))


def test_what_no_run_has_shown_is_less_certain() -> None:
    seen = [run(1), run(2)] * 4
    known, unknown = predicted(seen, target(2)), predicted(seen, target(4))
    widths = [math.log(one.update_s.high / one.update_s.low) for one in (known, unknown)]
    assert widths[1] > 1.5 * widths[0]
    assert "no run has had this number" in unknown.model[-1]
    assert "no run has had this number" not in known.model[-1]


def test_runs_that_agree_narrow_the_interval_and_runs_that_differ_widen_it() -> None:
    steady = predicted([run(2)] * 10, target(2)).update_s
    noisy = predicted([run(2, factor) for factor in (0.5, 2.0) * 5], target(2)).update_s
    assert steady.high / steady.low < 1.3
    assert noisy.low < 0.5 * noisy.median < 2 * noisy.median < noisy.high


@pytest.mark.parametrize("before", [3, 5, 10])
@pytest.mark.parametrize("scatter", [0.03, 0.05, 0.15, 0.3])
def test_intervals_hold_about_nine_results_of_ten(before: int, scatter: float) -> None:
    generator = random.Random(7)
    updates = runs = 0
    for _ in range(1000):
        # What slows updates and what slows the start differ; half of such a run is its start.
        factors = [[math.exp(generator.gauss(0, scatter)) for _ in range(2)] for _ in range(before + 1)]
        *seen, last = [run(2, factor, start_up_s=60 * start_up) for factor, start_up in factors]
        found = predicted(seen, target(2))
        updates += last.update_s(1) in found.update_s
        runs += 1000 * last.update_s(1) + last.start_up_s + 7 in found.run_s
    assert min(updates, runs) >= 850
    # Few runs show little of their scatter: the interval is then wider than it need be.
    assert max(updates, runs) <= 950 or before == 3


def test_attempts_follow_from_the_time_limit() -> None:
    each = COMPUTE_S + reduce_s(2)
    training = 1000 * each + 6
    limited = target(2, time_limit_s=65.0, margin_s=30.0)
    found = predicted([run(2)] * 10, limited).attempts
    assert found is not None
    assert found.median == math.ceil(training / (65 - 30 - 5))
    assert found.low <= found.median <= found.high
    assert predicted([run(2)], target(2)).attempts is None
    assert predicted([run(2)], target(2, time_limit_s=34.0, margin_s=30.0)).attempts is None


@pytest.mark.parametrize(("freedom", "exact"), [(2, 2.920), (3, 2.353), (5, 2.015), (10, 1.812), (1e9, 1.645)])
def test_students_t(freedom: float, exact: float) -> None:
    assert student_95(freedom) == pytest.approx(exact, rel=0.06)
