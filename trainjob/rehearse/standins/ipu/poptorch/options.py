"""poptorch.Options: every documented setter. What can't matter on a CPU is recorded, for toDict to show."""

from __future__ import annotations

import json
import os
from typing import Dict, Optional, Union

import torch
from trainjob_standins.announce import say_what_this_is

from poptorch.enums import CommGroupType, ConnectionType, MeanReductionStrategy, OutputMode, ReductionType, SyncPattern
from poptorch.execution import PipelinedExecution, ShardedExecution
from poptorch.freezing import Settings
from poptorch.option_groups import (
    DistributedOptions,
    PopartOptions,
    PrecisionOptions,
    TensorLocationOptions,
    TrainingOptions,
    whole,
)
from poptorch.options_file import apply_file


class Options(Settings):
    """Everything that is said of a model before it is compiled. Setters return the options, to chain them."""

    def __init__(self) -> None:
        say_what_this_is()
        super().__init__(
            replication_factor=1,
            device_iterations=1,
            input_group_size=1,
            input_group_type=CommGroupType.NoGroup,
            random_seed=None,
            output_mode=OutputMode.Default,
            output_return_period=1,
            connection_type=ConnectionType.Always,
            sync_pattern=SyncPattern.Full,
            auto_round_num_ipus=False,
            broadcast_buffers=True,
            log_dir=".",
            execution_strategy=PipelinedExecution(),
            executable_cache=os.environ.get("POPTORCH_CACHE_DIR"),
            compilation_progress_bar=True,
            ipu_id=None,
            ipu_model=os.environ.get("POPTORCH_IPU_MODEL") == "1",
            offline_ipu_version=None,
            synthetic_data=False,
            reduces_over_instances=False,
            Precision=PrecisionOptions(),
            Training=TrainingOptions(),
            Distributed=DistributedOptions(),
            TensorLocations=TensorLocationOptions(),
            _Popart=PopartOptions(),
        )
        for name, value in json.loads(os.environ.get("POPTORCH_DEFAULT_OPTIONS") or "{}").items():
            getattr(self, name)(value)

    # -- what one call of the model is ---------------------------------------------------------

    def deviceIterations(self, device_iterations: int) -> Options:
        """Set how often the device runs between two returns to the host."""
        return self._set("device_iterations", whole("deviceIterations", device_iterations))

    def replicationFactor(self, replication_factor: int) -> Options:
        """Set the copies of the model that this process trains."""
        return self._set("replication_factor", whole("replicationFactor", replication_factor))

    def inputReplicaGrouping(self, input_group_size: int, communication_group_type: CommGroupType) -> Options:
        """Set how many replicas share one input, and which."""
        self._set("input_group_type", CommGroupType(communication_group_type))
        return self._set("input_group_size", whole("input_group_size", input_group_size))

    def outputMode(self, output_mode: OutputMode, output_return_period: Optional[int] = None) -> Options:
        """Set which results come back; EveryN needs a period."""
        if (output_mode == OutputMode.EveryN) != (output_return_period is not None):
            raise ValueError("output_return_period is given with OutputMode.EveryN, and only with it")
        self._set("output_return_period", whole("output_return_period", output_return_period or 1))
        return self._set("output_mode", OutputMode(output_mode))

    def randomSeed(self, random_seed: int) -> Options:
        """Seed torch as well as the device."""
        torch.manual_seed(whole("randomSeed", random_seed, 0))
        return self._set("random_seed", random_seed)

    # -- device and compilation ----------------------------------------------------------------

    def enableExecutableCaching(self, path: Optional[str]) -> Options:
        """Keep compiled models in the folder `path`; None: nowhere."""
        return self._set("executable_cache", path)

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        """Set whether compiling shows a progress bar."""
        return self._set("compilation_progress_bar", bool(show))

    def useIpuModel(self, use_model: bool) -> Options:
        """Record it: a stand-in runs on the CPU either way. The simulator has no replicas, and nor has this then."""
        return self._set("ipu_model", bool(use_model))

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        """Compile only, for an IPU of that version."""
        self._set("connection_type", ConnectionType.Never)
        return self._set("offline_ipu_version", ipu_version)

    def connectionType(self, connection_type: ConnectionType) -> Options:
        """Set when the device is attached; Never: compile only."""
        return self._set("connection_type", ConnectionType(connection_type))

    def useIpuId(self, ipu_id: int) -> Options:
        """Record which device to use."""
        return self._set("ipu_id", whole("ipu_id", ipu_id, 0))

    def syncPattern(self, sync_pattern: SyncPattern) -> Options:
        """Record it."""
        return self._set("sync_pattern", SyncPattern(sync_pattern))

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        """Take the next power of two of IPUs where the model uses another number."""
        return self._set("auto_round_num_ipus", bool(auto_round_num_ipus))

    def setExecutionStrategy(self, strategy: Union[PipelinedExecution, ShardedExecution]) -> Options:
        """Set how blocks of several IPUs run."""
        return self._set("execution_strategy", strategy)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        """Record it: a stand-in's replicas always have buffers of their own."""
        return self._set("broadcast_buffers", bool(broadcast_buffers))

    def loadFromFile(self, filepath: str) -> Options:
        """Call every setter that the file names, one a line: `deviceIterations(4)`."""
        apply_file(self, filepath)
        return self

    # -- recorded only -------------------------------------------------------------------------

    def setAvailableMemoryProportion(self, available_memory_proportion: Dict[str, float]) -> Options:
        """Record it."""
        return self._set("available_memory_proportion", dict(available_memory_proportion))

    def enableSyntheticData(self, enabled: bool) -> Options:
        """Record it."""
        return self._set("synthetic_data", bool(enabled))

    def enableProfiling(self, profile_dir: Optional[str] = None) -> Options:
        """Record it."""
        return self._set("profile_dir", profile_dir or ".")

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        """Record it."""
        return self._set("log_cycle_count", bool(log_cycle_count))

    def modelName(self, name: str) -> Options:
        """Record it."""
        return self._set("model_name", name)

    def enableStableNorm(self, enabled: bool) -> Options:
        """Record it."""
        return self._set("stable_norm", bool(enabled))

    def maxRepeatLogs(self, max_lines: Optional[int] = None) -> Options:
        """Record it."""
        return self._set("max_repeat_logs", max_lines)

    def logDir(self, log_dir: str) -> Options:
        """Record it."""
        return self._set("log_dir", log_dir)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        """Record it."""
        return self._set("relax_optimizer_checks", bool(relax))

    # -- what the stand-in asks ----------------------------------------------------------------

    @property
    def input_replicas(self) -> int:
        """Replicas of this process that get an input of their own."""
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

    def is_mean(self) -> bool:
        """Return whether gradients are averaged, and not summed."""
        return bool(self.Training.accumulation_and_replication_reduction_type == ReductionType.Mean)

    def is_running_mean(self, accumulators_are_half: bool) -> bool:
        """Return whether a mean is divided at every micro batch."""
        chosen = self.Training.meanAccumulationAndReplicationReductionStrategy
        usual = MeanReductionStrategy.Running if accumulators_are_half else MeanReductionStrategy.Post
        return self.is_mean() and (usual if chosen is None else chosen) == MeanReductionStrategy.Running
