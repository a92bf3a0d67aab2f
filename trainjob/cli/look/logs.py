"""trainjob logs: what the ranks have printed."""

from __future__ import annotations

import codecs
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from trainjob.cli.command import AsJson, RoleOption, RunOrLast, command, commands
from trainjob.contract import clock, states
from trainjob.watch import show

app = commands()


@command(app, "trainjob logs last --follow --tail 20", "trainjob logs k3xq --rank 3 --grep Error")
def logs(
    run: RunOrLast = "last",
    rank: Annotated[int | None, typer.Option(help="Only this rank, its bytes as they are.")] = None,
    role: RoleOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Begin N lines before the end of each log.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only lines in which this regular expression is found."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the output of the ranks; without --rank each line starts with its rank."""
    from trainjob.observe import index
    from trainjob.observe import logs as found
    from trainjob.observe.asking import Sparing
    from trainjob.observe.status import between_looks_s, status

    try:
        pattern = None if grep is None else re.compile(grep.encode())
    except re.error as error:
        raise typer.BadParameter(f"--grep {grep} is no regular expression: {error}") from None
    paths = index.find_role(run, role, "logs")
    if follow:
        asking, submission = Sparing(), None

        def has_ended() -> bool:
            nonlocal submission
            now = status(paths.run, asking)
            submission = now.submission
            return now.state not in states.ACTIVE

        lines = found.follow(paths, rank, has_ended, lambda: clock.sleep(between_looks_s(submission)), tail)
    else:
        lines = found.read(paths, rank, tail)
    if pattern is not None:
        lines = (line for line in _whole_lines(lines) if pattern.search(line))
    if as_json:
        _write_json({"id": paths.id, "rank": rank}, lines)
    elif rank is None:
        show.write_lines(lines)
    else:
        for line in lines:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def _write_json(head: dict[str, object], pieces: Iterable[bytes]) -> None:
    """Print the object that has `head` and a list of the lines, as they come: a log may be larger than the memory.

    Split at line feeds alone: a progress bar's carriage returns stay inside their line.
    """
    write = sys.stdout.write
    write(show.json_text(show.versioned(head), indent=1).removesuffix("\n}") + ',\n "lines": [')
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    is_first, is_open = True, False
    for piece in itertools.chain(pieces, [b""]):
        *whole, rest = decoder.decode(piece, final=not piece).split("\n")
        for text, ends in (*((line, True) for line in whole), (rest, False)):
            if not is_open and (text or ends):
                write('\n  "' if is_first else ',\n  "')
                is_first, is_open = False, True
            write(show.json_text(text)[1:-1])
            if is_open and ends:
                write('"')
                is_open = False
    write(('"' if is_open else "") + ("]\n}\n" if is_first else "\n ]\n}\n"))
    sys.stdout.flush()
