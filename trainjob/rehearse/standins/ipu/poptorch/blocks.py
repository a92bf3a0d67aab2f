"""Which IPU a layer, and all that follows it, runs on. A CPU runs it anyway: only the number of IPUs is found out."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, NamedTuple, Optional

from torch import nn

from poptorch.enums import AutoStage

_MARK = "_poptorch_block"
_tracing: List["Placement"] = []


class _Begin(NamedTuple):
    user_id: Optional[str]
    ipu_id: Optional[int]


class Placement:
    """The IPUs that a forward pass has gone through."""

    def __init__(self, auto_stage: AutoStage) -> None:
        self._auto_stage = auto_stage
        self._blocks = 0
        self.ipu = 0
        self.highest = 0

    def begin(self, ipu_id: Optional[int]) -> None:
        """Go on on `ipu_id`; None: as blocks without one do."""
        if ipu_id is not None:
            self.ipu = ipu_id
        elif self._blocks and self._auto_stage == AutoStage.AutoIncrement:
            self.ipu += 1
        self._blocks += 1
        self.highest = max(self.highest, self.ipu)


class traced:  # noqa: N801 - used as a context, like a function
    """While it lasts, blocks that are entered are noted in its placement."""

    def __init__(self, model: nn.Module, auto_stage: AutoStage) -> None:
        self._model = model
        self._placement = Placement(auto_stage)
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


def _hook(placement: Placement, mark: _Begin) -> Any:
    # A hook that returned something would replace the layer's inputs.
    return lambda _layer, _inputs: placement.begin(mark.ipu_id)


def BeginBlock(layer_to_call: Any, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> Any:
    """Return the layer, marked: it and what follows it run on IPU `ipu_id`. Raises AssertionError if it has a mark."""
    if isinstance(layer_to_call, nn.Module):
        assert _MARK not in layer_to_call.__dict__, "a block was already begun at this layer"  # noqa: S101 - poptorch's
        layer_to_call.__dict__[_MARK] = _Begin(user_id, ipu_id)
        return layer_to_call
    return BlockFunction(user_id, ipu_id)(layer_to_call)


def removeBlocks(module: nn.Module) -> None:
    """Take the marks of `module` and all its layers away."""
    for layer in module.modules():
        layer.__dict__.pop(_MARK, None)


class Block:
    """`with poptorch.Block("name", ipu_id=1):` inside forward."""

    _next_id = 0

    def __init__(self, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        self.user_id, self.ipu_id = user_id, ipu_id

    def __enter__(self) -> None:
        Block.start(self.user_id, self.ipu_id)

    def __exit__(self, *_error: Any) -> None:
        """Leave what follows on the block's IPU, until the next one begins."""

    @staticmethod
    def start(user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:  # noqa: ARG004 - poptorch's form
        """Begin a block, until the next one begins."""
        if _tracing:
            _tracing[-1].begin(ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Let blocks without a name count themselves."""


def BlockFunction(user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> Callable[[Any], Any]:
    """Return a decorator: what the function does is a block."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return within

    return decorate
