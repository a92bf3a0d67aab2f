"""The partition that a run has made, where its script could not remove it."""

from __future__ import annotations

from typing import Any

from trainjob.contract import job as jobs
from trainjob.contract.paths import RunPaths
from trainjob.submit.machine import Machine

# The job script notes in `partition` what was not there before it began: that, and nothing else, is the run's own.
_REMOVE = """
cd "$1" && [ -s partition ] || exit 0
name=$(cat partition)
export VIPU_CLI_API_HOST=$2
if vipu get partition "$name" >/dev/null 2>&1; then vipu remove partition "$name" || exit 1; fi
rm -f partition
"""


def remove_own(machine: Machine, folder: str, paths: RunPaths) -> None:
    """Remove the partition that the run noted as its own, if it did. Raises UserError when V-IPU refuses."""
    vipu: dict[str, Any] = jobs.read(paths.job).asked["cluster"]["file"].get("vipu") or {}
    if vipu.get("server"):
        machine.run(["sh", "-c", _REMOVE, "sh", folder, vipu["server"]])
