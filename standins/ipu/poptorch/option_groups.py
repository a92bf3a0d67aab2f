"""The groups of poptorch.Options: Precision, Training, Distributed, TensorLocations, and PopART's own."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Dict

import torch

from poptorch.autocasting import Policy
from poptorch.enums import HalfFloatCastingBehavior, MeanReductionStrategy, ReductionType
from poptorch.freezing import Settings, as_it_is, setter


def whole(name: str, value: object, least: int = 1) -> int:
    """Return `value`. Raises ValueError unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError("%s must be a whole number of at least %d, and is %r" % (name, least, value))
    return value


def member(kind: Any, value: object) -> Any:
    """Return `value`. Raises AssertionError, as poptorch does, unless it is of the enumeration `kind`."""
    assert isinstance(value, kind), "%r is not a poptorch.%s" % (value, kind.__name__)  # noqa: S101 - poptorch's own
    return value


class PrecisionOptions(Settings):
    """The number formats inside the IPU; what a CPU can't show is recorded only."""

    def __init__(self) -> None:
        super().__init__(
            stochastic_rounding=False,
            partials_type=torch.float,
            floating_point_exceptions=False,
            half_float_casting=HalfFloatCastingBehavior.Default,
            autocast_enabled=True,
            autocast_policy=None,
            running_statistics_always_float=True,
        )

    enableStochasticRounding = setter("stochastic_rounding", "enabled")  # recorded: the hardware's randomness

    def enableFloatingPointExceptions(self, enabled: bool) -> PrecisionOptions:
        """Set whether overflow, and what is infinite or not a number, raises an error."""
        assert isinstance(enabled, bool), (  # noqa: S101 - poptorch's own kind of refusal
            "enableFloatingPointExceptions needs to be set to a bool"
        )
        return self._set("floating_point_exceptions", enabled)

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> PrecisionOptions:
        """Set what an operation makes of float32 beside float16: as PyTorch does, or float16 with the tracer."""
        if not isinstance(half_float_casting, HalfFloatCastingBehavior):
            raise ValueError("halfFloatCasting must be a poptorch.HalfFloatCastingBehavior")  # noqa: TRY004 - as above
        return self._set("half_float_casting", half_float_casting)

    def autocastEnabled(self, autocast_enabled: bool) -> PrecisionOptions:
        """Set whether poptorch.autocast has an effect."""
        if not isinstance(autocast_enabled, bool):
            raise ValueError("autocastEnabled must be set to either True or False")  # noqa: TRY004 - poptorch's own
        return self._set("autocast_enabled", autocast_enabled)

    def autocastPolicy(self, autocast_policy: Policy) -> PrecisionOptions:
        """Record it."""
        if not isinstance(autocast_policy, Policy):
            raise ValueError("autocastPolicy must be set to an instance of poptorch.autocasting.Policy")  # noqa: TRY004
        return self._set("autocast_policy", autocast_policy)

    def runningStatisticsAlwaysFloat(self, value: bool) -> PrecisionOptions:
        """Record it: running statistics are float32 here."""
        if not isinstance(value, bool):
            raise ValueError("runningStatisticsAlwaysFloat needs to be set to a bool")  # noqa: TRY004 - as above
        return self._set("running_statistics_always_float", value)

    def setPartialsType(self, dtype: torch.dtype) -> PrecisionOptions:
        """Record it. Raises ValueError for another type than float and half."""
        if dtype not in (torch.half, torch.float):
            raise ValueError("partials are torch.half or torch.float, and not %s" % dtype)
        return self._set("partials_type", dtype)


class JitOptions(Settings):
    """PyTorch's tracer: it decides what becomes of float32 beside float16. Late releases don't use it."""

    def __init__(self) -> None:
        super().__init__(trace_model=False)

    traceModel = setter("trace_model", "trace_model")


class TrainingOptions(Settings):
    """The way from micro batches to one weight update."""

    def __init__(self) -> None:
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=None,
            auto_loss_scaling=False,
            convolution_dithering=False,
        )

    gradientAccumulation = setter(
        "gradient_accumulation", "gradient_accumulation", partial(whole, "gradientAccumulation")
    )
    # When a mean is divided; unset, it is Post, and Running where accumulators are float16.
    setMeanAccumulationAndReplicationReductionStrategy = setter(
        "meanAccumulationAndReplicationReductionStrategy", "strategy", MeanReductionStrategy
    )
    # Recorded: the loss scale of a stand-in stays as the optimizer says.
    setAutomaticLossScaling = setter("auto_loss_scaling", "enabled")
    setConvolutionDithering = setter("convolution_dithering", "enabled")

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> TrainingOptions:
        """Set Sum or Mean, over micro batches and replicas. Raises ValueError for anything else."""
        if reduction_type not in (ReductionType.Sum, ReductionType.Mean):
            raise ValueError("the reduction is ReductionType.Sum or Mean, and not %r" % (reduction_type,))
        return self._set("accumulation_and_replication_reduction_type", ReductionType(reduction_type))


class DistributedOptions(Settings):
    """The place of this process among several: by default as Open MPI's environment says."""

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

    distributed_process_id = processId
    num_distributed_processes = numProcesses


class TensorLocationSettings(Settings):
    """The memory of one kind of tensors: recorded only."""

    minElementsForOffChip = setter(
        "minElementsForOffChip", "min_elements", lambda value: whole("min_elements", value, 0)
    )
    minElementsForReplicatedTensorSharding = setter(
        "minElementsForReplicatedTensorSharding", "min_elements", lambda value: whole("min_elements", value, 0)
    )
    # None: undefined.
    useOnChipStorage = setter("onChip", "use", lambda use: None if use is None else int(use), default=True)
    useReplicatedTensorSharding = setter("useReplicatedTensorSharding", "use", int, default=True)
    useIOTilesToLoad = setter("useIOTilesToLoad", "use", int, default=True)
    useIOTilesToStore = setter("useIOTilesToStore", "use", int, default=True)


def _location(location: object) -> Dict[str, Any]:
    assert isinstance(location, TensorLocationSettings)  # noqa: S101 - poptorch's own
    return location.toDict()


class TensorLocationOptions(Settings):
    """The memory of tensors, by kind: recorded only."""

    def numIOTiles(self, num_tiles: object) -> TensorLocationOptions:
        """Record it. Raises AssertionError for what an IPU can't have."""
        assert isinstance(num_tiles, int) and 32 <= num_tiles <= 192 and num_tiles % 2 == 0, (  # noqa: S101, PT018 - poptorch's own
            "numIOTiles must be an even number between 32 and 192."
        )
        return self._set("numIOTiles", num_tiles)

    setActivationLocation = setter("location_activation", "location", _location)
    setWeightLocation = setter("location_weight", "location", _location)
    setOptimizerLocation = setter("location_optimizer", "location", _location)
    setAccumulatorLocation = setter("location_accumulator", "location", _location)


class PopartOptions(Settings):
    """PopART's own options: recorded only."""

    @property
    def options(self) -> Dict[str, Any]:
        """Return what was set."""
        return dict(self._values)

    def set(self, key: str, value: object) -> PopartOptions:
        """Record it."""
        return self._set(key, value)

    def setPatterns(self, patterns: object, level: int = 2) -> PopartOptions:
        """Record it."""
        return self._set("patterns", (patterns, level))

    setEngineOptions = setter("engine_options", "options", as_it_is)
