"""Completes run ids, clusters, tasks and values in a shell. Imports nothing heavy: a user has pressed TAB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import ast

# A shell sets it where words are to be completed.
VARIABLE = "_TRAINJOB_COMPLETE"

# The names of files are among the words, and the scripts of some shells evaluate what they get.
_PLAIN = re.compile(r"[\w@%+=,./:-]+", re.ASCII)


def know_shells() -> None:
    """Make the shells known to typer, which knows them only once it has made options of its own for them."""
    import typer.main

    typer.main.get_install_completion_arguments()


def completer(
    words: Callable[[typer.Context], Iterable[str]],
) -> Callable[[typer.Context, str], list[str]]:
    """Return typer's callback that offers those of `words` that begin with what was typed."""

    def fitting(ctx: typer.Context, incomplete: str) -> list[str]:
        return [word for word in words(ctx) if word.startswith(incomplete) and _PLAIN.fullmatch(word)]

    return fitting


@completer
def runs(_ctx: typer.Context) -> Iterable[str]:
    """Return the run ids and the names of jobs."""
    from trainjob.observe import index

    ids = index.ids()
    return ["last", *ids, *dict.fromkeys(map(index.name_of, ids))] if ids else []


@completer
def clusters(_ctx: typer.Context) -> Iterable[str]:
    """Return the names of cluster files."""
    from trainjob.kinds import lookup

    return (known.name for known in lookup.candidates())


@completer
def sites(_ctx: typer.Context) -> Iterable[str]:
    """Return the names of public machines."""
    from trainjob.kinds import lookup

    return (known.name for known in lookup.sites())


@completer
def tasks(_ctx: typer.Context) -> Iterable[str]:
    """Return the built-in tasks."""
    from trainjob.contract.tasks import BUILT_IN

    return BUILT_IN


@completer
def options_of_task(ctx: typer.Context) -> Iterator[str]:
    """Yield NAME= for each option of the task that `--task` names, by its source: importing it may load torch."""
    import ast

    from trainjob.contract import package
    from trainjob.contract import tasks as built_in

    facts = built_in.facts(ctx.params.get("task") or built_in.DEFAULT_TASK)
    if facts is None:
        return
    module, _, attribute = facts.entry.partition(":")
    below = Path(*module.split(".")).with_suffix(".py")
    for folder in (package.folder().parent, Path()):
        try:
            tree = ast.parse((folder / below).read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        named = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)}
        yield from (f"{name}=" for name in _parameters(named, attribute))
        return


def _parameters(named: dict[str, ast.ClassDef | ast.FunctionDef], name: str) -> Iterator[str]:
    """Yield the parameters of a function, or of a class: its own, else those of its bases in the same file."""
    import ast

    found = named.pop(name, None)
    if isinstance(found, ast.FunctionDef):
        yield from (one.arg for one in (*found.args.args, *found.args.kwonlyargs) if one.arg != "self")
    elif found is not None:
        made = [one for one in found.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        if made:
            yield from _parameters({name: made[0]}, name)
            return
        for base in found.bases:
            if isinstance(base, ast.Name):
                yield from _parameters(named, base.id)
