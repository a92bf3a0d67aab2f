"""The wrapper around a launcher in a step, in real shells: who hears of the time limit, whoever Slurm signals."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from batchfiles.fixes.mending import mended
from batchfiles.slurm.request import SiteFacts
from tests.support.waiting import until

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --exclusive --time=1:00:00 --output=%j\nset -eo pipefail\n"


SHELLS = [shell for shell in ("bash", "dash", "busybox sh") if shutil.which(shell.partition(" ")[0])]


def mended_with(task: str) -> str:
    return mended(Path("a.sbatch"), f"{HEAD}srun {task}\n".encode(), SiteFacts(), unsafe=True).after.decode()


def step(task: str, shell: str) -> str:
    """Return a line of bash that becomes the step of the mended file, with `shell` in the place of sh."""
    after = mended_with(task)
    block = after[after.index("\npass_on_usr1='") : after.index("\nasked=")]
    line = next(line for line in after.splitlines() if line.startswith("srun "))
    assert f"""sh -c "$pass_on_usr1" - {task} &""" in line
    return f"{block}\nexec {shell} {line[line.index('-c ') :].removesuffix(' &')}"


@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("task", ["./unseen.sh", "bash -c './unseen.sh'"])
@pytest.mark.parametrize("shell", SHELLS)
def test_ranks_below_a_script_that_nobody_sees_hear_of_the_limit(
    tmp_path: Path, shell: str, task: str, to_all: bool
) -> None:
    with_rank(tmp_path)
    started = subprocess.Popen(["bash", "-c", step(task, shell)], cwd=tmp_path, start_new_session=True)
    try:
        until(lambda: (tmp_path / "ready").exists(), "the rank's handler")
        (os.killpg if to_all else os.kill)(started.pid, signal.SIGUSR1)
        assert started.wait(100) == 7
    finally:
        started.kill()
    assert ((tmp_path / "saved").exists(), (tmp_path / "twice").exists()) == (True, False)


def with_rank(folder: Path) -> None:
    """Write unseen.sh, which starts a rank, in a session of its own, that saves and ends with 7."""
    (folder / "rank.py").write_text(
        "import os, pathlib, signal, subprocess, sys, time\n"
        "def save(*_):\n    pathlib.Path('saved' if worker else 'twice').touch()\n"
        "    time.sleep(0.3)\n    helper.kill()\n    os.kill(worker, signal.SIGKILL)\n    sys.exit(7)\n"
        "helper = subprocess.Popen(['sleep', '60'])\n"  # it has no handler
        "signal.signal(signal.SIGUSR1, save)\n"
        "worker = os.fork()\n"  # it has that of its parent, as a loader's have
        "if worker:\n    pathlib.Path('ready').touch()\ntime.sleep(60)\n"
    )
    launcher = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'rank.py'], start_new_session=True))"
    program(folder / "unseen.sh", f'{shlex.quote(sys.executable)} -c "{launcher}"')


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def test_ranks_in_a_container_of_the_batch_shell_hear_of_the_limit_and_the_job_starts_again(tmp_path: Path) -> None:
    text = HEAD.replace("nodes=2", "nodes=1") + "apptainer run --nv a.sif llamafactory-cli train\n"
    after = mended(Path("a.sbatch"), text.encode(), SiteFacts(), unsafe=True).after.decode()
    with_rank(tmp_path)
    program(tmp_path / "apptainer", './unseen.sh "$@"\nexit $?')
    program(tmp_path / "scontrol", 'touch "$1"')
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "5"}
    started = subprocess.Popen(["bash", "-c", after], cwd=tmp_path, env=environment, start_new_session=True)
    try:
        until(lambda: (tmp_path / "ready").exists(), "the rank's handler")
        os.kill(started.pid, signal.SIGUSR1)
        assert started.wait(100) == 7
    finally:
        started.kill()
    assert all((tmp_path / name).exists() for name in ("saved", "requeue"))


@pytest.mark.parametrize("shell", SHELLS)
def test_without_proc_a_training_starts_and_gives_its_code(tmp_path: Path, shell: str) -> None:
    line = step("./unseen.sh 'a b'", shell).replace("/proc/", "/nowhere/")
    program(tmp_path / "unseen.sh", 'kill -USR1 $PPID\nsleep 0.1\n[ "$1" = "a b" ] && exit 7')
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, check=False).returncode == 7


def test_shellcheck_has_nothing_to_say_of_a_mended_file(needs: Callable[[str], Path]) -> None:
    said = subprocess.run(
        [needs("shellcheck"), "-"],
        input=mended_with("torchrun --standalone train.py"),
        text=True,
        check=False,
        capture_output=True,
    )
    assert said.stdout == ""


def test_the_code_of_a_training_that_ended_before_the_wait_is_the_jobs() -> None:
    after = mended_with("python train.py")
    waits = after[after.index("training=$!") : after.index("\n[ -z")].removeprefix("training=$!\n")
    ended = f"(exit 3) & training=$!\nwhile kill -0 $training 2>/dev/null; do :; done\n{waits}\nexit ${{code:-0}}\n"
    assert subprocess.run(["bash", "-c", ended], check=False).returncode == 3
