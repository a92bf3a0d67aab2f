"""trainjob doctor, as it is called: exit codes, formats, called scripts, and what it loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.printed_json import reported
from tests.support.programs import ran

WRONG = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --time=1:00:00
#SBATCH --output=%j.log
#SBATCH --exclusive
set -e
srun bash run.sh
"""
PROGRAM = "from trainjob.cli.main import main; import sys; main(sys.argv[1:])"
RUN = "export OMP_NUM_THREADS=4\ntorchrun --nproc-per-node=8 train.py\n"


def doctor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120"}
    return ran([sys.executable, "-c", PROGRAM, "doctor", *words], folder=folder, environ=environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.sbatch").write_text(WRONG)
    (tmp_path / "run.sh").write_text(RUN)
    return tmp_path


def test_a_fault_in_a_called_script_is_told_in_its_line(folder: Path) -> None:
    ended = doctor(folder, "train.sbatch")
    assert "run.sh:2: error: nnodes-missing: 2 nodes, and torchrun has no --nnodes" in ended.stdout
    assert "train.sbatch:3: warning: time-limit-unhandled" in ended.stdout
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_script_that_is_not_here_is_told_once(folder: Path) -> None:
    (folder / "run.sh").unlink()
    ended = doctor(folder, "train.sbatch")
    assert ended.stdout.count("run.sh") == 1
    assert "not known without running it: run.sh (line 7) is not here" in ended.stdout
    assert ended.returncode == 0


@pytest.mark.parametrize("kind", ["huge", "pipe", "/proc/kmsg"])
def test_a_called_file_is_read_in_part_or_not_at_all(folder: Path, kind: str) -> None:
    (folder / "run.sh").unlink()
    if kind == "huge":
        with (folder / "run.sh").open("w") as stream:
            stream.write(RUN)
            stream.truncate(6 << 30)
    elif kind == "pipe":
        os.mkfifo(folder / "run.sh")
    else:
        (folder / "run.sh").symlink_to(kind)
    # No more memory than a login node lets one have.
    limited = ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", sys.executable, "-c", PROGRAM, "doctor"]
    ended = ran([*limited, "train.sbatch"], folder=folder, timeout_s=60)
    assert ended.stderr == ""
    assert ("nnodes-missing" in ended.stdout) == (kind == "huge")


def test_a_pipe_is_no_batch_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe.sbatch")
    ended = doctor(folder, "pipe.sbatch")
    assert (ended.returncode, ended.stderr) == (1, "trainjob: pipe.sbatch is not a file: name a batch file\n")


def test_warnings_fail_only_with_strict(folder: Path) -> None:
    (folder / "run.sh").write_text(RUN.replace("--nproc", "--nnodes=2 --nproc"))
    assert doctor(folder, "train.sbatch").returncode == 0
    assert doctor(folder, "train.sbatch", "--strict").returncode == 1
    ignored = WRONG.replace("set -e", "# trainjob: ignore=time-limit-unhandled, no-kill-on-bad-exit\nset -e")
    (folder / "train.sbatch").write_text(ignored)
    ended = doctor(folder, "train.sbatch", "--strict")
    assert (ended.returncode, ended.stdout) == (0, "no faults found\n")


def test_json_has_every_finding(folder: Path) -> None:
    [told] = reported(doctor(folder, "--json", "train.sbatch").stdout)
    error = next(one for one in told["findings"] if one["severity"] == "error")
    assert (error["code"], error["line"], Path(error["path"]).name) == ("nnodes-missing", 2, "run.sh")
    assert error["happens"]
    assert error["cure"]


def test_github_annotates_lines(folder: Path) -> None:
    lines = doctor(folder, "--format", "github", "train.sbatch").stdout.splitlines()
    assert any(line.startswith("::error file=run.sh,line=2,title=nnodes-missing::") for line in lines)
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)


def test_sarif_names_rules_and_places(folder: Path) -> None:
    ended = doctor(folder, "--format", "sarif", "train.sbatch")
    [run] = json.loads(ended.stdout)["runs"]
    rules: list[dict[str, Any]] = run["tool"]["driver"]["rules"]
    error = next(one for one in run["results"] if one["level"] == "error")
    assert rules[error["ruleIndex"]]["id"] == error["ruleId"] == "nnodes-missing"
    place = error["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("run.sh", {"startLine": 2})


def test_a_cluster_file_sharpens(folder: Path) -> None:
    (folder / "clusters").mkdir()
    nodes = "{count: 2, accelerator: gpu, accelerators: 4, cpus: 32}"
    (folder / "clusters/hpc.yaml").write_text(f"kind: slurm\nnodes: {nodes}\nlimits: {{max_time: '00:30:00'}}\n")
    ended = doctor(folder, "--cluster", "hpc", "train.sbatch")
    assert "beyond-cluster: --time=1:00:00, and the cluster allows 30 minutes" in ended.stdout
    # --exclusive takes all of a node, whose GPUs only the cluster file has.
    assert "more-processes-than-gpus: 8 processes a node, and 4 GPUs" in ended.stdout
    assert "is of kind local" in doctor(folder, "--cluster", "local", "train.sbatch").stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "doctor was given no batch file"),
        (("absent.sbatch",), "absent.sbatch does not exist"),
        (("--explain", "port-fixt"), "did you mean port-fixed?"),
        (("--format", "xml", "train.sbatch"), "'xml' is not one of 'text', 'github', 'sarif'"),
    ],
)
def test_a_mistake_is_named(folder: Path, words: tuple[str, ...], says: str) -> None:
    ended = doctor(folder, *words)
    assert says in ended.stderr
    assert ended.returncode == (2 if "--format" in words else 1)


def test_a_code_is_explained(folder: Path) -> None:
    ended = doctor(folder, "--explain", "crlf")
    assert ended.stdout.startswith("crlf (error)\n")
    assert "Cure: " in ended.stdout


def test_only_doctor_loads_the_parser() -> None:
    program = "import sys; from trainjob.cli.main import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules)"
    for words, loaded in (
        (["--help"], False),
        (["doctor", "--help"], False),
        (["plan"], False),
        (["doctor", __file__], True),
    ):
        ended = ran([sys.executable, "-c", program, *words])
        assert ("tree_sitter" in ended.stdout.splitlines()[-1].split()) is loaded, words
