"""Batch files, adopted and proved: the file and the job on one private Slurm, and what their ranks see."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ran

HEAD = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=2 --time=10
set -e
module load compiler
export WANDB_MODE=offline OMP_NUM_THREADS=2
export RUN=run-$SLURM_JOB_ID
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1) MASTER_PORT=29500
"""
PLACE = "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS"
RIGHT = f"srun bash -c '{PLACE} python train.py \"two words\"'\n"
# The batch shell is rank 0 of everything.
EARLY = f'srun bash -c "{PLACE} python train.py"\n'


@pytest.fixture(autouse=True)
def _slurm(needs: Callable[[str], None]) -> None:
    needs("slurm")


def proof(folder: Path, text: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    (folder / "train.sbatch").write_text(text)
    (folder / "train.py").write_text("print('trained')\n")
    program = "from trainjob.cli.main import main; import sys; main(sys.argv[1:])"
    words = [sys.executable, "-c", program, "adopt", "train.sbatch", "--prove", "--json", *arguments]
    ended = ran(words, folder=folder)
    assert ended.stdout, ended.stderr
    answer = json.loads(ended.stdout)
    assert "proof" in answer, answer  # else it could not be made, and says why
    return ended.returncode, answer["proof"]


def test_a_right_file_is_proved(tmp_path: Path) -> None:
    code, found = proof(tmp_path, HEAD + RIGHT)
    assert (found["differences"], found["equal"], code) == ([], True, 0)
    assert [one["rank"] for one in found["adopted"]] == [0, 1, 2, 3]
    assert {"OMP_NUM_THREADS=2", "RUN=run-10001", "WANDB_MODE=offline"} <= {
        f"{name}={value}" for name, value in found["adopted"][3]["environment"]
    }
    assert found["adopted"][3]["command"] == "python train.py 'two words'"


def test_a_wrong_file_differs_as_stated(tmp_path: Path) -> None:
    code, found = proof(tmp_path, HEAD + EARLY)
    assert (found["equal"], code) == (False, 0)
    assert [one["rank"] for one in found["original"]] == [0, 0, 0, 0]
    assert [one["rank"] for one in found["adopted"]] == [0, 1, 2, 3]


def test_a_file_that_sbatch_refuses_is_compared_in_a_copy_that_it_takes(tmp_path: Path) -> None:
    """The copy has its arguments in the directives, where sbatch expands nothing."""
    text = "# by me\n" + HEAD.replace("--nodes=2", "--nodes=$1") + EARLY
    code, found = proof(tmp_path, text, "2")
    assert (found["equal"], code) == (False, 0)
    assert found["differences"][0].startswith("sbatch refuses train.sbatch: ")
    assert [one["rank"] for one in found["original"]] == [0, 0, 0, 0]
    assert [one["rank"] for one in found["adopted"]] == [0, 1, 2, 3]


def test_a_fault_excuses_only_what_it_explains(tmp_path: Path) -> None:
    """The file needs an argument that nobody gives when the job runs, and its signal is a fault of another kind."""
    text = HEAD.replace("--time=10", "--time=10 --signal=B:TERM@60").replace("set -e", "set -e\n[ -f never ] || exit 3")
    code, found = proof(tmp_path, text + RIGHT)
    assert code == 1
    assert found["unexplained"][0].startswith("train.sbatch started no rank")


def test_ranks_that_a_program_starts_itself_and_files_are_compared(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("")
    text = "#!/bin/bash\n#SBATCH --cpus-per-task=2 --time=10\nexport A=$'a\\tb'\necho 1 > made.json\npython train.py\n"
    (tmp_path / "train.sbatch").write_text(text)
    code, found = proof(tmp_path, text)
    assert (found["differences"], code) == ([], 0)
    assert dict(found["adopted"][0]["environment"])["A"] == "a\tb"


SAVES = """\
import os, signal, sys, time
asked = []
signal.signal(signal.SIGUSR1, lambda number, _: asked.append(number))
path, step = f"last-{os.environ['SLURM_PROCID']}.pt", 0
if os.path.exists(path):
    step = int(open(path).read())
again = step > 0
while step < 9000 and not asked:
    step += 1
    time.sleep(0.0001 if again else 0.1)
with open(path, "w") as saved:
    saved.write(str(step))
if not asked:
    open("done.txt", "w").close()
"""
ENDS = "#!/bin/bash\n#SBATCH --ntasks=2 --time=30 %s\n%ssrun python saves.py%s\n"
COMES_BACK = ENDS % (
    "--signal=B:USR1@60 --open-mode=append --requeue",
    "trap 'scancel --signal=USR1 $SLURM_JOB_ID; wait; scontrol requeue $SLURM_JOB_ID' USR1\n",
    " &\nwait",
)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("text", "states"),
    [
        pytest.param(COMES_BACK, ["COMPLETED", "COMPLETED"], marks=pytest.mark.full, id="comes back"),
        pytest.param(ENDS % ("", "", ""), ["TIMEOUT", "COMPLETED"], id="ends"),
    ],
)
def test_a_file_and_its_job_are_interrupted_and_followed_to_their_ends(
    tmp_path: Path, text: str, states: list[str]
) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    code, found = proof(tmp_path, text, "--to-the-end")
    assert [one["state"] for one in found["ends"]] == states, found
    assert (found["unexplained"], code) == ([], 0)
    assert found["equal"] == (states[0] == states[1])


def test_options_of_sbatch_and_a_script_of_the_shell(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --ntasks-per-node=2 --time=10\nsrun ./run.sh --lr 1 $1\n"
    code, found = proof(tmp_path, text, "--", "--nodes=2", "two")
    assert (found["differences"], code) == ([], 0)
    assert [one["rank"] for one in found["adopted"]] == [0, 1, 2, 3]
    assert found["adopted"][0]["command"].endswith("--lr 1 two")


def test_a_folder_of_the_cluster_is_the_one_that_is_given_for_it(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --ntasks=2 --time=10\ncd /site/code\nsrun python train.py\n"
    code, found = proof(tmp_path, text, "--map", f"/site/code={tmp_path}")
    assert (found["differences"], code) == ([], 0)
    assert [one["folder"] for one in found["original"]] == ["the project's"] * 2
