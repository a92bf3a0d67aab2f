"""Stand-in for poptorch on ordinary torch and a CPU: what a program can see of it, as its documentation says.

It reproduces what poptorch does, not how fast. The facts it is tested against: tests/standins/ipu
"""

from __future__ import annotations

from typing import Any

from trainjob_standins import announce

from poptorch import autocasting, optim, options, poptorch_core, profiling
from poptorch.asynchronous import AsynchronousDataAccessor
from poptorch.autocasting import autocast
from poptorch.blocks import BeginBlock, Block, BlockFunction, removeBlocks
from poptorch.ctc import ctc_beam_search_decoder
from poptorch.dataloader import DataLoader
from poptorch.devices import ipuHardwareIsAvailable, ipuHardwareVersion
from poptorch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from poptorch.errors import Error, RecoverableError, UnrecoverableError
from poptorch.executor import (
    PoplarExecutor,
    inferenceModel,
    load,
    registerPostCompileHook,
    registerPreCompileHook,
    trainingModel,
)
from poptorch.losses import identity_loss
from poptorch.ops import (
    CPU,
    Attribute,
    MultiConv,
    NameScope,
    cond,
    custom_op,
    dynamic_slice,
    dynamic_update,
    for_loop,
    fps,
    ipu_print_tensor,
    isRunningOnIpu,
    nearest,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from poptorch.option_groups import TensorLocationSettings
from poptorch.options import Options
from poptorch.stages import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from poptorch.values import ICustomArgParser, registerCustomArgParser

__version__ = "0+trainjob.standin"

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")


def setLogLevel(level: Any) -> None:
    """Set what is logged: TRACE, DEBUG, INFO, WARN, ERR or OFF, or a number from 0 to 4."""
    if isinstance(level, int):
        if not 0 <= level < len(_LEVELS) - 1:
            raise ValueError("Invalid log level integer %d: it is from 0 to %d" % (level, len(_LEVELS) - 2))
        level = _LEVELS[level]
    name = str(level).replace("TRACE_ALL", "TRACE")
    if name not in _LEVELS:
        first, last = ", ".join(sorted(_LEVELS)[:-1]), sorted(_LEVELS)[-1]
        raise ValueError("Unknown log level: %s. Valid values are %s and %s" % (level, first, last))
    announce.set_level(name)


__all__ = ["autocasting", "optim", "options", "poptorch_core", "profiling"]
__all__ += [name for name, value in globals().items() if str(getattr(value, "__module__", "")).startswith("poptorch")]
