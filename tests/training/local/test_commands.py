"""Every command as a user types it: names of runs, --json, exit codes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_runs import PYTHON, TELL, Here, Run
from tests.support.programs import ran

JOB = ("--cluster", "local", "--instances", "2")

# The safetensors layout without a tensor.
WEIGHTS = b"\2" + bytes(7) + b"{}"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    """One machine for the tests that only look."""
    made = Here(tmp_path_factory.mktemp("there"), forks=True)
    made.write("my_script.py", TELL)
    yield made
    made.end_everything()


@pytest.fixture(scope="module")
def ended(there: Here) -> Run:
    run = there.follow("python", "my_script.py")
    add_checkpoint(run)
    return run


def add_checkpoint(run: Run) -> None:
    folder = run.folder / "checkpoints" / "update-00000004"
    folder.mkdir(parents=True)
    files = {}
    for name, content in {"model.safetensors": WEIGHTS, "training.safetensors": WEIGHTS}.items():
        (folder / name).write_bytes(content)
        files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "index.json").write_text(json.dumps({"contract": 1, "update": 4, "files": files}))


WITHOUT_A_RUN = [
    ("plan", *JOB),
    ("render", *JOB),
    ("render", *JOB, "--explain"),
    ("render", *JOB, "-o", "rendered"),
    ("check", *JOB),
    ("submit", *JOB, "--dry-run"),
    ("list",),
    ("list", "--state", "running"),
    ("prune", "--older-than-days", "0"),
    ("data", "list"),
    ("data", "check", "digits"),
    ("cluster", "list"),
    ("cluster", "show", "pod16"),
    ("cluster", "check", "local"),
    ("cluster", "schema"),
    ("cluster", "init", "mine", "--from", "slurm-gpu"),
]


@pytest.mark.parametrize("words", WITHOUT_A_RUN, ids=" ".join)
def test_the_json_of_every_command_parses(there: Here, words: tuple[str, ...]) -> None:
    assert json.loads(there.run(*words, "--json").stdout) is not None  # some print a file, which has no version


OF_A_RUN = [
    ("status",),
    ("logs",),
    ("logs", "--rank", "1", "--follow"),
    ("cancel",),
    ("cancel", "--stop"),
    ("report",),
    ("export", "-o", "model.safetensors"),
]


@pytest.mark.parametrize("words", OF_A_RUN, ids=" ".join)
def test_the_json_of_every_command_on_a_run_parses(there: Here, ended: Run, words: tuple[str, ...]) -> None:
    command, *rest = words
    assert there.json(command, ended.id, *rest) is not None


def test_the_json_of_submit_and_resume_names_the_run(here: Here) -> None:
    run = here.submit("false")
    run.wait("FAILED")
    assert here.json("resume", run.id) == {"id": run.id, "folder": str(run.folder)}
    run.wait("FAILED")
    assert here.json("resume", run.id, "--follow", code=1)["attempt"] == 3


@pytest.mark.parametrize("words", [("status", "nobody"), ("plan", "--cluster", "nobody"), ("plan", "--instances", "0")])
def test_an_error_is_json_too(there: Here, words: tuple[str, ...]) -> None:
    assert there.json(*words, code=1)["error"]


def test_a_users_own_json_flag_stays_the_users(here: Here) -> None:
    run = here.follow("python", "-c", "import sys; print(sys.argv[1:])", "--json")
    assert "['--json']" in run.log(0)


@pytest.mark.parametrize("form", ["id", "prefix", "last", "path", "relative path"])
def test_a_run_is_found_by(there: Here, ended: Run, form: str) -> None:
    relative = Path("..") / ended.folder.relative_to(there.folder)
    asked = {"id": ended.id, "prefix": ended.id[:4], "last": "last", "path": str(ended.folder)}.get(form, str(relative))
    assert there.json("status", asked)["id"] == ended.id


def test_an_unknown_run_is_refused(there: Here, ended: Run) -> None:
    refused = there.run("status", "nobody", code=1).stderr
    assert refused == "trainjob: no run is called nobody: `trainjob list` shows 1 run\n"


def test_a_run_shows_in_the_list_with_its_state(there: Here, ended: Run) -> None:
    head, line = there.run("list").stdout.splitlines()
    assert head.split()[:2] == ["RUN", "STATE"]
    assert line.split()[:4] == [ended.id, "COMPLETED", "local", "1"]


def test_export_writes_the_newest_sound_checkpoint(there: Here, ended: Run) -> None:
    broken = ended.folder / "checkpoints" / "update-00000008"
    shutil.copytree(ended.folder / "checkpoints" / "update-00000004", broken)
    (broken / "model.safetensors").write_bytes(b"torn")
    output = there.run("export", ended.id, "-o", "model.safetensors")
    assert (there.project / "model.safetensors").read_bytes() == WEIGHTS
    assert "update-00000008 is passed over: model.safetensors has 4 bytes and should have 10" in output.stderr
    shutil.rmtree(broken)


def test_export_to_a_folder_that_is_not_there_is_refused(there: Here, ended: Run) -> None:
    refused = there.run("export", ended.id, "-o", "nowhere/model.safetensors", code=1).stderr
    assert "nowhere/model.safetensors can't be written: No such file or directory" in refused


def test_export_without_a_checkpoint_says_when_there_is_one(here: Here) -> None:
    run = here.follow("true")
    refused = here.run("export", run.id, "-o", "model.safetensors", code=1).stderr
    assert f"run {run.id} has no sound checkpoint yet" in refused


def test_prune_lists_first_and_removes_by_choice(here: Here) -> None:
    gone, kept = here.follow("false", code=1), here.staying()
    assert "1 run, " in here.run("prune", "--older-than-days", "0").stdout
    assert gone.folder.exists()
    here.run("prune", "--older-than-days", "0", "--yes")
    assert [one["id"] for one in here.json("list")] == [kept.id]
    assert [path.name for path in gone.folder.parent.iterdir()] == [kept.id]


def test_a_report_of_a_copied_folder_needs_no_index(there: Here, ended: Run, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(ended.folder, copied, symlinks=True)
    assert there.json("report", str(copied))["state"] == "COMPLETED"


@pytest.mark.parametrize(
    "words",
    [
        ("frobnicate",),
        ("resume",),
        ("status", "last", "--frobnicate"),
        ("plan", "--instances", "two"),
        ("list", "--state", "tired"),
        ("prune", "--state", "running"),
        ("render", "--set", "width"),
    ],
    ids=" ".join,
)
def test_usage_errors_end_with_2(there: Here, words: tuple[str, ...]) -> None:
    assert there.run(*words, code=2).stderr


BUG = """\
import sys
import trainjob.observe.index as index
def broken(asked):
    raise RuntimeError("not thought of")
index.find = broken
from trainjob.cli.main import main
main(["status", "abcd"])
"""


def test_a_bug_ends_with_3_and_a_log_and_no_traceback(here: Here) -> None:
    ended = ran([PYTHON, "-c", BUG], environ=here.environ)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "BUG: RuntimeError: not thought of" in ended.stderr
    assert "Traceback" not in ended.stderr
    log = Path(ended.stderr.split()[-1])
    assert log.is_relative_to(here.folder / "data" / "trainjob" / "bugs")
    assert "Traceback" in log.read_text()
    assert "['status', 'abcd']" in log.read_text()


def test_a_bug_has_a_log_where_the_data_folder_cannot_be_written(here: Here) -> None:
    (here.folder / "data").write_text("a file where the data folder belongs")
    ended = ran([PYTHON, "-c", BUG], environ=here.environ)
    log = Path(ended.stderr.split()[-1])
    assert (ended.returncode, "Traceback" in ended.stderr, log.exists()) == (3, False, True)
    log.unlink()


def complete(there: Here, line: str) -> list[str]:
    environ = {"_TRAINJOB_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    return there.run(environ=environ).stdout.split()


def test_the_shell_completes_commands(there: Here) -> None:
    assert complete(there, "trainjob sub") == ["submit"]
    assert {"render", "rehearse", "resume"} <= set(complete(there, "trainjob re"))


def test_the_shell_completes_clusters(there: Here) -> None:
    assert complete(there, "trainjob plan --cluster pod1") == ["pod16", "pod128"]


def test_the_shell_completes_run_ids(there: Here, ended: Run) -> None:
    assert complete(there, f"trainjob logs {ended.id[:3]}") == [ended.id]


def test_the_shell_completes_flags(there: Here) -> None:
    assert complete(there, "trainjob submit --acc") == ["--accumulation"]
