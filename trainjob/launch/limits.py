"""Sets on this node the limits that the prologue has set with `ulimit`: neither srun nor mpirun passes them on."""

from __future__ import annotations

import resource

from trainjob.contract.errors import UserError
from trainjob.launch import host

# The letter of bash's ulimit -> the limit, and the bytes of one of bash's units.
_LIMITS = {
    "c": (resource.RLIMIT_CORE, 1024),
    "d": (resource.RLIMIT_DATA, 1024),
    "f": (resource.RLIMIT_FSIZE, 1024),
    "l": (resource.RLIMIT_MEMLOCK, 1024),
    "m": (resource.RLIMIT_RSS, 1024),
    "n": (resource.RLIMIT_NOFILE, 1),
    "s": (resource.RLIMIT_STACK, 1024),
    "t": (resource.RLIMIT_CPU, 1),
    "u": (resource.RLIMIT_NPROC, 1),
    "v": (resource.RLIMIT_AS, 1024),
}


def set_as_in_prologue(limits: str) -> None:
    """Set this process's soft limits: pairs LETTER=VALUE, as bash's ulimit has them. Other letters are left alone.

    Raises UserError for one that is above the hard limit here.
    """
    for letter, _, value in (pair.partition("=") for pair in limits.split()):
        if letter not in _LIMITS:
            continue
        limit, unit = _LIMITS[letter]
        _, hard = resource.getrlimit(limit)
        soft = resource.RLIM_INFINITY if value == "unlimited" else int(value) * unit
        try:
            resource.setrlimit(limit, (soft, hard))
        except (ValueError, OSError):
            most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard // unit)
            raise UserError(
                "the prologue sets ulimit -S -%s %s on the first node, and on %s at most %s is allowed"
                % (letter, value, host.node_name(), most),
                "Have the hard limit raised there, or lower the one in the prologue",
            ) from None
