"""Options in a file: --import-config and --export-config, as lines of `name = value`."""

from __future__ import annotations

import os
from typing import Dict, List

from standins.pod.options import OPTIONS, Options
from standins.pod.refusal import Refused

_ABOUT_FILES = ("import-config", "export-config", "overwrite-config")


def imported(options: Options) -> Options:
    """Return what was asked over what its configuration file says. Raises Refused."""
    path = options.text("import-config")
    return options if path is None else Options({**_read(path), **options.values}, options.program)


def _read(path: str) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    try:
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except OSError as error:
        raise Refused("--import-config %s can't be read: %s" % (path, error.strerror)) from None
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if name not in OPTIONS or not equals:
            raise Refused("%s:%d: unrecognised option '%s'" % (path, number, name))
        found.setdefault(name, []).append(value)
    return found


def export(options: Options) -> None:
    """Write the options in force to the file that was asked for. Raises Refused if there is one already."""
    path = options.text("export-config")
    if path is None:
        return
    if os.path.exists(path) and not options.is_on("overwrite-config"):
        raise Refused("--export-config %s is there already: give --overwrite-config yes, or another name" % path)
    with open(path, "w", encoding="utf-8") as stream:
        for name, values in sorted(options.values.items()):
            if name not in _ABOUT_FILES:
                stream.writelines("%s = %s\n" % (name, value) for value in values)
