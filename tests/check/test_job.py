"""What the check finds before a run is handed over, each with its message and cure."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import bare_python
from tests.support.submit_cases import repository, write
from trainjob.backends.project import find, select
from trainjob.check.checks import problems
from trainjob.check.context import Context, Depth
from trainjob.cluster.job import Job
from trainjob.contract.errors import Problem
from trainjob.kinds.table import cluster_of
from trainjob.machines.access import HERE
from trainjob.planning.build import plan
from trainjob.render.request import Request
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import prepare
from trainjob.requests.submission import find_problems

NODES = {"count": 1, "cpus": 4}


def found(folder: Path, place: dict[str, Any] | None = None, *, untracked: bool = False, **job: Any) -> list[Problem]:
    cluster = cluster_of({"kind": "local", **(place or {})})
    asked = Job(**job)
    project = find(folder)
    request = Request(cluster, "cluster file here.yaml", asked, {}, plan("here", cluster, asked), project.start)
    selection = select(project, untracked=untracked) if asked.command else None
    return problems(Context(request, project, selection, HERE))


def texts(folder: Path, place: dict[str, Any] | None = None, **job: Any) -> list[tuple[str, str]]:
    return [(problem.code, f"{problem.text}. {problem.cure}") for problem in found(folder, place, **job)]


def program(folder: Path, name: str, mode: int = 0o755) -> None:
    write(folder, name, text="#!/bin/sh\n")
    (folder / name).chmod(mode)


def test_a_job_that_can_run_has_no_problems(tmp_path: Path) -> None:
    program(tmp_path, "train.sh")
    assert found(tmp_path) == []
    assert found(tmp_path, command=["./train.sh", "x"]) == []
    assert found(tmp_path, command=["sh", "train.sh"]) == []


def test_the_default_folder_of_runs_is_examined_as_a_named_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    runs = tmp_path / "data/trainjob/runs"
    runs.mkdir(parents=True)
    assert texts(tmp_path) == []
    runs.chmod(0o777)
    ((code, text),) = texts(tmp_path)
    assert (code, f"anybody can replace what is in {runs}. Run: chmod +t {runs}" in text) == ("runs-dir-open", True)


def test_every_folder_above_the_runs_counts_and_where_links_lead(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    (open_folder / "mine/runs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(open_folder / "mine")
    open_folder.chmod(0o777)
    for runs in (open_folder / "mine/runs", open_folder / "mine/runs/new/deep", tmp_path / "link/runs"):
        ((code, text),) = texts(tmp_path, {"runs_dir": str(runs)})
        assert (code, f"anybody can replace what is in {open_folder}. " in text) == ("runs-dir-open", True)
    # Links that lead to safe folders, and lie where others may replace them.
    (tmp_path / "safe/runs").mkdir(parents=True)
    (open_folder / "replaceable").symlink_to("../safe")
    (tmp_path / "first").symlink_to(open_folder / "replaceable")
    (tmp_path / "second").symlink_to("first/runs")
    for name in ("first", "first/new", "second", "second/new/deep"):
        ((code, text),) = texts(tmp_path, {"runs_dir": str(tmp_path / name)})
        assert (code, f"anybody can replace what is in {tmp_path}/open" in text) == ("runs-dir-open", True)
    open_folder.chmod(0o1777)
    for name in ("link/runs", "second/new"):
        assert texts(tmp_path, {"runs_dir": str(tmp_path / name)}) == []


def test_another_users_link_in_a_folder_where_everybody_may_write_is_not_followed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's link")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "mine").mkdir()
    for target in ("mine", "mine/not-there"):
        link = shared / target.replace("/", "-")
        link.symlink_to(tmp_path / target)
        assert texts(tmp_path, {"runs_dir": str(link)}) == []
        os.chown(link, 65534, 65534, follow_symlinks=False)
        for runs in (link, link / "deep"):
            ((code, text),) = texts(tmp_path, {"runs_dir": str(runs)})
            assert (code, f"{link} is another user's link in a folder where everybody may" in text) == (
                "runs-dir-open",
                True,
            )


def test_the_program_may_lie_beside_our_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", only_tools(tmp_path / "bin"))
    name = Path(sys.executable).name
    assert found(tmp_path, {"python": name}, command=[name, "-c", "pass"]) == []


def only_tools(folder: Path) -> str:
    """Return a PATH of what every system has, and nothing else."""
    folder.mkdir()
    tools = "bash env sh cat cut df dirname basename grep head ls mkdir mktemp rm sed sha256sum tail tar tr git"
    for name in tools.split():
        (folder / name).symlink_to(shutil.which(name) or "")
    return str(folder)


def test_a_disk_to_stage_to_that_is_not_there(tmp_path: Path) -> None:
    assert found(tmp_path, stage=str(tmp_path)) == []
    text = "stage: /nowhere/disk is not a folder on this machine"
    cure = "Give a folder on a disk of every host, or leave out --stage"
    assert texts(tmp_path, stage="/nowhere/disk") == [("stage", f"{text}. {cure}")]


@pytest.mark.parametrize("python", ["/nowhere/python", "no-such-python", "/etc/passwd", "/etc"])
def test_an_interpreter_that_is_none(tmp_path: Path, python: str) -> None:
    assert texts(tmp_path, {"python": python}) == [
        (
            "interpreter",
            f"{python} is not an interpreter that can be started on this machine. "
            "Give the path of one that has torch (python: in the cluster file)",
        )
    ]


def test_a_program_that_is_not_on_path(tmp_path: Path) -> None:
    cure = "Give a program and its arguments after --, as in: -- python train.py"
    expected = f"command 'no-such-program' is not a program that can be started on this machine. {cure}"
    assert texts(tmp_path, command=["no-such-program"]) == [("command", expected)]


@pytest.mark.parametrize("word", ["./nowhere", "./plain", "./folder", "/etc/passwd", "/nowhere/x"])
def test_a_program_that_cannot_be_executed(tmp_path: Path, word: str) -> None:
    program(tmp_path, "plain", 0o644)
    write(tmp_path, "folder/x")
    ((code, text),) = texts(tmp_path, command=[word])
    assert code == "command"
    where = f"an executable file in {tmp_path}" if word[0] == "." else "a program that can be started on this machine"
    assert text.startswith(f"command '{word}' is not {where}. ")


def test_a_program_is_looked_for_where_the_command_was_given(tmp_path: Path) -> None:
    program(tmp_path, "p/src/train.sh")
    repository(tmp_path / "p")
    assert found(tmp_path / "p/src", command=["./train.sh"]) == []
    assert [problem.code for problem in found(tmp_path / "p", command=["./train.sh"])] == ["command"]


def test_a_script_that_git_does_not_track(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "src/other.py")
    write(top, "src/train.py")
    expected = "train.py is not copied into the run: git does not track it. Run: git add train.py, or give --untracked"
    assert texts(top / "src", command=["sh", "train.py"]) == [("untracked", expected)]
    assert found(top / "src", untracked=True, command=["sh", "train.py"]) == []


@pytest.mark.parametrize(("kind", "launcher"), [("slurm", "torchrun"), ("slurm", "python"), ("local", "torchrun")])
def test_a_script_that_saves_at_the_time_limit_only_where_srun_starts_its_ranks(
    tmp_path: Path, kind: str, launcher: str
) -> None:
    top = repository(tmp_path / "p")
    (top / "train.py").write_text("import lightning\n\nlightning.Trainer(max_epochs=3).fit(None)\n")
    place = {"kind": "slurm", "nodes": NODES, "runs_dir": "/shared/runs"} if kind == "slurm" else None
    codes = {one.code: one for one in found(top, place, untracked=True, command=[launcher, "train.py"])}
    assert ("lightning-under-torchrun" in codes) == ((kind, launcher) == ("slurm", "torchrun"))
    if "lightning-under-torchrun" in codes:
        assert codes["lightning-under-torchrun"].severity == "warning"
        assert "-- python train.py" in codes["lightning-under-torchrun"].cure


@pytest.mark.parametrize("leads_to", ["/proc/kmsg", "/dev/zero"])
def test_a_script_or_secrets_file_of_the_kernel_is_not_read(tmp_path: Path, leads_to: str) -> None:
    top = repository(tmp_path / "p")
    (top / "train.py").symlink_to(leads_to)
    slurm = {"kind": "slurm", "nodes": NODES, "runs_dir": str(tmp_path)}
    found(top, slurm, untracked=True, command=["torchrun", "train.py"])
    found(top, {"secrets_file": leads_to})
    assert texts(top, {"secrets_file": str(top / "train.py")}) != []


def test_a_secrets_file_that_is_a_link_to_itself_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tokens").symlink_to("tokens")
    project = find(tmp_path, secrets_file=str(tmp_path / "tokens"))
    assert project.secrets_file == "tokens"
    assert "does not exist" in texts(tmp_path, {"secrets_file": str(tmp_path / "tokens")})[0][1]


@pytest.mark.parametrize(
    ("kind", "instances", "fit", "is_found"),
    [
        ("slurm", 2, "fit(model)", True),
        ("slurm", 1, "fit(model)", False),
        ("slurm", 2, 'fit(model, ckpt_path="last")', False),
        ("local", 2, "fit(model)", False),
    ],
)
def test_ranks_that_save_each_at_its_own_update_are_told_of(
    tmp_path: Path, kind: str, instances: int, fit: str, is_found: bool
) -> None:
    top = repository(tmp_path / "p")
    (top / "train.py").write_text(f"import lightning\n\nlightning.Trainer(max_epochs=3).{fit}\n")
    place = {"kind": "slurm", "nodes": NODES, "runs_dir": "/shared/runs"} if kind == "slurm" else None
    codes = {
        one.code: one for one in found(top, place, untracked=True, command=["python", "train.py"], instances=instances)
    }
    assert ("lightning-ranks-may-hang" in codes) == is_found
    if is_found:
        assert codes["lightning-ranks-may-hang"].severity == "warning"
        assert 'ckpt_path="last"' in codes["lightning-ranks-may-hang"].cure


@pytest.mark.parametrize(
    ("name", "reason"), [("a.pem", "may hold a secret"), ("big", "larger than 10 MB, so it counts as data")]
)
def test_a_file_that_is_left_out(tmp_path: Path, name: str, reason: str) -> None:
    write(tmp_path, "a.pem", "big")
    os.truncate(tmp_path / "big", 11 * 1024 * 1024)
    expected = f"{name} is not copied into the run: {reason}. Give its absolute path, or read it from TRAINJOB_DATA_DIR"
    assert texts(tmp_path, command=["sh", name, name]) == [("left-out", expected)]


@pytest.mark.parametrize("word", ["", "-", "--x=y", "x" * 5000, "a\nb", "folder", "/etc/passwd", "nowhere"])
def test_words_that_name_no_file_of_the_project_are_the_commands_own(tmp_path: Path, word: str) -> None:
    write(tmp_path, "folder/x")
    assert found(tmp_path, command=["sh", word]) == []


def test_more_words_than_a_program_can_be_started_with(tmp_path: Path) -> None:
    reported = dict(texts(tmp_path, command=["python", "-c", "pass", *["x" * 100_000] * 30]))
    assert "3,000,309 bytes of words, and a program can be started with at most 1,900,000" in reported["arguments"]


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    expected = f"nowhere.py does not exist in {tmp_path}. Give its path relative to your current folder"
    assert texts(tmp_path, command=["sh", "nowhere.py"]) == [("script", expected)]


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    bare = bare_python(tmp_path / "bare")
    ((code, text),) = texts(tmp_path, {"python": str(bare)})
    assert code == "torch"
    assert text.startswith(f"{bare} on this machine has no torch, which a task needs. Install it there")


def test_a_torch_that_is_too_old_for_the_engine(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text(f"#!/bin/sh\n{sys.executable} \"$@\" | sed 's/^torch .*/torch 2.5.1+cpu/'\n")
    old.chmod(0o755)
    ((code, text),) = texts(tmp_path, {"python": str(old)}, engine="fsdp", instances=2)
    assert code == "torch-too-old"
    assert text.startswith(f"engine fsdp needs torch 2.6 or newer, and {old} on this machine has torch 2.5.1+cpu")
    assert texts(tmp_path, {"python": str(old)}, engine="ddp", instances=2) == []


def test_what_compiling_needs(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text(f"#!/bin/sh\nexport CXX=nowhere++\n{sys.executable} \"$@\" | sed 's/^torch .*/torch 2.0.1+cpu/'\n")
    old.chmod(0o755)
    reported = dict(texts(tmp_path, {"python": str(old)}, compile=True))
    assert reported.keys() == {"torch-too-old", "compiler"}
    assert reported["torch-too-old"].startswith(
        f"--compile needs torch 2.1 or newer, and {old} on this machine has torch 2"
    )
    assert reported["compiler"] == (
        "--compile needs a C++ compiler, and this machine has none of g++, clang++ on its PATH. Install one (Debian: "
        "apt install g++), name yours in CXX, or leave out --compile"
    )
    assert texts(tmp_path, {"python": str(old)}) == []
    assert texts(tmp_path, {"python": sys.executable}, compile=True) == []


def test_data_that_is_not_prepared(tmp_path: Path) -> None:
    assert texts(tmp_path, {"data_dir": str(tmp_path)}, task="cifar10-resnet50") == [
        (
            "data",
            f"data set cifar10 is not prepared on this machine: there is no {tmp_path}/cifar10/manifest.json. "
            "Run: trainjob data prepare cifar10 --cluster here",
        )
    ]


def test_data_that_we_cannot_prepare(tmp_path: Path) -> None:
    ((_, text),) = texts(tmp_path, {"data_dir": str(tmp_path)}, data="mine", samples=64, task="digits-cnn")
    assert text.endswith(
        f". Copy it to {tmp_path}/mine; trainjob data prepare makes digits, cifar10, synthetic, python-docs"
    )


def test_a_data_dir_that_is_not_set(tmp_path: Path) -> None:
    ((code, text),) = texts(tmp_path, task="cifar10-resnet50")
    assert code == "data"
    assert text.startswith("the task reads data set cifar10, and cluster here has no data_dir. Add data_dir")


def test_a_command_needs_no_data_of_ours(tmp_path: Path) -> None:
    assert found(tmp_path, {"data_dir": str(tmp_path / "nowhere")}, command=["true"]) == []


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (0o644, "on this machine has mode 0644: others can read it, and it must have mode 0600. Run: chmod 600 {}"),
        (None, "on this machine does not exist. Create it with one NAME=VALUE per line, or remove the key"),
    ],
)
def test_a_secrets_file_that_cannot_be_used(tmp_path: Path, mode: int | None, text: str) -> None:
    path = tmp_path / "tokens"
    if mode is not None:
        path.write_text("A=b\n")
        path.chmod(mode)
    expected = ("secrets", f"secrets_file {path} {text.format(path)}")
    assert texts(tmp_path, {"secrets_file": str(path)}) == [expected]


def test_a_secrets_file_of_the_owner_alone(tmp_path: Path) -> None:
    write(tmp_path, "tokens", text="A=b\n")
    (tmp_path / "tokens").chmod(0o600)
    assert found(tmp_path, {"secrets_file": str(tmp_path / "tokens")}) == []


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        ((code, text),) = texts(tmp_path, {"network": {"port": port}})
    assert code == "port"
    assert text.startswith(f"network.port is {port}, and another program on 127.0.0.1 uses it. End that program")
    assert found(tmp_path, {"network": {"port": port}}) == []


def test_several_problems_are_told_together(tmp_path: Path) -> None:
    place = {"python": "no-such-python", "secrets_file": "/nowhere/tokens"}
    assert [problem.code for problem in found(tmp_path, place, command=["no-such"])] == [
        "interpreter",
        "command",
        "secrets",
    ]


def test_a_malformed_secrets_file(tmp_path: Path) -> None:
    secrets = tmp_path / "tokens"
    secrets.write_text("A=1\nnot a pair\n")
    secrets.chmod(0o600)
    ((code, text),) = texts(tmp_path, {"secrets_file": str(secrets)})
    assert (code, "line 2" in text, "not a pair" in text) == ("secrets", True, False)


def test_a_pod_that_lacks_facts_is_asked_nothing(tmp_path: Path) -> None:
    (problem,) = found(tmp_path, {"kind": "ipu-pod", "ipus": 4, "host_count": 1})
    assert problem.code == "facts"
    assert "lacks hosts, vipu.server, vipu.partition, sdk.path, sdk.venv, runs_dir" in problem.text


def test_a_problem_is_json_for_machines() -> None:
    whole = {"code": "a", "severity": "error", "where": "", "text": "b", "cure": "c"}
    assert Problem("a", "b", "c").as_json() == whole


def test_horovod_without_mpirun_and_without_horovod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", only_tools(tmp_path / "bin"))
    first, second = texts(tmp_path, {"python": sys.executable}, engine="horovod")
    assert first[0] == "mpirun"
    assert "needs Open MPI's mpirun, which is not on the PATH of this machine. Install it (Debian:" in first[1]
    assert second[0] == "horovod"
    assert f"{sys.executable} on this machine has no Horovod built for torch" in second[1]


def test_another_mpirun_is_not_open_mpis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "mpirun")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert [code for code, _ in texts(tmp_path, engine="horovod")] == ["mpirun", "horovod"]


def test_a_directive_that_is_refused_is_a_problem_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "clusters/hpc.yaml", text="kind: slurm\nnodes: {count: 1, cpus: 4}\ndirectives: {arr: 0-2}\n")
    monkeypatch.chdir(tmp_path)
    options = JobOptions("hpc", None, {"command": ["./no.sh"]})
    listed = {problem.code: problem.text for problem in find_problems(prepare(options), Depth())}
    assert listed["directive"].startswith("directives.arr abbreviates array")
    assert "is not an executable file" in listed["command"]


def test_a_lock_that_is_missing_or_stale_is_a_problem(tmp_path: Path, uv: Path) -> None:
    head = '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.8"\n'
    write(tmp_path, "pyproject.toml", text=head + "dependencies = []\n")

    def cures() -> list[str]:
        listed = found(tmp_path, command=["python", "-V"], environment={"uv": "pyproject.toml"})
        return [problem.cure for problem in listed if problem.code == "environment"]

    assert cures() == [f"In {tmp_path}: uv lock"]
    subprocess.run([str(uv), "lock", "--quiet"], cwd=tmp_path, check=True)
    assert cures() == []
    write(tmp_path, "pyproject.toml", text=head + 'dependencies = ["numpy"]\n')
    assert cures() == [f"In {tmp_path}: uv lock"]


@pytest.mark.imports_torch
def test_a_disk_must_hold_the_checkpoints_that_are_kept(tmp_path: Path) -> None:
    """Checkpoints of this many are more than any disk has room for; one of the digits' model has 50 kB."""
    cluster, job = cluster_of({"kind": "local"}), Job(keep_checkpoints=10**12)
    project = find(tmp_path)
    request = Request(cluster, "cluster file here.yaml", job, {}, plan("here", cluster, job), project.start)
    context = Context(request, project, None, HERE)
    (problem,) = problems(context, Depth(thorough=True))
    assert problem.code == "disk"
    assert (
        "logs and 1000000000001 checkpoints of 1 MB (keep_checkpoints and the one being written) need" in problem.text
    )
    assert "disk" not in [one.code for one in problems(context)]
