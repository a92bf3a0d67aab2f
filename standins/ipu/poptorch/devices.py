"""The IPUs that this process holds: a model is refused when they are taken, as a real one would be."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from typing import Any, Dict, Optional

from trainjob_standins.place import here, partition_ipus, under_poprun

from poptorch.errors import Error

_attached: Dict[int, int] = {}  # IPUs, by a number for each time that they were taken
_ids: Dict[int, Optional[int]] = {}  # the device that was asked for, by the same numbers
_numbers = itertools.count(1)
_LOOK_AGAIN_S = 0.05


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


class Device:
    """IPUs that are held until they are let go, or nobody refers to `holder` any more.

    Raises Error where so many are not free, unless POPTORCH_WAIT_FOR_IPU asks to wait until they are.
    """

    def __init__(self, holder: Any, ipus: int, device_id: Optional[int] = None) -> None:
        waits = os.environ.get("POPTORCH_WAIT_FOR_IPU") == "1" and ipus <= available()
        while sum(_attached.values()) + ipus > available() or _is_held(device_id):
            if not waits and _is_held(device_id):
                raise Error(
                    "Failed to acquire device %s: an attached model holds it. Detach or destroy that first" % device_id,
                    "poptorch_cpp_error",
                )
            if not waits:
                raise Error(
                    "Failed to acquire %d IPU(s): this process has %d, of which attached models hold %d. Detach or "
                    "destroy them first" % (ipus, available(), sum(_attached.values())),
                    "poptorch_cpp_error",
                )
            time.sleep(_LOOK_AGAIN_S)
        number = next(_numbers)
        _attached[number], _ids[number] = ipus, device_id
        self.let_go = weakref.finalize(holder, _attached.pop, number, None)


def _is_held(device_id: Optional[int]) -> bool:
    return device_id is not None and any(_ids[number] == device_id for number in _attached)


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Return whether this process may use `num_ipus`."""
    return num_ipus <= available()


def ipuHardwareVersion() -> int:
    """Return 2, the Mk2's."""
    return 2
