"""What torch's Python decides by how it was compiled, set right after `import torch`."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

from trainjob_gpu import legacy, mistakes, notes, summary


def apply(torch: Any) -> None:
    """Let torch.cuda, torch.load and storages find the stand-in GPUs."""
    from trainjob_gpu import kernels

    kernels.put_into_torch()
    _versions(torch)
    _properties(torch)
    _sensors(torch)
    _storages(torch)
    _loading(torch)
    _compiling(torch)
    _annotations(torch)
    _accelerator(torch)
    legacy.put_into_torch(torch)
    notes.watch_saving(torch)
    mistakes.explain_at_exit()
    summary.write_at_end()


def _versions(torch: Any) -> None:
    # Scripts ask for these to choose a path for GPUs.
    torch.version.cuda = "12.4"
    torch.backends.cuda.is_built = lambda: True
    torch.backends.cudnn.version = lambda: 90100
    torch.backends.cudnn.is_available = lambda: True
    torch.backends.cudnn.is_acceptable = lambda _tensor: False
    native = torch._C
    type(torch.backends.cudnn).benchmark_limit = torch.backends.ContextProp(
        native._cuda_get_cudnn_benchmark_limit, native._cuda_set_cudnn_benchmark_limit
    )


def _properties(torch: Any) -> None:
    cuda, functions = torch.cuda, torch._C
    cuda._get_device_properties = functions._cuda_get_device_properties

    def get_device_properties(device: Any = None) -> Any:
        cuda._lazy_init()
        return functions._cuda_get_device_properties(cuda._utils._get_device_index(device, optional=True))

    cuda.get_device_properties = get_device_properties
    cuda.memory.list_gpu_processes = lambda _device=None: "GPU:0\nno processes are running"
    cuda.memory.memory_snapshot = cuda.memory_snapshot = cuda.memory._snapshot = _no_history
    cuda.memory._record_memory_history = cuda.memory._dump_snapshot = _no_history
    cuda.__getattr__ = _unknown("torch.cuda", "")
    functions.__getattr__ = _unknown("torch._C", "_cuda")


def _sensors(torch: Any) -> None:
    # What NVML measures of a GPU: torch would say that a package is missing.
    for name in ("utilization", "temperature", "power_draw", "clock_rate", "memory_usage", "device_memory_used"):
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, _unmeasured("torch.cuda.%s()" % name))


def _unmeasured(call: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            "%s asks NVML, and stand-in GPUs have none: nothing is measured in a rehearsal. Let the script go on "
            "without the figure" % call
        )

    return refuse


def refuse_nvml(pynvml: Any) -> None:
    """Let pynvml fail as it does where there is no NVML, in words that name the stand-in."""

    class NoNvml(pynvml.NVMLError_LibraryNotFound):  # type: ignore[misc]
        def __str__(self) -> str:
            return "stand-in GPUs have no NVML, which pynvml asks: nothing is measured in a rehearsal"

    def init(*_: Any) -> Any:
        raise NoNvml

    for name in ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"):
        if hasattr(pynvml, name):
            setattr(pynvml, name, init)


def bind_to_no_node(binding: Any) -> None:
    """Let torchrun's --numa-binding start the ranks where they are: this machine's CPUs are near no GPU."""
    bound = binding._maybe_wrap_command_args_with_numa_binding

    def started(command: Any, *, gpu_index: int, numa_options: Any) -> Any:
        _say_no_node(numa_options)
        return bound(command, gpu_index=gpu_index, numa_options=None)

    def wrapped(function: Any, *, gpu_index: int, numa_options: Any) -> Any:  # noqa: ARG001 - torch's form
        _say_no_node(numa_options)
        return function

    binding._maybe_wrap_command_args_with_numa_binding = started
    binding._maybe_wrap_with_numa_binding = wrapped


def _say_no_node(options: Any) -> None:
    if options is not None and not _Reported.node:
        _Reported.node = True
        sys.stderr.write(
            "trainjob: --numa-binding=%s binds nothing in a rehearsal: stand-in GPUs are near no CPU. On the cluster "
            "it needs the program numactl on each node\n" % options.affinity_mode.value
        )


def _accelerator(torch: Any) -> None:
    # torch.accelerator's figures are asked of an allocator of torch's own kind; the stand-in's are torch.cuda's.
    native = torch._C
    for name, function in (
        ("isAllocatorInitialized", lambda: True),
        ("emptyCache", native._cuda_emptyCache),
        ("getDeviceStats", native._cuda_memoryStats),
        ("resetAccumulatedStats", native._cuda_resetAccumulatedMemoryStats),
        ("resetPeakStats", native._cuda_resetPeakMemoryStats),
        ("getMemoryInfo", torch.cuda.mem_get_info),
    ):
        if hasattr(native, "_accelerator_" + name):
            setattr(native, "_accelerator_" + name, function)


def _annotations(torch: Any) -> None:
    # What NVIDIA's profilers show: there is nothing to show here.
    nvtx = torch.cuda.nvtx
    nvtx.range_push = nvtx.range_pop = lambda *_: 0
    nvtx.range_start, nvtx.range_end, nvtx.mark = lambda _message: 0, lambda _range: None, lambda _message: None


def _no_history(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(
        "stand-in GPUs keep no history of their memory (_record_memory_history, memory_snapshot): "
        "torch.cuda.max_memory_allocated() and memory_summary() count tensors"
    )


def _unknown(module: str, beginning: str) -> Callable[[str], Any]:
    """Return a module's __getattr__: what a real GPU may have, and stand-ins lack, is never passed over in silence."""

    def missing(name: str) -> Any:
        words = "module %r has no attribute %r" % (module, name)
        if name.startswith(beginning) and not name.startswith("__"):
            words += (
                " on stand-in GPUs. If it exists on a real GPU, report it to trainjob with this line: torch %s, %s.%s, "
                "called at %s" % (sys.modules["torch"].__version__, module, name, notes.line_of_script())
            )
        raise AttributeError(words)

    return missing


def _storages(torch: Any) -> None:
    resize = torch.UntypedStorage.resize_

    def resize_(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return resize(self, size)
        holder = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        torch.ops.trainjob_gpu.resize_storage(holder, size)
        return self

    make = torch.UntypedStorage.__new__

    def new(cls: Any, *arguments: Any, device: Any = None, **options: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return make(cls, *arguments, **options, **({} if device is None else {"device": device}))
        return torch.empty(*arguments, dtype=torch.uint8, device=device).untyped_storage()

    def share(_storage: Any, *_: Any) -> Any:
        raise NotImplementedError(
            "stand-in GPUs share no memory between processes: send tensors of the CPU through queues"
        )

    torch.UntypedStorage.resize_, torch.UntypedStorage.__new__ = resize_, new
    torch.UntypedStorage._share_cuda_ = share


def _loading(torch: Any) -> None:
    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        index = _index(torch, location)
        notes.loaded_to(index)
        data = torch.tensor([], dtype=torch.uint8).set_(storage.untyped() if hasattr(storage, "untyped") else storage)
        return torch.ops.trainjob_gpu.storage_on(data, index).untyped_storage()

    torch.serialization.register_package(15, lambda _storage: None, restore)


def _index(torch: Any, location: str) -> int:
    device = torch.device(location)
    index: int = device.index if device.index is not None else torch.cuda.current_device()
    count = torch.cuda.device_count()
    if not count:
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are "
            "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
            "storages to the CPU."
        )
    if index >= count:
        raise RuntimeError(
            "Attempting to deserialize object on CUDA device %d but torch.cuda.device_count() is %d. Please use "
            "torch.load with map_location to map your storages to an existing device." % (index, count)
        )
    return index


def _compiling(torch: Any) -> None:
    compile_ = torch.compile

    def compile_or_not(model: Any = None, **options: Any) -> Any:
        if os.environ.get("TRAINJOB_STANDIN_COMPILE") == "1":
            return compile_(model, **options)
        if not _Reported.compile:
            _Reported.compile = True
            sys.stderr.write("trainjob: torch.compile is skipped on stand-in GPUs: the model runs as it is\n")
        return (lambda own: own) if model is None else model

    torch.compile = compile_or_not
    torch.compiler.cudagraph_mark_step_begin = lambda: None


class _Reported:
    compile = False
    node = False
