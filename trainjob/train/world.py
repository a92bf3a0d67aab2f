"""The ranks that train together: who is which, and the few things they tell each other outside of gradients."""

from __future__ import annotations

import datetime
import os
import socket
import time
from typing import Any, List, Mapping, NamedTuple, Optional

import torch

from trainjob.contract import environment
from trainjob.contract.errors import UserError

# What a rank of a broken world sees of the others, in gloo's, NCCL's and Horovod's own words.
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


class Place(NamedTuple):
    """Where this process stands, and what it computes on."""

    rank: int
    local_rank: int
    size: int
    device: torch.device


class Later:
    """A sum over all ranks that is under way."""

    def __init__(self, world: "World", values: Any, work: Any = None) -> None:
        self._world = world
        self._values = values
        self._work = work
        self.waited = 0.0  # seconds spent waiting, once it has been read

    def read(self) -> List[float]:
        """Return the sums, waiting for them where they are not there yet."""
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
    """A world of one process: nothing to tell, so no collective is called."""

    def __init__(self, place: Place) -> None:
        self.rank = place.rank
        self.local_rank = place.local_rank
        self.size = place.size
        self.device = place.device
        self.waits = False  # whether this rank is waiting for others at this moment, for the watch over stalls

    def sum_later(self, values: Any) -> Later:
        """Start to sum `values`, a vector on this world's device, over all ranks."""
        return Later(self, values)

    def sum(self, values: List[float]) -> List[float]:
        """Return the sums of `values` over all ranks, in float64."""
        return self.sum_later(torch.tensor(values, dtype=torch.float64, device=self.device)).read()

    def from_first(self, number: int) -> int:
        """Return the number that rank 0 gave."""
        return number

    def gather(self, word: bytes) -> List[bytes]:
        """Return the word of every rank, in order. All words are equally long."""
        return [word]

    def synchronise(self, tensors: List[Any]) -> None:
        """Give `tensors` the values that they have on rank 0."""

    def close(self) -> None:
        """Leave the world."""


class Group(World):
    """A world of several processes, on torch.distributed."""

    def sum_later(self, values: Any) -> Later:
        """Start to sum `values` over all ranks, behind whatever else is under way."""
        return Later(self, values, torch.distributed.all_reduce(values, async_op=True))

    def from_first(self, number: int) -> int:
        """Return the number that rank 0 gave."""
        value = torch.tensor([number], dtype=torch.int64, device=self.device)
        self._wait(torch.distributed.broadcast(value, 0, async_op=True))
        return int(value.item())

    def gather(self, word: bytes) -> List[bytes]:
        """Return the word of every rank, in order. All words are equally long."""
        mine = torch.tensor(list(word), dtype=torch.uint8, device=self.device)
        words = [torch.empty_like(mine) for _ in range(self.size)]
        self._wait(torch.distributed.all_gather(words, mine, async_op=True))
        return [bytes(found.tolist()) for found in words]

    def synchronise(self, tensors: List[Any]) -> None:
        """Give `tensors` the values that they have on rank 0."""
        for tensor in tensors:
            self._wait(torch.distributed.broadcast(tensor, 0, async_op=True))

    def _wait(self, work: Any) -> None:
        self.waits = True
        work.wait()
        self.waits = False

    def close(self) -> None:
        """Leave the world; the others must be done with it as well."""
        torch.distributed.destroy_process_group()


def place(environ: Mapping[str, str]) -> Place:
    """Return where launch.py says this process stands; without launch.py: alone on the CPU."""
    named = environ.get(environment.RANK_DEVICE) or "cpu"
    chosen = environment.redirect(environ, "TRAINJOB_DEVICE") or named
    # poptorch takes tensors from the host, and an older torch knows no such device.
    device = torch.device("cpu" if chosen == "ipu" else chosen)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "%s is %s, and this torch (%s) sees no GPU: give the rank a GPU, or set TRAINJOB_DEVICE=cpu"
            % (environment.RANK_DEVICE, device, torch.__version__)
        )
    rank, local_rank = int(environ.get(environment.RANK) or 0), int(environ.get(environment.LOCAL_RANK) or 0)
    return Place(rank, local_rank, int(environ.get(environment.WORLD_SIZE) or 1), device)


def join(here: Place, environ: Mapping[str, str], timeout_seconds: float) -> World:
    """Return the world that this process belongs to, once all of it is there. Raises UserError."""
    if here.device.type == "cuda":
        torch.cuda.set_device(here.device)
    if here.size == 1:
        return World(here)
    if not torch.distributed.is_available():
        raise UserError(
            "%d instances need torch.distributed, and torch %s was built without it: use another torch, or the "
            "container that trainjob builds (trainjob container build cpu)" % (here.size, torch.__version__)
        )
    _name_interface(environ)
    _start_group(here, timeout_seconds)
    return Group(here)


def _start_group(here: Place, timeout_seconds: float) -> None:
    address = "%s:%s" % (os.environ.get(environment.MASTER_ADDR), os.environ.get(environment.MASTER_PORT))
    try:
        torch.distributed.init_process_group(
            "nccl" if here.device.type == "cuda" else "gloo",
            rank=here.rank,
            world_size=here.size,
            timeout=datetime.timedelta(seconds=timeout_seconds),
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            "rank %d could not meet the other %d ranks at %s: %s. Is the port free, and does every host reach it "
            "(network interface: %s)?"
            % (
                here.rank,
                here.size - 1,
                address,
                _first_line(error),
                os.environ.get("GLOO_SOCKET_IFNAME", "torch's choice"),
            )
        ) from None


def _name_interface(environ: Mapping[str, str]) -> None:
    named = environment.redirect(environ, "TRAINJOB_INTERFACE") or _loopback(environ)
    if named:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, named)


def _loopback(environ: Mapping[str, str]) -> Optional[str]:
    # Left to itself gloo looks the host's own name up, which a laptop or a private network may not know.
    if environ.get(environment.MASTER_ADDR) not in ("127.0.0.1", "localhost", "::1"):
        return None
    names = [name for _, name in socket.if_nameindex()]
    return "lo" if "lo" in names else None


def describe_lost_peer(error: BaseException, rank: int) -> Optional[str]:
    """Return one line for an error that another rank's end or silence caused; None for any other error."""
    text = str(error).lower()
    if not isinstance(error, RuntimeError) or not any(words in text for words in _LOST_PEER):
        return None
    return "rank %d lost its connection to another rank (%s)" % (rank, _first_line(error))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
