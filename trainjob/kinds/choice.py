"""The cluster of a command that names none, by one order of precedence, and who has chosen it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainjob.cluster import preferences
from trainjob.cluster.common import Line
from trainjob.cluster.document import load
from trainjob.cluster.faults import ClusterError
from trainjob.cluster.reading import cluster_of_job, read_preferences, read_strictly, text_of
from trainjob.cluster.strict import Strict, key
from trainjob.contract.errors import UserError
from trainjob.kinds.lookup import find
from trainjob.records.files import only_owner_writes

VARIABLE = "TRAINJOB_CLUSTER"
# In every folder from the working folder up to the top of the repository.
PROJECT_FILES = ("trainjob.yaml", "pyproject.toml")
DEFAULT, BY_DEFAULT = "local", "default"
_STATED = re.compile(r"(?m)^cluster:.*\n?")


class ProjectSettings(Strict):
    """The settings of a project: trainjob.yaml, or [tool.trainjob] in pyproject.toml."""

    cluster: Line | None = key(None, "The cluster of commands that name none.")


class ClusterChoice(NamedTuple):
    """A cluster's name or path, and who has chosen it."""

    value: str
    chosen_by: str


def choose(flag: str | None, job_file: Path | None = None, folder: Path | None = None) -> ClusterChoice:
    """Return the cluster of a command that is called in `folder`; the first that states one has chosen it.

    In this order: the flag, TRAINJOB_CLUSTER, the job file, the project, the user's config.yaml. Otherwise it is this
    machine. Raises UserError for a file that can't be read.
    """
    return next(_stated(flag, job_file, folder or Path.cwd()), ClusterChoice(DEFAULT, BY_DEFAULT))


def _stated(flag: str | None, job_file: Path | None, folder: Path) -> Iterator[ClusterChoice]:
    if flag is not None:
        yield ClusterChoice(flag, "flag --cluster")
    if os.environ.get(VARIABLE):
        yield ClusterChoice(os.environ[VARIABLE], VARIABLE)
    if job_file is not None and (of_job := cluster_of_job(job_file)) is not None:
        yield ClusterChoice(of_job, f"job file {job_file.name}")
    for place in (folder, *folder.parents):
        for name in PROJECT_FILES:
            if (place / name).is_file() and (of_project := _of_project(place / name)) is not None:
                yield ClusterChoice(of_project, os.path.relpath(place / name, folder))
        if (place / ".git").exists():
            break
    if (of_user := read_preferences().cluster) is not None:
        yield ClusterChoice(of_user, f"{preferences.file()} (trainjob cluster use)")


def _of_project(path: Path) -> str | None:
    if path.suffix == ".yaml":
        return read_strictly(path, ProjectSettings).cluster
    text = text_of(path, str(path), UserError)
    if "[tool.trainjob]" not in text:
        return None
    import tomllib

    try:
        stated = tomllib.loads(text)["tool"]["trainjob"]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path}: can't be read: {error}", "correct it") from None
    value = stated.get("cluster")
    if value is not None and not isinstance(value, str):
        raise UserError(f"{path}: tool.trainjob.cluster is {value!r}", "write the name of a cluster file, or a path")
    return value


@only_owner_writes()
def use(name: str) -> Path:
    """Write `name` into the user's config.yaml as the cluster of commands that name none; return that file.

    Everything else in the file stays. Raises UserError for an unknown cluster, and a file that can't be written.
    """
    found = find(name)
    value = str(found.path.resolve()) if "/" in name or name.endswith(".yaml") else found.name
    path = preferences.file()
    before = text_of(path, str(path), UserError) if path.exists() else ""
    line = f"cluster: {value}\n"
    text = _STATED.sub(line, before, count=1) if _STATED.search(before) else line + before
    if load(text).values.get("cluster") != value:
        raise ClusterError(
            f"{value!r} can't be written into {path}", f"write cluster: there yourself, or set {VARIABLE}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = path.with_name(f".{path.name}.part")
        staging.write_text(text, encoding="utf-8")
        if path.exists():
            staging.chmod(path.stat().st_mode & 0o777)
        staging.replace(path)
    except OSError as error:
        raise UserError(f"{path} can't be written ({error.strerror})", f"set {VARIABLE} instead") from None
    return path
