"""Stays with a run until its end: a bar on a terminal, plain lines elsewhere. Ctrl-C lets go of it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from trainjob.backends import mirror
from trainjob.backends.base import read_submission
from trainjob.cli import failures
from trainjob.cli.look.report import made, print_or_json, print_report
from trainjob.cli.look.status import print_failure
from trainjob.contract import exits, states
from trainjob.contract.paths import RunPaths
from trainjob.observe import arrays, logs
from trainjob.observe.status import Status, between_looks_s, poll
from trainjob.records import job as jobs
from trainjob.records.files import JsonLines
from trainjob.watch import show

_BETWEEN_LINES_S = 30.0
_LEAST_UPDATES = 5


def started(paths: RunPaths, said: str, following_steps: str = "", *, follow: bool, as_json: bool) -> None:
    """Say that a run has started, and what the user may do next; with `follow` stay, and end as the run does."""
    if not as_json:
        click.echo(said)
    if follow:
        raise click.exceptions.Exit(to_the_end(paths, as_json=as_json))
    if as_json:
        show.as_json({"id": paths.id, "folder": str(paths.folder)})
    elif following_steps:
        click.echo(f"next: {following_steps}")


def to_the_end(paths: RunPaths, *, as_json: bool) -> int:
    """Return the exit code of the command line once the run has ended: 0 when it is COMPLETED, else 1.

    A reader that leaves (`submit --follow | head`) ends the output, not the waiting: the exit code is the run's.
    """
    said: set[str] = set()

    def look(now: Status) -> bool:
        """Show a status, and each trouble with checkpoints once; return whether the run has ended."""
        if not now.elements:
            mirror.refresh_output(paths)
        lost = now.checkpoint_lines[: len(now.passed_over)]
        for key, line in [(now.trouble, now.at_risk), *zip(lost, lost, strict=True)]:
            if key and key not in said:
                said.add(key)
                click.echo(line, err=True)
        draw(now)
        return _has_ended(now)

    def pause() -> None:
        time.sleep(between_looks_s(paths))

    try:
        with _drawing(paths, quiet=as_json) as draw:
            ended = poll(paths, look, pause)
        if as_json:
            show.as_json({**ended.as_json(), **({} if ended.elements else {"report": made(paths).as_json()})})
        elif ended.elements:
            click.echo()
            print_or_json(paths, as_json=False)
        else:
            _say_how_it_ended(paths, ended)
    except BrokenPipeError:
        failures.discard_output()
        ended = poll(paths, _has_ended, pause)
    except KeyboardInterrupt:
        click.echo(f"\nrun {paths.id} continues without you: trainjob logs {paths.id} --follow", err=True)
        return exits.INTERRUPTED
    return exits.DONE if ended.state == states.COMPLETED else exits.USER_OR_CLUSTER_CAN_FIX


def _has_ended(now: Status) -> bool:
    return now.state not in states.ACTIVE


def _say_how_it_ended(paths: RunPaths, ended: Status) -> None:
    print_report(made(paths))
    if ended.checkpoints_not_written:
        click.echo(f"\n{ended.checkpoint_lines[-1]}", err=True)
    print_failure(ended)
    steps = f"trainjob logs {paths.id}"
    if ended.state != states.COMPLETED:
        is_repeatable = ended.cause is None or ended.cause.resume
        steps += (
            f" · trainjob resume {paths.id}"
            if is_repeatable
            else " · then submit a new run: resuming this one would end in the same way"
        )
    elif _has_weights(paths):
        steps = f"trainjob export {paths.id} -o model.safetensors · {steps}"
    click.echo(f"\nnext: {steps}")


def _has_weights(paths: RunPaths) -> bool:
    submission = read_submission(paths)
    if submission is not None and submission.remote is not None:
        # Its checkpoints are over there until `export` fetches one.
        return jobs.read(paths.job).train is not None
    return paths.checkpoints.is_dir() and any(paths.checkpoints.iterdir())


@contextmanager
def _drawing(paths: RunPaths, *, quiet: bool) -> Iterator[Callable[[Status], None]]:
    """Yield a function that shows a status as this run and this output need it."""
    if quiet:
        yield lambda _now: None
    elif arrays.elements(paths):
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

    def look(self, now: Status) -> None:
        """Print the counts if they have changed."""
        if now.note != self._last:
            click.echo(now.note)
            self._last = now.note


class _Output:
    """The output of a user's command, as its ranks print it."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._logs = logs.Together()

    def look(self, now: Status) -> None:
        """Print new lines; all that is left once the run has ended."""
        show.write_lines(self._logs.new(logs.tails(self._paths, None)))
        if _has_ended(now):
            show.write_lines(self._logs.finish())


class _Lines:
    """Plain lines: each evaluation once, and in between how far training is, at most every half minute."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._lines = JsonLines(paths.metrics)
        self._loss = ""
        self._said_at = time.monotonic()
        self._left = TimeLeft()

    def look(self, now: Status) -> None:
        """Print what came since the last look."""
        left = self._left.after(now.update, now.total_updates, time.monotonic())
        for line in self._lines.new():
            self._loss = _loss(line) or self._loss
            # A line that is damaged is left out here, and counted by `report`.
            with contextlib.suppress(LookupError, TypeError, ValueError):
                if line["kind"] == "evaluation":
                    self._say(_evaluation(line), left)
        if now.update is not None and time.monotonic() - self._said_at > _BETWEEN_LINES_S and not _has_ended(now):
            self._say(f"epoch {now.epoch} · update {now.update} of {now.total_updates}{self._loss}", left)

    def _say(self, text: str, left: str) -> None:
        click.echo(text + left)
        self._said_at = time.monotonic()


def _evaluation(line: Mapping[str, Any]) -> str:
    accuracy = line.get("accuracy")
    shown = "" if accuracy is None else f" · accuracy {100 * accuracy:.2f} %"
    return f"epoch {line['epoch']} · update {line['update']} · held-out loss {line['loss']:.4f}{shown}"


def _loss(line: Mapping[str, Any]) -> str:
    """Return the loss of an interval of training; nothing for any other line."""
    loss = line.get("loss")
    return f" · loss {loss:.4f}" if line.get("kind") == "train" and isinstance(loss, (int, float)) else ""


class TimeLeft:
    """How long a run still takes, by the updates that were seen to pass."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def after(self, update: int | None, total: int | None, at_s: float) -> str:
        """Return " · 2 min 5 s left" once enough was seen; nothing before, and at the end."""
        if update is None or total is None:
            return ""
        if self._first is None or update < self._first[0]:
            self._first = (update, at_s)
        done, took_s = update - self._first[0], at_s - self._first[1]
        if done < _LEAST_UPDATES or update >= total:
            return ""
        return f" · {show.seconds((total - update) * took_s / done)} left"


@contextmanager
def _bar(paths: RunPaths) -> Iterator[Callable[[Status], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    figures = TextColumn("updates{task.fields[figures]}", markup=False)
    left = TimeLeft()
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
        lines, losses = JsonLines(paths.metrics), [""]

        def draw(now: Status) -> None:
            epoch = "" if now.epoch is None else f" epoch {now.epoch}"
            losses[0] = next(filter(None, map(_loss, reversed(list(lines.new())))), losses[0])
            shown = losses[0] + left.after(now.update, now.total_updates, time.monotonic())
            progress.update(
                task,
                description=show.visible(f"{now.state}{epoch}"),
                completed=now.update or 0,
                total=now.total_updates,
                figures=shown,
            )

        yield draw
