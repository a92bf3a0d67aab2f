"""Draws faults into the code, one at a time, and tells which of them the unit tests and the simulation notice.

A fault is a comparison, a truth value, a number, an operator or a statement that is another one. Each is drawn from
the syntax tree of the modules that decide about runs: from each place in proportion to its size, and at least a tenth
of all. None is drawn where nobody could see it: in annotations, docstrings, parts of f-strings, `__repr__`, calls of
loggers. None is drawn where anybody would: a module without one of its assignments can't be imported. A number that is
bound to a name in a unit becomes 0, because whether a wait lasts 30 s or 31 s is no promise.

A fault is tried in a copy of the repository: by the unit tests that reach its line, by the simulated histories that do,
and by those tests of the same packages that start git, shells and container engines. What reaches what is traced once.
Prints a line for each, and what was noticed in each place. What is known is kept in build/mutants/, by seed and by the
digest of the code and its tests: a run that was stopped goes on. What survives is to be read: it stands in
harmless_mutants.yaml with a reason, or a test is missing.

    python -m benchmarks.mutants [COUNT] [--seed SEED] [--processes N] [--only TEXT] [--without-scripts]
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parent.parent
# Where a fault may cost a run.
_PLACES = ("trainjob/records/", "trainjob/lifecycle/", "trainjob/backends/", "trainjob/launch/ending.py")
HARMLESS = ROOT / "benchmarks" / "harmless_mutants.yaml"
_KEPT = ROOT / "build" / "mutants"
_LEFT_OUT = (
    ".git", ".venv", "build", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis",
)  # fmt: skip
_UNIT = "tests/unit"
_SCRIPTS = ("tests/scripts/records", "tests/scripts/lifecycle", "tests/scripts/backends")
_TRACED_HISTORIES = 80
_MOST_HISTORIES = 40
_UNITS = ("_s", "_ms", "_bytes", "_kb", "_mb", "_gb")
_OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
}  # fmt: skip


class Mutant(NamedTuple):
    """A fault: the file, the piece of its text from one offset to another, and what stands there instead."""

    file: str
    within: str  # the class, and the function as `name()`; "" is the module itself
    line: int
    lines: tuple[int, int]  # of the statement, or of its head
    begin: int
    end: int
    instead: str
    was: str

    def text(self, source: str) -> str:
        """Return the source with the fault."""
        encoded = source.encode()
        return (encoded[: self.begin] + self.instead.encode() + encoded[self.end :]).decode()

    def change(self) -> str:
        """Return the change as a list of harmless ones has it."""
        return f"{' '.join(self.was.split())} -> {' '.join(self.instead.split())}"


def place_of(file: str) -> str:
    """Return the place that a file belongs to, by its path below the repository's top; "" is none."""
    return next((place for place in _PLACES if file.startswith(place)), "")


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield every fault that may be drawn into a module."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, within, lines in _seen(ast.parse(source), "", (0, 0)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        was = source.encode()[begin:end].decode()
        for instead in _others(node, within):
            yield Mutant(file, within, node.lineno, lines, begin, end, instead, was)


def _seen(node: ast.AST, within: str, lines: tuple[int, int]) -> Iterator[tuple[Any, str, tuple[int, int]]]:
    """Yield the expressions and statements whose faults somebody could see, with their function and their lines."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)) or _is_text(node):
        return
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        lines = (node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or 0)
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node, within, lines
    if _is_bound(node):
        return
    inner = within
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        inner = f"{within}.{node.name}".lstrip(".") + "()" * isinstance(node, ast.FunctionDef)
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from _seen(part, inner if name == "body" else within, lines)


def _is_text(node: ast.AST) -> bool:
    """Tell whether a node is a docstring, `__repr__`, or a line of a log."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value.func)
        return called == "warnings.warn" or called.startswith(("logger.", "logging."))
    if isinstance(node, ast.FunctionDef):
        return node.name == "__repr__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _others(node: ast.expr | ast.stmt, within: str) -> Iterator[str]:
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
    elif isinstance(node, ast.Assign) and _is_bound(node):
        yield f"{ast.unparse(node.targets[0])} = 0"
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield "return None"
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield "continue" if isinstance(node, ast.Break) else "break"
    elif isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise)) and not isinstance(
        getattr(node, "value", None), (ast.Yield, ast.YieldFrom)
    ):
        yield from ["pass"] if within.endswith("()") or not isinstance(node, ast.Assign) else []


def _is_bound(node: ast.AST) -> bool:
    """Tell whether a node binds a number to a name in a unit."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    parts = (ast.Constant, ast.BinOp, ast.operator)
    return node.targets[0].id.lower().endswith(_UNITS) and all(isinstance(one, parts) for one in ast.walk(node.value))


def drawn(every: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` faults: from each place in proportion to its faults, and at least a tenth of all."""
    chosen = []
    for place in _PLACES:
        among = [one for one in every if place_of(one.file) == place]
        share = max(count // 10, round(count * len(among) / max(1, len(every))))
        chosen += random.Random(f"{seed} {place}").sample(among, min(share, len(among)))
    return random.Random(seed).sample(chosen, min(count, len(chosen)))


class Copy:
    """A copy of the repository in which faults are tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "copy"
        shutil.copytree(ROOT, self.folder, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        self._environment = {**os.environ, "TMPDIR": str(folder)}
        # Bytecode that is kept goes by the text of its module: that of a faulty one is never written, nor mistaken.
        compiled = ("trainjob", "simulation", "standins", "benchmarks", "tests/support")
        self.run(["-m", "compileall", "-qq", "--invalidation-mode", "checked-hash", *compiled])
        self._environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self._trials = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.trials"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, words: list[str], **environment: str) -> int:
        """Run Python, and return its exit code."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**self._environment, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode

    def options(self, tests: list[str]) -> list[str]:
        """Return the arguments with which pytest runs tests."""
        listed = self.folder.parent / "tests"
        listed.write_text("\n".join(tests))
        temporary = self.folder.parent / "temporary"
        return ["-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={temporary}", f"@{listed}"]

    def tried(self, words: list[str], limit_s: float) -> int | None:
        """Return the exit code of a trial; None if it took too long."""
        assert self._trials.stdin is not None
        assert self._trials.stdout is not None
        print(json.dumps([words, limit_s]), file=self._trials.stdin, flush=True)
        code: int | None = json.loads(self._trials.stdout.readline())
        return code

    def close(self) -> None:
        """End what runs the trials."""
        self._trials.kill()
        self._trials.wait()


class Reached:
    """What reaches each line: tests by name without parameters, histories by seed."""

    def __init__(self, kept: Path, copy: Copy) -> None:
        self._seconds: dict[str, float] = {}
        self._by: dict[tuple[str, int], list[str]] = {}
        self._by_file: dict[str, set[str]] = {}
        tests, histories = kept / "tests.json", kept / "histories.json"
        if not tests.exists():
            words = ["-m", "pytest", *copy.options([_UNIT, *_SCRIPTS])]
            if copy.run(words, REACHED=f"{tests}.part", PYTEST_PLUGINS="benchmarks.reached") != 0:
                raise SystemExit("a test fails without a fault: mend that first")
            os.replace(f"{tests}.part", tests)
        if not histories.exists():
            seeds = [str(seed) for seed in range(1, _TRACED_HISTORIES + 1)]
            if copy.run(["-m", "benchmarks.reached", "trace", f"{histories}.part", *seeds]) != 0:
                raise SystemExit("a history breaks an invariant without a fault: mend that first")
            os.replace(f"{histories}.part", histories)
        for path in (tests, histories):
            for who, (took_s, lines_of) in json.loads(path.read_text()).items():
                self._seconds[who] = took_s
                for file, lines in lines_of.items():
                    self._by_file.setdefault(file, set()).add(who)
                    for line in lines:
                        self._by.setdefault((file, line), []).append(who)

    def by(self, mutant: Mutant) -> dict[str, list[str]]:
        """Return what reaches a fault's statement, by its kind: tests come with the quickest file first."""
        # What runs when a module is imported is reached by all that reach the module, or use what it exports.
        lines = range(mutant.lines[0], mutant.lines[1] + 1)
        who = {one for line in lines for one in self._by.get((mutant.file, line), ())}
        if not mutant.within.endswith("()"):
            who = set(self._seconds)
        near = self._by_file.get(mutant.file, set())
        of_file: dict[str, float] = {}
        for one in who:
            file = one.partition("::")[0]
            of_file[file] = of_file.get(file, 0) + self._seconds[one]
        tests = sorted(who, key=lambda one: (one not in near, of_file[one.partition("::")[0]], one))
        return {
            "unit tests": [one for one in tests if one.startswith(_UNIT)],
            "histories": sorted((one for one in who if one.isdigit()), key=int)[:_MOST_HISTORIES],
            "scripts": [one for one in tests if one.startswith(_SCRIPTS)],
        }

    def limit_s(self, some: list[str]) -> float:
        """Return how long they may take."""
        return 60 + 5 * sum(self._seconds[one] for one in some)


def noticed_by(mutant: Mutant, copy: Copy, reached: Reached, *, with_scripts: bool) -> str | None:
    """Return what notices a fault; None if nothing does."""
    path = copy.folder / mutant.file
    source, times = path.read_text(), path.stat()
    path.write_text(mutant.text(source))
    try:
        for kind, some in reached.by(mutant).items():
            if not some or (kind == "scripts" and not with_scripts):
                continue
            words = ["reached", "run", *some] if kind == "histories" else ["pytest", "-x", *copy.options(some)]
            if (code := copy.tried(words, reached.limit_s(some))) != 0:
                return kind if code is not None else f"{kind}, which did not end"
    finally:
        path.write_text(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return None


def _digest() -> str:
    told = hashlib.sha256()
    for top in ("trainjob", _UNIT, *_SCRIPTS, "tests/support", "simulation", "standins", "benchmarks/reached.py"):
        for path in sorted((ROOT / top).rglob("*.*")) if (ROOT / top).is_dir() else [ROOT / top]:
            if path.suffix in (".py", ".sh", ".yaml") and path.is_file():
                told.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return told.hexdigest()[:12]


def harmless(mutant: Mutant) -> str | None:
    """Return why a fault costs nobody anything; None if the list doesn't have it."""
    listed: dict[str, list[dict[str, str]]] = yaml.safe_load(HARMLESS.read_text()) or {}
    for one in listed.get(mutant.file, []):
        if (one["within"], " ".join(one["change"].split())) == (mutant.within, mutant.change()):
            return one["reason"]
    return None


def _shares(where: str, ends: list[str]) -> str:
    """Return a line about what became of the faults of a place; of all, if it has no name."""
    count = max(1, len(ends))
    by = {kind: sum(one.startswith(kind) for one in ends) for kind in ("unit tests", "histories", "scripts")}
    goal = by["unit tests"] + by["histories"]
    return (
        f"{where or 'together'}: of {len(ends)}, unit tests and histories noticed {goal} ({100 * goal / count:.0f} %), "
        f"{by['histories']} of them histories alone, and scripts {by['scripts']} more "
        f"({100 * (goal + by['scripts']) / count:.0f} %); {ends.count('harmless')} are harmless, "
        f"{ends.count('None')} survive"
    )


def main() -> None:
    """Print a line for each fault that was drawn, and the share of those that were noticed."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("count", nargs="?", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="in files whose path holds this text")
    parser.add_argument(
        "--without-scripts", action="store_true", help="leave out tests that start git, shells, engines"
    )
    asked = parser.parse_args()
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "trainjob").rglob("*.py"))]
    named = [file for file in files if place_of(file) and asked.only in file]
    every = [mutant for file in named for mutant in mutants_of(file, (ROOT / file).read_text())]
    chosen = drawn(every, asked.count, asked.seed)
    print(f"{len(chosen)} of {len(every)} faults in {len(named)} files, by seed {asked.seed}", flush=True)
    kept = _KEPT / _digest()
    kept.mkdir(parents=True, exist_ok=True)
    results = kept / f"{asked.seed}{asked.only.replace('/', '-')}.jsonl"
    known = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        known[json.loads(line)["id"]] = json.loads(line)["by"]
    memory = Path("/dev/shm")
    folder = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="trainjob-mutants-", dir=folder) as place, results.open("a") as stream:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(asked.processes):
            copies.put(Copy(Path(place) / str(number)))
        first = copies.get()
        reached = Reached(kept, first)
        copies.put(first)

        def try_it(mutant: Mutant) -> str | None:
            name = f"{mutant.file}:{mutant.begin}:{mutant.end}:{mutant.instead}"
            if name not in known:
                copy, began = copies.get(), time.monotonic()
                by = noticed_by(mutant, copy, reached, with_scripts=not asked.without_scripts)
                copies.put(copy)
                known[name] = by
                took_s = round(time.monotonic() - began)
                print(json.dumps({"id": name, "by": by, "took_s": took_s}), file=stream, flush=True)
            by = known[name]
            why = harmless(mutant)
            said = f"noticed by {by}" if by else f"HARMLESS ({why})" if why else "SURVIVES"
            print(f"{said}: {mutant.file}:{mutant.line} {mutant.within}: {mutant.change()}", flush=True)
            return by or (why and "harmless")

        with ThreadPoolExecutor(asked.processes) as pool:
            found = list(zip(chosen, pool.map(try_it, chosen), strict=True))
        while not copies.empty():
            copies.get().close()
    for where in (*_PLACES, ""):
        print(_shares(where, [str(by) for mutant, by in found if mutant.file.startswith(where)]))


if __name__ == "__main__":
    main()
