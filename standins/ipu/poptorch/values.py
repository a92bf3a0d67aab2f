"""Values made of tensors, which go into a model and come out of it; a program may register structures of its own."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

import torch


class ICustomArgParser:
    """Takes a structure of the program's own apart into tensors, and puts it together again."""

    def yieldTensors(self, struct: Any) -> Iterable[torch.Tensor]:
        """Yield the tensors of `struct`, always in the same order."""
        raise NotImplementedError

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """Return a structure like the original one, made of the next tensors."""
        raise NotImplementedError


_parsers: Dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_type: type, parser: ICustomArgParser) -> None:
    """Have `parser` handle values of `arg_type`, and of types that derive from it, as arguments and results."""
    if not isinstance(parser, ICustomArgParser):
        raise TypeError("registerCustomArgParser takes a poptorch.ICustomArgParser, and not %r" % (parser,))
    _parsers[arg_type] = parser


def _parser_of(value: object) -> Optional[ICustomArgParser]:
    return next((_parsers[kind] for kind in type(value).__mro__ if kind in _parsers), None) if _parsers else None


def convert(change: Callable[[Any], Any], value: object) -> Any:
    """Return `value` with `change` applied to every tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    parser = _parser_of(value)
    if parser is not None:
        return parser.reconstruct(value, iter([change(tensor) for tensor in parser.yieldTensors(value)]))
    if isinstance(value, dict):
        return type(value)((name, convert(change, item)) for name, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[convert(change, item) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)(convert(change, item) for item in value)
    return value


def flat(value: object) -> List[Any]:
    """Return the tensors of `value`, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parser = _parser_of(value)
    if parser is not None:
        return list(parser.yieldTensors(value))
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in flat(part)]


def like(value: object, tensors: Iterator[object]) -> Any:
    """Return `value` with its tensors replaced by the next ones of `tensors`."""
    return convert(lambda _tensor: next(tensors), value)
