"""rehearse --launch-only: real launchers on real daemons meet without ranks, and what they cost does not grow."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here

pytestmark = pytest.mark.timeout(600)


def test_what_a_node_does_to_the_run_directory_does_not_grow_with_their_number(
    needs: Callable[[str], Path], here: Here
) -> None:
    needs("slurm")
    needs("strace")
    here.patience_s = 500
    nodes = {"count": 5, "accelerator": "gpu", "accelerators": 2, "cpus": 4, "memory_gb": 100}
    site = {"kind": "slurm", "nodes": nodes, "runs_dir": "/shared/runs", "python": sys.executable}
    here.write("clusters/site.yaml", json.dumps(site))
    told = here.run("rehearse", "--cluster", "site", "--instances", "10", "--launch-only", "--json")
    verdict = json.loads(told.stdout)
    assert verdict["passed"], verdict["outcome"]
    assert verdict["same_bytes"]
    assert not Path(verdict["folder"]).exists()
    few, all_nodes = verdict["launches"]
    assert [(one["nodes"], one["ranks"], one["connections"]) for one in (few, all_nodes)] == [(2, 4, 1), (5, 10, 4)]
    # Loading the code takes fewer once another rank has compiled it; the rest differs by who is first to make a folder.
    own = [one["last_operations"] - one["last_on_code"] for one in (few, all_nodes)]
    assert 0 < own[1] < 1.5 * own[0]
