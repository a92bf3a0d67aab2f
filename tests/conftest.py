"""What every test stands on: a user's folders of its own, no redirects, and services by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import services

_KEPT = ("TRAINJOB_TEST_REQUIRE", "TRAINJOB_FLOOR_VENV", "TRAINJOB_HOROVOD_VENV")

# Threads that wait without spinning leave the cores to those that work, on machines where several tests run at once.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("trainjob", deadline=None)
hypothesis.settings.load_profile("trainjob")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="Write the golden files anew instead of comparing.")


@pytest.fixture
def write_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--write-golden"))


@pytest.fixture(scope="session")
def needs() -> Callable[[str], Path]:
    """Return what finds a service by name, or skips or fails the test: needs("python3.8")."""
    return services.need


@pytest.fixture(scope="session")
def needs_registry(needs: Callable[[str], Path]) -> None:
    needs("registry")


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hold for fixtures of a whole module, too: those of one test come later."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("TRAINJOB_", "GIT_")) and name not in _KEPT:
                patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
        _own_folders(patch, tmp_path_factory.mktemp("session"))
        yield


@pytest.fixture(autouse=True)
def _own_user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    _own_folders(monkeypatch, tmp_path_factory.mktemp("user"))


def _own_folders(patch: pytest.MonkeyPatch, user: Path) -> None:
    patch.setenv("XDG_DATA_HOME", str(user / "data"))
    patch.setenv("XDG_CONFIG_HOME", str(user / "config"))
