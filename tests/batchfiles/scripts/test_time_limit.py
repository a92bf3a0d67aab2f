"""The wrapper around a launcher in a step, in a real bash: who hears of the time limit, whoever Slurm signals."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchfiles.fixes.mending import mended
from batchfiles.slurm.request import SiteFacts
from tests.support.waiting import until

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --exclusive --time=1:00:00 --output=%j\nset -eo pipefail\n"


@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("task", ["./unseen.sh", "bash -c './unseen.sh'"])
def test_ranks_below_a_script_that_nobody_sees_hear_of_the_limit(tmp_path: Path, task: str, to_all: bool) -> None:
    (tmp_path / "rank.py").write_text(
        "import os, pathlib, signal, subprocess, sys, time\n"
        "def save(*_):\n    pathlib.Path('saved').touch()\n    helper.kill()\n    sys.exit(7)\n"
        "helper = subprocess.Popen(['sleep', '60'])\n"  # it has no handler
        "signal.signal(signal.SIGUSR1, save)\npathlib.Path('ready').touch()\ntime.sleep(60)\n"
    )
    launcher = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'rank.py'], start_new_session=True))"
    (tmp_path / "unseen.sh").write_text(f'#!/bin/bash\n{shlex.quote(sys.executable)} -c "{launcher}"\n')
    (tmp_path / "unseen.sh").chmod(0o755)
    after = mended(Path("a.sbatch"), f"{HEAD}srun {task}\n".encode(), SiteFacts(), unsafe=True).after.decode()
    command = re.search(rf"bash -c 'trap .* - {re.escape(task)} &\n", after)
    assert command is not None
    step = subprocess.Popen(["bash", "-c", f"exec {command[0][:-3]}"], cwd=tmp_path, start_new_session=True)
    try:
        until(lambda: (tmp_path / "ready").exists(), "the rank's handler")
        (os.killpg if to_all else os.kill)(step.pid, signal.SIGUSR1)
        assert step.wait(30) == 7
    finally:
        step.kill()
    assert (tmp_path / "saved").exists()
