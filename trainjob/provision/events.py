"""What the playbooks do as they run, from Ansible's JSON callback (ansible.posix.jsonl), and what users read of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any

CALLBACK = "ansible.posix.jsonl"
STATUSES = ("ok", "changed", "skipped", "failed", "unreachable")
# Tasks of these files check what was given: they are a column of their own.
_VALIDATION = ("validate", "forget")
# What is included reports for itself, and remembering a fact changes nothing.
_SILENT = ("include_", "set_fact")
_RUNNER = "v2_runner_on_"
# What a shell exits with when it may not run a program, or does not find it: here the interpreter of the modules.
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
        """Whether the host takes part no longer."""
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
        case {"_event": str(event), "task": dict(task), "hosts": dict(hosts)} if event.startswith(_RUNNER):
            return _host_done(event.removeprefix(_RUNNER), task, hosts, diffs)
    return None


def _host_done(status: str, task: dict[str, Any], hosts: dict[str, Any], diffs: bool) -> HostDone | None:
    if status not in STATUSES or len(hosts) != 1:
        return None
    ((host, result),) = hosts.items()
    if status == "ok" and str(result.get("action")).rpartition(".")[2].startswith(_SILENT):
        return None
    status = "changed" if status == "ok" and result.get("changed") else status
    role, name = _role_and_name(task)
    why = _why(result) if status in ("failed", "unreachable") else ""
    diff = _diff_text(result.get("diff")) if diffs and status == "changed" else ""
    return HostDone(host, role, name, status, _seconds(task), why, diff)


def _role_and_name(task: dict[str, Any]) -> tuple[str, str]:
    """Return the column and the words of a task, which Ansible calls `role : name` and places at path:line."""
    role, colon, name = str(task.get("name", "")).rpartition(" : ")
    if name.startswith("Validating arguments against arg spec"):
        return "validate", f"Check the types of what {role} was given"
    phase = PurePath(str(task.get("path", "")).rpartition(":")[0]).stem
    if phase in _VALIDATION:
        return "validate", name
    return (role if colon and phase != "verdict" else "", name)


def _seconds(task: dict[str, Any]) -> float:
    duration = task.get("duration", {})
    try:
        began, ended = (datetime.fromisoformat(duration[key]) for key in ("start", "end"))
    except (KeyError, TypeError, ValueError):
        return 0.0
    return round((ended - began).total_seconds(), 2)


def _why(result: dict[str, Any]) -> str:
    for one in result.get("results", ()):
        if one.get("failed") or one.get("unreachable"):
            return _why(one)
    given = result.get("msg") or result.get("module_stderr") or result.get("stderr") or "it did not say why"
    if result.get("module_stderr") and result.get("rc") in _NOT_STARTED:
        last = str(result["module_stderr"]).strip().splitlines()[-1]
        cure = "Name a Python that runs there, 3.8 or newer: provision: {interpreter: …}"
        return f"{str(given).strip()} ({last}). {cure}"
    return str(given).strip()


def _diff_text(diffs: object) -> str:
    """Return what would become of files: a module's own words, or the lines that go and come."""
    texts = []
    for diff in diffs if isinstance(diffs, list) else [diffs]:
        if isinstance(diff, dict) and ("before" in diff or "prepared" in diff):
            texts.append(diff.get("prepared") or _sides(diff))
    return "".join(texts)


def _sides(diff: dict[str, Any]) -> str:
    before, after = (_text(diff.get(side)).splitlines() for side in ("before", "after"))
    gone = [f"- {line}\n" for line in before if line not in after]
    return "".join([*gone, *(f"+ {line}\n" for line in after if line not in before)])


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, sort_keys=True)


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
            self._task, self._began_at = event, time.monotonic()
            return lines
        self._done.append(event)
        indented = [f"      {line}" for line in event.diff.splitlines()]
        why = [f"    {event.host}: {line}" for line in event.why.splitlines()] if event.is_bad else []
        return [*([f"    {event.host} would become:"] if indented else []), *indented, *why]

    def rest(self) -> list[str]:
        """Return the line of the last task; none where it did nothing."""
        # A task of validation that passed is not worth a line.
        shown = [one for one in self._done if one.status != "skipped" and (one.is_bad or one.role != "validate")]
        done, self._done = shown, []
        return [line(done)] if done else []

    def now(self, at_s: float) -> str:
        """Return what is running at `at_s` of the monotonic clock; nothing before the first task."""
        if self._task is None:
            return ""
        hosts = f"{len(self._done)} host{'' if len(self._done) == 1 else 's'} done, " if self._done else ""
        return f"{self._task.role or 'site'}: {self._task.task} · {hosts}{at_s - self._began_at:.0f} s"


def line(done: list[HostDone]) -> str:
    """Return one task as a line: role, task, what it did on which hosts, seconds."""
    first, seconds = done[0], max(one.seconds for one in done)
    return f"  {first.role or 'site':<10} {first.task} · {_what(done)} · {seconds:.1f} s"


def _what(done: list[HostDone]) -> str:
    if len(done) <= _FEW:
        return ", ".join(f"{one.host} {one.status}" for one in sorted(done, key=lambda one: one.host))
    return ", ".join(f"{count} {status}" for status, count in Counter(one.status for one in done).most_common())
