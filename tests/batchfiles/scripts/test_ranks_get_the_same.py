"""The words and variables that ranks of an adopted job get, as bash computes them, are those of the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.batchfiles.unit.test_adoption import ONE_GPU, adopted, prologue
from tests.batchfiles.unit.test_nothing_is_lost import command
from trainjob.cluster.reading import job_from_text
from trainjob.machines import process

_PYTHON = '#!/bin/sh\nshift\nprintf "<%s>" "$@"\nprintf " %s" "${X-}"\n'


def reached(text: str, tmp_path: Path, *, words: str = "") -> str:
    """Return what a rank of the adopted job gets: its words, and the variable X; nothing where the job ends before."""
    adoption = adopted(f"{ONE_GPU}{text}\nsrun python train.py {words}\n", tmp_path)
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(_PYTHON)
    program.chmod(0o755)
    env = {
        **os.environ, **(job_from_text(adoption.job, "job.yaml").env or {}),
        "PATH": f"{program.parent}:{os.environ['PATH']}", "TRAINJOB_RUN_DIR": str(tmp_path),
    }  # fmt: skip
    copy = tmp_path / "code" / "project"
    copy.mkdir(parents=True)
    for name in ("a.py", "b.py"):
        (copy / name).write_text("")
    (copy / "kv.txt").write_text("X 5\nY 6\n")
    (copy / "sub").mkdir()
    lines = [
        "set -euo pipefail",
        "set +u",
        *prologue(adoption, whole=True),
        'cd "$TRAINJOB_RUN_DIR/code/project"',
        'exec "$@"',
    ]
    return process.run(
        ["bash", "-c", "\n".join(lines), "job", *command(adoption)], environment=env, timeout_s=20, check=False
    ).stdout.decode()


@pytest.mark.parametrize(
    ("setup", "value"),
    [
        ("N=5\nlet N=N+1\n((N++))", "7"),
        ("N=10; (( N *= 2 ))", "20"),
        ("N=0; ((N++)); ((N++))", "2"),
        ("N=0\nfor i in 0 1 2 3; do (( N += i )); done", "6"),
        ("declare -i N=3\nN+=4", "7"),
        ("declare -i N\nN=3+5", "8"),
        ("declare -u N=abc", "ABC"),
        ("M=2; N=5; X=$((N++ + M))", "6"),
        ("M=2; N=1; let N=N+M", "3"),
        ("for ((N=0; N<4; N++)); do :; done", "4"),
        ('printf -v N "%s-%03d" a 7', "a-007"),
    ],
)
def test_what_bash_calculates_is_calculated_when_the_job_runs(setup: str, value: str, tmp_path: Path) -> None:
    assert reached(setup, tmp_path, words="$N").startswith(f"<{value}>")


@pytest.mark.parametrize("setup", ["N=5; let N=N+1; export X=$N", "printf -v X %d 6; export X", "export X=5; ((X++))"])
def test_a_variable_of_ranks_is_calculated_too(setup: str, tmp_path: Path) -> None:
    assert reached(setup, tmp_path) == "<> 6"


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        ("A=(--lr 0.1); A[1]=0.2", "<--lr><0.2>"),
        ("A[0]=x; A[1]='y z'", "<x><y z>"),
        ("A=(a b c); unset 'A[0]'; A[5]=z", "<b><c><z>"),
        ("A=(a b); i=1; A[i]+=c", "<a><bc>"),
        ("A=(1 2); ((A[0]++))", "<2><2>"),
        ("declare -A A; A[k]=v", "<v>"),
    ],
)
def test_elements_of_an_array_have_their_last_values(setup: str, words: str, tmp_path: Path) -> None:
    assert reached(setup, tmp_path, words='"${A[@]}"').startswith(words)


def test_a_secret_that_printf_puts_together_is_left_out(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "printf -v API_TOKEN %s abc77def\nexport API_TOKEN\npython train.py\n", tmp_path)
    assert "abc77def" not in f"{adoption.job}{adoption.cluster}{adoption.account.entries}"


def test_an_array_between_quotes_is_one_word(tmp_path: Path) -> None:
    assert reached('A=(a "b c" d)', tmp_path, words='"${A[*]}" "x ${A[*]}"').startswith("<a b c d><x a b c d>")


def test_files_that_a_pattern_stands_for_are_found_when_the_job_runs(tmp_path: Path) -> None:
    words = reached("P=*.py", tmp_path, words="*.py $P \"$P\" '*.py' \\*.py a=[1,2]")
    assert words.startswith("<a.py><b.py><a.py><b.py><*.py><*.py><*.py><a=[1,2]>")


@pytest.mark.parametrize(
    ("setup", "value"),
    [
        ("export X=$(basename /a/b)\nexport X=fixed", "fixed"),
        ("X=$(basename /a/b)\nexport X\nX=fixed", "fixed"),
        ("unset X\nexport X=1", "1"),
        ('while read -r k v; do export "$k=$v"; done < kv.txt', "5"),
        ('for n in X; do export "$n=7"; done', "7"),
        ("n=X; declare -x $n=3", "3"),
        ("export \"X=1 2\" R='3'", "1 2"),
        ("cd sub && export X=1", "1"),
        ("true && X=4 && export X", "4"),
        ("X=4 && grep -q 5 kv.txt && export X", "4"),
    ],
)
def test_a_variable_has_its_last_value(setup: str, value: str, tmp_path: Path) -> None:
    assert reached(setup, tmp_path) == f"<> {value}"


@pytest.mark.parametrize(
    ("setup", "value"),
    [
        ("if [ -d sub ]; then export D=/a; else export D=/b; fi\nexport X=$D/c", "/a/c"),
        ("D=/b\n[ -d sub ] && D=/a\nexport X=$D/c", "/a/c"),
        ('[ -d sub ] && D=/a\nexport X="${D:-none} x"', "/a x"),
        ("export X\nread X <<< 28", "28"),
        ("export X=1\nf() {\n  X=2\n}\nf\nf", "2"),
        ("X=3\ntypeset -x X", "3"),
    ],
)
def test_a_value_that_only_a_run_decides_is_that_of_the_run(setup: str, value: str, tmp_path: Path) -> None:
    assert reached(setup, tmp_path) == f"<> {value}"


@pytest.mark.parametrize(
    ("setup", "word", "value"),
    [
        ("if [ -d none ]; then export A=7; else A=8; fi", "$A", "8"),
        ("if [ -d sub ]; then A=7; fi\n: ${A:=9}", "$A", "7"),
        ("A=$(echo 3)\n: ${A:=9}", "$A", "3"),
        ("[ -d sub ] && A=--resume", "${A:-}", "--resume"),
        ('read A B <<< "1 2"', "$B", "2"),
        ("f() {\n  A=2\n}\nA=1\nf\nf", "$A", "2"),
    ],
)
def test_a_word_that_only_a_run_decides_is_that_of_the_run(setup: str, word: str, value: str, tmp_path: Path) -> None:
    assert reached(setup, tmp_path, words=word).startswith(f"<{value}>")


@pytest.mark.parametrize(
    ("setup", "value"),
    [
        ("export -f none 2>/dev/null\nexport X=$(echo 1)", "<> 1"),
        ("set -e\nexport -f none\nexport X=$(echo 1)", ""),
        ("N=0\n((N++))\nexport X=$N", "<> 1"),
        ("set -e\nN=0\n((N++))\nexport X=$N", ""),
        ("set -e\nN=0\ntrue\nset +e\n((N++))\nexport X=$N", "<> 1"),
        ("cp none /tmp <<END\nEND\nexport X=$(echo 1)", "<> 1"),
        ("cp none ${SLURM_SUBMIT_DIR%/}/\nexport X=$(echo 1)", "<> 1"),
        ("cp none /tmp || exit 3\nexport X=$(echo 1)", ""),
    ],
)
def test_a_failure_ends_the_job_where_it_has_ended_the_file(setup: str, value: str, tmp_path: Path) -> None:
    assert reached(setup, tmp_path) == value


def test_a_secret_between_quotes_is_left_out(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + 'export "API_TOKEN=abc77def"\npython train.py\n', tmp_path)
    assert "abc77def" not in f"{adoption.job}{adoption.cluster}{adoption.account.entries}"
