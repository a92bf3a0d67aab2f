"""A script whose ranks run in containers, with an engine that records how it was called and runs the rank itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainjob
from tests.support.programs import ran
from tests.support.render_cases import HOSTILE, cluster, rendered, request, script
from trainjob.contract.errors import UserError

# After the image's name comes what the container runs: with the variables that it was handed, and no other.
ENGINE = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
if words[0] == "info":
    print("[name=seccomp{rootless}]")
    sys.exit()
handed = {{name: os.environ[name] for flag, name in zip(words, words[1:]) if flag == "--env" and name in os.environ}}
with open({record!r}, "a") as stream:
    stream.write(json.dumps([words, handed]) + "\\n")
at = words.index("our image:1")
os.execve({python!r}, [{python!r}, *words[at + 1 :]], {{**handed, "PATH": os.defpath}})
"""
TELL = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
SECRET = "hunter2"


def run(folder: Path, engine: str, *, rootless: str = "", **values: Any) -> list[tuple[list[str], dict[str, str]]]:
    """Render and run a job of two ranks; return each container's words and the variables that it was handed."""
    engines = folder / "engines"
    engines.mkdir()
    program = engines / engine
    program.write_text(ENGINE.format(python=sys.executable, record=str(folder / "record"), rootless=rootless))
    program.chmod(0o755)
    job = folder / "job"
    (job / "code").mkdir(parents=True)
    (job / "code/project").mkdir()
    (job / "code/trainjob").symlink_to(Path(trainjob.__file__).parent)
    asked = request(
        cluster(container={"runtime": engine, "image": "our image:1"}, **values),
        instances=2,
        command=[sys.executable, "-c", TELL, *HOSTILE],
    )
    for name, file in rendered(asked).files.items():
        (job / name).write_bytes(file.content)
    environ = {**os.environ, "PATH": f"{engines}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = ran(["bash", job / "job.sh"], environ=environ, timeout_s=100)
    assert ended.returncode == 0, ended.stderr + (job / "logs/rank-0000.log").read_text()
    return [tuple(json.loads(line)) for line in (folder / "record").read_text().splitlines()]


def reported(folder: Path, rank: int) -> Any:
    lines = (folder / f"job/logs/rank-{rank:04d}.log").read_text().splitlines()
    return json.loads(lines[-1])


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.env"
    path.write_text(f"TOKEN={SECRET}\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_what_was_typed_reaches_ranks_unchanged(engine: str, tmp_path: Path) -> None:
    values = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    run(tmp_path, engine, env=values)
    for rank in (0, 1):
        environ, arguments = reported(tmp_path, rank)
        assert arguments == HOSTILE
        assert {name: environ[name] for name in values} == values
        assert (environ["RANK"], environ["LOCAL_RANK"], environ["WORLD_SIZE"]) == (str(rank), str(rank), "2")


def test_a_secret_is_read_inside_and_handed_in_nowhere(tmp_path: Path, secrets: Path) -> None:
    # The same name in both: the value from outside must not be taken for the secret, nor the other way round.
    calls = run(tmp_path, "docker", secrets_file=str(secrets), env={"TOKEN": "public"})
    assert SECRET not in json.dumps(calls)
    assert [reported(tmp_path, rank)[0]["TOKEN"] for rank in (0, 1)] == [SECRET, SECRET]
    for words, handed in calls:
        assert handed["TOKEN"] == "public"
        assert f"{secrets}:{secrets}:ro" in words


def test_the_engine_is_called_once_a_rank_with_host_network_and_the_users_id(tmp_path: Path) -> None:
    calls = run(tmp_path, "docker")
    assert sorted(handed["RANK"] for _, handed in calls) == ["0", "1"]
    for words, _ in calls:
        assert words[:2] == ["run", "--rm"]
        for pair in (["--network", "host"], ["--ipc", "host"], ["--user", f"{os.getuid()}:{os.getgid()}"]):
            assert words[words.index(pair[0]) + 1] == pair[1]
        assert f"trainjob.run={tmp_path}/job" in words
        assert "--privileged" not in words


def test_the_root_of_a_rootless_engine_is_the_user(tmp_path: Path) -> None:
    for words, _ in run(tmp_path, "docker", rootless=" name=rootless"):
        assert words[words.index("--user") + 1] == "0:0"
        assert "--group-add" not in words


def test_a_log_is_begun_once(tmp_path: Path) -> None:
    run(tmp_path, "docker")
    assert (tmp_path / "job/logs/rank-0000.log").read_text().count("--- attempt 1") == 1


def test_a_rehearsal_without_containers_starts_the_ranks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINJOB_CONTAINER", "none")
    (tmp_path / "record").touch()
    assert run(tmp_path, "docker") == []
    assert reported(tmp_path, 1)[0]["RANK"] == "1"


def test_an_engine_that_is_missing_is_said_in_the_log(tmp_path: Path) -> None:
    asked = request(cluster(container={"runtime": "podman", "image": "i"}), command=["true"])
    (tmp_path / "code").mkdir()
    (tmp_path / "code/trainjob").symlink_to(Path(trainjob.__file__).parent)
    for name, file in rendered(asked).files.items():
        (tmp_path / name).write_bytes(file.content)
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    ended = subprocess.run(["bash", tmp_path / "job.sh"], env=environ, capture_output=True, timeout=60)
    assert ended.returncode == 127
    assert "can't start podman" in (tmp_path / "logs/rank-0000.log").read_text()


def test_an_image_that_an_engine_would_take_for_an_option_is_refused() -> None:
    asked = request(cluster(container={"runtime": "docker", "image": "--privileged"}))
    with pytest.raises(UserError, match="--privileged, which docker would take for an option"):
        script(asked)


def test_ranks_of_mpirun_are_refused() -> None:
    asked = request(cluster(container={"runtime": "docker", "image": "i"}), instances=2, engine="horovod")
    with pytest.raises(UserError, match=r"starts its ranks by mpirun.*--engine ddp.*trainjob container run cpu"):
        script(asked)
