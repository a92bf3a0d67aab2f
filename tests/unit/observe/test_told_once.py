"""Output that is followed: what one rank has told, or the summary will tell, is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.run_folders import made
from trainjob.observe.told_once import ToldOnce
from trainjob.records import causes, failure
from trainjob.records.failure import Failure

FIRST = """\
[{rank}] {tag}Traceback (most recent call last):
[{rank}] {tag}  File "train.py", line 3, in <module>
[{rank}] {tag}    main()
[{rank}] {tag}ValueError: the loss is strange
"""
CHAINED = """\
[{rank}] Traceback (most recent call last):
[{rank}]   File "train.py", line 1, in load
[{rank}] KeyError: 'lr'
[{rank}]\x20
[{rank}] During handling of the above exception, another exception occurred:
[{rank}]\x20
[{rank}] Traceback (most recent call last):
[{rank}]   File "train.py", line 2, in load
[{rank}] RuntimeError: no rate
"""
FAILED = "trainjob: rank 1 failed with exit code 1\n"
SRUN = (
    "srun: error: node1: task 1: Exited with exit code 1\n"
    "srun: launch/slurm: _step_signal: Terminating StepId=1.0\n"
    "slurmstepd-node1: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-27T14:01:16 ***\n"
)


def of_rank(text: str, rank: int, *, is_tagged: bool = False) -> str:
    return text.format(rank=rank, tag=f"[rank{rank}]: " if is_tagged else "")


def told(folder: Path, *pieces: str, failed: Failure | None = None, noise: re.Pattern[bytes] | None = None) -> str:
    """Return what is shown of these pieces of a run, for which `failed` is recorded."""
    paths = made(folder, "abcd")
    if failed is not None:
        failure.record_first(paths, failed)
    once = ToldOnce(paths, noise)
    return b"".join([*once.new(piece.encode() for piece in pieces), *once.finish()]).decode()


@pytest.mark.parametrize("is_tagged", [False, True])
def test_a_traceback_is_that_of_the_first_rank_alone(tmp_path: Path, is_tagged: bool) -> None:
    first = of_rank(FIRST, 2, is_tagged=is_tagged)
    others = [of_rank(FIRST, rank, is_tagged=is_tagged) for rank in (0, 1, 3)]
    assert told(tmp_path, first, *others) == first + "ranks 0-1,3 printed the same traceback as rank 2\n"


def test_a_traceback_that_arrives_in_pieces_is_told_as_one(tmp_path: Path) -> None:
    whole = [of_rank(FIRST, rank) for rank in (0, 1)]
    mixed = [line for pair in zip(*(text.splitlines(keepends=True) for text in whole), strict=True) for line in pair]
    assert told(tmp_path, *mixed) == whole[0] + "rank 1 printed the same traceback as rank 0\n"


def test_another_traceback_and_one_without_an_end_are_shown(tmp_path: Path) -> None:
    other = of_rank(FIRST.replace("strange", "odd"), 1)
    torn = "".join(of_rank(FIRST, 2).splitlines(keepends=True)[:2])
    assert told(tmp_path, of_rank(FIRST, 0), other, torn) == of_rank(FIRST, 0) + other + torn


def test_an_attempt_shows_its_traceback_though_another_rank_of_the_one_before_printed_it(tmp_path: Path) -> None:
    again = "--- attempt 2 · job.sh · node1 · now ---\n"
    shown = of_rank(FIRST, 0) + again + of_rank(FIRST, 1)
    assert told(tmp_path, shown) == shown


def test_what_follows_the_first_line_of_a_traceback_does_not_wait_for_ever(tmp_path: Path) -> None:
    once = ToldOnce(made(tmp_path, "abcd"))
    lines = (f"[0]   row {number}\n".encode() for number in range(3000))
    shown = b"".join(once.new([b"[0] Traceback (most recent call last):\n", *lines]))
    assert shown.startswith(b"[0] Traceback")
    assert shown.endswith(b"row 2999\n")


def test_tracebacks_that_a_script_logs_take_no_more_memory_in_the_end(tmp_path: Path) -> None:
    once = ToldOnce(made(tmp_path, "abcd"))
    texts = [FIRST.replace("strange", f"strange {number}") for number in range(2500)]
    assert b"".join(once.new(of_rank(text, 0).encode() for text in texts)).count(b"Traceback") == 2500
    again = b"".join(once.new(of_rank(text, 1).encode() for text in (texts[10], texts[-1])))
    assert again.decode() == of_rank(texts[-1], 1)


def test_a_chain_of_tracebacks_is_told_once_and_what_follows_is_shown(tmp_path: Path) -> None:
    first, after = of_rank(CHAINED, 0), "[1] the last words\n[1] \n"
    same = "rank 1 printed the same traceback as rank 0\n"
    assert told(tmp_path, first, of_rank(CHAINED, 1) + after) == first + after + same


def test_what_the_summary_tells_of_the_failure_is_not_told_before(tmp_path: Path) -> None:
    failed = Failure(1, 1, "node1", 1, ["python"], ["RuntimeError: Distributed package doesn't have NCCL built in"])
    cause = f"trainjob: {causes.of_failure(failed)}\n"
    assert "uses NCCL" in cause
    before, other = "trainjob: node check: right\n", "trainjob: the disk is full\n"
    assert told(tmp_path, before + FAILED, cause + other + SRUN, failed=failed) == before + other


def test_what_is_not_recorded_is_shown(tmp_path: Path) -> None:
    assert told(tmp_path, FAILED + SRUN) == FAILED + SRUN


def test_what_an_attempt_ended_with_is_shown_where_another_follows(tmp_path: Path) -> None:
    again = "--- attempt 2 · job.sh · node1 · now ---\n"
    failed = Failure(2, 1, "node1", 1, ["python"], [])
    assert told(tmp_path, FAILED + SRUN + again, failed=failed) == FAILED + SRUN + again


def test_only_the_lines_that_are_noise_are_left_out(tmp_path: Path) -> None:
    shown = told(tmp_path, "[0] [c10d] no name\n[0] epoch 1\n[0] 10 %\r20 %", noise=re.compile(rb"\[c10d\]"))
    assert shown == "[0] epoch 1\n[0] 10 %\r20 %"
