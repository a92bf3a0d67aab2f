"""What a project states, and the cluster of a command that names none, by one order of precedence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainjob.cluster import preferences
from trainjob.cluster.common import Budget, Line
from trainjob.cluster.document import load
from trainjob.cluster.faults import ClusterError, InvalidError, dotted, validated
from trainjob.cluster.reading import cluster_of_job, read_preferences, read_strictly, text_of
from trainjob.cluster.strict import Strict, key
from trainjob.contract.errors import Problem, UserError
from trainjob.kinds.lookup import find
from trainjob.records.files import only_owner_writes
from trainjob.records.own import put_by_another

VARIABLE = "TRAINJOB_CLUSTER"
# In every folder from the working folder up to the top of the repository.
PROJECT_FILES = ("trainjob.yaml", "pyproject.toml")
DEFAULT, BY_DEFAULT = "local", "default"
_STATED = re.compile(r"(?m)^cluster:.*\n?")


class ProjectSettings(Strict):
    """The settings of a project: trainjob.yaml, or [tool.trainjob] in pyproject.toml."""

    cluster: Line | None = key(None, "The cluster of commands that name none.")
    budget: Budget | None = key(None, "What runs of this project may cost together; `submit` refuses more.")


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
    for path, of_project in project_settings(folder):
        if of_project.cluster is not None:
            yield ClusterChoice(of_project.cluster, os.path.relpath(path, folder))
    if (of_user := read_preferences().cluster) is not None:
        yield ClusterChoice(of_user, f"{preferences.file()} (trainjob cluster use)")


def project_settings(folder: Path) -> Iterator[tuple[Path, ProjectSettings]]:
    """Yield what the project of `folder` states, the nearest file first. Raises UserError.

    What another user has put into /tmp, say, is no project's: it names a cluster file, which holds shell.
    """
    for place in (folder, *folder.parents):
        for path in (place / name for name in PROJECT_FILES):
            if not path.is_file() or put_by_another(path):
                continue
            if (stated := _of_project(path)) is not None:
                yield path, stated
        if (place / ".git").exists():
            break


def _of_project(path: Path) -> ProjectSettings | None:
    if path.suffix == ".yaml":
        return read_strictly(path, ProjectSettings)
    text = text_of(path, str(path), UserError)
    if "[tool.trainjob]" not in text and "[tool.trainjob." not in text:
        return None
    import tomllib

    try:
        stated = tomllib.loads(text)["tool"]["trainjob"]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path}: can't be read: {error}", "correct it") from None
    try:  # other tables, as doctor's, are not ours to judge
        return validated(ProjectSettings, {name: stated[name] for name in ("cluster", "budget") if name in stated})
    except InvalidError as refused:
        places = [(f"{path}: tool.trainjob.{dotted(one.path)}", one) for one in refused.faults]
        raise UserError.of_all(
            [Problem(UserError.code, f"{where}: {one.text}", one.cure) for where, one in places]
        ) from None


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
    text = _STATED.sub(lambda _: line, before, count=1) if _STATED.search(before) else line + before
    written = load(text)
    if written.problems or written.values != {**load(before).values, "cluster": value}:
        raise ClusterError(
            f"{value!r} can't be written into {path}", f"write cluster: there yourself, or set {VARIABLE}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = path.resolve()  # a link to a file that is kept elsewhere stays one
        staging = kept.with_name(f".{path.name}.part")
        staging.write_text(text, encoding="utf-8")
        if kept.exists():
            staging.chmod(kept.stat().st_mode & 0o777)
        staging.replace(kept)
    except OSError as error:
        raise UserError(f"{path} can't be written ({error.strerror})", f"set {VARIABLE} instead") from None
    return path
