"""Stays with a run until its end: a bar on a terminal, plain lines elsewhere. Ctrl-C lets go of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from trainjob.backends import mirror
from trainjob.cli import failures
from trainjob.cli.look.report import made, print_or_json, print_report
from trainjob.cli.look.status import print_failure
from trainjob.contract import exits, states
from trainjob.contract.paths import RunPaths
from trainjob.observe import arrays, logs
from trainjob.observe.status import Snapshot, between_looks_s, poll
from trainjob.records import checkpoints, metrics
from trainjob.records import job as jobs
from trainjob.records.metrics import Line
from trainjob.watch import show, terminal

_BETWEEN_LINES_S = 30.0


def to_the_end(paths: RunPaths, *, as_json: bool) -> int:
    """Return the exit code of the command line once the run has ended: 0 when it is COMPLETED, else 1.

    A reader that leaves (`submit --follow | head`) ends the output, not the waiting: the exit code is the run's.
    """
    try:
        ended = _followed(paths, as_json=as_json)
    except BrokenPipeError:
        failures.write_to_nobody()
        ended = poll(paths, _has_ended, lambda: time.sleep(between_looks_s(paths)))
    except KeyboardInterrupt:
        typer.echo(f"\nrun {paths.id} continues without you: trainjob logs {paths.id} --follow", err=True)
        return exits.INTERRUPTED
    return exits.DONE if ended.state == states.COMPLETED else exits.USER_OR_CLUSTER_CAN_FIX


def _followed(paths: RunPaths, *, as_json: bool) -> Snapshot:
    with _shown(paths, quiet=as_json) as look:
        ended = poll(paths, _with_output(paths, look), lambda: time.sleep(between_looks_s(paths)))
    if as_json:
        show.as_json({**ended.as_json(), **({} if ended.elements else {"report": made(paths).as_json()})})
    elif ended.elements:
        typer.echo()
        print_or_json(paths, as_json=False)
    else:
        _say_how_it_ended(paths, ended)
    return ended


def _with_output(paths: RunPaths, look: Callable[[Snapshot], bool]) -> Callable[[Snapshot], bool]:
    troubles: set[str] = set()

    def looked(now: Snapshot) -> bool:
        if not now.elements:
            mirror.refresh_output(paths)
        if now.trouble and now.trouble not in troubles:
            troubles.add(now.trouble)
            typer.echo(now.at_risk, err=True)
        for line in now.checkpoint_lines[: len(now.passed_over)]:
            if line not in troubles:
                troubles.add(line)
                typer.echo(line, err=True)
        return look(now)

    return looked


def _say_how_it_ended(paths: RunPaths, ended: Snapshot) -> None:
    print_report(made(paths))
    if ended.checkpoints_not_written:
        typer.echo(f"\n{ended.checkpoint_lines[-1]}", err=True)
    print_failure(ended)
    typer.echo(f"\nnext: {_next(paths, ended)}")


def _next(paths: RunPaths, ended: Snapshot) -> str:
    if ended.state == states.COMPLETED and _has_weights(ended):
        return f"trainjob export {paths.id} -o model.safetensors · trainjob logs {paths.id}"
    if ended.state == states.COMPLETED:
        return f"trainjob logs {paths.id}"
    if ended.cause is not None and not ended.cause.resume:
        return f"trainjob logs {paths.id} · then submit a new run: resuming this one would end in the same way"
    return f"trainjob logs {paths.id} · trainjob resume {paths.id}"


def _has_weights(ended: Snapshot) -> bool:
    if ended.submission is not None and ended.submission.remote is not None:
        # Its checkpoints stay over there until `export` fetches one.
        return jobs.read(ended.paths.job).train is not None
    return checkpoints.newest(ended.paths) is not None


@contextmanager
def _shown(paths: RunPaths, *, quiet: bool) -> Iterator[Callable[[Snapshot], bool]]:
    """Yield what to call with each status: it shows it, and says whether the run has ended."""
    if quiet:
        yield _has_ended
    elif arrays.elements(paths):
        yield _Counts().look
    elif jobs.read(paths.job).train is None:
        yield _Output(paths).look
    elif sys.stdout.isatty():
        with _bar(paths) as draw:
            yield draw
    else:
        printed = _Lines(paths)
        yield printed.look


def _has_ended(now: Snapshot) -> bool:
    return now.state not in states.ACTIVE


class _Counts:
    """How many elements of an array are in which state, one line per change."""

    def __init__(self) -> None:
        self._last: str | None = None

    def look(self, now: Snapshot) -> bool:
        """Print what has changed; return whether the run has ended."""
        if now.note != self._last:
            typer.echo(now.note)
            self._last = now.note
        return _has_ended(now)


class _Output:
    """What the ranks of a user's command print, as it comes."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._logs = logs.Together()

    def look(self, now: Snapshot) -> bool:
        """Print what is new; return whether the run has ended."""
        terminal.write_lines(self._logs.new(logs.tails(self._paths, None)))
        if _has_ended(now):
            terminal.write_lines(self._logs.finish())
        return _has_ended(now)


class _Lines:
    """Plain lines: each evaluation once, and in between how far training is, at most every half minute."""

    def __init__(self, paths: RunPaths) -> None:
        self._lines = metrics.Reader(paths)
        self._loss = ""
        self._said_at = time.monotonic()

    def look(self, now: Snapshot) -> bool:
        """Print what came since the last look; return whether the run has ended."""
        left = show.time_left(now)
        for line in self._lines.new():
            self._loss = _loss(line) or self._loss
            if line.kind == "evaluation" and line.loss is not None:
                accuracy = "" if line.accuracy is None else f" · accuracy {100 * line.accuracy:.2f} %"
                held_out = f"held-out loss {line.loss:.4f}{accuracy}"
                self._say(f"epoch {line.epoch} · update {line.update} · {held_out}", left)
        if now.update is not None and time.monotonic() - self._said_at > _BETWEEN_LINES_S and not _has_ended(now):
            self._say(f"epoch {now.epoch} · update {now.update} of {now.total_updates}{self._loss}", left)
        return _has_ended(now)

    def _say(self, text: str, left: str) -> None:
        typer.echo(f"{text} · {left}" if left else text)
        self._said_at = time.monotonic()


def _loss(line: Line) -> str:
    """Return the loss of an interval of training; nothing for any other line."""
    return f" · loss {line.loss:.4f}" if line.kind == "train" and line.loss is not None else ""


@contextmanager
def _bar(paths: RunPaths) -> Iterator[Callable[[Snapshot], bool]]:
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
        console=Console(file=terminal.raw(sys.stdout)),
    ) as progress:
        task = progress.add_task(states.PENDING, total=None, figures="")
        lines, losses = metrics.Reader(paths), [""]

        def draw(now: Snapshot) -> bool:
            epoch = "" if now.epoch is None else f" epoch {now.epoch}"
            losses[0] = next(filter(None, map(_loss, reversed(list(lines.new())))), losses[0])
            left = show.time_left(now)
            progress.update(
                task,
                description=terminal.visible(f"{now.state}{epoch}"),
                completed=now.update or 0,
                total=now.total_updates,
                figures=losses[0] + (f" · {left}" if left else ""),
            )
            return _has_ended(now)

        yield draw
