"""Keeps the secrets of a batch file out of the files that it becomes, and out of the account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from batchfiles.adoption.account import HOLDS_SECRET, SECRETS_FILE, Account, Entry, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.start import AdoptionError
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs.secret_names import is_placeholder, is_secret_variable, keys_in

# Also within a value, as in --export=ALL,NAME=VALUE; and NAME+=VALUE, ${NAME:=VALUE}.
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)(?:\+?=|:=)")
_VALUE = re.compile(r"""'([^'\n]*)'|"((?:[^"\\\n]|\\.)*)"|([^\s'"`;&|]+)""")
_FIRST_VALUE = re.compile(r"""()()([^\s'"`;&|,]+)""")
# A word of bash, of quoted pieces and others.
_WORD = r"""((?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"`;&|\\])+)"""
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
    r"""\bsshpass\s+-p\s*['"]?([^\s'"$`;&|]+)|\bcurl\s[^\n;&|]{0,2000}?(?<!\S)(?:-u|--user)[=\s]*['"]?[^\s:'"$`]*:([^\s'"$`]+)"""
)
_LOGINS = re.compile(r"""\blogin(?:\s+--?[\w-]+)*\s+['"]?([^\s'"$`;&|<>-][^\s'"$`;&|<>]*)""")
# A line of .netrc, or a part of one.
_NETRC = re.compile(r"""\blogin\s+\S+\s+(?:account\s+\S+\s+)?(?:password|passwd)\s+([^\s'"]+)""")
_MOST_SECRETS = 1000
# A registry or a host, to which one logs in.
_PLACES = re.compile(r"[/.]|\A.{0,7}\Z")
_IN_ADDRESS = re.compile(r"\b\w+://([^\s/:@'\"]*:[^\s/@'\"$]+@)")


def secrets_in(text: str) -> frozenset[str]:
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


def _known(script: BatchScript, text: str) -> Iterator[str]:
    """Yield the values of secret variables, as ranks get them and as they are written: quotes and escapes differ."""
    settings = [one.command.settings | one.settings for one in script.launches]
    settings += [one.settings for one in script.commands]
    given = chain(((one.name, one.value) for one in script.assignments), *(one.items() for one in settings))
    for name, value in given:
        if is_secret_variable(name) and value.known and not is_placeholder(value.text):
            yield value.text
            written = re.findall(rf"\b{re.escape(name)}\+?={_WORD}", text)
            yield from (word for word in written if not is_placeholder(word.strip("'\"")))


def take_out(script: BatchScript, keys: Keys, account: Account) -> None:
    """Remove what holds a secret of `script` from `keys`, and say so. Raises AdoptionError."""
    text = script.raw.decode(errors="replace")
    secrets = secrets_in(text).union(_known(script, text))
    if not secrets:
        return
    if len(secrets) > _MOST_SECRETS:
        raise AdoptionError(f"{script.path} states more than {_MOST_SECRETS:,} secrets", f"move them to {SECRETS_FILE}")
    lines = text.split("\n")
    if _holds(keys.job.get("command"), secrets):
        raise AdoptionError(
            "the training is started with a secret among its words, and others may read job files and run directories",
            f"have the script read it from its environment, and {SECRETS_FILE}",
        )
    for values in (keys.job, keys.cluster):
        _strip(values, secrets)
    keys.comments = {path: text for path, text in keys.comments.items() if not _holds(text, secrets)}
    account.entries = [
        entry._replace(where=Where.LOST, what=HOLDS_SECRET, text=_hidden(entry.text, secrets))
        if _holds([entry.text, entry.what, *_others_of(entry, lines)], secrets)
        else entry
        for entry in account.entries
    ]
    account.changes = [_hidden(line, secrets) for line in account.changes]


def _others_of(entry: Entry, lines: Sequence[str]) -> Sequence[str]:
    # A line of directives has an entry for each of them.
    return () if entry.text.startswith("#SBATCH") else lines[entry.line - 1 : entry.last]


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
