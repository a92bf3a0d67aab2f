"""Dataclasses from JSON and back: what fits comes back, and what does not is named with its field and its value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.cases import each
from trainjob.records import typed
from trainjob.records.files import DamagedError


@dataclass(frozen=True)
class Inner:
    """A record within a record."""

    size: int


@dataclass(frozen=True)
class Outer:
    """One field of each kind that records have."""

    name: str
    share: float = 0.5
    is_on: bool = False
    inner: Inner | None = None
    words: Sequence[str] = ()
    inners: list[Inner] = field(default_factory=list)
    pair: tuple[int, str] | None = None
    many: tuple[int, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    mode: Literal["a", "b"] = "a"
    every: int | Literal["auto", "never"] = "auto"
    anything: Any = None
    source: str = typed.field(key="from", default="")


WHOLE = {
    "name": "x",
    "share": 1.5,
    "is_on": True,
    "inner": {"size": 1},
    "words": ["a", "b"],
    "inners": [{"size": 2}, {"size": 3}],
    "pair": [1, "a"],
    "many": [1, 2, 3],
    "by_name": {"k": {"size": 4}},
    "mode": "b",
    "every": 7,
    "anything": [{"a": None}],
    "from": "there",
}
OUTER = Outer(
    *("x", 1.5, True, Inner(1), ["a", "b"], [Inner(2), Inner(3)], (1, "a"), (1, 2, 3), {"k": Inner(4)}),
    *("b", 7, [{"a": None}], "there"),
)


def test_a_record_comes_back_under_the_names_that_json_has() -> None:
    assert typed.from_json(Outer, WHOLE) == OUTER
    assert typed.to_json(OUTER) == WHOLE
    assert json.loads(json.dumps(typed.to_json(OUTER))) == WHOLE


def test_what_is_not_given_has_its_default_and_what_is_not_known_is_ignored() -> None:
    assert typed.from_json(Outer, {"name": "x", "newer": 1}) == Outer("x")
    assert typed.from_json(Outer, {"name": "x", "inner": None, "pair": None}) == Outer("x")


@pytest.mark.parametrize("value", ["auto", "never", 3])
def test_one_of_several_kinds_is_taken_as_it_is(value: object) -> None:
    assert typed.from_json(Outer, {"name": "x", "every": value}).every == value


def test_a_whole_number_is_a_number() -> None:
    found = typed.from_json(Outer, {"name": "x", "share": 2})
    assert (found.share, type(found.share)) == (2.0, float)


@each(
    ("change", "said"),
    [
        ({"name": 1}, "name is 1, expected text"),
        ({"share": "x"}, 'share is "x", expected a number'),
        ({"share": 10**400}, "share is 1000000000"),
        ({"is_on": 1}, "is_on is 1, expected true or false"),
        ({"inner": 1}, "inner is 1, expected an object"),
        ({"inner": {"size": True}}, "inner.size is true, expected a whole number"),
        ({"inner": {}}, "inner.size is missing"),
        ({"words": "ab"}, 'words is "ab", expected a list'),
        ({"words": None}, "words is null, expected a list"),
        ({"words": ["a", 1]}, "words[1] is 1, expected text"),
        ({"inners": [{"size": 1}, 2]}, "inners[1] is 2, expected an object"),
        ({"pair": [1]}, "pair is [1], expected a list of 2"),
        ({"pair": [1, "a", 2]}, 'pair is [1, "a", 2], expected a list of 2'),
        ({"pair": [1, 2]}, "pair[1] is 2, expected text"),
        ({"many": [1, "a"]}, 'many[1] is "a", expected a whole number'),
        ({"by_name": []}, "by_name is [], expected an object"),
        ({"by_name": {"k": {"size": "x"}}}, 'by_name.k.size is "x", expected a whole number'),
        ({"mode": "c"}, 'mode is "c", expected a or b'),
        ({"every": "often"}, 'every is "often", expected a whole number or auto or never'),
        ({"every": True}, "every is true, expected a whole number or auto or never"),
        ({"every": None}, "every is null, expected a whole number or auto or never"),
        ({"from": 1}, "from is 1, expected text"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DamagedError) as refused:
        typed.from_json(Outer, {**WHOLE, **change})
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(("length", "is_cut"), [(58, False), (59, True)])
def test_only_the_beginning_of_a_long_value_is_shown(length: int, is_cut: bool) -> None:
    with pytest.raises(DamagedError) as refused:
        typed.from_json(Inner, {"size": "x" * length})
    shown = '"' + "x" * 58 + ("x…" if is_cut else '"')
    assert str(refused.value) == f"size is {shown}, expected a whole number"


def test_a_file_is_read_or_is_not_there_or_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    assert (typed.load(Inner, path), typed.read(Inner, path)) == (None, None)
    (tmp_path / "file").touch()
    assert typed.load(Inner, tmp_path / "file" / "f.json") is None
    path.write_text('{"size": 3}')
    assert typed.load(Inner, path) == typed.read(Inner, path) == Inner(3)
    for content, said in (
        ('{"size": ""}', 'f.json: size is "", expected a whole number'),
        ("{", "f.json: is not JSON"),
    ):
        path.write_text(content)
        assert typed.read(Inner, path) is None
        with pytest.raises(DamagedError) as refused:
            typed.load(Inner, path)
        assert str(refused.value).startswith(said)
    path.write_text("[]")
    with pytest.raises(DamagedError, match=r"f\.json: the whole file is \[\], expected an object"):
        typed.load(Inner, path)


def test_damaged_lines_are_passed_over_and_the_others_read_on(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text('{"size": 1}\n{"size": "x"}\n{"size": 2}\n')
    lines = typed.Lines(Inner, path)
    assert list(lines.new()) == [Inner(1), Inner(2)]
    with path.open("a") as stream:
        stream.write('{"size": 3}\n')
    assert list(lines.new()) == [Inner(3)]
