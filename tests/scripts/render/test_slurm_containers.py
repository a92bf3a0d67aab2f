"""Containers under Slurm, by programs that record how they are called and then run the rank outside; and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.render_cases import HOSTILE, cluster, rendered, request, script
from trainjob.backends import folder
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths

# Records how it is called; then runs what comes after the image, as the runtime would: with what it carries in.
RECORDS = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
record = open({record!r}, "a")
record.write(json.dumps(words) + "\\n")
record.close()
if words[0].startswith("--image="):  # shifter
    at = next(at for at, word in enumerate(words) if not word.startswith("--"))
    os.execvp(words[at], words[at:])
if words[0] not in ("exec", "run"):
    sys.exit(0)
inside = {{"PATH": os.environ["PATH"]}}
for name, value in os.environ.items():
    prefix, mark, own = name.partition("ENV_")
    if mark and prefix == os.path.basename(sys.argv[0]).upper():
        inside[own] = value
for flag, name in zip(words, words[1:]):
    if flag == "--env" and name in os.environ:
        inside[name] = os.environ[name]
command = words[words.index("IMAGE") + 1:]
os.execvpe(command[0], command, inside)
"""
# Starts one task, as srun would on this very node; says so first.
SRUN = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
open({record!r}, "a").write(json.dumps(["srun", *words]) + "\\n")
here = {{"PROCID": "0", "LOCALID": "0", "NODEID": "0", "NTASKS": "1", "STEP_TASKS_PER_NODE": "1"}}
os.environ.update({{"SLURM_" + name: value for name, value in here.items()}})
command = words[words.index("sh"):]
os.execvp(command[0], command)
"""
SHOWS = "import json, os; print(json.dumps(dict(os.environ)))"
VALUES = {f"V{number}": text for number, text in enumerate(HOSTILE)}


class Ran:
    """A job script for Slurm, run by hand as slurmd would, in a recorded container."""

    def __init__(
        self,
        tmp_path: Path,
        runtime: str,
        mounts: Sequence[str] = ("/usr", "/usr/bin:/opt/the tools"),
        program: str = "",
        options: Sequence[str] = (),
        **environment: str,
    ) -> None:
        programs, self._record = tmp_path / "bin", tmp_path / "record"
        programs.mkdir()
        for name, text in ((program or runtime, RECORDS), ("srun", SRUN)):
            (programs / name).write_text(text.format(python=sys.executable, record=str(self._record)))
            (programs / name).chmod(0o755)
        container = {"runtime": runtime, "image": "IMAGE", "mounts": list(mounts), "options": list(options)}
        place = cluster(kind="slurm", nodes={"count": 1, "cpus": 1}, container=container, python=sys.executable)
        asked = request(place, command=[sys.executable, "-c", SHOWS], env=VALUES)
        self.paths: RunPaths = folder.create(tmp_path / "a run", rendered(asked), None, None)
        self.paths.project.mkdir(parents=True)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "localhost", **environment}
        subprocess.run(["bash", "job.sbatch"], cwd=self.paths.folder, env=environ, check=False)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self._record.read_text().splitlines()] if self._record.exists() else []

    @property
    def call(self) -> list[str]:
        return next(words for words in self.calls if words[0] in ("exec", "run"))

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.paths.rank_log(0).read_text().splitlines()[1])
        return found


@pytest.mark.parametrize("runtime", ["apptainer", "docker", "podman"])
def test_any_value_reaches_the_rank_and_the_hosts_environment_does_not(tmp_path: Path, runtime: str) -> None:
    ran = Ran(tmp_path, runtime, LOADED_BY_A_MODULE="x", PYTHONPATH="/nowhere")
    assert ran.paths.state.read_text() == "COMPLETED\n"
    assert {name: ran.environment[name] for name in VALUES} == VALUES
    assert "LOADED_BY_A_MODULE" not in ran.environment
    assert "/nowhere" not in ran.environment["PYTHONPATH"]  # the launcher's own folder alone


def test_apptainer_has_a_clean_environment_and_sees_the_run(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "apptainer")
    run = str(ran.paths.folder)
    assert ran.call[: ran.call.index("IMAGE")] == [
        *["exec", "--cleanenv", "--no-eval", "--pwd", f"{run}/code"],
        *["--mount", f"type=bind,source={run},destination={run}", "--mount", "type=bind,source=/usr,destination=/usr"],
        *["--mount", "type=bind,source=/usr/bin,destination=/opt/the tools"],
    ]
    assert ran.environment["PYTHONNOUSERSITE"] == "1"


def test_singularity_takes_the_place_of_apptainer(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "apptainer", program="singularity", LOADED_BY_A_MODULE="x")
    assert ran.paths.state.read_text() == "COMPLETED\n"
    assert {name: ran.environment[name] for name in VALUES} == VALUES
    assert ran.environment["PYTHONNOUSERSITE"] == "1"
    assert "LOADED_BY_A_MODULE" not in ran.environment


def test_files_from_docker_are_the_users_and_no_container_stays(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "docker")
    assert ran.call[ran.call.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert ran.call[(at := ran.call.index("--ipc")) : at + 2] == ["--ipc", "host"]
    label = f"label=trainjob.run={ran.paths.folder}"
    assert [words for words in ran.calls if words[0] == "ps"] == [["ps", "--quiet", "--filter", label]] * 2


@pytest.mark.parametrize("runtime", ["apptainer", "docker"])
def test_a_rehearsal_runs_without(tmp_path: Path, runtime: str) -> None:
    ran = Ran(tmp_path, runtime, TRAINJOB_CONTAINER="none")
    assert ran.paths.state.read_text() == "COMPLETED\n"
    assert {words[0] for words in ran.calls} <= {"srun", "ps"}


def test_pyxis_is_asked_through_srun(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "pyxis")
    run = str(ran.paths.folder)
    (words,) = (words[1:] for words in ran.calls if words[0] == "srun")
    assert ran.paths.state.read_text() == "COMPLETED\n"
    assert "--container-image=IMAGE" in words
    assert f"--container-mounts={run}:{run},/usr:/usr,/usr/bin:/opt/the tools" in words
    (names,) = (word.partition("=")[2].split(",") for word in words if word.startswith("--container-env="))
    assert {*VALUES, "MASTER_ADDR", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES"} < set(names)


@pytest.mark.parametrize("runtime", ["apptainer", "docker", "podman", "shifter"])
def test_options_of_the_users_stand_before_the_image(tmp_path: Path, runtime: str) -> None:
    own = ["--overlay=/a b.img", "--writable"]
    ran = Ran(tmp_path, runtime, options=own)
    words = next(words for words in ran.calls if own[0] in words and words[0] != "srun")
    at = words.index(own[0])
    assert words[at : at + 2] == own
    if runtime != "shifter":  # which takes its image as an option
        assert words[at + 2] == "IMAGE"


@pytest.mark.parametrize(("runtime", "own"), [("pyxis", "--container-writable"), ("ce", "--label=a b")])
def test_options_of_a_plugin_are_those_of_srun(tmp_path: Path, runtime: str, own: str) -> None:
    ran = Ran(tmp_path, runtime, mounts=[], options=[own])
    (words,) = (words[1:] for words in ran.calls if words[0] == "srun")
    assert own in words


def test_the_container_engine_is_asked_through_srun(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "ce", mounts=[])
    (words,) = (words[1:] for words in ran.calls if words[0] == "srun")
    assert ran.paths.state.read_text() == "COMPLETED\n"
    assert "--environment=IMAGE" in words


def test_shifter_keeps_the_environment_and_mounts_what_the_file_names(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "shifter")
    (words,) = (words for words in ran.calls if words[0].startswith("--image="))
    assert words[:2] == ["--image=IMAGE", "--volume=/usr:/usr"]
    assert ran.paths.state.read_text() == "COMPLETED\n"
    assert {name: ran.environment[name] for name in VALUES} == VALUES


@pytest.mark.parametrize(
    ("asked", "job", "message"),
    [
        ({"runtime": "docker"}, {"hosts": 2}, "docker and the job takes 2 hosts: docker serves one"),
        ({"runtime": "podman"}, {"hosts": 2}, "or --hosts 1"),
        ({"runtime": "docker", "mounts": ["/a,b"]}, {}, "docker splits a mount at ','"),
        ({"runtime": "docker", "mounts": ["/a:/b:ro"]}, {}, "docker splits a mount at ':'"),
        ({"runtime": "pyxis", "mounts": ["/a:b"]}, {}, "pyxis splits a mount at ':'"),
        ({"runtime": "shifter", "mounts": ["/a;b"]}, {}, "shifter splits a mount at ';'"),
        ({"runtime": "docker", "mounts": ["a"]}, {}, "container.mounts a is a in cluster file here.yaml"),
    ],
)
def test_what_can_not_be_contained_is_refused(asked: dict[str, Any], job: dict[str, Any], message: str) -> None:
    place = cluster(kind="slurm", nodes={"count": 2, "cpus": 1}, container={**asked, "image": "IMAGE"})
    with pytest.raises(UserError, match=message):
        script(request(place, **job))


@pytest.mark.parametrize("runtime", ["apptainer", "pyxis"])
def test_on_this_machine_there_is_docker_or_podman(runtime: str) -> None:
    with pytest.raises(UserError, match=f"container.runtime is {runtime} and the cluster is of kind local"):
        script(request(cluster(container={"runtime": runtime, "image": "IMAGE"})))
