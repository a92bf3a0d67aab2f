"""poptorch.Options: every documented setter. What can't matter on a CPU is recorded, for toDict to show."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any, Dict, Optional

import torch
from trainjob_standins.announce import say_what_this_is

from poptorch.enums import (
    CommGroupType,
    ConnectionType,
    HalfFloatCastingBehavior,
    MeanReductionStrategy,
    OutputMode,
    ReductionType,
    SyncPattern,
)
from poptorch.freezing import ConfigFileError, Settings, apply_file, apply_named, as_it_is, setter
from poptorch.optim import accumulates_in_half
from poptorch.option_groups import (
    DistributedOptions,
    JitOptions,
    PopartOptions,
    PrecisionOptions,
    TensorLocationOptions,
    TrainingOptions,
    member,
    whole,
)
from poptorch.stages import PipelinedExecution, Strategy

__all__ = ["ConfigFileError", "Options"]

_DistributedOptions = DistributedOptions  # popdist derives from it, by this name


class Options(Settings):
    """Everything that is said of a model before it is compiled. Setters return the options, to chain them."""

    def __init__(self) -> None:
        say_what_this_is()
        super().__init__(
            replication_factor=1,
            device_iterations=1,
            input_group_size=1,
            input_group_type=CommGroupType.NoGrouping,
            random_seed=None,
            output_mode=OutputMode.Default,
            output_return_period=1,
            connection_type=ConnectionType.Always,
            sync_pattern=SyncPattern.Full,
            auto_round_num_ipus=False,
            available_memory_proportion={},
            broadcast_buffers=True,
            log_dir=".",
            execution_strategy=PipelinedExecution(),
            executable_cache=os.environ.get("POPTORCH_CACHE_DIR"),
            compilation_progress_bar=True,
            ipu_id=None,
            ipu_model=os.environ.get("POPTORCH_IPU_MODEL") == "1",
            offline_ipu_version=None,
            synthetic_data=False,
            anchored_tensors={},
            updatable_named_buffers=[],
            source_location_excludes=["site-packages/torch", "site-packages/poptorch"],
            module_namescope=True,
            log_cycle_count=False,
            relax_optimizer_checks=False,
            profile_dir=None,
            model_name=None,
            reduces_over_instances=False,
            Precision=PrecisionOptions(),
            Training=TrainingOptions(),
            Distributed=DistributedOptions(),
            TensorLocations=TensorLocationOptions(),
            Jit=JitOptions(),
            _Popart=PopartOptions(),
        )
        apply_named(self, json.loads(os.environ.get("POPTORCH_DEFAULT_OPTIONS") or "{}"))

    # -- what one call of the model is ---------------------------------------------------------

    deviceIterations = setter("device_iterations", "device_iterations", partial(whole, "deviceIterations"))
    replicationFactor = setter("replication_factor", "replication_factor", partial(whole, "replicationFactor"))
    updatableNamedBuffers = setter("updatable_named_buffers", "buffers", list)

    def inputReplicaGrouping(self, input_group_size: int, communication_group_type: CommGroupType) -> Options:
        """Set how many replicas share one input, and which."""
        self._set("input_group_type", CommGroupType(communication_group_type))
        return self._set("input_group_size", whole("input_group_size", input_group_size))

    def outputMode(self, output_mode: OutputMode, output_return_period: Optional[int] = None) -> Options:
        """Set which results come back; EveryN needs a period, which is ignored elsewhere."""
        assert isinstance(output_mode, OutputMode)  # noqa: S101 - poptorch's own kind of refusal
        if output_mode == OutputMode.EveryN:
            assert output_return_period and output_return_period > 0, (  # noqa: S101, PT018 - as above
                "EveryN anchor must have output_return_period set to valid positive integer"
            )
        self._set("output_return_period", output_return_period if output_mode == OutputMode.EveryN else 1)
        return self._set("output_mode", output_mode)

    def defaultOutputMode(self) -> bool:
        """Return whether outputMode was never set."""
        return bool(self.output_mode == OutputMode.Default)

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: Optional[OutputMode] = None,
        output_return_period: int = 1,
    ) -> None:
        """Have the executor's getAnchoredTensor(short_name) return a tensor of the graph, as the last call left it."""
        self._set(
            "anchored_tensors", {**self.anchored_tensors, short_name: [long_name, output_mode, output_return_period]}
        )

    def randomSeed(self, random_seed: int) -> Options:
        """Seed torch as well as the device."""
        assert isinstance(random_seed, int), "randomSeed takes an int, and not %r" % (random_seed,)  # noqa: S101 - as above
        torch.manual_seed(random_seed)
        return self._set("random_seed", random_seed)

    # -- device and compilation ----------------------------------------------------------------

    enableExecutableCaching = setter("executable_cache", "path", as_it_is)  # None: nowhere
    showCompilationProgressBar = setter("compilation_progress_bar", "show", default=True)
    connectionType = setter("connection_type", "connection_type", partial(member, ConnectionType))
    setExecutionStrategy = setter("execution_strategy", "strategy", partial(member, Strategy))
    autoRoundNumIPUs = setter("auto_round_num_ipus", "auto_round_num_ipus", default=True)
    # A stand-in runs on the CPU either way. The simulator has no replicas, and nor has this then.
    useIpuModel = setter("ipu_model", "use_model")

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        """Compile only, for an IPU of that version."""
        self._set("connection_type", ConnectionType.Never)
        return self._set("offline_ipu_version", ipu_version)

    def useIpuId(self, ipu_id: int) -> Options:
        """Record which device to use."""
        assert isinstance(ipu_id, int), "useIpuId takes an int, and not %r" % (ipu_id,)  # noqa: S101 - as above
        return self._set("ipu_id", ipu_id)

    def loadFromFile(self, filepath: str) -> Options:
        """Call every setter that the file names, one a line: `deviceIterations(4)`."""
        apply_file(self, filepath)
        return self

    # -- recorded only -------------------------------------------------------------------------

    syncPattern = setter("sync_pattern", "sync_pattern", partial(member, SyncPattern))
    broadcastBuffers = setter("broadcast_buffers", "broadcast_buffers", default=True)  # replicas have separate ones
    enableSyntheticData = setter("synthetic_data", "enabled")
    enableProfiling = setter("profile_dir", "profile_dir", lambda folder: folder or ".", default=None)
    logCycleCount = setter("log_cycle_count", "log_cycle_count")
    modelName = setter("model_name", "name", as_it_is)
    enableStableNorm = setter("stable_norm", "enabled")
    maxRepeatLogs = setter("max_repeat_logs", "max_lines", as_it_is, default=None)
    logDir = setter("log_dir", "log_dir", as_it_is)
    sourceLocationExcludes = setter("source_location_excludes", "excludes", list)
    relaxOptimizerAttributesChecks = setter("relax_optimizer_checks", "relax", default=True)

    def setAvailableMemoryProportion(self, available_memory_proportion: Dict[str, float]) -> Options:
        """Record it, by "IPU" and a number."""
        for key in available_memory_proportion:
            assert key.startswith("IPU"), (  # noqa: S101 - as above
                'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5}. Invalid key: %s'
                % key
            )
        return self._set("available_memory_proportion", dict(available_memory_proportion))

    def appendToLocationExcludes(self, *excludes: str) -> Options:
        """Record further ones."""
        return self._set("source_location_excludes", [*self.source_location_excludes, *excludes])

    def disableModuleNamescope(self) -> Options:
        """Record it: operations have no names here."""
        return self._set("module_namescope", False)

    # -- what the stand-in asks ----------------------------------------------------------------

    def settled(self, training: bool, optimizer: Any) -> Options:
        """Return these options, with what depends on the model's use: the output mode, and how a mean is taken."""
        if self.defaultOutputMode():
            self._set("output_mode", OutputMode.Final if training else OutputMode.All)
        is_half = training and accumulates_in_half(optimizer)
        strategy = self.Training.meanAccumulationAndReplicationReductionStrategy
        if is_half or strategy is None:
            usual = MeanReductionStrategy.Running if is_half else MeanReductionStrategy.Post
            self.Training._set("meanAccumulationAndReplicationReductionStrategy", usual)
        return self

    @property
    def input_replicas(self) -> int:
        """Replicas of this process that get separate inputs."""
        if self.replication_factor % self.input_group_size:
            raise ValueError(
                "replicas of a process must divide by the input group: %d replicas, groups of %d"
                % (self.replication_factor, self.input_group_size)
            )
        return int(self.replication_factor // self.input_group_size)

    def input_of(self, replica: int) -> int:
        """Return which of the inputs `replica` takes."""
        if self.input_group_type == CommGroupType.Orthogonal:
            return replica % self.input_replicas
        return replica // int(self.input_group_size)

    def downcasts(self) -> bool:
        """Return whether float32 beside float16 becomes float16: by default if PyTorch's tracer is asked for."""
        casting = self.Precision.half_float_casting
        is_default = casting == HalfFloatCastingBehavior.Default
        return bool(self.Jit.trace_model if is_default else casting == HalfFloatCastingBehavior.FloatDowncastToHalf)

    def is_mean(self) -> bool:
        """Return whether gradients are averaged, and not summed."""
        return bool(self.Training.accumulation_and_replication_reduction_type == ReductionType.Mean)

    def is_running_mean(self, accumulators_are_half: bool) -> bool:
        """Return whether a mean is divided at every micro batch."""
        chosen = self.Training.meanAccumulationAndReplicationReductionStrategy
        usual = MeanReductionStrategy.Running if accumulators_are_half else MeanReductionStrategy.Post
        return self.is_mean() and (usual if chosen is None else chosen) == MeanReductionStrategy.Running
