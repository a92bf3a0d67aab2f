"""The account of an adopted file: each statement stands in it once, and what has no other place is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfiles.adoption.account import Where
from batchfiles.adoption.adopt import Adoption, adoption_of
from batchfiles.adoption.start import AdoptionError
from batchfiles.bash.expansion import text_of
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, script_of
from tests.batchfiles.unit.test_adoption import ONE_GPU, PER_RANK, SHAPES, Shape, adopted, prologue

if TYPE_CHECKING:
    from tree_sitter import Node

SIMPLE = ("command", "declaration_command", "unset_command", "test_command", "variable_assignment")
STATEMENTS = (
    "module load cuda",
    "export A=1",
    "B=$(hostname)",
    "mkdir -p out && touch out/x",
    'echo "begin $B"',
    "set -e",
    "trap 'cp -r out /archive' EXIT",
    "cd sub",
    "nvidia-smi &",
    '[ -n "$HOME" ] || exit 1',
    "if [ -d out ]; then rm -r out; else mkdir out; fi",
    "for one in a b; do cp $one /tmp; done",
    "cat > x.json <<EOT\n{}\nEOT",
    "setup() {\n  module load nccl\n  export C=2\n}",
    "setup",
    "case $A in 1) export D=1 ;; *) export D=2 ;; esac",
    "(cd /tmp; make)",
    "python prepare.py; python -m mine.prepare",
    ': "${MODE:=offline}"',
    "sbatch next.sbatch",
    "while read -r line; do echo $line; done < list",
    "export -f setup 2>/dev/null",
    "unset A 2>/dev/null",
)
TRAINING = (
    "{before}python train.py{after}",
    "{before}srun bash -c 'export RANK=$SLURM_PROCID; python train.py'{after}",
    "main() {{\n{before}python train.py\n}}{after}main",
    "if [ -d /data ]; then\n{before}python train.py\nelse\necho no\nfi{after}",
    "{before}cd x && echo go && python train.py && echo done{after}",
    "{{\n{before}python train.py\n}} 2>&1 | tee log{after}",
    "{before}if srun python train.py; then echo well; else exit 3; fi{after}",
)


def simple_statements(root: Node) -> Iterator[Node]:
    """Yield each command and assignment that no other one contains, but for those of functions."""
    for child in root.named_children:
        if child.type in SIMPLE:
            yield child
        elif child.type not in ("function_definition", "comment", "heredoc_redirect", "command_substitution"):
            yield from simple_statements(child)


def misses(script: BatchScript, adoption: Adoption) -> list[str]:
    """Return the statements that do not stand in the account exactly once."""
    spans = [one.span for one in adoption.account.entries if one.span is not None]
    found = []
    for node in simple_statements(script.root):
        if node.parent is not None and node.parent.type in ("for_statement", "c_style_for_statement", "case_statement"):
            continue  # the head of a loop
        count = sum(first <= node.start_byte and node.end_byte <= last for first, last in spans)
        if count != 1:
            found.append(f"{text_of(node)!r} {count} times")
    return found


def accounted(text: str, arguments: tuple[str, ...] = ()) -> list[str] | None:
    script = script_of(Path("/p/train.sbatch"), text.encode(), SiteFacts(), arguments)
    try:
        return misses(script, adoption_of(script, Path("/p")))
    except AdoptionError:
        return None


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_each_statement_of_a_shape_stands_in_the_account_once(shape: Shape) -> None:
    assert accounted(shape.text, shape.arguments) == []


@given(
    st.lists(st.sampled_from(STATEMENTS), max_size=6),
    st.sampled_from(TRAINING),
    st.lists(st.sampled_from(STATEMENTS), max_size=3),
)
def test_each_statement_of_any_file_stands_in_the_account_once(before: list[str], form: str, after: list[str]) -> None:
    text = form.format(before="".join(f"{one}\n" for one in before), after="".join(f"\n{one}" for one in after) + "\n")
    assert accounted(PER_RANK + text + "\n") in ([], None)


@pytest.mark.parametrize(
    "statement",
    [
        "make -C src",
        "python -m mine.prepare",
        "./prepare --all",
        "sed -i s/a/b/ config.json",
        ': "${MODE:=offline}"',
        "[ -d /data ] || exit 3",
        'if [ ! -d /data ]; then echo "see sbatch train.sbatch"; exit 1; fi',
        "export LATER=$(date +%s)",
        "set -a",
        "(cd lib && make)",
        "if [ -d /data ]; then export HERE=1; fi",
        "[ -d /data ] && export HERE=1",
        "curl -O https://example.org/data.tar",
    ],
)
def test_what_no_rule_knows_is_kept(statement: str, tmp_path: Path) -> None:
    adoption = adopted(f"{ONE_GPU}{statement}\npython train.py\n", tmp_path)
    assert [text for text in prologue(adoption) if not text.startswith("cd ")] == [statement]
    assert [one.where for one in adoption.account.entries if one.line == 4 and one.span] == [Where.CLUSTER]
