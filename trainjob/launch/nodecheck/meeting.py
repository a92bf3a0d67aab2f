"""The launchers of a run meet before its ranks do: at the ranks' own address and port, which are free until then.

All of them talk only to the first one, which receives what each sends and shares values with all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import struct
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from trainjob.contract import clock, ports
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.records.files import parse_json

_LENGTH = struct.Struct("!I")
_MOST_BYTES = 16 << 20
# What comes before the token is known to be right: it may be any program's.
_MOST_HELLO_BYTES = 4096
HELLO_S = 5.0
# Longer than a launcher works between two messages: see all_reduce.py.
_STEP_S = 240.0
_POLL_S = 0.2
# Errors of a network that does not lead to the first node. A refused connection means that no launcher listens yet.
_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)


Value = TypeVar("Value")
Party = Dict[str, Any]  # what a launcher says of itself when it joins a meeting


class Work(NamedTuple):
    """The input of one launcher."""

    rankings: List[Ranking]
    environment: Mapping[str, str]
    children: List[Dict[str, str]]  # the environment of each rank's process; none without GPUs


class NobodyMetError(Exception):
    """The launchers did not all meet. No node is to blame: the ranks may still meet."""


class NoWayError(UserError):
    """The network does not lead from this node to the first one."""

    code = "node-check"


class LauncherMeeting:
    """The launchers of a run; `parties` is each one's description of itself, the first launcher's first.

    `address` is this host's own in the network in which they meet; empty if it may have several.
    """

    def __init__(self, address: str, links: List[socket.socket], parties: List[Party]) -> None:
        self.address = address
        self._links = links
        self.parties = parties
        self.is_first = bool(parties)

    def gather(self, mine: Value) -> List[Value]:
        """Return the values of all launchers, in the order of `parties`; empty on all but the first one."""
        if self.is_first:
            return [mine, *(receive(link, _STEP_S) for link in self._links)]
        send(self._links[0], mine)
        return []

    def share(self, value: Value) -> Value:
        """Return the first launcher's value on every launcher."""
        if not self.is_first:
            shared: Value = receive(self._links[0], _STEP_S)
            return shared
        for link in self._links:
            send(link, value)
        return value

    def close(self) -> None:
        """Leave the meeting. The first one leaves last: the port of a connection that it closed would stay in use."""
        for link in self._links:
            with contextlib.suppress(OSError):
                if self.is_first:
                    link.settimeout(HELLO_S)
                    link.recv(1)
            link.close()


def host(
    address: str, port: int, token: str, mine: Mapping[str, object], others: int, limit_s: float
) -> LauncherMeeting:
    """Return the meeting of this launcher, which is the first, with `others` other launchers. Raises NobodyMetError."""
    joined: List[Tuple[Party, socket.socket]] = []
    deadline, own = clock.monotonic() + limit_s, ""
    if others:
        try:
            chosen = ports.listen_at(address, port, max(128, others))
            own = address if chosen else ""
            listening = chosen or socket.create_server(("", port), backlog=max(128, others))
        except OSError as error:
            raise NobodyMetError("port %d can't be had: %s" % (port, error.strerror)) from None
        with listening:
            while len(joined) < others:
                listening.settimeout(max(0.01, deadline - clock.monotonic()))
                try:
                    link, peer = listening.accept()
                except OSError:
                    for _, link in joined:
                        link.close()
                    raise NobodyMetError(
                        "%d of %d launchers had come after %g s" % (len(joined) + 1, others + 1, limit_s)
                    ) from None
                hello = _hello(link, token)
                if hello is not None:
                    hello["address"] = peer[0]
                    joined.append((hello, link))
    return LauncherMeeting(own, [link for _, link in joined], [dict(mine), *(party for party, _ in joined)])


def join(address: str, port: int, token: str, mine: Mapping[str, object], limit_s: float) -> LauncherMeeting:
    """Return the meeting at `address`.

    Raises NoWayError if the network does not lead there, NobodyMetError if no launcher answers.
    """
    deadline = clock.monotonic() + limit_s
    while True:
        try:
            link = socket.create_connection((address, port), timeout=max(1.0, deadline - clock.monotonic()))
            break
        except OSError as error:
            if clock.monotonic() < deadline:
                clock.sleep(_POLL_S)
                continue
            if isinstance(error, socket.timeout) or error.errno in _NO_WAY:
                raise NoWayError(
                    "the first node can't be reached at %s:%d within %g s: %s"
                    % (address, port, limit_s, error.strerror or "no answer")
                ) from None
            raise NobodyMetError("no answer from %s:%d: %s" % (address, port, error.strerror)) from None
    send(link, token)
    send(link, mine)
    return LauncherMeeting(link.getsockname()[0], [link], [])


def send(link: socket.socket, value: object) -> None:
    """Send `value` to the other end. Raises NobodyMetError if the other end has gone."""
    data = json.dumps(value).encode()
    try:
        link.sendall(_LENGTH.pack(len(data)) + data)
    except OSError as error:
        raise NobodyMetError("another launcher has left: %s" % error) from None


def receive(link: socket.socket, limit_s: float, most_bytes: int = _MOST_BYTES) -> Any:
    """Return the value that the other end sends within `limit_s`, however it cuts it.

    Raises NobodyMetError if it sends none, or no message of ours.
    """
    deadline = clock.monotonic() + limit_s
    try:
        (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size, deadline))
        return parse_json(_exactly(link, min(length, most_bytes), deadline))
    except (OSError, ValueError) as error:
        raise NobodyMetError("another launcher has left, or does not answer: %s" % error) from None


def _exactly(link: socket.socket, length: int, deadline: float) -> bytes:
    parts: List[bytes] = []
    while length:
        link.settimeout(max(0.01, deadline - clock.monotonic()))
        part = link.recv(min(length, 1 << 20))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _hello(link: socket.socket, token: str) -> Optional[Party]:
    """Return what the launcher at the other end says of itself; None for any other program."""
    import hmac  # loads OpenSSL, which the other launchers don't need

    with contextlib.suppress(NobodyMetError):
        # A stranger's text may not be valid UTF-8: "replace" accepts any bytes.
        said = str(receive(link, HELLO_S, _MOST_HELLO_BYTES)).encode("utf-8", "replace")
        if hmac.compare_digest(said, token.encode()):
            party: Party = receive(link, HELLO_S)
            return party
    link.close()
    return None
