"""`python -m trainjob.train RUN_DIR` is one rank; trainjob.launch starts as many as the plan has."""

from __future__ import annotations

import sys

from trainjob.contract import exits
from trainjob.train import stopping


def _start() -> int:
    # Before torch is imported, which takes a second or two: a request to stop may come meanwhile.
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


if __name__ == "__main__":
    stopping.leave(_start())
