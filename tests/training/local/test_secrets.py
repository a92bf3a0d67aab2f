"""A secret reaches every rank, and nothing that others read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.local_runs import Here, command_of, every_process

VALUE = "s3cret-of-the-test/=$(nobody)"
WAITING = """\
import os, pathlib, time
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
print("length", len(os.environ["WANDB_API_KEY"]), "ready", flush=True)
while not (run / "release").exists():
    time.sleep(0.02)
"""


def secrets_file(here: Here, mode: int) -> Path:
    path = here.folder / "secrets.env"
    path.write_text(f"# of this test\nWANDB_API_KEY={VALUE}\n")
    path.chmod(mode)
    here.cluster("guarded", f"secrets_file: {path}\n")
    here.write("my_script.py", WAITING)
    return path


def test_a_secrets_file_that_others_may_read_is_refused_with_the_cure(here: Here) -> None:
    path = secrets_file(here, 0o644)
    refused = here.run("submit", "--cluster", "guarded", "--", "python", "my_script.py", code=1).stderr
    assert f"secrets_file {path} on this machine has mode 0644" in refused
    assert f"Run: chmod 600 {path}" in refused
    assert here.json("list") == []


def test_a_secret_reaches_every_rank_and_is_nowhere_else(here: Here) -> None:
    secrets_file(here, 0o600)
    folder = here.json("submit", "--cluster", "guarded", "--instances", "2", "--", "python", "my_script.py")["folder"]
    run = here.at(folder)
    run.wait_until_ready()
    shown = [word for pid in every_process() for word in command_of(pid)]
    assert not [word for word in shown if VALUE in word]
    run.release()
    run.wait("COMPLETED")
    assert [f"length {len(VALUE)}" in run.log(rank) for rank in (0, 1)] == [True, True]
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert not [path for path in files if VALUE.encode() in path.read_bytes()]
    assert VALUE not in here.run("status", run.id, "--json").stdout


@pytest.mark.parametrize("name", ["API_TOKEN", "hf_token", "WANDB_API_KEY", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"])
def test_a_variable_that_looks_like_a_secret_is_not_written_into_a_script(here: Here, name: str) -> None:
    here.write("my_script.py", "")
    words = ["submit", "--cluster", "local", "--env", f"{name}=5ecret", "--", "python", "my_script.py"]
    refused = here.run(*words, code=1).stderr
    assert f"--env {name}: the name looks like a secret's" in refused
    assert "secrets_file in the cluster file" in refused
    assert "5ecret" not in refused
    assert here.json("list") == []


def test_a_cluster_file_holds_no_secret_either(here: Here) -> None:
    here.write("my_script.py", "")
    here.cluster("telling", "env: {DATABASE_URL: 5ecret}\n")
    refused = here.run("submit", "--cluster", "telling", "--", "python", "my_script.py", code=1).stderr
    assert "env.DATABASE_URL in the file of cluster telling: the name looks like a secret's" in refused
    assert "5ecret" not in refused


def test_a_name_that_only_resembles_a_secrets_is_no_secret(here: Here) -> None:
    here.write("my_script.py", "")
    flags = ("--env", "TOKENIZERS_PARALLELISM=false", "--env", "MAX_TOKENS=3", "--env", "SORT_KEY=a")
    plain = here.submit("python", "my_script.py", flags=flags, instances=1)
    assert "export MAX_TOKENS=3" in (plain.folder / "job.sh").read_text()
    meant = here.submit("python", "my_script.py", flags=("--env", "API_TOKEN=none", "--allow-secret-env"), instances=1)
    assert "export API_TOKEN=none" in (meant.folder / "job.sh").read_text()
