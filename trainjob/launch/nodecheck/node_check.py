"""Checks a node before ranks start: its GPUs, data folder, disk and clock, and an all-reduce of all ranks.

A rank would notice minutes later, and its error would name something else.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import resource
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator, List, Mapping, NamedTuple, Optional

from trainjob.contract import clock, exits
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch.host import node_name
from trainjob.launch.rank_environment import listed_in
from trainjob.records.files import read_first, see_anew, write_atomically

if TYPE_CHECKING:
    from trainjob.launch.nodecheck.meeting import Work
    from trainjob.launch.nodecheck.verdict import NodeVerdict

LIMIT_S = 20.0
# How much later than this node another one may find its fault.
_OTHERS_S = 5.0
_GPU_FIELDS = ("index", "uuid", "ecc.errors.uncorrected.volatile.total")
_FURTHEST_CLOCK_S = 30.0
LEAST_FREE_BYTES = 1 << 30
_FEWEST_FILES = 1024  # the default of most systems
_RECENT_S = 3600.0
_CURE = (
    "NCCL_DEBUG=INFO (env of the job) shows how far it gets; network.data_interface chooses the interface, and "
    "node_check: false leaves the check out"
)


class NodeFault(NamedTuple):
    """A fault. `is_node_fault`: it may be this node's alone, so the next attempt should avoid the node."""

    text: str
    is_node_fault: bool = True


class Requirements(NamedTuple):
    """The requirements of this node's ranks."""

    gpus: int  # 0: no GPUs, or none of NVIDIA
    data_dir: Optional[str]
    environment: Mapping[str, str]


def is_refused(paths: RunPaths, need: Requirements, ranking: Ranking, attempt: int, restarts: bool) -> bool:
    """Return whether the ranks must not start here: then the node is named in failure.json, and why.

    `restarts`: see Supervisor. Raises UserError for what is wrong on every node.
    """
    for text in tight_limits() if ranking.local_rank == 0 else ():
        sys.stderr.write("trainjob: WARNING: on node %s %s: have the limit raised (ulimit)\n" % (node_name(), text))
    if ranking.local_rank == 0 and need.gpus and _nvidia_smi(need) is None:
        sys.stderr.write("trainjob: WARNING: node %s has no nvidia-smi, so its GPUs are not checked\n" % node_name())
    finding = first_finding(paths, need)
    if finding is None:
        return False
    if not finding.is_node_fault:
        raise UserError(finding.text, "Remove files there (trainjob prune removes old runs), or set runs_dir elsewhere")
    if _is_everywhere(paths, finding.text, ranking, attempt):
        raise UserError(
            "all nodes of the job did not pass the node check: %s" % finding.text, "Correct it for all of them"
        )
    _blame(paths, node_name(), ranking.rank, finding.text, attempt, restarts)
    return True


def _is_everywhere(paths: RunPaths, fault: str, ranking: Ranking, attempt: int) -> bool:
    """Return whether all nodes of the job have this fault, so that none is to blame. Others may be slower."""
    nodes = -(-ranking.world_size // ranking.local_world_size)
    if nodes < 2:
        return False
    own = paths.node_faults / ("%d.%s" % (attempt, node_name()))
    try:
        paths.node_faults.mkdir(exist_ok=True)
        write_atomically(own, fault, durable=False)
    except OSError:  # then the fault is this node's, as far as can be told
        return False
    until = clock.monotonic() + _OTHERS_S
    while True:
        see_anew(paths.node_faults)
        same = 0
        for one in paths.node_faults.glob("%d.*" % attempt):
            with contextlib.suppress(OSError):  # another attempt's, removed meanwhile
                same += read_first(one, 4096).decode("utf-8", "replace") == fault
        if same >= nodes:
            return True
        if clock.monotonic() > until:
            return False
        clock.sleep(_OTHERS_S / 20)


def all_reduce_fails(paths: RunPaths, work: Work, attempt: int, restarts: bool) -> bool:
    """Return whether the ranks must not start, because an all-reduce of them all has failed: see all_reduce.py.

    Raises UserError if no single node is to blame.
    """
    from trainjob.launch.nodecheck import all_reduce
    from trainjob.launch.nodecheck.meeting import NoWayError

    first = work.rankings[0].rank

    def record(verdict: NodeVerdict) -> None:
        if verdict.node:
            _blame(paths, verdict.node, verdict.rank, verdict.text, attempt, restarts)

    try:
        verdict = all_reduce.verdict(work, record)
    except NoWayError as error:
        _blame(paths, node_name(), first, error.text, attempt, restarts)
        return True
    if verdict is None:
        return False
    if verdict.is_refused and not verdict.node and first == 0:
        raise UserError(verdict.text, _CURE)
    if not verdict.is_refused and first == 0:
        sys.stderr.write("trainjob: node check: %s\n" % verdict.text)
    return verdict.is_refused


def _blame(paths: RunPaths, node: str, rank: int, why: str, attempt: int, restarts: bool) -> None:
    """Record and print which node did not pass, unless something has failed before it."""
    from trainjob.launch.witness.failing import explain
    from trainjob.records.failure import Failure, record_first

    line = "trainjob: node %s did not pass the node check: %s" % (node, why)
    failure = Failure(attempt, rank, node, exits.USER_OR_CLUSTER_CAN_FIX, command=["node check"], tail=[line])
    if record_first(paths, failure):
        explain(paths, failure, restarts, node)
    else:
        sys.stderr.write(line + "\n")


def first_finding(paths: RunPaths, need: Requirements) -> Optional[NodeFault]:
    """Return the first fault of this node; None for a sound node."""
    folder = need.data_dir or ""
    looks: List["tuple[str, Callable[[], Iterator[NodeFault]]]"] = [("the run directory", partial(_storage, paths))]
    if folder:
        looks.insert(0, ("the data folder %s" % folder, partial(_data, folder)))
    if need.gpus:
        looks.insert(0, ("its GPUs", partial(_gpus, need)))
    for what, look in looks:
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


def _within_limit(what: str, look: Callable[[], Iterator[NodeFault]]) -> Optional[NodeFault]:
    """Return the first fault that `look` yields. A hanging look, as on a mount without its server, is a fault too."""
    findings: List[NodeFault] = []
    done = _thread.allocate_lock()  # `threading` is built on this, and would have to be loaded as well
    done.acquire()

    def run() -> None:
        try:
            findings.extend(look())
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    if not done.acquire(timeout=LIMIT_S):
        return NodeFault("%s did not answer within %g s" % (what, LIMIT_S))
    return findings[0] if findings else None


def _nvidia_smi(need: Requirements) -> Optional[str]:
    folders = need.environment.get("PATH", os.defpath).split(os.pathsep)
    files = (os.path.join(folder, "nvidia-smi") for folder in folders)
    return next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), None)


def _gpus(need: Requirements) -> Iterator[NodeFault]:
    program = _nvidia_smi(need)
    if program is None:
        return
    import subprocess

    from trainjob.contract.device_tools import nvidia_query, nvidia_rows
    from trainjob.launch.witness.evidence import hardware_errors

    ended = subprocess.run(
        [program, *nvidia_query("gpu", _GPU_FIELDS)[1:]],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(need.environment),
    )
    printed = ended.stdout.decode("utf-8", "replace")
    if ended.returncode != 0:
        last = (printed.strip().splitlines() or ["nothing"])[-1]
        yield NodeFault("nvidia-smi exited with %d and printed: %s" % (ended.returncode, last))
        return
    rows = nvidia_rows(printed, _GPU_FIELDS)
    if len(rows) < need.gpus:
        yield NodeFault("nvidia-smi shows %d GPUs, and the ranks of this node need %d" % (len(rows), need.gpus))
    ours = listed_in(need.environment, "CUDA_VISIBLE_DEVICES")
    for index, uuid, errors in (row.values() for row in rows):
        # [N/A] without ECC. GPUs of other jobs are checked by those jobs.
        if errors.isdigit() and int(errors) > 0 and (not ours or index in ours or uuid in ours):
            yield NodeFault("GPU %s has had %s memory errors that ECC can't correct" % (index, errors))
    for message in hardware_errors(_RECENT_S):
        yield NodeFault("the kernel reported within the last hour: %s" % message)


def _data(folder: str) -> Iterator[NodeFault]:
    try:
        os.listdir(folder)
    except OSError as error:
        yield NodeFault("the data folder %s can't be read: %s" % (folder, error.strerror))


def _storage(paths: RunPaths) -> Iterator[NodeFault]:
    try:
        file = paths.folder / (".node-check-%s" % os.urandom(8).hex())
        descriptor = os.open(str(file), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            seconds = clock.time() - os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            os.unlink(str(file))
    except OSError as error:
        yield NodeFault("run directory %s can't be written: %s" % (paths.folder, error.strerror))
        return
    if abs(seconds) > _FURTHEST_CLOCK_S:
        way = "ahead of" if seconds > 0 else "behind"
        yield NodeFault("its clock is %.0f s %s that of the storage with the run directory" % (abs(seconds), way))
    disk, needed = os.statvfs(str(paths.folder)), _needed_bytes(paths)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        # All nodes share that disk.
        figures = (free / 1e9, paths.folder, needed / 1e9)
        yield NodeFault("%.1f GB are free in %s, and a checkpoint needs %.1f GB" % figures, is_node_fault=False)


def _needed_bytes(paths: RunPaths) -> int:
    """Return the size of the newest checkpoint; a guess until this run has one."""
    with contextlib.suppress(OSError):
        if os.listdir(str(paths.checkpoints)):
            from trainjob.records import checkpoints

            newest = checkpoints.newest(paths)
            return sum(file.stat().st_size for file in newest.iterdir()) if newest else LEAST_FREE_BYTES
    return LEAST_FREE_BYTES
