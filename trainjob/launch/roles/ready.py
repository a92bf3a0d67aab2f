"""Whether a server answers, and a port at which nothing does."""

from __future__ import annotations

import socket
import zlib
from pathlib import Path

from trainjob.contract import roles
from trainjob.launch.rank_environment import FIRST_PORT, LAST_PORT

_ANSWER_S = 2.0
_CONNECT_S = 0.5
_TRIES = 100


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
    address = ready.replace("{host}", host).replace("{port}", str(port))
    if "://" not in address:
        return answers(host, port)
    import http.client
    from urllib.parse import urlsplit

    url = urlsplit(address)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=_ANSWER_S)
    try:
        connection.request("GET", url.path + ("?" + url.query if url.query else "") or "/")
        return 200 <= connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def answers(host: str, port: int, timeout_s: float = _ANSWER_S) -> bool:
    """Return whether a connection to this port can be made within some seconds."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True
