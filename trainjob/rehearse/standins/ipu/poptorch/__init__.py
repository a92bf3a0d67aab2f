"""Stand-in for poptorch on ordinary torch and a CPU: what a program can see of it, as its documentation says.

It stands in for what poptorch does, not for how fast. Which facts it is held to: tests/unit/rehearse/standins.
"""

from __future__ import annotations

from poptorch import optim
from poptorch.asynchronous import AsynchronousDataAccessor
from poptorch.blocks import BeginBlock, Block, BlockFunction, removeBlocks
from poptorch.dataloader import DataLoader
from poptorch.devices import ipuHardwareIsAvailable, ipuHardwareVersion
from poptorch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    MeanReductionStrategy,
    OutputMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
)
from poptorch.errors import Error, RecoverableError, UnrecoverableError
from poptorch.execution import (
    ParallelPhasedExecution,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
)
from poptorch.executor import PoplarExecutor, inferenceModel, load, trainingModel
from poptorch.losses import identity_loss
from poptorch.ops import for_loop, ipu_print_tensor, isRunningOnIpu, nop, recomputationCheckpoint, set_available_memory
from poptorch.options import Options

__version__ = "0+trainjob.standin"

__all__ = [
    "AsynchronousDataAccessor",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CommGroupType",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "MeanReductionStrategy",
    "Options",
    "OutputMode",
    "ParallelPhasedExecution",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "SyncPattern",
    "UnrecoverableError",
    "for_loop",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "load",
    "nop",
    "optim",
    "recomputationCheckpoint",
    "removeBlocks",
    "set_available_memory",
    "trainingModel",
]
