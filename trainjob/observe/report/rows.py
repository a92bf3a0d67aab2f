"""A report in words: rows of a name and a value, for a terminal and a page."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.observe.report.goodput import LEAST_SHOWN_S, Goodput
from trainjob.observe.report.report import Report
from trainjob.planning.words import seconds, size
from trainjob.records import events
from trainjob.records.profile import RankProfile

Row = tuple[str, str]
_MOST_ENDINGS = 5


def figures(report: Report) -> Iterator[Row]:
    """Yield what a run has reached, and what it took."""
    if report.updates is not None:
        epochs = f"{report.updates}" if report.epochs is None else f"{report.epochs} ({report.updates} updates)"
        yield "updates" if report.epochs is None else "epochs", epochs
    if report.loss is not None:
        yield "training loss", f"{report.loss:.4f}"
    if report.held_out_loss is not None:
        yield "held-out loss", f"{report.held_out_loss:.4f}"
    if report.held_out_accuracy is not None:
        of = "" if report.held_out_samples is None else f" of {report.held_out_samples} samples"
        yield "held-out accuracy", f"{100 * report.held_out_accuracy:.2f} %{of}"
    yield from (("as printed", line) for line in report.printed)
    if report.samples_per_s is not None:
        yield "samples/s", f"{report.samples_per_s:,.0f}"
    if report.peak_memory_bytes is not None:
        yield "memory", f"{size(report.peak_memory_bytes)} at most, of rank 0"
    if report.goodput is not None:
        yield from _goodput(report.goodput)
    if report.startups:
        newest = report.startups[-1]
        of = f" of attempt {newest.attempt}" if newest.attempt > 1 else ""
        parts = (f"{name} {seconds(taken_s)}" for name, taken_s in newest.parts.items() if taken_s >= LEAST_SHOWN_S)
        yield f"start-up{of}", f"{seconds(newest.whole_s)}: {' · '.join(parts)}"
    for one in report.profiles:
        yield from _profile(one)
    if report.damaged_lines:
        yield "metrics", f"{report.damaged_lines} damaged lines of metrics.jsonl are left out"
    if report.packages_differ is not None:
        yield "hosts", report.packages_differ
    for phase, taken_s in (report.seconds or {}).items():
        yield f"seconds in {phase}", f"{taken_s:.2f}"
    if report.slowest_rank is not None:
        yield "slowest rank", str(report.slowest_rank)


def endings(report: Report) -> Iterator[Row]:
    """Yield why the newest attempts ended as they did, where their state does not explain that."""
    explained = [one for one in events.attempts([*report.events]) if one.why]
    for one in explained[-_MOST_ENDINGS:]:
        yield f"attempt {one.number}", f"{one.state}: {one.why}"


def _goodput(goodput: Goodput) -> Iterator[Row]:
    allocated = seconds(goodput.allocated_s)
    if goodput.share is None:
        yield "allocated", allocated
    else:
        yield "goodput", f"{100 * goodput.share:.1f} % of {allocated} allocated"
        yield "allocated time", " · ".join(f"{name} {seconds(taken_s)}" for name, taken_s in goodput.parts)
    if goodput.waits:
        yield "waited", " · ".join(f"{name} {seconds(taken_s)}" for name, taken_s in goodput.waits)


def _profile(one: RankProfile) -> Iterator[Row]:
    yield f"profile of rank {one.rank}", f"updates {one.first} to {one.last} on {one.device}, {one.seconds:.3f} s"
    if one.communication_s is not None and one.exposed_s is not None:
        hidden = f", {100 * one.exposed_s / one.communication_s:.0f} % of it not hidden" if one.communication_s else ""
        share = f"{100 * one.exposed_s / one.seconds:.1f} % of the time"
        yield "  communication", f"{one.communication_s:.3f} s{hidden}: {share}"
    for operator in one.operators[:5]:
        yield "  operator", f"{operator.name}: {operator.seconds:.3f} s in {operator.calls:,} calls"
