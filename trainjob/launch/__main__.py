"""python -m trainjob.launch: starts the ranks of one host."""

import contextlib
import gc
import os
import sys

# Until ranks run there is no garbage, and looking for it takes a tenth of the start.
gc.disable()
# The working folder comes first, on storage that all hosts share: every import of the standard library would look there
# before it looks at the local disk. The package itself is found by its own path.
sys.path.append(sys.path.pop(0))
# One rank writes bytecode for all: thousands would write the same files into the same folders.
sys.dont_write_bytecode = sys.dont_write_bytecode or os.environ.get("SLURM_PROCID", "0") != "0"

from trainjob.launch.main import main  # noqa: E402 - after what its imports need

code = main(sys.argv[1:])
for stream in filter(None, (sys.stdout, sys.stderr)):
    with contextlib.suppress(OSError, ValueError):  # its reader has gone
        stream.flush()
# Tearing the interpreter down takes half as long as loading it.
os._exit(code)
