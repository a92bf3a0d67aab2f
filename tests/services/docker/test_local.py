"""Runs submitted into containers of a real Docker engine: a rank each, the user's files, no secret shown, none left."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.docker_engine import Engine
from tests.support.local_runs import Here, Run, kill
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)

SECRET = "hunter2-in-a-file"
STRANGER = 4321
# Stays until it is released; tells what it was handed, and what is its own container.
STAY = """\
import hashlib, json, os, pathlib, signal, subprocess, sys, time
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "301"])
told = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "GREETING", "TRAINJOB_ATTEMPT")}
told["secret"] = hashlib.sha256(os.environ.get("TOKEN", "").encode()).hexdigest()
told["interpreter"] = sys.executable
print(json.dumps(told), flush=True)
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
while not (run / "release").exists():
    time.sleep(0.05)
sys.exit(7 if "--fail" in sys.argv and os.environ["RANK"] == "1" else 0)
"""


@dataclass(frozen=True)
class Contained:
    """A run in containers."""

    engine: Engine
    run: Run

    @property
    def label(self) -> str:
        return f"label=trainjob.run={self.run.folder}"

    def running(self) -> list[str]:
        return self.engine.containers("--filter", self.label)

    def all(self) -> list[str]:
        return self.engine.containers("--all", "--filter", self.label)

    def wait_until_reported(self) -> None:
        until(lambda: all("}\n" in self.run.log(rank) for rank in (0, 1)), "both ranks have told")

    def report(self, rank: int) -> dict[str, Any]:
        lines = [line for line in self.run.log(rank).splitlines() if line.startswith("{")]
        value: dict[str, Any] = json.loads(lines[-1])
        return value

    def wait_until_nothing_is_left(self) -> None:
        until(lambda: not self.all() and not self.run.processes(), "no container and no process is left")


@pytest.fixture
def boxes(here: Here, engine: Engine, image: str) -> Iterator[Here]:
    """The user's machine, with a cluster file `boxed` whose ranks run in containers, and a secrets file."""
    here.environ["DOCKER_HOST"] = engine.environ["DOCKER_HOST"]
    secrets = here.folder / "secrets.env"
    secrets.write_text(f"TOKEN={SECRET}\n")
    secrets.chmod(0o600)
    container = f"container: {{runtime: docker, image: '{image}'}}\n"
    here.cluster("boxed", f'{container}secrets_file: {secrets}\nenv: {{GREETING: "it\'s $HOME"}}\n')
    yield here
    for one in _containers_below(engine, here.folder):
        engine.docker("rm", "--force", one, code=None)


def _containers_below(engine: Engine, folder: Path) -> list[str]:
    """Return the containers of runs below a folder: another worker's tests have theirs."""
    listed = engine.docker("ps", "--all", "--no-trunc", "--format", '{{.ID}} {{.Label "trainjob.run"}}')
    pairs = [line.split(" ", 1) for line in listed.splitlines()]
    return [identifier for identifier, run in pairs if run.startswith(str(folder))]


@pytest.fixture
def staying(boxes: Here, engine: Engine) -> Callable[..., Contained]:
    """Return what starts a run of STAY and waits until both ranks are there."""

    def start(*words: str) -> Contained:
        boxes.write("my_script.py", STAY)
        asked = ("submit", "--cluster", "boxed", "--again", "--instances", "2", "--", "python3", "my_script.py", *words)
        made = Contained(engine, boxes.at(boxes.json(*asked)["folder"]))
        made.wait_until_reported()
        return made

    return start


def test_each_rank_has_a_container_and_is_handed_what_it_needs(staying: Callable[..., Contained], boxes: Here) -> None:
    run = staying()
    assert len(run.running()) == 2
    for rank in (0, 1):
        reported = run.report(rank)
        assert (reported["RANK"], reported["WORLD_SIZE"], reported["MASTER_ADDR"]) == (str(rank), "2", "127.0.0.1")
        assert reported["GREETING"] == "it's $HOME"
        assert reported["interpreter"] == "/opt/trainjob/bin/python3"
        assert reported["secret"] == hashlib.sha256(SECRET.encode()).hexdigest()
    # Seen from inside of the containers.
    stacks = boxes.json("stacks", run.run.id)
    assert all('my_script.py", line' in rank["processes"][0]["stack"] for rank in stacks), stacks
    assert [rank["rank"] for rank in boxes.json("usage", run.run.id)] == [0, 1]
    shown = boxes.run("shell", run.run.id, "--rank", "1", "--", "sh", "-c", 'echo "$RANK in $(pwd)"; exit 5', code=5)
    assert shown.stdout == f"1 in {run.run.folder}/code\n"
    run.run.release()
    run.run.wait("COMPLETED")
    run.wait_until_nothing_is_left()


def test_inspect_shows_host_network_and_no_secret(staying: Callable[..., Contained], engine: Engine) -> None:
    run = staying()
    text = engine.docker("inspect", *run.running())
    assert SECRET not in text
    for facts in json.loads(text):
        assert facts["HostConfig"]["NetworkMode"] == "host"
        assert facts["HostConfig"]["Privileged"] is False
        assert facts["Config"]["User"] == f"{os.getuid()}:{os.getgid()}"
    files = [path for path in run.run.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    run.run.release()
    run.run.wait("COMPLETED")


def test_the_images_digest_is_recorded(staying: Callable[..., Contained], engine: Engine, image: str) -> None:
    run = staying()
    recorded = json.loads((run.run.folder / "submission.json").read_text())["image_digest"]
    used = {engine.docker("inspect", "--format", "{{.Image}}", one).strip() for one in run.running()}
    assert used == {recorded}
    assert recorded.startswith("sha256:")
    run.run.release()
    run.run.wait("COMPLETED")


def test_a_rank_that_fails_ends_the_others_and_is_named(staying: Callable[..., Contained]) -> None:
    run = staying("--fail")
    run.run.release()
    run.run.wait("FAILED")
    failure = json.loads((run.run.folder / "failure.json").read_text())
    assert (failure["rank"], failure["exit_code"]) == (1, 7)
    assert failure["command"] == ["python3", "my_script.py", "--fail"]
    run.wait_until_nothing_is_left()


def test_cancel_leaves_no_container(staying: Callable[..., Contained], boxes: Here) -> None:
    run = staying("--deaf")
    boxes.run("cancel", run.run.id, "--grace-s", "1")
    assert run.run.status()["state"] == "CANCELLED"
    run.wait_until_nothing_is_left()


def outside(pid: int) -> bool:
    """Return whether a process runs on the host, and not in a container."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False


@pytest.mark.parametrize("who", ["client", "all"])
def test_a_kill_leaves_no_container_even_of_deaf_ranks(who: str, staying: Callable[..., Contained]) -> None:
    run = staying("--deaf")
    victims = run.run.find("docker", "run")[:1] if who == "client" else run.run.processes()
    assert len(victims) >= 1
    kill(filter(outside, victims))
    run.wait_until_nothing_is_left()


def test_a_kill_of_the_script_leaves_no_container(staying: Callable[..., Contained]) -> None:
    run = staying()
    os.kill(run.run.script, signal.SIGKILL)
    run.wait_until_nothing_is_left()
    assert run.run.status()["state"] == "LOST"


def test_a_task_of_ours_trains_in_two_containers(boxes: Here, engine: Engine) -> None:
    words = ("--cluster", "boxed", "--instances", "2", "--updates", "20", "--follow", "--name", "digits")
    ended = boxes.json("submit", *words)
    assert ended["state"] == "COMPLETED"
    assert (Path(ended["folder"]) / "checkpoints/update-00000020/model.safetensors").exists()
    assert _containers_below(engine, boxes.folder) == []


def test_an_image_that_is_not_here_is_refused_with_what_builds_it(boxes: Here) -> None:
    boxes.cluster("absent", "container: {runtime: docker, image: 'trainjob:absent'}\n")
    ended = boxes.run("submit", "--cluster", "absent", code=1)
    assert "docker has no image trainjob:absent" in ended.stderr
    assert "trainjob container build cpu --name trainjob:absent" in ended.stderr


def test_an_engine_that_does_not_answer_is_refused(boxes: Here) -> None:
    nobody = {"DOCKER_HOST": f"unix://{boxes.folder}/nobody"}
    ended = boxes.run("submit", "--cluster", "boxed", code=1, environ=nobody)
    assert "docker is installed, but its engine does not answer" in ended.stderr


def test_files_belong_to_the_user_who_runs(boxes: Here, engine: Engine) -> None:
    """As a user who is not root: the rendered folder run by hand, with the system's Python."""
    text = "container: {runtime: docker, image: 'trainjob:cpu'}\n"
    boxes.cluster("plain", text)
    with tempfile.TemporaryDirectory(prefix="trainjob-stranger-", dir="/tmp") as name:
        Path(name).chmod(0o777)
        folder = Path(name) / "job"
        boxes.run("render", "--cluster", "plain", "--instances", "2", "--updates", "5", "-o", str(folder))
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, STRANGER, STRANGER)
        (engine.folder / "socket").chmod(0o666)
        interpreter = Path(shutil.which("python3", path="/usr/bin") or "/nowhere")
        environ = {**engine.environ, "PATH": f"{interpreter.parent}:{os.environ['PATH']}", "HOME": name}
        who = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
        ended = subprocess.run([*who, "bash", str(folder / "job.sh")], env=environ, capture_output=True, timeout=300)
        assert ended.returncode == 0, ended.stderr
        assert (folder / "state").read_text() == "COMPLETED\n"
        assert {path.stat().st_uid for path in [folder, *folder.rglob("*")]} == {STRANGER}


ONCE = """\
command: [python3, my_script.py]
once:
  job: [{name: model, shell: 'command -v python3 >>"$TRAINJOB_RUN_DIR/of-the-run"'}]
  node: [{name: cache, shell: 'command -v python3 >>"$TRAINJOB_RUN_DIR/of-the-node"; echo $SCOPE'}]
env: {SCOPE: node}
"""


def test_steps_of_a_node_run_once_in_a_container_before_its_ranks(boxes: Here, engine: Engine) -> None:
    boxes.write("my_script.py", STAY)
    boxes.write("job.yaml", ONCE)
    asked = ("submit", "--cluster", "boxed", "--job", "job.yaml", "--instances", "2")
    run = Contained(engine, boxes.at(boxes.json(*asked)["folder"]))
    run.wait_until_reported()
    folder = run.run.folder
    # The one of the run comes before the containers.
    (before,) = (folder / "of-the-run").read_text().split()
    assert before != "/opt/trainjob/bin/python3"
    assert (folder / "of-the-node").read_text().split() == ["/opt/trainjob/bin/python3"]
    (log,) = folder.glob("logs/*node*.log")
    assert log.read_text().splitlines()[1:] == ["node"]
    (folder / "release").touch()
    until(lambda: run.run.word("state") == "COMPLETED", "the run to be complete")
    run.wait_until_nothing_is_left()
