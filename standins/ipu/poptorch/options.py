"""poptorch.Options: every documented setter. What can't matter on a CPU is recorded, for toDict to show."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

import torch
from trainjob_standins.announce import say_what_this_is

from poptorch.enums import CommGroupType, ConnectionType, MeanReductionStrategy, OutputMode, ReductionType, SyncPattern
from poptorch.freezing import ConfigFileError, Settings, apply_file, apply_named
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

    def updatableNamedBuffers(self, buffers: List[str]) -> Options:
        """Name the buffers that copyNamedBuffersToDevice copies."""
        return self._set("updatable_named_buffers", list(buffers))

    def randomSeed(self, random_seed: int) -> Options:
        """Seed torch as well as the device."""
        assert isinstance(random_seed, int), "randomSeed takes an int, and not %r" % (random_seed,)  # noqa: S101 - as above
        torch.manual_seed(random_seed)
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
        return self._set("connection_type", member(ConnectionType, connection_type))

    def useIpuId(self, ipu_id: int) -> Options:
        """Record which device to use."""
        assert isinstance(ipu_id, int), "useIpuId takes an int, and not %r" % (ipu_id,)  # noqa: S101 - as above
        return self._set("ipu_id", ipu_id)

    def syncPattern(self, sync_pattern: SyncPattern) -> Options:
        """Record it."""
        return self._set("sync_pattern", member(SyncPattern, sync_pattern))

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        """Take the next power of two of IPUs where the model uses another number."""
        return self._set("auto_round_num_ipus", bool(auto_round_num_ipus))

    def setExecutionStrategy(self, strategy: Strategy) -> Options:
        """Set how blocks of several IPUs run."""
        assert isinstance(strategy, Strategy)  # noqa: S101 - as above
        return self._set("execution_strategy", strategy)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        """Record it: a stand-in's replicas always have separate buffers."""
        return self._set("broadcast_buffers", bool(broadcast_buffers))

    def loadFromFile(self, filepath: str) -> Options:
        """Call every setter that the file names, one a line: `deviceIterations(4)`."""
        apply_file(self, filepath)
        return self

    # -- recorded only -------------------------------------------------------------------------

    def setAvailableMemoryProportion(self, available_memory_proportion: Dict[str, float]) -> Options:
        """Record it, by "IPU" and a number."""
        for key in available_memory_proportion:
            assert key.startswith("IPU"), (  # noqa: S101 - as above
                'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5}. Invalid key: %s'
                % key
            )
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

    def sourceLocationExcludes(self, excludes: List[str]) -> Options:
        """Record it: frames that a compiler's messages leave out."""
        return self._set("source_location_excludes", list(excludes))

    def appendToLocationExcludes(self, *excludes: str) -> Options:
        """Record further ones."""
        return self._set("source_location_excludes", [*self.source_location_excludes, *excludes])

    def disableModuleNamescope(self) -> Options:
        """Record it: operations have no names here."""
        return self._set("module_namescope", False)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        """Record it."""
        return self._set("relax_optimizer_checks", bool(relax))

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

    def is_mean(self) -> bool:
        """Return whether gradients are averaged, and not summed."""
        return bool(self.Training.accumulation_and_replication_reduction_type == ReductionType.Mean)

    def is_running_mean(self, accumulators_are_half: bool) -> bool:
        """Return whether a mean is divided at every micro batch."""
        chosen = self.Training.meanAccumulationAndReplicationReductionStrategy
        usual = MeanReductionStrategy.Running if accumulators_are_half else MeanReductionStrategy.Post
        return self.is_mean() and (usual if chosen is None else chosen) == MeanReductionStrategy.Running
