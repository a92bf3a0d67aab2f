"""A test of many cases tries each of them, and names all that fail."""

from __future__ import annotations

import pytest

from tests.support.cases import each


def test_every_case_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @each(("number", "square"), [(1, 1), (2, 3), (3, 9), (4, 15)])
    def holds(number: int, square: int) -> None:
        tried.append(number)
        assert number**2 == square

    with pytest.raises(ExceptionGroup, match="2 of 4 cases") as caught:
        holds()
    assert tried == [1, 2, 3, 4]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["case: {'number': 2, 'square': 3}"],
        ["case: {'number': 4, 'square': 15}"],
    ]
