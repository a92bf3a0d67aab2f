"""Rules for batch files: each looks at one script and yields what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from batchfiles.rules import around, asked, ending, meeting, refused, started, worlds, written
from batchfiles.rules.codes import Finding
from batchfiles.slurm.script import BatchScript

Rule = Callable[[BatchScript], Iterator[Finding]]
_MODULES = (refused, asked, meeting, worlds, started, ending, written, around)


def _is_rule(name: str, member: object) -> bool:
    """Return whether a member of a module is a rule: a public function that makes findings of a script alone."""
    annotations = getattr(member, "__annotations__", None)
    return not name.startswith("_") and annotations == {"script": "BatchScript", "return": "Iterator[Finding]"}


# In the order in which they stand in their modules.
RULES: tuple[Rule, ...] = tuple(
    dict.fromkeys(member for module in _MODULES for name, member in vars(module).items() if _is_rule(name, member))
)
