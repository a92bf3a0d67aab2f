"""poptorch.profiling: trace points for PopVision. Nothing here writes a trace: what is instrumented runs as it is."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator


class Channel:
    """A named channel of trace points."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:  # noqa: ARG002 - poptorch's form
        """Do nothing while the traced code runs."""
        yield

    def instrument(self, obj: Any, *methods: str) -> None:
        """Check that `obj` has the methods. Raises AttributeError."""
        for method in methods:
            getattr(obj, method)
