"""Secrets that are written out in shell: in batch files, in scripts that are sourced, in what shells are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import FrozenSet, Iterator

from trainjob.contract.programs.secret_names import is_placeholder, is_secret_variable, keys_in

# Also within a value, as in --export=ALL,NAME=VALUE; and NAME+=VALUE, ${NAME:=VALUE}.
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)(?:\+?=|:=)")
_VALUE = re.compile(r"""'([^'\n]*)'|"((?:[^"\\\n]|\\.)*)"|([^\s'"`;&|]+)""")
_FIRST_VALUE = re.compile(r"""()()([^\s'"`;&|,]+)""")
# What assigns without a sign of it.
_READ = re.compile(
    r"""\b(?:printf\s+-v|setenv|read(?:\s+-\w+)*)\s+['"]?(\w+)['"]?\s+(?:<<<\s*|['"]?%\S*\s+)?['"]?([^\s'"`;&|]+)"""
)
# A line of YAML or JSON, or a header.
_STATED = re.compile(
    r"""(?<![\w-])-*([A-Za-z_][\w-]*)['"]?\s*:\s+['"]?(?:(?i:bearer|basic|token)\s+)?(?=[^\s'"]*\d)([^\s'"`;&|]+)"""
)
# Programs are given keys as words, too: by an option whose name says so, or behind `login`.
_OPTIONS = re.compile(r"""(?<!\S)--?([A-Za-z][\w-]*)(?:=|\s+)['"]?([^\s'"`;&|<>-][^\s'"`;&|<>]*)""")
# A key of a table, as in --prompt_key question.
_COLUMN = re.compile(r"(?i)(?!.*(?:api|access|secret|auth|private|service|account|encryption|signing|license)).*key")
_PASSWORDS = re.compile(
    r"""\bsshpass\s+-p\s*['"]?([^\s'"$`;&|]+)|\bcurl\s[^\n;&|]{0,500}?(?<!\S)(?:-u|--user)[=\s]*['"]?[^\s:'"$`]*:([^\s'"$`]+)"""
)
_LOGINS = re.compile(r"""\blogin(?:\s+--?[\w-]+)*\s+['"]?([^\s'"$`;&|<>-][^\s'"$`;&|<>]*)""")
# A line of .netrc, or a part of one.
_NETRC = re.compile(r"""\blogin\s+\S+\s+(?:account\s+\S+\s+)?(?:password|passwd)\s+([^\s'"]+)""")
# A registry or a host, to which one logs in.
_PLACES = re.compile(r"[/.]|\A.{0,7}\Z")
_IN_ADDRESS = re.compile(r"\b\w+://([^\s/:@'\"]*:[^\s/@'\"$]+@)")


def secrets_in(text: str) -> FrozenSet[str]:
    """Return the secrets that are written out in bash: values of variables, words of programs, parts of addresses."""
    return frozenset(_found(text))


def _found(text: str) -> Iterator[str]:
    end = 0
    for assigned in _ASSIGNED.finditer(text):
        if not is_secret_variable(assigned[1]):
            continue
        # In --export=ALL,NAME=VALUE a comma ends the value; what a shell puts in is none that stands here.
        given = (_FIRST_VALUE if assigned.end() < end else _VALUE).match(text, assigned.end())
        if given is None:
            continue
        end, literal, value = max(end, given.end()), given[1], "".join(filter(None, given.groups()))
        for one in {value, value.partition(",")[0]}:
            if not is_placeholder(one) and (literal or not re.search(r"\$[\w{(]", one)):
                yield one
    for name, word in _READ.findall(text):
        if is_secret_variable(name) and not is_placeholder(word):
            yield word
    for option, word in (*_OPTIONS.findall(text), *_STATED.findall(text)):
        is_column = _COLUMN.fullmatch(option) and re.fullmatch(r"[a-z][a-z_.-]*", word)
        if is_secret_variable(option.replace("-", "_")) and not is_column and not is_placeholder(word):
            yield word
    yield from (word for word in _LOGINS.findall(text) if not _PLACES.search(word) and not is_placeholder(word))
    yield from (one for words in _PASSWORDS.findall(text) for one in words if one)
    yield from _IN_ADDRESS.findall(text)
    yield from (word for word in _NETRC.findall(text) if not is_placeholder(word))
    yield from keys_in(text)


_NAMES = re.compile(r"(?i)\.(?:sh|bash|zsh|ksh|csh|tcsh|sbatch|slurm)\Z")
_FIRST_LINE = re.compile(rb"(?:\xef\xbb\xbf)?#![^\n]*\b(?:ba|da|z|k|c|tc)?sh\b")
_FIRST_BYTES = 256
_MOST_BYTES = 1 << 20  # a longer script has something else attached, as installers do


def is_shell_script(path: str) -> bool:
    """Return whether a file is a shell script, by its name."""
    return _NAMES.search(path) is not None


def holds_written_secret(path: Path) -> bool:
    """Return whether a file is a shell script, by its name or its first line, in which a secret is written out."""
    with path.open("rb") as file:
        first = file.read(_FIRST_BYTES)
        if not is_shell_script(path.name) and _FIRST_LINE.match(first) is None:
            return False
        return bool(secrets_in((first + file.read(_MOST_BYTES)).decode(errors="replace")))
