"""Prints what we hold the code to, beside the goal, and the longest modules and functions for judgement."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "trainjob"
CLUSTERS = {"PodCluster", "SlurmCluster", "HostsCluster", "LocalCluster"}
KNOW_KINDS = ("cluster", "kinds")  # the packages that may ask for a cluster's class
FOLDERS = ("trainjob", "batchfiles", "standins", "simulation", "benchmarks", "tests")
SHORT = 3  # statements of a helper that could be lines at its one caller
LONGEST = 10
GOAL_LINES, GOAL_MODULES = 46_000, 330  # of trainjob/

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Count:
    """Figures of one folder of Python."""

    lines: int = 0
    modules: int = 0
    helpers: int = 0  # private functions of modules
    once: int = 0
    short_once: int = 0
    parameters: int = 0
    any_parameters: int = 0
    kind_tests: int = 0
    class_names: list[str] = field(default_factory=list)  # public ones of modules
    module_sizes: list[tuple[int, str]] = field(default_factory=list)
    function_sizes: list[tuple[int, str]] = field(default_factory=list)


def count(folder: Path) -> Count:
    """Return the figures of the Python below `folder`."""
    found = Count()
    for path in sorted(folder.rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        tree = ast.parse(text)
        found.lines += text.count("\n")
        found.modules += 1
        found.module_sizes.append((text.count("\n"), name))
        found.class_names += [
            one.name for one in tree.body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")
        ]
        _count_functions(tree, name, found)
        if path.relative_to(folder).parts[0] not in KNOW_KINDS:
            found.kind_tests += sum(_is_kind_test(node) for node in ast.walk(tree))
    return found


def _count_functions(tree: ast.Module, name: str, found: Count) -> None:
    uses = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        size = (function.end_lineno or 0) - function.lineno + 1
        found.function_sizes.append((size, f"{name}:{function.lineno} {function.name}"))
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            if argument.annotation is not None:
                found.parameters += 1
                inside = ast.walk(argument.annotation)
                found.any_parameters += any(isinstance(node, ast.Name) and node.id == "Any" for node in inside)
    for helper in (node for node in tree.body if isinstance(node, Function)):
        if helper.name.startswith("_") and not helper.name.startswith("__"):
            found.helpers += 1
            # What stands in a table, or is given to a function, can't be lines at its caller.
            if uses[helper.name] == 1 and helper.name in called:
                found.once += 1
                found.short_once += len(_statements(helper)) <= SHORT


def _statements(function: Function) -> list[ast.stmt]:
    """Return all statements of a function, nested ones too, without its docstring."""
    inside = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    is_documented = (
        bool(function.body)
        and isinstance(function.body[0], ast.Expr)
        and isinstance(function.body[0].value, ast.Constant)
    )
    return inside[1:] if is_documented else inside


def _is_kind_test(node: ast.AST) -> bool:
    """Return whether `node` asks for the class of a cluster: isinstance(…, SlurmCluster), or `case SlurmCluster()`."""
    if isinstance(node, ast.MatchClass):
        return isinstance(node.cls, ast.Name) and node.cls.id in CLUSTERS
    is_test = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
    return is_test and any(isinstance(inner, ast.Name) and inner.id in CLUSTERS for inner in ast.walk(node))


def _broken_laws() -> int:
    program = Path(sys.executable).with_name("lint-imports")
    ended = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.stdout.count(" BROKEN")


def main() -> None:
    """Print the tables."""
    folders = {name: count(ROOT / name) for name in FOLDERS}
    house = folders["trainjob"]
    per_thousand = 1000 * house.helpers / house.lines
    share = 100 * house.any_parameters / house.parameters
    names = Counter(name for folder in ("trainjob", "batchfiles") for name in folders[folder].class_names)
    rows = [
        ("lines of Python in trainjob/", f"{house.lines:,}", f"{GOAL_LINES:,}"),
        ("modules", f"{house.modules}", f"{GOAL_MODULES}"),
        *((f"lines in {name}/ ({one.modules} modules)", f"{one.lines:,}", "") for name, one in folders.items()),
        ("public class names used twice", f"{sum(number > 1 for number in names.values())}", "0"),
        ("private helpers a 1,000 lines", f"{per_thousand:.1f}", "15"),
        (f"helpers with one caller (of {house.helpers})", f"{house.once}", ""),
        (f"  of up to {SHORT} statements", f"{house.short_once}", "0"),
        ("Any in annotated parameters", f"{share:.1f} %", "2 %"),
        ("tests for a cluster's class outside cluster/ and kinds/", f"{house.kind_tests}", "0"),
        ("import laws broken", f"{_broken_laws()}", "0"),
    ]
    for name, value, goal in rows:
        print(f"{name:58} {value:>8}  {f'goal {goal}' if goal else ''}".rstrip())
    for title, sizes in (("longest modules", house.module_sizes), ("longest functions", house.function_sizes)):
        print(f"\n{title}")
        for size, name in sorted(sizes, reverse=True)[:LONGEST]:
            print(f"  {size:4} {name}")
    if len(sys.argv) > 1:
        print("\npackages: lines, modules, helpers, with one caller, short ones")
        for folder in sorted(path for path in HOUSE.iterdir() if (path / "__init__.py").exists()):
            one = count(folder)
            print(f"  {folder.name:12} {one.lines:6} {one.modules:4} {one.helpers:4} {one.once:4} {one.short_once:4}")


if __name__ == "__main__":
    main()
