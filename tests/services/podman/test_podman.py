"""A real Podman, as root: an image built and run by our commands, and runs whose ranks have containers of its own."""

from __future__ import annotations

import json
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import docker_engine
from tests.support.local_runs import Here, Run
from tests.support.podman_engine import BASE, IMAGE, Podman, podman_engine
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)

# Stays, whatever it is told.
STAY = """\
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
told = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "GREETING", "TOKEN")}
print(json.dumps({**told, "interpreter": sys.executable, "user": os.getuid()}), flush=True)
while True:
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def podman(needs: Callable[[str], Path]) -> Iterator[Podman]:
    """A Podman with an image of Debian and Python."""
    needs("podman")
    with podman_engine(needs("mmdebstrap")) as engine:
        engine.podman("import", "-", BASE, stdin=docker_engine.base_archive(needs("mmdebstrap")))
        yield engine


@pytest.fixture(scope="module")
def wheels(needs_registry: None) -> Path:
    return docker_engine.wheelhouse()


@pytest.fixture(scope="module")
def image(podman: Podman, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image for CPUs, whose torch is nothing but its name: the real one takes a minute to unpack."""
    return build(podman, with_a_torch_that_does_nothing(wheels, tmp_path_factory.mktemp("wheels")))


def build(podman: Podman, wheelhouse: Path) -> str:
    words = ("--base", BASE, "--wheelhouse", wheelhouse, "--network", "none", "--engine", "podman")
    printed = podman.trainjob("container", "build", "cpu", *words)
    assert f"built image {IMAGE}. Next: podman run --rm {IMAGE}" in printed
    return IMAGE


def with_a_torch_that_does_nothing(wheels: Path, folder: Path) -> Path:
    for wheel in wheels.iterdir():
        if not wheel.name.startswith("torch-"):
            (folder / wheel.name).symlink_to(wheel)
    facts = "torch-2.13.0.dist-info"
    with zipfile.ZipFile(folder / "torch-2.13.0-py3-none-any.whl", "w") as made:
        made.writestr("torch/__init__.py", "__version__ = '2.13.0'\n")
        made.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
        made.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{facts}/RECORD", "")
    return folder


@dataclass(frozen=True)
class Contained:
    """A run in containers."""

    podman: Podman
    run: Run

    def containers(self, *flags: str) -> list[str]:
        return self.podman.containers("--filter", f"label=trainjob.run={self.run.folder}", *flags)

    def nothing_is_left(self) -> None:
        until(lambda: not self.containers("--all") and not self.run.processes(), "no container is left", poll_s=0.5)


@pytest.fixture
def boxes(here: Here, podman: Podman, image: str) -> Iterator[Here]:
    """The user's machine, with a cluster file `boxed` whose ranks run in containers of Podman."""
    here.environ["PATH"] = f"{podman.folder}:{here.environ['PATH']}"
    secrets = here.folder / "secrets.env"
    secrets.write_text("TOKEN=hunter2\n")
    secrets.chmod(0o600)
    rest = f'secrets_file: {secrets}\nenv: {{GREETING: "it\'s $HOME"}}\n'
    here.cluster("boxed", f"container: {{runtime: podman, image: '{image}'}}\n{rest}")
    yield here
    for one in podman.containers("--all"):
        podman.podman("rm", "--force", one, code=None)


@pytest.fixture
def staying(boxes: Here, podman: Podman) -> Contained:
    """A run of STAY whose two ranks are there."""
    boxes.write("my_script.py", STAY)
    asked = ("submit", "--cluster", "boxed", "--instances", "2", "--", "python3", "my_script.py")
    made = Contained(podman, boxes.at(boxes.json(*asked)["folder"]))
    until(lambda: all("}\n" in made.run.log(rank) for rank in (0, 1)), "both ranks have told")
    return made


def test_the_image_is_the_whole_command_line_as_the_user(podman: Podman, image: str, tmp_path: Path) -> None:
    job = ("render", "--cluster", "pod64", "--instances", "8")
    here = podman.trainjob(*job)
    assert podman.trainjob("container", "run", "cpu", "--engine", "podman", "--", *job) == here
    podman.trainjob("container", "run", "cpu", "--engine", "podman", "--", *job, "-o", "job", folder=tmp_path)
    assert (tmp_path / "job" / "job.sh").stat().st_uid == os.getuid()
    (facts,) = json.loads(podman.podman("image", "inspect", image))
    assert facts["Config"]["User"] == "trainjob"
    assert facts["Healthcheck"]["Test"][-1] == "trainjob.launch.witness.health"


def test_each_rank_has_a_container_and_cancel_leaves_none(staying: Contained, boxes: Here, podman: Podman) -> None:
    run = staying.run
    assert len(staying.containers()) == 2
    for rank in (0, 1):
        reported = {"RANK": str(rank), "WORLD_SIZE": "2", "GREETING": "it's $HOME", "TOKEN": "hunter2"}
        assert run.report(rank) == {**reported, "interpreter": "/opt/trainjob/bin/python3", "user": os.getuid()}
    assert "hunter2" not in podman.podman("inspect", *staying.containers())
    stacks = boxes.json("stacks", run.id)
    assert all('my_script.py", line' in rank["processes"][0]["stack"] for rank in stacks), stacks
    shown = boxes.run("shell", run.id, "--rank", "1", "--", "sh", "-c", 'echo "$RANK in $(pwd)"; exit 5', code=5)
    assert shown.stdout == f"1 in {run.folder}/code\n"
    assert '"RANK": "1"' in boxes.run("logs", run.id, "--rank", "1").stdout
    used = {podman.podman("inspect", "--format", "{{.ImageDigest}}", one).strip() for one in staying.containers()}
    recorded = json.loads((run.folder / "submission.json").read_text())["image_digest"]
    assert used == {recorded.partition("@")[2]}
    boxes.run("cancel", run.id, "--grace-s", "1")
    assert run.word("state") == "CANCELLED"
    staying.nothing_is_left()


def test_a_kill_of_a_client_leaves_no_container(staying: Contained) -> None:
    os.kill(staying.run.find("podman", "run")[0], signal.SIGKILL)
    staying.run.wait("FAILED")
    staying.nothing_is_left()
    assert staying.run.status()["state"] == "FAILED"


@pytest.mark.full
def test_a_kill_of_the_script_leaves_no_container(staying: Contained) -> None:
    os.kill(staying.run.script, signal.SIGKILL)
    staying.nothing_is_left()
    assert staying.run.status()["state"] == "LOST"


@pytest.mark.full
def test_an_image_with_torch_verifies_itself_and_trains(boxes: Here, podman: Podman, wheels: Path) -> None:
    build(podman, wheels)
    printed = podman.trainjob("container", "run", "cpu", "--engine", "podman")
    assert printed.rstrip().endswith("OK: this installation trains")
    ended = boxes.json("submit", "--cluster", "boxed", "--instances", "2", "--updates", "20", "--follow")
    assert ended["state"] == "COMPLETED"
    assert (Path(ended["folder"]) / "checkpoints/update-00000020/model.safetensors").exists()
    assert podman.containers("--all") == []
