"""The groups of poptorch.Options: Precision, Training, Distributed, TensorLocations, and PopART's own."""

from __future__ import annotations

import os
from typing import Any

import torch

from poptorch.enums import MeanReductionStrategy, ReductionType
from poptorch.freezing import Settings


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return `value`. Raises ValueError unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError("%s must be a whole number of at least %d, and is %r" % (name, least, value))
    return value


class PrecisionOptions(Settings):
    """How numbers are held inside the IPU: nothing a CPU can show, so recorded only."""

    def __init__(self) -> None:
        super().__init__(stochastic_rounding=False, partials_type=torch.float, floating_point_exceptions=False)

    def enableStochasticRounding(self, enabled: bool) -> PrecisionOptions:
        """Record it."""
        return self._set("stochastic_rounding", bool(enabled))

    def enableFloatingPointExceptions(self, enabled: bool) -> PrecisionOptions:
        """Record it."""
        return self._set("floating_point_exceptions", bool(enabled))

    def setPartialsType(self, dtype: torch.dtype) -> PrecisionOptions:
        """Record it. Raises ValueError for another type than float and half."""
        if dtype not in (torch.half, torch.float):
            raise ValueError("partials are torch.half or torch.float, and not %s" % dtype)
        return self._set("partials_type", dtype)


class TrainingOptions(Settings):
    """How micro batches become one weight update."""

    def __init__(self) -> None:
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=None,
            auto_loss_scaling=False,
            convolution_dithering=False,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> TrainingOptions:
        """Set the micro batches that each replica takes to a weight update."""
        whole("gradientAccumulation", gradient_accumulation)
        return self._set("gradient_accumulation", gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> TrainingOptions:
        """Set Sum or Mean, over micro batches and replicas. Raises ValueError for anything else."""
        if reduction_type not in (ReductionType.Sum, ReductionType.Mean):
            raise ValueError("the reduction is ReductionType.Sum or Mean, and not %r" % (reduction_type,))
        return self._set("accumulation_and_replication_reduction_type", ReductionType(reduction_type))

    def setMeanAccumulationAndReplicationReductionStrategy(self, strategy: MeanReductionStrategy) -> TrainingOptions:
        """Set when a mean is divided; unset, it is Post, and Running where accumulators are float16."""
        return self._set("meanAccumulationAndReplicationReductionStrategy", MeanReductionStrategy(strategy))

    def setAutomaticLossScaling(self, enabled: bool) -> TrainingOptions:
        """Record it: the loss scale of a stand-in stays as the optimizer says."""
        return self._set("auto_loss_scaling", bool(enabled))

    def setConvolutionDithering(self, enabled: bool) -> TrainingOptions:
        """Record it."""
        return self._set("convolution_dithering", bool(enabled))


class DistributedOptions(Settings):
    """Which of several processes this is: by default as Open MPI's environment says."""

    def __init__(self) -> None:
        super().__init__(
            num_processes_variable="OMPI_COMM_WORLD_SIZE", process_variable="OMPI_COMM_WORLD_RANK", fixed=None
        )

    def disable(self) -> DistributedOptions:
        """Take no notice of the environment."""
        return self._set("fixed", (0, 1))

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> DistributedOptions:
        """Set the variables to read instead."""
        self._set("num_processes_variable", var_num_processes)
        return self._set("process_variable", var_process_id)

    def configureProcessId(self, process_id: int, num_processes: int) -> DistributedOptions:
        """Set both by hand."""
        whole("num_processes", num_processes)
        return self._set("fixed", (whole("process_id", process_id, 0), num_processes))

    @property
    def processId(self) -> int:
        """Return this process's number."""
        return int(self.fixed[0] if self.fixed else os.environ.get(self.process_variable) or 0)

    @property
    def numProcesses(self) -> int:
        """Return the number of processes."""
        return int(self.fixed[1] if self.fixed else os.environ.get(self.num_processes_variable) or 1)


class TensorLocationOptions(Settings):
    """Where tensors lie: recorded only."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set"):
            return lambda *values, **more: self._set(name, (values, more))
        return super().__getattr__(name)


class PopartOptions(Settings):
    """PopART's own options: recorded only."""

    def set(self, key: str, value: Any) -> PopartOptions:
        """Record it."""
        return self._set(key, value)

    def setPatterns(self, patterns: Any, level: int = 2) -> PopartOptions:
        """Record it."""
        return self._set("patterns", (patterns, level))

    def setEngineOptions(self, options: Any) -> PopartOptions:
        """Record it."""
        return self._set("engine_options", options)
