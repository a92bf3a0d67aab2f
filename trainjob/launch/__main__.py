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

# How busy the CPUs are while all of this loads tells whether the ranks' threads may spin: ranks/spinning.py.
at_start = None
with contextlib.suppress(OSError), open("/proc/stat") as stat:
    at_start = stat.read(), sum(os.times()[:2])

try:
    from trainjob.launch.main import main  # after what its imports need

    code = main(sys.argv[1:], at_start)
except (OSError, ImportError, MemoryError) as error:  # of a disk, a file server or a limit, while modules are read, too
    sys.stderr.write(
        "trainjob: the launcher on %s can't go on (%s: %s): look at the disk of the run directory and at the limits of "
        "that host, then: trainjob resume\n" % (os.uname().nodename, type(error).__name__, error)
    )
    code = 1
for stream in filter(None, (sys.stdout, sys.stderr)):
    with contextlib.suppress(OSError, ValueError):  # its reader has gone
        stream.flush()
# Tearing the interpreter down takes half as long as loading it.
os._exit(code)
