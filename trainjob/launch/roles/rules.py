"""What happens next in a job with roles: one function of the facts, without side effects."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple

WAIT = "wait"
START = "start"  # this role, for the first time
RESTART = "restart"  # this server, which has ended
END = "end"  # this server, which is not ready in time: it is started again once it has ended
FAIL = "fail"  # the job, because of this server
FINISH = "finish"  # the job, with the code of its main role
ABANDON = "abandon"  # the job, which was told to end before its main role began


class RoleFacts(NamedTuple):
    """A role at one moment. It has not been started, runs, or has ended."""

    name: str
    needs: Tuple[str, ...] = ()
    is_main: bool = False
    runs: bool = False
    is_ready: bool = False
    is_ending: bool = False  # was told to
    code: Optional[int] = None  # of its end
    # Not known to have ended by itself: its launcher was told to end, or has recorded no end, as when its node is lost.
    from_outside: bool = False
    for_s: float = 0.0  # since it was started, or since it ended
    ready_timeout_s: float = 600.0
    restarts_left: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended."""
        return self.code is not None and not self.runs


class Action(NamedTuple):
    """What to do, with which role, and why; `why` is for people, and empty where nothing went wrong."""

    what: str
    role: str = ""
    why: str = ""


def decide(roles: Sequence[RoleFacts], is_told: bool, patience_s: float) -> Action:
    """Return what to do next.

    `is_told`: the job was told to end, so that no end of a server means anything. `patience_s`: how long a server may
    have ended from outside, as Slurm ends all steps of a job one after the other, before it counts as ended by itself.
    Its launcher takes as long at most to end it, so that twice as long is too long.
    """
    main = next(role for role in roles if role.is_main)
    if main.has_ended:
        return Action(FINISH, main.name)
    if is_told:
        return Action(WAIT) if main.runs else Action(ABANDON, main.name)
    for role in roles:
        if role.is_main:
            continue
        if role.has_ended and not (role.from_outside and role.for_s < patience_s):
            how = "ended with exit code %d" % (role.code or 0)
            needed_by = " and ".join(other.name for other in roles if role.name in other.needs and not other.has_ended)
            if not needed_by:
                continue
            if role.restarts_left > 0:
                return Action(RESTART, role.name, "role %s %s: it is started again" % (role.name, how))
            return Action(FAIL, role.name, "role %s %s, and %s needs it" % (role.name, how, needed_by))
        if role.runs and not role.is_ready and role.for_s >= role.ready_timeout_s:
            limit = "role %s was not ready within %g s" % (role.name, role.ready_timeout_s)
            if role.restarts_left > 0 and not role.is_ending:
                return Action(END, role.name, limit + ": it is ended, and started again")
            if role.restarts_left > 0 and role.for_s < role.ready_timeout_s + 2 * patience_s:
                continue
            return Action(FAIL, role.name, limit)
    ready = {role.name for role in roles if role.runs and role.is_ready}
    for role in roles:
        if role.code is None and not role.runs and set(role.needs) <= ready:
            return Action(START, role.name)
    return Action(WAIT)
