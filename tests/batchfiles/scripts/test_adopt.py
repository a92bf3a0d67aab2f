"""trainjob adopt, as it is called: what it writes, prints and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.programs import ran

FILE = """\
#!/bin/bash
#SBATCH --nodes=2 --gres=gpu:4 --ntasks-per-node=1 --cpus-per-task=8
srun torchrun train.py --config $1
cp -r out /archive
"""


def trainjob(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = "from trainjob.cli.main import main; import sys; main(sys.argv[1:])"
    return ran([sys.executable, "-c", program, *words], folder=folder)


def test_the_written_files_are_planned(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(FILE)
    ended = trainjob(tmp_path, "adopt", "train.sbatch", "-o", "new", "--", "c.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "4: cp -r out /archive: a job ends with its training" in ended.stdout
    planned = trainjob(tmp_path, *ended.stdout.rsplit("then: trainjob ", 1)[1].split())
    assert (planned.returncode, "torchrun starts 4 ranks on each of 2 nodes" in planned.stdout) == (0, True)
    again = trainjob(tmp_path, "adopt", "train.sbatch", "-o", "new", "--", "c.yaml")
    assert (again.returncode, "exists already" in again.stderr) == (1, True)


def test_nothing_is_written_without_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(FILE)
    refused = trainjob(tmp_path, "adopt", "train.sbatch")
    assert (refused.returncode, "is an argument of the file" in refused.stderr) == (1, True)
    reported = json.loads(trainjob(tmp_path, "adopt", "train.sbatch", "--json", "--", "c.yaml").stdout)
    assert set(reported["files"]) == {"job.yaml", "cluster.yaml"}
    assert [path.name for path in tmp_path.iterdir()] == ["train.sbatch"]


def test_a_job_that_would_be_refused_is_not_written(tmp_path: Path) -> None:
    text = FILE.replace("$1", "c.yaml").replace("\nsrun", "\n#SBATCH --comment=-mine\nsrun")
    (tmp_path / "train.sbatch").write_text(text)
    ended = trainjob(tmp_path, "adopt", "train.sbatch", "-o", "new")
    assert (ended.returncode, "the job would be refused" in ended.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["train.sbatch"]


def test_what_sbatch_does_not_have_is_not_carried_over(tmp_path: Path) -> None:
    text = FILE.replace("$1", "c.yaml").replace("\nsrun", "\n#SBATCH --kill-on-bad-exit=1\n#SBATCH --mpi=pmix\nsrun")
    (tmp_path / "train.sbatch").write_text(text)
    ended = trainjob(tmp_path, "adopt", "train.sbatch", "-o", "new")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("is an option of srun, and sbatch has none of that name") == 2
    rendered = trainjob(tmp_path, "render", "--cluster", "./new/cluster.yaml", "--job", "new/job.yaml")
    assert (rendered.returncode, rendered.stderr) == (0, "")
