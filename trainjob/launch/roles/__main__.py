"""Runs the roles of a job: python -m trainjob.launch.roles RUN_DIR SERVER… -- COMMAND that starts the job's own ranks.

A SERVER is its name, the host where it is reached, the number of words that start it, and these words.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from trainjob.contract import exits
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.options import GRACE_S
from trainjob.launch.ranks.guard import guarded
from trainjob.launch.roles.supervise import Supervision
from trainjob.records import attempts
from trainjob.records.files import keep_others_from_writing


def main(arguments: Sequence[str]) -> int:
    """Return the code of the role that needs the servers; of a server that failed the job its code, or 1."""
    parser = argparse.ArgumentParser(prog="roles", usage="roles [options] RUN_DIR SERVER… -- COMMAND…")
    parser.add_argument("--parent", type=int, default=0, help="process with which to end")
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="seconds between TERM and KILL")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    processes.end_with_parent(parent=options.parent)
    paths = RunPaths(Path(options.run_dir).resolve())
    keep_others_from_writing(paths.folder)
    try:
        places, command = _read(options.words)
        supervision = Supervision(paths, places, command, options.grace_s)
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return exits.USER_OR_CLUSTER_CAN_FIX
    code = guarded(supervision.run)
    attempts.leave_end_mark(paths, supervision.attempt, None, code)
    return code


def _read(words: List[str]) -> "tuple[Dict[str, Tuple[str, List[str]]], List[str]]":
    places = {}
    while words and words[0] != "--":
        name, host, count, *rest = words
        places[name] = (host, rest[: int(count)])
        words = rest[int(count) :]
    return places, words[1:]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
