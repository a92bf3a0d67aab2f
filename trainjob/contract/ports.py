"""Ports of ranks and launchers: on loopback if one host has them all, else on the address that was chosen."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import socket

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Return whether a listener could have `port` on this host's loopback address."""
    import socket  # not every launcher looks for a port

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def listen_at(address: str, port: int, backlog: int) -> "Optional[socket.socket]":
    """Return a socket that listens at `address` alone; None if that is a name, or an address of another machine.

    What a name means on this host may be a loopback address, where other hosts would not find it. Raises OSError.
    """
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.inet_pton(family, address)
    except OSError:
        return None
    try:
        return socket.create_server((address, port), family=family, backlog=backlog)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return None  # another machine's address stands before this one
