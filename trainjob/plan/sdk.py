"""Releases of the Poplar SDK: which there are, which torch each is made for, and what their poprun calls things."""

from __future__ import annotations

from typing import NamedTuple

Release = tuple[int, int]


class Sdk(NamedTuple):
    """What one release is made for."""

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

RANGES_FROM: Release = (2, 5)  # the first whose --host reads host[0-2]
ALLOCATIONS_FROM: Release = (2, 6)  # before: --vipu-cluster
PLACEMENT_FROM: Release = (3, 0)  # before: --numa-aware


def release(version: str) -> Release:
    """Return major and minor number of a version that a cluster file has: 3.3.0+1403 is (3, 3)."""
    major, minor = version.split(".")[:2]
    digits = len(minor) - len(minor.lstrip("0123456789"))
    return int(major), int(minor[:digits])


def is_known(version: str) -> bool:
    """Return whether there is such a release."""
    return release(version) in RELEASES


def known() -> str:
    """Return all releases, as people read them, separated by commas."""
    return ", ".join(f"{major}.{minor}" for major, minor in RELEASES)
