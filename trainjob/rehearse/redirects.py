"""What a rehearsal redirects: the variables that job scripts read with a default."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from trainjob.cluster.models import Cluster
from trainjob.contract.environment import set_redirects


def redirects(
    cluster: Cluster, environ: Mapping[str, str], updates: int | None, data_dir: Path | None
) -> dict[str, str]:
    """Return name → value. What the user has set holds; `updates` None rehearses the whole job."""
    ours = {
        "TRAINJOB_PYTHON": sys.executable,
        "TRAINJOB_PROLOGUE": "skip",
        "TRAINJOB_DEVICE": "cpu",
        "TRAINJOB_CONTAINER": "none",
    }
    if data_dir is not None:
        ours["TRAINJOB_DATA_DIR"] = str(data_dir)
    if cluster.network.interface:
        ours["TRAINJOB_INTERFACE"] = "lo"
    if updates is not None:
        ours["TRAINJOB_MAX_UPDATES"] = str(updates)
    return {**ours, **set_redirects(environ)}
