"""Finds the cluster that --cluster names: in ./clusters, the user's configuration folder, then the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from trainjob.cluster.base import Cluster
from trainjob.cluster.errors import ClusterError
from trainjob.contract.errors import nearest
from trainjob.kinds.reading import read_cluster

CATALOG = Path(__file__).parent / "catalog"
HERE = Path("clusters")


@dataclass(frozen=True)
class Candidate:
    """A cluster file with its name, not yet read. Errors call the file `shown`."""

    name: str
    path: Path
    origin_word: str
    shown: str

    def read(self) -> NamedCluster:
        """Return the cluster of this file. Raises ClusterError."""
        return NamedCluster(self.name, self.path, self.origin_word, read_cluster(self.path, self.shown))


@dataclass(frozen=True)
class NamedCluster:
    """A cluster and its origin. `origin_word` holds no path of this machine, so scripts may contain it."""

    name: str
    path: Path
    origin_word: str
    cluster: Cluster


def find(value: str) -> NamedCluster:
    """Return the cluster that --cluster `value` means: a path with a slash or ending in .yaml, else a name.

    Raises ClusterError for an unknown name, with the nearest and all known names, and for a file that can't be read.
    """
    if "/" in value or value.endswith(".yaml"):
        return _at_path(value).read()
    all_candidates = candidates()
    for candidate in all_candidates:
        if candidate.name == value:
            return candidate.read()
    raise ClusterError(f'no cluster is called "{value}"', _known(value, all_candidates))


def candidates() -> tuple[Candidate, ...]:
    """Return one candidate for every name: the file that `find` would read. Reads no file."""
    here = (Candidate(path.stem, path, f"cluster file {path}", str(path)) for path in _files(HERE))
    users = (
        Candidate(path.stem, path, f"user's cluster file {path.name}", str(path)) for path in _files(user_folder())
    )
    by_name: dict[str, Candidate] = {}
    for candidate in (*here, *users, *catalog()):
        by_name.setdefault(candidate.name, candidate)
    return tuple(by_name.values())


def catalog() -> tuple[Candidate, ...]:
    """Return the ready cluster files that come with trainjob."""
    return tuple(Candidate(path.stem, path, f"catalog {path.stem}", f"catalog {path.stem}") for path in _files(CATALOG))


def user_folder() -> Path:
    """Return the folder of the user's own cluster files; it need not exist."""
    return Path(platformdirs.user_config_dir("trainjob")) / "clusters"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts pod4 before pod16."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", path.stem)]


def _at_path(value: str) -> Candidate:
    path = Path(value)
    if not path.exists():
        by_name = {candidate.name: candidate for candidate in candidates()}
        close = nearest(path.stem, by_name)
        cure = f"is --cluster {close} meant ({by_name[close].origin_word})?" if close else "correct the path"
        raise ClusterError(f"{value}: there is no such file", cure)
    # An absolute path exists only on this machine, so scripts contain only the file's name.
    return Candidate(path.stem, path, f"cluster file {path.name if path.is_absolute() else path}", value)


def _known(value: str, clusters: tuple[Candidate, ...]) -> str:
    close = nearest(value, [candidate.name for candidate in clusters])
    meant = f"is {close} meant? Known" if close else "known"
    ready = [candidate.name for candidate in clusters if candidate.path.parent == CATALOG]
    others = [f"{candidate.name} ({candidate.origin_word})" for candidate in clusters if candidate.name not in ready]
    names = ", ".join([*others, f"and in the catalog {', '.join(ready)}"] if others else ready)
    return f"{meant} are {names}. A file is given as a path that ends in .yaml"
