"""Files from YAML to checked values. Every error has file and line, and all come at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from trainjob.cluster.document import MOST_BYTES, Document, load, load_list
from trainjob.cluster.faults import Fault, InvalidError, JobError, validated
from trainjob.cluster.job import Job
from trainjob.cluster.preferences import Preferences, file
from trainjob.cluster.strict import Strict
from trainjob.contract.errors import Problem, UserError
from trainjob.records.files import DamagedError, read_small

_CLUSTER = "cluster"

Value = TypeVar("Value", bound=Strict)
SomeJob = TypeVar("SomeJob", bound=Job)


def read_job(path: Path) -> Job:
    """Return the job in the file `path`. Raises JobError."""
    return job_from_text(text_of(path, str(path), JobError), str(path))


def cluster_of_job(path: Path) -> str | None:
    """Return the cluster that the job file `path` names; None if it names none. Raises JobError."""
    content = load(text_of(path, str(path), JobError))
    value = content.values.get(_CLUSTER)
    if value is not None and not (isinstance(value, str) and value.strip() == value != ""):
        fault = Fault((_CLUSTER,), f"read {value!r}", "write a name or a path", content.line((_CLUSTER,)))
        raise JobError.of_all(problems_of(JobError, str(path), [fault]))
    return value


def read_strictly(path: Path, kind: type[Value]) -> Value:
    """Return the content of the YAML file `path` as a value of `kind`. Raises UserError with every fault's line."""
    return checked(load(text_of(path, str(path), UserError)), kind, str(path), UserError)


def read_preferences() -> Preferences:
    """Return the user's configuration, with defaults if there is no file. Raises UserError."""
    path = file()
    if not path.exists():
        return Preferences()
    preferences = checked(load(text_of(path, str(path), UserError)), Preferences, str(path), UserError)
    if preferences.notify is not None and preferences.notify.webhook is not None and path.stat().st_mode & 0o077:
        raise UserError(
            f"{path} has mode {path.stat().st_mode & 0o777:04o}: others may read the webhook's address, which is a "
            "secret; it needs 0600",
            f"Run: chmod 600 {path}",
        )
    return preferences


def job_from_text(text: str, where: str) -> Job:
    """Return the job that `text` describes. Raises JobError, whose lines begin with `where`:LINE."""
    content = load(text)
    # It says where the job runs, and is no setting of the job: `cluster_of_job` reads it.
    settings = {name: value for name, value in content.values.items() if name != _CLUSTER}
    return checked(content._replace(values=settings), Job, where, JobError)


def items_from_text(text: str, kind: type[SomeJob], where: str) -> list[SomeJob]:
    """Return each item of the list in `text`. Raises JobError with every problem and its line."""
    items: list[SomeJob] = []
    problems: list[Problem] = []
    for item in load_list(text):
        try:
            items.append(checked(item, kind, where, JobError))
        except JobError as error:
            problems.extend(error.problems)
    if problems:
        raise JobError.of_all(problems)
    return items


def text_of(path: Path, where: str, error: type[UserError]) -> str:
    """Return the file `path`, which errors call `where`, as text. Raises `error`."""
    try:
        return read_small(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as reason:
        raise error(f"{where}: byte {reason.start + 1} is not UTF-8", "save the file as UTF-8 text") from None
    except FileNotFoundError:
        raise error(f"{where}: there is no such file", "correct the path") from None
    except OSError as reason:
        raise error(f"{where}: can't be read: {reason.strerror}", "give a file that you may read") from None
    except DamagedError as reason:
        raise error(f"{where}: can't be read: it {reason}", "give a YAML file of at most 256 kB") from None


def checked(content: Document, kind: type[Value], where: str, error: type[UserError]) -> Value:
    """Return the document as a value of `kind`. Raises `error`, whose lines begin with `where`:LINE."""
    if content.root is None:
        raise error.of_all(problems_of(error, where, content.problems))
    faults: list[Fault] = []
    try:
        value = validated(kind, content.values, content.written)
    except InvalidError as refused:
        faults = refused.faults
    noted = {problem.path for problem in content.problems}
    of_values = (fault._replace(line=content.line(fault.path)) for fault in faults if fault.path not in noted)
    problems = [*content.problems, *of_values]
    if problems:
        raise error.of_all(problems_of(error, where, problems))
    return value


def problems_of(error: type[UserError], where: str, faults: Iterable[Fault]) -> list[Problem]:
    """Return the faults as problems, sorted by line."""
    problems = []
    for fault in sorted(faults, key=lambda each: each.line):
        place = f"{where}:{fault.line}" + (f":{fault.column}" if fault.column else "")
        problems.append(Problem(error.code, f"{place}: {fault.place}{fault.text}", fault.cure, where=place))
    return problems
