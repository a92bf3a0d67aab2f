"""Another user of the same machine, who may write where runs lie, or can reach it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.attack import Attack
from tests.support.local_runs import Here, Run
from tests.support.programs import ran
from tests.support.waiting import until

KIND = "hostile co-user"
NOBODY = 65534
COMMANDS = ("status RUN", "logs RUN", "logs RUN --rank 0", "report RUN", "cancel RUN", "resume RUN", "export RUN -o x")


@pytest.fixture(autouse=True)
def _second_user(needs: Callable[[str], Path]) -> None:
    needs("second user")


def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
    who = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ran([*who, *words], folder="/", timeout_s=60)


def give_to_nobody(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.fixture
def shared(here: Here, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A runs_dir in which everybody may write, without the sticky bit, reached by everybody."""
    folder = Path("/tmp") / f"trainjob-attack-{os.getpid()}-{tmp_path_factory.mktemp('x').name}"
    folder.mkdir()
    folder.chmod(0o777)
    here.cluster("open", f"runs_dir: {folder}\n")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stopped(here: Here, shared: Path) -> Run:
    """A run that has failed, so that `resume` would start its script."""
    here.write("fails.py", "raise SystemExit(3)\n")
    flags = ("submit", "--cluster", "open", "--no-check", "--instances", "1", "--follow", "--", "python", "fails.py")
    run = here.at(here.json(*flags, code=1)["folder"])
    assert run.folder.parent == shared
    return run


def plant(folder: Path, canary: Path) -> None:
    """Have everything that a run executes leave a trace."""
    for name in ("job.sh", "code/trainjob/launch/shell/record.sh"):
        (folder / name).write_text(f"touch {canary}\n")
    (folder / "code/trainjob/launch/__init__.py").write_text(f"open({str(canary)!r}, 'w')\n")


def swapped_for_the_folder_of_another(run: Run, canary: Path) -> None:
    shutil.move(run.folder, f"{run.folder}.mine")
    shutil.copytree(f"{run.folder}.mine", run.folder, symlinks=True)
    plant(run.folder, canary)
    give_to_nobody(run.folder)


def swapped_for_a_link(run: Run, canary: Path) -> None:
    swapped_for_the_folder_of_another(run, canary)
    shutil.move(run.folder, f"{run.folder}.theirs")
    run.folder.symlink_to(f"{run.folder}.theirs")


def swapped_for_a_link_to_an_own_folder(run: Run, canary: Path) -> None:
    shutil.move(run.folder, f"{run.folder}.mine")
    plant(Path(f"{run.folder}.mine"), canary)
    run.folder.symlink_to(f"{run.folder}.mine")


def writable_by_everybody(run: Run, canary: Path) -> None:
    run.folder.chmod(0o777)
    plant(run.folder, canary)


SWAPS = (
    swapped_for_the_folder_of_another,
    swapped_for_a_link,
    swapped_for_a_link_to_an_own_folder,
    writable_by_everybody,
)


@pytest.mark.parametrize("swap", SWAPS)
def test_no_command_uses_a_run_that_somebody_else_could_have_written(
    attack: Attack, here: Here, stopped: Run, tmp_path: Path, swap: Callable[[Run, Path], None]
) -> None:
    canary = tmp_path / "canary"
    swap(stopped, canary)
    with attack(KIND) as trials:
        for name, commands in ((stopped.id, COMMANDS), (str(stopped.folder), ("status RUN", "resume RUN"))):
            for command in commands:
                with trials.trial(f"{command} of {name}, {swap.__name__}"):
                    ended = here.run(*command.replace("RUN", name).split(), code=1)
                    assert len(ended.stderr.splitlines()) == 1, ended.stderr
                    assert "run directory" in ended.stderr
                    assert not canary.exists()
        with trials.trial(f"list, {swap.__name__}"):
            ended = here.run("list")
            assert "warning: not listed: run directory" in ended.stderr
            assert not canary.exists()


def _others_write(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not stat.S_ISLNK(mode) and mode & 0o022 != 0


def test_a_run_is_its_owners_alone_whatever_the_umask(attack: Attack, here: Here, shared: Path) -> None:
    here.write("works.py", "print('secret')\n")
    here.write("deep/er/module.py", "")
    (here.project / "works.py").chmod(0o666)
    with attack(KIND) as trials:
        for share, mode in (("none", 0o700), ("group", 0o750), ("all", 0o755)):
            here.cluster("shared", f"runs_dir: {shared}\nshare: {share}\n")
            before = os.umask(0)
            try:
                flags = ("--cluster", "shared", "--no-check", "--again", "--instances", "1", "--follow")
                folder = Path(here.json("submit", *flags, "--", "python", "works.py")["folder"])
            finally:
                os.umask(before)
            with trials.trial(f"share: {share}"):
                assert stat.S_IMODE(folder.stat().st_mode) == mode
            with trials.trial(f"share: {share}, what is executed is writable by its owner alone"):
                executed = (folder / "job.sh", folder / "code", *(folder / "code").rglob("*"))
                assert [path for path in executed if path.stat().st_mode & 0o022] == []
            with trials.trial(f"share: {share}, nothing that others reach is writable by them"):
                assert share == "none" or [path for path in folder.rglob("*") if _others_write(path)] == []
            with trials.trial(f"share: {share}, what nobody reads"):
                shown = as_nobody("cat", str(folder / "logs/rank-0000.log"))
                assert ("secret" in shown.stdout) == (share == "all"), shown


def test_a_shared_run_in_which_others_can_write_is_not_started_again(
    attack: Attack, here: Here, shared: Path, tmp_path: Path
) -> None:
    here.write("fails.py", "raise SystemExit(3)\n")
    here.cluster("shared", f"runs_dir: {shared}\nshare: all\n")
    flags = ("submit", "--cluster", "shared", "--no-check", "--instances", "1", "--follow", "--", "python", "fails.py")
    run = here.at(here.json(*flags, code=1)["folder"])
    with attack(KIND) as trials:
        for name in ("job.sh", "code", "code/trainjob/launch/shell/local.sh", "code/project", "code/project/fails.py"):
            with trials.trial(f"{name} is writable"):
                mode = stat.S_IMODE((run.folder / name).stat().st_mode)
                (run.folder / name).chmod(mode | 0o002)
                ended = here.run("resume", run.id, code=1)
                assert name in ended.stderr
                assert "chmod -R go-w" in ended.stderr
                (run.folder / name).chmod(mode)
        with trials.trial("job.sh is a link"):
            (run.folder / "job.sh").rename(tmp_path / "job.sh")
            (run.folder / "job.sh").symlink_to(tmp_path / "job.sh")
            assert "job.sh" in here.run("resume", run.id, code=1).stderr


def test_check_names_a_runs_dir_in_which_anybody_can_replace_a_run(attack: Attack, here: Here, shared: Path) -> None:
    here.write("works.py", "")
    words = ("check", "--cluster", "open", "--", "python", "works.py")
    with attack(KIND) as trials:
        for mode, is_open in ((0o777, True), (0o1777, False), (0o775, False), (0o700, False), (0o2777, True)):
            with trials.trial(f"runs_dir with mode {mode:o}"):
                shared.chmod(mode)
                ended = here.run(*words, code=1 if is_open else 0)
                assert ("anybody can replace what is in" in ended.stdout) == is_open, ended.stdout


def open_files(pid: int) -> list[str]:
    """Return what a process has open; it and its files may come and go meanwhile."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(link))
    return found


def listening_by(pids: list[int]) -> set[str]:
    """Return the addresses, in hexadecimal, on which these processes listen."""
    sockets = {file for pid in pids for file in open_files(pid)}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


def test_no_stranger_reaches_the_store_of_a_run_on_one_host(attack: Attack, here: Here, shared: Path) -> None:
    here.write("README", "")
    flags = ("--cluster", "open", "--no-check", "--instances", "2", "--epochs", "2000")
    run = here.at(here.json("submit", *flags)["folder"])
    try:
        until(lambda: (run.folder / "progress.json").exists(), "the first update")
        stores = [path for path in run.folder.iterdir() if path.name.startswith(".store-")]
        with attack(KIND) as trials:
            with trials.trial("nothing listens on any interface but loopback"):
                assert listening_by(run.processes()) <= {"0100007F"}
            with trials.trial("the store is a file that its owner alone can read"):
                assert [stat.S_IMODE(path.stat().st_mode) for path in stores] == [0o600]
                assert as_nobody("cat", str(stores[0])).returncode != 0
            with trials.trial("its name can't be guessed"):
                assert as_nobody("ls", str(run.folder)).returncode != 0
    finally:
        here.run("cancel", run.id)
