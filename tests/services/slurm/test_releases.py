"""Other releases of Slurm rehearse the same bytes; the whole of what a job may meet there is `make matrix`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here
from tests.support.slurm_jobs import POLL_S
from tests.support.waiting import until
from trainjob.rehearse.slurm.description import Description
from trainjob.rehearse.slurm.private import private_slurm

pytestmark = pytest.mark.timeout(900)

SITE: dict[str, Any] = {
    "kind": "slurm",
    "nodes": {"count": 2, "cpus": 2},
    "runs_dir": "/shared/runs",
    "time_limit": "00:30:00",
    "python": sys.executable,
}


@pytest.mark.parametrize("release", [pytest.param("20.11", marks=pytest.mark.full), "26.05"])
def test_the_same_bytes_are_rehearsed_on(release: str, needs: Callable[[str], Path], here: Here) -> None:
    needs("slurm releases")
    here.patience_s = 600
    site = {**SITE, "slurm": {"version": release, "task_plugin": "affinity"}}
    here.write("clusters/site.yaml", json.dumps(site))
    asked = ("rehearse", "--cluster", "site", "--instances", "2", "--hosts", "2", "--slurm", release)
    reported = here.run(*asked, "--inject", "rank-death", "--", "sleep", "600").stdout
    assert f"it is Slurm {release}\n" in reported
    assert "same bytes" in reported
    assert "PASSED: FAILED and rank 1 is named, exit code 137" in reported


def test_accounts_are_checked_where_the_site_does(needs: Callable[[str], Path], tmp_path: Path) -> None:
    needs("slurm releases")
    with private_slurm(Description(nodes=1, accounting=True, account="abc", qos="fast", release="22.05")) as slurm:
        slurm.run(["sbatch", "--account=abc", "--qos=fast", "--output=/dev/null", "--wrap=true"])
        sacct = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=account,qos,state"]
        # The database hears of a job's end later than those who wait for the job.
        until(lambda: slurm.run(sacct).text == "abc|fast|COMPLETED\n", "the account of the job", poll_s=POLL_S)
        refused = slurm.run(["sbatch", "--account=other", "--wrap=true"], check=False)
        assert "Invalid account" in refused.stderr
