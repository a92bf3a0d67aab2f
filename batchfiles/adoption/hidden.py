"""Keeps the secrets of a batch file out of the files that it becomes, and out of the account."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.adoption.account import Account, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.start import AdoptionError
from trainjob.contract.programs.secret_names import is_placeholder, is_secret_variable, keys_in

CURE = "put it into a secrets_file of mode 0600"
_LOST = f"it holds a secret: {CURE}"
# Also within a value, as in --export=ALL,NAME=VALUE; and NAME+=VALUE, ${NAME:=VALUE}.
_ASSIGNED = re.compile(r"""(?=\b([A-Za-z_]\w*)(?:\+?=|:=)(?:'([^'\n]*)'|"([^"\n]*)"|([^\s'"`;&|]+)))""")
# What assigns without a sign of it.
_READ = re.compile(
    r"""\b(?:printf\s+-v|setenv|read(?:\s+-\w+)*)\s+['"]?(\w+)['"]?\s+(?:<<<\s*|['"]?%\S*\s+)?['"]?([^\s'"`;&|]+)"""
)
# A line of YAML or JSON, or a header.
_STATED = re.compile(
    r"""\b([A-Za-z_][\w-]*)['"]?\s*:\s+['"]?(?:(?i:bearer|basic|token)\s+)?(?=[^\s'"]*\d)([^\s'"`;&|]+)"""
)
# Programs are given keys as words, too: by an option whose name says so, or behind `login`.
_OPTIONS = re.compile(r"""(?<!\S)--?([A-Za-z][\w-]*)(?:=|\s+)['"]?([^\s'"`;&|<>-][^\s'"`;&|<>]*)""")
_PASSWORDS = re.compile(
    r"""\bsshpass\s+-p\s*['"]?([^\s'"$`;&|]+)|\bcurl\s[^\n;&|]*?(?<!\S)(?:-u|--user)[=\s]*['"]?[^\s:'"$`]*:([^\s'"$`]+)"""
)
_LOGINS = re.compile(r"""\blogin(?:\s+--?[\w-]+)*\s+['"]?([^\s'"$`;&|<>-][^\s'"$`;&|<>]*)""")
# A registry or a host, to which one logs in.
_PLACES = re.compile(r"[/.]|\A.{0,7}\Z")
_IN_ADDRESS = re.compile(r"\w+://([^\s/:@'\"]*:[^\s/@'\"$]+@)")


def secrets_in(text: str) -> frozenset[str]:
    """Return the secrets that are written out in bash: values of variables, words of programs, parts of addresses."""
    return frozenset(_found(text))


def _found(text: str) -> Iterator[str]:
    for name, *values in _ASSIGNED.findall(text):
        value = "".join(values)
        # In --export=ALL,NAME=VALUE a comma ends the value; what a shell puts in is none that stands here.
        for one in {value, value.partition(",")[0]} if is_secret_variable(name) else ():
            if not is_placeholder(one) and not re.search(r"\$[\w{(]", one):
                yield one
    for name, word in _READ.findall(text):
        if is_secret_variable(name) and not is_placeholder(word):
            yield word
    for option, word in (*_OPTIONS.findall(text), *_STATED.findall(text)):
        if is_secret_variable(option.replace("-", "_")) and not is_placeholder(word):
            yield word
    yield from (word for word in _LOGINS.findall(text) if not _PLACES.search(word) and not is_placeholder(word))
    yield from (one for words in _PASSWORDS.findall(text) for one in words if one)
    yield from _IN_ADDRESS.findall(text)
    yield from keys_in(text)


def take_out(text: str, keys: Keys, account: Account) -> None:
    """Remove what holds a secret of `text` from `keys`, and say so. Raises AdoptionError for one in the command."""
    secrets = secrets_in(text)
    if not secrets:
        return
    lines = text.split("\n")
    if _holds(keys.job.get("command"), secrets):
        raise AdoptionError(
            "the training is started with a secret among its words, and others may read job files and run directories",
            f"have the script read it from its environment, and {CURE}",
        )
    for values in (keys.job, keys.cluster):
        _strip(values, secrets)
    keys.comments = {path: text for path, text in keys.comments.items() if not _holds(text, secrets)}
    account.entries = [
        entry._replace(where=Where.LOST, what=_LOST, text=_hidden(entry.text, secrets))
        if _holds([entry.text, entry.what, *lines[entry.line - 1 : entry.last]], secrets)
        else entry
        for entry in account.entries
    ]
    account.changes = [_hidden(line, secrets) for line in account.changes]


def _strip(values: dict[str, object], secrets: frozenset[str]) -> None:
    for name, value in list(values.items()):
        if isinstance(value, dict):
            _strip(value, secrets)
        elif isinstance(value, list):
            values[name] = [item for item in value if not _holds(item, secrets)]
        if values[name] in ({}, []) or _holds(values[name], secrets):
            del values[name]


def _holds(value: object, secrets: frozenset[str]) -> bool:
    if isinstance(value, dict):
        return any(_holds(item, secrets) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds(item, secrets) for item in value)
    return isinstance(value, str) and any(secret in value for secret in secrets)


def _hidden(text: str, secrets: frozenset[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text
