"""Uses the virtualenv as a job would: KIND TORCH DEVICE. Prints what it found as JSON, or ends with what is wrong."""

import json
import platform
import sys

import torch

kind, expected, device = sys.argv[1:4]
if kind == "poplar":
    import poptorch  # noqa: F401 - it asserts its own torch

found = torch.__version__.split("+")[0]
if expected and found != expected.split("+")[0]:
    sys.exit("torch is %s, asked for was %s" % (torch.__version__, expected))
if kind == "cuda" and torch.version.cuda is None:
    sys.exit("this torch %s was built without CUDA: name an index or a wheelhouse that has the build" % found)
if device == "cuda" and not torch.cuda.is_available():
    sys.exit(
        "this host has no GPU that torch %s, built for CUDA %s, can use: see what nvidia-smi says, and whether its "
        "driver is new enough; where the virtualenv is made on a host without GPUs, say needs_gpu: false "
        "(sdk_venv_needs_gpu)" % (found, torch.version.cuda)
    )
ones = torch.ones(2, 2, device=device)
total = float((ones + ones).sum())
if total != 8.0:
    sys.exit("torch adds ones to %s, expected 8" % total)
print(json.dumps({"torch": torch.__version__, "python": platform.python_version()}))
