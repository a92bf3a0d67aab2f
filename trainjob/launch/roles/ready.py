"""Whether a server answers, and a port at which nothing does."""

from __future__ import annotations

import re
import socket
import zlib
from pathlib import Path

from trainjob.contract import clock, roles
from trainjob.launch.rank_environment import FIRST_PORT, LAST_PORT

_ANSWER_S = 2.0
_CONNECT_S = 0.5
_TRIES = 100
_MOST_BYTES = 4096
_STATUS = re.compile(rb"HTTP/1\.[01] [23][0-9]{2}[ \r\n]")


def port_on(host: str, seed: str) -> int:
    """Return a port of that host at which nothing answers; `seed` chooses the first that is tried."""
    count = LAST_PORT - FIRST_PORT + 1
    first = zlib.crc32(seed.encode())
    ports = [FIRST_PORT + (first + step) % count for step in range(_TRIES)]
    return next((port for port in ports if not answers(host, port, _CONNECT_S)), ports[0])


def is_ready(ready: str, host: str, port: int, folder: Path) -> bool:
    """Return whether a server is ready, as `ready` of its role says; `folder` is the role's."""
    if ready.startswith(roles.FILE):
        return (folder / ready[len(roles.FILE) :]).exists()
    scheme, is_http, rest = ready.replace("{host}", host).replace("{port}", str(port)).partition("://")
    if not is_http:
        return answers(host, port)
    path, deadline = rest.partition("#")[0].partition("/")[2], clock.monotonic() + _ANSWER_S
    request = "GET /%s HTTP/1.1\r\nHost: %s:%d\r\nAccept: */*\r\nConnection: close\r\n\r\n" % (path, host, port)
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_S) as plain:
            link = plain
            if scheme == "https":
                import ssl

                link = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
            with link:
                link.sendall(request.encode("ascii"))
                return _STATUS.match(_first_line(link, deadline)) is not None
    except OSError:
        return False


def _first_line(link: socket.socket, deadline: float) -> bytes:
    """Return what comes first, to the end of its line; whoever sends it may send it in pieces, or for ever."""
    said = b""
    while b"\n" not in said and len(said) < _MOST_BYTES:
        link.settimeout(max(0.01, deadline - clock.monotonic()))
        part = link.recv(_MOST_BYTES)
        if not part:
            break
        said += part
    return said


def answers(host: str, port: int, timeout_s: float = _ANSWER_S) -> bool:
    """Return whether a connection to this port can be made within some seconds."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True
