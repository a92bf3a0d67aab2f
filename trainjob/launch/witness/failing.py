"""Records how a rank failed, as only its own host can tell, and whether another attempt may get further."""

from __future__ import annotations

import sys

from trainjob.contract import exits
from trainjob.contract.environment import ATTEMPT
from trainjob.contract.paths import RunPaths
from trainjob.launch.host import node_name, own_name
from trainjob.launch.processes import Ended
from trainjob.launch.rank_environment import Rank
from trainjob.launch.witness import stacks
from trainjob.launch.witness.evidence import Witness
from trainjob.records import attempts, causes, checkpoints, events
from trainjob.records.failure import Failure, record_first, tail_of_attempt


def record(paths: RunPaths, rank: Rank, ended: Ended, witness: Witness, restarts: bool) -> None:
    """Record how a rank ended, unless another rank failed before it. `restarts`: see Supervisor."""
    failure = Failure(
        attempt=int(rank.environment[ATTEMPT]),
        rank=rank.ranking.rank,
        host=own_name(),
        exit_code=exits.from_wait_status(ended.returncode),
        command=list(rank.command),
        tail=tail_of_attempt(rank.log),
        signal=-ended.returncode if ended.returncode < 0 else None,
        memory=witness.memory(ended.peak_rss_bytes),
        kernel=witness.kernel_messages(),
        script_has_ended=ended.returncode < 0 and stacks.script_has_ended(ended.pid, rank.environment),
    )
    try:
        was_first = record_first(paths, failure)
    except OSError as error:
        # A full disk must neither stop the supervision of the other ranks nor hide how this one ended.
        was_first = True
        sys.stderr.write("trainjob: failure.json can't be written: %s\n" % error)
    if was_first:
        sys.stderr.write("trainjob: rank %d failed with exit code %d\n" % (failure.rank, failure.exit_code))
        explain(paths, failure, restarts)


def explain(paths: RunPaths, failure: Failure, restarts: bool, node: str = "") -> None:
    """Print why a rank ended, and with `restarts` leave the marker if another attempt may get further.

    `node` is the one that it ended on, where that is not this one.
    """
    cause = causes.of_failure(failure)
    if cause is not None:
        sys.stderr.write("trainjob: %s\n" % cause)
    if not restarts or cause is None:
        return
    if cause.blames_node:
        events.blame_node(paths, node or node_name(), cause.text)
    if cause.code == causes.OUT_OF_MEMORY and not attempts.is_stale(paths, failure.attempt):
        events.note_out_of_memory(paths)
    newest = checkpoints.newest(paths)
    # Ranks that have not begun need no checkpoint.
    if cause.restart and (newest or cause.code == causes.BAD_NODE) and not attempts.is_stale(paths, failure.attempt):
        attempts.ask_to_requeue(paths, checkpoints.update_of(newest) if newest else 0)
