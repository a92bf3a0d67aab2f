"""Keeps the secrets of a batch file out of the files that it becomes, and out of the account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from batchfiles.adoption.account import HOLDS_SECRET, SECRETS_FILE, Account, Entry, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.start import AdoptionError
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs.secret_names import is_placeholder, is_secret_variable
from trainjob.contract.programs.secrets_in_shell import secrets_in

# A word of bash, of quoted pieces and others.
_WORD = r"""((?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"`;&|\\])+)"""
_MOST_SECRETS = 1000


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
        cure = "put them into a secrets_file of mode 0600"
        raise AdoptionError(f"{script.path} states more than {_MOST_SECRETS:,} secrets", cure)
    lines = text.split("\n")
    roles = keys.job.get("roles")
    servers = [role.get("command") for role in roles.values()] if isinstance(roles, dict) else []
    if _holds([keys.job.get("command"), *servers], secrets):
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
