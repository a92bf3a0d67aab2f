"""The JSON Schemas of cluster and job files, for editors, from the same annotations that check them."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from trainjob.cluster.job import Job
from trainjob.cluster.strict import REQUIRED, Key, Strict, keys_of
from trainjob.kinds.table import KINDS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def cluster_schema() -> dict[str, Any]:
    """Return the schema of a cluster file, whose key `kind` decides the other keys."""
    parts: dict[str, object] = {}
    kinds = {name: _schema(kind.MODEL, parts)["$ref"] for name, kind in KINDS.items()}
    return {
        "$schema": _DIALECT,
        "title": "trainjob cluster file",
        "$defs": dict(sorted(parts.items())),
        "discriminator": {"propertyName": "kind", "mapping": kinds},
        "oneOf": [{"$ref": path} for path in kinds.values()],
    }


def job_schema() -> dict[str, Any]:
    """Return the schema of a job file (--job)."""
    schema = {"$schema": _DIALECT, **_object(Job, {}), "title": "trainjob job file"}
    about = "The cluster that the job runs on, unless --cluster or TRAINJOB_CLUSTER names another."
    return {**schema, "properties": {**schema["properties"], "cluster": {"type": "string", "description": about}}}


def _object(kind: type[Strict], parts: dict[str, object]) -> dict[str, Any]:
    """Return the schema of an object with the keys of `kind`."""
    keys = keys_of(kind)
    required = [name for name, entry in keys.items() if entry.default is REQUIRED]
    return {
        "title": kind.__name__,
        "description": kind.__doc__,
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(name, entry, parts) for name, entry in keys.items()},
        **({"required": required} if required else {}),
    }


def _property(name: str, entry: Key, parts: dict[str, object]) -> dict[str, Any]:
    shown = {"title": name.replace("_", " ").title(), "description": entry.what, **_schema(entry.annotation, parts)}
    if entry.default is not REQUIRED:
        shown["default"] = entry.default.as_values() if isinstance(entry.default, Strict) else entry.default
    return shown


def _schema(annotation: Any, parts: dict[str, object]) -> dict[str, Any]:
    """Return the schema of a value; those of objects are added to `parts`, by name."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        schema = _schema(arguments[0], parts)
        for rule in arguments[1:]:
            bounds = {
                "pattern": rule.pattern or None,
                "minimum": rule.at_least,
                "exclusiveMinimum": rule.above,
                "maximum": rule.at_most,
                "exclusiveMaximum": rule.below,
                "minItems": rule.fewest or None,
            }
            given = {name: bound for name, bound in bounds.items() if bound is not None}
            schema = {"type": list(rule.json_type)} if rule.json_type else schema | given
        return schema
    if origin in (Union, UnionType):
        branches = [_schema(each, parts) for each in arguments]
        return {"anyOf": [choice for branch in branches for choice in branch.get("anyOf", [branch])]}
    if origin is Literal:
        return {"type": "string", **({"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)})}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], parts)}
    if origin is dict:
        names = _schema(arguments[0], parts)["pattern"]
        return {"type": "object", "patternProperties": {names: _schema(arguments[1], parts)}}
    if issubclass(annotation, Strict):
        if annotation.__name__ not in parts:
            parts[annotation.__name__] = _object(annotation, parts)
        return {"$ref": f"#/$defs/{annotation.__name__}"}
    return {"type": _PLAIN[annotation]}
