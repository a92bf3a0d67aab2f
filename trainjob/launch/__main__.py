"""python -m trainjob.launch: starts the ranks of one host."""

import contextlib
import gc
import os
import sys

# Until ranks run there is nothing to collect, and to look for it takes a tenth of a start.
gc.disable()
# The working folder is first, on storage that all hosts share: each import of the standard library would look there
# before it looks at home. The package itself is found by its own path.
sys.path.append(sys.path.pop(0))
# One rank writes bytecode for all: thousands would write the same files into the same folders.
sys.dont_write_bytecode = sys.dont_write_bytecode or os.environ.get("SLURM_PROCID", "0") != "0"

from trainjob.launch.main import main  # noqa: E402 - after what its imports need

code = main(sys.argv[1:])
for stream in filter(None, (sys.stdout, sys.stderr)):
    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
        stream.flush()
# To take a Python apart that ends takes as long as half of what it loads.
os._exit(code)
