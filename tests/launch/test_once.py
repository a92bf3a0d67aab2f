"""Steps before ranks, as processes: what they get, how they end, and that a shared cache is filled by one at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.local_runs import command_of, every_process
from tests.support.waiting import LIMIT_S, until
from trainjob.cluster.reading import job_from_text
from trainjob.contract.paths import CONTRACT, RunPaths
from trainjob.records import causes, failure

# Downloads as `hf download` did where flock locks nothing: two at once append to one file.
# What it finds half done by another is an error.
HF = """\
import os, pathlib, sys, time
cache = pathlib.Path(os.environ["HF_HOME"])
cache.mkdir(parents=True, exist_ok=True)
blob, part = cache / "blob", cache / "blob.incomplete"
if blob.exists():
    sys.exit(print("is in the cache"))
if part.exists():
    sys.exit("another process writes to blob.incomplete")
for _ in range(20):
    with part.open("a") as stream:
        stream.write("weights\\n")
    time.sleep(0.02)
part.rename(blob)
print("downloaded")
"""


class Prepared:
    """A run directory whose job has steps."""

    def __init__(self, folder: Path, **once: list[dict[str, Any]]) -> None:
        self.paths = RunPaths(folder)
        (folder / "code").mkdir(parents=True)
        (folder / "logs").mkdir()
        asked = {"cluster": {"file": {}}, "job": {"once": once}}
        job = {"contract": CONTRACT, "train": None, "command": ["true"], "environment": {}, "asked": asked}
        self.paths.job.write_text(json.dumps(job))

    def start(self, attempt: int = 1, **environ: str) -> subprocess.Popen[str]:
        self.paths.attempt.write_text(f"{attempt}\n")
        return subprocess.Popen(
            [sys.executable, "-m", "trainjob.launch.once", str(self.paths.folder)],
            env={**os.environ, "TRAINJOB_RUN_DIR": str(self.paths.folder), "TRAINJOB_ATTEMPT": str(attempt), **environ},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, attempt: int = 1, **environ: str) -> tuple[int, str]:
        return ended(self.start(attempt, **environ))

    def log(self, number: int = 1) -> str:
        path = self.paths.step_log("job", number)
        return path.read_text() if path.exists() else ""


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a process, and what it has said."""
    _, output = process.communicate(timeout=LIMIT_S)
    return process.returncode, output


def running(*words: str) -> list[int]:
    return [pid for pid in every_process() if command_of(pid) == list(words)]


def test_a_step_is_done_once_over_all_attempts_and_again_if_it_changes(tmp_path: Path) -> None:
    step = {"shell": 'echo "$TRAINJOB_ATTEMPT" >>"$TRAINJOB_RUN_DIR/times"'}
    prepared = Prepared(tmp_path / "run", job=[step])
    assert [prepared.run(attempt)[0] for attempt in (1, 2)] == [0, 0]
    assert (tmp_path / "run" / "times").read_text() == "1\n"
    job = json.loads(prepared.paths.job.read_text())
    job["asked"]["job"]["once"]["job"][0]["shell"] += " # and more"
    prepared.paths.job.write_text(json.dumps(job))
    assert prepared.run(3)[0] == 0
    assert (tmp_path / "run" / "times").read_text() == "1\n3\n"


def test_words_reach_the_program_as_they_were_typed(tmp_path: Path) -> None:
    words = ["$HOME", "$(touch hacked)", "a  b", "'\"", ""]
    prepared = Prepared(
        tmp_path / "run", job=[{"run": [sys.executable, "-c", "import sys; print(sys.argv[1:])", *words]}]
    )
    assert prepared.run()[0] == 0
    assert prepared.log().splitlines()[1] == repr(words)


def test_the_first_step_that_fails_ends_the_job_with_its_cause(tmp_path: Path) -> None:
    steps = [{"shell": "echo no space; exit 3", "name": "model"}, {"shell": "echo never"}]
    prepared = Prepared(tmp_path / "run", job=steps)
    code, output = prepared.run()
    assert (code, prepared.log(2)) == (3, "")
    assert "step model (once.job) failed with exit code 3" in output
    failed = failure.read(prepared.paths)
    assert failed is not None
    assert (failed.who, failed.exit_code, failed.tail) == ("step model (once.job)", 3, ["no space"])
    cause = causes.of_run(prepared.paths)
    assert cause is not None
    assert cause.code == causes.STEP_FAILED
    assert cause.text == f"step model (once.job) on host {os.uname().nodename} failed with exit code 3"
    assert prepared.run(2)[0] == 3  # a step that failed is tried again by the next attempt


def test_a_known_reason_is_named_with_its_cure(tmp_path: Path) -> None:
    line = "echo 'OSError: [Errno 28] No space left on device' >&2; exit 1"
    prepared = Prepared(tmp_path / "run", job=[{"shell": line}])
    assert prepared.run()[0] == 1
    cause = causes.of_run(prepared.paths)
    assert cause is not None
    assert cause.text.endswith("failed with exit code 1: a disk is full")
    assert "trainjob prune" in cause.cure


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path / "run", job=[{"run": ["no-such-program-3141"]}])
    assert prepared.run()[0] == 127
    failed = failure.read(prepared.paths)
    assert failed is not None
    assert failed.tail == ["can't start no-such-program-3141: No such file or directory"]


def test_a_step_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path / "run", job=[{"shell": "sleep 2718.1 & sleep 2718.2", "timeout_s": 0.5}])
    assert prepared.run()[0] == 124
    until(lambda: not running("sleep", "2718.1") and not running("sleep", "2718.2"), "the step's processes to end")
    cause = causes.of_run(prepared.paths)
    assert cause is not None
    assert (cause.code, "in the 0.5 s" in cause.text) == (causes.STEP_TIMEOUT, True)


def test_what_a_step_leaves_running_ends_with_it(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path / "run", job=[{"shell": "sleep 2718.3 & setsid --fork sleep 2718.31"}])
    assert prepared.run()[0] == 0
    assert not running("sleep", "2718.31")  # of a session of its own
    until(lambda: not running("sleep", "2718.3"), "what the step has left to end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_step_and_is_no_failure_of_it(tmp_path: Path, number: signal.Signals) -> None:
    shell = "setsid --fork sleep 2718.41; echo begun; sleep 2718.4; echo never"
    prepared = Prepared(tmp_path / "run", job=[{"shell": shell}])
    process = prepared.start()
    until(lambda: "begun" in prepared.log(), "the step to begin")
    process.send_signal(number)
    assert ended(process)[0] == 128 + signal.SIGTERM
    assert not running("sleep", "2718.41")
    until(lambda: not running("sleep", "2718.4"), "the step to end")
    assert failure.read(prepared.paths) is None
    assert "never" not in prepared.log()


def test_a_newer_attempt_ends_the_step_of_an_older_one(tmp_path: Path) -> None:
    line = 'echo begun $TRAINJOB_ATTEMPT; if [[ "$TRAINJOB_ATTEMPT" == 1 ]]; then sleep 2718.5; fi'
    prepared = Prepared(tmp_path / "run", job=[{"shell": line}])
    older = prepared.start()
    until(lambda: "begun 1" in prepared.log(), "the step to begin")
    assert prepared.run(2)[0] == 0
    assert ended(older)[0] == 1
    assert not running("sleep", "2718.5")


def test_a_rehearsal_skips_steps_as_it_skips_the_prologue(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path / "run", job=[{"shell": "exit 3", "name": "model"}])
    code, output = prepared.run(TRAINJOB_PROLOGUE="skip")
    assert (code, output) == (0, "trainjob: rehearsal: skipping step model (once.job) (and the prologue)\n")


def test_a_cache_that_runs_share_is_never_filled_by_two_at_once(tmp_path: Path) -> None:
    (tmp_path / "hf.py").write_text(HF)
    cache = tmp_path / "cache"
    step = {"run": [sys.executable, str(tmp_path / "hf.py")], "lock": str(cache / ".trainjob-lock")}
    runs = [Prepared(tmp_path / f"run-{number}", job=[step]) for number in range(4)]
    ends = [ended(process) for process in [run.start(HF_HOME=str(cache)) for run in runs]]
    assert [code for code, _ in ends] == [0] * 4, [run.log() for run in runs]
    assert sorted(run.log().splitlines()[-1] for run in runs) == ["downloaded", *["is in the cache"] * 3]
    assert (cache / "blob").read_text() == "weights\n" * 20
    assert any("waits for run-" in output for _, output in ends)


def test_the_step_in_the_docs_fills_a_cache_that_jobs_share_and_keeps_ranks_from_it(tmp_path: Path) -> None:
    """With a small stand-in for hf: the page's own lines, their folder moved here."""
    page = (ROOT / "docs" / "your-own-script.md").read_text()
    block = next(part for part in page.split("```yaml\n") if "hf, download" in part).partition("```")[0]
    job = job_from_text(block.replace("/shared/hf", str(tmp_path / "cache")), "docs")
    hf = tmp_path / "bin" / "hf"
    hf.parent.mkdir()
    hf.write_text(f"#!{sys.executable}\nimport os\nassert os.environ['HF_HUB_OFFLINE'] == '0'\n{HF}")
    hf.chmod(0o755)
    runs = [Prepared(tmp_path / f"run-{number}", job=job.once["job"]) for number in range(3)]
    environ = {**job.env, "PATH": f"{hf.parent}:{os.environ['PATH']}"}
    ends = [ended(process) for process in [run.start(1, **environ) for run in runs]]
    assert [code for code, _ in ends] == [0] * 3, [run.log() for run in runs]
    assert sorted(run.log().splitlines()[-1] for run in runs) == ["downloaded", *["is in the cache"] * 2]
    assert job.env["HF_HUB_OFFLINE"] == "1"


def test_elements_of_an_array_do_the_steps_of_the_job_once_for_all(tmp_path: Path) -> None:
    step = {"shell": f'echo "$TRAINJOB_RUN_DIR" >>{tmp_path}/times; sleep 0.3'}
    elements = [Prepared(tmp_path / "run" / "tasks" / str(number), job=[step]) for number in range(3)]
    assert [ended(process)[0] for process in [element.start() for element in elements]] == [0] * 3
    assert len((tmp_path / "times").read_text().splitlines()) == 1


def test_ranks_of_a_node_do_its_steps_once_and_each_attempt_does_them_again(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path / "run", node=[{"shell": f"echo $TRAINJOB_ATTEMPT >>{tmp_path}/times; sleep 0.3"}])

    def rank(number: int, node: str, attempt: int) -> subprocess.Popen[str]:
        place = {"RANK": number, "LOCAL_RANK": number % 2, "SIZE": 4, "LOCAL_SIZE": 2}
        names = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in place.items()}
        prepared.paths.attempt.write_text(f"{attempt}\n")
        words = [sys.executable, "-m", "trainjob.launch", "--launcher", "openmpi", str(prepared.paths.folder)]
        reported = {"SLURMD_NODENAME": node, "TRAINJOB_ATTEMPT": str(attempt), "MASTER_ADDR": "127.0.0.1"}
        command = [sys.executable, "-c", f"print(open('{tmp_path}/times').read().split())"]
        environ = {**os.environ, **names, **reported, "MASTER_PORT": "29999"}
        return subprocess.Popen([*words, "--", *command], env=environ, stderr=subprocess.PIPE, text=True)

    for attempt in (1, 2):
        ends = [ended(process) for process in [rank(number, f"n{number // 2}", attempt) for number in range(4)]]
        assert [code for code, _ in ends] == [0] * 4, ends
    assert sorted((tmp_path / "times").read_text().split()) == ["1", "1", "2", "2"]
