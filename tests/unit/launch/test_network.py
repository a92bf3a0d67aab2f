"""The interface of ranks where the host's own name is of no use."""

from __future__ import annotations

import socket

import pytest

from trainjob.launch import network


class Ways:
    """Sockets of a host at 10.1.2.3 that reaches two networks, and a default route that may be missing."""

    default_route = True

    def __init__(self, *_: object) -> None:
        self.own = ""

    def __enter__(self) -> Ways:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self, address: tuple[str, int]) -> None:
        ways = {"10.1.2.9": "10.1.2.3", "10.1.2.3": "10.1.2.3", "own": "127.0.0.1", "storage": "10.9.9.3"}
        self.own = ways.get(address[0], "10.1.2.3" if self.default_route else "")
        if not self.own:
            raise OSError("Network is unreachable")

    def getsockname(self) -> tuple[str, int]:
        return self.own, 0


@pytest.mark.parametrize(
    ("address", "interface"), [("10.1.2.9", "eth0"), ("10.1.2.3", "eth0"), ("storage", "ib0"), ("own", "eth0")]
)
def test_the_interface_is_the_one_on_the_way_there(
    monkeypatch: pytest.MonkeyPatch, address: str, interface: str
) -> None:
    monkeypatch.setattr(socket, "socket", Ways)
    found = {"127.0.0.1": "lo", "10.1.2.3": "eth0", "10.9.9.3": "ib0", "172.17.0.1": "d0"}
    monkeypatch.setattr(network, "interfaces_of_host", lambda: found)
    assert network.interface_to(address) == interface


def test_without_a_default_route_the_only_interface_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", Ways)
    monkeypatch.setattr(Ways, "default_route", False)
    found = {"127.0.0.1": "lo", "10.1.2.3": "eth0"}
    monkeypatch.setattr(network, "interfaces_of_host", lambda: found)
    assert network.interface_to("own") == "eth0"
    found["10.9.9.3"] = "ib0"
    assert network.interface_to("own") is None


def test_gloos_choice_is_the_first_address_of_the_own_name_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*addresses: str) -> None:
        infos = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0)) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)

    found("192.0.2.77", "127.0.1.1")  # the first is another machine's
    assert network.own_address() == "127.0.1.1"
    found("192.0.2.77")
    assert network.own_address() is None


def test_every_interface_has_its_name() -> None:
    assert network.interfaces_of_host()["127.0.0.1"] == "lo"
