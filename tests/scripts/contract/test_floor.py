"""Under the oldest Python of a Poplar SDK, with nothing but the standard library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.contract_cases import IMPORTER, run

CONTRACT = [f"trainjob.contract.{path.stem}" for path in (ROOT / "trainjob/contract").glob("[a-z]*.py")]
LAUNCHER = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "trainjob" / "launch").rglob("[a-z]*.py")
    if "hooks" not in path.parts
)

# The contract's files, written and read back: whatever differs between Python versions shows here.
ROUND_TRIP = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from trainjob.contract import environment, secrets
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, failure, files, job
paths = RunPaths(sys.argv[2])
topology = job.Topology("h", 1, 1, 1, 1, 1, 0, "CPU")
plan = job.Plan("local", "local", "n", "command", topology, warnings=[job.PlanWarning("a", "b", "c")])
request = job.RequestRecord(job.ClusterRecord("local", {}, "catalog local"), {"seed": 3})
record = job.JobRecord(name="n", plan=plan, train=None, command=["\\u00fc"], request=request)
files.write_atomically(paths.job, record.to_json())
assert job.read(paths.job) == record
files.append_json_line(paths.metrics, {"a": "\\u00fc\\udcff"})
assert list(files.read_json_lines(paths.metrics)) == [{"a": "\\u00fc\\udcff"}]
files.write_atomically(paths.attempt, "2\\n")
assert attempts.is_stale(paths, 1)
first = failure.Failure(2, 0, "h", 1, ["x"], ["\\u00fc"])
assert failure.record_first(paths, first) and not failure.record_first(paths, first)
assert failure.read(paths) == first
tokens = paths.folder / "tokens"
files.write_atomically(tokens, b"A=\\xff\\r\\n", 0o600)
assert secrets.read(tokens) == {"A": "\\udcff"}
assert environment.set_redirects({"TRAINJOB_DEVICE": "cpu"})
print("good")
"""


def test_the_contract_and_the_launcher_import_with_the_standard_library_alone(
    needs: Callable[[str], Path],
) -> None:
    modules = [*CONTRACT, *LAUNCHER]
    assert run(IMPORTER, ROOT, *modules, python=needs("python3.8")) == f"(3, 8) {len(modules)}\n"


def test_the_import_hook_refuses(needs: Callable[[str], Path]) -> None:
    with pytest.raises(AssertionError, match="refused: torch"):
        run(IMPORTER, ROOT, "torch", python=needs("python3.8"))


def test_files_come_back_under_the_oldest_python(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    assert run(ROUND_TRIP, ROOT, tmp_path, python=needs("python3.8")) == "good\n"


def test_files_come_back_under_this_python(tmp_path: Path) -> None:
    assert run(ROUND_TRIP, ROOT, tmp_path, python=sys.executable) == "good\n"


def test_files_come_back_in_a_plain_c_locale(
    tmp_path: Path, needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.setenv("PYTHONUTF8", "0")
    assert run(ROUND_TRIP, ROOT, tmp_path, python=needs("python3.8")) == "good\n"
