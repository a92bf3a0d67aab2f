"""The fate of each part of torch: docs/reference/gpus.md is written from this table, and a test tries its rows."""

from __future__ import annotations

from typing import List, NamedTuple

from trainjob_gpu import mistakes, refusals

WORKS, NOTHING, REFUSED = "works", "does nothing", "refused"


class Row(NamedTuple):
    """One part of torch: what is shown, what becomes of it, a line that tries it, and what there is to know."""

    what: str
    outcome: str
    line: str
    note: str = ""


ROWS: List[Row] = [
    Row("`is_available`, `device_count`", WORKS, "torch.cuda.device_count()", "cut down by CUDA_VISIBLE_DEVICES"),
    Row(
        "`set_device`, `current_device`, `device`",
        WORKS,
        "torch.cuda.set_device(0)",
        "a missing index is torch's error",
    ),
    Row("`get_device_name`, `_properties`, `_capability`", WORKS, "torch.cuda.get_device_properties(0)"),
    Row("`torch.accelerator`", WORKS, "torch.accelerator.device_count(); torch.accelerator.memory_allocated()"),
    Row("`memory_allocated`, `memory_summary`, `mem_get_info`", WORKS, "torch.cuda.memory_summary()", "tensors alone"),
    Row("`set_per_process_memory_fraction`", WORKS, "torch.cuda.set_per_process_memory_fraction(0.5, 0)"),
    Row("`torch.cuda.OutOfMemoryError`", WORKS, "torch.cuda.OutOfMemoryError", "raised at the GPU's size"),
    Row("`get_rng_state`, `manual_seed`, generators", WORKS, "torch.cuda.set_rng_state(torch.cuda.get_rng_state())"),
    Row("streams and events", WORKS, "torch.cuda.Stream().wait_event(torch.cuda.Event())", "times are the CPU's"),
    Row("`.to`, `.cuda`, `device=`, device contexts", WORKS, "torch.ones(1).to(0).cuda(1)"),
    Row("pinned memory, `non_blocking`", WORKS, "torch.ones(1).pin_memory().cuda(non_blocking=True)"),
    Row("`torch.cuda.FloatTensor` and its kind", WORKS, "torch.cuda.FloatTensor(2)"),
    Row(
        "16 bits where the CPU has no kernel, or a slow one",
        WORKS,
        "torch.fft.fft(torch.ones(2).cuda().half())",
        "by float32",
    ),
    Row("`torch.inference_mode`", WORKS, "with torch.inference_mode(): torch.ones(2, 2).cuda().view(4)"),
    Row("autocast, GradScaler", WORKS, "torch.amp.GradScaler('cuda'); torch.autocast('cuda')"),
    Row("channels_last", WORKS, "torch.ones(1, 1, 2, 2).cuda().to(memory_format=torch.channels_last)"),
    Row("sparse tensors", WORKS, "torch.eye(2).to_sparse().cuda().to_dense()"),
    Row("DataParallel", WORKS, "torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())(torch.ones(4, 2).cuda())"),
    Row("the profiler", WORKS, "with torch.profiler.profile(): torch.ones(1).cuda()", "times are the CPU's"),
    Row(
        "`torch.compile`", NOTHING, "torch.compile(torch.nn.Linear(1, 1))", "one line says so; the model runs as it is"
    ),
    Row("`synchronize`, `empty_cache`, `ipc_collect`", NOTHING, "torch.cuda.synchronize(); torch.cuda.empty_cache()"),
    Row("`record_stream`", NOTHING, "torch.ones(1).cuda().record_stream(torch.cuda.current_stream())"),
    Row("cuDNN's flags, TF32", NOTHING, "torch.backends.cudnn.benchmark = True"),
    Row("NVTX, `profiler.start`", NOTHING, "torch.cuda.nvtx.range_push('a'); torch.cuda.profiler.start()"),
    Row(
        "`utilization`, `temperature` and their kind, pynvml", REFUSED, "torch.cuda.utilization()", "NVML measures them"
    ),
    Row("`torch.cuda.jiterator`", REFUSED, "torch._C._cuda_jiterator_compile_and_launch_kernel()"),
    Row("CUDA graphs", REFUSED, "torch.cuda.CUDAGraph()"),
    Row("memory pools", REFUSED, "torch.cuda.MemPool()"),
    Row("`caching_allocator_alloc`", REFUSED, "torch.cuda.caching_allocator_alloc(8)"),
    Row("`memory_snapshot`, `_record_memory_history`", REFUSED, "torch.cuda.memory_snapshot()"),
    Row("events that processes share", REFUSED, "torch.cuda.Event(interprocess=True)"),
    Row("GPU tensors sent to another process", REFUSED, "torch.ones(1).cuda().untyped_storage()._share_cuda_()"),
    Row("any other name of `torch.cuda`", REFUSED, "torch.cuda.no_such_name", "AttributeError: says how to report it"),
    *(
        Row("`import %s`" % module, REFUSED, "import %s" % module, "%s brings CUDA kernels of its own" % name)
        for module, name in refusals.PACKAGES.items()
    ),
]

_COLLECTIVES = """## torch.distributed

`nccl`, and `cpu:gloo,cuda:nccl`, run on gloo: all collectives, `batch_isend_irecv`, coalesced ones, `AVG`. Refused:
`PREMUL_SUM`. Before each collective the ranks compare what they are about to call, so that what hangs on GPUs is an
error here. A rank that does not call it at all is found after 300 seconds (`TRAINJOB_STANDIN_HANG_S`), with the lines
that all ranks are at. These ran unmodified: DDP with its hooks, FSDP1, FSDP2, tensor parallelism,
ZeroRedundancyOptimizer, torch.distributed.checkpoint, DataParallel, torchrun, `torch.multiprocessing.spawn`.
"""


def page() -> str:
    """Return the reference page, in Markdown."""
    parts = ["# Stand-in GPUs\n\nWhat `trainjob rehearse` puts under a CPU build of torch, part by part.\n"]
    for outcome in (WORKS, NOTHING, REFUSED):
        parts.append("## %s\n\n| what | note |\n|---|---|\n" % outcome.capitalize())
        parts[-1] += "".join("| %s | %s |\n" % (row.what, row.note) for row in ROWS if row.outcome == outcome)
    parts.append(_COLLECTIVES)
    parts.append("## What a failed rank is told\n\n| error | cure |\n|---|---|\n")
    parts[-1] += "".join(
        "| %s | %s |\n" % (pattern.replace("|", " or ").replace(".*", " … ").replace("\\d+", "N"), words)
        for pattern, words in mistakes.CURES
    )
    return "\n".join(parts)
