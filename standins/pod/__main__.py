"""Runs the stand-in that the first argument names, as program.sh calls it."""

import importlib
import sys
from pathlib import Path

# The module and the function of each program.
PROGRAMS = {
    "poprun": ("poprun", "main"),
    "vipu": ("vipu", "main"),
    "vipu-admin": ("vipu", "admin"),
    "gc-monitor": ("inspection", "gc_monitor"),
    "gc-info": ("inspection", "gc_info"),
    "gc-inventory": ("inspection", "gc_inventory"),
}

if __name__ == "__main__":
    # Run by path: the folder of our sources is on no PYTHONPATH, and instances must not inherit it.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    module, function = PROGRAMS[sys.argv.pop(1)]
    program = getattr(importlib.import_module("standins.pod." + module), function)
    sys.exit(program(sys.argv[1:]))
