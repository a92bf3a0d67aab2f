"""One device and who uses it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Device:
    """An IPU of a partition, or a GPU. Texts are the tool's own; "" where it does not say."""

    device: str
    where: str  # partition and IPU-Machine, or GPU model
    detail: str  # clock and temperature, or memory and load
    user: str
    process: str  # process id and command

    def as_json(self) -> dict[str, Any]:
        """Return the device for `--json`."""
        return asdict(self)
