"""The stand-in `poprun`: options, topology, partition and environment as the real one's, instances on CPUs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from typing import Dict, List, Optional

from standins.pod import Refused, log, mpirun, partitions, running
from standins.pod.options import OPTIONS, Options, export, imported, parse
from standins.pod.partitions import Partition
from standins.pod.server import Server
from standins.pod.topology import Instance, Topology, table, topology

# "none": our own processes, as on a machine without Open MPI.
MPIRUN = "TRAINJOB_STANDIN_MPIRUN"
# The stand-ins of poptorch and popdist read these two.
MEETING = "TRAINJOB_STANDIN_MEETING"
PARTITION_IPUS = "TRAINJOB_STANDIN_IPUS"
_IPUS_PER_ILD = 64
_WHAT_THIS_IS = (
    "trainjob: this poprun is a stand-in, which starts the instances on this machine's CPUs. "
    "It shows what a job does, not how fast"
)


def main(words: List[str]) -> int:
    """Return the exit status of the first instance that failed, else 0; 1 if poprun itself refuses."""
    running.listen()
    try:
        options = imported(parse(words))
        if "help" in options.values or "version" in options.values:
            _tell(options)
            return 0
        return _run(options)
    except Refused as refused:
        log.error(str(refused))
        return 1


def _tell(options: Options) -> None:
    if "version" in options.values:
        sys.stdout.write("poprun: a stand-in on this machine\n")
        return
    sys.stdout.write("usage: poprun [options] program [arguments]\n\n")
    for name, option in OPTIONS.items():
        default = " (%s)" % option.default if option.default else ""
        sys.stdout.write("  --%s %s%s\n" % (name, "" if option.kind == "flag" else option.kind, default))


def _run(options: Options) -> int:
    log.show("vv" in options.values or "verbose" in options.values)
    sys.stderr.write(_WHAT_THIS_IS + "\n")
    for name in options.without_meaning():
        log.warning("option --%s has no meaning on this machine: ignored" % name)
    if not options.program:
        raise Refused("no program was given: poprun [options] program [arguments]")
    layout = topology(options)
    _check_output(options, layout)
    export(options)
    if options.is_on("print-topology"):
        sys.stdout.writelines(line + "\n" for line in table(layout))
        sys.stdout.flush()
    if options.is_on("offline-mode"):
        log.info("Offline: no partition is taken and no IPU attached")
        return _instances(options, layout, None)
    return _on_partition(options, layout)


def _check_output(options: Options, layout: Topology) -> None:
    only = options.number("only-output-from-instance")
    if only is None:
        return
    if not 0 <= only < len(layout.instances):
        raise Refused("only-output-from-instance is %d, and there are %d instances" % (only, len(layout.instances)))
    log.warning("errors of other instances than %d are not shown" % only)


def _on_partition(options: Options, layout: Topology) -> int:
    server = Server(float(options.counted("vipu-server-timeout")))
    partition = partitions.take(options, layout, server)
    try:
        return _instances(options, layout, partition)
    finally:
        partitions.give_back(options, partition, server)


def _instances(options: Options, layout: Topology, partition: Optional[Partition]) -> int:
    with tempfile.TemporaryDirectory(prefix="trainjob-standin-poprun-") as folder:
        meeting = os.path.join(folder, "meeting")
        environments = [_variables(options, layout, partition, one, meeting) for one in layout.instances]
        status = _start(options, layout, environments)
    asked_by = running.was_asked_to_end()
    log.info("The instances ended with exit code %d" % status)
    return 128 + asked_by if asked_by else status


def _variables(
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


def _start(options: Options, layout: Topology, environments: List[Dict[str, str]]) -> int:
    only = options.number("only-output-from-instance")
    if mpirun.hosts_are_names() and len(layout.hosts) > 1:
        log.info("Hosts are names here: all instances run on this machine")
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    if os.environ.get(MPIRUN) != "none" and shutil.which("mpirun"):
        words = mpirun.line(options, layout, environments, only)
        log.detail("Running: " + " ".join(shlex.quote(word) for word in words))
        status = running.run_mpirun(words)
        return status if status >= 0 else 128 - status
    log.info("There is no mpirun: instances are processes of poprun's own")
    return running.run_processes(options.program, _as_mpirun_would(layout, environments), only)


def _as_mpirun_would(layout: Topology, environments: List[Dict[str, str]]) -> List[Dict[str, str]]:
    size = str(len(environments))
    return [
        {
            **environment,
            "OMPI_COMM_WORLD_RANK": str(one.number),
            "OMPI_COMM_WORLD_SIZE": size,
            **mpirun.local_ranking(one),
        }
        for one, environment in zip(layout.instances, environments)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
