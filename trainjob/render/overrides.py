"""A site's template that fills a block which the one it extends does not have: Jinja drops it without a word."""

from __future__ import annotations

from difflib import get_close_matches

from jinja2 import Environment, nodes

from trainjob.render.environment import TemplateError


def refuse_unknown_blocks(environment: Environment, name: str) -> None:
    """Raise TemplateError when template `name`, or one it extends, fills a block that isn't there to be filled."""
    seen = {name}
    parsed = _parsed(environment, name)
    while (base := _extended(parsed)) is not None and base not in seen:
        seen.add(base)
        parsed_base = _parsed(environment, base)
        _refuse(name, _top_blocks(parsed), base, _all_blocks(environment, parsed_base))
        name, parsed = base, parsed_base


def _parsed(environment: Environment, name: str) -> nodes.Template:
    loader = environment.loader
    assert loader is not None  # noqa: S101 - ours always has one
    source, _, _ = loader.get_source(environment, name)
    return environment.parse(source, name)


def _extended(template: nodes.Template) -> str | None:
    found = template.find(nodes.Extends)
    # A name worked out when it is rendered can't be followed from here.
    return found.template.value if found and isinstance(found.template, nodes.Const) else None


def _top_blocks(template: nodes.Template) -> list[str]:
    """Return the blocks that fill one of the base; those inside them are the template's own."""
    return [node.name for node in template.body if isinstance(node, nodes.Block)]


def _all_blocks(environment: Environment, template: nodes.Template) -> set[str]:
    own = {block.name for block in template.find_all(nodes.Block)}
    base = _extended(template)
    return own | _all_blocks(environment, _parsed(environment, base)) if base is not None else own


def _refuse(name: str, filled: list[str], base: str, known: set[str]) -> None:
    for block in filled:
        if block not in known:
            near = get_close_matches(block, sorted(known), n=1)
            meant = f"did you mean {near[0]}? It" if near else "it"
            raise TemplateError(
                f"template {name} fills block {block}, which {base} does not have: "
                f"{meant} has {', '.join(sorted(known))}"
            )
