"""How often a run is looked at while somebody waits for it."""

from __future__ import annotations

from trainjob.contract.paths import RunPaths
from trainjob.submit.base import read_submission

_HERE_S = 0.2
# A login node and a scheduler are shared with many.
_ELSEWHERE_S = 3.0


def between_looks_s(paths: RunPaths) -> float:
    """Return the seconds between two looks at a run."""
    submission = read_submission(paths)
    return _HERE_S if submission is None or submission.backend == "local" else _ELSEWHERE_S
