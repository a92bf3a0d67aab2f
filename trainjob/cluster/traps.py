"""Plain words that YAML 1.1 misreads: no, 24:00:00, 010, 2024-01-01.

Each is refused, and the cure quotes it, so that people and all YAML readers agree on the meaning of a file.
"""

from __future__ import annotations

import re

import yaml

TAG = "tag:yaml.org,2002:"
TEXT, INT, FLOAT, BOOL, NULL, DATE = (TAG + word for word in ("str", "int", "float", "bool", "null", "timestamp"))
NUMBERS = (INT, FLOAT)
MERGE = TAG + "merge"
# Plain = and << have a meaning as keys; as values they are text.
SIGNS = (TAG + "value", MERGE)

_LONGEST_NUMBER = 40
_MEANINGS = {BOOL: "true or false", NULL: "nothing", DATE: "a date", INT: "a number", FLOAT: "a number"}


def meaning(node: yaml.Node) -> str:
    """Return the meaning of the plain word `node` in YAML, in words."""
    return _MEANINGS.get(node.tag, "something else")


def misreading(node: yaml.ScalarNode) -> tuple[str, str] | None:
    """Return how YAML misreads the plain word `node`, and the cure; None if it reads what a person means."""
    word: str = node.value
    if node.tag == BOOL and word.lower() not in ("true", "false"):
        value = "true" if word.lower() in ("yes", "on") else "false"
        return f"YAML takes {word} for {value}", f'write {value}, or quote it, "{word}"'
    if node.tag == DATE:
        return f"YAML takes {word} for a date", f'quote it, "{word}"'
    return _misread_number(node) if node.tag in NUMBERS else None


def _misread_number(node: yaml.ScalarNode) -> tuple[str, str] | None:
    word: str = node.value
    if len(word) > _LONGEST_NUMBER:
        return f"is too long for a number ({len(word)} characters)", "correct the number, or quote it"
    loader = yaml.SafeLoader("")
    try:
        number = loader.construct_yaml_int(node) if node.tag == INT else loader.construct_yaml_float(node)
    except ValueError:
        return f"YAML takes {word} for a number and can't read it", f'quote it, "{word}"'
    if ":" in word or re.match(r"[-+]?0[0-9_]", word):
        return f"YAML takes {word} for the number {number}", f'quote it, "{word}", or write {number}'
    return None
