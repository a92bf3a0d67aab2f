"""What it means that signs of life of ranks have stopped: one policy for everything that watches ranks.

A watcher notes when it saw each sign last, asks `silence_of`, and does what the answer says. docs/watching.md has the
table of rules with their figures.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence

# Waiting threads take less than this; a process that computes takes a hundred times as much.
IDLE_CORES = 0.01
# Between two looks at stacks, which show whether anything has moved.
STACKS_EVERY_S = 30.0
_FRESH_S = 2 * STACKS_EVERY_S
# Progress is late after this many times its usual gap and a share of the stall timeout, and after what was longest.
_USUAL_TIMES, _SHARE_OF_TIMEOUT, _LONGEST_TIMES = 3.0, 0.2, 1.5

# Whose signs: of one rank of a command; of a node's ranks whose work is done; of all ranks of a command; of a node's
# devices; of who shows no more than progress: a rank of a task to itself, a run to whoever looks at its files.
RANK, DONE, COMMAND, DEVICES, PROGRESS = "rank", "done", "command", "devices", "progress"
STALLED, LATE = "stalled", "late"


class SignsOfLife(NamedTuple):
    """When each sign was last seen, in seconds of one clock; None: not at all, or it can't be seen.

    `stacks`: processes came or went, a stack changed, or much was read or written. A rank that waits for its disk
    computes.
    """

    output: Optional[float] = None
    cpu: Optional[float] = None
    device: Optional[float] = None
    progress: Optional[float] = None
    stacks: Optional[float] = None

    def seen(self, at: float, signs: Iterable[str]) -> "SignsOfLife":
        """Return these with `signs` seen at `at`."""
        return self._replace(**dict.fromkeys(signs, at))


class StallLimits(NamedTuple):
    """What a job says about ranks that do nothing, and how its progress came so far. Seconds."""

    stall_timeout_s: float = 600.0
    exit_grace_s: float = 60.0
    idle_timeout_s: float = 600.0
    ends_silent: bool = False  # the job states stall_timeout_s
    ends_stalled: bool = False  # on_stall: end
    usual_gap_s: float = 0.0  # between two signs of progress of a command; 0: unknown
    longest_gap_s: float = 0.0


class Silence(NamedTuple):
    """Signs of life that have stopped: what that is, whether it ends the ranks, and which ones in a sentence."""

    kind: str
    ends: bool
    for_s: float  # in which none of these signs was seen
    text: str


class _Rule(NamedTuple):
    kind: str
    stopped: Mapping[str, str]  # each sign, and for how long; one that can't be seen has not stopped
    device: Optional[str] = None  # so long the devices as well, if any are seen
    ends: Callable[[StallLimits], bool] = lambda _: False


_RULES: Dict[str, Sequence[_Rule]] = {
    RANK: [_Rule("silent", {"output": "stall", "cpu": "stall"}, "stall", lambda job: job.ends_silent)],
    DONE: [
        _Rule("outlived", {"output": "grace", "cpu": "grace", "stacks": "grace"}, ends=lambda _: True),
        _Rule("outlived", {"output": "stall", "stacks": "stall"}, ends=lambda _: True),
    ],
    COMMAND: [
        _Rule(STALLED, {"progress": "late", "cpu": "look", "stacks": "look"}, "look", lambda job: job.ends_stalled),
        # One long call of a library, or of the GPU, is given longer.
        _Rule(STALLED, {"progress": "long", "stacks": "look"}, ends=lambda job: job.ends_stalled),
        # It evaluates, compiles, loads or saves; or its ranks move and get nowhere.
        _Rule("slow", {"progress": "long"}),
        _Rule(LATE, {"progress": "late"}),
    ],
    DEVICES: [_Rule("unused", {"device": "idle"})],
    PROGRESS: [_Rule(STALLED, {"progress": "stall"}, ends=lambda _: True)],
}
_WORDS = {
    "output": "output",
    "progress": "progress",
    "cpu": "CPU time",
    "device": "work of a device",
    "stacks": "change of processes, stacks and files",
}


def silence_of(whose: str, signs: SignsOfLife, now: float, limits: StallLimits) -> Optional[Silence]:
    """Return the first rule that the signs fulfil, which is the worst; None if all is well. Pure."""
    timeout_s = limits.stall_timeout_s
    late_s = _USUAL_TIMES * limits.usual_gap_s + _SHARE_OF_TIMEOUT * timeout_s
    late_s = max(late_s, _LONGEST_TIMES * limits.longest_gap_s)
    limit_s = {"stall": timeout_s, "grace": limits.exit_grace_s, "idle": limits.idle_timeout_s}
    limit_s.update(look=STACKS_EVERY_S, late=late_s, long=max(late_s, timeout_s))
    ages = {sign: now - at for sign, at in zip(signs._fields, signs) if at is not None}
    for rule in _RULES[whose]:
        stopped = {**rule.stopped, **({"device": rule.device} if rule.device and "device" in ages else {})}
        if all(ages.get(sign, -1.0) >= limit_s[limit] for sign, limit in stopped.items()):
            for_s = min(ages[sign] for sign in stopped)
            return Silence(rule.kind, rule.ends(limits), for_s, _sentence(stopped, ages, limits.usual_gap_s))
    return None


def _sentence(stopped: Mapping[str, str], ages: Mapping[str, float], usual_s: float) -> str:
    """Return since when signs have stopped, and which have not."""
    usual = " (usually every %.3g s)" % usual_s if usual_s else ""
    ended = ["no %s for %.0f s%s" % (_WORDS[sign], ages[sign], usual * (sign == "progress")) for sign in stopped]
    others = [word for sign, word in _WORDS.items() if sign not in stopped and ages.get(sign, _FRESH_S) < _FRESH_S]
    return ", ".join(ended) + ("; still seen: %s" % ", ".join(others) if others else "")
