"""What a check says of a Slurm job, on this machine and from the cluster file alone: every line a user may read."""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import bare_python
from tests.support.submit_cases import write
from trainjob.backends.project import find, select
from trainjob.check.checks import problems
from trainjob.check.context import Context, Depth
from trainjob.cluster.job import Job
from trainjob.contract.environment import TRY_ON_CPUS
from trainjob.kinds.table import cluster_of
from trainjob.machines.access import HERE
from trainjob.planning.build import plan
from trainjob.render.request import Request

NODES = {"count": 4, "accelerator": "gpu", "accelerators": 4, "cpus": 64, "memory_gb": 500}


def problems_of(folder: Path, place: dict[str, Any], *, deep: bool = False, **job: Any) -> list[tuple[str, str]]:
    fixed = {"kind": "slurm", "nodes": NODES, "directives": {"partition": "gpu"}, "runs_dir": str(folder / "runs")}
    cluster = cluster_of({**fixed, "python": gpu_python(folder), **place})
    asked = Job(**{"instances": 4, **job})
    project = find(folder)
    request = Request(cluster, "cluster file hpc.yaml", asked, {}, plan("hpc", cluster, asked), project.start)
    found = problems(Context(request, project, select(project), HERE), Depth(thorough=deep))
    return [(problem.code, str(problem)) for problem in found]


@pytest.fixture(autouse=True)
def login_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of Slurm's commands, of which a check needs two: it asks no controller."""
    slurm = tmp_path / "slurm-of-test/bin"
    for name in ("sinfo", "srun"):
        write(slurm, name, text="#!/bin/sh\nexit 0\n")
        (slurm / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{slurm}:{os.environ['PATH']}")
    return slurm


def gpu_python(folder: Path) -> str:
    """Return this interpreter, whose torch says that it was built for CUDA."""
    path = folder / "gpu-python"
    stub = os.environ.get("PYTHONPATH", "")  # a job's environment lacks what the submitting shell has
    run = f'PYTHONPATH="$PYTHONPATH:{stub}" {sys.executable} "$@"'
    path.write_text(f"#!/bin/sh\n{run} | sed 's/^torch-built-for cpu/torch-built-for cuda-12.4/'\n")
    path.chmod(0o755)
    return str(path)


def test_a_torch_for_cpus_alone_where_the_job_trains_on_gpus(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, {"python": sys.executable})
    assert code == "torch-without-gpu"
    assert text.startswith(
        f"the job trains on GPUs, and {sys.executable} on this machine has a torch built for CPUs only. "
        "Install a torch for CUDA or ROCm there"
    )
    assert text.endswith(TRY_ON_CPUS)
    assert problems_of(tmp_path, {"python": sys.executable}, command=["true"]) == []
    assert problems_of(tmp_path, {"python": sys.executable, "nodes": {"count": 4, "cpus": 8}}) == []


def test_a_job_that_can_run_has_no_problems(tmp_path: Path) -> None:
    assert problems_of(tmp_path, {}) == []


def test_a_required_directive_is_missing(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, {"required_directives": ["account"]})
    assert code == "facts"
    assert text.startswith(
        "cluster hpc can be planned; to submit to it, its file lacks directives.account: add them, or"
    )


def test_memory_above_the_nodes(tmp_path: Path) -> None:
    assert problems_of(tmp_path, {"directives": {"partition": "gpu", "mem": "600G"}}) == [
        (
            "memory",
            "directives.mem 600G is 600 GB a node (150 GB for each of 4 ranks), and nodes.memory_gb is 500. "
            "Nearest that works: directives.mem 500G (125 GB a rank), or fewer instances a node",
        )
    ]


@pytest.mark.parametrize(("option", "value"), [("mem-per-cpu", "10G"), ("mem-per-gpu", "200G"), ("mem", 600000)])
def test_memory_asked_for_in_other_ways(tmp_path: Path, option: str, value: object) -> None:
    assert [code for code, _ in problems_of(tmp_path, {"directives": {"partition": "gpu", option: value}})] == [
        "memory"
    ]


def test_more_accelerators_than_a_node_has(tmp_path: Path) -> None:
    place = {"request": "none", "directives": {"partition": "gpu", "gres": "gpu:a100:8"}}
    ((code, text),) = problems_of(tmp_path, place)
    assert code == "accelerators"
    assert text.startswith("directives.gres requests 8 accelerators of a node, and nodes.accelerators is 4. Nearest")


@pytest.mark.parametrize("python", ["/nowhere/python", "no-such-python", "/etc"])
def test_an_interpreter_that_is_not_there(tmp_path: Path, python: str) -> None:
    ((code, text),) = problems_of(tmp_path, {"python": python})
    assert (code, "can't" in text or "not an interpreter that can be started on this machine" in text) == (
        "interpreter",
        True,
    )


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    bare = bare_python(tmp_path / "python")
    ((code, text),) = problems_of(tmp_path, {"python": str(bare)})
    assert code == "torch"
    lacks = f"{bare} on this machine has no torch, which a task needs"
    assert text.startswith(f"{lacks}. Install it there ({bare} -m pip install torch")


def test_what_a_prologue_brings_is_not_looked_for(tmp_path: Path) -> None:
    assert problems_of(tmp_path, {"python": None, "prologue": ["module load torch"]}) == []


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, {}, command=["no-such-program"])
    assert (code, text.startswith("command 'no-such-program' is not a program that can be started on")) == (
        "command",
        True,
    )


@pytest.mark.parametrize("command", [["true"], ["echo", "x"], ["sh", "-c", "exit"], ["/bin/sh"], [sys.executable]])
def test_a_program_that_the_shell_has_itself_is_found(tmp_path: Path, command: list[str]) -> None:
    assert problems_of(tmp_path, {}, command=command) == []


def test_an_image_that_is_not_there(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, {"container": {"runtime": "apptainer", "image": "/nowhere/x.sif"}})
    assert (code, text) == (
        "image",
        "container.image /nowhere/x.sif is not on this machine. Copy it there, or correct container.image",
    )


def test_data_that_is_not_prepared(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, {"data_dir": str(tmp_path)}, task="cifar10-resnet50")
    assert code == "data"
    assert text.startswith(
        f"data set cifar10 is not prepared on this machine: there is no {tmp_path}/cifar10/manifest.json."
    )


def test_a_runs_dir_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ((code, text),) = problems_of(tmp_path, {"runs_dir": f"{tmp_path}/file/runs"})
    assert code == "runs-dir"
    assert text.endswith(f"{tmp_path}/file is not a folder. Set runs_dir to a folder")
    assert (
        "on this machine is not an absolute path. Write it with a leading / or ~/"
        in problems_of(tmp_path, {"runs_dir": "runs"})[0][1]
    )


def test_a_secrets_file_that_others_may_read_or_that_is_malformed(tmp_path: Path) -> None:
    secrets = tmp_path / "tokens"
    secrets.write_text("# mine\nTOKEN=a b'c\n\nno value here\nexport X=1\n9A=secret\n")
    secrets.chmod(0o640)
    found = problems_of(tmp_path, {"secrets_file": str(secrets)})
    assert [code for code, _ in found] == ["secrets"] * 4
    assert (
        "on this machine has mode 0640: others can read it, and it must have mode 0600. Run: chmod 600 /" in found[0][1]
    )
    assert ["line 4" in found[1][1], "line 5" in found[2][1], "line 6" in found[3][1]] == [True] * 3
    assert not any("secret" in text.replace("secrets_file", "") or "no value" in text for _, text in found)
    assert "does not exist" in problems_of(tmp_path, {"secrets_file": "/nowhere/x"})[0][1]


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    cure = "Give its path relative to your current folder"
    found = problems_of(tmp_path, {}, command=["sh", "nowhere.sh"])
    assert found == [("script", f"nowhere.sh does not exist in {tmp_path}. {cure}")]


TASK = "class T:\n    def build_model(self): ...\n    def open_data(self, place): ...\n    def loss(self, a, b): ...\n"


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param("mine:T", None, marks=pytest.mark.imports_torch),
        ("mine:U", "has no U: "),
        ("nobodys:T", "the task's module nobodys is not found"),
        ("broken:T", "No module named 'no_such_module'"),
    ],
)
@pytest.mark.parametrize("kind", ["slurm", "local"])
def test_a_task_is_imported_by_the_jobs_interpreter(tmp_path: Path, kind: str, task: str, expected: str | None) -> None:
    write(tmp_path, "mine.py", text=TASK)
    write(tmp_path, "broken.py", text="import no_such_module\n")
    found = problems_of(tmp_path, {}, deep=True, task=task) if kind == "slurm" else locally(tmp_path, task=task)
    assert len(found) == (expected is not None)
    if expected is not None:
        code, text = found[0]
        assert code == "task"
        assert text.startswith(f"task {task} can't be imported by ")
        assert expected in text


def locally(folder: Path, place: dict[str, Any] | None = None, **job: Any) -> list[tuple[str, str]]:
    cluster = cluster_of({"kind": "local", "python": sys.executable, **(place or {})})
    asked, project = Job(**job), find(folder)
    request = Request(cluster, "catalog local", asked, {}, plan("local", cluster, asked), project.start)
    found = problems(Context(request, project, select(project), HERE), Depth(thorough=True))
    return [(one.code, str(one)) for one in found]


@pytest.mark.parametrize("kind", ["slurm", "local"])
def test_data_that_is_not_what_was_prepared(tmp_path: Path, kind: str) -> None:
    folder = prepared(tmp_path / "data" / "cifar10")
    place, job = {"data_dir": str(tmp_path / "data")}, {"task": "cifar10-resnet50"}

    def check() -> list[tuple[str, str]]:
        return problems_of(tmp_path, place, deep=True, **job) if kind == "slurm" else locally(tmp_path, place, **job)

    assert check() == []
    (folder / "images.bin").write_bytes(b"other")
    ((code, text),) = check()
    assert code == "data"
    assert text.startswith("data set cifar10 on this machine: images.bin is not the file that was prepared. Remove")


def prepared(folder: Path) -> Path:
    """Make a data set of one byte an image, for its files' sums alone."""
    folder.mkdir(parents=True)
    files = {}
    for name in ("images", "labels"):
        (folder / f"{name}.bin").write_bytes(name.encode())
        digest = sha256(name.encode()).hexdigest()
        files[name] = {"file": f"{name}.bin", "bytes": len(name), "sha256": digest}
    from trainjob.data.manifest import SHIPPED

    fields = json.loads((SHIPPED / "digits" / "manifest.json").read_text())
    split = {"samples": 1, "files": files}
    fields |= {"name": "cifar10", "splits": {"train": split, "test": split}}
    (folder / "manifest.json").write_text(json.dumps(fields))
    return folder


def active_virtualenv(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    """Return the folder of programs of a virtualenv that is active in the shell that submits."""
    programs = folder / "venv/bin"
    programs.mkdir(parents=True)
    for name in names:
        (programs / name).symlink_to(gpu_python(folder))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(programs.parent))
    return programs


@pytest.mark.parametrize("name", ["torchrun-of-mine", "python-of-mine"])
def test_a_program_that_only_the_submitting_shell_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    programs = active_virtualenv(tmp_path, monkeypatch, name, "python3")
    ((code, text),) = problems_of(tmp_path, {"python": None}, command=[name, "--version"])
    assert (code, text) == (
        "command",
        f"command '{name}' is not a program that can be started on this machine. Your shell on this machine finds "
        f"{programs}/{name}, and a job has a PATH of its own: write python: {programs}/python3 in the cluster file, "
        "and that folder comes first on it",
    )
    assert problems_of(tmp_path, {"python": f"{programs}/python3"}, command=[name, "--version"]) == []
    assert problems_of(tmp_path, {"python": None, "env": {"PATH": f"{programs}:/usr/bin:/bin"}}, command=[name]) == []


def test_a_task_is_looked_at_in_the_interpreter_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = active_virtualenv(tmp_path, monkeypatch, "python3")
    standard = tmp_path / "standard"
    write(standard, "python3", text="#!/bin/sh\nexit 1\n")
    (standard / "python3").chmod(0o755)
    ((code, text),) = problems_of(tmp_path, {"python": None, "env": {"PATH": f"{standard}:/usr/bin:/bin"}})
    assert (code, f"write python: {programs}/python3 in the cluster file" in text) == ("interpreter", True)


def test_a_job_of_a_login_shell_is_looked_at_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = active_virtualenv(tmp_path, monkeypatch, "python-of-mine")
    home = tmp_path / "home"
    write(home, ".bash_profile", text="PATH=$HOME/of-profile:$PATH\n")
    monkeypatch.setenv("HOME", str(home))
    place = {"python": None, "login_environment": True}
    ((code, _),) = problems_of(tmp_path, place, command=["python-of-mine"])
    assert code == "command"
    (home / "of-profile").symlink_to(programs)
    assert problems_of(tmp_path, place, command=["python-of-mine"]) == []


def test_a_machine_whose_slurm_belongs_to_no_cluster(tmp_path: Path, login_node: Path) -> None:
    reply = (
        "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: Could not establish a configuration source"
    )
    write(login_node, "sinfo", text=f"#!/bin/sh\necho '{reply}' >&2\nexit 1\n")
    # What a job needs is not looked for here: this is no login node.
    ((code, text),) = problems_of(tmp_path, {"python": "/no/such/python"})
    assert code == "slurm-missing"
    assert text.startswith("sinfo on this machine belongs to no cluster (sinfo: fatal: Could not")
    assert "Give the login node in the cluster file (ssh: {host: LOGIN}), or run trainjob there" in text
