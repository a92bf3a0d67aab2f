"""Reads the events of running playbooks from Ansible's JSON callback (ansible.posix.jsonl), and tells them to users."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath

from trainjob.contract import clock

CALLBACK = "ansible.posix.jsonl"
STATUSES = ("ok", "changed", "skipped", "failed", "unreachable")
# Tasks of these files check what was given: they are a column of their own.
_VALIDATION = ("validate", "forget")
# What is included reports for itself, and remembering a fact changes nothing.
_SILENT = ("include_", "set_fact")
# The exit codes of a shell when it may not run a program, or does not find it: here the interpreter of the modules.
_NOT_STARTED = (126, 127)
# Up to so many hosts, a line names each.
_FEW = 4


@dataclass(frozen=True)
class TaskBegun:
    """A task begins on every host it is for."""

    role: str
    task: str


@dataclass(frozen=True)
class HostDone:
    """A task has ended on one host."""

    host: str
    role: str
    task: str
    status: str
    seconds: float
    why: str = ""
    diff: str = ""

    @property
    def is_bad(self) -> bool:
        """True if the host takes part no longer."""
        return self.status in ("failed", "unreachable")


Event = TaskBegun | HostDone


def parse(line: str, *, diffs: bool = False) -> Event | None:
    """Return the event in `line`, with what would become of files if `diffs`; None for any other line."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    match fields:
        case {"_event": "v2_playbook_on_task_start", "task": dict(task)}:
            return TaskBegun(*_role_and_name(task))
        case {"_event": str(event), "task": dict(task), "hosts": dict(hosts)} if len(hosts) == 1:
            status = event.removeprefix("v2_runner_on_")
            ((host, result),) = hosts.items()
            if status not in STATUSES or status == event:
                return None
            if status == "ok" and str(result.get("action")).rpartition(".")[2].startswith(_SILENT):
                return None
            status = "changed" if status == "ok" and result.get("changed") else status
            why = _why(result) if status in ("failed", "unreachable") else ""
            diff = _difference(result.get("diff")) if diffs and status == "changed" else ""
            return HostDone(host, *_role_and_name(task), status, _seconds(task), why, diff)
    return None


def _role_and_name(task: Mapping[str, object]) -> tuple[str, str]:
    """Return the column and the words of a task, which Ansible calls `role : name` and places at path:line."""
    role, colon, name = str(task.get("name", "")).rpartition(" : ")
    if name.startswith("Validating arguments against arg spec"):
        return "validate", f"Check the types of what {role} was given"
    phase = PurePath(str(task.get("path", "")).rpartition(":")[0]).stem
    if phase in _VALIDATION:
        return "validate", name
    return (role if colon and phase != "verdict" else "", name)


def _seconds(task: Mapping[str, object]) -> float:
    match task.get("duration"):
        case {"start": str(began), "end": str(ended)}:
            with contextlib.suppress(ValueError):
                taken = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
                return round(taken.total_seconds(), 2)
    return 0.0


def _why(result: Mapping[str, object]) -> str:
    rounds = result.get("results")
    for one in rounds if isinstance(rounds, list) else ():
        if one.get("failed") or one.get("unreachable"):
            return _why(one)
    stderr = result.get("module_stderr")
    given = str(result.get("msg") or stderr or result.get("stderr") or "it did not say why").strip()
    if stderr and result.get("rc") in _NOT_STARTED:
        last = str(stderr).strip().splitlines()[-1]
        return f"{given} ({last}). Name a Python that runs there, 3.8 or newer: provision: {{interpreter: …}}"
    return given


def _difference(diffs: object) -> str:
    """Return what would become of files: a module's own words, or the lines that go and come."""
    texts: list[str] = []
    for diff in diffs if isinstance(diffs, list) else [diffs]:
        if not isinstance(diff, dict) or not ("before" in diff or "prepared" in diff):
            continue
        if diff.get("prepared"):
            texts.append(diff["prepared"])
            continue
        sides = [diff.get("before") or "", diff.get("after") or ""]
        before, after = (
            (side if isinstance(side, str) else json.dumps(side, sort_keys=True)).splitlines() for side in sides
        )
        texts += [f"- {line}\n" for line in before if line not in after]
        texts += [f"+ {line}\n" for line in after if line not in before]
    return "".join(texts)


class Story:
    """Gathers the events of a task; `heard` returns the lines that are due."""

    def __init__(self) -> None:
        self._task: TaskBegun | None = None
        self._began_at = 0.0
        self._done: list[HostDone] = []

    def heard(self, event: Event) -> list[str]:
        """Return the lines to print after `event`: a task that has ended, a difference, a failure."""
        if isinstance(event, TaskBegun):
            lines = self.rest()
            self._task, self._began_at = event, clock.monotonic()
            return lines
        self._done.append(event)
        indented = [f"      {line}" for line in event.diff.splitlines()]
        why = [f"    {event.host}: {line}" for line in event.why.splitlines()] if event.is_bad else []
        return [*([f"    {event.host} would become:"] if indented else []), *indented, *why]

    def rest(self) -> list[str]:
        """Return the line of the last task, with what it did on which hosts; none where it did nothing."""
        # A task of validation that passed is not worth a line.
        done = [one for one in self._done if one.status != "skipped" and (one.is_bad or one.role != "validate")]
        self._done = []
        if not done:
            return []
        if len(done) <= _FEW:
            what = ", ".join(f"{one.host} {one.status}" for one in sorted(done, key=lambda one: one.host))
        else:
            what = ", ".join(f"{count} {word}" for word, count in Counter(one.status for one in done).most_common())
        seconds = max(one.seconds for one in done)
        return [f"  {done[0].role or 'site':<10} {done[0].task} · {what} · {seconds:.1f} s"]

    def now(self, at_s: float) -> str:
        """Return what is running at `at_s` of the monotonic clock; nothing before the first task."""
        if self._task is None:
            return ""
        hosts = f"{len(self._done)} host{'' if len(self._done) == 1 else 's'} done, " if self._done else ""
        return f"{self._task.role or 'site'}: {self._task.task} · {hosts}{at_s - self._began_at:.0f} s"
