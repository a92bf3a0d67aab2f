"""Mistakes of scripts with GPUs: a failed rank's last line names the rank, the line of the script and the cure."""

from __future__ import annotations

import re
import sys
import traceback
from types import TracebackType
from typing import Any, Optional, Type

from trainjob_gpu import notes, whereabouts

_OWN_GPU = "call torch.cuda.set_device(LOCAL_RANK) before anything is put on a GPU, and use that device"

# What an error says -> what to do. The first that fits counts.
CURES = [
    (r"Duplicate GPU detected", "two ranks use one GPU: " + _OWN_GPU),
    (
        r"ranks call different collectives",
        "let every rank call the same collectives, in the same order, with equal shapes",
    ),
    (
        r"another rank has ended or left the group",
        "let every rank make the same number of steps (drop_last=True, a sampler that evens out, or join())",
    ),
    (
        r"not every rank calls it",
        "let every rank call it, or none; if the others only take long: --env TRAINJOB_STANDIN_HANG_S=SECONDS",
    ),
    (
        r"(No backend type associated with device type cpu|Tensors must be CUDA and dense).* in "
        r"_verify_param_shape_across_processes",
        "move the model to this rank's GPU before DistributedDataParallel wraps it: DDP(model.to(device))",
    ),
    (
        r"No backend type associated with device type cpu|Tensors must be CUDA and dense",
        "NCCL takes tensors of GPUs alone: move the tensor to this rank's GPU, or call "
        'init_process_group("cpu:gloo,cuda:nccl")',
    ),
    (
        r"tensor not on device passed to init_process_group",
        "give init_process_group the GPU that this rank computes on: device_id=torch.device('cuda', LOCAL_RANK)",
    ),
    (
        r"Expected all tensors to be on the same device.* and cpu|Input type .* and weight type .* should be the same",
        "move the batch to the model's GPU before the model is called: batch = batch.to(device)",
    ),
    (
        r"Expected all tensors to be on the same device|module must have its parameters and buffers on device",
        "move the model and its inputs to this rank's GPU: " + _OWN_GPU,
    ),
    (
        r"invalid device ordinal|Attempting to deserialize object on CUDA device",
        "start no more ranks on a node than it has GPUs, and number GPUs by LOCAL_RANK, not by RANK",
    ),
    (
        r"No CUDA GPUs are available|CUDA device but torch.cuda.is_available",
        "ask for a GPU for each rank (--gres, --gpus)",
    ),
    (
        r"Cannot re-initialize CUDA in forked subprocess",
        "start processes that use GPUs by torch.multiprocessing.spawn, and let DataLoader's workers stay on the CPU",
    ),
    (r"CUDA out of memory", "take a smaller batch, activation checkpointing, or FSDP"),
    (r"can't convert cuda:\d+ device type tensor to numpy", "call .cpu() first"),
]


def cure(text: str) -> Optional[str]:
    """Return what to do about an error that says `text`, with the functions that it left; None if not known."""
    return next((words for pattern, words in CURES if re.search(pattern, text, re.S)), None)


def explain_at_exit() -> None:
    """After the traceback of an uncaught error, say which rank stopped, at which line, and what to do."""
    before = sys.excepthook

    def explained(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> Any:
        result = before(kind, error, trace)
        line = explanation(error, trace)
        if line:
            sys.stderr.write(line + "\n")
        return result

    sys.excepthook = explained


def explanation(error: BaseException, trace: Optional[TracebackType]) -> Optional[str]:
    """Return the last line of a rank that has failed; None for an error that is not about GPUs."""
    calls = [one.name for one in traceback.extract_tb(trace)]
    words = cure("%s in %s" % (error, " in ".join(reversed(calls))))
    if words is None:
        return None
    rank = whereabouts.rank()
    who = "trainjob: " if rank is None else "trainjob: rank %d " % rank
    return "%sstopped at %s: %s" % (who, _line(error, trace), words)


def _line(error: BaseException, trace: Optional[TracebackType]) -> str:
    # torch.multiprocessing raises anew what a process that it started has printed.
    started = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', str(error))
    frames = [(name, int(number), function) for name, number, function in started]
    frames = frames or [(one.filename, one.lineno or 0, one.name) for one in traceback.extract_tb(trace)]
    own = [frame for frame in frames if notes.is_own(frame[0])]
    return "%s:%d in %s" % (notes.short(own[-1][0]), *own[-1][1:]) if own else "an unknown line"
