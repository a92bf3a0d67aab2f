"""The rank of this process and the number of processes: as Open MPI, poprun or horovodrun say it."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, NamedTuple, Optional

from trainjob_standins import place
from trainjob_standins.announce import say_what_this_is
from trainjob_standins.meeting import Group, group

_NAMES = {
    "rank": ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK"),
    "size": ("OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE"),
    "local_rank": ("OMPI_COMM_WORLD_LOCAL_RANK", "HOROVOD_LOCAL_RANK"),
    "local_size": ("OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE"),
}


class _World(NamedTuple):
    rank: int
    size: int
    local_rank: int
    local_size: int
    group: Group


_joined: Dict[str, _World] = {}


def init(*_ranks: Any, **_more: Any) -> None:
    """Meet the other processes; all of them must call it."""
    if _joined:
        return
    say_what_this_is()
    here = place.here()
    alone = not place.under_poprun()
    rank = _number("rank", 0 if alone else here.instance)
    size = _number("size", 1 if alone else here.instances)
    local_rank = _number("local_rank", rank if alone else here.local_instance)
    _joined["world"] = _World(rank, size, local_rank, _number("local_size", size), group("horovod", rank, size))


def shutdown() -> None:
    """Leave; a later init meets the others where they met before."""
    _joined.clear()


def is_initialized() -> bool:
    """Return whether init was called."""
    return bool(_joined)


def world() -> _World:
    """Return the world. Raises ValueError, as Horovod does, before init."""
    if not _joined:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _joined["world"]


def _of_world(field: str, what: str) -> Callable[[], int]:
    def get() -> int:
        return int(getattr(world(), field))

    get.__name__, get.__doc__ = field, "Return %s. Raises ValueError before init." % what
    return get


rank = _of_world("rank", "this process's number")
size = _of_world("size", "the number of processes")
local_rank = _of_world("local_rank", "this process's number on its host")
local_size = _of_world("local_size", "the number of processes on this host")


def gloo_built() -> bool:
    """Return True: of all that Horovod may be built with, this has gloo alone."""
    return True


def mpi_built() -> bool:
    """Return False."""
    return False


gloo_enabled = gloo_built
mpi_enabled = mpi_threads_supported = nccl_built = mpi_built


def _number(what: str, otherwise: int) -> int:
    found: Optional[str] = next((os.environ[name] for name in _NAMES[what] if os.environ.get(name)), None)
    return otherwise if found is None else int(found)
