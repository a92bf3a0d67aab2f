"""The one Jinja environment: strict, and quoting whatever a template prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, PrefixLoader, StrictUndefined, Undefined, nodes, pass_eval_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.loaders import BaseLoader, ChoiceLoader
from jinja2.nodes import EvalContext
from markupsafe import Markup

from trainjob.contract.errors import UserError
from trainjob.render import quoting
from trainjob.render.quoting import Shell
from trainjob.render.sourced import marked, origin_of

# With these a template would print a value unquoted, or quoted for HTML.
_NOT_FOR_SHELL = ("safe", "forceescape", "escape", "e", "tojson", "xmlattr", "urlize", "striptags")

_Printed = Callable[[object], object]


class TemplateError(UserError):
    """A template (most likely a site's own) can't be rendered."""


def make(ours: Path, site: Sequence[Path] = (), *, explain: bool = False) -> Environment:
    """Return the environment over our templates and the site's folders, whose files come first.

    A site's `jobs/local.sh.j2` extends ours by its full name, `trainjob/jobs/local.sh.j2`, and blocks.
    Every value is quoted when printed unless it is finished shell: autoescaping makes Jinja treat blocks
    and macros as finished, and `finalize` quotes the rest before Jinja would escape it for HTML.
    """
    printed = _explained if explain else _quoted
    environment = _ShellEnvironment(
        loader=_loader(ours, site),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_when_printed(printed),
        keep_trailing_newline=True,
    )
    for name in _NOT_FOR_SHELL:
        environment.filters.pop(name, None)
    environment.filters["join"] = partial(_joined, printed)
    environment.side_by_side = partial(_side_by_side, printed)
    return environment


def _when_printed(printed: _Printed) -> Callable[[EvalContext, object], object]:
    # Without a context to pass, Jinja would print constants when it compiles, quoted for HTML.
    @pass_eval_context
    def finalize(_context: EvalContext, value: object) -> object:
        return printed(value)

    return finalize


def _loader(ours: Path, site: Sequence[Path]) -> BaseLoader:
    layers = [FileSystemLoader(folder) for folder in (*site, ours)]
    return ChoiceLoader([PrefixLoader({"trainjob": FileSystemLoader(ours)}), *layers])


class _Generator(CodeGenerator):
    """Compiles `~` to a join of quoted pieces, where Jinja's own would quote them for HTML."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        self.write("environment.side_by_side((")
        for piece in node.nodes:
            self.visit(piece, frame)
            self.write(", ")
        self.write("))")


class _ShellEnvironment(Environment):
    code_generator_class = _Generator
    side_by_side: Callable[[Sequence[object]], str]


def _side_by_side(printed: _Printed, pieces: Sequence[object]) -> str:
    """Return plain text of plain pieces; where one is finished shell, one finished word of them all."""
    if any(_is_finished(piece) for piece in pieces):
        return _joined(printed, pieces)
    return "".join(str(piece) for piece in pieces)


def _joined(printed: _Printed, values: Iterable[object], separator: object = "") -> Shell:
    """Return finished shell: every value a quoted word; a separator other than white space is quoted, too."""
    between = str(separator)
    if between.strip():
        between = str(printed(separator))
    return Shell(between.join(str(printed(value)) for value in values))


def _is_finished(value: object) -> bool:
    return isinstance(value, Shell | Markup)


def _quoted(value: object) -> object:
    if _is_finished(value) or isinstance(value, Undefined):
        return value
    if value is None:
        raise TemplateError("a template prints a value that is not set: test it with {% if … is not none %} first")
    return quoting.word(value)


def _explained(value: object) -> object:
    origin = origin_of(value)
    printed = _quoted(value)
    return printed if origin is None else Shell(marked(str(printed), origin))
