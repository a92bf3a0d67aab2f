"""What happens next in a job with roles, as a table: facts of each role, and the action."""

from __future__ import annotations

from typing import Any

import pytest

from trainjob.launch.roles.rules import RoleFacts, decide

PATIENCE_S = 30.0
WAITING: dict[str, Any] = {}
STARTING: dict[str, Any] = {"runs": True}
READY: dict[str, Any] = {"runs": True, "is_ready": True}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"code": code, **more}


@pytest.mark.parametrize(
    ("server", "train", "is_told", "action"),
    [
        (WAITING, WAITING, False, "start server"),
        (STARTING, WAITING, False, "wait"),
        ({**STARTING, "for_s": 600.0}, WAITING, False, "fail server"),
        (READY, WAITING, False, "start train"),
        (READY, READY, False, "wait"),
        # Any end of a server that is needed is a failure, whatever its code.
        (ended(0), READY, False, "fail server"),
        (ended(1), READY, False, "fail server"),
        (ended(137), WAITING, False, "fail server"),
        (ended(0, restarts_left=1), READY, False, "restart server"),
        (ended(0, restarts_left=1), WAITING, False, "restart server"),
        ({**STARTING, "restarts_left": 1}, READY, False, "wait"),
        # Once it has ended, it is started again.
        ({**STARTING, "restarts_left": 1, "for_s": 600.0}, READY, False, "end server"),
        ({**STARTING, "restarts_left": 1, "for_s": 600.0, "is_ending": True}, WAITING, False, "wait"),
        ({**STARTING, "restarts_left": 1, "for_s": 660.0, "is_ending": True}, WAITING, False, "fail server"),
        # When what needs it has ended, it is not needed any more.
        (ended(0), ended(0), False, "finish train"),
        (ended(1), ended(0), False, "finish train"),
        (READY, ended(0), False, "finish train"),
        (READY, ended(1), False, "finish train"),
        # Slurm ends all steps of a job, one after the other.
        (ended(143, from_outside=True, for_s=1.0), READY, False, "wait"),
        (ended(143, from_outside=True, for_s=1.0, restarts_left=1), READY, False, "wait"),
        (ended(143, from_outside=True, for_s=30.0), READY, False, "fail server"),
        (ended(143, from_outside=True, for_s=30.0, restarts_left=1), READY, False, "restart server"),
        (ended(143), READY, True, "wait"),
        (READY, READY, True, "wait"),
        (READY, ended(143), True, "finish train"),
        (STARTING, WAITING, True, "abandon train"),
    ],
)
def test_what_comes_next(server: dict[str, Any], train: dict[str, Any], is_told: bool, action: str) -> None:
    roles = [RoleFacts("server", **server), RoleFacts("train", ("server",), is_main=True, **train)]
    found = decide(roles, is_told, PATIENCE_S)
    assert " ".join(filter(None, found[:2])) == action
    assert bool(found.why) == (found.what in ("fail", "restart", "end"))


def test_a_server_waits_for_those_that_it_needs() -> None:
    first, main = RoleFacts("store", **STARTING), RoleFacts("train", ("server",), is_main=True)
    server = RoleFacts("server", ("store",))
    assert decide([first, server, main], False, PATIENCE_S).what == "wait"
    assert decide([first._replace(is_ready=True), server, main], False, PATIENCE_S)[:2] == ("start", "server")
    gone = decide([RoleFacts("store", code=0), server._replace(**READY), main._replace(**READY)], False, PATIENCE_S)
    assert gone.why == "role store ended with exit code 0, and server needs it"
