"""What is refused here: cluster files and job files that the user can mend."""

from __future__ import annotations

from trainjob.contract.errors import UserError


class ClusterError(UserError):
    """A cluster that can't be found, read or used as it stands."""

    code = "cluster"


class JobError(UserError):
    """A job file or a flag that can't be read."""

    code = "job"
