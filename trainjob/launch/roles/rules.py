"""What happens next in a job with roles: one function of the facts, without side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple, TypeVar

WAIT = "wait"
START = "start"  # this role, for the first time or once more
END = "end"  # this server, which is not ready in time: it is started again once it has ended
FAIL = "fail"  # the job, because of this server
FINISH = "finish"  # the job, with the code of its main role, if that has begun


@dataclass(eq=False)
class RoleFacts:
    """A role at one moment. It has not been started, runs, or has ended."""

    name: str
    needs: Sequence[str] = ()
    runs: bool = False
    is_ready: bool = False
    is_ending: bool = False  # was told to
    code: Optional[int] = None  # of its end
    # Not known to have ended by itself: its launcher was told to end, or has recorded no end, as when its node is lost.
    from_outside: bool = False
    since: float = 0.0  # when it was started, or when it ended
    ready_timeout_s: float = 600.0
    restarts_left: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended."""
        return self.code is not None and not self.runs


Facts = TypeVar("Facts", bound=RoleFacts)


def decide(
    servers: Sequence[Facts], main: Facts, is_told: bool, patience_s: float, now: float
) -> Tuple[str, Facts, str]:
    """Return what to do next, with which role, and why: for people, and empty where nothing went wrong.

    `main` is what needs the servers, and `now` the time. `is_told`: the job was told to end, so that no end of a server
    means anything. `patience_s`: how long a server may have ended from outside, as Slurm ends all steps of a job one
    after the other, before it counts as ended by itself. Its launcher takes as long at most to end it, so that twice as
    long is too long.
    """
    if main.has_ended or (is_told and not main.runs):
        return FINISH, main, ""
    if is_told:
        return WAIT, main, ""
    roles = [*servers, main]
    for role in servers:
        for_s = now - role.since
        if role.has_ended and not (role.from_outside and for_s < patience_s):
            needed_by = " and ".join(other.name for other in roles if role.name in other.needs and not other.has_ended)
            how = "role %s ended with exit code %d" % (role.name, role.code or 0)
            if needed_by and role.restarts_left > 0:
                return START, role, how + ": it is started again"
            if needed_by:
                return FAIL, role, "%s, and %s needs it" % (how, needed_by)
        elif role.runs and not role.is_ready and for_s >= role.ready_timeout_s:
            limit = "role %s was not ready within %g s" % (role.name, role.ready_timeout_s)
            if role.restarts_left > 0 and not role.is_ending:
                return END, role, limit + ": it is ended, and started again"
            if role.restarts_left <= 0 or for_s >= role.ready_timeout_s + 2 * patience_s:
                return FAIL, role, limit
    ready = {role.name for role in servers if role.runs and role.is_ready}
    waiting = (role for role in roles if role.code is None and not role.runs)
    startable = next((role for role in waiting if set(role.needs) <= ready), None)
    return (WAIT, main, "") if startable is None else (START, startable, "")
