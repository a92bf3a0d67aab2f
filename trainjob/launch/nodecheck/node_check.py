"""Checks a node before ranks start: its GPUs, data folder, disk and clock, and an all-reduce of all ranks.

A rank would notice minutes later, and its error would name something else.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator, List, Mapping, NamedTuple, Optional

from trainjob.contract import exits
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch.host import node_name

if TYPE_CHECKING:
    from trainjob.launch.nodecheck.meeting import Work
    from trainjob.launch.nodecheck.verdict import Verdict

_LIMIT_S = 20.0
_GPU_FIELDS = "index,uuid,ecc.errors.uncorrected.volatile.total"
_FURTHEST_CLOCK_S = 30.0
# Used until this run has a checkpoint.
_LEAST_FREE_BYTES = 1 << 30
_FEWEST_FILES = 1024  # the default of most systems
_RECENT_S = 3600.0
_CURE = (
    "NCCL_DEBUG=INFO (env of the job) shows how far it gets; network.data_interface chooses the interface, and "
    "node_check: false leaves the check out"
)


class Finding(NamedTuple):
    """A fault. `is_nodes`: it may be this node's alone, so the next attempt should avoid the node."""

    text: str
    is_nodes: bool = True


class Need(NamedTuple):
    """The requirements of this node's ranks."""

    gpus: int  # 0: no GPUs, or none of NVIDIA
    data_dir: Optional[str]
    environment: Mapping[str, str]


def is_refused(paths: RunPaths, need: Need, ranking: Ranking, attempt: int, restarts: bool) -> bool:
    """Return whether the ranks must not start here: then the node is named in failure.json, and why.

    `restarts`: see Supervisor. Raises UserError for what is wrong on every node.
    """
    for text in tight_limits() if ranking.local_rank == 0 else ():
        sys.stderr.write("trainjob: WARNING: on node %s %s: have the limit raised (ulimit)\n" % (node_name(), text))
    finding = first_finding(paths, need)
    if finding is None:
        return False
    if not finding.is_nodes:
        raise UserError(finding.text, "Remove files there (trainjob prune removes old runs), or set runs_dir elsewhere")
    _name(paths, Refused(node_name(), ranking.rank, finding.text), attempt, restarts)
    return True


def does_not_add_up(paths: RunPaths, work: Work, attempt: int, restarts: bool) -> bool:
    """Return whether the ranks must not start, because an all-reduce of them all has failed: see all_reduce.py.

    Raises UserError if no single node is to blame.
    """
    from trainjob.launch.nodecheck import all_reduce
    from trainjob.launch.nodecheck.meeting import NoWayError

    first = work.rankings[0].rank

    def record(verdict: Verdict) -> None:
        if verdict.node:
            _name(paths, Refused(verdict.node, verdict.rank, verdict.text), attempt, restarts)

    try:
        verdict = all_reduce.verdict(work, record)
    except NoWayError as error:
        _name(paths, Refused(node_name(), first, error.text), attempt, restarts)
        return True
    if verdict is None:
        return False
    if verdict.is_refused and not verdict.node and first == 0:
        raise UserError(verdict.text, _CURE)
    if not verdict.is_refused and first == 0:
        sys.stderr.write("trainjob: node check: %s\n" % verdict.text)
    return verdict.is_refused


class Refused(NamedTuple):
    """A node on which no rank may start, and one of its ranks."""

    node: str
    rank: int
    why: str


def _name(paths: RunPaths, refused: Refused, attempt: int, restarts: bool) -> None:
    """Record and print which node did not pass, unless something has failed before it."""
    from trainjob.launch.witness.failing import explain
    from trainjob.records.failure import Failure, record_first

    line = "trainjob: node %s did not pass the node check: %s" % (refused.node, refused.why)
    code = exits.USER_OR_CLUSTER_CAN_FIX
    failure = Failure(attempt, refused.rank, refused.node, code, command=["node check"], tail=[line])
    if record_first(paths, failure):
        explain(paths, failure, restarts, refused.node)
    else:
        sys.stderr.write(line + "\n")


def first_finding(paths: RunPaths, need: Need) -> Optional[Finding]:
    """Return the first fault of this node; None for a sound node."""
    folder = need.data_dir or ""
    looks: List["Optional[tuple[str, Callable[[], Iterator[Finding]]]]"] = [
        ("its GPUs", lambda: _gpus(need)) if need.gpus else None,
        ("the data folder %s" % folder, lambda: _data(folder)) if folder else None,
        ("the run directory", lambda: _storage(paths)),
    ]
    for what, look in filter(None, looks):
        finding = _within_limit(what, look)
        if finding is not None:
            return finding
    return None


def tight_limits(fabric: Path = Path("/dev/infiniband")) -> Iterator[str]:
    """Yield warnings about the limits of this node's processes: under Slurm the limits of its daemon apply."""
    memlock, nofile = (resource.getrlimit(one)[0] for one in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE))
    if memlock != resource.RLIM_INFINITY and fabric.exists():
        yield "a process may lock %d kB of memory, and InfiniBand locks all that it sends from" % (memlock // 1024)
    if nofile != resource.RLIM_INFINITY and nofile < _FEWEST_FILES:
        yield "a process may open %d files, and data loaders and sockets take more" % nofile


def _within_limit(what: str, look: Callable[[], Iterator[Finding]]) -> Optional[Finding]:
    """Return the first fault that `look` yields. A hanging look, as on a mount without its server, is a fault too."""
    findings: List[Finding] = []
    done = _thread.allocate_lock()  # `threading` is built on this, and would have to be loaded as well
    done.acquire()

    def run() -> None:
        try:
            findings.extend(look())
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    if not done.acquire(timeout=_LIMIT_S):
        return Finding("%s did not answer within %g s" % (what, _LIMIT_S))
    return findings[0] if findings else None


def _gpus(need: Need) -> Iterator[Finding]:
    folders = need.environment.get("PATH", os.defpath).split(os.pathsep)
    files = (os.path.join(folder, "nvidia-smi") for folder in folders)
    program = next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), None)
    if program is None:
        return
    import subprocess

    from trainjob.launch.witness.evidence import hardware_errors

    words = [program, "--query-gpu=%s" % _GPU_FIELDS, "--format=csv,noheader,nounits"]
    ended = subprocess.run(
        words,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(need.environment),
    )
    printed = ended.stdout.decode("utf-8", "replace")
    if ended.returncode != 0:
        last = (printed.strip().splitlines() or ["nothing"])[-1]
        yield Finding("nvidia-smi exited with %d and printed: %s" % (ended.returncode, last))
        return
    rows = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines() if line.strip()]
    if len(rows) < need.gpus:
        yield Finding("nvidia-smi shows %d GPUs, and the ranks of this node need %d" % (len(rows), need.gpus))
    ours = [name.strip() for name in need.environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    for index, uuid, errors in (row for row in rows if len(row) == 3):
        # [N/A] without ECC. GPUs of other jobs are checked by those jobs.
        if errors.isdigit() and int(errors) > 0 and (not ours or index in ours or uuid in ours):
            yield Finding("GPU %s has had %s memory errors that ECC can't correct" % (index, errors))
    for message in hardware_errors(_RECENT_S):
        yield Finding("the kernel reported within the last hour: %s" % message)


def _data(folder: str) -> Iterator[Finding]:
    try:
        os.listdir(folder)
    except OSError as error:
        yield Finding("the data folder %s can't be read: %s" % (folder, error.strerror))


def _storage(paths: RunPaths) -> Iterator[Finding]:
    try:
        seconds = time.time() - _time_of_storage(paths.folder)
    except OSError as error:
        yield Finding("run directory %s can't be written: %s" % (paths.folder, error.strerror))
        return
    if abs(seconds) > _FURTHEST_CLOCK_S:
        way = "ahead of" if seconds > 0 else "behind"
        yield Finding("its clock is %.0f s %s that of the storage with the run directory" % (abs(seconds), way))
    disk, needed = os.statvfs(str(paths.folder)), _needed_bytes(paths)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        # All nodes share that disk.
        figures = (free / 1e9, paths.folder, needed / 1e9)
        yield Finding("%.1f GB are free in %s, and a checkpoint needs %.1f GB" % figures, is_nodes=False)


def _time_of_storage(folder: Path) -> float:
    """Return the modification time of a file that is written there now."""
    file = folder / (".node-check-%s" % os.urandom(8).hex())
    descriptor = os.open(str(file), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        os.unlink(str(file))


def _needed_bytes(paths: RunPaths) -> int:
    if not os.path.isdir(str(paths.checkpoints)) or not os.listdir(str(paths.checkpoints)):
        return _LEAST_FREE_BYTES
    from trainjob.records import checkpoints

    newest = checkpoints.newest(paths)
    if newest is None:
        return _LEAST_FREE_BYTES
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in newest.iterdir())
    return _LEAST_FREE_BYTES
