"""The IPU that a layer and all after it run on. A CPU runs it anyway: only the number of IPUs is found out."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from torch import nn

from poptorch.enums import AutoStage
from poptorch.errors import Error
from poptorch.stages import Strategy

_MARK = "_poptorch_block"
_tracing: List["Placement"] = []


class _Begin(NamedTuple):
    user_id: Optional[str]
    ipu_id: Optional[int]


class Placement:
    """The IPUs that a forward pass has gone through, and the stages that it has entered."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._stages: Dict[str, int] = {}
        self._unnamed = 0
        self._stage = 0
        self.ipu = 0
        self.highest = 0

    def begin(self, user_id: Optional[str], ipu_id: Optional[int]) -> None:
        """Continue on `ipu_id`; None: as the strategy says of the block. Raises Error for stages out of order."""
        if user_id is None:
            user_id, self._unnamed = str(self._unnamed), self._unnamed + 1
        if self._strategy.stages:
            stage = self._strategy.number_of(user_id)
            self.ipu = self._strategy.ipu_of(stage) if ipu_id is None else int(ipu_id)
        else:
            is_first = not self._stages
            if ipu_id is not None:
                self.ipu = int(ipu_id)
            elif not is_first and self._strategy.auto_stage == AutoStage.AutoIncrement:
                self.ipu += 1
            own = self.ipu if self._strategy.auto_stage == AutoStage.SameAsIpu else len(self._stages)
            stage = self._stages.setdefault(user_id, own)
        if self._strategy.is_pipelined and stage < self._stage:
            raise Error(
                "stages of a pipeline must be in ascending order: block %s is of stage %d and follows stage %d. Use "
                "poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)" % (user_id, stage, self._stage)
            )
        self._stage = stage
        self.highest = max(self.highest, self.ipu)

    def use_auto_id(self) -> None:
        """Let blocks without a name count themselves from 0 again."""
        self._unnamed = 0


class traced:  # noqa: N801 - used as a context, like a function
    """While it lasts, blocks that are entered are noted in its placement."""

    def __init__(self, model: nn.Module, strategy: Strategy) -> None:
        self._model = model
        self._placement = Placement(strategy)
        self._hooks: List[Any] = []

    def __enter__(self) -> Placement:
        for layer in self._model.modules():
            mark = layer.__dict__.get(_MARK)
            if mark is not None:
                self._hooks.append(layer.register_forward_pre_hook(_hook(self._placement, mark)))
        _tracing.append(self._placement)
        return self._placement

    def __exit__(self, *_error: Any) -> None:
        _tracing.pop()
        for hook in self._hooks:
            hook.remove()


def is_compiling() -> bool:
    """Return whether a model is being traced, and not run."""
    return bool(_tracing)


def _hook(placement: Placement, mark: _Begin) -> Any:
    # A hook that returned something would replace the layer's inputs.
    return lambda _layer, _inputs: placement.begin(mark.user_id, mark.ipu_id)


def BeginBlock(layer_to_call: Any, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> Any:
    """Return the layer, marked: it and what follows it run on IPU `ipu_id`. Raises Error if it has a mark."""
    if isinstance(layer_to_call, nn.Module):
        if _MARK in layer_to_call.__dict__:
            raise Error("module has already been assigned to a block.")
        layer_to_call.__dict__[_MARK] = _Begin(user_id, ipu_id)
        return layer_to_call
    if not callable(layer_to_call):
        raise Error("module is not an instance of torch.nn.Module or function.")
    return BlockFunction(user_id, ipu_id)(layer_to_call)


def removeBlocks(module: nn.Module) -> None:
    """Take the marks of `module` and all its layers away."""
    for layer in module.modules():
        layer.__dict__.pop(_MARK, None)


class Block:
    """`with poptorch.Block("name", ipu_id=1):` inside forward."""

    def __init__(self, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        self.user_id, self.ipu_id = user_id, ipu_id

    def __enter__(self) -> None:
        Block.start(self.user_id, self.ipu_id)

    def __exit__(self, *_error: Any) -> None:
        """Leave what follows on the block's IPU, until the next one begins."""

    @staticmethod
    def start(user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        """Begin a block, until the next one begins."""
        if _tracing:
            _tracing[-1].begin(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Let blocks without a name count themselves from 0 again."""
        if _tracing:
            _tracing[-1].use_auto_id()


def BlockFunction(user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> Callable[[Any], Any]:
    """Return a decorator: what the function does is a block."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return within

    return decorate
