"""What happens next in a job with roles, as a table: facts of each role, and the action."""

from __future__ import annotations

from typing import Any

from tests.support.cases import each
from trainjob.launch.roles.rules import RoleFacts, decide

PATIENCE_S = 30.0
WAITING: dict[str, Any] = {}
STARTING: dict[str, Any] = {"runs": True}
READY: dict[str, Any] = {"runs": True, "is_ready": True}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"code": code, **more}


@each(
    ("server", "train", "is_told", "action"),
    [
        (WAITING, WAITING, False, "start server"),
        (STARTING, WAITING, False, "wait"),
        ({**STARTING, "since": -600.0}, WAITING, False, "fail server"),
        (READY, WAITING, False, "start train"),
        (READY, READY, False, "wait"),
        # Any end of a server that is needed is a failure, whatever its code.
        (ended(0), READY, False, "fail server"),
        (ended(1), READY, False, "fail server"),
        (ended(137), WAITING, False, "fail server"),
        (ended(0, restarts_left=1), READY, False, "start server once more"),
        (ended(0, restarts_left=1), WAITING, False, "start server once more"),
        ({**STARTING, "restarts_left": 1}, READY, False, "wait"),
        # Once it has ended, it is started again.
        ({**STARTING, "restarts_left": 1, "since": -600.0}, READY, False, "end server"),
        ({**STARTING, "restarts_left": 1, "since": -600.0, "is_ending": True}, WAITING, False, "wait"),
        ({**STARTING, "restarts_left": 1, "since": -660.0, "is_ending": True}, WAITING, False, "fail server"),
        # When what needs it has ended, it is not needed any more.
        (ended(0), ended(0), False, "finish train"),
        (ended(1), ended(0), False, "finish train"),
        (READY, ended(0), False, "finish train"),
        (READY, ended(1), False, "finish train"),
        # Slurm ends all steps of a job, one after the other.
        (ended(143, from_outside=True, since=-1.0), READY, False, "wait"),
        (ended(143, from_outside=True, since=-1.0, restarts_left=1), READY, False, "wait"),
        (ended(143, from_outside=True, since=-30.0), READY, False, "fail server"),
        (ended(143, from_outside=True, since=-30.0, restarts_left=1), READY, False, "start server once more"),
        (ended(143), READY, True, "wait"),
        (READY, READY, True, "wait"),
        (READY, ended(143), True, "finish train"),
        (STARTING, WAITING, True, "finish train"),
    ],
)
def test_what_comes_next(server: dict[str, Any], train: dict[str, Any], is_told: bool, action: str) -> None:
    what, role, why = decide(
        [RoleFacts("server", **server)], RoleFacts("train", ("server",), **train), is_told, PATIENCE_S, 0.0
    )
    again = " once more" if what == "start" and server.get("code") is not None else ""
    assert (what if what == "wait" else f"{what} {role.name}{again}") == action
    assert bool(why) == (what in ("fail", "end") or bool(again))


def test_a_server_waits_for_those_that_it_needs() -> None:
    store, server, main = (
        RoleFacts("store", **STARTING),
        RoleFacts("server", ("store",)),
        RoleFacts("train", ("server",)),
    )
    assert decide([store, server], main, False, PATIENCE_S, 0.0)[0] == "wait"
    store.is_ready = True
    assert decide([store, server], main, False, PATIENCE_S, 0.0) == ("start", server, "")
    store.runs, store.code = False, 0
    server.runs = server.is_ready = main.runs = True
    why = decide([store, server], main, False, PATIENCE_S, 0.0)[2]
    assert why == "role store ended with exit code 0, and server needs it"
