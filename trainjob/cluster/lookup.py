"""Finds the cluster that --cluster names: ./clusters, then the user's configuration folder, then the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from trainjob.cluster.errors import ClusterError
from trainjob.cluster.faults import nearest
from trainjob.cluster.models import Cluster
from trainjob.cluster.reading import read_cluster

CATALOG = Path(__file__).parent / "catalog"
HERE = Path("clusters")


@dataclass(frozen=True)
class Known:
    """A cluster file that a name stands for, not yet read. `shown` is what an error calls the file."""

    name: str
    path: Path
    origin_word: str
    shown: str

    def read(self) -> Found:
        """Return the cluster of this file. Raises ClusterError."""
        return Found(self.name, self.path, self.origin_word, read_cluster(self.path, self.shown))


@dataclass(frozen=True)
class Found:
    """A cluster and where it comes from. `origin_word` holds nothing of this machine, so it may be rendered."""

    name: str
    path: Path
    origin_word: str
    cluster: Cluster


def find(value: str) -> Found:
    """Return the cluster that --cluster `value` means: a path with a slash or ending in .yaml, else a name.

    Raises ClusterError: an unknown name, with the nearest and all known ones; a file that can't be read.
    """
    if "/" in value or value.endswith(".yaml"):
        return _at_path(value).read()
    known = everything_known()
    for candidate in known:
        if candidate.name == value:
            return candidate.read()
    raise ClusterError(_unknown(value, known))


def everything_known() -> tuple[Known, ...]:
    """Return every name there is, once: the file that it stands for here and now. Reads none of them."""
    found: dict[str, Known] = {}
    for known in (*_here(), *_of_the_user(), *catalog()):
        found.setdefault(known.name, known)
    return tuple(found.values())


def catalog() -> tuple[Known, ...]:
    """Return the ready cluster files that come with trainjob."""
    return tuple(Known(path.stem, path, f"catalog {path.stem}", f"catalog {path.stem}") for path in _files(CATALOG))


def user_folder() -> Path:
    """Return the folder of the user's own cluster files; it need not exist."""
    return Path(platformdirs.user_config_dir("trainjob")) / "clusters"


def _here() -> tuple[Known, ...]:
    return tuple(Known(path.stem, path, f"cluster file {path}", str(path)) for path in _files(HERE))


def _of_the_user() -> tuple[Known, ...]:
    return tuple(
        Known(path.stem, path, f"user's cluster file {path.name}", str(path)) for path in _files(user_folder())
    )


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts pod4 before pod16."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", path.stem)]


def _at_path(value: str) -> Known:
    path = Path(value)
    if not path.exists():
        raise ClusterError(f"{value}: there is no such file{_is_a_name_meant(path.stem)}")
    # An absolute path is this machine's own: only the file's name may be rendered.
    return Known(path.stem, path, f"cluster file {path.name if path.is_absolute() else path}", value)


def _is_a_name_meant(stem: str) -> str:
    known = {candidate.name: candidate for candidate in everything_known()}
    close = nearest(stem, known)
    return f": is --cluster {close} meant ({known[close].origin_word})?" if close else ": put the path right"


def _unknown(value: str, known: tuple[Known, ...]) -> str:
    close = nearest(value, [candidate.name for candidate in known])
    meant = f"is {close} meant? Known" if close else "known"
    ready = [candidate.name for candidate in known if candidate.path.parent == CATALOG]
    others = [f"{candidate.name} ({candidate.origin_word})" for candidate in known if candidate.name not in ready]
    listed = ", ".join([*others, f"and in the catalog {', '.join(ready)}"] if others else ready)
    return f'no cluster is called "{value}": {meant} are {listed}. A file is given as a path that ends in .yaml'
