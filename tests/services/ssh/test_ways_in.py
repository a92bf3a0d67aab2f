"""The ways in that a user's own ssh configuration has: a jump host, and an agent that holds a locked key."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.login_node import LoginNode, disconnect, free_port, new_key
from tests.support.programs import ran
from trainjob.machines.ssh.failures import SshError
from trainjob.machines.ssh.machine import SshMachine

PASSPHRASE = "secret words"


@pytest.fixture
def login(tmp_path: Path, needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[LoginNode]:
    made = LoginNode(tmp_path / "login", needs("sshd"), free_port())
    made.write()
    made.start()
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    yield made
    disconnect()
    made.stop()


@pytest.fixture
def gate(tmp_path: Path, login: LoginNode) -> Iterator[LoginNode]:
    made = LoginNode(tmp_path / "gate", login.sshd, free_port())
    made.write()
    made.start()
    yield made
    made.stop()


def accepted(node: LoginNode) -> int:
    return (node.folder / "sshd.log").read_text().count("Accepted publickey")


def through(login: LoginNode, gate: LoginNode) -> None:
    login.configure(ProxyJump="gate")
    with login.config.open("a") as config:
        config.write(gate.config.read_text().replace("Host login", "Host gate"))


def test_a_jump_host_is_gone_through(login: LoginNode, gate: LoginNode) -> None:
    through(login, gate)
    assert SshMachine("login").run(["echo", "in"]).text == "in\n"
    assert (accepted(gate), accepted(login)) == (1, 1)


def test_a_jump_host_that_is_down_is_named(login: LoginNode, gate: LoginNode) -> None:
    through(login, gate)
    gate.stop()
    with pytest.raises(
        SshError, match=r"ssh to login: its jump host gate can't be reached.*by hand: ssh gate"
    ) as caught:
        SshMachine("login").run(["true"])
    assert (caught.value.kind, caught.value.reached) == ("jump", False)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent of the test's own; ended by its id."""
    output = ran(["ssh-agent", "-a", tmp_path / "agent", "-s"], code=0).stdout
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    yield
    os.kill(int(re.findall(r"SSH_AGENT_PID=(\d+)", output)[0]), 15)


@pytest.mark.usefixtures("agent")
def test_an_agent_that_holds_a_locked_key_lets_in(login: LoginNode, tmp_path: Path) -> None:
    locked = new_key(tmp_path / "locked", PASSPHRASE)
    (login.folder / "authorized").write_text(locked.with_suffix(".pub").read_text())
    login.configure(IdentityFile=str(locked))
    asking = login.bin / "asking"
    asking.write_text(f"#!/bin/sh\necho '{PASSPHRASE}'\n")
    asking.chmod(0o755)
    environ = {**os.environ, "SSH_ASKPASS": str(asking), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": "none"}
    subprocess.run(["ssh-add", "-q", locked], env=environ, check=True)
    assert SshMachine("login").run(["echo", "in"]).text == "in\n"
