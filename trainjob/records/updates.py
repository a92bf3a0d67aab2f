"""updates/: what a script of the user's own did, as the hook in its Python saw it (launch/hooks/). Names and fields.

rank-0000.jsonl, by each rank: a line for each event, with `attempt`, `event`, and `update`, the number of weight
updates that this attempt had made. wait-1.json, by `verify` and in a folder of its own: the moment at which attempt 1
waits to be interrupted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from trainjob.contract import package
from trainjob.contract.paths import RunPaths
from trainjob.records.files import RankLines, read_json, write_json

# Tells the hook to record; its value is the folder of the files that tell it where to wait.
RECORD_UPDATES = "TRAINJOB_RECORD_UPDATES"

STARTS, UPDATE, PASS, PASS_ENDED = "starts", "update", "pass", "pass-ended"
JOINS, SAVES, SAVED, EVALUATES = "joins", "saves", "saved", "evaluates"
PADS, CLIPS_SCALED, REDUCES_LOSS, REDUCES_GRADIENTS = "pads", "clips-scaled", "reduces-loss", "reduces-gradients"
NORMALISES = "normalises"  # a model with batch norm trains, whose ranks take statistics of their own batches
PAUSED, RESUMED, BLIND, IMPORTS = "paused", "resumed", "blind", "imports"

# Moments at which an attempt can wait.
AT_START, AT_UPDATE, AT_SAVE, AT_EVALUATION = "start", "update", "save", "evaluation"


def hooked(folder: Path, python_path: Optional[str]) -> Dict[str, str]:
    """Return the variables that have Python record, and wait where the files in `folder` say; `python_path` holds."""
    folders = [str(package.folder() / "launch" / "hooks"), *([python_path] if python_path else [])]
    return {"PYTHONPATH": os.pathsep.join(folders), RECORD_UPDATES: str(folder)}


class UpdatePaths(RankLines):
    """The files of one run's record of updates."""

    def __init__(self, paths: RunPaths) -> None:
        super().__init__(paths.folder / "updates")


def wait_at(folder: Path, attempt: int, moment: str, after: int) -> str:
    """Have `attempt` of the next run wait at the first such `moment` after so many of its updates; return the file."""
    name = "wait-%d.json" % attempt
    write_json(folder / name, {"moment": moment, "after": after}, durable=False)
    return name


class KeptState(NamedTuple):
    """The file that a save of an attempt was about to write over, and the copy of it; None if there was no file."""

    path: Path
    copy: Optional[Path]


def kept(folder: Path, attempt: int) -> Optional[KeptState]:
    """Return what an attempt kept of the file that its save has torn; None if it waited at no save."""
    values = read_json(folder / ("kept-%d.json" % attempt))
    return None if values is None else KeptState(Path(values["path"]), values["kept"] and Path(values["kept"]))


def wait_nowhere(folder: Path) -> List[str]:
    """Have the next run wait at no moment; return the names of the files that are gone."""
    gone = list(folder.glob("wait-*.json"))
    for path in gone:
        path.unlink()
    return [path.name for path in gone]
