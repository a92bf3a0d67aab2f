"""Causes of failures: one table from the evidence (exit code, signal, last lines, memory, kernel) to cause and advice.

The launcher records what only its host can see in failure.json; `cause_of` derives the cause from that, wherever it is
needed. A new cause is a new row.
"""

from __future__ import annotations

import re
import signal
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from trainjob.contract.errors import ERROR
from trainjob.contract.paths import RunPaths
from trainjob.records import failure
from trainjob.records.failure import Evidence, Failure


@dataclass(frozen=True)
class Cause:
    """The reason why a run ended. `text` states it, `cure` says what to do.

    `resume`: once the cure is applied, `trainjob resume` can continue this run. `restart`: the same job may succeed
    unchanged, so that Slurm may start it again by itself.
    """

    code: str
    text: str
    cure: str
    resume: bool = True
    restart: bool = False
    blames_node: bool = False  # another node may not fail
    severity: str = ERROR
    where: str = ""

    def __str__(self) -> str:
        return "%s. %s" % (self.text, self.cure) if self.cure else self.text

    def as_json(self) -> Dict[str, Any]:
        """Return the cause for `--json`."""
        return asdict(self)


class CauseRow(NamedTuple):
    """A cause, and what shows it."""

    code: str
    text: str  # "%(who)s" is the rank; other names are groups of the pattern, of which "said" is added at its end
    cure: str
    pattern: Optional[Pattern[str]] = None  # of a line that was printed, or that the kernel wrote
    signals: Tuple[int, ...] = ()
    resume: bool = True
    restart: bool = False
    blames_node: bool = False


def cause_of(seen: Evidence) -> Optional[Cause]:
    """Return the most specific cause that fits; None if nothing is known."""
    seen = replace(seen, lines=[failure.without_rank(line) for line in seen.lines])
    return (
        _of_step(seen)
        or _not_enough_memory(seen)
        or _after_its_end(seen)
        or _from_table(seen)
        or _from_last_words(seen)
    )


def of_failure(failed: Failure) -> Optional[Cause]:
    """Return the cause of a failure that the launcher recorded."""
    return cause_of(failure.evidence_of_failure(failed))


def of_run(paths: RunPaths, note: Optional[str] = None, printed: Optional[Sequence[str]] = None) -> Optional[Cause]:
    """Return why a run that did not complete ended, from what `evidence_of_run` takes."""
    return cause_of(failure.evidence_of_run(paths, note, printed))


def _line(*patterns: str) -> Pattern[str]:
    return re.compile("|".join(patterns))


# The code of a node that did not pass the node check: nothing had begun there.
BAD_NODE = "node-check"
# The host's memory, not a GPU's.
OUT_OF_MEMORY = "out-of-memory"
# From the most specific to the most general: the first row that fits is the cause.
ROWS: List[CauseRow] = [
    CauseRow(
        BAD_NODE,
        "node %(node)s did not pass the node check: %(why)s",
        "Tell the administrator, and keep the job off that host (on Slurm: directives.exclude)",
        _line(r"node (?P<node>\S+) did not pass the node check: (?P<why>.*)"),
        restart=True,
        blames_node=True,
    ),
    CauseRow(
        "no-program",
        "%(who)s: the program %(program)s is not there",
        "Name the interpreter of your environment in the cluster file (python: /path/to/python): its folder comes "
        "first on the job's PATH",
        _line(r"^trainjob: can't start (?P<program>\S+) in .*: no such program"),
        resume=False,
    ),
    CauseRow(
        "not-finite",
        "the loss or the weights of %(who)s became infinite or not a number",
        "Submit a new run with a smaller learning rate, or look at the samples of that update: resuming would compute "
        "the same numbers again",
        _line(r"loss of update \d+ is (nan|-?inf)", r"weights are infinite or not a number", r"[Ll]oss is (nan|inf)"),
        resume=False,
    ),
    CauseRow(
        "cuda-out-of-memory",
        "%(who)s ran out of GPU memory",
        "Pass fewer samples through the model at once and accumulate more gradients, which keeps the global batch "
        "(a task: --micro-batch, --accumulation), or compute in 16 bits (--precision bf16). Other programs on the GPU "
        "count as well: nvidia-smi",
        _line(r"CUDA out of memory", r"OutOfMemoryError", r"CUDA error: out of memory", r"CUBLAS_STATUS_ALLOC_FAILED"),
        resume=False,
    ),
    CauseRow(
        "device-assert",
        "%(who)s gave a GPU kernel an invalid index, most often a label outside of the classes",
        "Run one update on the CPU, where the error names the line: trainjob rehearse",
        _line(r"device-side assert triggered"),
        resume=False,
    ),
    CauseRow(
        "other-device",
        "%(who)s asks for a GPU that it does not have",
        "Where each rank sees one GPU alone (--gpus-per-task=1, for example), it is cuda:0 in all of them: take "
        "LOCAL_RANK % torch.cuda.device_count(), or let each rank see all GPUs of its node",
        _line(r"invalid device ordinal"),
        resume=False,
    ),
    CauseRow(
        "torch-without-gpu",
        "%(who)s trains on a GPU, and its torch was built for CPUs only",
        "Install a torch for CUDA or ROCm, or name an interpreter that has one (python: in the cluster file)",
        _line(r"Torch not compiled with CUDA enabled"),
        resume=False,
    ),
    CauseRow(
        "address-in-use",
        "%(who)s can't listen on its port, because another process of the host does",
        "Resume it, and another port is chosen, unless the script or network.port in the cluster file states one. A "
        "script that starts its ranks itself is started once a node: --command-per node",
        _line(r"EADDRINUSE", r"[Aa]ddress already in use"),
    ),
    CauseRow(
        "needs-gpu",
        "%(who)s has a SyncBatchNorm, which torch computes on GPUs only",
        "On CPUs, train with the plain BatchNorm: call convert_sync_batchnorm only if torch.cuda.is_available()",
        _line(r"SyncBatchNorm expected input tensor to be on"),
        resume=False,
    ),
    CauseRow(
        "lost-device",
        "%(who)s lost its GPU",
        "Tell the administrator, and keep the job off that host (on Slurm: directives.exclude)",
        _line(
            r"NVRM: Xid",
            r"uncorrectable ECC error",
            r"GPU is lost",
            r"fallen off the bus",
            r"CUDA error: (unspecified launch failure|unknown error|an illegal instruction was encountered)",
            r"CUDA error: all CUDA-capable devices are busy or unavailable",
        ),
        restart=True,
        blames_node=True,
    ),
    CauseRow(
        "nccl-without-gpu",
        "%(who)s uses NCCL, which needs a GPU, and has none",
        "Use gloo where there is no GPU. A script that forms a group wherever RANK is set trains alone "
        "where it isn't: give one instance the command env -u RANK python train.py",
        _line(r"ProcessGroupNCCL is only supported with GPUs", r"Distributed package doesn't have NCCL built in"),
        resume=False,
    ),
    CauseRow(
        "nccl-timeout",
        "%(who)s timed out waiting for the other ranks in an NCCL collective",
        "Look for the rank that hung or died (trainjob logs), and at the network between the hosts: network.interface "
        "in the cluster file, NCCL_DEBUG=INFO in the job's environment",
        _line(
            r"Watchdog caught collective operation timeout",
            r"collective operation timeout",
            r"NCCL communicator was aborted",
        ),
        restart=True,
    ),
    CauseRow(
        "nccl-connection",
        "%(who)s could not open or keep an NCCL connection to another rank",
        "Look for a rank that died (trainjob logs), and at the network between the hosts: network.interface in the "
        "cluster file, NCCL_DEBUG=INFO in the job's environment, which names the call that failed",
        _line(r"ncclRemoteError", r"ncclSystemError"),
        restart=True,
    ),
    CauseRow(
        "stale-lock",
        "%(who)s waited for a lock in torch's folder of compiled extensions, which a process that was killed may have "
        "left",
        "If nothing else compiles there, remove the file named lock below TORCH_EXTENSIONS_DIR "
        "(~/.cache/torch_extensions), and resume",
        # torch's own waiting, which has no end, as the stack of the rank shows it.
        _line(r"torch/utils/file_baton\.py\", line \d+,? in wait"),
    ),
    CauseRow(
        "stalled",
        "training made no progress for the stall timeout (--stall-timeout-s)",
        "The log of the rank that hung shows where it was",
        _line(r"\(--stall-timeout-s\)", r"and the others wait for it"),
    ),
    CauseRow(
        "no-progress",
        "%(who)s made no progress for much longer than usual, and did nothing",
        "`trainjob stacks` shows where all ranks were; on_stall: tell only reports it",
        _line(r"\(on_stall: end\)"),
    ),
    CauseRow(
        "shared-memory",
        "%(who)s ran out of shared memory (/dev/shm), which loader processes use",
        "Take fewer loader processes (a task: --workers), remove what others left in /dev/shm of that host, or give "
        "the container more (--shm-size)",
        _line(
            r"insufficient shared memory",
            r"[Uu]nexpected bus error",
            r"unable to \w+( to)? (shared memory|file </torch_)",
            r"_multiprocessing\.SemLock\(",
        ),
        (signal.SIGBUS,),
    ),
    CauseRow(
        "disk-quota",
        "the disk quota is used up",
        "Remove files of yours on that file system (trainjob prune removes old runs), or have the quota raised",
        _line(r"Disk quota exceeded", r"\[Errno 122\]"),
    ),
    CauseRow(
        "disk-full",
        "a disk is full",
        "Free some space (trainjob prune removes old runs)",
        _line(r"No space left on device", r"\[Errno 28\]"),
    ),
    CauseRow(
        "import-error",
        "%(who)s could not import what it needs",
        "Install it into the Python that the cluster file names, or add the file to the project (git add), and submit "
        "again: a run keeps the code it was submitted with",
        _line(
            r"(^|raised )(ModuleNotFoundError|ImportError)\b(: (?P<said>.+))?",
            r"is not installed in this Python",
            r"^trainjob: the task's module \S+ is not found",
            r"error while loading shared libraries",
        ),
        resume=False,
    ),
    CauseRow(
        "illegal-instruction",
        "%(who)s executed an instruction that this processor does not have",
        "A library was built for newer processors: install one built for these, or choose other nodes (on Slurm: "
        "directives.constraint)",
        _line(
            r"Illegal instruction"
        ),  # not the kernel's "trap invalid opcode", which may be about any process of the host
        (signal.SIGILL,),
        resume=False,
    ),
    CauseRow(
        "segmentation-fault",
        "%(who)s crashed with a segmentation fault",
        "Native code is at fault, most often a library built for another torch or CUDA. PYTHONFAULTHANDLER=1 in the "
        "job's environment shows the Python line",
        _line(r"Segmentation fault"),  # nor its "segfault at"
        (signal.SIGSEGV,),
        resume=False,
    ),
    CauseRow(
        "abort",
        "%(who)s aborted itself",
        "Its last lines say what a native library found wrong",
        _line(r"terminate called"),
        (signal.SIGABRT,),
        resume=False,
    ),
    CauseRow(
        "lost-peer",
        "%(who)s lost its connection to another rank",
        "That rank's log says why it ended; if it has none, its host went down or was cut off",
        _line(r"lost its connection to another rank"),
    ),
    CauseRow(
        "killed",
        "%(who)s was killed by signal 9 from outside",
        "A user, a limit of the site or the kernel did it (see dmesg on the host)",
        None,
        (signal.SIGKILL,),
    ),
]
STEP_FAILED, STEP_TIMEOUT, ROLE_ENDED = "step-failed", "step-timeout", "role-ended"


def _of_step(seen: Evidence) -> Optional[Cause]:
    if not seen.step:
        return None
    if seen.timeout_s is not None:
        text = "%s did not end in the %g s that it was given" % (seen.who, seen.timeout_s)
        return Cause(STEP_TIMEOUT, text, "Its log shows how far it got. Give it a longer timeout_s in the job file")
    text = seen.why or "%s failed with exit code %s" % (seen.who, seen.exit_code)
    known = _not_enough_memory(seen) or _from_table(seen)
    code = ROLE_ENDED if seen.why else STEP_FAILED
    if known is not None:
        return Cause(code, "%s: %s" % (text, known.text), known.cure)
    if seen.why:
        # A server's step is its role: "role server".
        cure = "`trainjob logs --%s` shows what it printed; `restarts` in the job starts a server again" % seen.step
        return Cause(code, text, cure)
    return Cause(STEP_FAILED, text, "Its last lines say why; trainjob resume runs it again")


_OUT_OF_MEMORY = _line(
    r"Out of memory: Killed process",
    r"[Mm]emory cgroup out of memory",
    r"oom_kill event",
    r"OOM Killed",
    r"Out Of Memory",
    r"OUT_OF_MEMORY",
    r"exceeded (job|step|its) memory limit",
)
_REFUSED_MEMORY = _line(
    r"^MemoryError\b",
    r"raised MemoryError\b",
    r"std::bad_alloc",
    r"DefaultCPUAllocator: (can't|not enough)",
    r"Cannot allocate memory",
    r"Unable to allocate .* for an array",
)
_WORKER_KILLED = _line(r"DataLoader worker .* killed by signal")
_MEMORY_CURE = (
    "Ask for more (on Slurm: directives.mem), or need less: fewer instances per host, fewer loader processes, or fewer "
    "samples at once with more accumulation (a task: --workers, --micro-batch, --accumulation)"
)
# Just before the kernel kills for want of memory, usage is slightly below the limit.
_NEARLY_ALL = 0.95


def _not_enough_memory(seen: Evidence) -> Optional[Cause]:
    memory, lines = seen.memory, [*seen.lines, *seen.kernel]
    figures = "" if memory is None else "; memory was %s" % memory
    by_kernel = any(_OUT_OF_MEMORY.search(line) for line in lines) or (memory is not None and memory.kills > 0)
    was_killed = seen.ended_by == signal.SIGKILL or (seen.ended_by is None and seen.rank is None)
    if by_kernel and any(_WORKER_KILLED.search(line) for line in seen.lines):
        text = "a loader process of %s was killed for memory"
    elif was_killed and by_kernel:
        text = "%s was killed for memory: killed by signal 9 from outside"
    elif was_killed and memory is not None and memory.share >= _NEARLY_ALL:
        text = "%s was probably killed for memory: killed by signal 9 from outside"
    elif any(_REFUSED_MEMORY.search(line) for line in seen.lines):
        text = "%s was refused more memory by the system"
    else:
        return None
    return Cause(OUT_OF_MEMORY, text % seen.who + figures, _MEMORY_CURE, resume=False)


def _after_its_end(seen: Evidence) -> Optional[Cause]:
    if not seen.script_has_ended or seen.ended_by not in (signal.SIGABRT, signal.SIGSEGV):
        return None
    crash = "aborted" if seen.ended_by == signal.SIGABRT else "crashed"
    text = "%s %s after its script had ended without an error: a native library's thread was still running"
    cure = (
        "What the script did is done. So that it ends in order, call torch.distributed.destroy_process_group() at its "
        "end, and shut down loader processes and loggers"
    )
    return Cause("crash-at-the-end", text % (seen.who, crash), cure)


def _from_table(seen: Evidence) -> Optional[Cause]:
    lines = [*seen.lines, *seen.kernel]
    for row in ROWS:
        matches = (row.pattern.search(line) for line in lines) if row.pattern is not None else ()
        match = next(filter(None, matches), None)
        if match or seen.ended_by in row.signals:
            named = match.groupdict() if match else {}
            text = row.text % {"who": seen.who, **named}
            if named.get("said"):
                text += ": %s" % named["said"]
            if row.code == "killed" and seen.memory is not None:
                text += "; memory was %s" % seen.memory
            first, cure = _first_of_chain(seen.lines) if match else None, row.cure
            if first is not None and match is not None and match.string in seen.lines and match.string != first:
                text += "; it began with %s" % first
                cure = cure if row.pattern is not None and row.pattern.search(first) else _OF_THE_FIRST
            return Cause(row.code, text, cure, row.resume, row.restart, row.blames_node)
    return None


# Between two tracebacks of Python: the upper one is why the lower one came.
_CHAINED = re.compile(r"^(The above exception was the direct cause|During handling of the above exception)")
_OF_THE_FIRST = "Mend what it began with; the traceback in its log shows where"
_OWN_WORDS = re.compile(r"^trainjob: (.+)")
_EXCEPTION = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning))(: .*)?$")


def _from_last_words(seen: Evidence) -> Optional[Cause]:
    """Return what the last line says where it is an error: one of ours, or the end of a traceback."""
    for line in reversed(seen.lines):
        own = _OWN_WORDS.match(line)
        if own:
            is_exception = "its traceback is above" in line
            code = "exception" if is_exception else "refused"
            return Cause(code, "%s: %s" % (seen.who, own.group(1)), "", resume=not is_exception)
        if _EXCEPTION.match(line):
            text = "%s raised %s" % (seen.who, line)
            first = _first_of_chain(seen.lines)
            if first is not None:
                text += "; it began with %s" % first
            return Cause("exception", text, "The traceback in its log shows where", resume=False)
    return None


def _first_of_chain(lines: Sequence[str]) -> Optional[str]:
    """Return the error with which the last chain of exceptions in `lines` began; None for a single one."""
    last = next((number for number in reversed(range(len(lines))) if _EXCEPTION.match(lines[number])), 0)
    lines, first = lines[:last], None
    for number, line in reversed(list(enumerate(lines))):
        if _CHAINED.match(line):
            first = next(filter(_EXCEPTION.match, reversed(lines[:number])), first)
        elif _EXCEPTION.match(line) and line != first:
            break
    return first
