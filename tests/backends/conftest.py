"""A place for each back end, whose services start once and serve the whole suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.register_assert_rewrite(
    "tests.support.backend_suite", "tests.support.launcher_suite", "tests.support.moving_suite"
)

if TYPE_CHECKING:
    from tests.support.backend_places import Place


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "in_one_place: what is the same for all places of a kind")
    config.addinivalue_line("markers", "elsewhere_in_full: only the first place of a kind is for CI")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    places = metafunc.module.PLACES
    if metafunc.definition.get_closest_marker("in_one_place"):
        places = places[:1]
    if metafunc.definition.get_closest_marker("elsewhere_in_full"):
        names = (place if isinstance(place, str) else place.values[0] for place in places[1:])
        places = (places[0], *(pytest.param(name, marks=pytest.mark.full) for name in names))
    metafunc.parametrize("place", places, indirect=True, scope="session")


@pytest.fixture(scope="session")
def places(needs: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Place]]:
    """Return what gives a place by its name, and starts what it stands on when it is first asked for."""
    from tests.support.backend_places import KINDS

    made: dict[str, dict[str, Place]] = {}
    with ExitStack() as stack:

        def place(name: str) -> Place:
            kind, where = name.split()
            if kind not in made:
                made[kind] = stack.enter_context(KINDS[kind](tmp_path_factory.mktemp(kind), needs))
            return made[kind][where]

        yield place


@pytest.fixture(scope="session")
def uninterrupted() -> dict[type[Place], Any]:
    """The weights that the task ends with where nothing interrupts it, by the kind of place."""
    return {}


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, places: Callable[[str], Place]) -> Place:
    return places(request.param)
