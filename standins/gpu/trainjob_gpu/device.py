"""The compiled core, and what this process sees of its node's GPUs."""

from __future__ import annotations

import ctypes
import warnings
from typing import List, NamedTuple, Optional

from trainjob_gpu import library, specification


class Device(NamedTuple):
    """The core that torch takes for CUDA, and the GPUs it shows."""

    core: ctypes.CDLL
    gpus: specification.Gpus
    numbers: List[int]  # of each GPU that this process sees, the node's own number

    @property
    def visible(self) -> int:
        """Return how many GPUs this process sees."""
        return len(self.numbers)

    def look(self) -> None:
        """See what CUDA_VISIBLE_DEVICES names now."""
        self.numbers[:] = specification.visible(self.gpus)
        self.core.trainjob_gpu_set_up(len(self.numbers), self.gpus.memory_bytes)


class _Loaded:
    device: Optional[Device] = None


def load() -> Device:
    """Load the core; before torch, which asks for CUDA once."""
    gpus = specification.read()
    core = library.load_core()
    core.trainjob_gpu_set_up.argtypes = [ctypes.c_int, ctypes.c_int64]
    core.trainjob_gpu_stream.restype = ctypes.c_int64
    core.trainjob_gpu_use_stream.argtypes = [ctypes.c_int, ctypes.c_int64]
    core.trainjob_gpu_limit.argtypes = [ctypes.c_int, ctypes.c_double]
    core.trainjob_gpu_share.restype = ctypes.c_double
    _Loaded.device = Device(core, gpus, [])
    _Loaded.device.look()
    # Of the CPU's kernels of losses, which are given the mean as their output. No GPU's kernel says this.
    warnings.filterwarnings("ignore", r"An output with one or more elements was resized since it had shape \[\]")
    return _Loaded.device


def loaded() -> Device:
    """Return the core that was loaded before torch."""
    if _Loaded.device is None:
        raise library.StandInError("torch was imported before stand-in GPUs were put under it")
    return _Loaded.device
