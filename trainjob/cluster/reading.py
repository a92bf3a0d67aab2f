"""Cluster files and job files, from YAML to checked values; every error with file and line, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from trainjob.cluster import document
from trainjob.cluster.document import Document, Problem
from trainjob.cluster.errors import ClusterError, JobError
from trainjob.cluster.faults import Fault, dotted, faults, nearest
from trainjob.cluster.job import Job
from trainjob.cluster.models import KINDS, Cluster
from trainjob.contract.errors import UserError

Model = TypeVar("Model", bound=BaseModel)


def read_cluster(path: Path, shown: str | None = None) -> Cluster:
    """Return the cluster in the file `path`, which errors call `shown`. Raises ClusterError."""
    where = shown or str(path)
    return cluster_from_text(_text_of(path, where, ClusterError), where)


def read_job(path: Path, shown: str | None = None) -> Job:
    """Return the job in the file `path`, which errors call `shown`. Raises JobError."""
    where = shown or str(path)
    return job_from_text(_text_of(path, where, JobError), where)


def cluster_from_text(text: str, where: str) -> Cluster:
    """Return the cluster that `text` describes. Raises ClusterError, whose lines begin with `where`:LINE."""
    found = document.load(text)
    kind = found.values.get("kind")
    if found.root is None or not isinstance(kind, str) or kind not in KINDS:
        raise ClusterError(_lines(where, [*found.problems, *_kind_problem(found)]))
    return _checked(found, KINDS[kind], where, ClusterError)


def job_from_text(text: str, where: str) -> Job:
    """Return the job that `text` asks for. Raises JobError, whose lines begin with `where`:LINE."""
    return _checked_job(document.load(text), Job, where)


def items_from_text(text: str, model: type[Model], where: str) -> list[Model]:
    """Return each item of the list in `text`. Raises JobError with all that is wrong, each line with its number."""
    items: list[Model] = []
    wrong: list[str] = []
    for found in document.load_list(text):
        try:
            items.append(_checked_job(found, model, where))
        except JobError as error:
            wrong.append(str(error))
    if wrong:
        raise JobError("\n".join(wrong))
    return items


def text_of(path: Path, where: str) -> str:
    """Return a job's file as text. Raises JobError."""
    return _text_of(path, where, JobError)


def _text_of(path: Path, where: str, error: type[UserError]) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as reason:
        raise error(f"{where}: byte {reason.start + 1} is not UTF-8: save the file as UTF-8 text") from None
    except FileNotFoundError:
        raise error(f"{where}: there is no such file: put the path right") from None
    except OSError as reason:
        raise error(f"{where}: can't be read: {reason.strerror}") from None


def _checked_job(found: Document, model: type[Model], where: str) -> Model:
    if found.root is None:
        raise JobError(_lines(where, found.problems))
    return _checked(found, model, where, JobError)


def _checked(found: Document, model: type[Model], where: str, error: type[UserError]) -> Model:
    try:
        value = model.model_validate(found.values)
    except ValidationError as refused:
        mistakes = faults(model, found.values, refused, found.written)
    else:
        mistakes = []
    noted = {problem.path for problem in found.problems}
    problems = [*found.problems, *(_at_line(found, fault) for fault in mistakes if fault.path not in noted)]
    if problems:
        raise error(_lines(where, problems))
    return value


def _at_line(found: Document, fault: Fault) -> Problem:
    return Problem(found.line(fault.path), 0, fault.path, fault.text)


def _kind_problem(found: Document) -> list[Problem]:
    if found.root is None or any(problem.path == ("kind",) for problem in found.problems):
        return []
    known = ", ".join(KINDS)
    if "kind" not in found.values:
        return [Problem(found.line(()), 0, ("kind",), f"is missing: give one of {known}")]
    read = found.values["kind"]
    close = nearest(read, KINDS) if isinstance(read, str) else None
    meant = f" (is {close} meant?)" if close else ""
    return [Problem(found.line(("kind",)), 0, ("kind",), f"read {read!r}, expected one of {known}{meant}")]


def _lines(where: str, problems: Iterable[Problem]) -> str:
    return "\n".join(_line(where, problem) for problem in sorted(problems, key=lambda each: each.line))


def _line(where: str, problem: Problem) -> str:
    place = f"{where}:{problem.line}" + (f":{problem.column}" if problem.column else "")
    return f"{place}: {dotted(problem.path)}: {problem.text}" if problem.path else f"{place}: {problem.text}"
