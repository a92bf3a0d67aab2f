"""What surrounds poprun and mpirun, by the library alone: names, networks, partitions, and groups of processes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.shell_library import Bash
from tests.support.waiting import LIMIT_S, until

# Partitions are lines of a file.
VIPU = """\
listed="$(dirname "$0")/partitions"
touch "$listed"
case "$1 $2" in
  'list partitions') cat "$listed" ;;
  'get partition') grep -qx "$3" "$listed" ;;
  'create partition') echo "$3" >>"$listed" ;;
  'remove partition') sed -i "/^$3$/d" "$listed" ;;
esac
"""
POPRUN = """\
if [ "$1" = --offline-mode=yes ]; then echo "compiles: $TRAINJOB_COMPILE_ONLY"; exit; fi
"$@"
"""
PAGE = """\
stops_by_file=1
begin_run
TRAINJOB_PARTITION=mine
note_partition
set -m
(
trap '' USR1
%s
) &
wait_for_ranks
"""
MAKES = """\
TRAINJOB_REMOVES_PARTITION=1
TRAINJOB_OWN_PARTITION=(--allocation c7 --size 32)
"""


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    made = Bash(tmp_path, "pod")
    made.program("vipu", VIPU)
    made.program(
        "poprun", 'if [ "$1" = --offline-mode=yes ]; then echo "compiles: $TRAINJOB_COMPILE_ONLY"; exit; fi\n"$@"'
    )
    return made


def partitions(bash: Bash) -> str:
    return (bash.programs / "partitions").read_text()


def test_values_do_not_stand_on_the_line_and_names_that_are_not_set_are_left_out(bash: Bash) -> None:
    lines = 'TRAINJOB_MPI_LOCAL="-x A=1"; forward_names MINE MISSING; printf "%s|" "${TRAINJOB_FORWARDED[@]}"; echo; '
    output = bash.run(lines + 'echo "$TRAINJOB_MPI_LOCAL"', MINE="a b", TRAINJOB_ATTEMPT="1")
    assert output.out.splitlines() == [
        "-x|PATH|-x|TRAINJOB_ATTEMPT|-x|MINE|",
        "-x A=1 -x PATH -x TRAINJOB_ATTEMPT -x MINE",
    ]


def test_the_redirected_network_comes_before_the_sites(bash: Bash) -> None:
    lines = (
        'poprun_on eno1 "--mca a b"; echo "$TRAINJOB_MPI_GLOBAL"; mpirun_on eno1; echo "$OMPI_MCA_btl_tcp_if_include"'
    )
    both = "--mca oob_tcp_if_include {0} --mca btl_tcp_if_include {0} --mca a b\n{0}\n"
    assert bash.run(lines).out == both.format("eno1")
    assert bash.run(lines, TRAINJOB_INTERFACE="lo").out == both.format("lo")


def test_a_partition_that_was_there_stays_and_one_that_poprun_made_goes(bash: Bash) -> None:
    assert bash.run(PAGE % "vipu create partition mine").code == 0
    assert (partitions(bash), bash.word("partition")) == ("", None)
    (bash.programs / "partitions").write_text("mine\n")
    assert bash.run(PAGE % "true").code == 0
    assert partitions(bash) == "mine\n"


def test_a_server_that_does_not_answer_leaves_the_note(bash: Bash) -> None:
    fails = f"vipu create partition mine\nprintf '#!/bin/sh\\nexit 1\\n' >{bash.programs}/vipu"
    assert bash.run(PAGE % fails).code == 0
    assert (partitions(bash), bash.word("partition")) == ("mine\n", "mine")


def test_a_job_compiles_first_and_then_makes_its_partition(bash: Bash) -> None:
    ranks = f"{MAKES}export TRAINJOB_COMPILE_ONLY=1\ncompile_first poprun sh -c 'vipu list partitions; exit 3'"
    output = bash.run(PAGE % ranks)
    assert (output.code, output.out) == (3, "compiles: 1\nmine\n")
    assert [words for words in bash.calls("vipu") if words.startswith("create")] == [
        "create partition mine --allocation c7 --size 32"
    ]
    assert (partitions(bash), bash.word("state")) == ("", "FAILED")


def test_a_job_without_vipu_says_where_it_belongs(bash: Bash) -> None:
    output = bash.run(f"begin_run\n{MAKES}TRAINJOB_PARTITION=mine\nPATH=/bin:/usr/bin\nin_own_partition poprun true")
    assert output.code == 1
    assert "vipu is not on PATH of this node" in output.err


def test_ranks_are_asked_for_a_checkpoint_by_file(bash: Bash) -> None:
    process = bash.start(PAGE % "touch ready; until [ -e stop ]; do sleep 0.05; done; touch requeue")
    until(lambda: bash.word("ready") is not None, "the ranks to start")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(LIMIT_S) == 75  # only a run that is complete ends with 0
    assert (bash.word("state"), bash.word("stop")) == ("STOPPED", "")


def test_whoever_tells_the_script_to_end_a_second_time_ends_the_ranks_at_once(bash: Bash) -> None:
    process = bash.start(PAGE % "touch ready; while :; do sleep 0.05; done")
    until(lambda: bash.word("ready") is not None, "the ranks to start")
    process.send_signal(signal.SIGTERM)
    until(lambda: bash.word("stop") is not None, "the file")
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 143
    assert (bash.word("state"), bash.word("stop")) == ("CANCELLED", None)


def test_what_outlives_its_starter_is_ended_with_the_group(bash: Bash) -> None:
    stays = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(600)"
    assert (
        bash.run(PAGE % f'python3 -c "{stays}" & echo $! >pid; until [ -e ready ]; do sleep 0.05; done; exit 4').code
        == 4
    )
    pid = bash.word("pid")
    until(lambda: not Path(f"/proc/{pid}/exe").exists(), "what was left to end", 20)
