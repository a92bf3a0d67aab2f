"""What is logged of options when a model is compiled, and PopART's options held against those that PopART has."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import torch
from trainjob_standins.announce import is_logged, log, warn

from poptorch.errors import Error
from poptorch.stages import PipelinedExecution, ShardedExecution

# PopART's session options that PopTorch lets a program set.
_NAMES = """
    accumulateOuterFragmentSettings.excludedVirtualGraphs accumulateOuterFragmentSettings.schedule
    accumulationAndReplicationReductionType accumulationFactor aliasZeroCopy autoRecomputation
    automaticLossScalingSettings.binEdgeLocation automaticLossScalingSettings.enabled
    automaticLossScalingSettings.gradientTensorTrackingMethod
    automaticLossScalingSettings.thresholdUpperCountProportion automaticLossScalingSettings.updatePeriod
    batchSerializationSettings.batchSchedule batchSerializationSettings.concatOnExecutionPhaseChange
    batchSerializationSettings.concatOnPipelineStageChange batchSerializationSettings.concatOnVirtualGraphChange
    batchSerializationSettings.factor batchSerializationSettings.method batchSerializationSettings.transformContext
    cachePath compileEngine constantWeights convolutionOptions createImplicitPipeliningFwdOnlyProgram
    customCodeletCompileFlags customCodelets decomposeGradSum defaultBufferingDepth defaultPrefetchBufferingDepth
    delayVarUpdates disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams dotChecks dotOpNames
    enableConstantFoldingOfMultipleConsumers enableDistributedReplicatedGraphs enableEfficientOverlapIOTopoCons
    enableEngineCaching enableExplicitIR enableFloatingPointChecks enableFullyConnectedPass enableGradientAccumulation
    enableGroupedMatmuls enableInplaceAmbiguityChecking enableMergeExchange enableNonStableSoftmax enableOutlining
    enableOutliningCopyCostPruning enablePipelining enablePrefetchDatastreams enableRemoteBuffer
    enableReplicatedGraphs enableSerializedMatmuls enableStableNorm enableStochasticRounding
    enableSupportedDataTypeCasting enableVariablesCaching engineOptions ensureFp32LossScaleTensor
    executionPhaseSettings.phases executionPhaseSettings.stages explicitPipelining explicitRecomputation
    exportPoplarComputationGraph exportPoplarVertexGraph finalDotOp firstDotOp gclOptions globalReplicaOffset
    globalReplicationFactor groupHostSync groupNormStridedChannelGrouping groupedMultiExchange
    hardwareInstrumentations hostAllReduce hostAllReduceRemoteBuffer hostWeightUpdate
    instrumentWithHardwareCycleCounter kahnTieBreaker logDir looseThresholdAtPeak lstmOptions matmulOptions
    meanAccumulationAndReplicationReductionStrategy mergeVarUpdate mergeVarUpdateMemThreshold numIOTiles
    opxAliasChecking opxModifyChecking outlineSequenceBreakCost outlineThreshold partialsTypeMatMuls
    rearrangeAnchorsOnHost rearrangeStreamsOnHost replicatedCollectivesSettings.mergeAllGatherCollectives
    replicatedCollectivesSettings.mergeAllReduceCollectives
    replicatedCollectivesSettings.mergeReduceScatterCollectives
    replicatedCollectivesSettings.prepareScheduleForMergingCollectives replicatedGraphCount reportOptions
    saveInitializersToFile scheduleNonWeightUpdateGradientConsumersEarly separateCallOpPdfs
    serializedPoprithmsShiftGraphsDir stashAllTensorsInferencePipeline strictOpVersions subgraphCopyingStrategy
    swapLimitScheduler syntheticDataMode throwIfLog2ScaleTensorNotInRange timeLimitScheduler
    transitiveClosureOptimizationThreshold useHostCopyOps useLoopCandidateCreator useOverlapIO virtualGraphMode
"""
_KNOWN = frozenset(_NAMES.split())
_SET_OTHERWISE = ("patterns", "engine_options")
_EXECUTION = ((ShardedExecution, 1), (PipelinedExecution, 0))


def tell(options: Any) -> None:
    """Log, at DEBUG, what a model is compiled with; warn of options that PopART may not have."""
    values = options.toDict()
    for name in values["_Popart"]:
        if name not in _KNOWN and name not in _SET_OTHERWISE:
            warn("_Popart.set(%r): the stand-in knows no such option of PopART; PopTorch refuses unknown ones" % name)
    if is_logged("DEBUG"):
        for line in _lines(values):
            log("DEBUG", "poptorch.Options " + line)


def validate(values: Dict[str, Any]) -> None:
    """Log what `Options.toDict` returned. Raises Error for PopART's options that are unknown or of no known type."""
    for name, value in values["_Popart"].items():
        if name not in _SET_OTHERWISE:
            if not isinstance(value, (bool, int, float, str, list, tuple, set, dict)):
                raise Error("Unknown value type %s for option %s" % (type(value), name))
            if name not in _KNOWN:
                raise Error("Unknown %s option %s" % (type(value).__name__, name))
    for line in _lines(values):
        log("DEBUG", "poptorch.Options " + line)


def _lines(values: Dict[str, Any]) -> Iterator[str]:
    for name, value in _renamed(values):
        if isinstance(value, dict):
            for key, one in value.items():
                yield "set %s[%s] to %s" % (name, key, one)
        elif isinstance(value, (list, tuple, set)):
            for one in value:
                yield "added %s to %s" % (one, name)
        elif isinstance(value, (bool, int, float, str)):
            yield "set %s to value %s" % (name, str(value).lower() if isinstance(value, bool) else value)


def _renamed(values: Dict[str, Any]) -> Iterator[Tuple[str, Any]]:
    """Give each option under the name, and as the value, that PopTorch hands on."""
    for name, value in values.items():
        if name == "execution_strategy":
            yield "execution_mode", next((number for kind, number in _EXECUTION if isinstance(value, kind)), 2)
        elif name == "synthetic_data":
            yield "syntheticDataMode", 2 if value else 0
        elif name == "partials_type":
            partials = "half" if value is torch.half else "float"
            yield "partialsTypeMatMuls", partials
            yield "convolutionOptions", {"partialsType": partials}
        elif name in ("Precision", "Training", "_Popart"):
            yield from _renamed(value)
        elif name not in (*_SET_OTHERWISE, "Distributed", "TensorLocations", "Jit"):
            yield name, value
