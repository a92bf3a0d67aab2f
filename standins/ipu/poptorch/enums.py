"""poptorch's enumerations, with its numbers and words (its enums.py)."""

from __future__ import annotations

from enum import Enum, IntEnum

# Which results of the micro batches of one call come back.
OutputMode = IntEnum("OutputMode", "Final EveryN All Sum Default", start=0)
# How gradients of micro batches and replicas become one.
ReductionType = IntEnum("ReductionType", "Sum Mean NoReduction", start=0)
# When a mean is divided: at every micro batch, or at the end.
MeanReductionStrategy = IntEnum("MeanReductionStrategy", "Running Post PostAndLoss", start=0)
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
# Which replicas share an input, or a weight.
CommGroupType = IntEnum("CommGroupType", "All Consecutive Orthogonal NoGrouping", start=0)
# When tensors stay on the IPU between phases.
Liveness = IntEnum("Liveness", "AlwaysLive OffChipAfterFwd OffChipAfterFwdNoOverlap OffChipAfterEachPhase", start=0)
# How the convolutions of a MultiConv run.
MultiConvPlanType = IntEnum("MultiConvPlanType", "Parallel Serial", start=0)
# What becomes of float32 beside float16 in one operation.
HalfFloatCastingBehavior = IntEnum("HalfFloatCastingBehavior", "FloatDowncastToHalf HalfUpcastToFloat Default", start=0)


class VariableRetrievalMode(IntEnum):
    """The values that come back of a weight that replicas hold in groups."""

    OnePerGroup = 0
    AllReplicas = 2


class MatMulSerializationMode(Enum):
    """The dimension of a matrix product that is split."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(Enum):
    """The distance at which tensors are copied ahead."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"
