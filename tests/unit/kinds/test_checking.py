"""Every key of every file under all kinds of values: accepted as they are, or refused by name, and nothing else."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Any, Literal

import pytest

from tests.support.cases import each
from tests.unit.kinds.test_models import ALL_MODELS
from trainjob.cluster.faults import InvalidError, validated
from trainjob.cluster.strict import REQUIRED, Rule, Strict, key, keys_of

# What must be given beside the key that is tried.
BESIDE: dict[str, dict[str, Any]] = {
    "PodCluster": {"kind": "ipu-pod", "ipus": 4, "hosts": "a"},
    "SlurmCluster": {"kind": "slurm", "nodes": {"count": 1, "cpus": 1}},
    "HostsCluster": {"kind": "hosts", "hosts": "a"},
    "LocalCluster": {"kind": "local"},
    "Nodes": {"count": 1, "cpus": 1},
    "Ssh": {"host": "a"},
    "Sdk": {"version": "3.3.0"},
    "Venv": {"kind": "cpu"},
    "ProvisionedDataSet": {"name": "digits"},
}
TEXTS = [
    *("", " ", "a", "a b", "a\n", "\na", "a\0", "-a", "é", "A", "a/b", "a,b", "a\u2028b", "\x85", "\ud800", "a" * 201),
    *("4", "3.3.0", "3.3.0\n", "3", "04:00:00", "1-12", "UNLIMITED", "90\n", "0-9%2", "0-9%0", "eno1", "10.0.0.0/8"),
    *("10.0.0.0/99", "a[1-2]", "a[2-1]", "a[1", "0" * 64, "cpu", "gpu", "none", "docker", "true", "sgd", "mean", "pad"),
]
NUMBERS = [
    0,
    1,
    -1,
    2,
    120,
    8090,
    65535,
    65536,
    2**53,
    2**53 + 1,
    2**70,
    10**400,
    0.0,
    0.5,
    1.0,
    -0.5,
    math.inf,
    math.nan,
    1e300,
]
NAMES = ["A", "PATH", "RANK", "UID", "TRAINJOB_X", "a-b", "1a", "É", "a\n", "qos"]
OTHERS: list[Any] = [
    *(None, True, False, [], {}, [[]], [None], [1], {"a": None}, {"a": {}}, (), b"a", {1: "a"}, ["a", 1]),
    *([text] for text in TEXTS[:12]),
    *({name: value} for name, value in itertools.product(NAMES, ("x", "a\n", 1, 0.5, True, math.nan))),
    *({"unknown": 1}, {"host": "a"}, {"host": "a", "user": 1}, {"port": 1024}, {"port": 1}, {"version": "3.3.0"}),
    *({"runtime": "docker"}, {"runtime": "docker", "image": "i"}, {"accelerator": "gpu"}, {"kind": "poplar"}),
]


def outcome(kind: type[Strict], values: dict[str, Any]) -> Any:
    """Return the accepted values, or the faults of refused ones."""
    try:
        return validated(kind, values).as_values(stated_only=True)
    except InvalidError as refused:
        return refused.faults


@each("kind", ALL_MODELS.values())
def test_a_value_is_accepted_as_it_is_or_refused_at_its_key(kind: type[Strict]) -> None:
    accepted = 0
    for name, value in itertools.product(keys_of(kind), [*TEXTS, *NUMBERS, *OTHERS]):
        values = {**BESIDE.get(kind.__name__, {}), name: value}
        found = outcome(kind, values)
        if isinstance(found, dict):
            accepted += 1
            if name != "hosts":  # a job's range becomes two numbers
                # repr tells 1 from True. A whole number is one where a float is expected.
                was_whole = isinstance(value, int) and isinstance(found[name], float)
                assert repr(found[name]) == (repr(float(value)) if was_whole else repr(value)), values
            assert outcome(kind, found) == found
        else:
            assert [fault for fault in found if fault.path], values
            assert all(fault.text for fault in found)
    assert accepted >= len(keys_of(kind)) - len(BESIDE.get(kind.__name__, {}))


@each("kind", ALL_MODELS.values())
def test_a_missing_and_an_unknown_key_are_refused(kind: type[Strict]) -> None:
    whole = BESIDE.get(kind.__name__, {})
    assert [fault.path for fault in outcome(kind, {**whole, "unknown": 1})] == [("unknown",)]
    for name, entry in keys_of(kind).items():
        if entry.default is REQUIRED:
            without = {key: value for key, value in whole.items() if key != name}
            assert (name,) in [fault.path for fault in outcome(kind, without)]


class _Of(Strict):
    text: str = key("", "A text.")
    whole: int = key(0, "A whole number.")
    number: Annotated[float, Rule(above=0, at_most=10)] = key(1.0, "A number.")
    switch: bool = key(False, "A switch.")
    choice: Literal["a", "b", "c"] | Annotated[int, Rule(at_least=0)] = key("a", "A choice, or a number.")
    texts: Annotated[list[str], Rule(fewest=1)] | None = key(None, "Texts.")
    named: dict[Annotated[str, Rule("^[a-z]+$", "small letters")], int | str] = key({}, "Names with values.")


@each(
    ("value", "expected"),
    [
        ({"text": 4}, "text: read 4, expected text"),
        ({"text": "\ud800"}, 'text: read "\\ud800", expected text of whole Unicode characters'),
        ({"whole": True}, "whole: read true, expected a whole number"),
        ({"whole": "4"}, 'whole: read "4", expected a whole number: take the quotes away, 4'),
        ({"whole": 4.0}, "whole: read 4.0, expected a whole number"),
        ({"whole": None}, "whole: read nothing, expected a whole number: give a value, or take the key out"),
        ({"number": math.nan}, "number: read NaN, expected a finite number"),
        ({"number": 10**400}, f"number: read 1{'0' * 59}…, expected a number"),
        ({"number": 0}, "number: read 0, expected more than 0.0"),
        ({"number": 11}, "number: read 11, expected at most 10.0"),
        ({"switch": "yes"}, 'switch: read "yes", expected true or false'),
        ({"choice": "d"}, "choice: read \"d\", expected 'a', 'b' or 'c' or a whole number"),
        ({"choice": -1}, "choice: read -1, expected 'a', 'b' or 'c' or at least 0"),
        ({"choice": []}, "choice: read a list, expected 'a', 'b' or 'c' or a whole number"),
        ({"texts": "a b"}, 'texts: read "a b", expected a list: write it as ["a b"]'),
        ({"texts": []}, "texts: read a list, expected at least 1 item"),
        ({"texts": ["a", 1]}, "texts[1]: read 1, expected text"),
        ({"named": {"A": 1}}, 'named.A: read "A", expected small letters'),
        ({"named": {"a": []}}, "named.a: read a list, expected a whole number or text"),
        ({"named": 1}, "named: read 1, expected keys with values"),
        ({"txt": "a"}, "txt: is not a key: is text meant?"),
    ],
)
def test_a_fault_says_what_was_read_and_what_is_expected(value: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidError) as caught:
        validated(_Of, value)
    assert str(caught.value) == expected


def test_all_faults_come_at_once() -> None:
    assert len(outcome(_Of, {"text": 1, "whole": "x", "switch": 0, "more": 1})) == 4


def test_whole_numbers_are_numbers() -> None:
    assert repr(validated(_Of, {"number": 3}).number) == "3.0"


def test_every_value_has_a_copy_of_a_default_that_is_a_list() -> None:
    first, second = validated(_Of, {}), validated(_Of, {})
    first.named["x"] = 1
    assert second.named == {}


def test_a_value_is_frozen_and_compared_by_its_keys() -> None:
    value = validated(_Of, {"whole": 3})
    with pytest.raises(AttributeError, match="_Of is frozen: whole stays as it is"):
        value.whole = 4  # type: ignore[misc]
    assert value == _Of(whole=3)
    assert value.changed(whole=4) != value
    assert repr(value) == "_Of(whole=3)"
    with pytest.raises(TypeError, match="_Of has no hole"):
        _Of(hole=3)  # type: ignore[call-arg]
