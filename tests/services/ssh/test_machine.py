"""A machine over a real sshd: every argument arrives, folders go whole, logs come by their new end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.login_node import LoginNode, disconnect, free_port
from trainjob.contract.errors import UserError
from trainjob.machines import remote_files
from trainjob.machines.access import HERE
from trainjob.machines.process import CommandError
from trainjob.machines.ssh import onward
from trainjob.machines.ssh.connection import SshTarget
from trainjob.machines.ssh.machine import SshMachine

HOSTILE = [
    *("a b", "$(touch ran)", "`x`", "'", '"', "a;b", "", "*", "~", "line\nbreak", "ä→", "-n", "!x", "\\"),
    "x" * 8192,
]
# Passes 64 KB of its input on, as it comes, and ends.
FEW = """
import os
left = 65536
while left:
    block = os.read(0, left)
    if not block:
        break
    left -= os.write(1, block)
"""
# What brings files in dies after 64 KB, and the connection with it.
CUTTING = (
    'case "$SSH_ORIGINAL_COMMAND" in '
    '*"rsync --server"*|*"tar -xpf"*) python3 "$FEW" | sh -c "$SSH_ORIGINAL_COMMAND"; kill -9 $PPID;; '
    '*) eval "$SSH_ORIGINAL_COMMAND";; esac'
)


@pytest.fixture
def node(tmp_path: Path, needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[LoginNode]:
    made = LoginNode(tmp_path / "login", needs("sshd"), free_port())
    made.write()
    made.start()
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    yield made
    made.stop()


@pytest.fixture
def login(node: LoginNode) -> Iterator[SshMachine]:
    machine = SshMachine("login")
    yield machine
    disconnect()


def printed(login: SshMachine, *words: str) -> list[str]:
    text = login.run(["sh", "-c", r'for word; do printf "%s\0" "$word"; done', "sh", *words]).text
    return text.split("\0")[:-1]


def test_every_argument_arrives_unchanged(login: SshMachine) -> None:
    assert printed(login, *HOSTILE) == HOSTILE


@pytest.mark.parametrize("shell", ["csh", "tcsh", "fish", "zsh"])
def test_every_argument_arrives_unchanged_through_any_login_shell(
    login: SshMachine, node: LoginNode, needs: Callable[[str], Path], tmp_path: Path, shell: str
) -> None:
    node.stop()
    node.start(ForceCommand=f'exec {needs(shell)} -c "$SSH_ORIGINAL_COMMAND"')
    several = ["\\\\0x", "\t\r\n", "100%b", "~root", "[a-z]", "{a,b}", "#", "^a^b", "$HOME", "!!", "\x7f", "\n"]
    assert printed(login, *HOSTILE, *several) == [*HOSTILE, *several]
    folder = tmp_path / "it's! a folder"
    folder.mkdir()
    assert login.run(["pwd"], folder=str(folder)).text == f"{folder}\n"
    assert onward.run(HERE, "login", ["printf", "%s,", *HOSTILE], check=False).text == "".join(
        f"{word}," for word in HOSTILE
    )


def test_a_command_runs_in_its_folder_and_reads_what_it_is_given(login: SshMachine, tmp_path: Path) -> None:
    folder = tmp_path / "a'; echo foo"
    folder.mkdir()
    ended = login.run(["sh", "-c", "pwd; cat"], folder=str(folder), stdin=b"\0any bytes\xff")
    assert ended.stdout == f"{folder}\n".encode() + b"\0any bytes\xff"


def test_what_a_start_up_file_prints_is_not_the_answer(login: SshMachine, node: LoginNode) -> None:
    node.stop()
    node.start(ForceCommand='echo "Welcome!"; eval "$SSH_ORIGINAL_COMMAND"')
    assert login.run(["echo", "answer"]).text == "answer\n"


def test_a_failing_command_is_reported_as_it_was_meant(login: SshMachine) -> None:
    with pytest.raises(CommandError, match=r"`sh -c 'echo no >&2; exit 3'` exited with 3: no"):
        login.run(["sh", "-c", "echo no >&2; exit 3"])
    assert login.run(["false"], check=False).code == 1


def test_one_connection_is_shared(login: SshMachine, node: LoginNode) -> None:
    login.run(["true"])
    login.run(["true"])
    assert (node.folder / "sshd.log").read_text().count("Accepted publickey") == 1


def test_a_connection_that_the_user_opened_is_shared(node: LoginNode) -> None:
    # The site would ask: nothing but the open connection lets anybody in.
    machine = SshMachine("login")
    subprocess.run(["sh", "-c", SshTarget("login", None).opening_command], check=True)
    (node.folder / "authorized").write_text("")
    assert machine.run(["echo", "in"]).text == "in\n"
    disconnect()


def a_run(folder: Path) -> Path:
    (folder / "code" / "sub folder").mkdir(parents=True)
    (folder / "job.sbatch").write_text("#!/bin/sh\n")
    (folder / "job.sbatch").chmod(0o755)
    (folder / "code" / "sub folder" / "it's.py").write_text("print()\n")
    (folder / "code" / "big").write_bytes(os.urandom(1 << 20))
    (folder / "code" / "link").symlink_to("big")
    (folder / "logs").mkdir()
    return folder


def same(one: Path, other: Path) -> bool:
    return subprocess.run(["diff", "-r", "--no-dereference", one, other], check=False).returncode == 0


@pytest.fixture(params=["rsync", "tar"])
def way(request: pytest.FixtureRequest, node: LoginNode, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tar":
        # A rsync that is missing over there answers like this through any shell.
        monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    return str(request.param)


def test_a_folder_goes_whole_and_comes_back(login: SshMachine, tmp_path: Path, way: str) -> None:
    source, target = a_run(tmp_path / "run"), tmp_path / "there's a folder" / "run"
    login.send(source, str(target))
    assert same(source, target)
    assert os.access(target / "job.sbatch", os.X_OK)
    login.receive(str(target), tmp_path / "back")
    assert same(source, tmp_path / "back")
    assert sorted(path.name for path in target.parent.iterdir()) == ["run"]


def test_a_folder_that_is_there_is_not_written_over(login: SshMachine, tmp_path: Path, way: str) -> None:
    target = tmp_path / "there" / "run"
    target.mkdir(parents=True)
    with pytest.raises(UserError, match="run already exists on login"):
        login.send(a_run(tmp_path / "run"), str(target))


def test_what_was_cut_goes_on_and_is_never_taken_for_whole(login: SshMachine, tmp_path: Path, way: str) -> None:
    source, target = a_run(tmp_path / "run"), tmp_path / "there" / "run"
    part = target.with_name(".run.part")
    (part / "code").mkdir(parents=True)
    (part / "code" / "big").write_bytes((source / "code" / "big").read_bytes()[:1000])
    (part / "job.sbatch").write_text("#!/bin/ol\n")  # as long as the one that replaces it
    login.send(source, str(target))
    assert same(source, target)
    assert not part.exists()


def test_a_sending_that_is_cut_leaves_no_whole_folder(
    login: SshMachine, node: LoginNode, tmp_path: Path, way: str
) -> None:
    disconnect()
    node.stop()
    (tmp_path / "few.py").write_text(FEW)
    node.start({"FEW": str(tmp_path / "few.py")}, ForceCommand=CUTTING)
    source, target = a_run(tmp_path / "run"), tmp_path / "there" / "run"
    with pytest.raises(UserError, match=r"ssh to login: the connection .*broke"):
        login.send(source, str(target))
    assert not target.exists()
    disconnect()
    node.stop()
    node.start()
    login.send(source, str(target))
    assert same(source, target)


def test_a_full_quota_is_named(login: SshMachine, tmp_path: Path, way: str, needs: Callable[[str], Path]) -> None:
    needs("mount")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], check=True)
    try:
        with pytest.raises(UserError, match=r"no space is left for you on login .*: free some"):
            login.send(a_run(tmp_path / "run"), f"{small}/run")
        assert not (small / "run").exists()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_an_rsync_that_fails_without_a_word_gives_way_to_tar(
    login: SshMachine, node: LoginNode, tmp_path: Path, needs: Callable[[str], Path]
) -> None:
    needs("rsync")
    # rsync loses the words of its other end at times, for example when the disk there is full.
    quiet = node.bin / "rsync"
    quiet.write_text(f'#!/bin/sh\n{needs("rsync")} "$@" 2>&-\nexit 11\n')
    quiet.chmod(0o755)
    source, target = a_run(tmp_path / "run"), tmp_path / "there" / "run"
    login.send(source, str(target))
    assert same(source, target)


def test_small_files_come_in_one_call_and_what_is_missing_is_not_there(login: SshMachine, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("RUNNING\n")
    (tmp_path / "it's odd").write_bytes(b"\xff")
    asked = [str(tmp_path), str(tmp_path / "state"), str(tmp_path / "none"), str(tmp_path / "it's odd")]
    assert remote_files.present(login, asked) == {asked[0]: b"", asked[1]: b"RUNNING\n", asked[3]: b"\xff"}
    assert remote_files.present(login, [str(tmp_path / "none")]) == {}


def test_of_a_log_only_what_is_new_comes(login: SshMachine, tmp_path: Path) -> None:
    log, other, none = tmp_path / "rank-0000.log", tmp_path / "b c.log", tmp_path / "none"
    log.write_bytes(b"one\ntwo\n")
    other.write_bytes(b"same\n")
    asked = {str(log): 4, str(other): 5, str(none): 0}
    assert remote_files.grown(login, asked) == {str(log): remote_files.Grown(4, b"two\n")}
    log.write_bytes(b"anew\n")
    assert remote_files.grown(login, {str(log): 8}) == {str(log): remote_files.Grown(0, b"anew\n")}
    assert remote_files.grown(login, {str(log): 0}, most_bytes=2) == {str(log): remote_files.Grown(0, b"an")}
