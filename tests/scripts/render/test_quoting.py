"""What a user typed is one word of bash that is exactly that text; what a place can't carry is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.render_cases import HOSTILE, TEXT, cluster, request, script
from trainjob.contract.quoting import QuotingError, Shell, directive, one_line, path, word

SIGNS = st.text(st.sampled_from(list("$`'\"\\(){}[]<>|&;#!*?~=-+ \n\t/.,:%@^ab1é‘’“”")), max_size=60)


def expanded(words: list[Shell], **environment: str) -> list[str]:
    """Return what bash makes of the words: one process for all of them."""
    text = "printf '%s\\0' " + " ".join(words)
    ended = subprocess.run(["bash"], input=text.encode(), env=environment, capture_output=True, check=True)
    assert ended.stderr == b""
    return ended.stdout.decode().split("\0")[:-1]


def test_hostile_words_are_themselves() -> None:
    assert expanded([word(text) for text in HOSTILE]) == HOSTILE


@examples(25)
@given(st.lists(TEXT | SIGNS, min_size=20, max_size=60))
def test_any_words_are_themselves(texts: list[str]) -> None:
    assert expanded([word(text) for text in texts]) == texts


@examples(10)
@given(st.lists(TEXT, min_size=1, max_size=20))
def test_words_side_by_side_are_one_word(texts: list[str]) -> None:
    assert expanded([Shell("".join(word(text) for text in texts))]) == ["".join(texts)]


def test_finished_shell_is_not_quoted_twice() -> None:
    assert word(word("a b")) == "'a b'"


def test_finished_shell_joined_to_text_is_text_again() -> None:
    assert word(Shell("$(date)") + "; date") == "'$(date); date'"


@pytest.mark.parametrize(("value", "quoted"), [(7, "7"), ("7", "7"), ("", "''"), ("==1", "'==1'"), (True, "True")])
def test_plain_words_stay_readable(value: object, quoted: str) -> None:
    assert word(value) == quoted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\0b", "holds a NUL character, which no argument can carry: take it out"),
        ("a\udcff", "is not valid Unicode text: write it in UTF-8"),
        ("x" * 130_049, "has 130049 bytes and one argument or value may have 130048: pass a file instead"),
    ],
)
def test_what_no_argument_carries_is_refused(text: str, message: str) -> None:
    with pytest.raises(QuotingError, match=message):
        word(text)


def test_the_longest_word_that_is_taken_is_one_that_linux_takes() -> None:
    longest = "x" * 130_048
    text = f"/usr/bin/env A={word(longest)} /usr/bin/printf %s {word(longest)}"
    ended = subprocess.run(["bash"], input=text.encode(), capture_output=True, check=True)
    assert ended.stdout.decode() == longest


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("~", "/home/me"),
        ("~/", "/home/me/"),
        ("~/data", "/home/me/data"),
        ("~/a b; $(date)", "/home/me/a b; $(date)"),
        ("/x/~/y", "/x/~/y"),
        ("~you/x", "~you/x"),
    ],
)
def test_a_leading_tilde_is_the_home_of_who_runs_it(text: str, meant: str) -> None:
    assert expanded([path(text)], HOME="/home/me") == [meant]


@given(TEXT)
def test_a_comment_is_one_line(text: str) -> None:
    assert one_line(text).splitlines() in ([], [one_line(text)])


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("gpu", "#SBATCH --partition=gpu"),
        ("04:00:00", "#SBATCH --partition=04:00:00"),
        (4, "#SBATCH --partition=4"),
        ("two words", '#SBATCH --partition="two words"'),
        ("a#b", '#SBATCH --partition="a#b"'),
        ("$(date)", '#SBATCH --partition="$(date)"'),
        ("it's", '#SBATCH --partition="it\'s"'),
        ('say "x"', r'#SBATCH --partition="say \"x\""'),
        ("a`b", '#SBATCH --partition="a`b"'),
        ("a\\b", r'#SBATCH --partition="a\\b"'),
        (True, "#SBATCH --partition"),
        (False, None),
    ],
)
def test_directives(value: str | int | bool, line: str | None) -> None:
    assert directive("partition", value) == line


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "is empty: leave the key out, or give true for a bare flag"),
        ("  ", "is empty"),
        ("a\nb", "holds a line break or control character, which ends an #SBATCH line"),
        ("a\x1bb", "holds a line break or control character"),
        ("a\u2028b", "holds a line break or control character"),
        ("-x", "begins with a dash and would be read as an option"),
        ("a\0b", "holds a NUL character"),
        ("a\udcff", "is not valid Unicode text"),
    ],
)
def test_what_slurm_misreads_is_refused(value: str, message: str) -> None:
    with pytest.raises(QuotingError, match=message):
        directive("comment", value)


def test_a_directive_is_no_longer_than_slurm_takes() -> None:
    assert directive("comment", "ä" * 512) is not None
    with pytest.raises(QuotingError, match="has 1026 bytes and Slurm takes 1024: shorten it"):
        directive("comment", "ä" * 513)
    assert directive("nodelist", "n" * 2000) is not None


@pytest.mark.parametrize("option", ["", "Job-Name", "-x", "a=b", "a b", "comment\n"])
def test_a_directive_is_an_option_by_name(option: str) -> None:
    with pytest.raises(QuotingError, match="an sbatch option is written in lower case"):
        directive(option, "x")


@given(st.text())
def test_a_directive_is_one_line_or_refused(text: str) -> None:
    try:
        line = directive("comment", text)
    except QuotingError:
        return
    assert line is not None
    assert line.splitlines() == [line]


@examples(3)
@given(texts=st.lists(SIGNS | TEXT, min_size=40, max_size=40))
@example(texts=["‘it’s“”„«»′"])
def test_shellcheck_has_nothing_to_say_about_any_text(needs: Callable[[str], Path], texts: list[str]) -> None:
    values = {f"V{number}": text for number, text in enumerate(texts)}
    text = script(request(cluster(env=values), command=["echo", *texts]))
    arguments: list[str | Path] = [needs("shellcheck"), "--severity=style", "--format=gcc", "-"]
    ended = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
    assert ended.stdout == ""
