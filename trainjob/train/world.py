"""The ranks that train together: their numbers, and the few values they exchange besides gradients."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import time
from typing import Any, Callable, List, Mapping, NamedTuple, Optional

import torch

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.train import meeting

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


class Place(NamedTuple):
    """This process's place among the ranks, and its device."""

    rank: int
    local_rank: int
    size: int
    device: torch.device


class Later:
    """A sum over all ranks in progress."""

    def __init__(self, world: "World", values: torch.Tensor, work: Any = None) -> None:
        self._world = world
        self._values = values
        self._work = work
        self.waited = 0.0  # seconds spent waiting, after `read`

    def read(self) -> List[float]:
        """Return the sums, waiting for them if necessary."""
        if self._work is not None:
            start = time.perf_counter()
            self._world.waits = True
            self._work.wait()
            self._world.waits = False
            self.waited = time.perf_counter() - start
            self._work = None
        sums: List[float] = self._values.tolist()
        return sums


class World:
    """A world of one process, in which no collective is called."""

    def __init__(self, place: Place) -> None:
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
        return number

    def gather(self, word: bytes) -> List[bytes]:
        """Return the word of every rank, in order. All words must have the same length."""
        return [word]

    def synchronise(self, tensors: List[torch.Tensor]) -> None:
        """Set `tensors` to their values on rank 0."""

    def aside(self) -> Callable[[Any], List[Any]]:
        """Return a function for another thread, which gathers the value that each rank passes, in order of rank."""
        return lambda value: [value]

    def close(self) -> None:
        """Leave the world."""


class Group(World):
    """A world of several processes, on torch.distributed."""

    def sum_later(self, values: torch.Tensor) -> Later:
        """Start summing `values` over all ranks, after any collective in progress."""
        return Later(self, values, torch.distributed.all_reduce(values, async_op=True))

    def from_first(self, number: int) -> int:
        """Return the number that rank 0 passed."""
        value = torch.tensor([number], dtype=torch.int64, device=self.device)
        self._wait(torch.distributed.broadcast(value, 0, async_op=True))
        return int(value.item())

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

    def aside(self) -> Callable[[Any], List[Any]]:
        """Return a function for another thread, which gathers the value that each rank passes, in order of rank."""
        # Collectives of two threads must not mix, so these use a separate group. It is on CPUs, like the files.
        group: Any = torch.distributed.new_group(backend="gloo")

        def gather(value: Any) -> List[Any]:
            values: List[Any] = [None] * self.size
            torch.distributed.all_gather_object(values, value, group=group)
            return values

        return gather

    def _wait(self, work: Any) -> None:
        self.waits = True
        work.wait()
        self.waits = False

    def close(self) -> None:
        """Leave the world. The other ranks must have finished with it, too."""
        torch.distributed.destroy_process_group()


def place(environ: Mapping[str, str]) -> Place:
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
    return Place(rank, local_rank, int(environ.get(environment.WORLD_SIZE) or 1), device)


def join(own: Place, environ: Mapping[str, str], timeout_seconds: float) -> World:
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
    _set_interface(environ)
    _start_group(own, timeout_seconds)
    return Group(own)


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


def _start_group(own: Place, timeout_seconds: float) -> None:
    address = "%s:%s" % (os.environ.get(environment.MASTER_ADDR), os.environ.get(environment.MASTER_PORT))
    timeout = datetime.timedelta(seconds=timeout_seconds)
    recorder = flight_recorder()
    if recorder is not None:
        os.environ.setdefault(recorder.variable, _RECORDED_COLLECTIVES)
    try:
        store = meeting.store(own.rank, own.size, os.environ, timeout)
        torch.distributed.init_process_group(
            "nccl" if own.device.type == "cuda" else "gloo",
            rank=own.rank,
            world_size=own.size,
            timeout=timeout,
            **({} if store is None else {"store": store}),
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            "rank %d could not join the other %d ranks at %s: %s."
            % (own.rank, own.size - 1, address, _first_line(error)),
            "Is the port free, and can every host reach it (network interface: %s)?"
            % os.environ.get("GLOO_SOCKET_IFNAME", "torch's choice"),
        ) from None


def _set_interface(environ: Mapping[str, str]) -> None:
    interface = environment.redirect(environ, "TRAINJOB_INTERFACE") or _loopback(environ)
    if interface:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, interface)


def _loopback(environ: Mapping[str, str]) -> Optional[str]:
    # By default gloo resolves the host's own name, which fails on laptops and private networks.
    if environ.get(environment.MASTER_ADDR) not in ("127.0.0.1", "localhost", "::1"):
        return None
    names = [name for _, name in socket.if_nameindex()]
    return "lo" if "lo" in names else None


def describe_lost_peer(error: BaseException, rank: int) -> Optional[str]:
    """Return one line for an error caused by another rank's end or silence; None for any other error."""
    text = str(error).lower()
    if not isinstance(error, RuntimeError) or not any(words in text for words in _LOST_PEER):
        return None
    return "rank %d lost its connection to another rank (%s)" % (rank, _first_line(error))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
