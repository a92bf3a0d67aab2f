"""Every flag that a message names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import ROOT
from trainjob.cli.main import COMMANDS, load
from trainjob.launch import options

PACKAGE = ROOT / "trainjob"
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
_ARGPARSE = re.compile(r"""add_argument\(\s*"--([a-z0-9-]+)\"""")
# Flags that messages and comments name of other programs.
OF_OTHERS = {
    "Slurm": {
        *("test-only", "ntasks", "ntasks-per-node", "nodes", "export", "dependency", "format", "ipus", "gres"),
        *("gpus-per-node", "gpus-per-task", "gpu-bind", "cpus-per-task", "cpu-bind", "environment"),
    },
    "scripts": {"batch", "batch-size"},
    "poprun": {"vipu", "numa-aware", "process-placement", "verbose", "vv"},
    "mpirun": {"mca"},
    "docker": {"privileged", "shm-size", "rm"},
    "pip": {"find-links", "dest", "target"},
    "mmdebstrap": {"aptopt"},
}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that people read: string literals with more than one word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def flags_of(command: Any) -> Iterator[str]:
    """Yield every flag of a command and of the commands below it."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in getattr(command, "commands", {}).values():
        yield from flags_of(below)


def our_flags() -> set[str]:
    """Return the flags of every command, and of the programs that start without it (launch, data, measure)."""
    flags = {"help", "version", *(name.replace("_", "-") for name in options.FLAGS)}
    for name in COMMANDS:
        flags |= {flag.removeprefix("--") for flag in flags_of(load(name))}
    for path in PACKAGE.rglob("*.py"):
        flags |= set(_ARGPARSE.findall(path.read_text(encoding="utf-8")))
    return flags


def test_every_flag_in_a_message_exists() -> None:
    known = our_flags().union(*OF_OTHERS.values())
    unknown = [
        f"{path.relative_to(ROOT)}:{line}: --{flag}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not {"standins"} & set(path.relative_to(PACKAGE).parts)  # these name flags of others
        for line, text in literals(path)
        for flag in _FLAG.findall(text)
        if flag not in known
    ]
    assert unknown == []


def test_a_flag_that_no_command_has_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('MESSAGE = f"take --micro-batch {1} or --stall-timeout 3"\n')
    named = [flag for _, text in literals(module) for flag in _FLAG.findall(text)]
    assert [flag for flag in named if flag not in our_flags()] == ["stall-timeout"]
