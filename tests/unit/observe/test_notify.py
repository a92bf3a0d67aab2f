"""What is told of a run, by how it stands."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.support.cases import each
from trainjob.cluster.preferences import Notify
from trainjob.contract import states
from trainjob.observe import notify
from trainjob.observe.delivery import message
from trainjob.observe.status import Snapshot

RULES = Notify(command=["true"], stalled_after_s=60, limit_within_s=600)
RUNNING = Snapshot(
    *("k3xq-digits", "/runs/k3xq-digits", states.RUNNING, "digits", "hpc", None, 1, None, 1, 10, 100, 1000.0, None, []),
    note=None,
)


def seen(**changes: Any) -> Snapshot:
    return dataclasses.replace(RUNNING, **changes)


@each(
    ("now", "reported"),
    [
        (seen(), []),
        (seen(state=states.PENDING, heartbeat=1.0), []),
        (seen(heartbeat=949.0), ["stalled"]),
        (seen(heartbeat=949.0, is_stale=True), []),
        (seen(heartbeat=None), []),
        (seen(scheduler={"time_left": "10:00"}), ["limit"]),
        (seen(scheduler={"time_left": "10:01"}), []),
        (seen(scheduler={"time_left": "1-00:00:00"}), []),
        (seen(scheduler={"time_left": "UNLIMITED"}), []),
        (seen(scheduler={"time_left": "INVALID"}), []),
        (seen(heartbeat=1.0, scheduler={"time_left": "0:05"}), ["stalled", "limit"]),
        (seen(state=states.REQUEUED), []),
        (seen(state=states.COMPLETED), ["ended"]),
        (seen(state=states.CANCELLED), ["ended"]),
        (seen(state=states.STOPPED), ["ended"]),
        (seen(state=states.FAILED), ["failed"]),
        (seen(state=states.LOST), ["failed"]),
        (seen(state=states.LOST, is_stale=True), []),
        (seen(state=states.TIMEOUT), ["failed"]),
    ],
)
def test_what_is_due(now: Snapshot, reported: list[str]) -> None:
    assert notify.events(now, RULES, at_s=1010.0) == reported


def test_what_others_have_written_stays_on_its_line() -> None:
    hostile = message(seen(cluster="x\r\nBcc: all@example.org", note="a\x1b[2J\nb\0c"), "stalled")
    assert hostile.subject == "k3xq-digits on x\\r\\nBcc: all@example.org makes no progress"
    assert hostile.body.splitlines()[0] == "a\\x1b[2J\\nb\\x00c"
    assert "\n" not in hostile.cluster
