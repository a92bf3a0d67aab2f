"""`python -m trainjob_gpu`: compile what this interpreter's torch needs, or say why it can't be had."""

import sys

from trainjob_gpu import library

CUDA_BUILD = 3


def main() -> int:
    """Return 0 when stand-in GPUs are ready, 3 for a CUDA build, with what to install, and 1 for any other reason."""
    try:
        torch = library.installed()
        if torch.cuda is not None:
            sys.stdout.write(" ".join(library.cpu_builds(torch)) + "\n")
            return CUDA_BUILD
        library.refuse_unsuitable(torch)
        for name in ("core", "group"):
            library.build(torch, name)
    except library.StandInError as error:
        sys.stderr.write("%s\n" % error)
        return 1
    return 0


sys.exit(main())
