"""V-IPU partitions that a run has made and that its job script could not remove."""

from __future__ import annotations

from trainjob.backends.base import place_of
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.records import job as jobs


def remove(paths: RunPaths) -> None:
    """Remove the partitions that the run has noted as its own, and no other. Raises UserError if that fails."""
    if not paths.job.is_file():
        return  # an element of an array that has not begun
    cluster = table.recorded_cluster(jobs.read(paths.job)).ipu_keys
    if cluster is None:
        return
    machine, folder = place_of(paths)
    ended = machine.run(
        package.program_command(__file__, "remove_partitions", folder, cluster.vipu.server or ""),
        check=False,
    )
    if ended.code != 0:
        raise UserError(
            f"run {paths.id} has ended, but its partition can't be removed from {machine.name}: {ended.stderr.strip()}",
            "Remove it on a host that has vipu: vipu remove partition NAME",
        )
