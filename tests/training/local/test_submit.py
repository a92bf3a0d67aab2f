"""A user's own script, submitted to this machine: what its ranks are told, and what the record says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.local_runs import LIMIT_S, PYTHON, TELL, Here
from trainjob.contract.environment import TRY_ON_CPUS

SCRIPT = ("python", "my_script.py", "--lr", "0.1")
RANKING = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
ALL_REDUCE = """\
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(mine)
print("sum", mine.item(), "of", os.environ["WORLD_SIZE"])
dist.destroy_process_group()
"""


@pytest.fixture(params=[".", "training"])
def start(request: pytest.FixtureRequest, here: Here) -> str:
    here.write(f"{request.param}/my_script.py", TELL)
    here.git("commit", "--quiet", "-m", "first")
    return str(request.param)


def test_a_script_is_run_from_the_folder_of_the_project_where_it_was_submitted(here: Here, start: str) -> None:
    run = here.follow(*SCRIPT, folder=start)
    assert [run.report(rank)["folder"] for rank in (0, 1)] == [str((run.folder / "code/project" / start).resolve())] * 2
    assert run.report(1)["arguments"] == ["--lr", "0.1"]


def test_a_run_is_recorded_alike_from_the_top_of_a_project_and_from_below(here: Here, start: str) -> None:
    run = here.follow(*SCRIPT, folder=start)
    record = json.loads((run.folder / "submission.json").read_text())
    assert (record["project"]["start"], record["project"]["diff"]) == (start, "")
    assert len(record["project"]["commit"]) == 40
    assert (run.word("state"), run.word("exit_code"), run.word("attempt")) == ("COMPLETED", "0", "1")


def test_ranks_find_the_variables_that_torchrun_sets(here: Here) -> None:
    here.write("my_script.py", TELL)
    run = here.follow(*SCRIPT)
    reported = [run.report(rank)["environ"] for rank in (0, 1)]
    assert [[one[name] for name in RANKING] for one in reported] == [["0", "0", "2", "2"], ["1", "1", "2", "2"]]
    assert reported[0]["MASTER_ADDR"] == reported[1]["MASTER_ADDR"] == "127.0.0.1"
    assert reported[0]["MASTER_PORT"] == reported[1]["MASTER_PORT"]
    assert 1024 <= int(reported[0]["MASTER_PORT"]) < 32768


def test_a_script_written_for_torchrun_reduces_over_gloo(here: Here) -> None:
    pytest.importorskip("torch")
    here.write("my_script.py", ALL_REDUCE)
    run = here.follow("python", "my_script.py")
    assert "sum 3.0 of 2" in run.log(0)
    assert "sum 3.0 of 2" in run.log(1)


def test_a_scripts_own_exit_code_stands_in_the_status(here: Here) -> None:
    run = here.follow("python", "-c", "raise SystemExit(7)", code=1)
    assert (run.status()["state"], run.status()["exit_code"]) == ("FAILED", 7)


def test_ranks_find_the_interpreters_folder_first_on_their_path(here: Here) -> None:
    here.write("my_script.py", TELL)
    reported = here.follow(*SCRIPT).report(0)
    assert reported["environ"]["PATH"].split(":")[0] == str(Path(PYTHON).parent)


@pytest.mark.parametrize(("flags", "policy"), [((), "PASSIVE"), (("--env", "OMP_WAIT_POLICY=ACTIVE"), "ACTIVE")])
def test_threads_sleep_while_they_wait_unless_the_user_wants_them_to_spin(
    here: Here, flags: tuple[str, ...], policy: str
) -> None:
    reported = here.follow("python", "-c", "import os; print(os.environ['OMP_WAIT_POLICY'])", flags=flags)
    assert reported.log(0).splitlines()[-1] == policy


@pytest.mark.parametrize("flags", [(), ("--env", "OMP_NUM_THREADS=3")])
def test_ranks_share_the_cores_unless_the_user_says_otherwise(here: Here, flags: tuple[str, ...]) -> None:
    here.write("my_script.py", TELL)
    reported = here.follow(*SCRIPT, flags=flags).report(0)
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert reported["environ"]["OMP_NUM_THREADS"] == ("3" if flags else share)


def test_the_same_job_twice_within_seconds_asks_for_again(here: Here) -> None:
    here.write("my_script.py", TELL)
    asked = ("submit", "--cluster", "local", "--", *SCRIPT)
    first = here.run(*asked).stdout.split()[2].rstrip(":")
    refused = here.run(*asked, code=1).stderr
    assert f"as {first}" in refused
    assert "--again" in refused
    assert here.run("submit", "--cluster", "local", "--again", "--", *SCRIPT).stdout.split()[2].rstrip(":") != first


def test_the_same_command_with_another_script_is_another_job(here: Here) -> None:
    script = here.project / "my_script.py"
    script.write_text(TELL)
    here.run("submit", "--cluster", "local", "--", *SCRIPT)
    script.write_text(TELL + "print('changed')\n")
    assert "submitted run" in here.run("submit", "--cluster", "local", "--", *SCRIPT).stdout


def test_a_dry_run_prints_the_very_bytes(here: Here) -> None:
    here.write("my_script.py", TELL)
    job = ("--cluster", "local", "--instances", "2")
    printed = here.run("submit", *job, "--dry-run", "--", *SCRIPT).stdout.encode()
    here.run("render", *job, "-o", "rendered", "--", *SCRIPT)
    run = here.submit(*SCRIPT)
    rendered = here.project / "rendered"
    assert printed == (rendered / "job.sh").read_bytes() == (run.folder / "job.sh").read_bytes()
    assert (rendered / "job.json").read_bytes() == (run.folder / "job.json").read_bytes()


def test_a_rendered_folder_runs_by_hand(here: Here) -> None:
    here.write("my_script.py", TELL)
    here.run("render", "--cluster", "local", "--instances", "2", "-o", "job", "--", *SCRIPT)
    subprocess.run(["bash", "job/job.sh"], cwd=here.project, env=here.environ, check=True, timeout=LIMIT_S)
    run = here.at(str(here.project / "job"))
    assert run.report(1)["environ"]["WORLD_SIZE"] == "2"
    assert here.json("status", "./job")["state"] == "COMPLETED"


def test_a_redirect_that_is_left_set_refuses_a_submit_by_name(here: Here) -> None:
    refused = here.run("submit", "--", "true", code=1, environ={"TRAINJOB_DEVICE": "cpu"}).stderr
    assert "TRAINJOB_DEVICE=cpu" in refused
    assert f"unset TRAINJOB_DEVICE. {TRY_ON_CPUS}" in refused
    assert TRY_ON_CPUS in here.run("submit", "--env", "TRAINJOB_DEVICE=cpu", "--", "true", code=1).stderr


def test_a_command_that_does_not_exist_is_refused_before_there_is_a_run(here: Here) -> None:
    refused = here.run("submit", "--", "no-such-program", code=1).stderr
    assert "'no-such-program' is not a program that can be started on this machine" in refused
    assert here.json("list") == []


def test_a_script_that_git_does_not_track_is_refused_with_the_cure(here: Here) -> None:
    here.write("README", "a project\n")
    (here.project / "my_script.py").write_text(TELL)
    refused = here.run("submit", "--", *SCRIPT, code=1).stderr
    assert "my_script.py is not copied into the run: git does not track it. Run: git add my_script.py" in refused
    assert here.follow(*SCRIPT, flags=("--untracked",)).word("state") == "COMPLETED"


def test_a_file_that_counts_as_data_is_refused_where_the_command_names_it(here: Here) -> None:
    here.write("my_script.py", TELL)
    here.write("big.bin", "x" * 11_000_000)
    refused = here.run("submit", "--", "python", "my_script.py", "big.bin", code=1).stderr
    assert "big.bin is not copied into the run: larger than 10 MB" in refused


def test_a_task_that_does_not_fit_its_device_is_refused_before_there_is_a_run(here: Here) -> None:
    here.cluster("small", "max_instances: 8\ndevice_memory_gb: 2\n")
    words = ("--cluster", "small", "--task", "ffnet-toy", "--set", "width=10000", "--set", "layers=5")
    refused = here.run("submit", *words, code=1).stderr
    assert "an instance holds at least 4.8 GB" in refused
    assert "a device has 2 GB. What fits: --engine fsdp --instances 8" in refused
    assert here.json("list") == []
    rows = here.json("plan", "--memory", *words, "--engine", "fsdp", "--instances", "8")["memory"]
    assert rows["memory per device"].endswith(" GB of 2 GB")


def test_a_fixed_port_that_is_in_use_is_refused_before_there_is_a_run(here: Here) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        here.cluster("fixed", f"network: {{port: {port}}}\n")
        refused = here.run("submit", "--cluster", "fixed", "--", "true", code=1).stderr
    assert f"network.port is {port}, and another program on 127.0.0.1 uses it" in refused
    assert "remove network.port from the cluster file" in refused


def test_a_fixed_port_reaches_the_ranks(here: Here) -> None:
    here.cluster("fixed", "network: {port: 29401}\n")
    here.write("my_script.py", TELL)
    folder = here.json("submit", "--follow", "--cluster", "fixed", "--", *SCRIPT)["folder"]
    assert here.at(folder).report(0)["environ"]["MASTER_PORT"] == "29401"


def test_a_run_directory_that_cannot_be_written_is_refused(here: Here) -> None:
    (here.folder / "occupied").write_text("")
    here.cluster("blocked", f"runs_dir: {here.folder}/occupied/runs\n")
    refused = here.run("submit", "--cluster", "blocked", "--", "true", code=1).stderr
    assert "/occupied is not a folder. Set runs_dir to a folder" in refused


def test_an_index_that_cannot_be_written_refuses_the_run(here: Here) -> None:
    (here.folder / "data").write_text("a file where the data folder belongs")
    here.cluster("elsewhere", f"runs_dir: {here.folder}/runs\n")
    refused = here.run("submit", "--cluster", "elsewhere", "--", "true", code=1).stderr
    assert "was not started: set XDG_DATA_HOME" in refused
