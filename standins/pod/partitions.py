"""The partition of a run: poprun finds or creates it, updates and resets it, and removes one that it created."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, NamedTuple, Optional

from standins.pod import Refused, log
from standins.pod.options import Options
from standins.pod.server import ACTIVE, Server
from standins.pod.topology import Topology

_BETWEEN_ATTEMPTS_S = 0.5
# Sync types, by poprun's names, as far as these are published, and by V-IPU's.
_SYNC = {"ST_POD_NATIVE_DEFAULT": "pod-native-default", "ST_C2_COMPATIBLE": "c2-compatible"}


class Partition(NamedTuple):
    """The partition that a run uses, and whether poprun created it."""

    name: str
    size: int
    made: bool


def take(options: Options, topology: Topology, server: Server) -> Partition:
    """Return the partition to run on, ready. Raises Refused."""
    name = _named(options, server)
    partition = server.get(name) if name else None
    if name is None or partition is None:
        return _create(options, name or "poprun%d" % os.getpid(), topology, server)
    if partition["size"] < topology.ipus:
        partition = _update(options, name, partition, topology, server)
    _reset(options, name, partition, server)
    _wait_until_active(options, name, server)
    return Partition(name, partition["size"], made=False)


def _named(options: Options, server: Server) -> Optional[str]:
    named = options.text("vipu-partition") or os.environ.get("IPUOF_VIPU_API_PARTITION_ID")
    if named:
        return named
    there = sorted(server.visible())
    if len(there) > 1:
        raise Refused("several partitions exist (%s): choose one with --vipu-partition" % ", ".join(there))
    if there:
        log.info("Using the only partition there is: '%s'" % there[0])
    return there[0] if there else None


def _create(options: Options, name: str, topology: Topology, server: Server) -> Partition:
    size = 1 << (topology.ipus - 1).bit_length()
    sync = options.text("sync-type")
    if sync is not None and sync not in _SYNC:
        raise Refused("option --sync-type: read '%s', expected one of %s" % (sync, ", ".join(sorted(_SYNC))))
    sync_type = _SYNC.get(sync or "", "c2-compatible" if topology.ilds == 1 else "pod-native-default")
    allocation = options.text("vipu-allocation") or options.text("vipu-cluster")
    reconfigurable = sync_type == "c2-compatible"
    server.create(
        name, size, allocation=allocation, gcds=topology.ilds, sync_type=sync_type, reconfigurable=reconfigurable
    )
    log.info("Created partition '%s' with %d IPUs" % (name, size))
    return Partition(name, size, made=True)


def _update(
    options: Options, name: str, partition: Dict[str, Any], topology: Topology, server: Server
) -> Dict[str, Any]:
    if not options.is_on("update-partition"):
        raise Refused(
            "partition '%s' has %d IPUs and %d replicas x %d IPUs need %d: give --update-partition yes, or fewer"
            % (name, partition["size"], topology.replicas, topology.ipus_per_replica, topology.ipus)
        )
    log.info("Updating partition '%s' from %d IPUs" % (name, partition["size"]))
    return server.resize(name, 1 << (topology.ipus - 1).bit_length())


def _reset(options: Options, name: str, partition: Dict[str, Any], server: Server) -> None:
    reset = options.choice("reset-partition")
    if reset or (reset is None and not partition["reconfigurable"]):
        log.info("Resetting partition '%s'" % name)
        server.reset(name)


def _wait_until_active(options: Options, name: str, server: Server) -> None:
    state = None
    for attempt in range(options.counted("vipu-partition-attempts")):
        time.sleep(_BETWEEN_ATTEMPTS_S if attempt else 0)
        partition = server.get(name)
        state = partition["state"] if partition else "gone"
        log.info("Partition '%s' is in state %s" % (name, state))
        if state == ACTIVE:
            return
    raise Refused("partition '%s' is in state %s, not %s" % (name, state, ACTIVE))


def give_back(options: Options, partition: Partition, server: Server) -> None:
    """Remove the partition if poprun created it and may remove it."""
    if not (partition.made and options.is_on("remove-partition")):
        return
    try:
        server.remove(partition.name)
        log.info("Removed partition '%s'" % partition.name)
    except Refused as refused:
        log.warning("partition '%s' was not removed: %s" % (partition.name, refused))
