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
from trainjob.contract import exits, states

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths

app = new()
_EVERY_S = 0.2


@app.command()
def logs(
    run: Run,
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank, its bytes as they are.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Print what the ranks have printed; without --rank each line has its rank in front."""
    from trainjob.runs import index
    from trainjob.runs import logs as found

    paths = index.find(run)
    if as_json:
        lines = b"".join(found.read(paths, rank)).decode(errors="replace").splitlines()
        show.as_json({"id": paths.id, "rank": rank, "lines": lines})
        return
    if not follow:
        _write(found.read(paths, rank))
        return
    try:
        _write(found.follow(paths, rank, lambda: _has_ended(paths), lambda: time.sleep(_EVERY_S)))
    except KeyboardInterrupt:
        raise typer.Exit(exits.INTERRUPTED) from None


def _has_ended(paths: RunPaths) -> bool:
    from trainjob.runs.status import status

    return status(paths).state not in states.ACTIVE


def _write(lines: Iterable[bytes]) -> None:
    for line in lines:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
