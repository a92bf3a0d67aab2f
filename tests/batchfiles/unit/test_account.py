"""The account of an adopted file: each statement stands in it once, and what has no other place is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfiles.adoption.account import Where
from batchfiles.adoption.adopt import Adoption, adoption_of
from batchfiles.adoption.start import AdoptionError, main_launch
from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.bash.values import HOLE
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, script_of
from tests.batchfiles.unit.test_adoption import ONE_GPU, PER_RANK, SHAPES, Shape, adopted, prologue
from tests.batchfiles.unit.test_codes import CASES
from tests.support.cases import each
from trainjob.contract.programs.slurm_options import SHORT

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


def commands_of(launch: LaunchedProgram | None) -> Iterator[ShellCommand]:
    """Yield the command of a launch, and those of the shells around it."""
    while launch is not None:
        yield launch.command
        launch = launch.outer


GRAMMAR = {
    *("\\", ";", "&", "&&", "||", "|", ";;", "{", "}", "(", ")", "()", "!", "if", "then", "elif", "else", "fi", "do"),
    *("done", "in", "esac", "bash", "sh", "-c", "exec", "env", "srun", "time", "+e", "-o", "errexit"),
}


def unaccounted(script: BatchScript, adoption: Adoption) -> list[str]:
    """Return the words of the training's commands, and the pieces of other statements, of which nothing is said."""
    written = f"{adoption.job}\n{adoption.cluster}"
    for ends in ("\\\n", "'", '"', "\\"):  # as YAML and the shell may quote a word
        written = written.replace(ends, "")
    entries = adoption.account.entries
    told = " ".join(one.text for one in entries if one.span is None)
    found = []
    try:
        launch = main_launch(script)
    except AdoptionError:  # it has roles, which have tests of their own
        return []
    container = launch.layer("container")
    own = container.words[: len(container.words) - container.left] if container is not None else []
    for command in commands_of(launch):
        is_value = False  # of an option that is named
        for word in command.words:
            if any(word is one for one in own) or re.match("--(container-|image|environment)", word.text):
                continue
            texts = [
                word.text.replace(HOLE, "…"),
                word.source,
                word.text.partition(":")[0],
                word.text.partition("=")[0],
                word.value.written,
            ]
            texts += (
                [f"--{SHORT['srun'][word.text[1]]}"]
                if re.match(r"-[A-Za-z]\b", word.text) and word.text[1] in SHORT["srun"]
                else []
            )
            if is_value and not word.text.startswith("-"):
                is_value = False
                continue
            is_value = word.text.startswith("-") and "=" not in word.text and word.text in told
            is_there = any(re.sub(r"[\\'\"]", "", text) in written or text in told for text in texts)
            if not (is_there or word.text in GRAMMAR or re.search(r"\s", word.text)):
                found.append(f"line {command.line}: {word.text}")
    raw = bytearray(script.raw)
    for first, last in (one.span for one in entries if one.span is not None):
        raw[first:last] = re.sub(rb"[^\n]", b" ", raw[first:last])
    for at, line in enumerate(raw.decode(errors="replace").split("\n"), 1):
        named = " ".join(one.text for one in entries if one.line == at)
        functions = re.sub(r"\w+ ?\(\)|function \w+", "", re.sub(r"#.*|\d*>.*", "", line))
        pieces = re.sub(r"([;|&(){}]+)", r" \1 ", functions).split()
        found += [f"line {at}: {one}" for one in pieces if one not in GRAMMAR and one.rstrip(";") not in named]
    return found


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
        adoption = adoption_of(script, Path("/p"))
    except AdoptionError:
        return None
    return misses(script, adoption) + unaccounted(script, adoption)


@each("shape", SHAPES.values())
def test_each_statement_of_a_shape_stands_in_the_account_once(shape: Shape) -> None:
    assert accounted(shape.text, shape.arguments) == []


CODE_OF = {
    text: code
    for code, cases in CASES.items()
    for pair in cases
    for text in pair
    if isinstance(text, str) and "ray job" not in text
}


@each("code", sorted(set(CODE_OF.values())))
def test_each_word_of_files_with_faults_is_accounted_for(code: str) -> None:
    missing = {text: accounted(text) for text, of_code in CODE_OF.items() if of_code == code}
    assert {text: words for text, words in missing.items() if words} == {}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("srun --label --unbuffered python train.py", "srun --label --unbuffered"),
        ("srun --kill-on-bad-exit=0 python train.py", "srun --kill-on-bad-exit=0"),
        ("srun --no-such-option=3 python train.py", "srun --no-such-option=3"),
        ("srun somewrapper exec -x 3 python train.py", None),
        ("timeout -k 5 3600 srun python train.py", "timeout -k 5 3600"),
        ("torchrun --standalone --rdzv_conf timeout=9 train.py", "--rdzv_conf timeout=9"),
        ("torchrun --standalone --rdzv_conf timeout=9 train.py", "torchrun --standalone"),
        ("docker run --rm --gpus all img python train.py", "--gpus all"),
        ("{ srun python train.py; } > all.log 2>&1", "> all.log"),
        ("case $A in x) srun python train.py ;; esac", "case $A in x"),
        ("while ! srun python train.py; do sleep 9; done", "while !"),
        ("python train.py <<< yes", "<<< yes"),
        ("MASTER_PORT=29500 RANK=5 srun python train.py", "RANK=5"),
        ("srun env WORLD_SIZE=4 python train.py", "WORLD_SIZE=4"),
        ("TRAINJOB_SEED=4 python train.py", "TRAINJOB_SEED=…"),
    ],
)
def test_what_has_no_place_is_told(line: str, told: str | None, tmp_path: Path) -> None:
    assert accounted(f"{ONE_GPU}{line}\n") == []
    entries = adopted(f"{ONE_GPU}{line}\n", tmp_path).account.entries
    assert told is None or told in [one.text for one in entries]


def test_what_arrives_as_it_is_needs_no_line_of_its_own(tmp_path: Path) -> None:
    line = "srun -- python -u train.py --lr 1 < /dev/null > log"
    adoption = adopted(f"{ONE_GPU}{line}\n", tmp_path)
    assert [one.text for one in adoption.account.entries if one.line == 4] == ["> log", line]


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
