"""Which source a task's data is."""

from __future__ import annotations

from typing import Any, Optional

from trainjob.contract.errors import UserError
from trainjob.train.sources import DatasetSource, Source
from trainjob.train.streams import as_stream, is_stream


def as_source(given: Any, samples: Optional[int] = None) -> Source:
    """Return `given` as a source: one of ours as it is, a user's own Dataset wrapped. Raises UserError.

    `samples` is the length of an epoch of an iterable one.
    """
    if hasattr(given, "gather"):
        source: Source = given
        return source
    if is_stream(given):
        return as_stream(given, samples)
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        return DatasetSource(given)
    raise UserError(
        "open_data gave %s, which can neither be asked by index (__len__ and __getitem__) nor iterated over: give a "
        "Dataset, a ShardSource or a TensorSource" % type(given).__name__
    )
