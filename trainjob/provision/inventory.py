"""A cluster file as Ansible's inventory: hosts, groups that say what a host gets, and the variables of the roles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainjob.cluster import slurm_text
from trainjob.cluster.base import Cluster
from trainjob.cluster.provisioning import Venv
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.kinds.lookup import NamedCluster

THIS_MACHINE = "localhost"
_HERE = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
_EXAMPLE = "provision: {venv: {kind: cpu}, data_sets: [{name: digits}]}"


@dataclass(frozen=True)
class Inventory:
    """Hosts with Ansible's variables of each, the hosts of each group, and the variables of the roles."""

    hosts: Mapping[str, Mapping[str, object]]
    groups: Mapping[str, Sequence[str]]
    variables: Mapping[str, object]

    def as_json(self) -> dict[str, object]:
        """Return the form of Ansible's dynamic inventories."""
        return {
            "all": {"children": list(self.groups), "vars": self.variables},
            **{group: {"hosts": list(hosts)} for group, hosts in self.groups.items()},
            "_meta": {"hostvars": self.hosts},
        }

    def as_file(self) -> dict[str, object]:
        """Return the form that Ansible reads from a file."""
        children = {group: {"hosts": dict.fromkeys(hosts)} for group, hosts in self.groups.items()}
        return {"all": {"vars": self.variables, "hosts": self.hosts, "children": children}}


def inventory(source: NamedCluster) -> Inventory:
    """Return the inventory of a cluster file. Raises UserError."""
    provision = source.cluster.provision
    if provision is None:
        raise UserError(
            f"the file of cluster {source.name} does not say what to install on its hosts",
            f"add to it, for example: {_EXAMPLE}",
        )
    hosts = hosts_of(source.name, source.cluster)
    groups = {
        "sdk": provision.venv is not None,
        "horovod": provision.horovod,
        "pods": provision.pod_hosts is not None,
        "datasets": bool(provision.data_sets),
    }
    if not any(groups.values()):
        raise UserError(f"provision: of cluster {source.name} is empty", "give venv, data_sets or pod_hosts")
    variables: dict[str, object] = {}
    if provision.venv is not None:
        variables |= _of_venv(source, provision.venv)
    if provision.data_sets:
        if source.cluster.data_dir is None:
            raise UserError(f"cluster {source.name} does not say where data sets are", "give data_dir: /localdata")
        variables |= {
            "dataset_dir": source.cluster.data_dir,
            "dataset_shared": provision.shared_data,
            "dataset_sets": [_without_none(one.as_values()) for one in provision.data_sets],
        }
    if provision.pod_hosts is not None:
        variables |= _without_none(
            {
                "pod_hosts_user": provision.pod_hosts.user,
                "pod_hosts_port": provision.pod_hosts.port,
                "pod_hosts_cluster": source.name,
                "pod_hosts_interface": source.cluster.network.interface,
            }
        )
    return Inventory(hosts, {group: tuple(hosts) if is_used else () for group, is_used in groups.items()}, variables)


def hosts_of(name: str, cluster: Cluster) -> dict[str, dict[str, object]]:
    """Return Ansible's variables of every host of the cluster called `name`. Raises UserError if none is named."""
    provision = cluster.provision
    interpreter = provision.interpreter if provision else None
    user = cluster.ssh.user if cluster.ssh else None
    if provision is not None and provision.hosts is not None:
        names = slurm_text.expand(provision.hosts)
    elif cluster.hosts_are_named:
        if cluster.host_names is None:
            raise UserError(f"cluster {name} does not name its hosts", "give hosts: in its file (pod-host[1-4])")
        names = cluster.host_names
    elif cluster.ssh is not None:
        # What all nodes share is made once, where jobs are submitted.
        names = (cluster.ssh.host,)
    else:
        return {THIS_MACHINE: dict(_HERE)}
    reached = _without_none({"ansible_user": user, "ansible_python_interpreter": interpreter})
    return {host: dict(reached) for host in names}


def _of_venv(source: NamedCluster, venv: Venv) -> dict[str, object]:
    if not source.cluster.venv:
        is_sdk = source.cluster.interpreter_key == "sdk.venv:"
        key = "sdk: {venv: /shared/venvs/NAME}" if is_sdk else "python: /shared/venvs/NAME/bin/python"
        raise UserError(f"cluster {source.name} does not say where the virtualenv of its jobs is", f"give {key}")
    keys = source.cluster.ipu_keys
    sdk = keys.sdk if keys else None
    if venv.kind == "poplar" and (sdk is None or sdk.path is None):
        raise UserError(f"cluster {source.name} does not say where the SDK is", "give sdk: {path: /opt/poplar_sdk}")
    return _without_none(
        {
            "sdk_venv_kind": venv.kind,
            "sdk_venv_path": source.cluster.venv,
            "sdk_venv_python": venv.python,
            "sdk_venv_torch": venv.torch,
            "sdk_venv_requirements": venv.requirements
            # A relative path in a cluster file starts at that file.
            and os.path.abspath(source.path.parent / with_home(venv.requirements)),
            "sdk_venv_wheelhouse": venv.wheelhouse,
            "sdk_venv_index_url": venv.index_url,
            "sdk_venv_sdk_path": sdk.path if sdk and venv.kind == "poplar" else None,
            "sdk_venv_archive": venv.archive,
            "sdk_venv_sha256": venv.sha256,
            "sdk_venv_shared": venv.shared,
            "sdk_venv_needs_gpu": venv.needs_gpu if venv.kind == "cuda" else None,
        }
    )


def _without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
