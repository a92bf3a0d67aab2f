"""Plan → Rendered: the bytes of a run's files, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from jinja2 import TemplateNotFound, TemplateSyntaxError, UndefinedError

from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS
from trainjob.render import environment
from trainjob.render.context import context
from trainjob.render.environment import TemplateError, refuse_unknown_blocks
from trainjob.render.record import job_record
from trainjob.render.request import Request

# kind of cluster -> template, and the name of the script that it renders
JOBS = {
    "local": ("jobs/local.sh.j2", "job.sh"),
    "slurm": ("jobs/sbatch.sh.j2", "job.sbatch"),
    "hosts": ("jobs/hosts.sh.j2", "job.sh"),
    "ipu-pod": ("jobs/poprun.sh.j2", "job.sh"),
}


@dataclass(frozen=True)
class File:
    """One rendered file."""

    content: bytes
    mode: int


@dataclass(frozen=True)
class Rendered:
    """Relative path → bytes and mode. A request gives the same value on every machine."""

    files: Mapping[str, File]
    script: str  # the job script's key in `files`

    @property
    def digest(self) -> str:
        """The sha256 of all names, modes and bytes."""
        total = sha256()
        for name, file in sorted(self.files.items()):
            total.update(f"{name}\0{file.mode:o}\0{len(file.content)}\0".encode() + file.content)
        return total.hexdigest()


def render(request: Request, ours: Path, site: Sequence[Path] = ()) -> Rendered:
    """Return the job script and job.json of `request`.

    Raises TemplateError if a template is faulty, and QuotingError if a script can't hold a value.
    """
    template, name = JOBS[request.cluster.kind]
    script = _script(request, template, ours, site)
    return Rendered(
        files={
            name: File(script.encode(), 0o755),
            "job.json": _record(request),
            **{f"{ELEMENTS}/{number}/job.json": _record(element) for number, element in request.elements.items()},
        },
        script=name,
    )


def _record(request: Request) -> File:
    return File(job_record(request).to_json().encode(), 0o644)


def explained(request: Request, ours: Path, site: Sequence[Path] = ()) -> str:
    """Return the job script with the notes that `sourced.beside` splits off."""
    return _script(request, JOBS[request.cluster.kind][0], ours, site, explain=True)


def _script(request: Request, template: str, ours: Path, site: Sequence[Path], *, explain: bool = False) -> str:
    values = context(request)
    try:
        made = environment.make(ours, site, explain=explain)
        if site:
            refuse_unknown_blocks(made, template)
        return made.get_template(template).render(values)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - a template can raise anything, and is at fault then
        raise TemplateError(_fault(error, template)) from None


def _fault(error: Exception, template: str) -> str:
    if isinstance(error, UndefinedError):
        return f"template {template}: {error.message}: see the context's names in CONTRIBUTING.md"
    if isinstance(error, TemplateSyntaxError):
        return f"template {error.name}, line {error.lineno}: {error.message}"
    if isinstance(error, TemplateNotFound):
        return f"template {error.name} does not exist; {template} or a template it extends names it"
    if isinstance(error, RecursionError):
        return f"template {template} extends or includes itself: to extend ours, name trainjob/{template}"
    return f"template {template}: {type(error).__name__}: {error}"
