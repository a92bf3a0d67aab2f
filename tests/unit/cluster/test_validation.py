"""Plain Python and pydantic agree about every key: what one accepts, so does the other, as the same value."""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.kinds.test_models import ALL_MODELS
from trainjob.cluster import validation
from trainjob.cluster.strict import Strict, build, key, keys_of
from trainjob.cluster.validation import model_of
from trainjob.kinds.lookup import catalog

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
    "DataSet": {"name": "digits"},
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


def _by_plain_python(kind: type[Strict], values: dict[str, Any]) -> Any:
    with contextlib.suppress(ValueError):
        return build(kind, values).as_values(stated_only=True)
    return "refused"


def _by_pydantic(kind: type[Strict], values: dict[str, Any]) -> Any:
    with contextlib.suppress(ValueError):
        return model_of(kind).model_validate(values).model_dump(exclude_unset=True)
    return "refused"


@pytest.mark.parametrize("kind", ALL_MODELS.values(), ids=ALL_MODELS.keys())
def test_both_accept_the_same_values(kind: type[Strict]) -> None:
    tried = [*TEXTS, *NUMBERS, *OTHERS]
    accepted = 0
    for name, value in itertools.product(keys_of(kind), tried):
        values = {**BESIDE.get(kind.__name__, {}), name: value}
        plain = _by_plain_python(kind, values)
        # repr tells 1 from 1.0 and True.
        assert repr(plain) == repr(_by_pydantic(kind, values)), values
        accepted += plain != "refused"
    assert accepted >= len(keys_of(kind)) - len(BESIDE.get(kind.__name__, {}))


@pytest.mark.parametrize("kind", ALL_MODELS.values(), ids=ALL_MODELS.keys())
def test_both_refuse_a_missing_and_an_unknown_key(kind: type[Strict]) -> None:
    whole = BESIDE.get(kind.__name__, {})
    for values in ({**whole, "unknown": 1}, *({k: v for k, v in whole.items() if k != name} for name in whole)):
        assert _by_plain_python(kind, values) == _by_pydantic(kind, values)


def test_the_catalogs_files_are_read_without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_accepted", lambda kind, *_: pytest.fail(f"pydantic was asked about {kind}"))
    assert len([candidate.read() for candidate in catalog()]) > 5


@dataclass(frozen=True, kw_only=True)
class _Listed(Strict):
    names: list[str] = key(["a", "b"], "Names.")  # noqa: RUF009 - it returns a field


def test_every_value_has_a_copy_of_a_default_that_is_a_list() -> None:
    first, second = build(_Listed, {}), build(_Listed, {})
    assert first.names == ["a", "b"]
    first.names.clear()
    assert second.names == ["a", "b"]
