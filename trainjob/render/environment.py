"""The one Jinja environment: strict, and quoting whatever a template prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, PrefixLoader, StrictUndefined, Undefined, UndefinedError
from jinja2.loaders import BaseLoader, ChoiceLoader
from markupsafe import Markup

from trainjob.contract.errors import UserError
from trainjob.render import quoting
from trainjob.render.quoting import Shell
from trainjob.render.sourced import CLOSE, OPEN, origin_of


class TemplateError(UserError):
    """A template (most likely a site's own) can't be rendered."""


def make(ours: Path, site: Sequence[Path] = (), *, explain: bool = False) -> Environment:
    """Return the environment over our templates and the site's folders, whose files come first.

    A site's `jobs/local.sh.j2` extends ours by its full name, `trainjob/jobs/local.sh.j2`, and blocks.
    Every value is quoted when printed unless it is finished shell: autoescaping makes Jinja treat blocks
    and macros as finished, and `finalize` quotes the rest before Jinja would escape it for HTML.
    """
    environment = Environment(
        loader=_loader(ours, site),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_explained if explain else _quoted,
        keep_trailing_newline=True,
        trim_blocks=False,
    )
    # `safe` and its like would let a template print a value unquoted.
    for name in ("safe", "forceescape", "escape", "e", "tojson", "xmlattr", "urlize", "striptags"):
        environment.filters.pop(name, None)
    return environment


def _loader(ours: Path, site: Sequence[Path]) -> BaseLoader:
    layers = [FileSystemLoader(folder) for folder in (*site, ours)]
    return ChoiceLoader([PrefixLoader({"trainjob": FileSystemLoader(ours)}), *layers])


def _quoted(value: object) -> object:
    if isinstance(value, Shell | Markup | Undefined):
        return value
    if value is None:
        raise TemplateError("a template prints a value that is not set: test it with {% if … is not none %} first")
    return quoting.word(value)


def _explained(value: object) -> object:
    origin = origin_of(value)
    printed = _quoted(value)
    return printed if origin is None else Markup(f"{printed}{OPEN}{origin}{CLOSE}")  # noqa: S704 - already quoted


def undefined_name(error: UndefinedError, template: str) -> TemplateError:
    """Return the error for a template that names something the context does not have."""
    return TemplateError(f"template {template}: {error.message}: see the context's names in CONTRIBUTING.md")
