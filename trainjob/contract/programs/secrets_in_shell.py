"""Secrets that are written out in shell: in batch files, in scripts that are sourced, in what shells are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import FrozenSet, Iterator

from trainjob.contract.programs.secret_names import is_placeholder, is_secret_variable, keys_in

# Also within a value, as in --export=ALL,NAME=VALUE; and NAME+=VALUE, ${NAME:=VALUE}, ${NAME:-VALUE}, ${NAME-VALUE}.
_ASSIGNED = re.compile(r"(?:\b([A-Za-z_]\w*)(?:\+?=|:=)|\$\{([A-Za-z_]\w*):?-)(?:\([ \t]*)?")
_VALUE = re.compile(r"""\$?'([^'\n]{0,2000})'|"((?:[^"\\\n]|\\.){0,2000})"|([^\s'"`;&|]{1,2000})""")
_FIRST_VALUE = re.compile(r"""()()['"]?([^\s'"`;&|,}]{1,300})""")
# Of Python: a call, an element, an argument.
_CALCULATED = re.compile(r"[\w.]+[(\[]|.*[)\],]|[a-z_]\w*(?:\.[a-z_]\w*)+\]?")
# What assigns without a sign of it.
_READ = re.compile(
    r"""\b(?:printf[ \t]+-v|setenv|read(?:[ \t]+-\w+)*)[ \t]+['"]?(\w+)['"]?[ \t]+"""
    r"""(?:<<<[ \t]*|['"]?%\S*[ \t]+)?['"]?([^\s'"`;&|]+)"""
)
# A line of YAML or JSON, or a header.
_STATED = re.compile(
    r"""(?<![\w-])-*([A-Za-z_][\w-]*)['"]?[ \t]*:[ \t]+['"]?(?:(?i:bearer|basic|token)[ \t]+)?"""
    r"""(?=[^\s'"]*\d)([^\s'"`;&|]+)"""
)
# Programs are given keys as words, too: by an option whose name says so, or behind `login`.
_OPTIONS = re.compile(r"""(?<!\S)--?([A-Za-z][\w-]*)(?:=|[ \t]+)['"]?([^\s'"`;&|<>-][^\s'"`;&|<>]*)""")
_PASSWORDS = re.compile(
    r"""\bsshpass\s+-p\s*['"]?([^\s'"$`;&|]+)|"""
    r"""\bcurl\s[^\n;&|]{0,500}?(?<!\S)(?:-u|--user)[=\s]*['"]?[^\s:'"$`]*:([^\s'"$`]+)|"""
    r"""\b(?:docker|podman|apptainer|singularity|buildah|skopeo|nerdctl)[ \t][^\n;&|]{0,100}?(?<![\w-])login[ \t]"""
    r"""[^\n;&|]{0,500}?(?<!\S)(?:-p[= \t]*|--password[= \t]+)['"]?([^\s'"$`;&|-][^\s'"$`;&|]*)"""
)
_LOGINS = re.compile(r"""(?<![\w-])login(?:[ \t]+--?[\w-]+)*[ \t]+['"]?([^\s'"$`;&|<>/.-][^\s'"$`;&|<>/.]*)(?![/.])""")
_LOGS_IN = re.compile(
    r"""\b(?:echo|printf)[ \t]+(?:-\w{1,9}[ \t]+|['"]?%\S{0,99}[ \t]+){0,5}['"]?([^\s'"$`;&|<>]{1,999})['"]?"""
    r"""[ \t]{0,9}\|[^\n;&|]{0,200}?(?<![\w-])login(?![\w-])|"""
    r"""(?<![\w-])login(?:[ \t]+[^\s;&|<]{1,99}){0,9}[ \t]{0,9}<<<[ \t]*['"]?([^\s'"$`;&|]+)"""
)
# A line of .netrc, or a part of one.
_NETRC = re.compile(r"""\blogin\s+\S+\s+(?:account\s+\S+\s+)?(?:password|passwd)\s+([^\s'"]+)""")
_IN_ADDRESS = re.compile(r"\b\w+://((?:[^\s/:@'\"]*:[^\s/@'\"$]+|[0-9a-f]{32})@)")
# What a name says of its values. Many names end in key or token, and few of their values are secret.
_OF_ADDRESS = re.compile(r"(?i)(?:dsn|(?<!webhook)_ur[il])(?:_|\Z)")
_OF_PASSWORD = re.compile(r"(?i)pass|secret(?!.*key)|(?:^|_)pw(?:_|\Z)")
_OF_ANYTHING = re.compile(
    r"(?i)(?!.*(?:api|access|secret|private|service|account|encryption|signing|license|basic|hf|wandb))"
    r".*(?:key|token|pwd|auth)(?:_(?!pass|pem)\w+)?"
)
_KEY = re.compile(r"(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,}|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}")
_WORD = re.compile(r"[a-z][a-z_./-]*|[A-Z][A-Z_]*|id_\w+")
_FILE = re.compile(r"[\w/-]+\.[a-z]{2,4}")


_LONGEST_NAME, _MOST_OF_A_VALUE = 200, 2000  # a pattern takes a time that grows with the square of these


def secrets_in(text: str) -> FrozenSet[str]:
    """Return the secrets that are written out in bash: values of variables, words of programs, parts of addresses."""
    return frozenset(_found(text))


def _found(text: str) -> Iterator[str]:
    end = 0
    for assigned in _ASSIGNED.finditer(text):
        name = assigned[1] or assigned[2]
        if not _is_name(name):
            continue
        # In --export=ALL,NAME=VALUE a comma ends the value; what a shell puts in is none that stands here.
        is_within = assigned.end() < end or text[assigned.start() - 2 : assigned.start()] == "${" or assigned[2]
        given = (_FIRST_VALUE if is_within else _VALUE).match(text, assigned.end())
        if given is None:
            continue
        end, literal, value = max(end, given.end()), given[1], "".join(filter(None, given.groups()))
        if (given[3] and _CALCULATED.fullmatch(value)) or (given[2] and "`" in value):
            continue
        for one in {value, value.partition(",")[0]}:
            if _is_secret(name, one) and (literal or not re.search(r"\$[\w{(]", one)):
                yield one
    for name, word in (*_READ.findall(text), *_OPTIONS.findall(text), *_STATED.findall(text)):
        if _is_name(name.replace("-", "_")) and _is_secret(name.replace("-", "_"), word):
            yield word
    yield from (word for word in _LOGINS.findall(text) if _KEY.search(word) and not is_placeholder(word))
    yield from (one for words in _LOGS_IN.findall(text) for one in words if one and not is_placeholder(one))
    yield from (one for words in _PASSWORDS.findall(text) for one in words if one)
    yield from _IN_ADDRESS.findall(text)
    yield from (word for word in _NETRC.findall(text) if not is_placeholder(word))
    yield from keys_in(text)


def _is_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and (is_secret_variable(name) or name.lower() in ("key", "token"))


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value of a variable or an option that may hold a secret is one."""
    value = value[:_MOST_OF_A_VALUE]
    if is_placeholder(value) or (value.isupper() and _is_name(value)):
        return False
    if (_OF_ADDRESS.search(name) or "://" in value) and "webhook" not in name.lower():
        return False  # only a password in it is secret
    if _OF_PASSWORD.search(name):
        return _FILE.fullmatch(value) is None
    if _WORD.fullmatch(value) or _FILE.fullmatch(value):
        return False
    return _OF_ANYTHING.fullmatch(name) is None or _KEY.search(value) is not None


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
