"""Answers an image's health check: whether training in this container makes progress.

python3 -m trainjob.launch.witness.health
"""

from __future__ import annotations

import os
import sys
from typing import Mapping

from trainjob.contract import clock
from trainjob.contract.environment import ATTEMPT, RUN_DIR
from trainjob.contract.liveness import PROGRESS, SignsOfLife, StallLimits, silence_of
from trainjob.contract.paths import RunPaths
from trainjob.records import job as jobs
from trainjob.records import progress as progress_record


def main(environ: Mapping[str, str]) -> int:
    """Return 0, or 1 if rank 0 has reported nothing for the job's stall timeout.

    A container without a run, a command that reports no progress and a run that has just started are healthy.
    """
    folder = environ.get(RUN_DIR)
    if not folder:
        return 0
    paths = RunPaths(folder)
    progress = progress_record.read(paths)
    try:
        train = jobs.read(paths.job).train
    except jobs.ContractError:
        return 0
    if train is None or str(progress.attempt) != environ.get(ATTEMPT):
        return 0
    signs, limits = SignsOfLife(progress=progress.heartbeat or 0.0), StallLimits(train.stall_timeout_s)
    silence = silence_of(PROGRESS, signs, clock.time(), limits)
    if silence is None:
        return 0
    sys.stdout.write("%s\n" % silence.text)
    return 1


if __name__ == "__main__":
    sys.exit(main(os.environ))
