"""A summary of one rank's use of its stand-in GPUs, written when it ends, for the rehearsal to sum up."""

from __future__ import annotations

import json
import os
import sys
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Dict, NoReturn

from trainjob_gpu import whereabouts


def write_at_end() -> None:
    """Write this rank's summary when the process ends, where a rehearsal asks for it."""
    if not os.environ.get(whereabouts.FOLDER):
        return
    process, leave = os.getpid(), os._exit
    # Processes that multiprocessing starts end without atexit; this serves both.
    Finalize(None, _write, (process,), exitpriority=0)

    def leave_with_summary(status: int) -> NoReturn:
        _write(process)
        leave(status)

    # A rank of trainjob's own tasks leaves so, and finalizes nothing.
    os._exit = leave_with_summary


def _write(process: int) -> None:
    rank = whereabouts.rank()
    # A worker that was forked off leaves it to its rank, and torchrun's agent to those that it started.
    if os.getpid() != process or rank is None or "torch.distributed.launcher.api" in sys.modules:
        return
    target = Path(os.environ[whereabouts.FOLDER]) / ("rank-%04d.json" % rank)
    if target.exists() and not whereabouts.is_of_group():
        return  # a process that only started the rank
    staging = target.with_name(".%s.%d.part" % (target.name, process))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text(json.dumps(summary(rank), indent=1, sort_keys=True))
        os.replace(str(staging), str(target))
    except OSError:
        return  # a rank's end must not depend on its summary


def summary(rank: int) -> Dict[str, Any]:
    """Return the GPUs that were used with the most memory that tensors took, the collectives, and the notes."""
    from trainjob_gpu import collectives, notes
    from trainjob_gpu.device import loaded
    from trainjob_gpu.functions import Functions

    device = loaded()
    functions = Functions(device)
    return {
        "rank": rank,
        "host": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
        "gpus": {
            str(number): functions.highest(index)
            for index, number in enumerate(device.numbers)
            if functions.highest(index)
        },
        "collectives": [
            {"kind": kind, "dtype": dtype, "calls": count, "bytes": collectives.sent[kind, dtype]}
            for (kind, dtype), count in sorted(collectives.calls.items())
        ],
        "notes": notes.all_notes(),
        "saved": notes.saved_files(),
    }
