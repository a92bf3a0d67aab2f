"""What a saved model holds."""

from __future__ import annotations

from typing import Any, Dict

import torch


def read(path: str) -> Dict[str, Any]:
    """Return what `save` wrote to `path`."""
    try:
        kept = torch.load(path, weights_only=False)
    except TypeError:  # torch < 1.13 has no such argument
        kept = torch.load(path)
    return dict(kept)
