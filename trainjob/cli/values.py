"""Takes plain values off the command line at once; typer makes a pydantic adapter for each option, given or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# What a text on the command line becomes. A value that does not convert is left to typer, which explains it.
_CONVERTED: dict[Any, Any] = {str: str, int: int, float: float, Path: Path}


class _Plain:
    """Stands in for typer's adapter of one parameter."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as its type, or have typer refuse it."""
        annotation = self._parameter.type_descriptor.annotation
        if param.multiple or param.nargs == -1:
            if not value:
                return ()
            if annotation == list[str]:
                return list(value)
        elif value is None:
            return None
        elif annotation in _CONVERTED and isinstance(value, str):
            try:
                return _CONVERTED[annotation](value)
            except ValueError:
                pass
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def plain_value(parameter: Any) -> Any:
    """Return `parameter`, which takes plain values without typer's adapter."""
    # Named so by typer 0.29. A later one that has no such attribute does as it will.
    if getattr(parameter, "_runtime_param", 0) is None and not _has_limits(parameter):
        parameter._runtime_param = _Plain(parameter)
    return parameter


def _has_limits(parameter: Any) -> bool:
    information = parameter.type_descriptor.parameter_info
    return any(
        getattr(information, name, None) not in (None, False)
        for name in ("min", "max", "clamp", "parser", "exists", "resolve_path", "formats")
    )
