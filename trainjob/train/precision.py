"""Precisions by the names that `input.model` bits give them."""

from __future__ import annotations

from typing import Dict

import torch

from trainjob.contract.errors import UserError

# 64.64 is for verification: in float32 the order of a sum alone moves weights as much as a real mistake does.
BY_NAME: Dict[str, torch.dtype] = {"32.32": torch.float32, "64.64": torch.float64}


def floating_type(precision: str) -> torch.dtype:
    """Return the type of weights and inputs. Raises UserError for a precision that torch engines don't have."""
    found = BY_NAME.get(precision)
    if found is None:
        known = ", ".join(sorted(BY_NAME))
        raise UserError("precision %s is not known to this engine on this device: it has %s" % (precision, known))
    return found
