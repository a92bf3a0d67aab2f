"""The ladder of `trainjob cluster accept` on a private Slurm, and with defects that it must name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.slurm_site import DESCRIPTION, Site, site

pytestmark = pytest.mark.timeout(900)


def climb(cluster: Site, *words: str, **changes: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code and the outcomes by rung."""
    # Its nodes are this machine: the file says what that has, and Slurm may believe in more.
    nodes = {"count": 2, "cpus": os.cpu_count(), "memory_gb": 2, **changes.pop("nodes", {})}
    cluster.write_cluster("twin", nodes=nodes, **changes)
    ended = cluster.trainjob("cluster", "accept", "twin", "--json", *words, timeout_s=800)
    assert '"outcomes"' in ended.out, ended.out + ended.err
    return ended.code, {one["rung"]: one for one in json.loads(ended.out)["outcomes"]}


def failures(rungs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: one["problems"] for name, one in rungs.items() if one["state"] == "failed"}


def test_every_rung_but_the_slow_one_passes(cluster: Site) -> None:
    code, rungs = climb(cluster, "--skip", "time-limit")
    assert (code, failures(rungs)) == (0, {})
    assert {name for name, one in rungs.items() if one["state"] == "skipped"} == {"device", "time-limit"}
    assert rungs["two-hosts"]["figures"]["gb_per_s"] > 0
    assert rungs["same-training"]["figures"]["updates"] == 20
    assert (cluster.here / "accept-twin" / "ladder.html").is_file()
    assert not cluster.run("squeue", "--noheader").out


def test_a_gpu_that_no_rank_finds(cluster: Site) -> None:
    code, rungs = climb(cluster, nodes={"accelerator": "gpu", "accelerators": 1}, request="none")
    assert (code, list(failures(rungs))) == (1, ["rank"])
    assert "needs a GPU of its own and 0 are visible" in rungs["rank"]["problems"][0]["problem"]
    assert rungs["cancel"]["state"] == "not climbed"


@pytest.mark.full
@pytest.mark.parametrize("release", ["20.11", "22.05", "24.11", "26.05"])
def test_the_whole_ladder_on_every_release(release: str, tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("slurm")
    with site(tmp_path, needs("sshd"), replace(DESCRIPTION, release=release)) as made:
        code, rungs = climb(made)
        assert (code, failures(rungs)) == (0, {})
        assert rungs["time-limit"]["state"] == "passed"
