"""Many commands at the same moment: none is lost, none acts twice, and none of the runs is another's."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.support.attack import Attack
from tests.support.local_runs import Here, Run
from tests.support.programs import TRAINJOB, ran
from tests.support.waiting import until

KIND = "load"
LIMIT_S = 900.0
# Each writes who it is: a folder that two runs share would show.
ONE = 'echo "attempt $TRAINJOB_ATTEMPT of $1" >>"$TRAINJOB_RUN_DIR/written"'

# The first attempt fails, and the second stays until it is released.
TWICE = """\
if [ "$TRAINJOB_ATTEMPT" = 1 ]; then exit 3; fi
until [ -e "$TRAINJOB_RUN_DIR/release" ]; do sleep 0.1; done
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def at_once(here: Here, commands: list[list[str]]) -> list[Ended]:
    """Run all commands at the same time and return how each ended."""

    def run(words: list[str]) -> Ended:
        ended = ran([TRAINJOB, *words], folder=here.project, environ=here.environ)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run, commands))


def wait_until_complete(run: Run) -> None:
    until(lambda: run.word("state") == "COMPLETED", f"{run.id} COMPLETED", LIMIT_S)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("many", [8, pytest.param(100, marks=pytest.mark.full)])
def test_as_many_runs_as_submissions(attack: Attack, here: Here, many: int) -> None:
    submit = ["submit", "--json", "--no-check", "--", "sh", "-c", ONE, "sh"]
    submitted = at_once(here, [[*submit, f"job {number}"] for number in range(many)])
    runs: list[Run] = []
    with attack(KIND) as trials:
        for number, ended in enumerate(submitted):
            with trials.trial(f"submit {number} of {many}"):
                assert ended.code == 0, ended
                run = here.at(json.loads(ended.out)["folder"])
                runs.append(run)
                wait_until_complete(run)
                assert run.word("written") == f"attempt 1 of job {number}"
        with trials.trial(f"list after {many} submissions"):
            assert len({run.id for run in runs}) == many
            assert {line["id"] for line in here.json("list", "--limit", str(2 * many))} == {run.id for run in runs}


@pytest.mark.timeout(LIMIT_S)
def test_of_many_resumes_at_once_one_starts_the_run(attack: Attack, here: Here) -> None:
    run = here.submit("sh", "-c", TWICE, instances=1)
    run.wait("FAILED")
    resumed = at_once(here, [["resume", run.id]] * 6)
    with attack(KIND) as trials:
        for number, ended in enumerate(sorted(resumed)):
            with trials.trial(f"resume {number}"):
                assert ended.code == min(number, 1), resumed
                assert "BUG" not in ended.err
                assert number == 0 or ended.err.count("\n") == 1
        run.release()
        run.wait("COMPLETED")
        with trials.trial("attempts after all resumes"):
            assert run.word("attempt") == "2"
