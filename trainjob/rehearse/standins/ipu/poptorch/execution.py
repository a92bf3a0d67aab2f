"""How a model's blocks are scheduled on several IPUs. On a CPU one runs after the other, whatever the strategy."""

from __future__ import annotations

from typing import Any

from poptorch.enums import AutoStage
from poptorch.errors import Error


class _Strategy:
    """A strategy, and what it was given."""

    is_pipelined = False

    def __init__(self, *args: Any) -> None:
        self.args = args
        stages = [value for value in args if isinstance(value, AutoStage)]
        self.auto_stage = stages[0] if stages else AutoStage.SameAsIpu


class PipelinedExecution(_Strategy):
    """Stages work on different micro batches at the same time."""

    is_pipelined = True


class ShardedExecution(_Strategy):
    """One IPU after the other."""


class ParallelPhasedExecution(_Strategy):
    """Phases, each over several IPUs."""


class SerialPhasedExecution(_Strategy):
    """Phases, one after the other."""


def refuse_options_apart(options: Any) -> None:
    """Raise Error for options that don't go together."""
    if options.Training.auto_loss_scaling and not options.is_mean():
        raise Error("automatic loss scaling needs accumulationAndReplicationReductionType(ReductionType.Mean)")
    replicas = options.replication_factor * options.Distributed.numProcesses
    if options.ipu_model and replicas > 1:
        raise Error("the IPU model does not support replication, and there are %d replicas" % replicas)


def refuse_short_pipeline(options: Any, stages: int, training: bool) -> None:
    """Raise Error where a pipeline of `stages` IPUs can't be kept full."""
    if not training:
        if options.device_iterations < stages:
            raise Error(
                "a pipeline of %d stages needs as many device iterations, and has %d"
                % (stages, options.device_iterations)
            )
        return
    needed, found = 2 * stages - 1, options.Training.gradient_accumulation
    if found < needed:
        raise Error(
            "gradient accumulation must be at least the number of pipeline stages: %d over %d IPUs, and is %d"
            % (needed, stages, found)
        )
