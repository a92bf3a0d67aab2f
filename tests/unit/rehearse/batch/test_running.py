"""How long a rehearsed batch file may do nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainjob.contract import clock
from trainjob.rehearse.batch import running


@pytest.mark.parametrize(("nodes", "is_stalled"), [("--nnodes=2", True), ("--nnodes=1:2", False)])
def test_a_range_of_nodes_has_the_time_that_torchrun_waits_for_them(
    nodes: str, is_stalled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: Any = SimpleNamespace(processes=[SimpleNamespace(torch="2.13.0", command=f"torchrun {nodes} train.py")])
    watch = running._Watch(job)
    began = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: began + 35.0)
    assert watch.is_stalled() == is_stalled
