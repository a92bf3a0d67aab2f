"""Instances of an IPU program, started as poprun starts them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from typing import Any

from trainjob.rehearse.pod import python_folders

PATIENCE_S = 200
_MEETINGS = tempfile.TemporaryDirectory(prefix="trainjob-test-")  # gone when the tests of this process are
_NUMBERS = itertools.count()


def environment(instance: int, instances: int, replicas: int, ipus: int = 1) -> dict[str, int]:
    """Return what poprun tells one instance (ipu.md 2.2); `replicas` are of all instances."""
    local = replicas // instances
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": replicas,
        "POPDIST_NUM_LOCAL_REPLICAS": local,
        "POPDIST_REPLICA_INDEX_OFFSET": instance * local,
        "POPDIST_NUM_IPUS_PER_REPLICA": ipus,
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        "POPDIST_LOCAL_INSTANCE_INDEX": instance,
    }


def _reported(*where: int) -> dict[str, str]:
    return {name: str(value) for name, value in environment(*where).items()}


def everywhere() -> dict[str, str]:
    """Return what every instance is told besides, without what this test's own process was told."""
    reported = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "POPDIST_"))
    }
    reported["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in python_folders(has_horovod=False))
    reported["OMP_NUM_THREADS"] = "1"
    reported["TRAINJOB_STANDIN_MEETING"] = f"{_MEETINGS.name}/{next(_NUMBERS)}"
    return reported


def run(
    script: str, instances: int = 1, replicas: int = 1, ipus: int = 1, python: str = sys.executable, **environ: Any
) -> list[tuple[str, str]]:
    """Return what each instance printed to standard output and to standard error, once all have ended well.

    `replicas` 0: one process that poprun has not started.
    """
    shared = everywhere()
    shared.update({name: str(value) for name, value in environ.items()})
    started = [
        subprocess.Popen(
            [python, "-W", "error", "-c", script],
            env={**shared, **(_reported(index, instances, replicas, ipus) if replicas else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(instances)
    ]
    try:
        output = [one.communicate(timeout=PATIENCE_S) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()
    assert [one.returncode for one in started] == [0] * instances, output
    return output
