"""An image built and run by a real Docker engine: it verifies itself, and is the whole command line."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker_engine import BASE, IMAGE, Engine
from tests.support.planted import WRONG_SUMS

pytestmark = pytest.mark.timeout(900)

_PACKAGE = "/opt/trainjob/lib/python3.11/site-packages/trainjob"
_PYTHON = "/opt/trainjob/bin/python"
STRANGER = 4321


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that any user may write in; pytest's own are for one user alone."""
    with tempfile.TemporaryDirectory(prefix="trainjob-shared-", dir="/tmp") as name:
        Path(name).chmod(0o1777)  # as /tmp has it: nobody can replace what is another user's
        yield Path(name)


def test_the_image_verifies_itself_without_a_network(engine: Engine, image: str) -> None:
    printed = engine.docker("run", "--rm", "--network", "none", image)
    assert "2 ranks train digits-cnn" in printed
    assert "2 ranks train as one" in printed
    assert printed.rstrip().endswith("OK: this installation trains")
    assert "NOT OK" not in printed


def broken(engine: Engine, name: str, change: str) -> str:
    """Return the name of the image with a shell command run in it as root."""
    engine.docker("build", "--network", "none", "--tag", name, "-", text=f"FROM {IMAGE}\nUSER root\nRUN {change}\n")
    return name


@pytest.mark.full
def test_ranks_that_add_gradients_wrongly_are_found(engine: Engine, image: str) -> None:
    change = f"{_PYTHON} -c {shlex.quote(WRONG_SUMS.program(_PACKAGE))}"
    printed = engine.docker("run", "--rm", broken(engine, "trainjob:wrong-sums", change), code=1)
    assert "NOT OK" in printed
    assert "2 ranks train as one" in printed


def test_an_image_whose_data_is_cut_is_found(engine: Engine, image: str) -> None:
    change = f"truncate --size 100 {_PACKAGE}/data/digits/train-images.bin"
    printed = engine.docker("run", "--rm", broken(engine, "trainjob:cut-data", change), code=1)
    assert "train-images.bin" in printed
    assert "Traceback" not in printed.partition("Its last lines")[0]


def test_the_image_is_the_whole_command_line(engine: Engine, image: str) -> None:
    planned = engine.docker("run", "--rm", image, "plan", "--cluster", "pod64", "--instances", "8")
    assert "64 = 8 instances × 8" in planned
    here = engine.trainjob("render", "--cluster", "pod64", "--instances", "8")
    assert engine.docker("run", "--rm", image, "render", "--cluster", "pod64", "--instances", "8") == here
    assert engine.trainjob("container", "run", "cpu", "--", "render", "--cluster", "pod64", "--instances", "8") == here
    reported = engine.trainjob("container", "run", "cpu", "--json", "--", "cluster", "list", "--json")
    # The container's output comes first, on the error stream; the JSON of this command is the last line's object.
    answer = json.loads(reported[reported.rindex("\n{") :])
    assert (answer["exit_code"], answer["argv"][-3:]) == (0, ["cluster", "list", "--json"])
    assert '"name": "pod64"' in reported
    refused = engine.docker("run", "--rm", image, "plan", "--cluster", "pod64", "--replicas", "12", code=1)
    assert "Nearest that works" in refused


def test_a_run_submitted_inside_ends_before_the_container_and_is_the_users(
    engine: Engine, image: str, shared_folder: Path
) -> None:
    (shared_folder / "clusters").mkdir()
    (shared_folder / "clusters/here.yaml").write_text("kind: local\nruns_dir: /shared/runs\n")
    words = [
        "--user",
        f"{STRANGER}:{STRANGER}",
        "--network",
        "none",
        "--volume",
        f"{shared_folder}:/shared",
        "--workdir",
        "/shared",
        image,
    ]
    job = ["--cluster", "here", "--instances", "2", "--updates", "20", "--name", "inside"]
    engine.docker("run", "--rm", *words, "submit", *job)
    (run,) = (shared_folder / "runs").iterdir()
    assert (run / "state").read_text() == "COMPLETED\n"
    owners = {path.stat().st_uid for path in [run, *run.rglob("*")]}
    assert owners == {STRANGER}


def test_the_image_runs_as_an_ordinary_user(engine: Engine, image: str) -> None:
    (facts,) = json.loads(engine.docker("image", "inspect", image))
    assert facts["Config"]["User"] == "trainjob"
    assert engine.docker("run", "--rm", "--entrypoint", "id", image, "-u").strip() != "0"


def test_its_health_check_passes(engine: Engine, image: str) -> None:
    (facts,) = json.loads(engine.docker("image", "inspect", image))
    check = facts["Config"]["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    engine.docker("run", "--rm", "--entrypoint", check[1], image, *check[2:])


def test_no_secret_and_no_wheel_is_in_the_image(engine: Engine, image: str, secret: str) -> None:
    assert secret not in engine.docker("history", "--no-trunc", image)
    assert secret not in engine.docker("image", "inspect", image)
    look = (
        f"grep --recursive --files-with-matches --fixed-strings {secret} /opt/trainjob/lib/*/site-packages/trainjob* "
    )
    look += "/home /project /build /root /etc /tmp /var; find / -xdev -name '*.whl' -not -path '*/ensurepip/*'"
    look += " -not -path '/usr/share/python-wheels/*'"
    assert engine.docker("run", "--rm", "--user", "0", "--entrypoint", "sh", image, "-c", look) == ""


def test_a_base_that_is_not_there_is_said(engine: Engine, wheels: Path) -> None:
    words = ("--base", "trainjob-tests/no-such:base", "--wheelhouse", wheels, "--network", "none")
    printed = engine.trainjob("container", "build", "cpu", *words, "--name", "trainjob:never", code=1)
    assert "docker exited with 1, so image trainjob:never is not built" in printed
    assert BASE not in printed
