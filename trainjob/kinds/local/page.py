"""The names and values of the template of kind local."""

from __future__ import annotations

from typing import Any

from trainjob.render.container import container
from trainjob.render.context import common
from trainjob.render.request import Request

TEMPLATE, SCRIPT = "jobs/local.sh.j2", "job.sh"
_INSIDE = ("--working-folder", "--secrets-file")


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind local. Raises ContainerError."""
    names, secrets_file = common(request, "local", "bash job.sh"), request.cluster.secrets_file
    return {
        **names,
        "container": container(request),
        "secrets_file": None if secrets_file is None else request.path("secrets_file", secrets_file),
        # The launcher outside decides where ranks meet. Secrets stay inside, where `docker inspect` can't show them.
        "options_outside": [pair for pair in names["launch_options"] if pair[0] not in _INSIDE],
        "options_inside": [pair for pair in names["launch_options"] if pair[0] in (*_INSIDE, "--accelerator")],
    }
