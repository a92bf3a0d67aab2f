"""Two attempts of one folder: the older writes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.local_runs import LIMIT_S, STAY, Here
from tests.support.waiting import until


def by_hand(here: Here, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["bash", "job.sh"], cwd=folder, env=here.environ, start_new_session=True)


def test_an_attempt_by_hand_of_a_submitted_run_is_not_called_lost(here: Here) -> None:
    run = here.follow("false", code=1)
    (run.folder / "attempt").write_text("2\n")
    (run.folder / "state").write_text("RUNNING\n")
    status = run.status()
    assert (status["state"], status["note"]) == (
        "RUNNING",
        "it was started by hand, so trainjob can't tell whether it still runs",
    )


def test_the_ranks_of_a_run_by_hand_end_with_its_script(here: Here) -> None:
    here.write("my_script.py", STAY)
    here.run("render", "--instances", "2", "-o", "job", "--", "python", "my_script.py")
    run = here.at(str(here.project / "job"))
    script = by_hand(here, run.folder)
    run.wait_until_ready()
    script.kill()
    script.wait(LIMIT_S)
    until(lambda: not run.ranks() and not run.washed(), "gone")


def test_a_page_that_is_started_on_a_terminal_says_what_runs_where_its_logs_are_and_how_it_ended(here: Here) -> None:
    here.write("my_script.py", "print('trains')")
    here.run("render", "--instances", "2", "-o", "job", "--", "python", "my_script.py", "--lr", "3")
    run, (ours, terminal) = here.at(str(here.project / "job")), os.openpty()
    script = subprocess.Popen(["bash", "job/job.sh"], cwd=here.project, env=here.environ, stderr=terminal)
    os.close(terminal)
    assert script.wait(LIMIT_S) == 0
    told = os.read(ours, 10_000).decode().replace("\r\n", "\n")
    os.close(ours)
    assert told == (
        "trainjob: Job my_script on local: 2 instances on 1 host, engine command\n"
        "trainjob: Ranks run, as job.json has it: python my_script.py --lr 3\n"
        f"trainjob: attempt 1: ranks write to {run.folder}/logs\n"
        "trainjob: COMPLETED\n"
    )
