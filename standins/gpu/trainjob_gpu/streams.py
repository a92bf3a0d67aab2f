"""Streams and events under torch.cuda's own classes. Everything is computed by the time that anyone waits."""

from __future__ import annotations

import time
from typing import Any

import torch

_native: Any = torch._C
_CUDA = 1  # c10::DeviceType


def put_into_torch() -> None:
    """Give torch._C the base classes of torch.cuda.Stream and torch.cuda.Event."""
    _native._CudaStreamBase = CudaStreamBase
    _native._CudaEventBase = CudaEventBase


class CudaStreamBase(torch.Stream):
    """The base of torch.cuda.Stream."""

    def __new__(
        cls, priority: int = 0, stream_id: int = 0, device_index: int = 0, device_type: int = 0, stream_ptr: int = 0
    ) -> Any:
        """Return a known stream by its numbers, or a new one of the current GPU."""
        if stream_ptr:
            stream_id, device_index, device_type = stream_ptr, _native._cuda_getDevice(), _CUDA
        if stream_id or device_type:
            return super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)
        return super().__new__(cls, device=torch.device("cuda", _native._cuda_getDevice()), priority=priority)

    @property
    def cuda_stream(self) -> int:
        """The number of the stream."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """The priority; all are alike."""
        return 0

    @staticmethod
    def priority_range() -> Any:
        """Return the lowest and the highest priority."""
        return (0, -5)


class CudaEventBase(torch.Event):
    """The base of torch.cuda.Event: it holds the time at which it was recorded."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> Any:
        """Return a new event. Raises NotImplementedError for one that other processes are to share."""
        if interprocess:
            raise NotImplementedError("stand-in GPUs share no events between processes (interprocess=True)")
        return super().__new__(cls, device="cuda", enable_timing=enable_timing, blocking=blocking)

    def record(self, stream: Any = None) -> None:  # noqa: ARG002 - torch's signature
        """Note the time: all work that the GPU was given before is done."""
        self.recorded_at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Do nothing: what the event stands for is done."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds between two recorded events: the CPU's."""
        try:
            return float((end_event.recorded_at - self.recorded_at) * 1e3)
        except AttributeError:
            raise ValueError("Both events must be recorded before calculating elapsed time.") from None

    @property
    def cuda_event(self) -> int:
        """The number of the event."""
        return self.event_id
