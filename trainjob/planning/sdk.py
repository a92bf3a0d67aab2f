"""Releases of the Poplar SDK: the torch and Python of each, and the options of its poprun."""

from __future__ import annotations

from typing import NamedTuple

Release = tuple[int, int]


class Sdk(NamedTuple):
    """The torch and Python that one release supports."""

    torch: str
    python: str  # of the Ubuntu that its hosts run


# poprun came with 2.0; 3.4 is the last (numbers of poptorch's release branches).
RELEASES: dict[Release, Sdk] = {
    (2, 0): Sdk("1.7.1", "3.6"),
    (2, 1): Sdk("1.7.1", "3.6"),
    (2, 2): Sdk("1.9.0", "3.8"),
    (2, 3): Sdk("1.9.0", "3.8"),
    (2, 4): Sdk("1.10.0", "3.8"),
    (2, 5): Sdk("1.10.0", "3.8"),
    (2, 6): Sdk("1.10.0", "3.8"),
    (3, 0): Sdk("1.10.0", "3.8"),
    (3, 1): Sdk("1.13.0", "3.8"),
    (3, 2): Sdk("1.13.1", "3.8"),
    (3, 3): Sdk("2.0.1", "3.8"),
    (3, 4): Sdk("2.0.1", "3.8"),
}

RANGES_FROM: Release = (2, 5)  # the first whose --host accepts host[0-2]
ALLOCATIONS_FROM: Release = (2, 6)  # before: --vipu-cluster
PLACEMENT_FROM: Release = (3, 0)  # before: --numa-aware


def release(version: str) -> Release:
    """Return the major and minor number of a version in a cluster file: (3, 3) for 3.3.0+1403."""
    major, minor = version.split(".")[:2]
    digits = len(minor) - len(minor.lstrip("0123456789"))
    return int(major), int(minor[:digits])


def is_known(version: str) -> bool:
    """Return whether this version belongs to a release in the table."""
    return release(version) in RELEASES


def known() -> str:
    """Return the numbers of all releases, separated by commas, for a message."""
    return ", ".join(f"{major}.{minor}" for major, minor in RELEASES)
