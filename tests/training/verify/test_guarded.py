"""What `verify` trains for itself: never in the list of runs, never left running, whatever ends the command."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.local_runs import Here, marked
from tests.support.programs import TRAINJOB
from tests.support.verdicts import runs_left, verify
from tests.support.waiting import until

_LONG = ("verify", "--resume", "--updates", "20000", "--interruptions", "1")


def at_work(here: Here) -> list[int]:
    return [pid for folder in runs_left(here) for pid in marked(Path(folder))]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_training_outlives_it_and_no_list_shows_it(here: Here, number: signal.Signals) -> None:
    command = subprocess.Popen([TRAINJOB, *_LONG], cwd=here.project, env=here.environ, stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(at_work(here)) >= 3, "ranks at work")
        assert here.json("list") == []
        assert "there are no runs yet" in here.json("status", "last", code=1)["error"]
        folders = [Path(folder) for folder in runs_left(here)]
        command.send_signal(number)
        command.wait(100)
    finally:
        command.kill()
    until(lambda: not runs_left(here), "the folder of its runs removed")
    assert [pid for folder in folders for pid in marked(folder)] == []


def test_another_number_of_instances_is_refused_before_anything_is_trained(here: Here) -> None:
    refused = verify(here, "--resume", "--other-instances", "3", code=1)["error"]
    assert "3 instances" in refused
    assert runs_left(here) == []
