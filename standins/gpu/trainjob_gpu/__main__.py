"""`python -m trainjob_gpu`: compile what this interpreter's torch needs, or say why it can't be had.

It prints one JSON object a line, as it goes: `say` is progress, `refused` why, `packages` what a CUDA build needs.
"""

import json
import sys

from trainjob_gpu import library


def _tell(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Return 0 when stand-in GPUs are ready."""
    try:
        torch = library.installed()
        if torch.cuda is not None:
            _tell(packages=library.cpu_builds(torch))
            return 1
        library.refuse_unsuitable(torch)
        library.build(torch, lambda line: _tell(say=line))
    except library.StandInError as error:
        _tell(refused=str(error))
        return 1
    return 0


sys.exit(main())
