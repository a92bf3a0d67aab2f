"""A cluster file as Ansible's inventory: groups say what a host gets, variables are those of the roles."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

from trainjob.cluster.lookup import Found
from trainjob.cluster.models import LocalCluster, PodCluster, SlurmCluster
from trainjob.cluster.provisioning import DataSet, PodHosts, Provision, Venv
from trainjob.contract.errors import UserError
from trainjob.provision.hosts import hosts_of

_EXAMPLE = "provision: {venv: {kind: cpu}, data_sets: [{name: digits}]}"


def inventory(found: Found) -> dict[str, Any]:
    """Return the inventory in the form of Ansible's dynamic inventories. Raises UserError."""
    wanted = found.cluster.provision
    if wanted is None:
        raise UserError(f"cluster {found.name} does not say what its hosts get: add to its file, say, {_EXAMPLE}")
    hosts = hosts_of(found.name, found.cluster)
    groups = _groups(wanted)
    if not any(groups.values()):
        raise UserError(f"provision: of cluster {found.name} asks for nothing: give venv, data_sets or pod_hosts")
    return {
        "all": {"children": list(groups), "vars": _variables(found, wanted)},
        **{group: {"hosts": list(hosts) if asked else []} for group, asked in groups.items()},
        "_meta": {"hostvars": hosts},
    }


def _groups(wanted: Provision) -> dict[str, bool]:
    return {
        "sdk": wanted.venv is not None,
        "horovod": wanted.horovod,
        "pods": wanted.pod_hosts is not None,
        "datasets": bool(wanted.data_sets),
    }


def _variables(found: Found, wanted: Provision) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if wanted.venv is not None:
        variables |= _of_venv(found, wanted.venv)
    if wanted.data_sets:
        variables |= _of_data_sets(found, wanted)
    if wanted.pod_hosts is not None:
        variables |= _of_pod_hosts(found, wanted.pod_hosts)
    return variables


# -- the virtualenv ----------------------------------------------------------------------------


def _of_venv(found: Found, venv: Venv) -> dict[str, Any]:
    return _without_none(
        {
            "sdk_venv_kind": venv.kind,
            "sdk_venv_path": _venv_path(found),
            "sdk_venv_python": venv.python,
            "sdk_venv_torch": venv.torch,
            "sdk_venv_requirements": venv.requirements and _on_this_machine(found, venv.requirements),
            "sdk_venv_wheelhouse": venv.wheelhouse,
            "sdk_venv_index_url": venv.index_url,
            "sdk_venv_sdk_path": _sdk_path(found, venv),
            "sdk_venv_archive": venv.archive,
            "sdk_venv_sha256": venv.sha256,
            "sdk_venv_shared": venv.shared,
            "sdk_venv_needs_gpu": venv.needs_gpu if venv.kind == "cuda" else None,
        }
    )


def _on_this_machine(found: Found, path: str) -> str:
    """Return an absolute path: one in a cluster file is relative to that file."""
    return os.path.abspath(found.path.parent / Path(path).expanduser())


def _venv_path(found: Found) -> str:
    match found.cluster:
        case PodCluster(sdk=sdk):
            path = sdk and sdk.venv
            key = "sdk: {venv: /shared/venvs/NAME}"
        case SlurmCluster(python=python) | LocalCluster(python=python):
            path = python and _venv_of(python)
            key = "python: /shared/venvs/NAME/bin/python"
    if not path:
        raise UserError(f"cluster {found.name} does not say where the virtualenv of its jobs lies: give {key}")
    return path


def _venv_of(python: str) -> str | None:
    path = PurePosixPath(python)
    return str(path.parent.parent) if path.is_absolute() and path.parent.name == "bin" else None


def _sdk_path(found: Found, venv: Venv) -> str | None:
    if venv.kind != "poplar":
        return None
    path = found.cluster.sdk.path if isinstance(found.cluster, PodCluster) and found.cluster.sdk else None
    if path is None:
        raise UserError(f"cluster {found.name} does not say where the SDK lies: give sdk: {{path: /opt/poplar_sdk}}")
    return path


# -- data sets and pods ------------------------------------------------------------------------


def _of_data_sets(found: Found, wanted: Provision) -> dict[str, Any]:
    folder = found.cluster.data_dir
    if folder is None:
        raise UserError(f"cluster {found.name} does not say where data sets lie: give data_dir: /localdata")
    return {
        "dataset_dir": folder,
        "dataset_shared": wanted.shared_data,
        "dataset_sets": [_data_set(one) for one in wanted.data_sets],
    }


def _data_set(one: DataSet) -> dict[str, Any]:
    return one.model_dump(exclude_none=True)


def _of_pod_hosts(found: Found, asked: PodHosts) -> dict[str, Any]:
    return _without_none(
        {
            "pod_hosts_user": asked.user,
            "pod_hosts_port": asked.port,
            "pod_hosts_cluster": found.name,
            "pod_hosts_interface": found.cluster.network.interface,
        }
    )


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
