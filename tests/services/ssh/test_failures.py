"""Why ssh failed, told apart by a real sshd and a real client, each with its cure."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.login_node import LoginNode, disconnect, free_port, new_key
from trainjob.contract.errors import UserError
from trainjob.machines.ssh.failures import SshError
from trainjob.machines.ssh.machine import SshMachine


@pytest.fixture
def node(tmp_path: Path, needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[LoginNode]:
    made = LoginNode(tmp_path / "login", needs("sshd"), free_port())
    made.write()
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield made
    made.stop()


def why(kind: str) -> str:
    """Return what the user reads."""
    machine = SshMachine("login")
    with pytest.raises(SshError) as caught:
        machine.run(["true"])
    assert caught.value.kind == kind
    return str(caught.value)


def test_refused(node: LoginNode) -> None:
    output = why("refused")
    assert f"ssh to login: 127.0.0.1 port {node.port} refuses the connection: is that the port of its sshd" in output


def test_an_unknown_host_key_is_never_accepted(node: LoginNode) -> None:
    node.start()
    node.known_hosts.write_text("")
    output = why("host-key-unknown")
    assert "is not known yet, and trainjob never accepts one unseen" in output
    assert output.endswith("compare its fingerprint with the site's: ssh login")
    assert node.known_hosts.read_text() == ""


def test_a_changed_host_key(node: LoginNode) -> None:
    node.start()
    node.know_the_host(new_key(node.folder / "another_host"))
    output = why("host-key-changed")
    assert f"only then run ssh-keygen -R '[127.0.0.1]:{node.port}' and ssh login" in output


def test_a_key_with_a_passphrase_and_no_agent(node: LoginNode) -> None:
    node.start()
    locked = new_key(node.folder / "locked", "secret words")
    with (node.folder / "authorized").open("a") as stream:
        stream.write(locked.with_suffix(".pub").read_text())
    node.configure(IdentityFile=str(locked))
    output = why("denied")
    assert output.startswith(f"ssh to login: key {locked} has a passphrase, no agent holds it")
    assert output.endswith(f'Run: eval "$(ssh-agent)"; ssh-add {locked}')


def test_a_site_that_asks_for_a_code_gets_the_command_that_opens_a_connection(node: LoginNode) -> None:
    node.start(PasswordAuthentication="yes", PubkeyAuthentication="no")
    output = why("denied")
    assert "login asks for a password or one-time code, which only you can type" in output
    opening = r"ssh -fN -o ControlMaster=auto -o ControlPath=\S+/%C -o ControlPersist=8h -- login"
    assert re.search(rf"Open a connection, which trainjob then shares: {opening}$", output)


def test_a_key_that_is_not_taken(node: LoginNode) -> None:
    node.start()
    node.configure(IdentityFile=str(new_key(node.folder / "stranger")))
    assert f"login accepts none of your keys ({node.folder / 'stranger'}) for user " in why("denied")


def test_a_name_that_nobody_knows(node: LoginNode) -> None:
    node.configure(HostName="no-such-host.invalid")
    assert "the name no-such-host.invalid can't be resolved: correct ssh.host in the cluster file" in why("name")


def test_a_host_that_does_not_answer(node: LoginNode) -> None:
    # It listens, and its queue is full: whoever knocks waits.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        node.configure(Port=str(deaf.getsockname()[1]), ConnectTimeout="1")
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        assert "did not answer in time: is it up, and does its network (VPN, firewall) let you through?" in why(
            "timeout"
        )
        for one in waiting:
            one.close()


def test_a_configuration_that_cannot_be_read(node: LoginNode) -> None:
    node.configure(NoSuchOption="yes")
    with pytest.raises(UserError, match=r"(?i)bad configuration option: nosuchoption"):
        SshMachine("login").run(["true"])


def test_a_command_that_takes_too_long(node: LoginNode) -> None:
    node.start()
    machine = SshMachine("login")
    with pytest.raises(SshError, match=r"ssh to login: `sleep` did not answer within 1 s") as caught:
        machine.run(["sleep", "30"], timeout_s=1)
    assert caught.value.reached
    disconnect()
