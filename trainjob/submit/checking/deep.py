"""What only running a little of it shows: the task imported by the job's interpreter, the data's checksums."""

from __future__ import annotations

import io
import json
import re
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path

import trainjob
from trainjob.cluster.models import interpreter
from trainjob.contract import manifest
from trainjob.contract.errors import UserError
from trainjob.render.request import Request
from trainjob.submit.checking.problem import Problem, of_error
from trainjob.submit.checking.there import data_name
from trainjob.submit.machine import Machine
from trainjob.submit.process import search_path
from trainjob.submit.project import Project, Selection

# Reading a whole data set, and importing torch from a busy file server, take their time.
_IMPORT_S, _READ_S = 300.0, 1800.0
_ROOMS = ("__init__.py", "contract", "data", "train")
_IMPORT = """
import json, sys
from pathlib import Path
from trainjob.contract.errors import UserError
from trainjob.train.tasks.loading import load
try:
    load(sys.argv[1], json.loads(sys.argv[2]), Path("project"))
except UserError as error:
    sys.exit(str(error))
"""
# In a folder of its own, which is gone afterwards. The one interpreter may be a path in the home over there.
_UNPACK = r"""
case $1 in "~/"*) python=$HOME/${1#??} ;; *) python=$1 ;; esac
shift
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" && tar -xf - || exit 1
mkdir -p project
PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 "$python" "$@" </dev/null
"""
_SUMS = r"""
case $1 in "~/"*) set -- "$HOME/${1#??}" ;; esac
cd -- "$1" && exec sha256sum -c --quiet -
"""
_SHOW = r"""
case $1 in "~/"*) set -- "$HOME/${1#??}" ;; esac
cat -- "$1/manifest.json"
"""


def problems(machine: Machine, request: Request, project: Project, selection: Selection | None) -> Iterator[Problem]:
    """Yield what keeps the task from being imported, and the data files that are not what was prepared."""
    if request.job.command or request.cluster.container.runtime != "none":
        return
    yield from _task(machine, request, project, selection)
    yield from _data(machine, request)


def _task(machine: Machine, request: Request, project: Project, selection: Selection | None) -> Iterator[Problem]:
    entry = request.job.task or ""
    if ":" not in entry or (request.cluster.prologue and not _python(request).startswith(("/", "~/"))):
        return
    words = [_python(request), "-c", _IMPORT, entry, json.dumps(dict(request.job.set))]
    environment = ["env", f"PATH={search_path()}"] if machine.name == "this machine" else []
    asked = [*environment, "sh", "-c", _UNPACK, "sh", *words]
    ended = machine.run(asked, stdin=_packed(project, selection), timeout_s=_IMPORT_S, check=False)
    if ended.code != 0:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.code}"]
        # It was unpacked in a folder that is gone: the user knows the project.
        why = re.sub(r"/\S*/project/(?=\S)", "", said[-1]).replace("project project", f"project {project.top}")
        text = f"task {entry} can't be imported by {_python(request)} on {machine.name}: {why}"
        yield Problem("task", text, "Put it right, and see that its files are part of the project (git add)")


def _python(request: Request) -> str:
    return interpreter(request.cluster) or "python3"


def _packed(project: Project, selection: Selection | None) -> bytes:
    """Return the runtime and the project's files, as a run would have them below code/."""
    stream, package = io.BytesIO(), Path(trainjob.__file__).parent
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for room in _ROOMS:
            archive.add(package / room, arcname=f"trainjob/{room}", filter=_source)
        for name in selection.files if selection else ():
            archive.add(project.top / name, arcname=f"project/{name}", recursive=False)
    return stream.getvalue()


def _source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name or member.name.endswith(".bin") else member


def _data(machine: Machine, request: Request) -> Iterator[Problem]:
    name = data_name(request)
    if name is None or request.cluster.data_dir is None:
        return
    folder = f"{request.cluster.data_dir}/{name}"
    shown = machine.run(["sh", "-c", _SHOW, "sh", folder], check=False)
    if shown.code != 0:
        return  # that it is not there is another check's to say
    try:
        found = manifest.parse(shown.text, f"{folder}/{manifest.FILE_NAME}")
    except UserError as error:
        yield of_error("data", error)
        return
    files = [facts for split in found.splits.values() for facts in split.files.values()]
    sums = "".join(dict.fromkeys(f"{facts.sha256}  {facts.file}\n" for facts in files))
    ended = machine.run(["sh", "-c", _SUMS, "sh", folder], stdin=sums.encode(), timeout_s=_READ_S, check=False)
    for line in ended.text.splitlines():
        if line.endswith(("FAILED", "FAILED open or read")):
            text = f"data set {name} on {machine.name}: {line.partition(':')[0]} is not the file that was prepared"
            yield Problem(
                "data", text, f"Remove {shlex.quote(folder)} and prepare it again: trainjob data prepare {name}"
            )
