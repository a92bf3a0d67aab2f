"""`trainjob submit --follow | head`: the reader leaves, and the exit code is the run's all the same."""

from __future__ import annotations

import pytest

from tests.support.local_runs import Here
from tests.support.programs import TRAINJOB, ran

_PRINTS = "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.05; done"


@pytest.mark.parametrize(("end", "code"), [("exit 7", 1), ("exit 0", 0)])
def test_a_reader_that_leaves_does_not_hide_how_the_run_ended(here: Here, end: str, code: int) -> None:
    words = f"{TRAINJOB} submit --cluster local --follow -- sh -c '{_PRINTS}; {end}'"
    piped = ["bash", "-o", "pipefail", "-c", f"{words} | head -n 2"]
    ended = ran(piped, folder=here.project, environ=here.environ, timeout_s=60)
    assert len(ended.stdout.splitlines()) == 2
    assert ended.returncode == code, ended.stderr
