"""On which address one listens."""

from __future__ import annotations

import socket

import pytest

from trainjob.contract import ports


def test_the_chosen_address_alone() -> None:
    listening = ports.listen_at("127.0.0.1", 0, 4)
    assert listening is not None
    with listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("address", ["localhost", "", "192.0.2.1", "2001:db8::1"])
def test_a_name_or_an_address_of_another_machine_chooses_none(address: str) -> None:
    assert ports.listen_at(address, 0, 4) is None


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        ports.listen_at("127.0.0.1", other.getsockname()[1], 4)
