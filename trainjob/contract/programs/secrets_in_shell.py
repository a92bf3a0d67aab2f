"""Secrets that are written out in shell: in batch files, in scripts that are sourced, in what shells are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import FrozenSet, Iterator

from trainjob.contract.programs.secret_names import is_placeholder, is_secret_variable, keys_in

# Without bounds, the time that these patterns take would grow with the square of a text's length.
_LONGEST_NAME, _LONGEST_VALUE, _LONGEST_INNER_VALUE = 200, 2000, 300
_LONGEST_PRINTED, _LONGEST_OPTIONS, _LONGEST_START = 1000, 500, 200
_LARGEST_SCRIPT_BYTES = 1 << 20  # a longer one has something else attached, as installers do

_ASSIGNED = re.compile(r"(?:\$\{([A-Za-z_]\w*):?[-=]|\b([A-Za-z_]\w*)(?:\+?=|:=))(?:\([ \t]*)?")
_VALUE = re.compile(
    rf"""\$?'(?P<literal>[^'\n]{{0,{_LONGEST_VALUE}}})'|"(?P<quoted>(?:[^"\\\n]|\\.){{0,{_LONGEST_VALUE}}})"|"""
    rf"""(?P<plain>[^\s'"`;&|]{{1,{_LONGEST_VALUE}}})"""
)
# A value inside another, as in --export=ALL,NAME=VALUE, or inside ${NAME:-VALUE}.
_INNER_VALUE = re.compile(rf"""['"]?(?P<plain>[^\s'"`;&|,}}]{{1,{_LONGEST_INNER_VALUE}}})""")
# Programs of Python stand in here-documents: a call, an element, an argument.
_PYTHON_EXPRESSION = re.compile(r"[\w.]+[(\[]|.*[)\],]|[a-z_]\w*(?:\.[a-z_]\w*)+\]?")
_ASSIGNED_BY_COMMAND = re.compile(
    r"""\b(?:printf[ \t]+-v|setenv|read(?:[ \t]+-\w+)*)[ \t]+['"]?(\w+)['"]?[ \t]+"""
    r"""(?:<<<[ \t]*|['"]?%\S*[ \t]+)?['"]?([^\s'"`;&|]+)"""
)
_LINE_OF_YAML_OR_HEADER = re.compile(
    r"""(?<![\w-])-*([A-Za-z_][\w-]*)['"]?[ \t]*:[ \t]+['"]?(?:(?i:bearer|basic|token)[ \t]+)?"""
    r"""(?=[^\s'"]*\d)([^\s'"`;&|]+)"""
)
_OPTION = re.compile(r"""(?<!\S)--?([A-Za-z][\w-]*)(?:=|[ \t]+)['"]?([^\s'"`;&|<>-][^\s'"`;&|<>]*)""")
# Options that only some programs have for a password.
_PASSWORD_OPTION = re.compile(
    rf"""\bsshpass\s+-p\s*['"]?([^\s'"$`;&|]+)|"""
    rf"""\bcurl\s[^\n;&|]{{0,{_LONGEST_OPTIONS}}}?(?<!\S)(?:-u|--user)[=\s]*['"]?[^\s:'"$`]*:([^\s'"$`]+)|"""
    rf"""\b(?:docker|podman|apptainer|singularity|buildah|skopeo|nerdctl)[ \t]"""
    rf"""[^\n;&|]{{0,{_LONGEST_START}}}?(?<![\w-])login[ \t]"""
    rf"""[^\n;&|]{{0,{_LONGEST_OPTIONS}}}?(?<!\S)(?:-p[= \t]*|--password[= \t]+)"""
    rf"""['"]?([^\s'"$`;&|-][^\s'"$`;&|]*)"""
)
_LOGIN_ARGUMENT = re.compile(
    r"""(?<![\w-])login(?:[ \t]+--?[\w-]+(?:[ =]https?://\S+)?)*[ \t]+"""
    r"""['"]?([^\s'"$`;&|<>/.-][^\s'"$`;&|<>/.]*)(?![/.])"""
)
_LOGIN_INPUT = re.compile(
    rf"""\b(?:echo|printf)[ \t]+(?:-\w{{1,9}}[ \t]+|['"]?%\S{{0,99}}[ \t]+){{0,5}}"""
    rf"""['"]?([^\s'"$`;&|<>]{{1,{_LONGEST_PRINTED}}})['"]?"""
    rf"""[ \t]{{0,9}}\|[^\n;&|]{{0,{_LONGEST_START}}}?(?<![\w-])login(?![\w-])|"""
    rf"""(?<![\w-])login(?:[ \t]+[^\s;&|<]{{1,99}}){{0,9}}[ \t]{{0,9}}<<<[ \t]*['"]?([^\s'"$`;&|]+)"""
)
_NETRC = re.compile(r"""\blogin\s+\S+\s+(?:account\s+\S+\s+)?(?:password|passwd)\s+([^\s'"]+)""")
_IN_ADDRESS = re.compile(r"\b\w+://((?:[^\s/:@'\"]*:[^\s/@'\"$]+|[0-9a-f]{32})@)")
# What opens an address to everybody who has it.
_SIGNED = re.compile(
    r"\bhttps?://[^\s'\"]{1,2000}?[?&](?:sig|X-(?:Amz|Goog)-Signature)=([^\s'\"&$]{16,})|"
    r"\bhttps://hooks\.slack\.com/services/([^\s'\"$]{16,})"
)

_NAME_OF_ADDRESS = re.compile(r"(?i)(?:dsn|(?<!webhook)_ur[il])(?:_|\Z)")
_NAME_OF_PASSWORD = re.compile(r"(?i)pass|secret(?!.*key)|(?:^|_)pw(?:_|\Z)")
# Most keys and tokens of trainings are columns of tables and words of vocabularies, unless they are of a service.
_AMBIGUOUS_NAME = re.compile(
    r"(?i)(?!.*(?:api|access|secret|private|service|account|encryption|signing|license|basic|hf|wandb))"
    r".*(?:key|token|pwd|auth)(?:_(?!pass|pem)\w+)?"
)
_GENERATED_KEY = re.compile(
    r"(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,}|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}"
)
_PLAIN_WORD = re.compile(r"[a-z][a-z_./-]*|[A-Z][A-Z_]*|id_\w+")
_FILE_NAME = re.compile(r"[\w/-]+\.[a-z]{2,4}")


def secrets_in(text: str) -> FrozenSet[str]:
    """Return the secrets that are written out in bash: values of variables, words of programs, parts of addresses."""
    return frozenset(_found(text))


def _found(text: str) -> Iterator[str]:
    yield from _assigned(text)
    for pattern in (_ASSIGNED_BY_COMMAND, _OPTION, _LINE_OF_YAML_OR_HEADER):
        for name, word in pattern.findall(text):
            variable = name.replace("-", "_")
            if _may_hold_secret(variable) and _is_secret(variable, word):
                yield word
    given = [word for word in _LOGIN_ARGUMENT.findall(text) if _GENERATED_KEY.search(word)]
    given += [word for words in _LOGIN_INPUT.findall(text) for word in words] + _NETRC.findall(text)
    yield from (word for word in given if not is_placeholder(word))
    yield from (word for words in _PASSWORD_OPTION.findall(text) for word in words if word)
    yield from _IN_ADDRESS.findall(text)
    yield from (word for words in _SIGNED.findall(text) for word in words if word)
    yield from keys_in(text)


def _assigned(text: str) -> Iterator[str]:
    end = 0  # of the value that goes furthest
    for assigned in _ASSIGNED.finditer(text):
        name = assigned[1] or assigned[2]
        if not _may_hold_secret(name):
            continue
        is_inner = assigned[1] is not None or assigned.end() < end
        given = (_INNER_VALUE if is_inner else _VALUE).match(text, assigned.end())
        if given is None:
            continue
        end, kind = max(end, given.end()), str(given.lastgroup)
        value = given[kind]
        if (kind == "plain" and _PYTHON_EXPRESSION.fullmatch(value)) or (kind == "quoted" and "`" in value):
            continue
        # In --export=NAME=VALUE,OTHER a comma ends the value.
        for one in {value, value.partition(",")[0]}:
            if _is_secret(name, one) and (kind == "literal" or not re.search(r"\$[\w{(]", one)):
                yield one


def _may_hold_secret(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and (is_secret_variable(name) or name.lower() in ("key", "token"))


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value of a variable or an option that may hold a secret is one."""
    value = value[:_LONGEST_VALUE]
    if is_placeholder(value) or (value.isupper() and _may_hold_secret(value)):
        return False
    if (_NAME_OF_ADDRESS.search(name) or "://" in value) and "webhook" not in name.lower():
        return False  # only a password in it is secret
    if _NAME_OF_PASSWORD.search(name):
        return _FILE_NAME.fullmatch(value) is None
    if _PLAIN_WORD.fullmatch(value) or _FILE_NAME.fullmatch(value):
        return False
    return _AMBIGUOUS_NAME.fullmatch(name) is None or _GENERATED_KEY.search(value) is not None


_SCRIPT_NAME = re.compile(r"(?i)\.(?:sh|bash|zsh|ksh|csh|tcsh|sbatch|slurm)\Z")
_SHEBANG = re.compile(rb"(?:\xef\xbb\xbf)?#![^\n]*\b(?:ba|da|z|k|c|tc)?sh\b")
_SHEBANG_BYTES = 256


def holds_written_secret(path: Path) -> bool:
    """Return whether a file is a shell script, by its name or its first line, in which a secret is written out.

    What is no file, or can't be read, is none.
    """
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            first = file.read(_SHEBANG_BYTES)
            if _SCRIPT_NAME.search(path.name) is None and _SHEBANG.match(first) is None:
                return False
            text = (first + file.read(_LARGEST_SCRIPT_BYTES)).decode(errors="replace")
    except (OSError, ValueError):  # a word of a batch file may be too long for a name, or have a zero byte
        return False
    return bool(secrets_in(text))
