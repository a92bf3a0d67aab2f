"""A user without root's rights and without sudo rehearses a Slurm job in a user namespace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ordinary_user import ID, ordinary_user

pytestmark = pytest.mark.timeout(300)
_REHEARSE = ("rehearse", "--cluster", "slurm-gpu", "--instances", "8", "--no-gpus", "--keep")


@pytest.fixture(autouse=True)
def _ordinary_user(needs: Callable[[str], Path]) -> None:
    for service in ("slurm", "second user", "newuidmap"):
        needs(service)


def test_the_job_gets_its_gpus_and_leaves_its_users_files() -> None:
    program = 'echo "rank $RANK sees GPUs $CUDA_VISIBLE_DEVICES as user $(id -u)"'
    with ordinary_user() as user:
        printed = user.run(*_REHEARSE, "--", "sh", "-c", program)
        for rank in range(8):
            assert f"[{rank}] rank {rank} sees GPUs 0,1,2,3 as user 0" in printed, printed
        assert "PASSED: COMPLETED" in printed
        (folder,) = (user.home / ".local/share/trainjob/rehearsals").iterdir()
        # Root of the namespace is this user, and nothing that the job wrote is anybody else's.
        assert {path.lstat().st_uid for path in (folder, *folder.rglob("*"))} == {ID}


def test_a_rank_that_dies_is_named() -> None:
    with ordinary_user() as user:
        printed = user.run(*_REHEARSE, "--inject", "rank-death", "--", "sleep", "100")
    assert "PASSED: FAILED" in printed


def test_without_subordinate_ids_it_says_what_is_missing() -> None:
    with ordinary_user(has_subordinate_ids=False) as user:
        printed = user.run(*_REHEARSE, "--", "true", code=1)
    assert "/etc/subuid" in printed
    assert "Traceback" not in printed


def test_a_batch_file_writes_into_folders_that_only_the_rehearsal_has() -> None:
    with ordinary_user() as user:
        project = user.home / "project"
        head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:2\n"
        attacks = (
            f"touch {user.home}/theirs && mount -o remount,bind,rw {user.home.parent} && touch {user.home}/theirs\n"
        )
        seen = f"cd /scratch/mine && pwd > written && ls {user.home}/theirs\n"
        script = f"{head}{attacks}{seen}srun --ntasks=1 --nodes=1 false\n"
        (project / "train.sbatch").write_text(script)
        flags = ("--no-gpus", "--map", f"/scratch/mine={project}")
        # The tests write as root.
        assert "is user 0's, and would run as you" in user.run("rehearse", "train.sbatch", *flags, code=1)
        printed = user.run("rehearse", "train.sbatch", "--yes", *flags, code=1)
        assert "no training started: the job is FAILED, with exit code 1" in printed
        assert not (project / "written").exists()
        assert not (user.home / "theirs").exists()
        assert "  | " + str(user.home / "theirs") in printed
