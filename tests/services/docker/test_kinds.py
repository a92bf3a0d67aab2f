"""The images for GPUs and IPUs, built and run as far as a machine without either goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.docker_engine import BASE, IMAGE, Engine

pytestmark = pytest.mark.timeout(900)

STANDINS = ROOT / "standins/ipu"
# As the vendor's image is: torch in the interpreter that is on PATH, poptorch on PYTHONPATH, and none of ours.
VENDORS = f"""\
FROM {BASE}
COPY --from={IMAGE} /opt/trainjob /opt/sdk
RUN rm -r /opt/sdk/lib/python3.11/site-packages/trainjob*
COPY . /opt/poplar/python
ENV PATH=/opt/sdk/bin:$PATH PYTHONPATH=/opt/poplar/python
"""


def built(engine: Engine, kind: str, base: str, wheels: Path) -> str:
    """Return the name of an image of ours, built without a network."""
    words = ("--base", base, "--wheelhouse", wheels, "--network", "none", "--engine", "docker")
    engine.trainjob("container", "build", kind, *words)
    return f"trainjob:{kind}"


@pytest.fixture(scope="module")
def ipu(engine: Engine, image: str, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image for IPUs over a make-believe of the vendor's, whose poptorch is the stand-in."""
    dockerfile = tmp_path_factory.mktemp("vendor") / "Dockerfile"
    dockerfile.write_text(VENDORS)
    base = "trainjob-tests/poptorch:standin"
    engine.docker("build", "--network", "none", "--tag", base, "--file", dockerfile, STANDINS)
    return built(engine, "ipu", base, wheels)


@pytest.fixture(scope="module")
def cuda(engine: Engine, image: str, wheels: Path) -> str:
    """The image for GPUs over Debian, with a torch for CPUs."""
    return built(engine, "cuda", BASE, wheels)


@pytest.mark.full
def test_the_image_for_gpus_is_the_whole_command_line(engine: Engine, cuda: str) -> None:
    assert "64 = 8 instances × 8" in engine.docker(
        "run", "--rm", cuda, "plan", "--cluster", "pod64", "--instances", "8"
    )
    (facts,) = json.loads(engine.docker("image", "inspect", cuda))
    assert facts["Config"]["User"] == "trainjob"
    assert facts["Config"]["Labels"]["org.opencontainers.image.title"] == "trainjob on NVIDIA GPUs"


@pytest.mark.full
def test_the_image_for_gpus_verifies_itself(engine: Engine, cuda: str) -> None:
    printed = engine.docker("run", "--rm", "--network", "none", cuda)
    assert printed.rstrip().endswith("OK: this installation trains")


@pytest.mark.full
def test_the_image_for_ipus_compares_a_model_on_one_with_the_cpu(engine: Engine, ipu: str) -> None:
    printed = engine.docker("run", "--rm", "--network", "none", ipu)
    assert "OK: outputs of IPU and CPU are 0.0e+00 apart" in printed
    without = ("--env", "PYTHONPATH=/opt/trainjob/packages:/opt/trainjob/runtime")
    assert "NOT OK: poptorch can't be imported" in engine.docker("run", "--rm", *without, ipu, code=1)


@pytest.mark.full
def test_the_image_for_ipus_has_the_runtime_and_an_ordinary_user(engine: Engine, ipu: str) -> None:
    engine.docker("run", "--rm", ipu, "python3", "-m", "trainjob.launch.witness.health")
    assert engine.docker("run", "--rm", ipu, "id", "-un").strip() == "trainjob"
    look = "import tqdm, trainjob.launch.main, importlib.util; print(importlib.util.find_spec('trainjob.cli'))"
    assert engine.docker("run", "--rm", ipu, "python3", "-c", look).strip() == "None"
