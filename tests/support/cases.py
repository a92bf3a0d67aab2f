"""Many small cases in one test: to collect, schedule and report a case costs more than most take themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a test run for every case, as `pytest.mark.parametrize` does, and fail with all that fail.

    The cases share the fixtures of the test.
    """
    words = names.split() if isinstance(names, str) else names
    rows = [tuple(row) if len(words) > 1 else (row,) for row in cases]
    assert rows, f"no case of {names}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for row in rows:
                case = dict(zip(words, row, strict=True))
                try:
                    test(**fixtures, **case)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error is a case that failed
                    error.add_note(f"case: {case}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(rows)} cases", failed)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate
