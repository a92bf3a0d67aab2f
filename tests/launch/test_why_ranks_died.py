"""Ranks that really die: the launcher records what it saw, and the table names the cause."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.records import causes, failure, software
from trainjob.records.causes import Cause
from trainjob.records.failure import Failure
from trainjob.records.job import ClusterRecord, RequestRecord

# x86's ud2 and what the other processor of servers has for it, in memory that can be executed.
_ILLEGAL = """\
import ctypes, mmap, platform
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write({"x86_64": b"\\x0f\\x0b", "aarch64": b"\\0\\0\\0\\0"}[platform.machine()])
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""
_REFUSED_MEMORY = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28)); bytearray(1 << 30)"
_FULL_DISK = "open('/dev/full', 'w', buffering=1).write('x\\n')"
DEATHS = {
    "segmentation-fault": "import ctypes; ctypes.string_at(0)",
    "illegal-instruction": _ILLEGAL,
    "out-of-memory": _REFUSED_MEMORY,
    "disk-full": _FULL_DISK,
    "import-error": "import no_such_module_anywhere",
    "exception": "{}['missing']",
    "abort": "import os; os.abort()",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "crash-at-the-end": "import ctypes; libc = ctypes.CDLL(None); libc.__cxa_atexit(libc.abort, None, None)",
}


def died(folder: Path, program: str, within: Path | None = None, flags: tuple[str, ...] = ()) -> tuple[Failure, str]:
    """Return what the launcher recorded of one rank that runs `program`, and what it printed."""
    (folder / "code").mkdir(parents=True, exist_ok=True)
    launch = [sys.executable, "-m", "trainjob.launch", "--launcher", "local", *flags]
    words = [*launch, str(folder), "--", sys.executable, "-c", program]
    if within is not None:
        words = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(within), *words]
    ended = ran(words, timeout_s=60)
    assert ended.returncode != 0
    recorded = failure.read(RunPaths(folder))
    assert recorded is not None, ended.stderr
    return recorded, ended.stderr


def cause_of(recorded: Failure) -> Cause:
    cause = causes.of_failure(recorded)
    assert cause is not None, recorded
    return cause


@pytest.mark.parametrize("code", DEATHS)
def test_the_launcher_names_why_a_rank_died(tmp_path: Path, code: str) -> None:
    recorded, printed = died(tmp_path, DEATHS[code])
    cause = cause_of(recorded)
    assert cause.code == code, cause
    assert f"trainjob: {cause}" in printed.splitlines()


@pytest.mark.parametrize("word", ["no-such-python", "/no/such/python"])
def test_a_program_that_is_not_there_is_not_told_as_a_missing_folder(tmp_path: Path, word: str) -> None:
    (tmp_path / "code").mkdir()
    ended = ran(
        [sys.executable, "-m", "trainjob.launch", "--launcher", "local", str(tmp_path), "--", word], timeout_s=60
    )
    assert ended.returncode == 127
    assert f"the program {word} is not there" in ended.stderr
    log = (tmp_path / "logs/rank-0000.log").read_text()
    assert f"can't start {word} in" in log
    assert ("no such program on the job's PATH, " in log) == ("/" not in word)


def test_a_script_that_raised_has_not_ended_in_order_when_its_process_aborts(tmp_path: Path) -> None:
    recorded, _ = died(tmp_path, f"{DEATHS['crash-at-the-end']}; {{}}['missing']")
    assert recorded.exit_code == 134
    assert not recorded.script_has_ended


def test_a_signal_from_outside_and_the_ranks_memory_are_recorded(tmp_path: Path) -> None:
    recorded, _ = died(tmp_path, "import os; held = bytearray(200 << 20); os.kill(os.getpid(), 9)")
    assert (recorded.signal, recorded.exit_code) == (9, 137)
    assert recorded.memory is not None
    assert recorded.memory.used_bytes > 200e6
    assert recorded.memory.limit_bytes >= recorded.memory.used_bytes


def test_an_exit_code_above_128_is_no_signal_from_outside(tmp_path: Path) -> None:
    recorded, _ = died(tmp_path, "raise SystemExit(137)")
    assert (recorded.signal, recorded.exit_code) == (None, 137)


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group with 100 MB of memory and no swap."""
    for top, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(top) / f"trainjob-test-{uuid.uuid4().hex}"
        try:
            group.mkdir()
            (group / limit).write_text(str(100 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("a control group with a memory limit takes root and a writable /sys/fs/cgroup")


def test_the_kernel_kills_a_rank_for_its_memory(tmp_path: Path, limited: Path) -> None:
    recorded, printed = died(tmp_path, "held = [bytearray(1 << 20) for _ in range(1000)]", within=limited)
    assert recorded.signal == 9
    assert recorded.memory is not None
    assert recorded.memory.kills >= 1
    assert "was killed for memory: killed by signal 9 from outside; memory was 0.1 of 0.1 GB" in printed
    assert cause_of(recorded).code == "out-of-memory"


def under_slurm(monkeypatch: pytest.MonkeyPatch, rank: int = 0) -> None:
    slurm = {"SLURM_LOCALID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_ID": "7"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in {**slurm, **meeting, "SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank)}.items():
        monkeypatch.setenv(name, value)


_LOSES_ITS_GPU = "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')"


@pytest.mark.parametrize(
    ("program", "checkpoint", "marked"),
    [(_LOSES_ITS_GPU, True, True), (_LOSES_ITS_GPU, False, False), ("import no_such_module_anywhere", True, False)],
    ids=["lost device", "lost device before a checkpoint", "import error"],
)
def test_only_what_another_attempt_may_survive_leaves_the_marker_for_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, checkpoint: bool, marked: bool
) -> None:
    under_slurm(monkeypatch)
    if checkpoint:
        RunPaths(tmp_path).checkpoint(40).mkdir(parents=True)
    died(tmp_path, program, flags=("--launcher", "slurm"))
    marker = RunPaths(tmp_path).requeue
    assert marker.exists() == marked
    assert not marked or marker.read_text() == "40\n"


@pytest.mark.parametrize(("stated", "code"), [({}, 0), ({"same_packages": "required"}, 1)], ids=["warn", "required"])
def test_a_host_with_other_software_is_warned_of_or_refused_as_the_cluster_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: dict[str, str], code: int
) -> None:
    under_slurm(monkeypatch, rank=1)
    cluster = ClusterRecord("c", {"kind": "slurm", **stated})
    RunPaths(tmp_path).job.write_text(record(request=RequestRecord(cluster, {})).to_json())
    (tmp_path / "code").mkdir()
    software.record(RunPaths(tmp_path), software.HostSoftware(1, 0, "n1", {"python": "3.8.1"}))
    launch = [sys.executable, "-m", "trainjob.launch", "--launcher", "slurm", str(tmp_path), "--", "true"]
    ended = ran(launch, timeout_s=60, code=code)
    assert "the hosts of this run have different software: " in ended.stderr
    assert "python is 3.8.1 on n1 and" in ended.stderr


def test_on_one_machine_nothing_restarts_so_no_marker_is_left(tmp_path: Path) -> None:
    RunPaths(tmp_path).checkpoint(40).mkdir(parents=True)
    died(tmp_path, _LOSES_ITS_GPU)
    assert not RunPaths(tmp_path).requeue.exists()
    assert sorted(os.listdir(tmp_path / "hosts")) == ["kinds", "rank-0000.json"]
