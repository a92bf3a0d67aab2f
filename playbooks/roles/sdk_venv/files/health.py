"""Uses the virtualenv as a job would: KIND TORCH. Prints what it found as JSON, or ends with what is wrong."""

import json
import platform
import sys

import torch

kind, expected = sys.argv[1:3]
if kind == "poplar":
    import poptorch  # noqa: F401 - it asserts its own torch

ones = torch.ones(2, 2)
total = float((ones + ones).sum())
found = torch.__version__.split("+")[0]
if total != 8.0:
    sys.exit("torch adds ones to %s, expected 8" % total)
if expected and found != expected.split("+")[0]:
    sys.exit("torch is %s, asked for was %s" % (torch.__version__, expected))
if kind == "cuda" and torch.version.cuda is None:
    sys.exit("this torch %s was built without CUDA: name an index or a wheelhouse that has the build" % found)
print(json.dumps({"torch": torch.__version__, "python": platform.python_version()}))
