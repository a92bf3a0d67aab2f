"""The ranks that train together, as Horovod knows them: for engines whose collectives are Horovod's.

Names are given to every collective: Horovod keeps what ranks have agreed on about a name, and is faster the next time.
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any, List, Mapping

import torch

from trainjob.contract.errors import UserError
from trainjob.train.world import Later, Place, World

# Sums that may be under way at once, each with a name of its own: an outcome is read one update later.
_UNDER_WAY = 4
_CARRIED_AS = {torch.bool: torch.uint8, torch.bfloat16: torch.int16}


def join(here: Place, environ: Mapping[str, str], timeout_seconds: float) -> World:  # noqa: ARG001 - as other worlds
    """Return the world that Horovod makes of the ranks that mpirun started. Raises UserError.

    A world of one needs no Horovod.
    """
    if here.size == 1:
        return World(here)
    horovod = imported()
    if here.device.type == "cuda":
        torch.cuda.set_device(here.device)
    horovod.init()
    _refuse_another(here, horovod)
    return HorovodWorld(here, horovod)


def imported() -> Any:
    """Return the module horovod.torch. Raises UserError where it is not installed, or not for this torch."""
    try:
        return importlib.import_module("horovod.torch")
    except ImportError as error:
        raise UserError(
            "Horovod can't be imported for torch %s (%s): install it into the interpreter of the job, built against "
            "its torch, or take --engine ddp" % (torch.__version__, error)
        ) from None


def _refuse_another(here: Place, horovod: Any) -> None:
    found = (horovod.rank(), horovod.size())
    if found != (here.rank, here.size):
        horovod.shutdown()
        raise UserError(
            "Horovod takes this process for rank %d of %d and launch.py for rank %d of %d: start the ranks by mpirun "
            "with a Horovod that was built with MPI" % (*found, here.rank, here.size)
        )


class HorovodWorld(World):
    """A world of several processes, on Horovod."""

    def __init__(self, here: Place, horovod: Any) -> None:
        super().__init__(here)
        self.horovod = horovod
        self._numbers = itertools.cycle(range(_UNDER_WAY))

    def sum_later(self, values: Any) -> Later:
        """Start to sum `values` over all ranks, beside whatever else is under way."""
        name = "trainjob.sum.%d.%d" % (values.numel(), next(self._numbers))
        return Later(self, values, Work(self.horovod, self.horovod.allreduce_async_(values, op=self._sum, name=name)))

    def from_first(self, number: int) -> int:
        """Return the number that rank 0 gave."""
        value = torch.tensor([number], dtype=torch.int64)
        self._wait(self.horovod.broadcast_async_(value, 0, name="trainjob.number"))
        return int(value.item())

    def gather(self, word: bytes) -> List[bytes]:
        """Return the word of every rank, in order. All words are equally long."""
        mine = torch.tensor(list(word), dtype=torch.uint8)
        found = bytes(self._wait(self.horovod.allgather_async(mine, name="trainjob.words")).tolist())
        return [found[begin : begin + len(word)] for begin in range(0, len(found), len(word))]

    def synchronise(self, tensors: List[Any]) -> None:
        """Give `tensors` the values that they have on rank 0."""
        # All at once: Horovod joins what is under way together.
        sent = [_as_carried(tensor.contiguous()) for tensor in tensors]
        begun = [
            self.horovod.broadcast_async_(tensor, 0, name="trainjob.tensor.%d" % number)
            for number, tensor in enumerate(sent)
        ]
        for handle, tensor, values in zip(begun, tensors, sent):
            self._wait(handle)
            if tensor.data_ptr() != values.data_ptr():
                tensor.copy_(values.view(tensor.dtype))

    @property
    def _sum(self) -> Any:
        return self.horovod.Sum

    def _wait(self, handle: Any) -> Any:
        self.waits = True
        found = self.horovod.synchronize(handle)
        self.waits = False
        return found

    def close(self) -> None:
        """Leave the world; the others must be done with it as well."""
        self.horovod.shutdown()


def _as_carried(tensor: Any) -> Any:
    """Return the tensor's memory as a type that Horovod carries, which knows neither bool nor bfloat16."""
    return tensor.view(_CARRIED_AS[tensor.dtype]) if tensor.dtype in _CARRIED_AS else tensor


class Work:
    """A collective of Horovod's that is under way, asked as torch.distributed's are."""

    def __init__(self, horovod: Any, handle: Any) -> None:
        self._horovod, self._handle = horovod, handle

    def wait(self) -> None:
        """Return when it is done."""
        self._horovod.synchronize(self._handle)
