"""What compiling leaves: a file for each model in the executables' folder, and a progress bar.

A file here holds no executable, and saves no time: it shows that compiling reached the folder, and for what.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any, List


def note(options: Any, model: Any, expected: List[Any]) -> None:
    """Leave the mark of a compiled model, where a folder was named."""
    folder = options.executable_cache
    if not folder:
        return
    what = {"model": str(model), "inputs": str(expected), "options": str(sorted(options.toDict().items(), key=str))}
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
    os.makedirs(folder, exist_ok=True)
    beside = os.path.join(folder, "%s.%d" % (name, os.getpid()))
    with open(beside, "w", encoding="utf-8") as stream:
        json.dump(what, stream, indent=1)
    os.replace(beside, os.path.join(folder, name + ".standin"))


def show_progress(seconds: float) -> None:
    """Write the bar of a compilation that is over."""
    minutes, rest = divmod(int(seconds), 60)
    sys.stderr.write("Graph compilation: 100%%|##########| 100/100 [%02d:%02d<00:00]\n" % (minutes, rest))
    sys.stderr.flush()
