"""The network interface over which ranks meet where the host's own name doesn't lead to one.

gloo binds to what the host's own name means. Where that is a loopback address, which is Debian's default (127.0.1.1),
or nothing at all, no other host reaches it.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Dict, Optional

from trainjob.launch.host import own_name

# Reserved for documentation: no host has it, so that the way there is the default route. Nothing is sent.
ANYWHERE = "192.0.2.1"
_SIOCGIFCONF = 0x8912
_MOST_BYTES = 64 * 1024


def own_address() -> Optional[str]:
    """Return the address to which gloo would bind: the first of this host's own name that this host has; else None."""
    try:
        found = socket.getaddrinfo(own_name(), None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as candidate:
                candidate.bind(address)
        except OSError:
            continue
        return str(address[0])
    return None


def is_loopback(address: str) -> bool:
    """Return whether only this host itself reaches an address."""
    return address == "::1" or address.startswith("127.")


def interface_to(address: str) -> Optional[str]:
    """Return the interface over which this host reaches `address`, a name or number; None if there is none.

    On the host at that address itself, whose name for it may be a loopback address, it is the one of the default route,
    or the only one.
    """
    interfaces = interfaces_of_host()
    for target in (address, ANYWHERE):
        own = own_address_towards(target)
        if own is not None and not is_loopback(own) and own in interfaces:
            return interfaces[own]
    others = {name for own, name in interfaces.items() if not is_loopback(own)}
    return others.pop() if len(others) == 1 else None


def own_address_towards(address: str) -> Optional[str]:
    """Return the IPv4 address from which this host reaches another one; None if there is no way."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((address, 9))
            return str(way.getsockname()[0])
    except OSError:
        return None


def interfaces_of_host() -> Dict[str, str]:
    """Return the name of the interface of each IPv4 address of this host."""
    import array

    buffer = array.array("B", bytes(_MOST_BYTES))
    start, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked.fileno(), _SIOCGIFCONF, struct.pack("iP", _MOST_BYTES, start))
    size, content = struct.unpack("iP", answer)[0], buffer.tobytes()
    # struct ifreq: 16 bytes of name, which may be that of an alias (eth0:1), and a socket address.
    record = 16 + max(16, struct.calcsize("PPP"))
    rows = (content[at : at + record] for at in range(0, size, record))
    return {socket.inet_ntoa(row[20:24]): row[:16].split(b"\0")[0].decode().partition(":")[0] for row in rows}
