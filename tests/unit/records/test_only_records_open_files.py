"""Only `trainjob.records` opens the files of a run directory: every other module asks it for a typed record."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support import ROOT
from trainjob.contract.paths import RunPaths

HOUSE = ROOT / "trainjob"
# The functions of records.files that read or write a file. Errors, and JSON in memory, are anybody's.
OPENS = {
    *("load_json", "load_number", "load_word", "open_regular", "read_json", "read_json_lines", "read_number"),
    *("read_small", "read_word", "append_json_line", "write_atomically", "write_json", "JsonLines", "LineWriter"),
}
# Modules that use them for other files, or handle files of a run directory without knowing what is in them.
EXCEPTIONS = {
    "accept/ladder.py": "writes the evidence of a ladder into the folder that --output names",
    "backends/folder.py": "creates run directories from rendered bytes",
    "backends/mirror.py": "copies files between machines byte for byte",
    "backends/slurm/asking.py": "keeps the last answer of squeue in the user's data folder",
    "cli/look/report.py": "writes the page that --html names",
    "cluster/reading.py": "reads cluster and job files, and the user's configuration",
    "data/manifest.py": "reads the manifests of data sets",
    "launch/main.py": "ranks in containers leave their exit codes to the launcher that waits for them",
    "launch/ranks/node_start.py": "launchers of one node hand each other what one of them has found out",
    "lifecycle/lock.py": "takes the lock of a run by a hard link, and names its holder in it",
    "lifecycle/trackers.py": "notes in the log directory of TensorBoard what was exported",
    "observe/logs.py": "reads logs on as they grow: plain text, with no record in it",
    "observe/notify.py": "notes in the user's data folder what was delivered",
    "provision/drive.py": "reads and writes what ansible-playbook needs",
    "rehearse/gpus.py": "reads what stand-in GPUs wrote into a folder of the rehearsal",
    "train/recording/checkpoint.py": "writes checkpoints: the tensors in them need torch",
    "train/recording/safetensors.py": "reads the tensors of a file: they need torch",
    "train/stalling.py": "ranks that stall tell each other so, and keep torch's flight record",
    "watch/show.py": "writes the file that --output names",
}
# Files of a run directory that have a type, as attributes of RunPaths.
TYPED = {
    *("job", "submission", "attempt", "state", "exit_code", "progress", "failure", "metrics", "events"),
    *("excluded_nodes", "job_id", "token", "requeue", "bad_node", "step_gone", "stacks_request"),
    *("rank_usage", "rank_times", "rank_stacks"),
}
# What may be done with such a path elsewhere: no content is read or written by it.
HARMLESS = {"exists", "is_file", "stat", "name", "relative_to", "with_name", "unlink", "touch", "parent"}


def imported(tree: ast.Module) -> set[str]:
    """Return the names that a module imports from records.files; "*" for the module as a whole."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "trainjob.records.files":
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module == "trainjob.records":
            names |= {"*" for alias in node.names if alias.name == "files"}
        if isinstance(node, ast.Import):
            names |= {"*" for alias in node.names if alias.name == "trainjob.records.files"}
    return names


def opened(tree: ast.Module) -> Iterator[str]:
    """Yield each call that reads or writes a typed file of `….paths.FILE` or `paths.FILE` by itself."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = call.func
        if isinstance(function, ast.Attribute) and is_typed(function.value) and function.attr not in HARMLESS:
            yield ast.unparse(call)
        if isinstance(function, ast.Name) and function.id == "open" and any(map(mentions_typed, call.args)):
            yield ast.unparse(call)


def is_typed(node: ast.expr) -> bool:
    """Return whether an expression is such a path: paths.metrics, self._paths.rank_usage(3)."""
    if isinstance(node, ast.Call):
        node = node.func
    if not isinstance(node, ast.Attribute) or node.attr not in TYPED:
        return False
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return name.endswith("paths") or (isinstance(owner, ast.Call) and ast.unparse(owner.func).endswith("RunPaths"))


def mentions_typed(node: ast.expr) -> bool:
    return any(is_typed(inner) for inner in ast.walk(node) if isinstance(inner, ast.expr))


def test_nobody_else_reads_or_writes_records() -> None:
    found = {}
    for path in sorted(HOUSE.rglob("*.py")):
        name = str(path.relative_to(HOUSE))
        if name not in EXCEPTIONS and not name.startswith("records/"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found[name] = [*(imported(tree) & {*OPENS, "*"}), *opened(tree)]
    assert {name: uses for name, uses in found.items() if uses} == {}
    assert len(found) > 200


def test_every_exception_is_needed() -> None:
    for name in EXCEPTIONS:
        assert imported(ast.parse((HOUSE / name).read_text(encoding="utf-8"))) & {*OPENS, "*"}, name


def test_every_typed_file_is_one_of_a_run_directory() -> None:
    assert {name for name in TYPED if not hasattr(RunPaths("/runs/k3xq"), name)} == set()


@pytest.mark.parametrize(
    "line",
    [
        "paths.metrics.read_text()",
        "open(str(self._paths.progress))",
        "RunPaths(folder).state.read_bytes()",
        "now.paths.rank_usage(3).open('a')",
    ],
)
def test_a_module_that_opens_one_is_found(line: str) -> None:
    assert list(opened(ast.parse(line))) == [line]
    assert not list(opened(ast.parse("attempts.state(paths); paths.metrics.stat(); f'{paths.job.name}'")))
