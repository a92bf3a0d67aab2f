"""CUDA's own functions in torch._C, which a CPU build lacks: `torch.cuda` is torch's own Python on top of them."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Dict, List, NamedTuple, Tuple
from uuid import UUID

from trainjob_gpu import device as devices
from trainjob_gpu import specification
from trainjob_gpu.device import Device

CUDA = 1  # c10::DeviceType
_VERSION = 12040
_ERRORS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    700: "an illegal memory access was encountered",
    710: "device-side assert triggered",
}
# Switches of CUDA and its libraries, which are not here: scripts read back what they have set.
_SWITCHES = {
    "cudnn_benchmark_limit": 10,
    "conv_benchmark_empty_cache": True,
    "sync_debug_mode": 0,
}
# The CPU has computed everything by the time that anyone asks, memory goes back at once, and none is shared.
_NOTHING = (
    "synchronize",
    "ipc_collect",
    "emptyCache",
    "clearCublasWorkspaces",
    "resetPeakHostMemoryStats",
    "resetAccumulatedHostMemoryStats",
)
_ANSWERS: Dict[str, Any] = {
    "getCompiledVersion": _VERSION,
    "getDriverVersion": _VERSION,
    "isCurrentStreamCapturing": False,
    "hostMemoryStats": {},  # pinned memory is not counted
    "isHistoryEnabled": False,
    "cudaCachingAllocator_is_enabled": True,
    "getAllocatorBackend": "native",
}


class Properties(NamedTuple):
    """The value of torch.cuda.get_device_properties."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    uuid: UUID
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 166912
    shared_memory_per_multiprocessor: int = 167936
    L2_cache_size: int = 41943040
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    gcnArchName: str = ""


def invalid_ordinal(index: int, count: int) -> Exception:
    """Return torch's own error for a GPU that this process does not see."""
    import torch

    kind = getattr(torch, "AcceleratorError", RuntimeError)
    return kind(
        "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n"
        "(stand-in: cuda:%d was asked for, and this process sees %d)" % (index, count)
    )


class Functions:
    """The functions by their names in torch._C, less the leading `_cuda_`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._core = device.core
        self._is_settled = False
        self._has_forked = False
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        if self._is_settled:
            self._has_forked = True
            self._core.trainjob_gpu_forked()

    def _checked(self, index: int) -> int:
        if not 0 <= index < self._device.visible:
            raise invalid_ordinal(index, self._device.visible)
        return index

    # ---- devices

    def init(self) -> None:
        """Take the GPUs that are visible now, for good. Refuse where there is none, in CUDA's words."""
        self.getDeviceCount()
        self._is_settled = True
        if not self._device.visible:
            raise RuntimeError("No CUDA GPUs are available")
        self._core.trainjob_gpu_init()
        import torch

        torch.cuda.default_generators = tuple(
            torch.ops.trainjob_gpu.generator(index) for index in range(self._device.visible)
        )

    def getDeviceCount(self) -> int:
        """Return how many GPUs this process sees; scripts may still set CUDA_VISIBLE_DEVICES before the first use."""
        if not self._is_settled:
            self._device.look()
        return self._device.visible

    def getDevice(self) -> int:
        """Return the current GPU."""
        return int(self._core.trainjob_gpu_current())

    def setDevice(self, index: int) -> None:
        """Make `index` the current GPU."""
        if index >= 0:
            self._core.trainjob_gpu_use(self._checked(int(index)))

    def exchangeDevice(self, index: int) -> int:
        """Make `index` the current GPU; return the one before."""
        if index < 0:
            return -1
        before = self.getDevice()
        self.setDevice(index)
        return before

    maybeExchangeDevice = exchangeDevice

    def canDeviceAccessPeer(self, index: int, peer: int) -> bool:
        """Return whether one GPU could read the other's memory: all of a node can."""
        return self._checked(index) != self._checked(peer)

    def getArchFlags(self) -> str:
        """Return the architectures that torch would have been compiled for."""
        return "sm_%d%d" % self._device.gpus.capability

    def get_device_properties(self, index: int) -> Properties:
        """Return what there is to know of one GPU."""
        number = self._device.numbers[self._checked(index)]
        gpus = self._device.gpus
        major, minor = gpus.capability
        name = UUID(specification.uuid(number)[len("GPU-") :])
        return Properties(gpus.name, major, minor, gpus.memory_bytes, gpus.processors, name, pci_bus_id=number + 1)

    def hasPrimaryContext(self, index: int) -> bool:
        """Return whether the GPU is in use: every one that is seen is."""
        return 0 <= index < self._device.visible

    # ---- time and order

    def sleep(self, cycles: int) -> None:
        """Wait as long as `cycles` of a GPU of 1 GHz take."""
        time.sleep(cycles / 1e9)

    def isInBadFork(self) -> bool:
        """Return whether this process was forked from one that used its GPUs: CUDA can't be used in it."""
        return self._has_forked

    def getCurrentStream(self, index: int) -> Tuple[int, int, int]:
        """Return the current stream's id, GPU and type."""
        return int(self._core.trainjob_gpu_stream(self._checked(index))), index, CUDA

    def getCurrentRawStream(self, index: int) -> int:
        """Return the current stream's id, as compiled code asks for it."""
        return self.getCurrentStream(index)[0]

    def getDefaultStream(self, index: int) -> Tuple[int, int, int]:
        """Return the default stream's id, GPU and type."""
        return 0, self._checked(index), CUDA

    def setStream(self, stream_id: int, device_index: int, device_type: int) -> None:  # noqa: ARG002
        """Make a stream, and its GPU, the current ones."""
        self.setDevice(device_index)
        self._core.trainjob_gpu_use_stream(device_index, stream_id)

    # ---- memory: tensors are counted, and nothing is cached

    def _figures(self, index: int) -> List[int]:
        figures = (ctypes.c_int64 * 5)()
        self._core.trainjob_gpu_memory(self._checked(index), figures)
        return list(figures)

    def memoryStats(self, index: int) -> Dict[str, Any]:
        """Return torch's table of figures; what is reserved is what is allocated."""
        allocated, peak, _, count, total = self._figures(index)
        none = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
        bytes_ = {"current": allocated, "peak": peak, "allocated": total, "freed": total - allocated}
        counted = {"current": count, "peak": count, "allocated": count, "freed": 0}
        pools = {"allocation": counted, "segment": none, "active": counted, "inactive_split": none}
        in_bytes = {"allocated_bytes": bytes_, "reserved_bytes": bytes_, "active_bytes": bytes_}
        in_bytes.update(inactive_split_bytes=none, requested_bytes=bytes_)
        table: Dict[str, Any] = {
            name: {"all": dict(values), "small_pool": dict(none), "large_pool": dict(values)}
            for name, values in {**pools, **in_bytes}.items()
        }
        table.update(oversize_allocations=dict(none), oversize_segments=dict(none), max_split_size=-1)
        table.update(num_alloc_retries=0, num_ooms=0, num_sync_all_streams=0, num_device_alloc=count, num_device_free=0)
        return table

    def resetPeakMemoryStats(self, index: int) -> None:
        """Let the peak begin anew."""
        self._core.trainjob_gpu_reset_peak(self._checked(index))

    def resetAccumulatedMemoryStats(self, index: int) -> None:
        """Do nothing but check the index: the sums are the report's."""
        self._checked(index)

    def setMemoryFraction(self, fraction: float, index: int) -> None:
        """Let a share of a GPU's memory be all of it."""
        self._core.trainjob_gpu_limit(self._checked(index), fraction)

    def getMemoryFraction(self, index: int) -> float:
        """Return the share of a GPU's memory that this process may take."""
        return float(self._core.trainjob_gpu_share(self._checked(index)))

    def jiterator_compile_and_launch_kernel(self, *_: Any) -> Any:
        """Refuse: it compiles CUDA's C++."""
        raise NotImplementedError("torch.cuda.jiterator compiles kernels for a GPU, which stand-in GPUs can't run")

    def cudaCachingAllocator_raw_alloc(self, size: int, stream: int) -> int:
        """Refuse: raw memory of a GPU is of no use to the CPU's kernels."""
        raise NotImplementedError("stand-in GPUs have no raw memory: torch.cuda.caching_allocator_alloc is refused")

    def pin(self, pointer: int, size: int) -> None:
        """Count memory of the host as pinned; size 0: no longer."""
        self._core.trainjob_gpu_pin(ctypes.c_void_p(pointer), ctypes.c_size_t(size))

    def memory_of(self, index: int) -> Tuple[int, int]:
        """Return the free and the total bytes of one GPU."""
        total = self._device.gpus.memory_bytes
        return total - self._figures(index)[0], total

    def highest(self, index: int) -> int:
        """Return the most bytes that tensors ever took on one GPU."""
        return self._figures(index)[2]


class Runtime:
    """The part of CUDA's runtime that scripts call through torch.cuda.cudart()."""

    class cudaError(int):  # noqa: N801
        """A code; 0 is success."""

        success = 0

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def cudaGetErrorString(self, code: int) -> str:
        """Return the words for a code."""
        return _ERRORS.get(code, "error %d" % code)

    def cudaMemGetInfo(self, index: int) -> Tuple[int, int]:
        """Return the free and the total bytes of one GPU."""
        return self._functions.memory_of(index)

    def cudaProfilerStart(self) -> int:
        """Do nothing."""
        return 0

    cudaProfilerStop = cudaProfilerStart

    def cudaHostRegister(self, pointer: int, size: int, flags: int) -> int:  # noqa: ARG002
        """Count this memory of the host as pinned."""
        self._functions.pin(pointer, size)
        return 0

    def cudaHostUnregister(self, pointer: int) -> int:
        """Count it as pinned no longer."""
        self._functions.pin(pointer, 0)
        return 0

    def cudaDeviceGetDefaultMemPool(self, *_: Any) -> Any:
        """Refuse by name."""
        raise NotImplementedError("stand-in GPUs have no memory pools")


class Refused:
    """A class of torch._C that only a real GPU has."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            "CUDA graphs and memory pools need a real GPU: rehearse without them (a stand-in GPU computes on the CPU)"
        )


_REFUSED = [
    "_CUDAGraph",
    "_MemPool",
    "_graph_pool_handle",
    *(
        "_cuda_" + name
        for name in (
            "CUDAAllocator",
            "CUDAAllocator_AllocatorState",
            "beginAllocateToPool",
            "beginAllocateCurrentThreadToPool",
            "beginAllocateCurrentStreamToPool",
            "endAllocateToPool",
            "releasePool",
            "getCheckpointState",
            "setCheckpointPoolState",
            "checkPoolLiveAllocations",
            "getAllocator",
            "customAllocator",
            "changeCurrentAllocator",
        )
    ),
]


def put_into_torch() -> None:
    """Give torch._C what `torch.cuda` asks of it."""
    import torch

    from trainjob_gpu import streams

    streams.put_into_torch()
    functions = Functions(devices.loaded())
    native: Any = torch._C
    for name in dir(functions):
        if not name.startswith("_") and name not in ("memory_of", "highest", "pin"):
            setattr(native, "_cuda_" + name, getattr(functions, name))
    for name in _NOTHING:
        setattr(native, "_cuda_" + name, lambda *_: None)
    for name, answer in _ANSWERS.items():
        setattr(native, "_cuda_" + name, lambda answer=answer: answer)
    native._CudaDeviceProperties = Properties
    for name, value in _SWITCHES.items():
        _keep(native, name, value)
    native._host_emptyCache = lambda: None
    for name in _REFUSED:
        setattr(native, name, Refused)
    native._cudart = Runtime(functions)


def _keep(native: Any, name: str, value: Any) -> None:
    kept = [value]
    setattr(native, "_cuda_get_" + name, lambda: kept[0])
    setattr(native, "_cuda_set_" + name, lambda chosen: kept.__setitem__(0, chosen))
