"""How a model's blocks are scheduled on several IPUs. On a CPU one runs after the other, whatever the strategy."""

from __future__ import annotations

from typing import Any

from poptorch.enums import AutoStage


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
