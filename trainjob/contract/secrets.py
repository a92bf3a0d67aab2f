"""The secrets file: NAME=VALUE lines, mode 0600. Parsed when ranks start; never sourced or copied."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Dict, Union

from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SecretsError(UserError):
    """The secrets file can't be used; the message never holds a value."""

    code = "secrets"


def check_mode(path: Path) -> None:
    """Raise SecretsError unless `path` is a file that only its owner may read."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise SecretsError(
            "secrets_file %s does not exist" % path, "make it with one NAME=VALUE a line, or take the key out"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise SecretsError("secrets_file %s is not a file" % path, "give the path of a file with NAME=VALUE lines")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise SecretsError(
            "secrets_file %s has mode %04o: others may read it; needed is 0600" % (path, mode),
            "Run: chmod 600 %s" % path,
        )


def _unreadable(path: Path, error: OSError) -> SecretsError:
    return SecretsError("secrets_file %s can't be read (%s)" % (path, error.strerror), "it must be yours")


def read(path: Union[str, Path]) -> Dict[str, str]:
    """Return the names and values of a secrets file whose mode is right.

    The value is the rest of the line after the first `=`, byte for byte: no quotes, no expansion.
    Empty lines and lines beginning with `#` are skipped. Raises SecretsError.
    """
    expanded = with_home(str(path))
    check_mode(expanded)
    try:
        # As the environment itself is decoded, so that bytes that are no text survive.
        text = os.fsdecode(expanded.read_bytes())
    except OSError as error:
        raise _unreadable(expanded, error) from None
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), 1)
    secrets: Dict[str, str] = {}
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        where = "secrets_file %s, line %d: " % (expanded, number)
        if not equals or not _NAME.match(name):
            raise SecretsError(where + "expected NAME=VALUE", "correct that line")
        if "\0" in value:
            raise SecretsError(where + "the value holds a NUL character, which no environment can carry", "take it out")
        secrets[name] = value
    return secrets
