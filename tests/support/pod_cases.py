"""Pods that the tests of rendering share: as sites write them, and the invocations that are published."""

from __future__ import annotations

import copy
from typing import Any

from trainjob.cluster.job import Job
from trainjob.kinds.lookup import find
from trainjob.kinds.table import cluster_of
from trainjob.planning.build import plan
from trainjob.render.request import Request

# Everything that a site says of its pod.
SITE: dict[str, Any] = {
    "kind": "ipu-pod",
    "ipus": 64,
    "hosts": "pod-host[1-4]",
    "ssh": {"host": "pod-host1", "user": "ml"},
    "vipu": {"server": "pod-ctl", "partition": "p64", "timeout_s": 600},
    "network": {"interface": "eno1"},
    "sdk": {"version": "3.3.0", "path": "/opt/poplar_sdk", "venv": "/shared/venvs/poptorch-3.3"},
    "poprun": {"numa": "spread"},
    "runs_dir": "/shared/runs",
    "data_dir": "/localdata",
    "env": {"POPLAR_LOG_LEVEL": "WARN"},
}


def site(changes: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Return SITE with some sections changed key by key, and some keys replaced; None takes a key out."""
    values = copy.deepcopy(SITE)
    for section, change in (changes or {}).items():
        values[section] = {**values.get(section, {}), **change}
    values.update(keys)
    return {key: value for key, value in values.items() if value is not None}


def pod_request(values: dict[str, Any], **job: Any) -> Request:
    cluster = cluster_of(values)
    asked = Job(**job)
    origins = {key: f"flag --{key.replace('_', '-')}" for key in job}
    return Request(cluster, "cluster file pod.yaml", asked, origins, plan("pod", cluster, asked))


def _catalog(name: str, **job: Any) -> Request:
    found, asked = find(name), Job(**job)
    return Request(found.cluster, found.origin_word, asked, {}, plan(found.name, found.cluster, asked))


def pod_requests() -> dict[str, Request]:
    """Return the request of each pair of golden files: NAME.sh and NAME.job.json."""
    old = {"version": "2.6.0", "path": "/opt/sdk 2.6", "venv": "~/venvs/poptorch-2.6"}
    own = {"server": "pod-ctl", "partition": None, "allocation": "all", "update_partition": True}
    return {
        "pod4": _catalog("pod4"),
        "pod16": _catalog("pod16", instances=4, replicas=8, command=["python", "main.py", "--note", "a b"]),
        "pod64": _catalog("pod64", instances=8),
        "pod128": _catalog("pod128", instances=16),
        "pod256": _catalog("pod256", instances=32),
        "pod64-sdk2.6": pod_request(site({"poprun": {"executable_cache": "~/caches/a b"}}, sdk=old), instances=8),
        "pod64-sdk3.1": pod_request(site({"sdk": {"version": "3.1.0"}, "vipu": own}), compile_first=True),
        "pod64-sdk3.4": pod_request(
            site(
                {"sdk": {"version": "3.4.0"}, "poprun": {"host_list": "range", "verbosity": 2}}, prologue=["ulimit -l"]
            ),
            compile_only=True,
            poprun={"sync-type": "ST_POD_NATIVE_DEFAULT"},
        ),
    }


# IPUs that Slurm gives, in the three styles of sites: whole nodes, --ipus, and a partition that the job makes.
SLURM_IPU: dict[str, Any] = {
    "kind": "slurm",
    "nodes": {"count": 4, "accelerator": "ipu", "accelerators": 16, "cpus": 96},
    "request": "none",
    "directives": {"partition": "ipu", "exclusive": True},
    "time_limit": "04:00:00",
    **{key: SITE[key] for key in ("sdk", "network", "runs_dir", "data_dir", "env")},
    "vipu": {"server": "pod-ctl", "partition": "p64"},
}
_BY_OPTION: dict[str, Any] = {
    "nodes": {"count": 2, "accelerator": "ipu", "accelerators": 4, "cpus": 48},
    "request": "ipus",
    "directives": {"partition": "p64"},
    "vipu": {"partition": "slurm_%j"},
    "network": None,
    "preemption": "user-signal",
}
_OWN: dict[str, Any] = {
    "request": "gres",
    "vipu": {"server": "pod-ctl", "allocation": "c%j"},
    "sdk": {"version": "3.3.0"},
    "prologue": ["module load graphcore/vipu/1.18.0 graphcore/sdk/3.3.0"],
    "python": "/shared/venvs/poptorch-3.3/bin/python",
    "poprun": {"host_list": "range"},
}


def slurm_ipu_site(**keys: Any) -> dict[str, Any]:
    """Return SLURM_IPU with some keys replaced; None takes a key out."""
    return {key: value for key, value in {**copy.deepcopy(SLURM_IPU), **keys}.items() if value is not None}


def slurm_ipu_requests() -> dict[str, Request]:
    """Return the request of each pair of golden files for IPUs under Slurm."""
    return {
        "slurm-ipu-nodes": pod_request(slurm_ipu_site(), instances=8),
        "slurm-ipu-option": pod_request(
            slurm_ipu_site(**_BY_OPTION), instances=2, command=["python", "main.py", "a b"]
        ),
        "slurm-ipu-partition": pod_request(slurm_ipu_site(**_OWN), hosts=2, compile_first=True),
        "slurm-ipu-domains": pod_request(
            slurm_ipu_site(nodes={"count": 8, "accelerator": "ipu", "accelerators": 16, "cpus": 96}, vipu=_OWN["vipu"]),
            instances=8,
        ),
    }
