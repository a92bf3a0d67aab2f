"""Execution strategies: which blocks make a stage or a phase, and on which IPU it runs. A CPU runs them in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from poptorch.enums import AutoStage, Liveness
from poptorch.errors import Error

if TYPE_CHECKING:
    from poptorch.options import Options


class Stage:
    """Blocks, by their user_id, that run on one IPU."""

    def __init__(self, *block_ids: str) -> None:
        assert all(isinstance(name, str) for name in block_ids), (  # noqa: S101 - poptorch's own kind of refusal
            "Block IDs are supposed to be strings but got %s" % (block_ids,)
        )
        self._blocks = block_ids
        self._ipu: Optional[int] = None

    def __repr__(self) -> str:
        # Without an address: equal options are printed, and cached, alike.
        words = ", ".join(repr(block) for block in self._blocks)
        return "Stage(%s)%s" % (words, "" if self._ipu is None else ".ipu(%d)" % self._ipu)

    @property
    def blocks(self) -> Tuple[str, ...]:
        """Return the blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> Stage:
        """Have the stage run on `ipu`."""
        assert isinstance(ipu, int)  # noqa: S101 - as above
        self._ipu = ipu
        return self


class Phase:
    """Stages that run at the same time, each on an IPU of its own. Names alone make one stage."""

    def __init__(self, *arg: Any) -> None:
        is_names = all(isinstance(one, str) for one in arg)
        assert is_names or all(isinstance(one, Stage) for one in arg), (  # noqa: S101 - as above
            "All arguments must either be block IDs (strings) or Stages: %s" % [type(one) for one in arg]
        )
        self.stages: List[Stage] = [Stage(*arg)] if is_names else list(arg)

    def stage(self, idx: int) -> Stage:
        """Return stage number `idx`."""
        return self.stages[idx]

    def ipus(self, *ipus: int) -> None:
        """Assign one IPU to each stage."""
        assert len(ipus) == len(self.stages), (  # noqa: S101 - as above
            "Phase contains %d stages but you provided %d ipus" % (len(self.stages), len(ipus))
        )
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)


class Strategy:
    """The base of all strategies: stages by the names of their blocks, and IPUs where they are said."""

    is_pipelined = False

    def __init__(self, stages: List[Stage], auto_stage: AutoStage) -> None:
        self.auto_stage, self.stages = auto_stage, stages
        self._block_map: Dict[str, int] = {}
        for number, stage in enumerate(stages):
            for block in stage.blocks:
                assert block not in self._block_map, (  # noqa: S101 - as above
                    "%s associated with more than one stage" % block
                )
                self._block_map[block] = number

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, ", ".join(repr(stage) for stage in self.stages) or self.auto_stage.name)

    def stage(self, block_id: str) -> Stage:
        """Return the stage that a block belongs to."""
        return self.stages[self.number_of(block_id)]

    def number_of(self, block_id: str) -> int:
        """Return the number of the stage that a block belongs to. Raises AssertionError for a block of no stage."""
        assert block_id in self._block_map, (  # noqa: S101 - as above
            "Unknown Block '%s' list of expected Blocks: %s" % (block_id, list(self._block_map))
        )
        return self._block_map[block_id]

    def ipu_of(self, number: int) -> int:
        """Return the IPU of stage `number`: as it says, else one IPU after the other."""
        ipu = self.stages[number]._ipu
        return number if ipu is None else ipu


class PipelinedExecution(Strategy):
    """Stages work on different micro batches at the same time. Takes an AutoStage, or stages or names of blocks."""

    is_pipelined = True

    def __init__(self, *args: Any) -> None:
        if len(args) == 1 and isinstance(args[0], AutoStage):
            super().__init__([], args[0])
        else:
            super().__init__([_stage(one) for one in args], AutoStage.SameAsIpu)


class ShardedExecution(PipelinedExecution):
    """One IPU after the other."""

    is_pipelined = False


class _PhasedExecution(Strategy):
    def __init__(self, *phases: Any) -> None:
        # The guide also shows one list of all phases.
        is_list = len(phases) == 1 and isinstance(phases[0], list) and all(isinstance(one, Phase) for one in phases[0])
        given = phases[0] if is_list else phases
        assert given, (  # noqa: S101 - as above
            "There is currently no AutoStage for PhasedExecution, please explicitly specify the phases"
        )
        self._phases = [_phase(one) for one in given]
        self.tensors_liveness, self.separate_backward_phase = Liveness.AlwaysLive, False
        super().__init__([stage for phase in self._phases for stage in phase.stages], AutoStage.SameAsIpu)

    def ipu_of(self, number: int) -> int:
        """Return the IPU of a stage: as it says, else by its place in its phase."""
        ipu = self.stages[number]._ipu
        phase = next(phase for phase in self._phases if self.stages[number] in phase.stages)
        return phase.stages.index(self.stages[number]) if ipu is None else ipu

    def phase(self, phase: Any) -> Phase:
        """Return phase number `phase`."""
        assert isinstance(phase, int) and phase >= 0, "Phases are identified by positive integers"  # noqa: S101, PT018
        found: Phase = self._phases[phase]
        return found

    def useSeparateBackwardPhase(self, use: bool = True) -> Any:
        """Record it: whether the forward and backward passes share a phase."""
        self.separate_backward_phase = bool(use)
        return self


class ParallelPhasedExecution(_PhasedExecution):
    """Phases run alternating between two groups of IPUs."""

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> ParallelPhasedExecution:
        """Record it."""
        self.tensors_liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self


class SerialPhasedExecution(_PhasedExecution):
    """Phases run one after the other on one group of IPUs."""

    def setTensorsLiveness(self, liveness: Liveness) -> SerialPhasedExecution:
        """Record it."""
        self.tensors_liveness = Liveness(liveness)
        return self


def _stage(value: Any) -> Stage:
    if isinstance(value, Stage):
        return value
    return Stage(value) if isinstance(value, str) else Stage(*value)


def _phase(value: object) -> Phase:
    if isinstance(value, Phase):
        return value
    return Phase(*value) if isinstance(value, list) else Phase(value)


def refuse_options_apart(options: Options) -> None:
    """Raise Error for options that don't go together."""
    if options.Training.auto_loss_scaling and not options.is_mean():
        raise Error("automatic loss scaling needs accumulationAndReplicationReductionType(ReductionType.Mean)")
    replicas = options.replication_factor * options.Distributed.numProcesses
    if options.ipu_model and replicas > 1:
        raise Error("the IPU model does not support replication, and there are %d replicas" % replicas)


def refuse_accumulation(options: Options) -> None:
    """Raise Error if options for inference ask for more than one micro batch before an update."""
    if options.Training.gradient_accumulation != 1:
        instead = (
            " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run for pipelined "
            "execution instead."
        )
        raise Error(
            "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) "
            "when running a poptorch.inferenceModel()." + instead * options.execution_strategy.is_pipelined
        )


def refuse_short_pipeline(options: Options, stages: int, training: bool) -> None:
    """Raise Error if a pipeline of `stages` IPUs can't be kept full."""
    if not training:
        if options.device_iterations < stages:
            raise Error(
                "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
                "(%d) when using PopTorch.PipelinedExecution. It is %d." % (stages, options.device_iterations)
            )
        return
    needed, accumulation = 2 * stages - 1, options.Training.gradient_accumulation
    if accumulation < needed:
        raise Error(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of pipeline "
            "stages (%d) when using poptorch.PipelinedExecution. Please note that a model with %d pipeline stages in "
            "PopTorch will have an additional %d stages when training. It is %d."
            % (needed, stages, needed - stages, accumulation)
        )
