"""Whether this host sees the very run directory that the job script stands in, and not another of the same path."""

from __future__ import annotations

import socket
import time

from trainjob.contract.errors import UserError
from trainjob.contract.files import read_word
from trainjob.contract.paths import RunPaths

# A shared file system may show a new file late.
_LIMIT_S = 30.0
_POLL_S = 1.0


def refuse_another(paths: RunPaths, token: str, limit_s: float = _LIMIT_S) -> None:
    """Return when the folder holds `token`, which the job script has written there. Raises UserError.

    Under srun the script itself looks, before anything of the folder is run.
    """
    deadline = time.monotonic() + limit_s
    while read_word(paths.token) != token:
        if time.monotonic() > deadline:
            raise UserError(
                "host %s does not see run directory %s, or another of that name: set runs_dir to storage that all "
                "nodes share" % (socket.gethostname(), paths.folder)
            )
        time.sleep(_POLL_S)
