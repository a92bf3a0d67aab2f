"""The ranks that train together through Horovod.

Every collective has a name, because Horovod caches what the ranks negotiated about a name and is faster the next time.
"""

from __future__ import annotations

import importlib
import itertools
from types import ModuleType
from typing import Any, List, Mapping

import torch

from trainjob.contract.errors import UserError
from trainjob.train.world import Later, RankPlace, World

# Sums that may be in progress at once, each with its own name: an outcome is read one update later.
_UNDER_WAY = 4
_CARRIED_AS = {torch.bool: torch.uint8, torch.bfloat16: torch.int16}


def join(place: RankPlace, environ: Mapping[str, str], timeout_seconds: float) -> World:  # noqa: ARG001 - the signature of every world
    """Return the world of the ranks that mpirun started, joined by Horovod. Raises UserError.

    A world of one needs no Horovod.
    """
    if place.size == 1:
        return World(place)
    try:
        horovod = importlib.import_module("horovod.torch")
    except ImportError as error:
        raise UserError(
            "Horovod can't be imported for torch %s (%s)" % (torch.__version__, error),
            "install it into the job's Python, built against its torch, or use --engine ddp",
        ) from None
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    horovod.init()
    actual = (horovod.rank(), horovod.size())
    if actual != (place.rank, place.size):
        horovod.shutdown()
        raise UserError(
            "Horovod takes this process for rank %d of %d and the launcher for rank %d of %d"
            % (*actual, place.rank, place.size),
            "start the ranks with mpirun, and use a Horovod that was built with MPI",
        )
    return HorovodWorld(place, horovod)


class HorovodWorld(World):
    """A world of several processes, on Horovod."""

    def __init__(self, place: RankPlace, horovod: ModuleType) -> None:
        super().__init__(place)
        self.horovod = horovod
        self._numbers = itertools.cycle(range(_UNDER_WAY))

    def sum_later(self, values: torch.Tensor) -> Later:
        """Start summing `values` over all ranks, beside any collective in progress."""
        name = "trainjob.sum.%d.%d" % (values.numel(), next(self._numbers))
        handle = self.horovod.allreduce_async_(values, op=self.horovod.Sum, name=name)
        return Later(self, values, HorovodSum(self.horovod, handle))

    def from_first(self, number: int) -> int:
        """Return the number that rank 0 passed."""
        value = torch.tensor([number], dtype=torch.int64)
        self._wait(self.horovod.broadcast_async_(value, 0, name="trainjob.number"))
        return int(value.item())

    def gather(self, word: bytes) -> List[bytes]:
        """Return the word of every rank, in order. All words must have the same length."""
        mine = torch.tensor(list(word), dtype=torch.uint8)
        words = bytes(self._wait(self.horovod.allgather_async(mine, name="trainjob.words")).tolist())
        return [words[begin : begin + len(word)] for begin in range(0, len(words), len(word))]

    def synchronise(self, tensors: List[torch.Tensor]) -> None:
        """Set `tensors` to their values on rank 0."""
        # All at once, because Horovod fuses collectives that are in progress together.
        # As a type that Horovod supports; it has neither bool nor bfloat16.
        sent = [tensor.contiguous().view(_CARRIED_AS.get(tensor.dtype, tensor.dtype)) for tensor in tensors]
        begun = [
            self.horovod.broadcast_async_(tensor, 0, name="trainjob.tensor.%d" % number)
            for number, tensor in enumerate(sent)
        ]
        for handle, tensor, values in zip(begun, tensors, sent):
            self._wait(handle)
            if tensor.data_ptr() != values.data_ptr():
                tensor.copy_(values.view(tensor.dtype))

    def _wait(self, handle: object) -> Any:
        self.waits = True
        result = self.horovod.synchronize(handle)
        self.waits = False
        return result

    def close(self) -> None:
        """Leave the world. The other ranks must have finished with it, too."""
        self.horovod.shutdown()


class HorovodSum:
    """A sum in progress, with the interface of torch.distributed's collectives."""

    def __init__(self, horovod: ModuleType, handle: object) -> None:
        self._horovod, self._handle = horovod, handle

    def wait(self) -> None:
        """Wait until it is done."""
        self._horovod.synchronize(self._handle)
