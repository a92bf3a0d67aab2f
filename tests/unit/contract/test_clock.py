"""One module of Python and one function of bash read the clock: a world that puts its own there misses nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainjob
from trainjob.contract import clock

_PACKAGE = Path(trainjob.__file__).parent
_TEMPLATES = _PACKAGE.parent / "templates"
# They run without our package, or beside programs that must not import it.
_ALONE = {
    "launch/hooks/trainjob_hooks/batch.py",
    "launch/hooks/trainjob_hooks/recording.py",
    "launch/hooks/trainjob_hooks/startup.py",
    "train/measure/probe.py",
    "machines/start_script.sh",
}
# These read nothing if they are given the time, as the argument of this number.
_CONVERTS = {"gmtime": 1, "localtime": 1, "strftime": 2}
_NOW = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
_SHELL = re.compile(r"\bEPOCH(REALTIME|SECONDS)\b|\bSECONDS\b|%\([^)]*\)T|\bdate [+-]|/proc/uptime")


def reads_of_python(source: str) -> list[str]:
    """Return what reads the clock, or waits, in Python."""
    found = []
    tree = ast.parse(source)
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    given = {id(call.func): len(call.args) for call in ast.walk(tree) if isinstance(call, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found.append("from time import")
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        converts = given.get(id(node), 0) >= _CONVERTS.get(node.attr, 99)
        if ("time" in imported and owner == "time" and not converts) or (owner, node.attr) in _NOW:
            found.append(f"{owner}.{node.attr}")
    return found


def reads_of_shell(source: str) -> list[str]:
    """Return the lines that read the clock outside of the function that does."""
    code = re.sub(r"^read_clock\(\) \{\n.*?^\}\n", "", source, flags=re.MULTILINE | re.DOTALL)
    lines = (re.sub(r"(^|\s)#.*", "", line) for line in code.splitlines())
    return [line for line in lines if _SHELL.search(line)]


def sources() -> Iterator[Path]:
    files = (*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob("*.sh"), *_TEMPLATES.rglob("*.j2"))
    return (file for file in files if file != Path(clock.__file__))


def name_of(file: Path) -> str:
    return str(file.relative_to(_PACKAGE if file.is_relative_to(_PACKAGE) else _TEMPLATES))


def test_nothing_else_reads_the_clock() -> None:
    reads = {
        name_of(file): (reads_of_python if file.suffix == ".py" else reads_of_shell)(file.read_text())
        for file in sources()
    }
    assert len(reads) > 300
    assert {name for name, found in reads.items() if found} == _ALONE


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ("time.time()", True),
        ("began: float = field(default_factory=time.monotonic)", True),
        ("time.sleep(1)", True),
        ("from time import perf_counter", True),
        ("datetime.now(UTC)", True),
        ("datetime.datetime.now()", True),
        ("time.strftime('%H')", True),
        ("time.gmtime()", True),
        ("time.strftime('%H', time.gmtime(clock.time()))", False),
        ("clock.time() - clock.monotonic()", False),
        ("datetime.fromtimestamp(clock.time(), UTC)", False),
    ],
)
def test_a_read_of_python_is_seen(line: str, is_read: bool) -> None:
    assert bool(reads_of_python(f"import time\n{line}")) == is_read


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ("at=$EPOCHREALTIME", True),
        ("until_s=$((SECONDS + 5))", True),
        ("at=$(date +%s)", True),
        ("printf -v at '%(%s)T' -1", True),
        ("read_clock # SECONDS of the shell", False),
        ("read_clock() {\n  clock_s=$EPOCHREALTIME\n}", True),  # unfinished
        ("read_clock() {\n  clock_s=$EPOCHREALTIME\n}\n", False),
    ],
)
def test_a_read_of_bash_is_seen(line: str, is_read: bool) -> None:
    assert bool(reads_of_shell(line)) == is_read
