"""What no decision has claimed: words of the training's commands, and pieces of the statements around it.

The account is complete because what nobody claims is told here, and not because no decision forgets anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from batchfiles.adoption.account import Account, Where
from batchfiles.adoption.start import is_once_per_node
from batchfiles.bash.expansion import text_of
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript

if TYPE_CHECKING:
    from tree_sitter import Node

# Without these a program does the same.
_QUIET = ("time", "nohup", "exec", "env", "command", "stdbuf", "unbuffer", "catchsegv")
# Words of bash's grammar that say nothing by themselves: what they hold has decisions of its own.
_GRAMMAR = (
    *(";", "&", "&&", "||", "|", "|&", ";;", "{", "}", "(", ")"),
    *("if", "then", "elif", "else", "fi", "do", "done", "in", "esac", "function"),
)
_WHOLE = ("string", "raw_string", "ansi_c_string", "heredoc_body", "file_redirect", "herestring_redirect")
IN_LOGS = "trainjob logs prints what each rank wrote"
NO_INPUT = "ranks read no file as their input"


def note_rest(script: BatchScript, launch: LaunchedProgram, account: Account) -> None:
    """Say what is left of the training's commands, and of what stands around them."""
    _note_pieces(script, launch, account)
    step: LaunchedProgram | None = launch
    while step is not None:
        quiet = [layer for layer in step.layers if layer.name in _QUIET]
        account.settle(word for layer in quiet for word in layer.words[: len(layer.words) - layer.left])
        said = ("--", *step.settings)
        account.settle(word for word in step.command.words if word.text.partition("=")[0] in said)
        for is_settled, words in groupby(step.command.words, account.is_settled):
            if not is_settled and not step.source:
                text = " ".join(word.text for word in words)
                account.note(Where.LOST, step.line, text, "ranks are started without it")
        step = step.outer


def _note_pieces(script: BatchScript, launch: LaunchedProgram, account: Account) -> None:
    raw = script.raw
    covered = bytearray(len(raw))
    for first, last in (one.span for one in account.entries if one.span is not None):
        covered[first:last] = b"\1" * (last - first)
    pieces = [node for node in _pieces(script.root) if not all(covered[node.start_byte : node.end_byte])]
    for line, nodes in groupby(pieces, lambda node: node.start_point.row + 1):
        listed = list(nodes)
        if listed[0].type.endswith("_redirect"):
            for one in listed:
                note_redirect(one, line, account)
            continue
        text = raw[listed[0].start_byte : listed[-1].end_byte].decode(errors="replace")
        if is_once_per_node(launch):
            account.note(Where.TRAINJOB, line, text, "a launcher starts on each node")
        else:
            account.note(Where.LOST, line, text, "a job starts its training once, in any case, and ends with its code")


def note_redirect(node: Node, line: int, account: Account) -> None:
    """Say what becomes of a redirection of the training."""
    text = text_of(node)
    if re.search(r"&\d$|/dev/null", text):
        return
    if re.match(r"\d*<", text):
        account.note(Where.LOST, line, text, NO_INPUT)
    else:
        account.note(Where.TRAINJOB, line, text, IN_LOGS)


def _pieces(node: Node) -> Iterator[Node]:
    """Yield the smallest pieces that say something; of a function, those of its body."""
    if node.type in _WHOLE or not node.children:
        holders = [one.type for one in (node.parent, node.parent and node.parent.parent) if one is not None]
        is_grammar = holders[:1] == ["function_definition"] or (node.type == "!" and "if_statement" in holders)
        if not is_grammar and node.type != "comment" and text_of(node).strip(" \\\n") not in ("", *_GRAMMAR):
            yield node
        return
    for child in node.children:
        yield from _pieces(child)
