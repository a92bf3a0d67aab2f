"""docs/generate.py, which is a script and in no package."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

from tests.support import ROOT


@functools.cache
def generator() -> Any:
    """Return the module that writes the generated pages."""
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
