"""Draws faults into the code, one at a time, and tells which of them the unit tests and the simulation notice.

A fault is a comparison, a truth value, a number, an operator or a statement that is another one. Each is drawn from
the syntax tree of the modules that decide about runs, put into a copy of the repository, and tried there: first by the
tests of its own package, then by all unit tests, then by simulated histories. Prints a line for each, and the share
that was noticed. What survives is to be read: it changes nothing that anybody sees, or a test is missing.

    python -m benchmarks.mutants [COUNT] [--seed SEED] [--histories HISTORIES] [--only TEXT]
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Where a fault may cost a run.
_WHERE = ("trainjob/records", "trainjob/lifecycle", "trainjob/backends", "trainjob/launch/ending.py")
# Packages that use them, by their folders of unit tests.
_KNOW_THEM = ("records", "backends", "lifecycle", "launch", "observe", "requests", "cli", "check", "verify", "accept")
_LEFT_OUT = (
    ".git",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
)
_LONGEST_S = 600.0
_OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
}  # fmt: skip


class Mutant(NamedTuple):
    """A fault: the file, the piece of its text from one offset to another, and what stands there instead."""

    file: str
    line: int
    begin: int
    end: int
    instead: str
    was: str

    def text(self, source: str) -> str:
        """Return the source with the fault."""
        encoded = source.encode()
        return (encoded[: self.begin] + self.instead.encode() + encoded[self.end :]).decode()


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield every fault that may be drawn into a module."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    skipped = {id(inner) for outer in _not_run(tree) for inner in ast.walk(outer)}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.expr, ast.stmt)) or id(node) in skipped:
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        was = source.encode()[begin:end].decode()
        for instead in _others(node):
            yield Mutant(file, node.lineno, begin, end, instead, was)


def _not_run(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield annotations, imports, docstrings and the parts of f-strings, in which a fault is none or no syntax."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)):
            yield node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node
        yield from (part for name in ("annotation", "returns", "decorator_list") for part in _listed(node, name))


def _listed(node: ast.AST, name: str) -> list[ast.AST]:
    found = getattr(node, name, None)
    return found if isinstance(found, list) else [found] if isinstance(found, ast.AST) else []


def _others(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield the texts that may take the place of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
        yield f"({ast.unparse(ast.Compare(node.left, [_OTHER[type(node.ops[0])](), *node.ops[1:]], node.comparators))})"  # type: ignore[list-item]
    elif isinstance(node, ast.BoolOp):
        yield f"({ast.unparse(ast.BoolOp(_OTHER[type(node.op)](), node.values))})"  # type: ignore[arg-type]
    elif isinstance(node, ast.BinOp) and type(node.op) in _OTHER:
        yield f"({ast.unparse(ast.BinOp(node.left, _OTHER[type(node.op)](), node.right))})"  # type: ignore[arg-type]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(node.value + 1)
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield "return None"
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield "continue" if isinstance(node, ast.Break) else "break"
    elif isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise)) and not isinstance(
        getattr(node, "value", None), (ast.Yield, ast.YieldFrom)
    ):
        yield "pass"


def noticed_by(mutant: Mutant, copy: Path, histories: int) -> str | None:
    """Return what notices a fault; None if nothing does."""
    path = copy / mutant.file
    source = path.read_text()
    path.write_text(mutant.text(source))
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
    own = f"tests/unit/{Path(mutant.file).parts[1]}"
    others = [f"tests/unit/{package}" for package in _KNOW_THEM if f"tests/unit/{package}" != own]
    tries = {
        own: [*pytest, own],
        "tests/unit": [*pytest, *others],
        f"{histories} histories": [sys.executable, "-m", "simulation", "--seeds", str(histories)],
    }
    try:
        for name, words in tries.items():
            try:
                ended = subprocess.run(words, cwd=copy, capture_output=True, timeout=_LONGEST_S, check=False)
            except subprocess.TimeoutExpired:
                return f"{name}, which did not end"
            if ended.returncode:
                return name
    finally:
        path.write_text(source)
    return None


def main() -> None:
    """Print a line for each fault that was drawn, and the share of those that were noticed."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("count", nargs="?", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--only", default="", help="in files whose path holds this text")
    asked = parser.parse_args()
    files = [
        file
        for place in _WHERE
        for file in sorted((ROOT / place).rglob("*.py") if (ROOT / place).is_dir() else (ROOT / place,))
    ]
    named = [str(file.relative_to(ROOT)) for file in files if file.exists() and asked.only in str(file)]
    every = [mutant for name in named for mutant in mutants_of(name, (ROOT / name).read_text())]
    drawn = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    print(f"{len(drawn)} of {len(every)} faults in {len(named)} files, by seed {asked.seed}", flush=True)
    noticed = 0
    with tempfile.TemporaryDirectory(prefix="trainjob-mutants-") as place:
        copy = Path(place) / "copy"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        if (by := noticed_by(Mutant(named[0], 0, 0, 0, "", ""), copy, asked.histories)) is not None:
            raise SystemExit(f"without a fault, {by} notices one: mend that first")
        for mutant in drawn:
            began = time.monotonic()
            by = noticed_by(mutant, copy, asked.histories)
            noticed += by is not None
            change = f"{' '.join(mutant.was.split())[:60]} -> {' '.join(mutant.instead.split())[:60]}"
            took = f"{time.monotonic() - began:.0f} s"
            print(
                f"{'noticed by ' + by if by else 'SURVIVES'}: {mutant.file}:{mutant.line}: {change} ({took})",
                flush=True,
            )
    print(f"{noticed} of {len(drawn)} were noticed: {100 * noticed / max(1, len(drawn)):.0f} %")


if __name__ == "__main__":
    main()
