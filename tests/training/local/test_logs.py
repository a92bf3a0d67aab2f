"""What ranks have printed, as a user reads it."""

from __future__ import annotations

import json

import pytest

from tests.support.local_runs import LIMIT_S, Here, Run, first_line, what_follows
from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB, ran

PRINTING = r"""
import os, sys
rank = os.environ["RANK"]
sys.stdout.write(f"first of {rank}\nbar 1\rbar 2\nlast of {rank}, torn")
"""


@pytest.fixture
def ended(here: Here) -> Run:
    return here.follow("python", "-c", PRINTING)


def test_one_ranks_log_is_its_bytes_as_they_are(here: Here, ended: Run) -> None:
    assert here.run("logs", ended.id, "--rank", "1").stdout == ended.log(1)
    assert ended.log(1).endswith("last of 1, torn")


def test_each_line_of_all_ranks_has_its_rank_in_front(here: Here, ended: Run) -> None:
    _, *lines = here.json("logs", ended.id)["lines"]
    assert [line[:4] for line in lines] == ["[0] "] * 4 + ["[1] "] * 4
    assert lines[3] == "[0] last of 0, torn"
    assert here.run("logs", ended.id).stdout.endswith("[1] last of 1, torn\n")


def test_every_attempt_has_a_head(here: Here) -> None:
    run = here.follow("false", code=1)
    here.run("resume", run.id, "--follow", code=1)
    heads = [line for line in run.log(1).splitlines() if line.startswith("--- attempt ")]
    assert [head[:22] for head in heads] == ["--- attempt 1 · rank 1", "--- attempt 2 · rank 1"]
    script = (run.folder / "logs/scheduler.out").read_text().splitlines()
    assert [line[:22] for line in script if line.startswith("--- ")] == [
        "--- attempt 1 · job.sh",
        "--- attempt 2 · job.sh",
    ]


def test_a_bar_stays_one_line_of_json(here: Here, ended: Run) -> None:
    lines = here.json("logs", ended.id, "--rank", "0")["lines"]
    assert lines[1:] == ["first of 0", "bar 1\rbar 2", "last of 0, torn"]


def test_only_some_lines(here: Here, ended: Run) -> None:
    assert here.run("logs", ended.id, "--grep", "first|torn").stdout.splitlines() == [
        f"[{rank}] {text}" for rank in (0, 1) for text in (f"first of {rank}", f"last of {rank}, torn")
    ]
    assert here.run("logs", ended.id, "--rank", "1", "--tail", "1").stdout == "last of 1, torn"
    assert "--grep ( is no regular expression" in here.run("logs", ended.id, "--grep", "(", code=2).stderr


def test_waiting_ends_with_the_runs_or_in_time(here: Here) -> None:
    stays, ends, fails = here.staying(), here.submit("sleep", "1"), here.submit("false")
    assert here.run("wait", ends.id).stdout == f"{ends.id} · COMPLETED\n"
    assert [one["state"] for one in reported(here.run("wait", "--json", ends.id, fails.id, code=1).stdout)] == [
        "COMPLETED",
        "FAILED",
    ]
    assert f"{stays.id} · RUNNING" in here.run("wait", stays.id, "--timeout-s", "0.5", code=1).stdout


def test_a_rank_that_the_run_does_not_have_is_refused(here: Here, ended: Run) -> None:
    assert (
        f"run {ended.id} has no rank 7: it has ranks 0 to 1" in here.run("logs", ended.id, "--rank", "7", code=1).stderr
    )


def test_following_ends_with_the_run_and_leaves_nothing_out(here: Here) -> None:
    run = here.staying()
    following = here.start("logs", run.id, "--follow")
    assert "attempt 1" in first_line(following)
    run.release()
    rest = what_follows(following)
    assert following.returncode == 0
    assert {"[0] ready", "[1] ready"} <= set(rest.splitlines())


def test_following_one_rank_hands_on_a_torn_last_line(here: Here) -> None:
    stays = "import os, sys, pathlib, time; print('ready', flush=True)\n"
    stays += "while not pathlib.Path(os.environ['TRAINJOB_RUN_DIR'], 'release').exists(): time.sleep(0.02)\n"
    run = here.submit("python", "-c", stays + "sys.stdout.write('torn')")
    run.wait_until_ready()
    following = here.start("logs", run.id, "--rank", "1", "--follow")
    run.release()
    output = what_follows(following)
    assert output == run.log(1)
    assert output.endswith("ready\ntorn")


def test_a_rank_whose_log_is_not_there_yet_is_waited_for(here: Here) -> None:
    run = here.staying()
    log = run.folder / "logs" / "rank-0001.log"
    log.rename(log.with_name("not-yet"))
    following = here.start("logs", run.id, "--rank", "1", "--follow", "--json")
    run.release()
    output = what_follows(following)
    assert json.loads(output)["lines"] == []


def test_a_reader_that_leaves_is_no_error(here: Here) -> None:
    run = here.follow("python", "-c", "print('line\\n' * 50000)")
    pipe = f"{TRAINJOB} logs {run.id} | head -1; echo ${{PIPESTATUS[0]}}"
    output = ran(["bash", "-c", pipe], environ=here.environ, timeout_s=LIMIT_S)
    assert (output.stdout.splitlines()[-1], output.stderr) == ("0", "")
