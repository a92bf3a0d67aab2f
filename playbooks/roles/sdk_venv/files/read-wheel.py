"""Reads a Poplar SDK's poptorch wheel: FOLDER-OF-SDK. Prints its path and the torch it names, as JSON."""

import glob
import json
import os
import re
import sys
import zipfile

folder = sys.argv[1]
wheels = sorted(glob.glob(os.path.join(folder, "poptorch-*.whl")))
if len(wheels) != 1:
    sys.exit("%s has %d poptorch wheels, expected 1: is this a Poplar SDK?" % (folder, len(wheels)))
here = "cp%d%d" % sys.version_info[:2]
tag = os.path.basename(wheels[0]).split("-")[-3]
if tag.startswith("cp") and tag != here:
    sys.exit(
        "%s is for Python %s.%s, and this interpreter, %s, is %d.%d: set python: to one that fits"
        % (os.path.basename(wheels[0]), tag[2], tag[3:], sys.executable, *sys.version_info[:2])
    )
with zipfile.ZipFile(wheels[0]) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = wheel.read(name).decode()
# The wheel names torch by a download host's address: torch @ https://…/torch-2.0.1%2Bcpu-cp38-….whl
found = re.search(r"(?m)^Requires-Dist: torch *(?:@.*/torch-|\(?==)([0-9][0-9.]*)", metadata)
print(json.dumps({"wheel": wheels[0], "torch": found.group(1).rstrip(".") if found else None}))
