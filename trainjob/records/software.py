"""hosts/: which versions of Python, torch, CUDA, NCCL and driver each host of a run has, and where hosts differ."""

from __future__ import annotations

import binascii
import json
import os
import re
from pathlib import Path
from typing import Iterable, List, Mapping, NamedTuple, Optional

from trainjob.contract.errors import Problem
from trainjob.contract.paths import RunPaths
from trainjob.records.attempts import current
from trainjob.records.files import read_json, write_json

OLDEST_FOR_FSDP = "2.6"
OLDEST_FOR_COMPILE = "2.1"


def is_older(version: str, oldest: str) -> bool:
    """Return whether `version`, such as 2.5.1+cu124, is older than `oldest`, such as 2.6."""
    numbers, needed = ([int(number) for number in re.findall(r"\d+", text)[:2]] for text in (version, oldest))
    return bool(numbers) and numbers < needed  # an unknown version may do


class HostSoftware(NamedTuple):
    """One host, under the number of its first rank."""

    attempt: int
    rank: int
    host: str
    packages: Mapping[str, str]


def file_of(paths: RunPaths, rank: int) -> Path:
    """Return the file of the host whose first rank is `rank`; its folder exists after this."""
    folder = paths.folder / "hosts"
    folder.mkdir(exist_ok=True)
    return folder / ("rank-%04d.json" % rank)


def record(paths: RunPaths, mine: HostSoftware) -> int:
    """Record what a host has, and return how many kinds of software the hosts of its attempt have so far.

    One listing tells a host whether all agree: if each read the files of all others, what a start costs would grow with
    the square of their number.
    """
    # Every host writes before it looks, so that of two that differ at least one notices.
    # Not needed after a power cut, so not written through to the disk: thousands of hosts share it.
    write_json(file_of(paths, mine.rank), mine._asdict(), durable=False)
    folder = paths.folder / "hosts" / "kinds"
    folder.mkdir(exist_ok=True)
    # hashlib would load OpenSSL, on every host, to tell a handful of kinds apart.
    kind = binascii.crc32(json.dumps(sorted(mine.packages.items())).encode())
    (folder / ("%d-%08x" % (mine.attempt, kind))).touch()
    return sum(name.startswith("%d-" % mine.attempt) for name in os.listdir(str(folder)))


def recorded(paths: RunPaths) -> List[HostSoftware]:
    """Return what the hosts of the newest attempt have recorded, in the order of their ranks."""
    attempt = current(paths)
    hosts = [_read(file) for file in sorted((paths.folder / "hosts").glob("rank-*.json"))]
    return [host for host in hosts if host and host.attempt >= attempt]


def _read(file: Path) -> Optional[HostSoftware]:
    value = read_json(file)
    if not isinstance(value, dict) or not isinstance(value.get("packages"), dict):
        return None
    attempt, rank, host = (value.get(name) for name in ("attempt", "rank", "host"))
    if type(attempt) is not int or type(rank) is not int or not isinstance(host, str):
        return None
    return HostSoftware(attempt, rank, host, {name: str(version) for name, version in value["packages"].items()})


def difference(hosts: Iterable[HostSoftware]) -> Optional[Problem]:
    """Return a warning that names every package in which a host differs from the first; None if all agree."""
    listed, clauses = list(hosts), []
    for host in listed[1:]:
        first = listed[0]
        for name in sorted(set(first.packages) | set(host.packages)):
            one, other = (versions.get(name, "not installed") for versions in (first.packages, host.packages))
            if one != other:
                clauses.append("%s is %s on %s and %s on %s" % (name, one, first.host, other, host.host))
    if not clauses:
        return None
    shown = "; ".join(clauses[:6]) + ("; and %d more" % (len(clauses) - 6) if len(clauses) > 6 else "")
    return Problem(
        "packages-differ",
        "the hosts of this run have different software: %s" % shown,
        "Install the same versions everywhere (trainjob provision), or keep the job off the host that differs",
    )
