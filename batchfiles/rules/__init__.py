"""Rules for batch files: each looks at one script and yields what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from batchfiles.rules import around, asked, ending, meeting, started, written
from batchfiles.rules.codes import Finding
from batchfiles.slurm.script import BatchScript

RULES: tuple[Callable[[BatchScript], Iterator[Finding]], ...] = (
    asked.refused,
    asked.unknown_options,
    asked.ignored,
    asked.not_expanded,
    asked.cut,
    asked.left_to_the_site,
    asked.logs,
    asked.requeue,
    asked.nodes_by_name,
    asked.placeholders,
    asked.old_or_loose,
    asked.beyond_cluster,
    meeting.address,
    meeting.without_endpoint,
    meeting.undefined,
    meeting.port,
    meeting.from_job_id,
    meeting.world,
    meeting.ranks,
    started.worlds,
    started.elastic_alone,
    started.gpus,
    started.several_nodes,
    started.bad_exit,
    started.cpus,
    started.threads,
    started.hidden_peers,
    started.fans_out,
    started.binding,
    started.unused_tasks,
    ending.time_limit,
    ending.signals,
    ending.exit_code,
    ending.cleanup,
    ending.never_ends,
    ending.cancels,
    written.spool_folder,
    written.arrays,
    written.commands,
    written.variables,
    written.empty_programs,
    written.empty_arguments,
    written.goes_on,
    around.secrets,
    around.devices,
    around.collectives,
    around.installs,
    around.ray,
    around.local_disks,
    around.hostfiles,
    around.activation,
    around.unused_settings,
)
