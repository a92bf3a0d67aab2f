"""The line that starts the instances: a real mpirun's, with a segment for each instance."""

from __future__ import annotations

import ipaddress
import os
import shlex
import socket
from typing import Dict, List, Optional

from standins.pod import Refused, log
from standins.pod.options import Options
from standins.pod.topology import Instance, Topology

# "real": hosts are reached by mpirun. Otherwise they are names, and every instance runs on this machine.
HOSTS = "TRAINJOB_STANDIN_HOSTS"
_UNASKED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
# Not by sorting out what mpirun prints: it may put what two instances say on one line.
_SILENTLY = ["sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh"]
_INTERFACES = ("oob_tcp_if_include", "btl_tcp_if_include")


def hosts_are_names() -> bool:
    """Return whether every host is this machine."""
    return os.environ.get(HOSTS) != "real"


def line(options: Options, topology: Topology, environments: List[Dict[str, str]], only: Optional[int]) -> List[str]:
    """Return the words of the mpirun command; all instances but `only` are silent, if one is named.

    Raises Refused for MPI arguments that can't be read.
    """
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 or options.choice("allow-run-as-root") else []
    words = ["mpirun", "--tag-output", "--bind-to", "none", "--oversubscribe", *as_root, *_global(options)]
    for instance, environment in zip(topology.instances, environments):
        silent = _SILENTLY if only not in (None, instance.number) else []
        words += [
            *([":"] if instance.number else []),
            *_segment(options, instance, environment),
            *silent,
            *options.program,
        ]
    return words


def _segment(options: Options, instance: Instance, environment: Dict[str, str]) -> List[str]:
    words = ["-np", "1"] if hosts_are_names() else ["-np", "1", "--host", instance.host]
    for name in _UNASKED:
        words += ["-x", name] if name in os.environ else []
    for name, value in environment.items():
        words += ["-x", "%s=%s" % (name, value)]
    for text in [*options.all("mpi-local-args"), *_of_instance(options, instance)]:
        words += _split("mpi-local-args", text)
    return [*words, *_place(instance)]


def _place(instance: Instance) -> List[str]:
    # mpirun counts the instances of this machine; each host that is only a name has its own count.
    if not hosts_are_names():
        return []
    return ["env", *("%s=%s" % pair for pair in local_ranking(instance).items())]


def local_ranking(instance: Instance) -> Dict[str, str]:
    """Return mpirun's variables about the instance's own host."""
    return {
        "OMPI_COMM_WORLD_LOCAL_RANK": str(instance.local_index),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(instance.on_host),
    }


def _of_instance(options: Options, instance: Instance) -> List[str]:
    pairs = (text.partition(":") for text in options.all("instance-mpi-local-args"))
    return [words for number, _, words in pairs if number == str(instance.number)]


def _split(option: str, text: str) -> List[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Refused("option --%s: '%s' can't be read: %s" % (option, text, error)) from None


def _global(options: Options) -> List[str]:
    words = [word for text in options.all("mpi-global-args") for word in _split("mpi-global-args", text)]
    return _without_absent_interfaces(words) if hosts_are_names() else words


def _without_absent_interfaces(words: List[str]) -> List[str]:
    kept: List[str] = []
    while words:
        if words[0] in ("--mca", "-mca") and len(words) > 2 and words[1] in _INTERFACES and not _is_here(words[2]):
            log.warning("%s %s: this machine has no such network, and needs none: ignored" % (words[1], words[2]))
            words = words[3:]
        else:
            kept.append(words.pop(0))
    return kept


def _is_here(network: str) -> bool:
    if "/" not in network:
        return network in [name for _, name in socket.if_nameindex()]
    try:
        return ipaddress.ip_address("127.0.0.1") in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
