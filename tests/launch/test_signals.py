"""launch.py as a process: what it hands on to its ranks, and how it ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import LIMIT_S, command_of
from tests.support.programs import ran
from trainjob.contract import exits
from trainjob.contract.paths import CONTRACT, RunPaths
from trainjob.launch.options import GRACE_S
from trainjob.records import attempts

# Writes each signal's name, and ends after TERM unless it is deaf. Not by `print`: a signal may arrive in the middle of
# another one, and what a stream is writing can't be interrupted by more.
LISTENS = """\
import os, signal, sys, time
told = []
def heard(number, frame):
    os.write(1, b"%s\\n" % signal.Signals(number).name.encode())
    told.append(number)
signal.signal(signal.SIGUSR1, heard)
signal.signal(signal.SIGTERM, heard)
print("ready", flush=True)
while "deaf" in sys.argv or signal.SIGTERM not in told:
    time.sleep(0.02)
"""


# As scripts for sbatch do it: the shell waits, so that its trap runs at once. Again and again, because the signal may
# arrive before it does.
TRAPS = """\
trap 'echo SIGUSR1; told=1' USR1
echo ready
while [ -z "$told" ]; do sleep 0.1 & wait $!; done
exit 0
"""


class Launched:
    """A launcher with two ranks, and what they have printed."""

    def __init__(
        self,
        folder: Path,
        *command: str,
        flags: tuple[str, ...] = (),
        program: tuple[str, ...] = (sys.executable, "-c"),
        launcher: tuple[str, ...] = ("-m", "trainjob.launch"),
    ) -> None:
        self.folder = folder
        (folder / "code").mkdir()
        # As a shell's background job, which is born with INT ignored.
        deaf = ["bash", "-c", 'trap "" INT; exec "$@"', "-"]
        launch = [*deaf, sys.executable, *launcher, "--launcher", "local", "--instances", "2"]
        words = [*launch, *flags, str(folder), "--", *program, *command]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def log(self, rank: int) -> list[str]:
        path = self.folder / "logs" / f"rank-{rank:04d}.log"
        return path.read_text().splitlines()[1:] if path.exists() else []

    def wait_until(self, found: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not found():
            assert time.monotonic() < deadline, [self.log(0), self.log(1)]
            time.sleep(0.01)

    def wait_until_both_say(self, word: str) -> None:
        self.wait_until(lambda: word in self.log(0) and word in self.log(1))

    def ended(self) -> tuple[int, str]:
        _, message = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, message


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    made: list[Launched] = []

    def launch(*command: str, **others: tuple[str, ...]) -> Launched:
        made.append(Launched(tmp_path, *command, **others))
        return made[-1]

    yield launch
    for one in made:
        one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize(
    ("sent", "heard"),
    [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGTERM"), (signal.SIGHUP, "SIGTERM")],
    ids=["TERM", "INT", "HUP"],
)
def test_every_rank_is_told_to_end(launched: Callable[..., Launched], sent: int, heard: str) -> None:
    one = launched(LISTENS)
    one.wait_until_both_say("ready")
    one.process.send_signal(sent)
    assert one.ended()[0] == 0
    assert [one.log(rank) for rank in (0, 1)] == [["ready", heard]] * 2


@pytest.mark.parametrize("module", ["trainjob.launch", "trainjob.launch.once"])
def test_an_exit_code_is_known_where_the_signal_of_ended_children_is_ignored(tmp_path: Path, module: str) -> None:
    (tmp_path / "code").mkdir()
    step = [{"shell": "trap; exit 3"}]
    asked = {"cluster": {"file": {}}, "job": {"once": {"job": step}}}
    job = {"contract": CONTRACT, "train": None, "command": ["true"], "environment": {}, "asked": asked}
    RunPaths(tmp_path).job.write_text(json.dumps(job))
    words = [sys.executable, "-m", module, str(tmp_path)]
    if module == "trainjob.launch":
        words += ["--launcher", "local", "--", "sh", "-c", "exit 3"]
    ended = subprocess.run(
        words,
        env={**os.environ, "TRAINJOB_RUN_DIR": str(tmp_path), "TRAINJOB_ATTEMPT": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 3
    assert RunPaths(tmp_path).end_mark(1).exists() == (module == "trainjob.launch"), "bash may lose it"


def test_who_has_sent_a_signal_that_the_job_script_did_not_is_noted(launched: Callable[..., Launched]) -> None:
    one = launched(LISTENS)
    one.wait_until_both_say("ready")
    one.process.send_signal(signal.SIGUSR1)  # as its job script does
    one.wait_until_both_say("SIGUSR1")
    noted = RunPaths(one.folder).bypassed(1, "TERM")
    with subprocess.Popen(["bash", "-c", f"kill -TERM {one.process.pid}; read -r", "-"], stdin=subprocess.PIPE) as bash:
        assert one.ended()[0] == 0
        assert bash.stdin is not None
        bash.stdin.close()
    assert (
        f"the launcher of rank 0 on {os.uname().nodename}, sent by bash (process {bash.pid} of user "
        in noted.read_text()
    )
    assert not RunPaths(one.folder).bypassed(1, "USR1").exists()


def test_what_ends_the_others_once_a_rank_has_failed_is_not_noted(launched: Callable[..., Launched]) -> None:
    one = launched(LISTENS)
    one.wait_until_both_say("ready")
    paths = RunPaths(one.folder)
    paths.failure.write_text("{}")  # as the launcher of another node has it, before srun hears of its end
    with subprocess.Popen(["bash", "-c", f"kill -TERM {one.process.pid}; read -r", "-"], stdin=subprocess.PIPE) as bash:
        assert one.ended()[0] == 0
        assert bash.stdin is not None
        bash.stdin.close()
    assert not paths.bypassed(1, "TERM").exists()


def test_a_rank_that_term_ends_a_moment_before_its_launcher_hears_of_it_has_not_failed(
    launched: Callable[..., Launched],
) -> None:
    one = launched(
        "import os, signal, subprocess, time\n"
        "if os.environ['RANK'] == '1': time.sleep(60)\n"
        "subprocess.Popen(['bash', '-c', f'sleep 0.1; kill -TERM {os.getppid()}'])\n"
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    assert "failed with exit code" not in one.ended()[1]
    assert RunPaths(one.folder).terminated(1).exists()
    assert not RunPaths(one.folder).failure.exists()


def test_usr1_is_handed_on_and_ends_nothing(launched: Callable[..., Launched]) -> None:
    one = launched(LISTENS)
    one.wait_until_both_say("ready")
    one.process.send_signal(signal.SIGUSR1)
    one.wait_until_both_say("SIGUSR1")
    assert one.process.poll() is None
    one.process.terminate()
    assert one.ended()[0] == 0


def test_usr1_waits_until_a_rank_can_take_it(launched: Callable[..., Launched]) -> None:
    # The rank sleeps before it listens: sent right to it, USR1 would be lost, or end it.
    one = launched("import time; print('begun', flush=True); time.sleep(1)\n" + LISTENS)
    one.wait_until_both_say("begun")
    one.process.send_signal(signal.SIGUSR1)
    one.wait_until_both_say("SIGUSR1")
    one.process.terminate()
    assert one.ended()[0] == 0


def test_usr1_that_is_repeated_is_handed_on_once(launched: Callable[..., Launched]) -> None:
    one = launched(LISTENS)
    one.wait_until_both_say("ready")
    for _ in range(5):
        one.process.send_signal(signal.SIGUSR1)
        one.wait_until_both_say("SIGUSR1")
    one.process.terminate()
    assert one.ended()[0] == 0
    assert [one.log(rank).count("SIGUSR1") for rank in (0, 1)] == [1, 1]


HEARS = """\
import pathlib, signal, sys, time
run = pathlib.Path(sys.argv[1])
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
(run / ".request").write_text("1\\n")
while not heard:
    time.sleep(0.05)
"""


# srun gives a task a pipe, and closes it, where it has no input itself.
@pytest.mark.parametrize("has_pipe", [False, True])
def test_under_slurm_without_an_input_of_the_jobs_a_file_asks(tmp_path: Path, has_pipe: bool) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "attempt").write_text("1\n")
    names = ("PROCID", "LOCALID", "NODEID")
    job = {f"SLURM_{name}": "0" for name in names} | {"SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_JOB_ID": "7"}
    job |= {"SLURM_STEP_TASKS_PER_NODE": "1"}
    job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29333", "TRAINJOB_ATTEMPT": "1", "TRAINJOB_DEVICE": "cpu"}
    words = ["-m", "trainjob.launch", "--launcher", "slurm", str(tmp_path), "--", sys.executable, "-c", HEARS]
    environ = {**os.environ, **job, "TRAINJOB_RUN_DIR": str(tmp_path)}
    launcher = [sys.executable, *words, str(tmp_path)]
    closed: dict[str, Any] = {"input": b""} if has_pipe else {"stdin": subprocess.DEVNULL}
    subprocess.run(launcher, env=environ, timeout=LIMIT_S, check=True, **closed)
    assert (tmp_path / ".asked.1").read_text().startswith("USR1")


# Forked workers inherit the handlers of the rank that has forked them.
HAS_WORKERS = """\
if os.fork() == 0:
    while os.getppid() != 1:
        time.sleep(0.02)
"""


def test_a_rank_is_asked_and_its_workers_are_not(launched: Callable[..., Launched]) -> None:
    handles, ready, waits = LISTENS.partition("print(")
    one = launched(handles + HAS_WORKERS + ready + waits)
    one.wait_until_both_say("ready")
    one.process.send_signal(signal.SIGUSR1)
    one.wait_until_both_say("SIGUSR1")
    one.process.terminate()
    assert one.ended()[0] == 0
    assert [one.log(rank).count("SIGUSR1") for rank in (0, 1)] == [1, 1]


def test_a_rank_that_handles_term_alone_is_asked_by_it(launched: Callable[..., Launched]) -> None:
    one = launched(LISTENS.replace("signal.signal(signal.SIGUSR1, heard)\n", ""))
    one.wait_until_both_say("ready")
    one.process.send_signal(signal.SIGUSR1)
    assert one.ended()[0] == 0
    assert [one.log(rank) for rank in (0, 1)] == [["ready", "SIGTERM"]] * 2
    assert (one.folder / ".asked.1").read_text().startswith("TERM ")


# As a full disk does, it keeps the launcher from writing a new file about a request.
REFUSED = """\
import os
if os.environ["RANK"] == "0":
    os.mkdir("%s/..asked.1.%d.part" % (os.environ["TRAINJOB_RUN_DIR"], os.getppid()))
"""


def test_a_request_takes_the_space_that_was_kept_for_it_on_a_full_disk(launched: Callable[..., Launched]) -> None:
    one = launched(REFUSED + LISTENS)
    one.wait_until_both_say("ready")
    one.wait_until((one.folder / ".asked.room").exists)
    one.process.terminate()
    assert one.ended()[0] == 0
    found = attempts.request(RunPaths(one.folder), 1)
    assert found is not None
    assert found.signal == "TERM"


def test_a_request_that_the_disk_does_not_take_is_told_by_the_code(launched: Callable[..., Launched]) -> None:
    one = launched(REFUSED + LISTENS)
    one.wait_until_both_say("ready")
    one.wait_until((one.folder / ".asked.room").exists)
    (one.folder / ".asked.room").unlink()
    one.process.terminate()
    assert one.ended()[0] == exits.UNRECORDED_REQUEST
    assert not (one.folder / ".asked.1").exists()


def test_a_rank_that_never_listens_lives_on(launched: Callable[..., Launched]) -> None:
    one = launched(
        "import signal, time; print('begun', signal.getsignal(signal.SIGUSR1).name, flush=True); time.sleep(1)"
    )
    one.wait_until_both_say("begun SIG_DFL")
    one.process.send_signal(signal.SIGUSR1)
    assert one.ended() == (0, "")


HOW_STARTED = {
    "bash": ("bash",),
    "env": ("env", "A=1", "bash"),
    "nice": ("nice", "bash"),
    "timeout": ("timeout", "100", "bash"),
    "a shell": ("bash", "-c", 'bash "$0"; exit $?'),
    "a Python": (sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(['bash', sys.argv[1]]))"),
}


@pytest.mark.parametrize("how", HOW_STARTED)
def test_a_shell_script_that_traps_usr1_hears_it(launched: Callable[..., Launched], tmp_path: Path, how: str) -> None:
    (tmp_path / "train.sh").write_text(TRAPS)
    one = launched(str(tmp_path / "train.sh"), program=HOW_STARTED[how])
    one.wait_until_both_say("ready")
    one.process.send_signal(signal.SIGUSR1)
    one.wait_until_both_say("SIGUSR1")
    assert one.ended() == (0, "")


def test_it_leaves_a_word_that_ranks_were_told_to_end(launched: Callable[..., Launched]) -> None:
    one = launched(LISTENS)
    one.wait_until_both_say("ready")
    assert not (one.folder / ".terminated.1").exists()
    one.process.terminate()
    assert one.ended()[0] == 0
    assert (one.folder / ".terminated.1").exists()


UNDER_SRUN = {"PROCID": "0", "LOCALID": "0", "NTASKS": "1", "STEP_TASKS_PER_NODE": "1"}


@pytest.fixture
def under_srun(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in UNDER_SRUN.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    return monkeypatch


def test_under_srun_a_checkpoint_is_no_bad_exit(
    launched: Callable[..., Launched], under_srun: pytest.MonkeyPatch
) -> None:
    under_srun.setenv("MASTER_ADDR", "127.0.0.1")
    under_srun.setenv("MASTER_PORT", "20000")
    one = launched("import sys; sys.exit(75)", flags=("--launcher", "slurm"))
    assert one.ended() == (0, "")
    assert RunPaths(one.folder).end_mark(1, 0).read_text() == "0\n", "srun may never say so"


def test_under_srun_ranks_must_know_where_they_meet(
    launched: Callable[..., Launched], under_srun: pytest.MonkeyPatch
) -> None:
    under_srun.delenv("MASTER_ADDR", raising=False)
    under_srun.setenv("MASTER_PORT", "20000")
    code, message = launched("pass", flags=("--launcher", "slurm")).ended()
    assert code == 1
    assert message.startswith("trainjob: MASTER_ADDR is not set; a job script sets it before srun")


def test_a_rank_that_ignores_term_is_killed_after_the_grace(launched: Callable[..., Launched]) -> None:
    one = launched(LISTENS, "deaf", flags=("--grace-s", "0.2"))
    one.wait_until_both_say("ready")
    began = time.monotonic()
    one.process.terminate()
    assert one.ended()[0] == 137
    assert "SIGTERM" in one.log(0)
    assert 0.2 <= time.monotonic() - began < GRACE_S  # which the launcher would have granted without the flag


# Writes the files of a checkpoint one after the other, and handles no signal.
SAVES = """\
import os, sys, time
os.makedirs("checkpoint-7", exist_ok=True)
for part in range(int(sys.argv[1])):
    with open("checkpoint-7/part-%d.pt" % part, "w") as file:
        file.write("weights")
    if part == 0:
        print("saves", flush=True)
    time.sleep(0.3)
open("checkpoint-7/complete", "w").close()
time.sleep(1000)
"""


def test_term_waits_for_a_checkpoint_that_is_being_written(launched: Callable[..., Launched]) -> None:
    one = launched(SAVES, "8")
    one.wait_until_both_say("saves")
    one.process.send_signal(signal.SIGTERM)
    code, message = one.ended()
    assert (one.folder / "code/checkpoint-7/complete").exists(), message
    assert code == 143
    assert message == "trainjob: a checkpoint is being written: the ranks get TERM later\n"
    assert not (one.folder / "failure.json").exists()
    assert not RunPaths(one.folder).asked(1).exists(), "no handler of a rank got a request"


def test_term_waits_for_no_checkpoint_longer_than_half_of_the_grace(launched: Callable[..., Launched]) -> None:
    one = launched(SAVES, "1000", flags=("--grace-s", "8"))
    one.wait_until_both_say("saves")
    began = time.monotonic()
    one.process.send_signal(signal.SIGTERM)
    code, _ = one.ended()
    assert code == 143, "by TERM, not by KILL"
    assert time.monotonic() - began >= 4.0


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK"])
def test_under_mpirun_which_kills_launchers_a_second_later_ranks_get_term_at_once(
    launched: Callable[..., Launched], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "0")
    one = launched(SAVES, "1000")
    one.wait_until_both_say("saves")
    one.process.send_signal(signal.SIGTERM)
    assert one.ended() == (143, "")


LAUNCHES = "import runpy; runpy.run_module('trainjob.launch', run_name='__main__', alter_sys=True)\n"
NO_THREADS = """\
from trainjob.launch.ranks import saving
def refuse(*given, **named): raise RuntimeError("can't start new thread")
saving.threading.Thread = refuse
"""


def test_where_no_thread_can_look_at_a_save_ranks_get_term_at_once(launched: Callable[..., Launched]) -> None:
    one = launched(SAVES, "1000", launcher=("-c", NO_THREADS + LAUNCHES))
    one.wait_until_both_say("saves")
    one.process.send_signal(signal.SIGTERM)
    code, message = one.ended()
    assert (code, message) == (143, ""), "by TERM, not by KILL"


# Says which logs there are as the space is taken.
SEES_LOGS = """\
import sys
from trainjob.records import attempts
def sees(paths): sys.stderr.write(f"{len(list(paths.folder.glob('logs/*.log')))} ranks have begun\\n")
attempts.keep_room_for_request = sees
"""


def test_no_rank_has_begun_when_space_for_a_request_is_taken(launched: Callable[..., Launched]) -> None:
    one = launched("", launcher=("-c", SEES_LOGS + LAUNCHES))
    assert one.ended() == (0, "0 ranks have begun\n")


def test_a_rank_that_ends_while_term_waits_was_not_asked(launched: Callable[..., Launched]) -> None:
    one = launched(SAVES.replace("time.sleep(1000)", ""), "3")
    one.wait_until_both_say("saves")
    one.process.send_signal(signal.SIGTERM)
    assert one.ended()[0] == 0
    assert not RunPaths(one.folder).asked(1).exists()


def test_a_cancelled_launcher_blames_no_rank(launched: Callable[..., Launched]) -> None:
    one = launched("import time; print('ready', flush=True); time.sleep(60)")
    one.wait_until_both_say("ready")
    one.process.terminate()
    assert one.ended() == (143, "")
    assert not (one.folder / "failure.json").exists()


def test_what_a_rank_prints_is_in_its_log_at_once(launched: Callable[..., Launched]) -> None:
    one = launched("import time; print('began'); time.sleep(60)")
    one.wait_until_both_say("began")
    assert one.process.poll() is None


def test_a_user_may_have_ranks_print_in_blocks(
    launched: Callable[..., Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    one = launched("import os, sys; print(sys.stdout.write_through); os._exit(0)")
    assert one.ended() == (0, "")
    assert one.log(0) == []


def test_the_first_failing_ranks_code_is_the_launchers(launched: Callable[..., Launched]) -> None:
    one = launched("import os, sys, time; time.sleep(60 * int(os.environ['RANK'])); sys.exit(9)")
    assert one.ended() == (9, "trainjob: rank 0 failed with exit code 9\n")


def test_ranks_that_have_checkpointed_on_request_are_no_failure(launched: Callable[..., Launched]) -> None:
    one = launched("import os, sys; sys.exit(75 * int(os.environ['RANK']))")
    assert one.ended() == (75, "")
    assert not (one.folder / "failure.json").exists()


def test_ranks_hear_ctrl_c_though_the_launcher_was_born_deaf_to_it(launched: Callable[..., Launched]) -> None:
    one = launched("import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)")
    assert one.ended()[0] == 0
    assert one.log(0) == ["True"]


def test_a_folder_that_is_not_there_is_named(launched: Callable[..., Launched]) -> None:
    one = launched("pass", flags=("--working-folder", "code/nowhere"))
    assert one.ended()[0] == 127
    assert "in " + str(one.folder / "code/nowhere") in one.log(0)[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--instances", "0"), "trainjob: --instances is 0: at least 1 rank is needed\n"),
        (("--launcher", "slurm"), "trainjob: launcher slurm did not set SLURM_PROCID"),
        (("--secrets-file", "/nowhere/secrets.env"), "trainjob: secrets_file /nowhere/secrets.env does not exist"),
    ],
)
def test_what_can_not_be_launched_is_said_without_a_traceback(
    launched: Callable[..., Launched], flags: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    code, printed = launched("pass", flags=flags).ended()
    assert code == 1
    assert printed.startswith(message)
    assert "Traceback" not in printed


def test_a_launcher_whose_parent_has_gone_already_starts_nothing_that_stays(launched: Callable[..., Launched]) -> None:
    one = launched("import time; time.sleep(60)", flags=("--parent", str(os.getppid())))
    assert one.ended()[0] in (-signal.SIGTERM, 143)


def test_nothing_of_a_rank_outlives_the_launcher(launched: Callable[..., Launched]) -> None:
    slips_away = "import subprocess; subprocess.run(['bash', '-c', 'env -i setsid sleep 304 & echo $!'])"
    one = launched(slips_away)
    assert one.ended()[0] == 0
    assert ["304" in command_of(int(one.log(rank)[0])) for rank in (0, 1)] == [False, False]


def test_the_launcher_imports_no_torch_and_nothing_to_install() -> None:
    listing = "import sys; import trainjob.launch.main; print(*sys.modules)"
    found = ran([sys.executable, "-c", listing], code=0).stdout.split()
    assert not {"torch", "numpy", "yaml", "typer"} & set(found)
