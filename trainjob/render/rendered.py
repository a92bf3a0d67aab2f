"""Plan → Rendered: the bytes of a run's files, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jinja2 import TemplateNotFound, TemplateSyntaxError, UndefinedError

from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, ROLES
from trainjob.render import environment
from trainjob.render.environment import TemplateError, refuse_unknown_blocks
from trainjob.render.record import job_record
from trainjob.render.request import Request


class Page(Protocol):
    """A kind's template and the values for it. Modules fit this Protocol."""

    TEMPLATE: str
    SCRIPT: str  # the name of the rendered file

    def context(self, request: Request) -> dict[str, Any]:
        """Return the names that the template may use. Raises UserError for what the kind does not support."""


class File(NamedTuple):
    """One rendered file."""

    content: bytes
    mode: int


class Rendered(NamedTuple):
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


def render(request: Request, page: Page, ours: Path, site: Sequence[Path] = ()) -> Rendered:
    """Return the job script and job.json of `request`.

    Raises TemplateError if a template is faulty, and QuotingError if a script can't hold a value.
    """
    text = script(request, page, ours, site)
    elements = {f"{ELEMENTS}/{number}/job.json": element for number, element in request.elements.items()}
    servers = {f"{ROLES}/{name}/job.json": server for name, server in request.servers.items()}
    records = {"job.json": request, **elements, **servers}
    return Rendered(
        files={
            page.SCRIPT: File(text.encode(), 0o755),
            **{name: File(job_record(each).to_json().encode(), 0o644) for name, each in records.items()},
        },
        script=page.SCRIPT,
    )


def script(request: Request, page: Page, ours: Path, site: Sequence[Path], *, explain: bool = False) -> str:
    """Return the job script; with `explain` it has the notes that `sourced.beside` splits off."""
    values, template = page.context(request), page.TEMPLATE
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
