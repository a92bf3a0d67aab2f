"""Anybody's script, or a shell, with a pod's stand-ins on the paths."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainjob.cluster.models import Cluster, PodCluster
from trainjob.contract.errors import UserError
from trainjob.rehearse.pod_environment import environment
from trainjob.submit import process


def run(name: str, cluster: Cluster, words: Sequence[str], redirects: Mapping[str, str]) -> int:
    """Return the exit code of `words`, run where we are. Raises UserError for a cluster that is no pod."""
    with tempfile.TemporaryDirectory(prefix="trainjob-pod-") as place:
        return process.show(words, environment=_environment(name, cluster, Path(place), redirects))


def shell(name: str, cluster: Cluster, redirects: Mapping[str, str]) -> int:
    """Return the exit code of the user's shell, which has the stand-ins. Raises UserError for one that is no pod."""
    with tempfile.TemporaryDirectory(prefix="trainjob-pod-") as place:
        environ = _environment(name, cluster, Path(place), redirects)
        return process.show(_shell(name, Path(place), environ), environment=environ)


def _environment(name: str, cluster: Cluster, place: Path, redirects: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(cluster, PodCluster):
        raise UserError(
            f"cluster {name} is of kind {cluster.kind}, and only a pod has stand-ins for its programs: "
            "give a pod, as in --cluster pod16"
        )
    return environment(place, cluster, cluster.ipus, redirects)


def _shell(name: str, place: Path, environ: Mapping[str, str]) -> list[str]:
    program = os.environ.get("SHELL") or "/bin/sh"
    if Path(program).name != "bash":
        return [program]
    # What a user's own file puts before PATH must not come before the stand-ins.
    lines = ["if [[ -r ~/.bashrc ]]; then source ~/.bashrc; fi"]
    lines += [f"export {variable}={shlex.quote(environ[variable])}" for variable in ("PATH", "PYTHONPATH")]
    lines += [f'PS1={shlex.quote(f"({name}, rehearsed) ")}"$PS1"']
    rc = place / "bashrc"
    rc.write_text("\n".join(lines) + "\n")
    return [program, "--rcfile", str(rc)]
