"""`import trainjob`: what it plans and renders is what the command line plans and renders."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import trainjob
from trainjob.cli.main import main
from trainjob.requests.submission import refuse_no_job


def command_line(*words: str) -> str:
    buffer = io.BytesIO()
    shown = io.TextIOWrapper(buffer)
    with redirect_stdout(shown), pytest.raises(SystemExit) as ended:
        main(words)
    shown.flush()
    assert ended.value.code == 0
    return buffer.getvalue().decode()


def test_a_plan_is_the_command_lines() -> None:
    job = trainjob.plan(cluster="pod64", instances=8)
    topology = json.loads(command_line("plan", "--cluster", "pod64", "--instances", "8", "--json"))["topology"]
    assert (job.plan.topology.instances, job.plan.topology.replicas) == (8, 64)
    assert topology["replicas"] == 64
    assert [warning.code for warning in job.warnings] == ["large-global-batch", "dropped-samples"]


def test_a_render_is_the_command_lines_byte_for_byte() -> None:
    rendered = trainjob.plan(cluster="slurm-gpu", instances=4, env={"NAME": "a b"}).render()
    flags = ("--cluster", "slurm-gpu", "--instances", "4", "--env", "NAME=a b", "--json")
    shown = json.loads(command_line("render", *flags))
    assert shown["job.sbatch"] == rendered.files[rendered.script].content.decode()


def test_a_folder_for_a_render_by_hand_holds_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", "--cluster", "slurm-gpu", "--env", "HF_TOKEN=5ecret", "-o", str(tmp_path / "job")]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--", "true"])
    refused = capsys.readouterr().err
    assert ended.value.code == 1
    assert "--env HF_TOKEN: the name looks like a secret's" in refused
    assert "5ecret" not in refused
    assert not (tmp_path / "job").exists()
    command_line(*words, "--allow-secret-env", "--", "true")
    assert "5ecret" in (tmp_path / "job" / "job.sbatch").read_text()


def test_a_server_of_a_job_with_roles_holds_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = {"command": ["serve"], "ready": "{host}:{port}", "env": {"HF_TOKEN": "5ecret"}}
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({"roles": {"server": server, "train": {"command": ["true"], "needs": ["server"]}}}))
    words = ["render", "--cluster", "slurm-gpu", "--job", str(file), "-o", str(tmp_path / "job")]
    with pytest.raises(SystemExit) as ended:
        main(words)
    refused = capsys.readouterr().err
    assert ended.value.code == 1
    assert "roles.server.env.HF_TOKEN: the name looks like a secret's" in refused
    assert "5ecret" not in refused
    command_line(*words, "--allow-secret-env")


_WRITTEN = "9fK2mQx7Lp4Rt8Wz3Vb6"


@pytest.mark.parametrize(
    "job",
    [
        {"env": {"SOURCE": f"https://user:{_WRITTEN}@data.example.org/set"}},
        {"env": {"SOURCE": f"https://store.example.org/set?sv=1&sig={_WRITTEN}"}},
        {"env": {"MODEL": f"hf_{_WRITTEN}"}},
        {"command": ["python", "train.py", "--api-key", _WRITTEN]},
        {"command": ["python", "train.py", f"--data=postgres://u:{_WRITTEN}@db/x"]},
        {"command": ["bash", "-c", f"export WANDB_API_KEY={_WRITTEN}; python train.py"]},
        {"command": ["python", "train.py", "--tell", f"https://hooks.slack.com/services/T0/B0/{_WRITTEN}"]},
        {"once": {"job": [{"shell": f"curl -u me:{_WRITTEN} https://h/x"}]}},
    ],
)
def test_a_secret_is_known_by_its_value_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], job: dict[str, object]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({"command": ["python", "train.py", "--pad-token", "<pad>", "--max-tokens=4096"], **job}))
    words = ["render", "--cluster", "slurm-gpu", "--job", str(file), "-o", str(tmp_path / "job")]
    with pytest.raises(SystemExit) as ended:
        main(words)
    refused = capsys.readouterr().err
    assert (ended.value.code, "a password or key is written there" in refused) == (1, True), refused
    assert _WRITTEN not in refused
    assert not (tmp_path / "job").exists()
    command_line(*words, "--allow-secret-env")


@pytest.mark.parametrize("line", ["env: {HF_TOKEN: x}", f"env: {{SOURCE: 'https://u:{_WRITTEN}@h/x'}}"])
@pytest.mark.parametrize(
    ("words", "can_allow"),
    [
        (["render", "-o", "job"], True),
        (["submit"], True),
        (["reserve", "--time-limit", "1:00:00"], False),
        (["verify", "--resume"], False),
    ],
)
def test_the_cure_for_a_secret_is_one_that_the_command_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    can_allow: bool,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = "kind: slurm\nnodes: {count: 2, accelerator: cpu, cpus: 2, memory_gb: 2}\ntime_limit: '1:00:00'\n"
    Path("c.yaml").write_text(f"{keys}runs_dir: {tmp_path}/runs\npython: /usr/bin/python3\n{line}\n")
    own = ["c.yaml"] if words[0] == "reserve" else ["--cluster", "c.yaml", "--", "true"]
    with pytest.raises(SystemExit):
        main([*words, *own])
    refused = capsys.readouterr().err
    assert "secrets_file in the cluster file" in refused
    assert ("--allow-secret-env" in refused) == can_allow


def test_a_command_of_ones_own_and_a_job_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("instances: 3\nmicro_batch: 2\n")
    assert trainjob.plan(job_file=file, instances=2).plan.batch.micro_batch == 2
    assert trainjob.plan(job_file=file, instances=2).plan.topology.instances == 2
    assert trainjob.plan(command=["python", "train.py"]).plan.engine == "command"


def test_a_mistake_is_told_with_its_cure() -> None:
    with pytest.raises(trainjob.UserError, match="is instances meant"):
        trainjob.plan(instnces=2)
    with pytest.raises(trainjob.UserError) as refused:
        trainjob.plan(cluster="pod64", instances=7)
    assert refused.value.cure


def test_no_package_has_the_name_of_a_public_function() -> None:
    folder = Path(trainjob.__file__).parent
    assert not [name for name in trainjob.__all__ if (folder / name).exists() or (folder / f"{name}.py").exists()]  # type: ignore[attr-defined] # the stub has what is public
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trainjob.nothing  # type: ignore[attr-defined] # that is asked


def test_no_runs_and_an_unknown_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert trainjob.runs() == []
    with pytest.raises(trainjob.UserError, match="no run is called"):
        trainjob.run("zzzz")


def test_every_public_name_is_in_the_stub() -> None:
    stub = Path(trainjob.__file__).with_suffix(".pyi").read_text()
    assert all(f"import {name} as {name}" in stub for name in trainjob.__all__)  # type: ignore[attr-defined] # the stub has what is public


def test_a_shared_cluster_is_given_no_default_job() -> None:
    with pytest.raises(trainjob.UserError, match="give --task digits-cnn") as refused:
        refuse_no_job(trainjob.plan(cluster="slurm-gpu", instances=2).prepared)
    assert refused.value.problem.code == "no-job"
    refuse_no_job(trainjob.plan(cluster="slurm-gpu", instances=2, task="digits-cnn").prepared)
    refuse_no_job(trainjob.plan(cluster="local").prepared)


def test_a_module_beside_the_user_is_found_below_the_top_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub/package").mkdir(parents=True)
    for name in ("top.py", "sub/top.py", "sub/mine.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "sub")

    def planned(task: str, optimizer: str | None = None) -> tuple[str | None, str | None]:
        job = trainjob.plan(task=task, project=tmp_path, optimizer=optimizer).prepared.request.job
        return job.task, job.optimizer

    assert planned("mine:Task", "mine:Opt") == ("sub/mine:Task", "sub/mine:Opt")
    assert planned("package.inner:Task") == ("sub/package.inner:Task", None)
    assert planned("top:Task", "torch.optim:RMSprop") == ("top:Task", "torch.optim:RMSprop")
    assert planned("nowhere:Task") == ("nowhere:Task", None)
