"""What a user reads while the playbooks run: one line a task."""

from __future__ import annotations

from collections import Counter

from trainjob.provision.events import Event, HostDone, TaskBegun

_FEW = 4


class Story:
    """Gathers the events of a task; `heard` returns the lines that are due."""

    def __init__(self) -> None:
        self._task: TaskBegun | None = None
        self._done: list[HostDone] = []

    def heard(self, event: Event) -> list[str]:
        """Return the lines to print after `event`: a task that has ended, a difference, a failure."""
        if isinstance(event, TaskBegun):
            lines = self.rest()
            self._task = event
            return lines
        self._done.append(event)
        indented = [f"      {line}" for line in event.diff.splitlines()]
        why = [f"    {event.host}: {line}" for line in event.why.splitlines()] if event.is_bad else []
        return [*([f"    {event.host} would become:"] if indented else []), *indented, *why]

    def rest(self) -> list[str]:
        """Return the line of the last task; none where it did nothing."""
        done, self._done = [one for one in self._done if _is_worth_a_line(one)], []
        return [line(done)] if done else []

    @property
    def now(self) -> str:
        """What is going on, for a terminal that shows it."""
        return "" if self._task is None else f"{self._task.role or 'site'}: {self._task.task} · {len(self._done)} hosts"


def _is_worth_a_line(one: HostDone) -> bool:
    return one.status != "skipped" and (one.is_bad or one.role != "validate")


def line(done: list[HostDone]) -> str:
    """Return one task as a line: role, task, what it did on which hosts, seconds."""
    first, seconds = done[0], max(one.seconds for one in done)
    return f"  {first.role or 'site':<10} {first.task} · {_what(done)} · {seconds:.1f} s"


def _what(done: list[HostDone]) -> str:
    if len(done) <= _FEW:
        return ", ".join(f"{one.host} {one.status}" for one in sorted(done, key=lambda one: one.host))
    return ", ".join(f"{count} {status}" for status, count in Counter(one.status for one in done).most_common())
