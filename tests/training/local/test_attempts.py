"""Two attempts of one folder: the older writes nothing."""

from __future__ import annotations

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
