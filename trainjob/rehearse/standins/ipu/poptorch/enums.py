"""poptorch's enumerations, with its numbers (its enums.py)."""

from __future__ import annotations

import enum


class OutputMode(enum.IntEnum):
    """Which results of the micro batches of one call come back."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ReductionType(enum.IntEnum):
    """How gradients of micro batches and replicas become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(enum.IntEnum):
    """When a mean is divided: at every micro batch, or at the end."""

    Running = 0
    Post = 1


class DataLoaderMode(enum.IntEnum):
    """Whether batches are made ahead."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class ConnectionType(enum.IntEnum):
    """When the IPU is attached."""

    Always = 0
    OnDemand = 1
    Never = 2


class SharingStrategy(enum.IntEnum):
    """How batches come from the process that makes them."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class AutoStage(enum.IntEnum):
    """Where a block without an IPU of its own goes."""

    SameAsIpu = 0
    AutoIncrement = 1


class SyncPattern(enum.IntEnum):
    """Which IPUs synchronise."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class CommGroupType(enum.IntEnum):
    """Which replicas share an input."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGroup = 3
