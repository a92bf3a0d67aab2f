"""The only Jinja environment: it is strict and quotes everything that a template prints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from jinja2 import (
    Environment,
    FileSystemBytecodeCache,
    FileSystemLoader,
    PrefixLoader,
    StrictUndefined,
    Undefined,
    nodes,
    pass_eval_context,
)
from jinja2.compiler import CodeGenerator, Frame
from jinja2.loaders import ChoiceLoader
from jinja2.nodes import EvalContext
from markupsafe import Markup

import trainjob
from trainjob.contract import quoting
from trainjob.contract.errors import UserError, nearest
from trainjob.contract.quoting import Shell
from trainjob.render import reasons
from trainjob.render.sourced import marked, origin_of, reason

if TYPE_CHECKING:
    from jinja2.bccache import Bucket

# With these filters a template would print a value unquoted, or quoted for HTML.
_NOT_FOR_SHELL = ("safe", "forceescape", "escape", "e", "tojson", "xmlattr", "urlize", "striptags")

_FINISHED = (Shell, Markup)
_Printed = Callable[[object], object]


class TemplateError(UserError):
    """A template, most likely a site's own, can't be rendered."""

    code = "template"


class _CompiledTemplates(FileSystemBytecodeCache):
    """Keeps compiled templates in the user's cache folder: parsing a template takes longer than rendering it.

    Jinja's cache compares the template's text. Our release is in the path because it changes the compiled code.
    """

    def __init__(self) -> None:
        super().__init__(str(platformdirs.user_cache_path("trainjob") / "templates" / trainjob.__version__))

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            platformdirs.user_cache_path("trainjob").mkdir(mode=0o700, parents=True, exist_ok=True)
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


def make(ours: Path, site: Sequence[Path] = (), *, explain: bool = False) -> Environment:
    """Return the environment over our templates and the site's folders, whose files come first.

    A site's `jobs/local.sh.j2` extends ours by its full name, `trainjob/jobs/local.sh.j2`, and fills blocks of it.
    Every value is quoted when printed unless it is finished shell: autoescaping makes Jinja treat blocks
    and macros as finished, and `finalize` quotes the rest before Jinja would escape it for HTML.
    """
    printed = _explained if explain else _quoted
    layers = [FileSystemLoader(folder) for folder in (*site, ours)]

    # Jinja prints constants when it compiles, quoted for HTML, unless `finalize` takes a context.
    @pass_eval_context
    def finalize(_context: EvalContext, value: object) -> object:
        return printed(value)

    environment = _ShellEnvironment(
        loader=ChoiceLoader([PrefixLoader({"trainjob": FileSystemLoader(ours)}), *layers]),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=finalize,
        keep_trailing_newline=True,
        bytecode_cache=_CompiledTemplates(),
    )
    for name in _NOT_FOR_SHELL:
        environment.filters.pop(name, None)
    environment.filters["join"] = partial(_joined, printed)
    environment.side_by_side = partial(_side_by_side, printed)
    environment.globals.update({"_" * level: Shell("  " * level) for level in (1, 2, 3)})
    environment.globals["why"] = reason if explain else _nothing
    environment.globals["why_option"] = (lambda words: reason(reasons.of_option(str(words)))) if explain else _nothing
    return environment


def _nothing(*_arguments: object) -> Shell:
    return Shell("")


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
    """Return the pieces as plain text; if one of them is finished shell, return all as one finished word."""
    if any(isinstance(piece, _FINISHED) for piece in pieces):
        return _joined(printed, pieces)
    return "".join(str(piece) for piece in pieces)


def _joined(printed: _Printed, values: Iterable[object], separator: object = "") -> Shell:
    """Return finished shell: each value is quoted, and so is a separator that is not white space."""
    between = str(separator)
    if between.strip():
        between = str(printed(separator))
    return Shell(between.join(str(printed(value)) for value in values))


def _quoted(value: object) -> object:
    if isinstance(value, (*_FINISHED, Undefined)):
        return value
    if value is None:
        raise TemplateError("a template prints a value that is not set", "test it with {% if … is not none %} first")
    return quoting.word(value)


def _explained(value: object) -> object:
    origin = origin_of(value)
    printed = _quoted(value)
    return printed if origin is None else Shell(marked(str(printed), origin))


def refuse_unknown_blocks(environment: Environment, name: str) -> None:
    """Raise TemplateError if template `name`, or one it extends, fills a block that its base does not have.

    Jinja drops this block silently.
    """
    seen = {name}
    parsed = _parsed(environment, name)
    while (base := _extended(parsed)) is not None and base not in seen:
        seen.add(base)
        parsed_base = _parsed(environment, base)
        blocks = sorted(_all_blocks(environment, parsed_base))
        # Only top-level blocks fill blocks of the base. Nested blocks belong to the template itself.
        filled = [block.name for block in parsed.body if isinstance(block, nodes.Block)]
        unknown = next((block for block in filled if block not in blocks), None)
        if unknown is not None:
            close = nearest(unknown, blocks)
            meant = f"did you mean {close}? It" if close else "it"
            raise TemplateError(
                f"template {name} fills block {unknown}, which {base} does not have", f"{meant} has {', '.join(blocks)}"
            )
        name, parsed = base, parsed_base


def _parsed(environment: Environment, name: str) -> nodes.Template:
    loader = environment.loader
    assert loader is not None  # noqa: S101 - ours always has one
    source, _, _ = loader.get_source(environment, name)
    return environment.parse(source, name)


def _extended(template: nodes.Template) -> str | None:
    base = template.find(nodes.Extends)
    # A name that is computed during rendering can't be followed.
    return base.template.value if base and isinstance(base.template, nodes.Const) else None


def _all_blocks(environment: Environment, template: nodes.Template) -> set[str]:
    own = {block.name for block in template.find_all(nodes.Block)}
    base = _extended(template)
    return own | _all_blocks(environment, _parsed(environment, base)) if base is not None else own
