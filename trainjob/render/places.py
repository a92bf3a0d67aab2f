"""Paths of a cluster file, as a script may print them."""

from __future__ import annotations

from trainjob.contract.errors import UserError
from trainjob.render import quoting
from trainjob.render.request import Request
from trainjob.render.sourced import SourcedShell


class PlaceError(UserError):
    """A path that means something else where the script runs."""


def place(request: Request, key: str, path: str) -> SourcedShell:
    """Return the cluster file's `path` as a shell word. Raises PlaceError for one that is not whole."""
    if not path.startswith(("/", "~/")):
        raise PlaceError(
            f"{key} is {path} in {request.cluster_origin}, and a script runs in its run directory: "
            "write the whole path, from / or ~/ on"
        )
    return SourcedShell(quoting.path(path), request.cluster_origin)
