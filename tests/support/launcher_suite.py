"""What back ends that start launchers of ranks do alike. A file of tests/backends runs it beside the whole suite."""

from __future__ import annotations

import sys

import pytest

from tests.support.backend_places import Place


@pytest.mark.elsewhere_in_full
def test_a_shell_opens_next_to_a_rank_that_torchrun_started(place: Place) -> None:
    run = place.submit("--", sys.executable, "-m", "torch.distributed.run", "stay.py")
    run.wait_until_ready()
    words = (
        "--",
        "sh",
        "-c",
        'echo "$RANK of $WORLD_SIZE, started by $TORCHELASTIC_RUN_ID" && test -e stay.py && exit 7',
    )
    for rank in (0, 1):
        output = place.trainjob("shell", run.id, "--rank", str(rank), *words, code=7).splitlines()[-1]
        assert output == f"{rank} of 2, started by {run.id}-1"
    place.trainjob("cancel", run.id)
    run.wait_until_nothing_is_left()
