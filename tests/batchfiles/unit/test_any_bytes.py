"""Whatever the bytes of a file, doctor and adopt read it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfiles.adoption.adopt import adoption_of
from batchfiles.rules import formats
from batchfiles.rules.diagnosis import diagnosis_of
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import script_of
from trainjob.contract.errors import UserError

# What shell scripts are made of, and what breaks readers of them.
PIECES = (
    "#SBATCH ", "--nodes=", "--signal=B:", "-N", " 2", "$", "${", "}", "$((", "))", "$(", ")", "`", '"', "'", "\\", "\n", "\r\n", "srun ", "torchrun ", "bash -c ", "eval ",
    "accelerate launch ", "--nnodes", "=", "$SLURM_PROCID", "MASTER_ADDR", "[", "[[", "]]", "]", " ]; then ", "if ", "fi\n", "for x in ", "do ", "done", "case ", "esac", "{", "<<EOF\n", "EOF\n",
    "| tee ", "&& ", "|| ", "&\n", "wait ", "trap ", "() {", "read -a x <<< ", "arr=(", "arr+=(", "${arr[@]}", "${#arr[@]}", "9" * 30, "%", "/0", "**", "~", "\0", "é", "\ufffc", "\ufeff",
    "python -m ", "singularity exec ", "set -euo pipefail\n", "function f ", "f\n", "source ", "export ", "--cpu-bind=mask_cpu:0x", "map_cpu:", "@", ",", "-w n[1-", "--", "-", "env ", "timeout ",
)  # fmt: skip


def diagnosed(raw: bytes) -> str:
    script = script_of(Path("train.sbatch"), raw, SiteFacts())
    with suppress(UserError):
        adoption_of(script_of(Path("train.sbatch"), raw, SiteFacts(), ("a b",)), Path("/project"))
    diagnoses = [diagnosis_of(script)]
    return formats.text(diagnoses) + formats.github(diagnoses) + formats.sarif(diagnoses)


@given(st.binary(max_size=400))
def test_any_bytes(raw: bytes) -> None:
    assert diagnosed(raw)


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_pieces_of_shell(pieces: list[str]) -> None:
    assert diagnosed("".join(["#!/bin/bash\n", *pieces]).encode())


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "$(" * 3000,
        "x=" + "$(" * 3000 + "a" + ")" * 3000,
        "if a; then " * 1500 + "python train.py" + "; fi" * 1500,
        "".join(f"f{number}() {{ f{number + 1}; f{number + 1}; }}\n" for number in range(60)) + "f0",
        "#SBATCH --array=" + ",".join(map(str, range(100_000))),
        "x=" + "$" * 20_000,
        "if " * 3000,
        "{ " * 3000 + "x",
        "a && " * 3000 + "b",
        "f() { f; f; }\nf\n",
        "A=x\n" + "A=$A$A\n" * 300 + "echo $A\n" * 300,
        "x=$((1" + "+1" * 2000 + "))",
        "x=y\n" + 'x="$x$x"\n' * 60,
        "x=(y)\n" + 'x=("${x[@]}" "${x[@]}")\n' * 60 + 'srun "${x[@]}"',
        pytest.param("set -- y\n" + 'set -- "$@" "${@:1}"\n' * 60 + 'srun "$@"', marks=pytest.mark.full),
        "x=(" + "y " * 5_000 + ")\n" + "z=${x[*]}${x[@]:1}\n" * 400,
        "#SBATCH --nodes=1\n" + "".join(f"export A{number}=$A{number - 1}x\n" for number in range(1, 1100)),
        "".join(f"A{number}=$A{number - 1}x\n" for number in range(1, 1100)) + "srun x",
        "#SBATCH --export=" + ",".join(f"A{number}_TOKEN=b" for number in range(5_000)),
        "x=" + "d" * 200_000 + "\ny='" + "a-" * 100_000 + "'\nz='" + "curl -s " * 20_000 + "'",
        "python train.py " + " ".join(f"--a{number} $V{number}" for number in range(1000)),
    ],
)
def test_depth_and_growth(text: str) -> None:
    assert diagnosed(f"{text}\npython train.py\n".encode())


def test_a_host_list_that_slurm_would_not_take_is_no_crash() -> None:
    assert diagnosed(b"#!/bin/bash\n#SBATCH -w n[1-\n#SBATCH --nodelist=n[1-[\nsrun hostname\n")


@pytest.mark.parametrize("line", ["python train.py &\n", "tensorboard --logdir x &\n"])
def test_four_times_the_lines_take_about_four_times_as_long(line: str) -> None:
    def seconds(lines: int) -> float:
        raw = f"#!/bin/bash\n{line * lines}srun python train.py\n".encode()
        script = script_of(Path("train.sbatch"), raw, SiteFacts())
        began = time.process_time()
        diagnosis_of(script)
        return time.process_time() - began

    seconds(100)  # what is loaded at the first use
    assert seconds(4000) < 7 * seconds(1000)
