"""The command `trainjob-simulate`: starts the simulation, which lies beside the package or, in a wheel, inside it."""

from __future__ import annotations

import importlib.util
import sys

from trainjob.contract import package


def main() -> int:
    """Return the exit code."""
    folder = package.companion("simulation")
    # Its folder alone is put in place: in a wheel, what lies beside it would hide modules of other packages.
    found = importlib.util.spec_from_file_location(
        "simulation", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if found is None:
        raise ImportError(f"no simulation in {folder}")
    sys.modules["simulation"] = importlib.util.module_from_spec(found)
    from simulation.__main__ import main as simulate

    return simulate()
