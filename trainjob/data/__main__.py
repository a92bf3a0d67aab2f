"""`python -m trainjob.data`, which the playbooks run on hosts. The last line of its output is JSON.

fetch SOURCE PATH [--sha256 S]      an archive, checked
prepare NAME --data-dir FOLDER …    a data set, unless it is there
check NAME --data-dir FOLDER        every byte of a data set against its manifest
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Dict, List, Optional

from trainjob.contract import exits
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.data import manifest
from trainjob.data.checking import check_folder
from trainjob.data.download import fetch
from trainjob.data.prepare import prepare
from trainjob.data.sizes import parse_shape

_NUMBERS = ("samples", "held_out", "classes", "seed")
_WORDS = ("sha256", "kind", "dtype", "store")


def main(arguments: Optional[List[str]] = None) -> int:
    """Return the exit code of one command; what is wrong goes to the error stream in one line."""
    options = _parser().parse_args(arguments)
    try:
        reply = options.act(options)
    except UserError as error:
        sys.stderr.write("%s\n" % error)
        return exits.USER_OR_CLUSTER_CAN_FIX
    sys.stdout.write(json.dumps(reply) + "\n")
    return exits.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainjob.data")
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("fetch")
    one.add_argument("source")
    one.add_argument("path", type=Path)
    one.add_argument("--sha256", default="")
    one.set_defaults(act=_fetch)
    for name, act in (("prepare", _prepare), ("check", _check)):
        one = commands.add_parser(name)
        one.add_argument("name")
        one.add_argument("--data-dir", type=Path, required=True)
        one.set_defaults(act=act)
    one = commands.choices["prepare"]
    one.add_argument("--from", dest="source")
    for name in _WORDS:
        one.add_argument("--" + name)
    one.add_argument("--shape", type=parse_shape)
    one.add_argument("--skip-damaged", action="store_true", default=None)
    one.add_argument("--again", action="store_true")
    for name in _NUMBERS:
        one.add_argument("--" + name.replace("_", "-"), type=int)
    return parser


def _fetch(arguments: argparse.Namespace) -> Dict[str, object]:
    fetched = fetch(arguments.source, arguments.path, arguments.sha256, _say)
    return {"path": str(fetched.path), "changed": fetched.changed}


def _prepare(arguments: argparse.Namespace) -> Dict[str, object]:
    options = {name: getattr(arguments, name) for name in ("source", "shape", "skip_damaged", *_WORDS, *_NUMBERS)}
    folder = prepare(arguments.name, with_home(arguments.data_dir), again=arguments.again, say=_say, **options)
    return {"folder": str(folder), "identity": _identity(folder)}


def _check(arguments: argparse.Namespace) -> Dict[str, object]:
    folder = with_home(arguments.data_dir) / arguments.name
    if not folder.exists():
        return {"there": False, "identity": None, "why": "%s is not there" % folder}
    try:
        if check_folder(folder).root:
            from trainjob.data.shards import open_data_set

            open_data_set(folder).check_sources()
    except UserError as error:
        return {"there": True, "identity": None, "why": str(error)}
    return {"there": True, "identity": _identity(folder), "why": "whole: every byte is as its manifest says"}


def _identity(folder: Path) -> str:
    return hashlib.sha256((folder / manifest.FILE_NAME).read_bytes()).hexdigest()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
