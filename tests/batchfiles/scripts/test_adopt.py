"""trainjob adopt, as it is called: what it writes, prints and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.submit_cases import git, repository

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


def test_a_file_that_bash_can_not_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\nexport DATA=<folder>\npython train.py\n")
    refused = trainjob(tmp_path, "adopt", "train.sbatch")
    assert (refused.returncode, "train.sbatch:2 is no bash" in refused.stderr) == (1, True)


def test_no_secret_of_a_batch_file_reaches_a_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, old, of_helper = "0123456789abcdef" * 2, "fedcba9876543210" * 2, "00112233445566778899aabb"
    project = repository(tmp_path / "project", "train.py", "README.md")
    (project / "train.py").write_text("print('trained')\n")
    (project / "keys.sh").write_text(f"export HF_TOKEN={of_helper}\n")
    head = "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=1\n"
    (project / "train").write_text(f"{head}export WANDB_API_KEY={old}\nsource keys.sh\nsrun python train.py\n")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "second")
    (project / "train").write_text(f"{head}export WANDB_API_KEY={key}\nsource keys.sh\nsrun python train.py\n")
    (project / "keys.sh").write_text("export MODE=fast\n")  # a difference would show what it was
    adopted = trainjob(project, "adopt", "train", "-o", str(tmp_path / "new"))
    assert (adopted.returncode, adopted.stderr) == (0, "")
    assert "3: export WANDB_API_KEY…: it holds a secret" in adopted.stdout
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    words = ["--cluster", "local", "--job", str(tmp_path / "new/job.yaml"), "--follow"]
    submitted = trainjob(project, "submit", *words)
    assert (submitted.returncode, "left out of the run: train (a secret is written in it" in submitted.stderr) == (
        0,
        True,
    )
    everything = [*(tmp_path / "data").rglob("*"), *(tmp_path / "new").rglob("*")]
    texts = {path: path.read_bytes() for path in everything if path.is_file()}
    assert any(path.name == "train.py" for path in texts)
    for secret in (key, old, of_helper):
        assert [path for path, text in texts.items() if secret.encode() in text] == []
    named = trainjob(project, "submit", "--cluster", "local", "--", "bash", "train")
    assert (named.returncode, "train is not copied into the run: a secret is written in it" in named.stderr) == (
        1,
        True,
    )


def test_a_sourced_file_with_a_secret_is_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "keys.sh").write_text(f"export HF_TOKEN={'0123456789abcdef' * 2}\n")
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --ntasks=1\n. ./keys.sh\nsrun python train.py\n")
    ended = trainjob(tmp_path, "adopt", "train.sbatch")
    assert "3: . ./keys.sh: no copy of the project has ./keys.sh: take the secret out of it, and put" in ended.stdout


def test_a_file_that_is_not_there_is_bad_use(tmp_path: Path) -> None:
    for program in ("adopt", "doctor"):
        ended = trainjob(tmp_path, program, "nofile.sh")
        assert (ended.returncode, "nofile.sh does not exist" in ended.stderr) == (2, True)


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
