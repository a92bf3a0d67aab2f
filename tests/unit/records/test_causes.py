"""Which cause the table finds: in lines that real programs have written, by signal, and in what Slurm says."""

from __future__ import annotations

import signal

import pytest

from tests.support.cases import each
from trainjob.records import causes
from trainjob.records.causes import Cause
from trainjob.records.failure import Evidence, MemoryUse

# As the programs print them; where the hardware is at hand, the tests of services provoke them.
PRINTED = {
    "no-program": ["trainjob: can't start python in /r/code/project: no such program on the job's PATH, /usr/bin:/bin"],
    "other-device": [
        "RuntimeError: CUDA error: invalid device ordinal",
        "torch.AcceleratorError: CUDA error: invalid device ordinal",
    ],
    "nccl-without-gpu": [
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: Distributed package doesn't have NCCL built in",
    ],
    "torch-without-gpu": ["AssertionError: Torch not compiled with CUDA enabled"],
    "address-in-use": [
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "OSError: [Errno 98] Address already in use",
    ],
    "cuda-out-of-memory": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
    "device-assert": ["RuntimeError: CUDA error: device-side assert triggered"],
    "lost-device": [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "[ 1234.5] NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
        "RuntimeError: CUDA error: unspecified launch failure",
    ],
    "nccl-timeout": [
        "[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
        "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.",
    ],
    "nccl-connection": [
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ],
    "stalled": ["trainjob: no progress for 600 s (--stall-timeout-s): rank 1 has been computing update 57"],
    "disk-full": ["OSError: [Errno 28] No space left on device: 'out.bin'"],
    "disk-quota": ["OSError: [Errno 122] Disk quota exceeded: 'out.bin'"],
    "shared-memory": [
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit. unexpected bus error",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_4980_0>: No space left on device (28)",
        "RuntimeError: unable to write to file </torch_4980_0>: No space left on device (28)",
        "    sl = self._semlock = _multiprocessing.SemLock(",
    ],
    "import-error": [
        "ModuleNotFoundError: No module named 'timm'",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "trainjob: task m:T raised ModuleNotFoundError in <module> (m.py, line 1); its traceback is above",
    ],
    "not-finite": [
        "trainjob: the loss of update 7 is nan: take a smaller learning rate",
        "Loss is nan, stopping training",
    ],
    "needs-gpu": ["ValueError: SyncBatchNorm expected input tensor to be on GPU or XPU or privateuseone"],
    "lost-peer": ["trainjob: rank 0 lost its connection to another rank (Connection closed by peer)"],
    "out-of-memory": [
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3.64 TiB for an array with shape (1, 2)",
    ],
}


def cause(lines: list[str], **seen: object) -> Cause:
    known = causes.cause_of(Evidence(**{"exit_code": 1, "rank": 1, "lines": lines, **seen}))  # type: ignore[arg-type]
    assert known is not None
    return known


@each(("code", "line"), [(code, line) for code, lines in PRINTED.items() for line in lines])
def test_a_line_tells_the_cause(code: str, line: str) -> None:
    printed = ["Traceback (most recent call last):", line, "trainjob: later words"]
    known = cause(printed)
    assert known.code == code
    # torch puts the rank in front, once the rank has joined a group.
    assert cause([f"[rank1]: {one}" for one in printed]) == known


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGSEGV, "segmentation-fault"),
        (signal.SIGILL, "illegal-instruction"),
        (signal.SIGBUS, "shared-memory"),
        (signal.SIGABRT, "abort"),
        (signal.SIGKILL, "killed"),
    ],
)
def test_a_signal_tells_the_cause_whether_seen_or_in_an_exit_code(number: int, code: str) -> None:
    assert cause([], signal=number, exit_code=128 + number).code == code
    assert cause([], exit_code=128 + number).code == code


@pytest.mark.parametrize(("number", "crash"), [(signal.SIGABRT, "aborted"), (signal.SIGSEGV, "crashed")])
def test_a_crash_after_the_scripts_own_end_is_distinguished_from_one_at_work(number: int, crash: str) -> None:
    lines = ["terminate called without an active exception"]
    at_work = cause(lines, signal=number)
    after = cause(lines, signal=number, script_has_ended=True)
    assert at_work.code != after.code == "crash-at-the-end"
    assert f"rank 1 {crash} after its script had ended without an error" in after.text
    assert "destroy_process_group()" in after.cure


def test_flags_of_tasks_are_not_proposed_to_a_command() -> None:
    of_tasks = [row.cure for row in causes.ROWS if "--micro-batch" in row.cure]
    assert of_tasks
    assert all("(a task: " in cure.partition("--micro-batch")[0] for cure in of_tasks)


def test_killed_for_memory_states_the_figures() -> None:
    known = cause([], signal=9, exit_code=137, host="n7", memory=MemoryUse(3_900_000_000, 4_000_000_000, kills=1))
    assert known.code == "out-of-memory"
    assert known.text == (
        "rank 1 on host n7 was killed for memory: killed by signal 9 from outside; memory was 3.9 of 4.0 GB"
    )
    assert not known.resume


def test_killed_near_its_limit_is_probably_memory_and_far_from_it_somebody_else() -> None:
    near = cause([], signal=9, exit_code=137, memory=MemoryUse(3_900_000_000, 4_000_000_000))
    assert "was probably killed for memory" in near.text
    far = cause([], signal=9, exit_code=137, memory=MemoryUse(400_000_000, 4_000_000_000))
    assert (far.code, far.resume) == ("killed", True)
    assert "memory was 0.4 of 4.0 GB" in far.text


def test_a_loader_process_that_was_killed_for_memory_is_named() -> None:
    line = "RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed. "
    known = cause([line], memory=MemoryUse(3_900_000_000, 4_000_000_000, kills=1))
    assert known.text.startswith("a loader process of rank 1 was killed for memory")


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "srun: error: n1: task 0: Out Of Memory",
    ],
)
def test_slurm_says_it_where_no_rank_is_known(line: str) -> None:
    known = causes.cause_of(Evidence(exit_code=1, lines=[line]))
    assert known is not None
    assert known.code == "out-of-memory"


def test_an_exception_is_named_and_resuming_would_meet_it_again() -> None:
    known = cause(["Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'x'"])
    assert (known.code, known.text, known.resume) == ("exception", "rank 1 raised KeyError: 'x'", False)


CHAIN = """\
Traceback (most recent call last):
  File "nms.py", line 7, in register
RuntimeError: operator torchvision::nms does not exist

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "models.py", line 3, in load
ValueError: could not import PreTrainedModel

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 1, in <module>
TypeError: no model
""".splitlines()


def test_of_chained_exceptions_the_first_is_reported_as_well() -> None:
    first = "it began with RuntimeError: operator torchvision::nms does not exist"
    assert cause(CHAIN).text == f"rank 1 raised TypeError: no model; {first}"
    # Also where the last one is a cause of its own: what is to be mended is the first.
    known = cause([*CHAIN[:7], "ImportError: could not import PreTrainedModel"])
    assert known.code == cause(["ImportError: could not import PreTrainedModel"]).code
    assert known.text.endswith(f"what it needs: could not import PreTrainedModel; {first}")
    assert known.cure == "Mend what it began with; the traceback in its log shows where"
    # An error that was handled, and has nothing to do with the last one.
    alone = ["KeyError: 'x'", "Traceback (most recent call last):", '  File "a.py", line 3', "TypeError: no model"]
    assert cause(alone).text == "rank 1 raised TypeError: no model"


def test_the_lock_of_torchs_extensions_that_a_rank_waits_for_is_named() -> None:
    report = [
        "trainjob: rank 1 has shown no sign of life for 600 s (--stall-timeout-s): no output, no CPU time and no work",
        '    File "/venv/lib/python3.11/site-packages/torch/utils/file_baton.py", line 49 in wait',
        '    File "/venv/lib/python3.11/site-packages/torch/utils/cpp_extension.py", line 1912 in _jit_compile',
    ]
    assert cause(report).code == "stale-lock"


@pytest.mark.parametrize("output", ["traps: python3[99] trap invalid opcode ip:7f", "python3[99]: segfault at 0 ip 7f"])
def test_another_process_of_the_host_that_crashed_is_no_cause(output: str) -> None:
    raised = ["Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'x'"]
    assert cause(raised, kernel=[output]) == cause(raised)


def test_a_failed_import_names_what_was_not_found() -> None:
    assert cause(["ModuleNotFoundError: No module named 'timm'"]).text.endswith("what it needs: No module named 'timm'")


def test_our_own_last_words_are_the_cause() -> None:
    known = cause(["trainjob: data set cifar10 is not prepared: prepare it"])
    assert (known.code, known.text) == ("refused", "rank 1: data set cifar10 is not prepared: prepare it")
    assert known.resume
    raised = cause(["trainjob: the task raised ValueError: its traceback is above"])
    assert (raised.code, raised.resume) == ("exception", False)


def test_nothing_known_is_no_cause() -> None:
    assert causes.cause_of(Evidence(exit_code=3, rank=0, lines=["epoch 1 of 3"])) is None


def test_a_cause_says_only_what_is_known_of_it() -> None:
    known = Cause("code", "it failed", "mend it")
    assert (known.resume, known.restart, known.blames_node) == (True, False, False)
    assert {row.code for row in causes.ROWS if row.blames_node} == {"lost-device", "node-check"}


def test_only_what_may_pass_is_restarted_and_what_is_restarted_can_be_resumed() -> None:
    restarted = {row.code for row in causes.ROWS if row.restart}
    assert restarted == {"lost-device", "nccl-connection", "nccl-timeout", "node-check"}
    assert all(row.resume for row in causes.ROWS if row.restart)
    assert {row.code for row in causes.ROWS if not row.resume} == {
        *("abort", "illegal-instruction", "segmentation-fault", "import-error", "no-program", "not-finite"),
        *("cuda-out-of-memory", "device-assert", "needs-gpu", "nccl-without-gpu", "other-device", "torch-without-gpu"),
    }


@pytest.mark.parametrize(("code", "number"), [(128, None), (129, 1), (192, 64), (193, None)])
def test_an_exit_code_stands_for_a_signal_that_there_is(code: int, number: int | None) -> None:
    assert Evidence(exit_code=code).ended_by == number


def test_the_cure_of_a_server_that_ended_is_a_command_that_can_be_typed() -> None:
    known = causes.cause_of(Evidence(exit_code=3, step="role server", why="role server ended", lines=["bye"]))
    assert known is not None
    assert known.code == causes.ROLE_ENDED
    assert "`trainjob logs --role server`" in known.cure
