"""Stays with a run until its end: a bar on a terminal, plain lines elsewhere. Ctrl-C lets go of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from trainjob.backends import mirror
from trainjob.cli import failures
from trainjob.cli.look.report import made, print_or_json, print_report
from trainjob.cli.look.status import print_failure
from trainjob.contract import clock, exits, states
from trainjob.contract.paths import RunPaths
from trainjob.observe import logs
from trainjob.observe.status import Snapshot, poll
from trainjob.observe.told_once import ToldOnce
from trainjob.records import checkpoints, metrics
from trainjob.records import job as jobs
from trainjob.records.metrics import MetricsLine
from trainjob.watch import show

_BETWEEN_LINES_S = 30.0


def to_the_end(paths: RunPaths, *, as_json: bool) -> int:
    """Return the exit code of the command line once the run has ended: 0 when it is COMPLETED, else 1.

    A reader that leaves (`submit --follow | head`) ends the output, not the waiting: the exit code is the run's.
    """
    printed: set[str] = set()
    trouble, why = "", ""  # the run's last trouble without its numbers, and why it waits

    def look(now: Snapshot) -> bool:
        """Show a status, each trouble with checkpoints once, and why the run waits; return whether it has ended."""
        nonlocal trouble, why
        if not now.elements:
            mirror.refresh_output(paths, now.submission)
        # A disk that stays full refuses one checkpoint after the other.
        before, trouble = trouble, re.sub(r"[0-9]+", "", now.trouble or "")
        if trouble and trouble != before:
            typer.echo(now.at_risk, err=True)
        for line in now.passed_over:
            if line not in printed:
                printed.add(line)
                typer.echo(line, err=True)
        if now.note and now.state in (states.PENDING, states.REQUEUED) and not (now.is_stale or now.elements):
            before, why = why, now.note.partition("; may start")[0]
            if why != before:
                typer.echo(f"{now.state}: {now.note}", err=True)
        draw(now)
        return _has_ended(now)

    try:
        with _drawing(paths, quiet=as_json) as draw:
            ended = poll(paths, look)
        if as_json:
            show.as_json({**ended.as_json(), **({} if ended.elements else {"report": made(ended).as_json()})})
        elif ended.elements:
            typer.echo()
            print_or_json(ended, as_json=False)
        else:
            _say_how_it_ended(paths, ended)
    except (BrokenPipeError, show.OutputLostError) as lost:
        failures.discard_output()
        if isinstance(lost, show.OutputLostError):
            typer.echo(f"run {paths.id} continues: {lost}", err=True)
        ended = poll(paths, _has_ended)
    except KeyboardInterrupt:
        typer.echo(f"\nrun {paths.id} continues without you: trainjob logs {paths.id} --follow", err=True)
        return exits.INTERRUPTED
    return exits.DONE if ended.state == states.COMPLETED else exits.USER_OR_CLUSTER_CAN_FIX


def _has_ended(now: Snapshot) -> bool:
    return now.state not in states.ACTIVE


def _say_how_it_ended(paths: RunPaths, ended: Snapshot) -> None:
    print_report(made(ended))
    if ended.checkpoints_not_written:
        typer.echo(f"\n{ended.checkpoint_lines[-1]}", err=True)
    print_failure(ended, is_output_shown=jobs.read(ended.paths.job).train is None)
    steps = f"trainjob logs {paths.id}"
    if ended.state != states.COMPLETED:
        is_repeatable = ended.cause is None or ended.cause.resume
        steps += (
            f" · trainjob resume {paths.id}"
            if is_repeatable
            else " · then submit a new run: resuming this one would end in the same way"
        )
    else:
        is_elsewhere = ended.submission is not None and ended.submission.remote is not None
        # Checkpoints stay over there until `export` fetches one.
        weights = jobs.read(ended.paths.job).train if is_elsewhere else checkpoints.newest(ended.paths)
        if weights is not None:
            steps = f"trainjob export {paths.id} -o model.safetensors · {steps}"
    typer.echo(f"\nnext: {steps}")


@contextmanager
def _drawing(paths: RunPaths, *, quiet: bool) -> Iterator[Callable[[Snapshot], None]]:
    """Yield a function that shows a status as this run and this output need it."""
    if quiet:
        yield lambda _now: None
    elif paths.elements():
        yield _Counts().look
    elif jobs.read(paths.job).train is None:
        yield _Output(paths).look
    elif sys.stdout.isatty():
        with _bar(paths) as draw:
            yield draw
    else:
        yield _Lines(paths).look


class _Counts:
    """The number of elements of an array in each state, one line per change."""

    def __init__(self) -> None:
        self._last: str | None = None

    def look(self, now: Snapshot) -> None:
        """Print the counts if they have changed."""
        if now.note != self._last:
            typer.echo(now.note)
            self._last = now.note


class _Output:
    """The output of a user's command, as its ranks print it, and between it what is read of its progress."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._logs = logs.Together()
        self._once = ToldOnce(paths)
        self._progress = _Lines(paths)

    def look(self, now: Snapshot) -> None:
        """Print new lines; all that is left once the run has ended."""
        show.write_lines(self._once.new(self._logs.new(logs.tails(self._paths, None))))
        self._progress.look(now)
        if _has_ended(now):
            show.write_lines(self._once.new(self._logs.finish()))
            show.write_lines(self._once.finish())


class _Lines:
    """Plain lines: each evaluation once, and in between how far training is, at most every half minute."""

    def __init__(self, paths: RunPaths) -> None:
        self._lines = metrics.Reader(paths)
        self._loss = ""
        self._printed_at = clock.monotonic()

    def look(self, now: Snapshot) -> None:
        """Print what came since the last look."""
        left = show.time_left(now)
        for line in self._lines.new():
            self._loss = _loss(line) or self._loss
            if line.kind == "evaluation" and line.loss is not None:
                accuracy = "" if line.accuracy is None else f" · accuracy {100 * line.accuracy:.2f} %"
                held_out = f"held-out loss {line.loss:.4f}{accuracy}"
                self._say(f"{_epoch(line.epoch)}update {line.update} · {held_out}", left)
        if clock.monotonic() - self._printed_at > _BETWEEN_LINES_S and not _has_ended(now):
            if now.update is not None:
                of = "" if now.total_updates is None else f" of {now.total_updates}"
                self._say(f"{_epoch(now.epoch)}update {now.update}{of}{self._loss}", left)
            elif now.epoch is not None:
                self._say(f"epoch {now.epoch}", left)

    def _say(self, text: str, left: str) -> None:
        typer.echo(f"{text} · {left}" if left else text)
        self._printed_at = clock.monotonic()


def _epoch(epoch: int | None) -> str:
    return "" if epoch is None else f"epoch {epoch} · "


def _loss(line: MetricsLine) -> str:
    """Return the loss of an interval of training; nothing for any other line."""
    return f" · loss {line.loss:.4f}" if line.kind == "train" and line.loss is not None else ""


@contextmanager
def _bar(paths: RunPaths) -> Iterator[Callable[[Snapshot], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    figures = TextColumn("updates{task.fields[figures]}", markup=False)
    with Progress(
        *(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            figures,
            TimeElapsedColumn(),
        ),
        console=Console(file=show.raw(sys.stdout)),
    ) as progress:
        task = progress.add_task(states.PENDING, total=None, figures="")
        lines, losses = metrics.Reader(paths), [""]

        def draw(now: Snapshot) -> None:
            epoch = "" if now.epoch is None else f" epoch {now.epoch}"
            losses[0] = next(filter(None, map(_loss, reversed(list(lines.new())))), losses[0])
            left = show.time_left(now)
            progress.update(
                task,
                description=show.visible(f"{now.state}{epoch}"),
                completed=now.update or 0,
                total=now.total_updates,
                figures=losses[0] + (f" · {left}" if left else ""),
            )

        yield draw
