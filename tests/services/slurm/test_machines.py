"""Each public machine's file is rehearsed on a private twin: its nodes, GPUs, partition, limits and options."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ran
from trainjob.kinds.lookup import sites
from trainjob.kinds.slurm.model import SlurmCluster

# One here, as `make test-all` runs it; the others take some ten seconds each.
SITES = [pytest.param(site, marks=() if site.name == "lumi-g" else pytest.mark.full, id=site.name) for site in sites()]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("site", SITES)
def test_a_job_runs_on_the_twin(site: Any, needs: Callable[[str], Path], tmp_path: Path) -> None:
    needs("slurm")
    hosts = min(2, SlurmCluster.of(site.read().cluster).capacity.most_hosts)
    flags = ("--hosts", str(hosts), "--no-gpus", "--keep", "--json", "--", "hostname")
    command = [sys.executable, "-m", "trainjob.cli.main", "rehearse", "--cluster", site.name, *flags]
    environ = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    ended = ran(command, folder=tmp_path, environ=environ, code=0)
    verdict = json.loads(ended.stdout)
    assert (verdict["state"], verdict["same_bytes"]) == ("COMPLETED", True)
    output = "".join(path.read_text() for path in Path(verdict["folder"], "logs").glob("rank-*.log"))
    assert {word for word in output.split() if word.startswith("node")} >= {f"node{n}" for n in range(1, hosts + 1)}
