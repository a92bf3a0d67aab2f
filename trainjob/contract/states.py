"""The words a run's state can be."""

from __future__ import annotations

PENDING = "PENDING"
RUNNING = "RUNNING"
REQUEUED = "REQUEUED"
STOPPED = "STOPPED"
COMPLETED = "COMPLETED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"
TIMEOUT = "TIMEOUT"
LOST = "LOST"

ALL = (PENDING, RUNNING, REQUEUED, STOPPED, COMPLETED, FAILED, CANCELLED, TIMEOUT, LOST)
ACTIVE = frozenset((PENDING, RUNNING, REQUEUED))
ENDED = frozenset(ALL) - ACTIVE
RESUMABLE = frozenset((STOPPED, FAILED, CANCELLED, TIMEOUT, LOST))

# How the sentence begins that tells how an attempt ended whose ranks got a request.
ASKED_TO_STOP = "asked to stop"
