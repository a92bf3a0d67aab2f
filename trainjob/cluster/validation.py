"""Checks keys and values: with plain Python if they are certainly right, with pydantic if they may be wrong.

pydantic decides: it reports every mistake at once, and `faults` puts them into our words. Its models are made from the
same annotations, and so is the JSON Schema.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from trainjob.cluster.strict import Key, Rule, Strict, build, keys_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from trainjob.cluster.faults import Fault, Written

Value = TypeVar("Value", bound=Strict)


class InvalidError(ValueError):
    """Refused values, with every fault."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = faults


def validated(kind: type[Value], values: Mapping[str, object], written: Written = lambda _path: None) -> Value:
    """Return `values` as a value of `kind`. Raises InvalidError.

    `written` returns the unquoted text at a path, so that a value is shown as it was typed.
    """
    values = kind.spelled_out(values)
    try:
        return build(kind, values)
    except ValueError:
        return build(kind, _accepted(kind, values, written))


def _accepted(kind: type[Strict], values: Mapping[str, object], written: Written) -> dict[str, Any]:
    from pydantic import ValidationError

    from trainjob.cluster.faults import faults

    try:
        return model_of(kind).model_validate(values).model_dump(exclude_unset=True)
    except ValidationError as refused:
        raise InvalidError(faults(kind, values, refused, written)) from None


def model_of(kind: type[Strict]) -> type[BaseModel]:
    """Return the pydantic model that checks values of `kind`, which is made once."""
    if kind not in _MODELS:
        _MODELS[kind] = _new_model(kind)
    return _MODELS[kind]


_MODELS: dict[type[Strict], type[BaseModel]] = {}


def _new_model(kind: type[Strict]) -> type[BaseModel]:
    from pydantic import ConfigDict, Field, create_model, model_validator

    def field(key: Key) -> Any:
        default = ... if key.default is dataclasses.MISSING else key.default
        return Field(default, description=key.what)

    def enforce_rules(model: BaseModel) -> BaseModel:
        build(kind, model.model_dump(exclude_unset=True))
        return model

    rules: Any = model_validator(mode="after")(enforce_rules)

    fields: dict[str, Any] = {name: (_for_pydantic(key.annotation), field(key)) for name, key in keys_of(kind).items()}
    return create_model(
        kind.__name__,
        __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False),
        __doc__=kind.__doc__,
        __validators__={"enforce_rules": rules},
        **fields,
    )


def _for_pydantic(kind: Any) -> Any:
    """Return the annotation `kind` with models for our values, and pydantic's constraints for our rules."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        constraints = [part for rule in arguments[1:] for part in _constraints(rule)]
        return functools.reduce(lambda inner, part: Annotated[inner, part], constraints, _for_pydantic(arguments[0]))
    if origin in (Union, UnionType):
        return Union[tuple(_for_pydantic(each) for each in arguments)]  # noqa: UP007 - made from a tuple
    if origin in (list, dict):
        return origin[tuple(_for_pydantic(each) for each in arguments)]
    return model_of(kind) if isinstance(kind, type) and issubclass(kind, Strict) else kind


def _passed(check: Callable[[Any], Any], value: Any) -> Any:
    check(value)
    return value


def _constraints(rule: Rule) -> list[Any]:
    from pydantic import AfterValidator, Field, WithJsonSchema

    named: dict[str, Any] = {
        "pattern": rule.pattern or None,
        "ge": rule.at_least,
        "gt": rule.above,
        "le": rule.at_most,
        "lt": rule.below,
        "min_length": rule.fewest or None,
    }
    parts: list[Any] = [Field(**{name: bound for name, bound in named.items() if bound is not None})]
    if rule.check is not None:
        parts.append(AfterValidator(functools.partial(_passed, rule.check)))
    if rule.json_type:
        parts.append(WithJsonSchema({"type": list(rule.json_type)}))
    return parts
