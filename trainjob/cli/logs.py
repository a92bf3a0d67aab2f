"""trainjob logs: what the ranks have printed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.report import Run
from trainjob.contract import states

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths

app = new()


@app.command()
def logs(
    run: Run,
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank, its bytes as they are.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Print what the ranks have printed; without --rank each line has its rank in front."""
    from trainjob.runs import arrays, index
    from trainjob.runs import logs as found
    from trainjob.runs.pace import between_looks_s

    paths = index.find(run)
    arrays.refuse_whole(paths, "logs")
    if follow:
        lines = found.follow(paths, rank, lambda: _has_ended(paths), lambda: time.sleep(between_looks_s(paths)))
    else:
        lines = found.read(paths, rank)
    if as_json:
        # Split at line feeds alone: a progress bar's carriage returns stay inside their line.
        text = b"".join(lines).decode(errors="replace")
        show.as_json({"id": paths.id, "rank": rank, "lines": text.removesuffix("\n").split("\n") if text else []})
    else:
        _write(lines)


def _has_ended(paths: RunPaths) -> bool:
    from trainjob.runs.status import status

    return status(paths).state not in states.ACTIVE


def _write(lines: Iterable[bytes]) -> None:
    for line in lines:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
