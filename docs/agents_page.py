"""What programs that act for people read: llms.txt, a list of the pages, and SKILL.md, the commands and their rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from trainjob.cli.main import COMMANDS, HEADINGS, load

_DOCS = Path(__file__).resolve().parent
_ABOUT = (
    "trainjob takes one training job from a laptop to an IPU-POD or a Slurm GPU cluster, and proves it before a "
    "cluster hour is spent."
)
# Code is no sentence about a page.
_CODE = re.compile(r"```.*?```", re.DOTALL)
# A cluster hour costs money, and nobody sees what is submitted but in the bytes.
_RULE = """\
1. `trainjob plan … --json`: does it fit, and is it what was asked for? A refusal names the nearest settings that work.
2. `trainjob rehearse …`: the same bytes run on this machine. Go on only after PASSED.
3. `trainjob render …`: show the person these bytes, and wait for a yes. You are held to them.
4. `trainjob submit …`, with the same words. Add no `--no-check` and no `--again` unasked, and cancel nothing that you
   did not submit. A budget (`cost` in the plan) is the person's: never raise it, and never go around it. Inside a
   job of the person's (`--in`, or without a word in `salloc`) end nothing but your own runs. `trainjob reserve` spends
   the budget by the hour: ask first, and cancel the reservation when you are done.
"""


def pages() -> str:
    """Return llms.txt: each page of the navigation, with its title and its first sentence."""
    # Its tags name Python objects, which only mkdocs has.
    navigation = yaml.safe_load((_DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    lines = ["# trainjob", "", f"> {_ABOUT}", "", "Every page is Markdown, at the path below beside its HTML twin.", ""]
    for section in navigation:
        for title, listed in section.items():
            lines += [f"## {title}", "", *(_line(path) for path in listed), ""]
    return "\n".join(lines)


def _line(path: str) -> str:
    if path.startswith("reference/"):
        return f"- [{path.removesuffix('.md')}]({path})"
    title, *paragraphs = _CODE.sub("", (_DOCS / path).read_text(encoding="utf-8")).split("\n\n")
    first = next((one for one in paragraphs if one[:1].isalpha() or one[:1] == "`"), "")
    sentence = " ".join(first.split()).partition(". ")[0].rstrip(".:")
    return f"- [{title.removeprefix('# ').strip()}]({path}){f': {sentence}' if sentence else ''}"


def skill() -> str:
    """Return SKILL.md: the rule, and every command with an example, from the table of commands."""
    head = ["---", "name: trainjob", f"description: {_ABOUT}", "---", "", "# trainjob", "", _ABOUT, ""]
    return "\n".join([*head, "## The rule", "", _RULE, *_commands(), *_answers()])


def _commands() -> Iterator[str]:
    yield "## Commands"
    for heading, listed in HEADINGS.items():
        yield from ("", f"### {heading}", "", "| command | what it does | example |", "|---|---|---|")
        for name, about in listed.items():
            examples = getattr(load(name), "examples", None) or [f"trainjob {name} --help"]
            yield f"| `{name}` | {about} | `{examples[0]}` |"
    assert set(COMMANDS) == {name for listed in HEADINGS.values() for name in listed}  # noqa: S101


def _answers() -> Iterator[str]:
    yield from ("", "## Answers", "")
    yield "`--json` prints one object with `json_version`; lists stand under `rows`. A problem has `code`, `severity`,"
    yield "`where`, `text` and `cure`. Exit codes: 0 done, 1 user or cluster can fix it, 2 wrong usage, 3 a bug,"
    yield "4 out of reach now, 130 interrupted. No telemetry: it contacts only the hosts that a cluster file names,"
    yield "and the webhook that the user has configured."
    yield ""
