"""The folders that make `import poptorch` work in a rehearsal. They are on no path otherwise."""

from __future__ import annotations

from pathlib import Path

STANDINS = Path(__file__).resolve().parent / "standins"


def python_folders(*, horovod_is_there: bool) -> list[Path]:
    """Return what goes before PYTHONPATH: popdist and poptorch, and horovod unless the interpreter has the real one.

    The real one needs a real mpirun: where a rehearsal starts instances itself, say that it is not there.
    """
    return [STANDINS / "ipu"] if horovod_is_there else [STANDINS / "ipu", STANDINS / "gloo"]
