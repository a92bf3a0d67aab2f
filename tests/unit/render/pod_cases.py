"""Pods that the tests of rendering share: as sites write them, and the invocations that are published."""

from __future__ import annotations

import copy
import shlex
from typing import Any

from trainjob.cluster.job import Job
from trainjob.cluster.lookup import find
from trainjob.cluster.models import CLUSTER
from trainjob.plan.build import plan
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
    cluster = CLUSTER.validate_python(values)
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


def words_after_poprun(script: str) -> list[str]:
    """Return the words of a script's last poprun line, as the shell would read them but for variables."""
    line = script[script.rindex("\nexec poprun ") : script.index("\n) &")]
    return shlex.split(line.replace("\\\n", " "))[2:]


def poprun_options(script: str) -> dict[str, str | None]:
    """Return the options of a script's last poprun line."""
    words = words_after_poprun(script)
    options = words[: words.index("$TRAINJOB_PYTHON")]
    return {name: value if equals else None for name, equals, value in (word.partition("=") for word in options)}
