"""Waits until the nodes of a Ray cluster are in: ray_nodes.py HOST PORT COUNT TIMEOUT_S, by a Python that has Ray.

Without arguments it fails if that Python has no Ray, and prints `client` if it has Ray's client, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import List

# The folder of this file stood there, whose modules have everyday names.
sys.path[0] = str(Path(__file__).resolve().parents[3])

from trainjob.contract import clock  # noqa: E402 - found only now
from trainjob.launch.roles.ready import answers  # noqa: E402

_LOOK_S = 0.2


def main(arguments: List[str]) -> int:
    """Return 0 once so many nodes are alive, or if this Python has Ray."""
    if not arguments:
        sys.stdout.write("client" if importlib.util.find_spec("grpc") else "")
        found = importlib.util.find_spec("ray")
        return int(found is None or found.origin is None)
    host, port, count = arguments[0], int(arguments[1]), int(arguments[2])
    deadline, alive = clock.monotonic() + float(arguments[3]), 0
    ray = importlib.import_module("ray")
    while not answers(host, port) and clock.monotonic() < deadline:
        clock.sleep(_LOOK_S)
    ray.init(address="%s:%d" % (host, port), log_to_driver=False, logging_level="ERROR")
    while alive < count and clock.monotonic() < deadline:
        clock.sleep(_LOOK_S if alive else 0.0)
        alive = sum(bool(node["Alive"]) for node in ray.nodes())
    if alive < count:
        sys.stderr.write("trainjob: %d of %d nodes of Ray are in after %s s\n" % (alive, count, arguments[3]))
    return int(alive < count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
