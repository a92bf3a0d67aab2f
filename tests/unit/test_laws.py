"""The laws of .ci/laws.py see what breaks them. `make check` holds the code to them."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.cases import each
from trainjob.contract.paths import RunPaths


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("laws", ROOT / ".ci" / "laws.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["laws"] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


laws: Any = _loaded()


def seen(breaks: Any, text: str, name: str = "trainjob/module.py") -> list[str]:
    return [what for _, what in breaks(laws.Source(name, text))]


@pytest.mark.parametrize(
    "text", ["isinstance(x, (A, SlurmCluster))", "match x:\n case PodCluster(): pass", 'a.cluster.kind == "slurm"']
)
def test_a_question_of_which_kind_a_cluster_is(text: str) -> None:
    assert seen(laws.kind_questions, text)


@each(
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
def test_a_read_of_the_clock_in_python(line: str, is_read: bool) -> None:
    assert bool(seen(laws.clock_reads, f"import time\n{line}")) == is_read


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
def test_a_read_of_the_clock_in_bash(line: str, is_read: bool) -> None:
    assert bool(seen(laws.clock_reads, line, "trainjob/library.sh")) == is_read


@pytest.mark.parametrize(
    "line",
    [
        "paths.metrics.read_text()",
        "open(str(self._paths.progress))",
        "RunPaths(folder).state.read_bytes()",
        "now.paths.rank_usage(3).open('a')",
        "from trainjob.records.files import read_json",
        "from trainjob.records import files",
    ],
)
def test_a_module_that_opens_a_file_of_a_run_directory(line: str) -> None:
    assert seen(laws.record_openings, line) == [line]


def test_what_opens_no_file_of_a_run_directory() -> None:
    assert not seen(laws.record_openings, "attempts.state(paths); paths.metrics.stat(); f'{paths.job.name}'")
    assert not seen(laws.record_openings, "from trainjob.records.files import DamagedError")
    assert {name for name in laws.TYPED if not hasattr(RunPaths("/runs/k3xq"), name)} == set()


@pytest.mark.parametrize(
    ("line", "has_cure"),
    [
        ("raise UserError('wrong')", False),
        ("raise UserError('wrong', 'do this')", True),
        ("raise UserError('wrong', cure='do this')", True),
        ("raise UserError(*what)", True),
        ("raise KeyError('wrong')", True),
    ],
)
def test_an_error_without_a_cure(line: str, has_cure: bool) -> None:
    assert bool(seen(laws.errors_without_cure, line)) != has_cure


def test_a_flag_that_no_command_has() -> None:
    breaks = laws.unknown_flags(laws.known_flags([]))
    assert seen(breaks, 'f"take --micro-batch {1} or --stall-timeout 3"') == ["--stall-timeout"]


@pytest.mark.parametrize(
    ("text", "is_private"),
    [
        ("from trainjob.observe import index\nindex._link", True),
        ("from trainjob.observe.index import _link", True),
        ("monkeypatch.setattr(index, '_link', 1)", True),
        ("monkeypatch.setattr('trainjob.observe.index._link', 1)", True),
        ("import os\nos._exit(1)", False),
        ("from trainjob.records import events\nevents.Attempt()._replace(state='')", False),
        ("class Fake:\n    def run(self):\n        return self._state", False),
    ],
)
def test_a_test_that_touches_a_private_name(text: str, is_private: bool) -> None:
    assert bool(seen(laws.private_names, text, "tests/unit/test_module.py")) == is_private


def test_a_break_is_reported_unless_the_file_is_an_exception_and_so_is_an_exception_that_nothing_needs() -> None:
    law = laws.Law("errors have cures", laws.errors_without_cure, exceptions={"a.py": "old", "b.py": "old"})
    wrong = "x = 1\nraise UserError('wrong')"
    assert list(laws.broken([laws.Source("a.py", wrong), laws.Source("c.py", wrong)], [law])) == [
        "c.py:2: errors have cures: raise UserError('wrong')",
        "b.py: is no exception any more from: errors have cures",
    ]


def test_two_classes_of_one_name() -> None:
    one, two = (laws.Source(f"trainjob/{name}.py", "class Place:\n    pass\nclass _Own:\n    pass\n") for name in "ab")
    assert [what for _, what in laws.repeated_class_names([one, two])(one)] == ["class Place:"]
    assert not list(laws.repeated_class_names([one])(one))
