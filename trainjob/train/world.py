"""The ranks that train together: their numbers, how they meet, and the few values they exchange besides gradients.

torch's own store, in which ranks meet, listens on every interface and authenticates nobody. On one host, a file in the
run directory replaces it, which only the owner can open. Across hosts, the store listens on the address that the
cluster file chooses.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import os
import socket
import sys
from pathlib import Path
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Protocol

import torch

from trainjob.contract import clock, environment, ports
from trainjob.contract.errors import UserError

# Messages of gloo, NCCL and Horovod when another rank is gone or silent.
_LOST_PEER = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "timed out",
    "timeout",
    "connection refused",
    "connect failure",
    "nccl communicator was aborted",
    "application timeout",
    "horovod has been shut down",
)

# Kept for the case that a rank stalls.
_RECORDED_COLLECTIVES = "2000"
# Not every torch says what it exports.
_distributed: Any = torch.distributed


class RankPlace(NamedTuple):
    """This process's place among the ranks, and its device."""

    rank: int
    local_rank: int
    size: int
    device: torch.device


class Collective(Protocol):
    """A collective in progress."""

    def wait(self) -> object:
        """Wait until it is done."""


class Later:
    """A sum over all ranks in progress."""

    def __init__(self, world: "World", values: torch.Tensor, work: Optional[Collective] = None) -> None:
        self._world = world
        self._values = values
        self._work = work
        self.waited = 0.0  # seconds spent waiting, after `read`

    def read(self) -> List[float]:
        """Return the sums, waiting for them if necessary."""
        if self._work is not None:
            start = clock.monotonic()
            self._world.waits = True
            self._work.wait()
            self._world.waits = False
            self.waited = clock.monotonic() - start
            self._work = None
        sums: List[float] = self._values.tolist()
        return sums


class World:
    """A world of one process, in which no collective is called."""

    def __init__(self, place: RankPlace) -> None:
        self.rank = place.rank
        self.local_rank = place.local_rank
        self.size = place.size
        self.device = place.device
        self.waits = False  # whether this rank is waiting for others right now; read by the watch for stalls

    def sum_later(self, values: torch.Tensor) -> Later:
        """Start summing `values`, a vector on this world's device, over all ranks."""
        return Later(self, values)

    def sum(self, values: List[float]) -> List[float]:
        """Return the sums of `values` over all ranks, in float64."""
        return self.sum_later(torch.tensor(values, dtype=torch.float64, device=self.device)).read()

    def from_first(self, number: int) -> int:
        """Return the number that rank 0 passed."""
        value = torch.tensor([number], dtype=torch.int64, device=self.device)
        self.synchronise([value])
        return int(value.item())

    def gather(self, word: bytes) -> List[bytes]:
        """Return the word of every rank, in order. All words must have the same length."""
        return [word]

    def synchronise(self, tensors: List[torch.Tensor]) -> None:
        """Set `tensors` to their values on rank 0."""

    def aside(self) -> Callable[[object], List[Any]]:
        """Return a function for another thread, which gathers the value that each rank passes, in order of rank."""
        return lambda value: [value]

    def close(self) -> None:
        """Leave the world."""


class ProcessGroup(World):
    """A world of several processes, on torch.distributed."""

    def sum_later(self, values: torch.Tensor) -> Later:
        """Start summing `values` over all ranks, after any collective in progress."""
        return Later(self, values, torch.distributed.all_reduce(values, async_op=True))

    def gather(self, word: bytes) -> List[bytes]:
        """Return the word of every rank, in order. All words must have the same length."""
        mine = torch.tensor(list(word), dtype=torch.uint8, device=self.device)
        words = [torch.empty_like(mine) for _ in range(self.size)]
        self._wait(torch.distributed.all_gather(words, mine, async_op=True))
        return [bytes(received.tolist()) for received in words]

    def synchronise(self, tensors: List[torch.Tensor]) -> None:
        """Set `tensors` to their values on rank 0."""
        for tensor in tensors:
            self._wait(torch.distributed.broadcast(tensor, 0, async_op=True))

    def aside(self) -> Callable[[object], List[Any]]:
        """Return a function for another thread, which gathers the value that each rank passes, in order of rank."""
        # Collectives of two threads must not mix, so these use a separate group. It is on CPUs, like the files.
        group: Any = torch.distributed.new_group(backend="gloo")

        def gather(value: object) -> List[Any]:
            values: List[Any] = [None] * self.size
            torch.distributed.all_gather_object(values, value, group=group)
            return values

        return gather

    def _wait(self, work: Collective) -> None:
        self.waits = True
        work.wait()
        self.waits = False

    def close(self) -> None:
        """Leave the world. The other ranks must have finished with it, too."""
        torch.distributed.destroy_process_group()


def place(environ: Mapping[str, str]) -> RankPlace:
    """Return the place that the launcher gave this process; without a launcher, alone on the CPU."""
    named = environ.get(environment.RANK_DEVICE) or "cpu"
    chosen = environment.redirect(environ, "TRAINJOB_DEVICE") or named
    # poptorch takes tensors from the host, and old versions of torch have no device "ipu".
    device = torch.device("cpu" if chosen == "ipu" else chosen)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "this rank is to use %s, and its torch (%s) sees no GPU" % (device, torch.__version__),
            "Install a torch that is built for GPUs (nvidia-smi shows whether the host has any). "
            + environment.TRY_ON_CPUS,
        )
    rank, local_rank = int(environ.get(environment.RANK) or 0), int(environ.get(environment.LOCAL_RANK) or 0)
    return RankPlace(rank, local_rank, int(environ.get(environment.WORLD_SIZE) or 1), device)


def join(own: RankPlace, environ: Mapping[str, str], timeout_seconds: float) -> World:
    """Return the world of this process once all its ranks have joined. Raises UserError."""
    if own.device.type == "cuda":
        torch.cuda.set_device(own.device)
    if own.size == 1:
        return World(own)
    if not torch.distributed.is_available():
        raise UserError(
            "%d instances need torch.distributed, and torch %s was built without it" % (own.size, torch.__version__),
            "use another torch, or the container that trainjob builds (trainjob container build cpu)",
        )
    interface = environment.redirect(environ, "TRAINJOB_INTERFACE")
    is_here = environ.get(environment.MASTER_ADDR) in ("127.0.0.1", "localhost", "::1")
    if not interface and is_here and "lo" in [name for _, name in socket.if_nameindex()]:
        interface = "lo"  # by default gloo resolves the host's own name, which fails on laptops and private networks
    if interface:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, interface)
    recorder = flight_recorder()
    if recorder is not None:
        os.environ.setdefault(recorder.variable, _RECORDED_COLLECTIVES)
    timeout = datetime.timedelta(seconds=timeout_seconds)
    try:
        shared = store(own.rank, own.size, os.environ, timeout)
        torch.distributed.init_process_group(
            "nccl" if own.device.type == "cuda" else "gloo",
            rank=own.rank,
            world_size=own.size,
            timeout=timeout,
            **({} if shared is None else {"store": shared}),
        )
    except (OSError, RuntimeError, ValueError) as error:
        address = "%s:%s" % (os.environ.get(environment.MASTER_ADDR), os.environ.get(environment.MASTER_PORT))
        raise UserError(
            "rank %d could not join the other %d ranks at %s: %s."
            % (own.rank, own.size - 1, address, _first_line(error)),
            "Is the port free, and can every host reach it (network interface: %s)?"
            % os.environ.get("GLOO_SOCKET_IFNAME", "torch's choice"),
        ) from None
    return ProcessGroup(own)


def store(rank: int, size: int, environ: Mapping[str, str], timeout: datetime.timedelta) -> Optional[Any]:
    """Return the store in which `size` ranks meet; None for torch's own, found by the environment.

    Its keys begin with a digest of the run's token, so they can't be confused with those of another run.
    """
    token = environ.get(environment.TOKEN)
    if not token:
        return None
    digest = hashlib.sha256(token.encode()).hexdigest()[:32]
    is_one_host = environ.get(environment.LOCAL_WORLD_SIZE) == str(size)
    path = Path(environ.get(environment.RUN_DIR) or ".") / (".store-%s" % digest)
    if is_one_host and _can_lock(path):
        shared = _distributed.FileStore(str(path), size)
    else:
        shared = _listening(rank, size, environ, timeout)
    shared.set_timeout(timeout)
    return _distributed.PrefixStore(digest, shared)


def _can_lock(path: Path) -> bool:
    """Return whether the file system has the locks that a store needs. Lustre and NFS may be mounted without them."""
    try:
        descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _listening(rank: int, size: int, environ: Mapping[str, str], timeout: datetime.timedelta) -> Any:
    address, port = environ[environment.MASTER_ADDR], int(environ[environment.MASTER_PORT])
    options = {"host_name": address, "port": port, "world_size": size, "is_master": rank == 0, "timeout": timeout}
    listening = ports.listen_at(address, port, max(128, 2 * size)) if rank == 0 else None
    if listening is None:
        return _distributed.TCPStore(**options)
    try:
        return _distributed.TCPStore(**options, master_listen_fd=listening.fileno())
    except TypeError:  # an old torch, which opens its socket itself
        listening.close()
        return _distributed.TCPStore(**options)
    finally:
        # The store closes the socket, unless it has refused it.
        if listening.fileno() != -1:
            listening.detach()


class FlightRecorder(NamedTuple):
    """torch's record of the last collectives: how to get it, and the variable that has it kept."""

    dump: Callable[[], bytes]
    variable: str


def flight_recorder() -> Optional[FlightRecorder]:
    """Return how this torch keeps and gives its record; None if it keeps none."""
    module: Any = sys.modules.get("torch._C._distributed_c10d")
    if hasattr(module, "_dump_fr_trace"):
        return FlightRecorder(module._dump_fr_trace, "TORCH_FR_BUFFER_SIZE")
    if hasattr(module, "_dump_nccl_trace"):
        return FlightRecorder(module._dump_nccl_trace, "TORCH_NCCL_TRACE_BUFFER_SIZE")
    return None


def describe_lost_peer(error: BaseException, rank: int) -> Optional[str]:
    """Return one line for an error caused by another rank's end or silence; None for any other error."""
    text = str(error).lower()
    if not isinstance(error, RuntimeError) or not any(words in text for words in _LOST_PEER):
        return None
    return "rank %d lost its connection to another rank (%s)" % (rank, _first_line(error))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
