"""Cluster files, from YAML to checked values; the key `kind` decides the other keys."""

from __future__ import annotations

from pathlib import Path

from trainjob.cluster.base import Cluster
from trainjob.cluster.document import Document, Mistake, load
from trainjob.cluster.errors import ClusterError
from trainjob.cluster.reading import checked, problems_of, text_of
from trainjob.contract.errors import nearest
from trainjob.kinds.table import KINDS


def read_cluster(path: Path, shown: str | None = None) -> Cluster:
    """Return the cluster in the file `path`, which errors call `shown`. Raises ClusterError."""
    where = shown or str(path)
    return cluster_from_text(text_of(path, where, ClusterError), where)


def cluster_from_text(text: str, where: str) -> Cluster:
    """Return the cluster that `text` describes. Raises ClusterError, whose lines begin with `where`:LINE."""
    content = load(text)
    kind = content.values.get("kind")
    if content.root is None or not isinstance(kind, str) or kind not in KINDS:
        raise ClusterError.of_all(problems_of(ClusterError, where, [*content.problems, *_kind_problem(content)]))
    return checked(content, KINDS[kind].MODEL, where, ClusterError)


def _kind_problem(content: Document) -> list[Mistake]:
    if content.root is None or any(problem.path == ("kind",) for problem in content.problems):
        return []
    kinds = ", ".join(KINDS)
    if "kind" not in content.values:
        return [Mistake(content.line(()), 0, ("kind",), "is missing", f"give one of {kinds}")]
    value = content.values["kind"]
    close = nearest(value, KINDS) if isinstance(value, str) else None
    meant = f"is {close} meant?" if close else ""
    return [Mistake(content.line(("kind",)), 0, ("kind",), f"read {value!r}, expected one of {kinds}", meant)]
