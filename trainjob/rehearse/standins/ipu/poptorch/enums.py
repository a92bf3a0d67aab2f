"""poptorch's enumerations, with its numbers (its enums.py): each counts from 0."""

from __future__ import annotations

from enum import IntEnum

# Which results of the micro batches of one call come back.
OutputMode = IntEnum("OutputMode", "Final EveryN All Sum Default", start=0)
# How gradients of micro batches and replicas become one.
ReductionType = IntEnum("ReductionType", "Sum Mean NoReduction", start=0)
# When a mean is divided: at every micro batch, or at the end.
MeanReductionStrategy = IntEnum("MeanReductionStrategy", "Running Post", start=0)
# Whether batches are made ahead.
DataLoaderMode = IntEnum("DataLoaderMode", "Sync Async AsyncRebatched", start=0)
# When the IPU is attached.
ConnectionType = IntEnum("ConnectionType", "Always OnDemand Never", start=0)
# How batches come from the process that makes them.
SharingStrategy = IntEnum("SharingStrategy", "SharedMemory FileSystem Fork ForkServer", start=0)
# Where a block without an IPU of its own goes.
AutoStage = IntEnum("AutoStage", "SameAsIpu AutoIncrement", start=0)
# Which IPUs synchronise.
SyncPattern = IntEnum("SyncPattern", "Full SinglePipeline ReplicaAndLadder", start=0)
# Which replicas share an input.
CommGroupType = IntEnum("CommGroupType", "All Consecutive Orthogonal NoGroup", start=0)
