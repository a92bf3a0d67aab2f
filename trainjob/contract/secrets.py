"""The secrets file: NAME=VALUE lines, mode 0600. Parsed when ranks start; never sourced or copied."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Dict, Tuple, Union

from trainjob.contract.errors import UserError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SecretsError(UserError):
    """The secrets file can't be used; the message never holds a value."""


def check_mode(path: Path) -> None:
    """Raise SecretsError unless `path` is a file that only its owner may read."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise SecretsError(
            "secrets_file %s does not exist: make it with one NAME=VALUE a line, or take the key out" % path
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise SecretsError("secrets_file %s is not a file: give the path of a file with NAME=VALUE lines" % path)
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise SecretsError(
            "secrets_file %s has mode %04o: others may read it; needed is 0600. Run: chmod 600 %s" % (path, mode, path)
        )


def _unreadable(path: Path, error: OSError) -> SecretsError:
    return SecretsError("secrets_file %s can't be read (%s): it must be yours" % (path, error.strerror))


def read(path: Union[str, Path]) -> Dict[str, str]:
    """Return the names and values of a secrets file whose mode is right.

    The value is the rest of the line after the first `=`, byte for byte: no quotes, no expansion.
    Empty lines and lines beginning with `#` are passed over. Raises SecretsError.
    """
    expanded = Path(os.path.expanduser(str(path)))
    check_mode(expanded)
    try:
        # As the environment itself is decoded, so that bytes that are no text survive.
        text = os.fsdecode(expanded.read_bytes())
    except OSError as error:
        raise _unreadable(expanded, error) from None
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), 1)
    return dict(_pair(line, "%s, line %d" % (expanded, number)) for number, line in lines if _says_something(line))


def check_lines(path: Path) -> None:
    """Raise SecretsError unless `read` could use the file; no value is kept."""
    read(path)


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _pair(line: str, where: str) -> Tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not _NAME.match(name):
        raise SecretsError("secrets_file %s: expected NAME=VALUE" % where)
    if "\0" in value:
        raise SecretsError("secrets_file %s: the value holds a NUL character, which no environment can carry" % where)
    return name, value
