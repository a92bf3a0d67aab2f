"""Which hosts a cluster file means when they are provisioned, and how Ansible reaches them."""

from __future__ import annotations

from typing import Any

from trainjob.cluster import hostlist
from trainjob.cluster.models import Cluster, LocalCluster, PodCluster, SlurmCluster
from trainjob.contract.errors import UserError

THIS_MACHINE = "localhost"
_HERE = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}


def hosts_of(name: str, cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return Ansible's variables of every host of the cluster called `name`. Raises UserError where none is named."""
    asked = cluster.provision.hosts if cluster.provision else None
    if asked is not None:
        return {host: _reached(cluster) for host in hostlist.expand(asked)}
    match cluster:
        case PodCluster():
            return {host: _reached(cluster) for host in _of_pod(name, cluster)}
        case SlurmCluster() if cluster.ssh is not None:
            # What all nodes share is made once, where jobs are submitted.
            return {cluster.ssh.host: _reached(cluster)}
        case SlurmCluster() | LocalCluster():
            return {THIS_MACHINE: dict(_HERE)}


def _of_pod(name: str, cluster: PodCluster) -> tuple[str, ...]:
    names = cluster.host_names
    if names is None:
        raise UserError(f"cluster {name} does not name its hosts: give hosts: in its file (pod-host[1-4])")
    return names


def _reached(cluster: Cluster) -> dict[str, Any]:
    user = cluster.ssh.user if cluster.ssh else None
    interpreter = cluster.provision.interpreter if cluster.provision else None
    found = {"ansible_user": user, "ansible_python_interpreter": interpreter}
    return {key: value for key, value in found.items() if value is not None}
