"""Settings by name that can be made read-only, and Options.loadFromFile: calls of setters, read and not executed."""

from __future__ import annotations

import ast
import copy
import importlib
import os
from inspect import Parameter, Signature
from typing import Any, Callable, Dict, TypeVar

from poptorch import enums

Self = TypeVar("Self", bound="Settings")


class ConfigFileError(ValueError):
    """A file of options with a line that is no call of a setter."""


class Settings:
    """Attributes that were given values at first, and no others; frozen, they can't be changed."""

    def __init__(self, **values: object) -> None:
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_frozen", False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_values" not in self.__dict__ or name not in self._values:
            raise AttributeError("%s has no attribute %s" % (type(self).__name__, name))
        return self._values[name]

    def __setattr__(self, name: str, value: object) -> None:
        if name == "__class__":
            object.__setattr__(self, name, value)
            return
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        if name not in self._values:
            raise AttributeError("%s has no option %s" % (type(self).__name__, name))
        self._values[name] = value

    def _set(self: Self, name: str, value: object) -> Self:
        """Set `name`, which may be new, and return these settings, to chain the next."""
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        self._values[name] = value
        return self

    def _freeze(self, frozen: bool = True) -> None:
        object.__setattr__(self, "_frozen", frozen)
        for value in self._values.values():
            if isinstance(value, Settings):
                value._freeze(frozen)

    def clone(self: Self) -> Self:
        """Return a copy that can be changed."""
        found = copy.copy(self)
        object.__setattr__(found, "_values", copy.deepcopy(self._values))
        found._freeze(False)
        return found

    def __deepcopy__(self: Self, memo: Dict[int, object]) -> Self:
        copied = self.clone()
        memo[id(self)] = copied
        return copied

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % item for item in self._values.items()))

    def toDict(self) -> Dict[str, Any]:
        """Return all values, those of groups under their names."""
        return {name: value.toDict() if isinstance(value, Settings) else value for name, value in self._values.items()}


def setter(option: str, argument: str, check: Callable[[Any], object] = bool, default: Any = Parameter.empty) -> Any:
    """Return a method that sets `option` to what `check` makes of its one argument, and returns the settings."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature([Parameter("self", kind), Parameter(argument, kind, default=default)])

    def set_option(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        settings, value = bound.arguments.values()
        return settings._set(option, check(value))

    return set_option


def as_it_is(value: object) -> object:
    """Return `value`."""
    return value


def apply_named(options: Any, settings: Dict[str, object]) -> None:
    """Call setters by name, as in {"Training.gradientAccumulation": 4}; a list has the arguments of one call."""
    for name, value in settings.items():
        setter: Any = options
        for part in name.split("."):
            setter = getattr(setter, part)
        setter(*[_named_value(one) for one in (value if isinstance(value, list) else [value])])


def _named_value(value: object) -> Any:
    """Return what "ConnectionType.OnDemand" names; any other value as it is."""
    kind, _, name = value.partition(".") if isinstance(value, str) else ("", "", "")
    enumeration = getattr(enums, kind, None) if name else None
    return value if enumeration is None else enumeration[name]


def apply_file(options: Any, filepath: str) -> None:
    """Call on `options` what each line of the file says. Raises ConfigFileError for what is no call of a setter.

    Lines are counted as PopTorch counts them: without empty ones and comments.
    """
    with open(filepath, encoding="utf-8") as lines:
        texts = [text for text in (line.split("#")[0].strip() for line in lines) if text]
    for number, text in enumerate(texts, 1):
        _call(options, text, "line %d of %s" % (number, os.path.basename(filepath)))


def _call(options: Any, text: str, where: str) -> None:
    text = text[len("options.") :] if text.startswith("options.") else text
    expected = "expected a call of a setter such as deviceIterations(4)"
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        call, expected = None, error.msg
    if not isinstance(call, ast.Call):
        raise ConfigFileError("SyntaxError at %s: %s\n> options.%s" % (where, expected, text))
    arguments = [_value(argument, where) for argument in call.args]
    named = {word.arg or "": _value(word.value, where) for word in call.keywords}
    _attribute(options, call.func, where)(*arguments, **named)


def _attribute(start: object, node: ast.AST, where: str) -> Any:
    if isinstance(node, ast.Name):
        return getattr(start, node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_attribute(start, node.value, where), node.attr)
    raise ConfigFileError("%s: only names and attributes are expected before a call" % where)


def _value(node: ast.AST, where: str) -> Any:
    if isinstance(node, ast.Call):
        return _of_module(node.func, where)(*[_value(argument, where) for argument in node.args])
    return _of_module(node, where) if isinstance(node, ast.Attribute) else ast.literal_eval(node)


def _of_module(node: ast.AST, where: str) -> Any:
    if isinstance(node, ast.Name) and node.id in ("poptorch", "torch"):
        return importlib.import_module(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_of_module(node.value, where), node.attr)
    raise ConfigFileError("%s: only names of poptorch and torch are known in an argument" % where)
