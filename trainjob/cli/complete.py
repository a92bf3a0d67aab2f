"""What the shell completes beyond names of commands and flags. Imports nothing heavy: somebody has pressed TAB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import ast

# The names of files are among the words, and the scripts of some shells evaluate what they get.
_PLAIN = re.compile(r"[\w@%+=,./:-]+", re.ASCII)


def runs(incomplete: str) -> list[str]:
    """Return the run ids and the names of jobs that begin with what was typed."""
    from trainjob.observe import index

    ids = index.ids()
    return _fitting(["last", *ids, *dict.fromkeys(map(index.name_of, ids))] if ids else [], incomplete)


def clusters(incomplete: str) -> list[str]:
    """Return the cluster names that begin with what was typed."""
    from trainjob.kinds import lookup

    return _fitting((known.name for known in lookup.candidates()), incomplete)


def tasks(incomplete: str) -> list[str]:
    """Return the built-in tasks that begin with what was typed."""
    from trainjob.contract.tasks import BUILT_IN

    return _fitting(BUILT_IN, incomplete)


def one_of(choices: Iterable[str]) -> Callable[[str], list[str]]:
    """Return what completes a setting that takes one of these."""

    def choose(incomplete: str) -> list[str]:
        return _fitting(choices, incomplete)

    return choose


def options_of_task(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return NAME= for each option of the task that `--task` names, by its source: importing it may load torch."""
    from trainjob.contract import tasks as built_in

    facts = built_in.facts(ctx.params.get("task") or built_in.DEFAULT_TASK)
    module, _, attribute = facts.entry.partition(":") if facts else ("", "", "")
    return _fitting((f"{name}=" for name in _options(module, attribute)), incomplete)


def _fitting(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and _PLAIN.fullmatch(word)]


def _options(module: str, attribute: str) -> Iterator[str]:
    import ast

    from trainjob.contract import package

    below = Path(*module.split(".")).with_suffix(".py")
    for folder in (package.folder().parent, Path()):
        try:
            tree = ast.parse((folder / below).read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        named = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)}
        yield from _parameters(named, attribute)
        return


def _parameters(named: dict[str, ast.ClassDef | ast.FunctionDef], name: str) -> Iterator[str]:
    """Yield what a function takes, or a class: itself, else by the base that lies in the same file."""
    import ast

    found = named.pop(name, None)
    if isinstance(found, ast.FunctionDef):
        yield from (one.arg for one in (*found.args.args, *found.args.kwonlyargs) if one.arg != "self")
    elif found is not None:
        made = [one for one in found.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        bases = [base.id for base in found.bases if isinstance(base, ast.Name)]
        if made:
            yield from _parameters({name: made[0]}, name)
        for base in bases if not made else []:
            yield from _parameters(named, base)
