"""Says what a Horovod wheel must fit, and which one is installed, as JSON: Python, torch, MPI."""

import json
import os
import platform
import shutil
import subprocess
import sys

import torch

if shutil.which("mpirun") is None:
    sys.exit("mpirun is not on this host: install Open MPI (openmpi-bin and libopenmpi-dev on Debian), or name the SDK")
version = subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
mpi = version.stdout.decode().splitlines()[0].split()[-1]
marker = os.path.join(sys.prefix, ".trainjob-horovod")
try:
    with open(marker) as stream:
        installed = stream.read().strip()
except OSError:
    installed = ""
key = "py%d.%d-torch%s-mpi%s-%s" % (*sys.version_info[:2], torch.__version__, mpi, platform.machine())
print(json.dumps({"key": key, "installed": installed, "prefix": os.path.realpath(sys.prefix)}))
