"""What a batch file's processes record: real processes, each with the stand-ins on its path, and no torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from batchfiles.rehearsal.recording import RecordedProcess, calls_in, processes_in
from tests.support import ROOT
from tests.support.programs import ran

BATCH = ROOT / "batchfiles/rehearsal/programs"
HOOKS = ROOT / "trainjob/launch/hooks"


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    folder = tmp_path / "seen"
    folder.mkdir()
    return folder


def environ(seen: Path, *folders: str, **more: str) -> dict[str, str]:
    path = ":".join([str(HOOKS), *folders])
    programs = seen.parent / "programs"
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": path,
        "BASH_ENV": str(BATCH / "bash_env.sh"),
        "SLURMD_NODENAME": "node1",
        "TRAINJOB_SEEN": str(seen),
        "TRAINJOB_SEEN_PROGRAMS": str(programs),
        "TRAINJOB_SEEN_PYTHONPATH": path,
        "TRAINJOB_SEEN_PATH": os.environ["PATH"],
        **more,
    }


def programs(seen: Path, *names: str) -> None:
    folder = seen.parent / "programs"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes((BATCH / "program.sh").read_bytes())
        (folder / name).chmod(0o755)


def process_of(seen: Path, program: str, *words: str, code: int = 0, **environment: str) -> RecordedProcess:
    ran([sys.executable, "-c", program, *words], environ=environ(seen, **environment), code=code)
    (found,) = processes_in(seen)
    return found


def test_a_process_keeps_its_words_its_exit_code_and_its_error(seen: Path) -> None:
    found = process_of(seen, "import sys; sys.exit(7)", "a b", "", code=7)
    assert found.words[-2:] == ("a b", "")
    assert (found.node, found.pid > 0, found.has_ended, found.error) == ("node1", True, True, None)


def test_the_first_missing_file_is_named_with_its_line(seen: Path) -> None:
    found = process_of(seen, "open('data/x.bin')", code=1)
    assert (found.missing, found.error) == (
        "data/x.bin",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.bin'",
    )


def test_handlers_and_the_signals_that_came_are_seen_and_work_as_before(seen: Path) -> None:
    found = process_of(
        seen,
        "import os, signal\n"
        "def stop(number, frame): print('stopped')\n"
        "assert signal.signal(signal.SIGUSR1, stop) == signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGUSR1) is stop\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is stop\n"
        "signal.signal(signal.SIGTERM, stop)",
    )
    assert (found.signals, found.handles) == (("USR1",), ("TERM",))


def test_handlers_of_real_time_signals_work_as_before(seen: Path) -> None:
    """Most of them have no name. Names of the arguments are the standard library's, and a wrong number is its error."""
    found = process_of(
        seen,
        "import os, signal\n"
        "came = []\n"
        "signal.signal(signalnum=signal.SIGRTMIN + 3, handler=lambda number, frame: came.append(number))\n"
        "assert callable(signal.getsignal(signalnum=signal.SIGRTMIN + 3))\n"
        "os.kill(os.getpid(), signal.SIGRTMIN + 3)\n"
        "assert came == [signal.SIGRTMIN + 3]\n"
        "try:\n"
        "    signal.signal(999, came.append)\n"
        "except ValueError as error:\n"
        "    assert 'out of range' in str(error), error\n",
    )
    assert (found.error, found.signals, found.handles) == (None, ("RTMIN+3",), ("RTMIN+3",))


def test_a_signal_that_comes_while_the_record_is_written_is_not_lost(seen: Path) -> None:
    """Its handler writes the same file, in the middle of the write that it interrupts; and may raise an error."""
    found = process_of(
        seen,
        "import json, os, signal, sys\n"
        "class Late(OSError): pass\n"
        "def late(number, frame):\n"
        "    raise Late\n"
        "signal.signal(signal.SIGUSR1, lambda number, frame: None)\n"
        "signal.signal(signal.SIGUSR2, late)\n"
        "replace = os.replace\n"
        "def replaces(*files):\n"
        "    os.replace = replace\n"
        "    signal.raise_signal(wanted)\n"
        "    replace(*files)\n"
        "os.replace, wanted = replaces, signal.SIGUSR1\n"
        "signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))\n"
        "from trainjob_hooks import batch\n"
        "batch.record().add(more='x' * 5000)\n"
        "assert os.replace is replace\n"
        "os.replace, wanted = replaces, signal.SIGUSR2\n"
        "try:\n"
        "    batch.record().add(more='')\n"
        "except Late:\n"
        "    sys.exit(7)",
        code=7,
    )
    assert found.signals == ("USR1", "USR2")


def test_the_sitecustomize_behind_it_has_its_turn(seen: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    words = [sys.executable, "-c", "print('done')"]
    gpu = str(BATCH.parent / "gpu")
    ended = ran(words, environ=environ(seen, gpu, str(tmp_path)))
    assert ended.stdout.split() == ["mine", "done"], ended.stderr


def bash(seen: Path, script: str) -> str:
    programs(
        seen, "module", "conda", "apptainer", "docker", "shifter", "pip", "python3", "uv", "virtualenv", "nsys", "ncu"
    )
    ended = ran(["bash", "-euc", script], folder=seen.parent, environ=environ(seen), code=0)
    return ended.stdout


def test_what_is_not_here_is_passed_over_and_recorded(seen: Path) -> None:
    bash(
        seen,
        "module load x; virtualenv --no-download venv; . venv/bin/activate; source /opt/none/set.sh; "
        "cd /none/at/all; conda activate y; pip install z",
    )
    assert [call.words for call in calls_in(seen)] == [
        ("module", "load", "x"),
        ("virtualenv", "--no-download", "venv"),
        ("source", "venv/bin/activate"),
        ("source", "/opt/none/set.sh"),
        ("cd", "/none/at/all"),
        ("conda", "activate", "y"),
        ("pip", "install", "z"),
    ]


def test_what_is_here_is_sourced_and_the_recording_survives_it(seen: Path) -> None:
    activate = seen.parent / "venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("PATH=/usr/bin:/bin; HERE=yes; module() { echo real; }")
    assert (
        bash(seen, "source venv/bin/activate; echo $HERE; module load x; PYTHONPATH=/mine python3 -c 'print(1)'")
        == "yes\n1\n"
    )
    assert [call.name for call in calls_in(seen)] == ["module", "python3"]
    assert len(processes_in(seen)) == 1


@pytest.mark.parametrize(
    "start",
    [
        "apptainer -q exec --nv -B /a:/b --env A=1 image.sif",
        "apptainer run image.sif",
        "docker run --gpus all -v /a:/b -it --rm image:1",
        "shifter --image=docker:x --module=gpu",
        "conda run -n torch --no-capture-output",
        "uv run --with x",
        "nsys profile -o report --trace cuda,nvtx -t cuda --stats=true",
        "ncu --set full -o report",
    ],
)
def test_what_runs_inside_a_container_or_an_environment_runs_here(seen: Path, start: str) -> None:
    assert bash(seen, f"{start} printf '<%s>' 'a b' '' -B") == "<a b><><-B>"


def test_an_environment_that_is_not_here_is_left_as_it_was_entered(seen: Path) -> None:
    assert bash(seen, "source /nowhere/bin/activate mine; deactivate; echo x") == "x\n"


def test_an_image_that_only_a_module_names_is_left_out(seen: Path) -> None:
    assert bash(seen, "apptainer exec --nv ${SIF-} bash -c 'echo x'") == "x\n"


def test_a_folder_that_is_not_here_is_copied_as_an_empty_one(seen: Path) -> None:
    programs(seen, "cp")
    ran(["cp", "-r", "/nowhere/code", "."], folder=seen.parent, environ=environ(seen))
    assert list((seen.parent / "code").iterdir()) == []


def test_an_environment_is_made_by_no_rehearsal(seen: Path) -> None:
    assert bash(seen, "python3 -m venv own; python3 -m pip install nothing; ls") == "programs\nseen\n"


def test_uv_runs_a_file_and_a_module_by_python(seen: Path) -> None:
    (seen.parent / "own.py").write_text("import sys; print(sys.argv[1:])")
    assert bash(seen, "uv run --with x own.py 1; cd .; uv run -m own 2") == "['1']\n['2']\n"


def test_what_a_missing_wrapper_of_a_site_starts_runs_without_it(seen: Path) -> None:
    programs(seen, "site_wrapper")
    words = ["site_wrapper", "--image", "x.sif", "exec", "bash", "-c", "exit 7"]
    ran(words, environ=environ(seen, TRAINJOB_SEEN_MISSING="other site_wrapper"), code=7)
    assert [one.words for one in calls_in(seen)] == [tuple(words)]
    ran(words, environ=environ(seen, TRAINJOB_SEEN_MISSING="other"), code=127)


def test_functions_that_a_file_exports_reach_what_it_starts(seen: Path) -> None:
    programs(seen, "srun")
    (seen.parent / "real").mkdir()
    (seen.parent / "real/srun").symlink_to("/usr/bin/env")
    text = "copy() { echo theirs; }; export -f copy; srun bash -c copy"
    path = f"{seen.parent}/programs:{seen.parent}/real:{os.environ['PATH']}"
    assert ran(["bash", "-c", text], environ=environ(seen, PATH=path)).stdout == "theirs\n"


def test_a_python_of_another_version_is_the_one_that_is_here(seen: Path) -> None:
    programs(seen, "python2.9")
    words = ["python2.9", "-c", "import sys; sys.exit(7)"]
    ran(words, environ=environ(seen, TRAINJOB_SEEN_MISSING="python2.9"), code=7)
    assert len(processes_in(seen)) == 1


@pytest.mark.skipif(shutil.which("host") is not None, reason="host is here, and is not stood in for")
def test_a_node_of_the_cluster_has_the_address_of_this_one(seen: Path) -> None:
    programs(seen, "host")
    done = ran(
        ["host", "node7"], environ=environ(seen, PATH=f"{seen.parent / 'programs'}:/bin", TRAINJOB_SEEN_MISSING="host")
    )
    assert done.stdout.startswith("node7 has address ")


def test_what_bash_does_not_find_ends_no_file_of_a_proof_unless_the_file_defines_it(seen: Path) -> None:
    script = "set -e; nowhere_load; echo on; {}; echo no"
    for line, given, said in (("--lr 1", "exit", "on\n"), ("setup", "exit setup", "on\n"), ("--lr 1", "", "")):
        environment = environ(seen, TRAINJOB_SEEN_DEFINED=given)
        assert ran(["bash", "-c", script.format(line)], environ=environment, code=127).stdout == said


def test_the_addresses_of_a_node_are_those_that_its_name_has(seen: Path) -> None:
    programs(seen, "hostname")
    real = seen.parent / "real"
    real.mkdir()
    (real / "hostname").write_text('#!/bin/sh\necho "real ${*:-name}"\n')
    (real / "hostname").chmod(0o755)
    path = f"{seen.parent / 'programs'}:{real}:{os.environ['PATH']}"
    words = ["sh", "-c", "hostname -I; hostname --all-ip-addresses; hostname -s; hostname"]
    ended = ran(words, environ=environ(seen, PATH=path), code=0)
    assert ended.stdout.splitlines() == ["real -i", "real -i", "real -s", "real name"]


def test_what_is_not_here_is_not_copied_and_any_other_failure_stays(seen: Path, tmp_path: Path) -> None:
    programs(seen, "cp", "tar", "ws_find")
    (tmp_path / "a").write_text("x")
    script = 'set -e; W=$(ws_find mine); cp a b; cp -r /nowhere/data "$W/elsewhere"; tar xf /nowhere/x.tar -C .; cp c d'
    ended = ran(["bash", "-c", script], folder=tmp_path, environ=environ(seen), code=1)
    assert "cp: /nowhere/data is not here\n" in ended.stderr
    assert (tmp_path / "b").read_text() == "x"
    assert [call.words for call in calls_in(seen)] == [
        ("ws_find", "mine"),
        ("copy", "/nowhere/data"),
        ("copy", "/nowhere/x.tar"),
    ]


def test_a_file_that_sets_path_anew_takes_no_program_of_the_users_away(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    (tmp_path / "profile").write_text("PATH=/usr/local/bin:/usr/bin:/bin\n")
    own = f"{tmp_path}/own/bin:/usr/bin:/bin"
    given = environ(tmp_path / "seen", PATH=f"{tmp_path}/programs:{own}", TRAINJOB_SEEN_PATH=own)
    for line in (f"source {tmp_path}/profile", "true"):
        done = subprocess.run(
            ["bash", "-c", f"{line}; echo $PATH"], env=given, capture_output=True, text=True, check=True
        )
        assert done.stdout.index("/own/bin") < done.stdout.index("/usr/bin")


def test_git_reaches_no_other_machine_and_is_noted(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    done = subprocess.run(
        ["bash", "-c", "git pull || exit 3; git --version"],
        env=environ(tmp_path / "seen"), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("git version")
    assert [call.words for call in calls_in(tmp_path / "seen")] == [("git", "pull")]
