"""A Docker engine of this session, and the image that it has built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import docker_engine


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
    assert f"built image {docker_engine.IMAGE}. Next: docker run --rm {docker_engine.IMAGE}" in printed
