"""Stays with a run until its end: a bar on a terminal, plain lines elsewhere. Ctrl-C lets go of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from trainjob.cli import show
from trainjob.cli.report import made, print_or_json, print_report
from trainjob.cli.status import print_failure
from trainjob.contract import exits, states
from trainjob.contract import job as jobs
from trainjob.contract.files import read_json_lines
from trainjob.contract.paths import RunPaths
from trainjob.runs import arrays, logs
from trainjob.runs.pace import between_looks_s
from trainjob.runs.status import Status, poll
from trainjob.submit import mirror
from trainjob.submit.base import read_submission


def to_the_end(paths: RunPaths, *, as_json: bool) -> int:
    """Return the exit code of the command line once the run has ended: 0 when it is COMPLETED, else 1."""
    try:
        with _shown(paths, quiet=as_json) as look:
            ended = poll(paths, _with_output(paths, look), lambda: time.sleep(between_looks_s(paths)))
    except KeyboardInterrupt:
        typer.echo(f"\nrun {paths.id} goes on without you: trainjob logs {paths.id} --follow", err=True)
        return exits.INTERRUPTED
    if as_json:
        show.as_json({**ended.as_json(), **({} if ended.tasks else {"report": made(paths).as_json()})})
    elif ended.tasks:
        typer.echo()
        print_or_json(paths, as_json=False)
    else:
        _say_how_it_ended(paths, ended)
    return exits.DONE if ended.state == states.COMPLETED else exits.USER_OR_CLUSTER_CAN_FIX


def _with_output(paths: RunPaths, look: Callable[[Status], bool]) -> Callable[[Status], bool]:
    def looked(now: Status) -> bool:
        if not now.tasks:
            mirror.refresh_output(paths)
        return look(now)

    return looked


def _say_how_it_ended(paths: RunPaths, ended: Status) -> None:
    print_report(made(paths))
    print_failure(ended)
    typer.echo(f"\nnext: {_next(paths, ended)}")


def _next(paths: RunPaths, ended: Status) -> str:
    if ended.state == states.COMPLETED and _has_weights(paths):
        return f"trainjob export {paths.id} -o model.safetensors · trainjob logs {paths.id}"
    if ended.state == states.COMPLETED:
        return f"trainjob logs {paths.id}"
    return f"trainjob logs {paths.id} · trainjob resume {paths.id}"


def _has_weights(paths: RunPaths) -> bool:
    submission = read_submission(paths)
    if submission is not None and submission.remote is not None:
        # Its checkpoints lie over there until `export` fetches one.
        return jobs.read(paths.job).train is not None
    return paths.checkpoints.is_dir() and any(paths.checkpoints.iterdir())


@contextmanager
def _shown(paths: RunPaths, *, quiet: bool) -> Iterator[Callable[[Status], bool]]:
    """Yield what to call with each status: it shows it, and says whether the run has ended."""
    if quiet:
        yield _has_ended
    elif arrays.tasks(paths):
        yield _Counts().look
    elif jobs.read(paths.job).train is None:
        yield _Output(paths).look
    elif sys.stdout.isatty():
        with _bar() as draw:
            yield draw
    else:
        printed = _Lines(paths)
        yield printed.look


def _has_ended(now: Status) -> bool:
    return now.state not in states.ACTIVE


class _Counts:
    """How many tasks of an array are in which state, one line a change."""

    def __init__(self) -> None:
        self._last: str | None = None

    def look(self, now: Status) -> bool:
        """Print what has changed; return whether the run has ended."""
        if now.note != self._last:
            typer.echo(now.note)
            self._last = now.note
        return _has_ended(now)


class _Output:
    """What the ranks of a user's command print, as it comes."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._tails: dict[Path, logs.Tail] = {}

    def look(self, now: Status) -> bool:
        """Print what is new; return whether the run has ended."""
        for tail in logs.tails(self._paths, None):
            followed = self._tails.setdefault(tail.path, tail)
            lines = [*followed.new_lines(), *(followed.finish() if _has_ended(now) else ())]
            sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        return _has_ended(now)


class _Lines:
    """One plain line an evaluation, each once."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._shown = 0

    def look(self, now: Status) -> bool:
        """Print the evaluations that came since the last look; return whether the run has ended."""
        found = [line for line in read_json_lines(self._paths.metrics) if line.get("kind") == "evaluation"]
        for line in found[self._shown :]:
            accuracy = line.get("accuracy")
            said = "" if accuracy is None else f" · accuracy {100 * accuracy:.2f} %"
            typer.echo(f"epoch {line['epoch']} · update {line['update']} · held-out loss {line['loss']:.4f}{said}")
        self._shown = len(found)
        return _has_ended(now)


@contextmanager
def _bar() -> Iterator[Callable[[Status], bool]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("updates"), TimeElapsedColumn()
    ) as progress:
        task = progress.add_task(states.PENDING, total=None)

        def draw(now: Status) -> bool:
            epoch = "" if now.epoch is None else f" epoch {now.epoch}"
            progress.update(task, description=f"{now.state}{epoch}", completed=now.update or 0, total=now.total_updates)
            return _has_ended(now)

        yield draw
