"""A cluster file as Ansible's inventory: hosts, groups that say what a host gets, and the variables of the roles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trainjob.cluster import hostlist
from trainjob.cluster.base import Cluster
from trainjob.cluster.provisioning import Provision, Venv
from trainjob.contract.errors import UserError
from trainjob.kinds.lookup import NamedCluster

THIS_MACHINE = "localhost"
_HERE = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
_EXAMPLE = "provision: {venv: {kind: cpu}, data_sets: [{name: digits}]}"


def inventory(source: NamedCluster) -> dict[str, Any]:
    """Return the inventory in the form of Ansible's dynamic inventories. Raises UserError."""
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
    return {
        "all": {"children": list(groups), "vars": _variables(source, provision)},
        **{group: {"hosts": list(hosts) if is_used else []} for group, is_used in groups.items()},
        "_meta": {"hostvars": hosts},
    }


def _variables(source: NamedCluster, provision: Provision) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if provision.venv is not None:
        variables |= _of_venv(source, provision.venv)
    if provision.data_sets:
        variables |= _of_data_sets(source, provision)
    if provision.pod_hosts is not None:
        variables |= _without_none(
            {
                "pod_hosts_user": provision.pod_hosts.user,
                "pod_hosts_port": provision.pod_hosts.port,
                "pod_hosts_cluster": source.name,
                "pod_hosts_interface": source.cluster.network.interface,
            }
        )
    return variables


# -- hosts -------------------------------------------------------------------------------------


def hosts_of(name: str, cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return Ansible's variables of every host of the cluster called `name`. Raises UserError if none is named."""
    named = cluster.provision.hosts if cluster.provision else None
    if named is not None:
        return {host: _reached(cluster) for host in hostlist.expand(named)}
    if cluster.hosts_are_named:
        if cluster.host_names is None:
            raise UserError(f"cluster {name} does not name its hosts", "give hosts: in its file (pod-host[1-4])")
        return {host: _reached(cluster) for host in cluster.host_names}
    if cluster.ssh is None:
        return {THIS_MACHINE: dict(_HERE)}
    # What all nodes share is made once, where jobs are submitted.
    return {cluster.ssh.host: _reached(cluster)}


def _reached(cluster: Cluster) -> dict[str, Any]:
    user = cluster.ssh.user if cluster.ssh else None
    interpreter = cluster.provision.interpreter if cluster.provision else None
    return _without_none({"ansible_user": user, "ansible_python_interpreter": interpreter})


# -- the virtualenv ----------------------------------------------------------------------------


def _of_venv(source: NamedCluster, venv: Venv) -> dict[str, Any]:
    return _without_none(
        {
            "sdk_venv_kind": venv.kind,
            "sdk_venv_path": _venv_path(source),
            "sdk_venv_python": venv.python,
            "sdk_venv_torch": venv.torch,
            "sdk_venv_requirements": venv.requirements
            # A relative path in a cluster file starts at that file.
            and os.path.abspath(source.path.parent / Path(venv.requirements).expanduser()),
            "sdk_venv_wheelhouse": venv.wheelhouse,
            "sdk_venv_index_url": venv.index_url,
            "sdk_venv_sdk_path": _sdk_path(source, venv),
            "sdk_venv_archive": venv.archive,
            "sdk_venv_sha256": venv.sha256,
            "sdk_venv_shared": venv.shared,
            "sdk_venv_needs_gpu": venv.needs_gpu if venv.kind == "cuda" else None,
        }
    )


def _venv_path(source: NamedCluster) -> str:
    path, sdk = source.cluster.venv, "sdk: {venv: /shared/venvs/NAME}"
    if not path:
        key = sdk if source.cluster.interpreter_key == "sdk.venv:" else "python: /shared/venvs/NAME/bin/python"
        raise UserError(f"cluster {source.name} does not say where the virtualenv of its jobs is", f"give {key}")
    return path


def _sdk_path(source: NamedCluster, venv: Venv) -> str | None:
    if venv.kind != "poplar":
        return None
    keys = source.cluster.ipu_keys
    path = keys.sdk.path if keys and keys.sdk else None
    if path is None:
        raise UserError(f"cluster {source.name} does not say where the SDK is", "give sdk: {path: /opt/poplar_sdk}")
    return path


# -- data sets ------------------------------------------------------------------------


def _of_data_sets(source: NamedCluster, provision: Provision) -> dict[str, Any]:
    folder = source.cluster.data_dir
    if folder is None:
        raise UserError(f"cluster {source.name} does not say where data sets are", "give data_dir: /localdata")
    return {
        "dataset_dir": folder,
        "dataset_shared": provision.shared_data,
        "dataset_sets": [_without_none(one.as_values()) for one in provision.data_sets],
    }


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def as_file(made: dict[str, Any]) -> dict[str, Any]:
    """Return an inventory as Ansible reads it from a file, which is another form than a script's."""
    groups = made["all"]["children"]
    return {
        "all": {
            "vars": made["all"]["vars"],
            "hosts": made["_meta"]["hostvars"],
            "children": {group: {"hosts": dict.fromkeys(made[group]["hosts"])} for group in groups},
        }
    }
