"""What a rank takes from its settings before it opens the task."""

from __future__ import annotations

import pytest

from tests.support.runs_at_work import settings
from trainjob.train.opening import of_range


@pytest.mark.parametrize(
    ("instances", "expected"),
    [(4, (4, 6)), (8, (8, 3)), (12, (12, 2)), (5, (12, 2)), (3, (12, 2)), (24, (12, 2))],
    ids=["fewest", "between", "most", "does not divide", "too few", "too many"],
)
def test_settings_for_as_many_instances_as_slurm_gave(instances: int, expected: tuple[int, int]) -> None:
    planned = settings(instances=12, replicas=12, accumulation=2, least_instances=4)
    fitted = of_range(planned, instances)
    assert (fitted.instances, fitted.accumulation) == expected
    assert fitted.replicas == fitted.instances


def test_without_a_range_the_plan_stands() -> None:
    planned = settings(instances=4, replicas=4, accumulation=2)
    assert of_range(planned, 2) == planned
