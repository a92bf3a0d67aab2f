"""`python -m trainjob.train RUN_DIR`: one rank. launch.py starts as many as the plan says."""

from __future__ import annotations

import os
import sys

from trainjob.contract import exits
from trainjob.train import stopping


def _start() -> int:
    # Before torch is imported, which takes a second or two in which a request to stop may come.
    stopping.listen()
    try:
        from trainjob.train.main import main
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "numpy"):
            raise
        print(  # noqa: T201
            "trainjob: %s is not installed in this Python (%s): install trainjob's extra `train` into it, "
            "or name another interpreter (python: in the cluster file, or TRAINJOB_PYTHON where you start it by hand)"
            % (error.name, sys.executable),
            file=sys.stderr,
        )
        return exits.USER_OR_CLUSTER_CAN_FIX
    return main(sys.argv)


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of gloo may wait for a rank that is gone, and taking them down at the interpreter's end aborts
    # one process in a dozen ("terminate called without an active exception").
    os._exit(code)


if __name__ == "__main__":
    _leave(_start())
