"""The attack suite's frame: trials of one kind are counted, and one that fails does not stop the others.

    def test_damaged_records(attack: Attack) -> None:
        with attack("damaged records") as trials:
            for damage in DAMAGES:
                with trials.trial(damage):
                    assert …

The suite lies in tests/services/attack; what other folders try in the same way is counted with it. The summary of a run
prints the numbers of every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

_PROPERTY = "attack"
_MOST_SHOWN = 20


class Trials:
    """The trials of one kind in one test."""

    def __init__(self) -> None:
        self.tried = 0
        self.failures: list[str] = []

    @contextmanager
    def trial(self, name: object) -> Iterator[None]:
        """Count one trial; an assertion or error inside is noted under `name`, and the test continues."""
        self.tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error is a trial that failed
            lines = f"{type(error).__name__}: {error}".splitlines()
            self.failures.append(f"{name!s}\n      " + "\n      ".join(lines[:6]))


Attack = Callable[[str], AbstractContextManager[Trials]]


def counted(request: pytest.FixtureRequest) -> Attack:
    """Return what opens the trials of a kind; their numbers travel with the test's report, from any worker."""

    @contextmanager
    def attack(kind: str) -> Iterator[Trials]:
        trials = Trials()
        yield trials
        request.node.user_properties.append((_PROPERTY, [kind, trials.tried, len(trials.failures)]))
        if not trials.tried:
            pytest.fail(f"{kind}: nothing was tried", pytrace=False)
        if trials.failures:
            shown = "\n".join(f"  {failure}" for failure in trials.failures[:_MOST_SHOWN])
            more = len(trials.failures) - _MOST_SHOWN
            text = f"{kind}: {len(trials.failures)} of {trials.tried} trials failed\n{shown}"
            pytest.fail(text + (f"\n  … and {more} more" if more > 0 else ""), pytrace=False)

    return attack


def count_words(attack: Attack, where: str, sent: list[str], received: list[list[str]]) -> None:
    """Count each hostile word that was sent `where`, and compare it with what each rank received in its place."""
    with attack(f"hostile words, {where}") as trials:
        for number, word in enumerate(sent):
            with trials.trial(repr(word)[:80]):
                assert [words[number] for words in received] == [word] * len(received)


def table(reports: list[Any]) -> list[str]:
    """Return the lines that show what was tried, held and failed, kind by kind; none where nothing was attacked."""
    counts: dict[str, list[int]] = {}
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == _PROPERTY and report.when == "call":
                kind, tried, failed = value
                row = counts.setdefault(kind, [0, 0, 0])
                for at, number in enumerate((tried, tried - failed, failed)):
                    row[at] += number
    if not counts:
        return []
    rows = [(kind, *counts[kind]) for kind in sorted(counts)]
    total = ("all", *(sum(row[at] for row in counts.values()) for at in range(3)))
    width = max(len(kind) for kind in (*counts, "kind of attack"))
    head = f"{'kind of attack':<{width}}  {'tries':>6}  {'held':>6}  {'failed':>6}"
    return [
        head,
        *(f"{kind:<{width}}  {tried:>6}  {held:>6}  {failed:>6}" for kind, tried, held, failed in (*rows, total)),
    ]
