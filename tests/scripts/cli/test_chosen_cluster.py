"""The cluster of a command that names none: one order of precedence, which `plan` prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.local_runs import Here
from trainjob.contract.errors import UserError
from trainjob.kinds import choice, lookup
from trainjob.records.own import PassedOverWarning

SLURM = "kind: slurm\nnodes: {count: 2, cpus: 8}\nruns_dir: /shared/runs\n"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder in a home of its own, with cluster files of these names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    folder = tmp_path / "top/sub"
    (folder / "clusters").mkdir(parents=True)
    (tmp_path / "top/.git").mkdir()
    for name in ("of-user", "of-project", "of-job", "of-shell"):
        (folder / "clusters" / f"{name}.yaml").write_text(SLURM)
    monkeypatch.chdir(folder)
    return folder


def test_each_place_overrides_those_below_it(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice.choose(None) == ("local", "default")
    written = choice.use("of-user")
    assert choice.choose(None) == ("of-user", f"{written} (trainjob cluster use)")
    (user.parent / "pyproject.toml").write_text('[tool.trainjob]\ncluster = "of-project"\n')
    assert choice.choose(None) == ("of-project", "../pyproject.toml")
    (user / "trainjob.yaml").write_text("cluster: of-project\n")
    assert choice.choose(None) == ("of-project", "trainjob.yaml")
    job = user / "job.yaml"
    job.write_text("cluster: of-job\ninstances: 2\n")
    assert choice.choose(None, job) == ("of-job", "job file job.yaml")
    monkeypatch.setenv(choice.VARIABLE, "of-shell")
    assert choice.choose(None, job) == ("of-shell", "TRAINJOB_CLUSTER")
    assert choice.choose("pod4", job) == ("pod4", "flag --cluster")


def test_a_folder_above_the_repository_has_no_say(user: Path) -> None:
    (user.parents[1] / "trainjob.yaml").write_text("cluster: of-project\n")
    assert choice.choose(None).value == "local"


def test_use_keeps_what_else_the_file_says_and_its_mode(user: Path) -> None:
    file = choice.use("of-user")
    secret = "# mine\nnotify: {webhook: https://example.com/x}  # a secret\ncluster: of-user\n"
    file.write_text(secret)
    file.chmod(0o600)
    assert choice.use("./clusters/of-job.yaml") == file
    assert file.read_text() == secret.replace("of-user", str(user / "clusters/of-job.yaml"))
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "before",
    [
        "{\ncluster: of-job, budget: {gpu_hours: 1}\n}\n",
        "cluster: of-job\rbudget: {gpu_hours: 1}\n",
        "cluster: of-job\u2028budget: {gpu_hours: 1}\n",
        "cluster:\n  of-job\nbudget: {gpu_hours: 1}\n",
    ],
)
def test_use_never_takes_away_what_else_the_file_says(user: Path, before: str) -> None:
    file = choice.use("of-user")
    file.write_text(before)
    with pytest.raises(UserError, match="can't be written into"):
        choice.use("of-user")
    assert file.read_text() == before.replace("\r", "\n")


def test_a_config_that_is_kept_elsewhere_stays_a_link(user: Path) -> None:
    file = choice.use("of-user")
    file.rename(user / "kept.yaml")
    file.symlink_to(user / "kept.yaml")
    choice.use("of-job")
    assert (file.is_symlink(), (user / "kept.yaml").read_text()) == (True, "cluster: of-job\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file away")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainjob.yaml", "cluster: theirs\n"),
        ("pyproject.toml", '[tool.trainjob]\ncluster = "theirs"\n'),
        ("clusters", None),
    ],
)
def test_what_another_user_puts_into_a_folder_for_everybody_has_no_say(
    user: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None
) -> None:
    shared = user.parents[1] / "shared"
    (shared / "mine").mkdir(parents=True)
    path = shared / name
    if text is None:
        path.mkdir()
        (path / "theirs.yaml").write_text("kind: local\nprologue: [touch canary]\n")
    else:
        path.write_text(text)
    os.chown(path, 65534, 65534)
    monkeypatch.chdir(shared if text is None else shared / "mine")
    known = [(choice.choose(None).value, "theirs" in [one.name for one in lookup.candidates()])]
    shared.chmod(0o1777)
    with pytest.warns(PassedOverWarning, match=f"{path} is passed over: user 65534"):
        known.append((choice.choose(None).value, "theirs" in [one.name for one in lookup.candidates()]))
    # In a folder that is this user's own, what a colleague has written counts.
    assert known == [("local", True) if text is None else ("theirs", False), ("local", False)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file away")
def test_the_command_line_says_once_what_it_passes_over(tmp_path: Path) -> None:
    here = Here(tmp_path)
    stated = here.write("trainjob.yaml", "cluster: slurm-gpu\nbudget: {gpu_hours: 1}\n")
    os.chown(stated, 65534, 65534)
    here.project.chmod(0o777)
    said = here.run("plan", "--", "true", environ={"PYTHONWARNINGS": "ignore"})
    assert "chosen by default" in said.stdout
    assert said.stderr.count(f"warning: {stated} is passed over") == 1
    here.project.chmod(0o775)
    assert "passed over" not in here.run("plan", "--", "true").stderr


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("trainjob.yaml", "clutser: x\n", "trainjob.yaml:1: clutser"),
        ("trainjob.yaml", "cluster: [x]\n", "trainjob.yaml:1: cluster"),
        ("pyproject.toml", "[tool.trainjob]\ncluster = 3\n", "tool.trainjob.cluster: read 3, expected text"),
        ("pyproject.toml", "[tool.trainjob]\ncluster = \n", "can't be read"),
    ],
)
def test_a_place_that_says_it_wrongly_is_named(user: Path, name: str, text: str, why: str) -> None:
    (user / name).write_text(text)
    with pytest.raises(UserError, match=why.replace("[", r"\[")):
        choice.choose(None)


def test_plan_says_who_has_chosen_and_submit_follows(here: Here) -> None:
    here.write("clusters/small.yaml", SLURM)
    environ = {"XDG_CONFIG_HOME": str(here.project / "config")}
    assert "wrote" in here.run("cluster", "use", "small", environ=environ).stdout
    output = here.run("plan", "--instances", "2", environ=environ).stdout
    assert f"cluster small, from cluster file {os.path.join('clusters', 'small.yaml')}: chosen by " in output
    output = here.run("plan", "--instances", "2", environ={**environ, choice.VARIABLE: "pod4"}).stdout
    assert "cluster pod4, from catalog pod4: chosen by TRAINJOB_CLUSTER\n" in output
    assert here.run("cluster", "use", "nowhere", environ=environ, code=1).stderr.startswith("trainjob: no cluster is")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["ps"], "There is no command 'ps'. Here it is: trainjob list"),
        (["run", "--", "true"], "Here it is: trainjob submit"),
        (["submit", "--nodes", "2"], "There is no option --nodes. Here it is: --hosts N (machines)"),
        (["plan", "--gpus=2"], "There is no option --gpus. Here it is: --instances N"),
        (["submit", "--partition", "x"], "Here it is: --directive partition=VALUE"),
    ],
)
def test_words_of_other_tools_are_told_ours(here: Here, words: list[str], hint: str) -> None:
    assert hint in " ".join(here.run(*words, code=2).stderr.split())


def test_words_behind_the_commands_own_are_left_alone(here: Here) -> None:
    assert "echo --nodes" in here.run("render", "--", "echo", "--nodes").stdout


def test_short_options_and_a_run_that_is_left_out(here: Here) -> None:
    assert here.run("-V").stdout.startswith("trainjob ")
    run = here.run("submit", "--", "true").stdout.split()[2].rstrip(":")
    here.run("wait", run)
    assert here.run("status").stdout.startswith(f"{run} · COMPLETED")
    assert run in here.run("cancel", code=2).stderr
    here.run("-q", "logs")
