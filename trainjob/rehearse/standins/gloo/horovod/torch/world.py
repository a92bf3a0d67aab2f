"""Which process this is among how many: as Open MPI, poprun or horovodrun say it."""

from __future__ import annotations

import os
from typing import Any, Dict, NamedTuple, Optional

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


def rank() -> int:
    """Return this process's number."""
    return world().rank


def size() -> int:
    """Return the number of processes."""
    return world().size


def local_rank() -> int:
    """Return this process's number on its host."""
    return world().local_rank


def local_size() -> int:
    """Return the number of processes on this host."""
    return world().local_size


def gloo_built() -> bool:
    """Return True."""
    return True


def gloo_enabled() -> bool:
    """Return True."""
    return True


def mpi_built() -> bool:
    """Return False."""
    return False


def mpi_enabled() -> bool:
    """Return False."""
    return False


def mpi_threads_supported() -> bool:
    """Return False."""
    return False


def nccl_built() -> int:
    """Return 0."""
    return 0


def _number(what: str, otherwise: int) -> int:
    found: Optional[str] = next((os.environ[name] for name in _NAMES[what] if os.environ.get(name)), None)
    return otherwise if found is None else int(found)
