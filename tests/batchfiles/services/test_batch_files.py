"""Batch files as users write them, rehearsed unmodified: the real sbatch, srun and torchrun of a private Slurm."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchfiles.rehearsal import rehearsal
from tests.support.programs import ran
from trainjob.contract.errors import UserError

MEETS = """
import os, time, torch.distributed as dist
dist.init_process_group("gloo")
time.sleep(100)
"""
REPORTED = "import os, time; open('written', 'w'); time.sleep(100)\n"
EACH_A_RANK = "bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python train.py'"
HEAD = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=a100 --account=abc --qos=high --constraint=fast
#SBATCH --gres=gpu:a100:2
#SBATCH --output=log-%j.txt
"""

Rehearse = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def rehearse(needs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearse:
    needs("slurm")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def run(script: str, program: str, *flags: str, directive: str = "") -> tuple[int, dict[str, Any]]:
        text = script if script.startswith("#!") else f"{HEAD}{directive}\nset -euo pipefail\n{script}"
        (project / "train.sbatch").write_text(text)
        (project / "train.py").write_text(program)
        before = sorted(path.name for path in project.iterdir())
        words = [sys.executable, "-m", "trainjob.cli.main", "rehearse", "train.sbatch"]
        words += ["--no-gpus", "--json", "--stop-after", "1", *flags]
        environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}
        ended = ran(words, folder=project, environ=environ, timeout_s=300)
        assert ended.stdout, ended.stderr
        assert sorted(path.name for path in project.iterdir()) == before, "the job's files stay in the rehearsal"
        return ended.returncode, json.loads(ended.stdout)

    return run


def test_srun_and_torchrun_form_one_world_and_what_is_missing_is_stood_in_for(
    rehearse: Rehearse, tmp_path: Path
) -> None:
    script = """
module load cuda/12.4
source venv/bin/activate
export PYTHONPATH=$PWD/src   # would blind the rehearsal
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
mkdir -p /elsewhere/of/mine
cd /nowhere/of/mine
echo "$PWD $(ls)" > /nowhere/of/mine/seen
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=$head:29500 \\
  train.py "a b" ''
"""
    code, verdict = rehearse(script, MEETS, "--map", f"/nowhere/of/mine={tmp_path / 'project'}")
    assert (code, verdict["problems"]) == (0, [])
    ranks = verdict["jobs"][0]["ranks"]
    assert [(one["rank"], one["world_size"], one["node"]) for one in ranks] == [
        (rank, 4, ranks[rank - rank % 2]["node"]) for rank in range(4)
    ]
    assert {one["node"] for one in ranks} == {"node1", "node2"}
    assert len({one["world"] for one in ranks}) == 1
    assert ranks[0]["command"][-2:] == ["a b", ""]
    assert [call[0] for call in verdict["stood_in_for"]] == ["module", "source"]
    assert not Path("/nowhere").exists()
    assert not Path("/elsewhere").exists()


def test_a_file_changes_nothing_outside_and_learns_nothing_of_the_environment(
    rehearse: Rehearse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/authorized_keys").write_text("mine\n")
    opened = tmp_path / "home/opened"
    opened.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WANDB_API_KEY", "leaked-value")
    monkeypatch.setenv("ANYTHING", "leaked-value")
    script = f"""
set +e
echo theirs >> ~/.ssh/authorized_keys && cat ~/.ssh/authorized_keys > copy
rm -rf ~/.ssh
for place in /etc /usr /var /root; do touch $place/trainjob-was-here 2>> refused; done
mount -o remount,bind,rw /etc && touch /etc/trainjob-was-here
touch {opened}/here
{{ env; cat /proc/[0-9]*/environ; }} | tr '\\0' '\\n' > environment
grep -a leaked-value environment > learned
setting=$(cat /proc/sys/vm/swappiness)
echo "$setting" > /proc/sys/vm/swappiness && echo "the kernel's settings can be changed" >> learned
srun {EACH_A_RANK}
"""
    _, verdict = rehearse(script, REPORTED, "--keep", "--writable", str(opened))
    kept = Path(verdict["folder"])
    assert (kept / "copy").read_text() == "mine\ntheirs\n"
    assert (kept / "learned").read_text() == ""
    assert "PATH=" in (kept / "environment").read_text(errors="replace")
    assert kept.stat().st_mode & 0o777 == 0o700
    assert (home / ".ssh/authorized_keys").read_text() == "mine\n"
    assert [path for path in ("/etc", "/usr", "/var", "/root") if Path(path, "trainjob-was-here").exists()] == []
    assert (opened / "here").exists()
    assert any("--writable" in fact for fact in verdict["facts"]) or "Read-only" in (kept / "refused").read_text()


def test_a_file_that_is_changed_after_its_user_agreed_does_not_run(
    needs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("slurm")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    mark = Path(tempfile.mkdtemp()) / "ran"
    agreed = f"{HEAD}srun true\n".encode()
    Path("train.sbatch").write_text(f"{HEAD}touch {mark}\nsrun true\n")
    with pytest.raises(UserError, match=r"train\.sbatch was changed while it was rehearsed"):
        rehearsal.rehearse(rehearsal.BatchOptions(Path("train.sbatch"), raw=agreed, has_gpus=False))
    assert not mark.exists()
    mark.parent.rmdir()


def test_what_only_the_cluster_has_ends_no_script_of_sh(rehearse: Rehearse) -> None:
    script = (
        HEAD.replace("bash", "sh")
        + """
set -eu
. /nowhere/profile/modules.sh
. /etc/profile.d/nowhere.sh
cd /nowhere/of/mine
export GLOO_SOCKET_IFNAME=ib7
host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1 | tr -dc 0-9)
srun torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=10.1.1.$host:29500 train.py
"""
    )
    code, verdict = rehearse(script, MEETS)
    assert (code, verdict["problems"]) == (0, [])
    assert [one["world_size"] for one in verdict["jobs"][0]["ranks"]] == [2, 2]
    assert (
        "this machine answers at 10.1.1.1, too: whose address that is on the cluster was not shown" in verdict["facts"]
    )
    assert "network interface ib7 does not exist here; lo was used instead" in verdict["facts"]
    assert verdict["facts"][-3:] == [
        "/nowhere/profile/modules.sh does not exist here; an empty file was used instead",
        "/etc/profile.d/nowhere.sh does not exist here; an empty file was used instead",
        "/nowhere/of/mine does not exist here; the folder of the submission was used instead",
    ]
    assert not Path("/nowhere").exists()
    assert not Path("/etc/profile.d/nowhere.sh").exists()


def test_ranks_that_can_form_no_world_fail_it_and_confirm_doctor(rehearse: Rehearse) -> None:
    script = """
export MASTER_ADDR=localhost MASTER_PORT=29500
srun env RANK=$SLURM_PROCID WORLD_SIZE=2 python train.py
"""
    code, verdict = rehearse(script, REPORTED)
    assert code == 1
    assert "the rank numbers do not form a world: 2 processes as rank 0" in verdict["problems"]
    shown = {found["code"]: found["rehearsal"] for found in verdict["findings"]}
    assert (shown["rank-expanded-early"], shown["addr-localhost"]) == ("confirmed", "confirmed")


def test_containers_run_on_this_machine_and_the_first_missing_file_is_named(rehearse: Rehearse) -> None:
    script = """
srun --nodes=1 --ntasks=1 --container-image=nvcr.io#nvidia/pytorch --no-container-mount-home \\
  apptainer exec --nv -B /scratch:/scratch image.sif env RANK=0 WORLD_SIZE=1 python train.py
"""
    code, verdict = rehearse(script, "open('data/train.bin')\n")
    assert any("because data/train.bin is missing on this machine" in fact for fact in verdict["facts"])
    assert verdict["stood_in_for"] == [["apptainer", "exec", "--nv", "-B", "/scratch:/scratch", "image.sif", *START]]
    assert (code, verdict["problems"]) == (0, [])


START = ("env", "RANK=0", "WORLD_SIZE=1", "python", "train.py")


def test_a_log_folder_that_is_missing_ends_the_job_and_is_named(rehearse: Rehearse) -> None:
    code, verdict = rehearse("python train.py\n", REPORTED, directive="#SBATCH --output=logs/%j.txt")
    assert code == 1
    assert "the folder must exist before sbatch" in verdict["problems"][0]


@pytest.mark.full
def test_a_rank_that_dies_leaves_the_others_waiting_unless_srun_ends_them(rehearse: Rehearse) -> None:
    code, verdict = rehearse(f"srun {EACH_A_RANK}", REPORTED, "--inject", "rank-death")
    assert code == 1
    assert "did not end" in verdict["problems"][0]
    code, verdict = rehearse(f"srun --kill-on-bad-exit=1 {EACH_A_RANK}", REPORTED, "--inject", "rank-death")
    assert code == 0


@pytest.mark.full
def test_a_dead_node_tells_srun_nothing_and_slurm_starts_the_job_again(rehearse: Rehearse) -> None:
    script = f"srun --kill-on-bad-exit=1 {EACH_A_RANK}"
    code, verdict = rehearse(script, REPORTED, "--inject", "node-failure", directive="#SBATCH --requeue")
    assert (code, verdict["problems"], verdict["jobs"][0]["restarts"]) == (0, [], 1)


@pytest.mark.full
def test_at_its_time_limit_a_job_that_requeues_itself_starts_again(rehearse: Rehearse) -> None:
    script = f"trap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun {EACH_A_RANK} &\nwait\nwait\n"
    code, verdict = rehearse(script, REPORTED, "--inject", "timeout", directive="#SBATCH --signal=B:USR1@20 --requeue")
    assert verdict["jobs"][0]["restarts"] == 1
    assert code == 0, verdict["problems"]
