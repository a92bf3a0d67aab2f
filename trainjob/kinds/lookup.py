"""Cluster files: found in ./clusters, the user's folder, then the catalog; read; and drafted from the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import platformdirs

from trainjob.cluster.base import Cluster
from trainjob.cluster.document import load
from trainjob.cluster.faults import ClusterError, Fault
from trainjob.cluster.reading import checked, problems_of, text_of
from trainjob.cluster.strict import keys_of
from trainjob.contract.errors import nearest
from trainjob.kinds.table import KINDS
from trainjob.records.files import only_owner_writes
from trainjob.records.own import put_by_another

CATALOG = Path(__file__).parent / "catalog"
SITES = CATALOG / "sites"
HERE = Path("clusters")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_MARKED = re.compile(r"^ *# (\S+):.*# fill in", re.MULTILINE)


class UnreadClusterFile(NamedTuple):
    """A cluster file with its name, not yet read. Errors call the file `shown`."""

    name: str
    path: Path
    origin_word: str
    shown: str

    def read(self) -> NamedCluster:
        """Return the cluster of this file. Raises ClusterError."""
        return NamedCluster(self.name, self.path, self.origin_word, read_cluster(self.path, self.shown))


class NamedCluster(NamedTuple):
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


def candidates() -> tuple[UnreadClusterFile, ...]:
    """Return one candidate for every name: the file that `find` would read. Reads no file."""
    files_here = [] if put_by_another(HERE) else _files(HERE)
    here = (UnreadClusterFile(path.stem, path, f"cluster file {path}", str(path)) for path in files_here)
    users = (
        UnreadClusterFile(path.stem, path, f"user's cluster file {path.name}", str(path))
        for path in _files(user_folder())
    )
    by_name: dict[str, UnreadClusterFile] = {}
    for candidate in (*here, *users, *catalog(), *sites()):
        by_name.setdefault(candidate.name, candidate)
    return tuple(by_name.values())


def catalog() -> tuple[UnreadClusterFile, ...]:
    """Return the ready cluster files that come with trainjob, without those of `sites`."""
    return tuple(
        UnreadClusterFile(path.stem, path, f"catalog {path.stem}", f"catalog {path.stem}") for path in _files(CATALOG)
    )


def sites() -> tuple[UnreadClusterFile, ...]:
    """Return the cluster files of public machines, every line with its source."""
    return tuple(UnreadClusterFile(path.stem, path, f"site {path.stem}", f"site {path.stem}") for path in _files(SITES))


def user_folder() -> Path:
    """Return the folder of the user's own cluster files; it need not exist."""
    return Path(platformdirs.user_config_dir("trainjob")) / "clusters"


def _files(folder: Path) -> list[Path]:
    def pod4_before_pod16(path: Path) -> list[tuple[int, str]]:
        parts = re.split(r"([0-9]+)", path.stem)
        return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]

    return sorted(folder.glob("*.yaml"), key=pod4_before_pod16)


def _at_path(value: str) -> UnreadClusterFile:
    path = Path(value)
    if not path.exists():
        by_name = {candidate.name: candidate for candidate in candidates()}
        close = nearest(path.stem, by_name)
        cure = f"is --cluster {close} meant ({by_name[close].origin_word})?" if close else "correct the path"
        raise ClusterError(f"{value}: there is no such file", cure)
    # An absolute path exists only on this machine, so scripts contain only the file's name.
    return UnreadClusterFile(path.stem, path, f"cluster file {path.name if path.is_absolute() else path}", value)


def _known(value: str, clusters: tuple[UnreadClusterFile, ...]) -> str:
    close = nearest(value, [candidate.name for candidate in clusters])
    meant = f"is {close} meant? Known" if close else "known"
    ready = [one.name for one in clusters if one.path.parent == CATALOG]
    own = [f"{one.name} ({one.origin_word})" for one in clusters if one.path.parent not in (CATALOG, SITES)]
    names = ", ".join([*own, f"and in the catalog {', '.join(ready)}"] if own else ready)
    public = "`trainjob cluster list` also names public machines"
    return f"{meant} are {names}; {public}. A file is given as a path that ends in .yaml"


def _meant(word: str, names: Iterable[str]) -> str:
    close = nearest(word, names)
    return f"is {close} meant?" if close else ""


def read_cluster(path: Path, shown: str | None = None) -> Cluster:
    """Return the cluster in the file `path`, which errors call `shown`. Raises ClusterError."""
    where = shown or str(path)
    return cluster_from_text(text_of(path, where, ClusterError), where)


def cluster_from_text(text: str, where: str) -> Cluster:
    """Return the cluster that `text` describes. Raises ClusterError, whose lines begin with `where`:LINE."""
    content = load(text)
    kind = content.values.get("kind")
    if content.root is None or not isinstance(kind, str) or kind not in KINDS:
        mistakes, known = list(content.problems), ", ".join(KINDS)
        if content.root is not None and not any(problem.path == ("kind",) for problem in mistakes):
            text, cure = f"read {kind!r}, expected one of {known}", _meant(kind, KINDS) if isinstance(kind, str) else ""
            if "kind" not in content.values:
                text, cure = "is missing", f"give one of {known}"
            mistakes.append(Fault(("kind",), text, cure, content.line(("kind",))))
        raise ClusterError.of_all(problems_of(ClusterError, where, mistakes))
    strangers = [
        Fault((key,), *_of_other_kinds(key, content.values[key], kind, others), content.line((key,)))
        for key in content.values.keys() - keys_of(KINDS[kind].MODEL).keys()
        if (others := [name for name, one in KINDS.items() if key in keys_of(one.MODEL)])
    ]
    content = content._replace(problems=(*content.problems, *strangers))
    return checked(content, KINDS[kind].MODEL, where, ClusterError)


def _of_other_kinds(key: str, value: object, kind: str, others: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with a key that only `others` have in a file of kind `kind`, and the cure."""
    text, cure = f"is a key of kind {' or '.join(others)}, and this file is of kind {kind}", "take it out"
    count = value.get("accelerators") if isinstance(value, dict) else None
    if key == "nodes" and isinstance(count, int) and "accelerators" in keys_of(KINDS[kind].MODEL):
        cure = f"write accelerator: gpu and accelerators: {count} in its place"
    return text, f"{cure}, or write kind: {others[0]}"


def draft(name: str, source: str, *, is_site: bool = False) -> str:
    """Return the text of a cluster file called `name`, drafted from the catalog's `source`, or from that site.

    Raises ClusterError.
    """
    refuse_name(name)
    option, known = ("--site", sites()) if is_site else ("--from", catalog())
    entries = {entry.name: entry for entry in known}
    if source not in entries:
        names = list(entries)
        raise ClusterError(f'read {option} "{source}", expected one of {", ".join(names)}', _meant(source, names))
    return f"# {name}: drafted from the catalog's {source}.\n{entries[source].path.read_text(encoding='utf-8')}"


def refuse_name(name: str) -> None:
    """Raise ClusterError unless `name` is a valid name for a cluster file."""
    if not _NAME.fullmatch(name) or name.endswith(".yaml"):
        raise ClusterError(
            f'"{name}" can\'t name a cluster file', "use letters, digits, dots, dashes and underscores, without .yaml"
        )


def places_to_fill_in(text: str) -> tuple[tuple[int, str], ...]:
    """Return the line (from 1) and the key of every place in `text` that the site must fill in."""
    return tuple((text.count("\n", 0, match.start()) + 1, match[1]) for match in _MARKED.finditer(text))


def refuse_missing_facts(name: str, cluster: Cluster, path: Path | None = None) -> None:
    """Raise ClusterError, naming every fact that a submission to the cluster `name` needs and its file lacks.

    `path` is that file, whose lines to fill in are named.
    """
    missing = cluster.missing_facts
    if not missing:
        return
    problem = f"cluster {name} can be planned; to submit to it, its file lacks {', '.join(missing)}"
    if path is None or path.parent == CATALOG:
        cure = f"add them, or draft a file that shows where they go: trainjob cluster init NAME --from {cluster.draft}"
    elif path.parent == SITES:
        cure = f"draft a file of your own, which shows where they go: trainjob cluster init --site {name}"
    else:
        marked = {key: line for line, key in places_to_fill_in(path.read_text(encoding="utf-8"))}
        keys = {fact: fact.rpartition(".")[2] for fact in missing}
        lines = [f"{path}:{marked[key]}: {key}" for key in keys.values() if key in marked]
        others = [fact for fact, key in keys.items() if key not in marked]
        cure = f"add them to {path}"
        if lines:
            problem = f"cluster {name} can be planned, and submitted to once its file is complete"
            cure = f"fill in {', '.join(lines)}" + (f", and add {', '.join(others)}" if others else "")
    raise ClusterError(problem, cure)


@only_owner_writes()
def write_draft(path: Path, text: str) -> None:
    """Write `text` to the new file `path`, and create its folder. Raises ClusterError if the file exists."""
    if path.exists():
        raise ClusterError(f"{path} exists already, and is not overwritten", "choose another name, or remove it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ClusterError(f"{path} can't be written: {error.strerror}", "choose a folder that you may write") from None
