"""Errors in cluster files, job files and flags, which the user can correct."""

from __future__ import annotations

from trainjob.contract.errors import UserError


class ClusterError(UserError):
    """A cluster that can't be found, read or used."""

    code = "cluster"


class JobError(UserError):
    """A job file or a flag that can't be read."""

    code = "job"
