"""The environment of each instance: POPDIST_*, IPUOF_* and the target, as poprun's generated mpirun line has them."""

from __future__ import annotations

import json
import os
from typing import Dict, Optional

from standins.pod.options import Options
from standins.pod.partitions import Partition
from standins.pod.topology import Instance, Topology

# The stand-ins of poptorch and popdist read these two.
MEETING = "TRAINJOB_STANDIN_MEETING"
PARTITION_IPUS = "TRAINJOB_STANDIN_IPUS"
_IPUS_PER_ILD = 64


def variables(
    options: Options, topology: Topology, partition: Optional[Partition], instance: Instance, meeting: str
) -> Dict[str, str]:
    """Return the variables of one instance. `partition` is None offline."""
    found = {**_popdist(options, topology, instance), MEETING: meeting}
    if partition is not None:
        found.update(_ipuof(options, partition, instance))
        found[PARTITION_IPUS] = str(partition.size)
    if "POPLAR_TARGET_OPTIONS" not in os.environ:
        found["POPLAR_TARGET_OPTIONS"] = _target(topology, instance, partition)
    return found


def _popdist(options: Options, topology: Topology, instance: Instance) -> Dict[str, str]:
    found = {
        "POPDIST_NUM_TOTAL_REPLICAS": str(topology.replicas),
        "POPDIST_NUM_IPUS_PER_REPLICA": str(topology.ipus_per_replica),
        "POPDIST_NUM_LOCAL_REPLICAS": str(instance.replicas),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": str(instance.first_replica),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(instance.local_index),
    }
    cache = options.text("executable-cache-path")
    return {**found, "POPDIST_EXECUTABLE_CACHE_PATH": cache} if cache else found


def _ipuof(options: Options, partition: Partition, instance: Instance) -> Dict[str, str]:
    return {
        "IPUOF_VIPU_API_HOST": options.text("vipu-server-host") or "",
        "IPUOF_VIPU_API_PORT": options.text("vipu-server-port") or "",
        "IPUOF_VIPU_API_TIMEOUT": options.text("vipu-server-timeout") or "",
        "IPUOF_VIPU_API_PARTITION_ID": partition.name,
        "IPUOF_VIPU_API_GCD_ID": str(instance.ild),
        "IPUOF_LOG_LEVEL": os.environ.get("IPUOF_LOG_LEVEL", "WARN"),
    }


def _target(topology: Topology, instance: Instance, partition: Optional[Partition]) -> str:
    size = partition.size if partition else topology.ipus
    options = {
        "ipuLinkDomainSize": str(min(size, _IPUS_PER_ILD)),
        "ipuLinkConfiguration": "slidingWindow",
        "ipuLinkTopology": "torus",
        "gatewayMode": "true",
        "instanceSize": str(instance.replicas * topology.ipus_per_replica),
    }
    return json.dumps(options)
