"""Answers an image's health check: whether training in this container makes progress.

python3 -m trainjob.launch.witness.health
"""

from __future__ import annotations

import os
import sys
import time
from typing import Mapping, Optional

from trainjob.contract.environment import ATTEMPT, RUN_DIR
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
    progress, limit_s = progress_record.read(paths), _limit_s(paths)
    is_mine = str(progress.attempt) == environ.get(ATTEMPT)
    if not is_mine or limit_s is None or time.time() - (progress.heartbeat or 0.0) <= limit_s:
        return 0
    sys.stdout.write("no update for more than %g s\n" % limit_s)
    return 1


def _limit_s(paths: RunPaths) -> Optional[float]:
    try:
        train = jobs.read(paths.job).train
    except jobs.ContractError:
        return None
    return None if train is None else train.stall_timeout_s


if __name__ == "__main__":
    sys.exit(main(os.environ))
