"""A job on hosts without a scheduler, by the library alone: where ranks meet, and what every host must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell_library import Bash

SHOWN = "2: eno1    inet 10.5.0.7/16 brd 10.5.255.255 scope global eno1"
TELL = 'echo "$MASTER_ADDR $MASTER_PORT $(cat .token) $TRAINJOB_TOKEN $(cat state)"'


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    made = Bash(tmp_path, "hosts")
    made.program("ip", 'echo "ip is asked on the wrong host" >&2; exit 1')
    made.program("ssh", 'echo "ssh must not be called: $*" >&2; exit 255')
    return made


def reported(bash: Bash, *settings: str) -> list[str]:
    """Return address, port, the token in the folder and in the environment, and the state."""
    ended = bash.run(f"{' '.join(settings)}\nbegin_run_on_hosts\n{TELL}")
    assert ended.code == 0, ended.err
    return ended.out.split()


def test_ranks_of_one_host_meet_there_and_nobody_is_asked(bash: Bash) -> None:
    address, port, token, exported, state = reported(bash, "interface=eno1")
    assert (address, state) == ("127.0.0.1", "RUNNING")
    assert 20000 <= int(port) < 32768
    assert token == exported


def test_a_later_attempt_has_another_port_and_another_token(bash: Bash) -> None:
    first, second = reported(bash), reported(bash)
    assert (first[1] == second[1], first[2] == second[2]) == (False, False)


def test_the_sites_own_port_is_used(bash: Bash) -> None:
    assert reported(bash, "port=29500")[1] == "29500"


def test_ranks_of_several_hosts_meet_at_the_first_ones_address_on_the_interface(bash: Bash) -> None:
    bash.program("ssh", f'echo "{SHOWN}"')
    assert reported(bash, "first_host=gpu-1", "interface=eno1")[0] == "10.5.0.7"
    assert bash.calls("ssh")[0].endswith("-- gpu-1 ip -o -4 addr show dev eno1")


def test_the_first_host_itself_is_asked_without_ssh(bash: Bash) -> None:
    bash.program("ip", f'echo "{SHOWN}"')
    assert reported(bash, "HOSTNAME=gpu-1", "first_host=gpu-1", "interface=eno1")[0] == "10.5.0.7"


def test_without_an_interface_they_meet_at_the_address_that_ssh_has_for_it(bash: Bash) -> None:
    bash.program("ssh", '[ "$1" = -G ] && printf "user ml\\nhostname 10.5.0.9\\nport 22\\n"')
    assert reported(bash, "first_host=gpu-1")[0] == "10.5.0.9"


@pytest.mark.parametrize("answer", ["echo 'ssh: connect to host gpu-1: No route' >&2; exit 255", "true"])
def test_a_first_host_without_an_address_fails_the_run_and_is_named(bash: Bash, answer: str) -> None:
    bash.program("ssh", answer)
    ended = bash.run("first_host=gpu-1 interface=eno1\nbegin_run_on_hosts\necho still here")
    assert ended.code != 0
    assert "host gpu-1 has no IPv4 address on network interface eno1, or can't be asked" in ended.err
    assert ("still here" in ended.out, bash.word("state")) == (False, "FAILED")
