"""Answers an image's health check: whether the training in this container goes on.

python3 -m trainjob.train.health
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Mapping

from trainjob.contract.environment import ATTEMPT, RUN_DIR
from trainjob.contract.files import read_json
from trainjob.contract.paths import RunPaths


def main(environ: Mapping[str, str]) -> int:
    """Return 0, or 1 when rank 0 of the run has said nothing for as long as the job calls stalled.

    A container without a run, a command that reports no progress and a run that has just begun are healthy.
    """
    folder = environ.get(RUN_DIR)
    if not folder:
        return 0
    paths = RunPaths(folder)
    progress = _mapping(read_json(paths.progress))
    limit_s = _mapping(_mapping(read_json(paths.job)).get("train")).get("stall_timeout_s")
    is_mine = str(progress.get("attempt")) == environ.get(ATTEMPT)
    if not is_mine or limit_s is None or time.time() - progress["heartbeat"] <= limit_s:
        return 0
    sys.stdout.write("no update for more than %g s\n" % limit_s)
    return 1


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


if __name__ == "__main__":
    sys.exit(main(os.environ))
