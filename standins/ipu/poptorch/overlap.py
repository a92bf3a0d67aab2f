"""Marks of inputs and outputs that are copied while the IPU computes: a CPU copies nothing, but refuses wrong marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from poptorch import values
from poptorch.arguments import Call, names_of
from poptorch.enums import OverlapMode
from poptorch.errors import Error

if TYPE_CHECKING:
    from poptorch.options import Options

_compiling: List["OverlapMarks"] = []


def marked(what: str, tensor: torch.Tensor, mode: OverlapMode) -> Any:
    """Return the tensor; while compiling another one that is equal, so that marks are told from the tensor itself."""
    assert isinstance(mode, OverlapMode)  # noqa: S101 - poptorch's own kind of refusal
    return _compiling[-1].add(what, tensor, mode) if _compiling else tensor


class _Mark(NamedTuple):
    what: str
    tensor: torch.Tensor
    handed_on: torch.Tensor
    mode: OverlapMode


class OverlapMarks:
    """While a forward pass of a compilation lasts, gathers its marks, and which operations take its inputs."""

    def __init__(self, forward: Callable[..., object], call: Call) -> None:
        # The tensors are kept, so that no other one gets the id of an input.
        self._inputs: Dict[int, Tuple[str, torch.Tensor]] = {
            id(tensor): (name, tensor) for name, value in names_of(forward, call) for tensor in values.flat(value)
        }
        self._used: List[str] = []
        self._marks: List[_Mark] = []
        self._mode: Any = None if _Uses is None else _Uses(self._note)

    def __enter__(self) -> OverlapMarks:
        _compiling.append(self)
        if self._mode is not None:
            self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._mode is not None:
            self._mode.__exit__(*error)
        _compiling.pop()

    def add(self, what: str, tensor: torch.Tensor, mode: OverlapMode) -> Any:
        """Return an alias of the tensor, and note it."""
        with torch._C.DisableTorchFunction():
            handed_on = tensor.view_as(tensor).as_subclass(type(tensor))
        self._marks.append(_Mark(what, tensor, handed_on, mode))
        return handed_on

    def refuse(self, outputs: object, options: Options) -> None:
        """Raise Error for a mark that is not on an input or output alone, and for options that don't allow it."""
        returned = [id(tensor) for tensor in values.flat(outputs)]
        for mark in self._marks:
            if mark.what == "input":
                self._refuse_input(mark)
            elif returned.count(id(mark.tensor)) + returned.count(id(mark.handed_on)) > 1:
                raise Error(
                    "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check "
                    "all returned tensors including those nested in tuples/lists."
                )
            elif id(mark.handed_on) not in returned:
                raise Error(_ELSEWHERE % ("output", "output"))
        if all(mark.mode == OverlapMode.NoOverlap for mark in self._marks):
            return
        if options.execution_strategy.is_pipelined:
            raise Error(
                "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, "
                "please switch to poptorch.ShardedExecution."
            )
        if "numIOTiles" not in options.TensorLocations._values:
            raise Error(
                "No IO tiles allocated. You must allocate at least 32 IO tiles using "
                "poptorch.Options().TensorLocations.numIOTiles."
            )

    def _refuse_input(self, mark: _Mark) -> None:
        if id(mark.tensor) not in self._inputs:
            raise Error(_ELSEWHERE % ("input", "input"))
        name = self._inputs[id(mark.tensor)][0]
        if name in self._used or sum(other.tensor is mark.tensor for other in self._marks) > 1:
            raise Error(
                "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for "
                "input %s to the model." % name
            )

    def _note(self, arguments: object) -> None:
        self._used += [self._inputs[id(one)][0] for one in values.flat(arguments) if id(one) in self._inputs]


_ELSEWHERE = "poptorch.set_overlap_for_%s applied on a node which is not a tensor %s to the model."
_Uses: Any = None
if hasattr(torch.overrides, "TorchFunctionMode"):

    class _Uses(torch.overrides.TorchFunctionMode):  # type: ignore[no-redef] # torch before 2.0 lacks the base
        """Notes the arguments of every function of torch, but of those that only ask about a tensor."""

        def __init__(self, note: Callable[[object], None]) -> None:
            super().__init__()
            self._note = note

        def __torch_function__(
            self, func: Any, types: object, args: Tuple[object, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if any(tensor.is_floating_point() or tensor.dim() for tensor in values.flat(result)):
                self._note((args, kwargs or {}))
            return result
