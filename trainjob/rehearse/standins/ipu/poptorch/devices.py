"""Which IPUs this process holds: a model is refused when they are taken, as a real one would be."""

from __future__ import annotations

from typing import Any, Dict

from trainjob_standins.place import here, partition_ipus, under_poprun

from poptorch.errors import Error

_attached: Dict[int, int] = {}  # IPUs, by the id of the executor that holds them


def available() -> int:
    """Return the IPUs of this process: its part of the partition under poprun, the partition otherwise."""
    return here().ipus if under_poprun() else partition_ipus()


def ipus_of_replica(highest_ipu: int, auto_round: bool) -> int:
    """Return the IPUs of one replica. Raises Error unless they are a power of two."""
    used = highest_ipu + 1
    rounded = 1 << (used - 1).bit_length()
    if used != rounded and not auto_round:
        raise Error(
            "the model uses %d IPUs, and devices have a power of two: use options.autoRoundNumIPUs(True) to take %d"
            % (used, rounded)
        )
    return rounded


def attach(holder: Any, ipus: int) -> None:
    """Hold `ipus` for `holder`. Raises Error where so many are not free."""
    if id(holder) in _attached:
        return
    taken = sum(_attached.values())
    if taken + ipus > available():
        raise Error(
            "Failed to acquire %d IPU(s): this process has %d, of which attached models hold %d. Detach or destroy "
            "them first" % (ipus, available(), taken)
        )
    _attached[id(holder)] = ipus


def detach(holder: Any) -> None:
    """Let the IPUs of `holder` go."""
    _attached.pop(id(holder), None)


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Return whether this process may use `num_ipus`."""
    return num_ipus <= available()


def ipuHardwareVersion() -> int:
    """Return 2, the Mk2's."""
    return 2
