"""Stand-in for horovod.torch: the collectives that IPU programs use on the host, one after the other, in order."""

from __future__ import annotations

from typing import Any

from horovod.torch.collectives import (
    Adasum,
    Average,
    Compression,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    global_process_set,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    poll,
    synchronize,
)
from horovod.torch.world import (
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    shutdown,
    size,
)

__all__ = ["global_process_set"]
__all__ += [name for name, value in globals().items() if str(getattr(value, "__module__", "")).startswith("horovod")]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        "the stand-in for horovod.torch has no %s: it has the host-side collectives of IPU programs (%s). Install "
        "Horovod for the rest" % (name, ", ".join(__all__))
    )
