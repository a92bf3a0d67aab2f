"""Fixtures of the tests that start real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import docker_engine
import pytest
from local_runs import Here


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """A user's machine in small; nothing that was started on it outlives the test."""
    made = Here(tmp_path)
    yield made
    made.end_everything()


@pytest.fixture(scope="session")
def engine(needs: Callable[[str], Path]) -> docker_engine.Engine:
    """A Docker engine that this session has started, and that ends with it."""
    return docker_engine.started(needs("docker"))


@pytest.fixture(scope="session")
def wheels(needs_registry: None) -> Path:
    return docker_engine.wheelhouse()


@pytest.fixture(scope="session")
def secret() -> str:
    """A word that stood in the environment, and beside the wheels, when the image was built."""
    return "correct-horse-battery-staple"


@pytest.fixture(scope="session")
def image(
    engine: docker_engine.Engine,
    wheels: Path,
    secret: str,
    needs: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The image for CPUs, built as a user would who has no network."""
    built = engine.folder / "image-is-built"
    with docker_engine.alone(engine.folder):
        if not built.exists():
            base = docker_engine.base_image(engine, needs("mmdebstrap"))
            _build(engine, base, wheels, secret, tmp_path_factory.mktemp("wheelhouse"))
            built.touch()
    return docker_engine.IMAGE


def _build(engine: docker_engine.Engine, base: str, wheels: Path, secret: str, wheelhouse: Path) -> None:
    for wheel in wheels.iterdir():
        (wheelhouse / wheel.name).symlink_to(wheel)
    (wheelhouse / ".netrc").write_text(f"machine index.example login me password {secret}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", secret)
        words = ("--base", base, "--wheelhouse", wheelhouse, "--network", "none", "--engine", "docker")
        printed = engine.trainjob("container", "build", "cpu", *words)
    assert f"image {docker_engine.IMAGE} is built. Next: docker run --rm {docker_engine.IMAGE}" in printed
