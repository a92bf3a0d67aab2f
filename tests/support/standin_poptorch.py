"""The stand-ins, importable while a test asks for them and never otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainjob.rehearse.pod import python_folders

_ROOTS = {"poptorch", "popdist", "trainjob_standins", "horovod"}


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in _ROOTS]:
        del sys.modules[name]


@pytest.fixture
def poptorch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the stand-in, as one process outside poprun has it; popdist can then be imported, too."""
    for folder in reversed(python_folders(has_horovod=False)):
        monkeypatch.syspath_prepend(str(folder))
    for name in ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "POPTORCH_CACHE_DIR", "POPTORCH_DEFAULT_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    _forget()
    import poptorch

    yield poptorch
    _forget()
