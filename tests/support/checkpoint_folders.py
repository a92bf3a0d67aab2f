"""Checkpoints written without torch: a tensor `w` of some rows, in one part or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.records.safetensors import ROWS, header

WIDTH = 3


def weights(path: Path, update: int, rows: range, of_rows: int) -> None:
    """Write a file of the layout, with the rows `rows` of `of_rows`: each number is its row."""
    metadata = {"update": str(update)}
    if len(rows) != of_rows:
        metadata[ROWS] = json.dumps({"w": [rows.start, of_rows]})
    beginning, _ = header({"w": ("U8", [len(rows), WIDTH])}, metadata)
    path.write_bytes(beginning + b"".join(bytes([row]) * WIDTH for row in rows))


def saved(paths: RunPaths, update: int, *, parts: int = 1, rows: int = 4, averaged: bool = False) -> Path:
    """Write a sound checkpoint of `update`, and return its folder."""
    folder = paths.checkpoint(update)
    folder.mkdir(parents=True)
    files: dict[str, Any] = {}
    for name in (checkpoints.MODEL, checkpoints.TRAINING, *([checkpoints.AVERAGED] if averaged else [])):
        for part, file in enumerate(checkpoints.part_names(name, parts)):
            first, end = rows * part // parts, rows * (part + 1) // parts
            weights(folder / file, update, range(first, end), rows)
            content = (folder / file).read_bytes()
            files[file] = checkpoints.write_durably(folder / file, [content[:5], content[5:]])._asdict()
    write_index(folder, update=update, files=files, **({"parts": parts} if parts > 1 else {}))
    return folder


def write_index(folder: Path, **fields: Any) -> None:
    """Write index.json of the present contract."""
    (folder / checkpoints.INDEX).write_text(json.dumps({"contract": 1, **fields}))


def change_index(folder: Path, **changes: Any) -> None:
    """Write index.json anew with other values; an ellipsis takes a field away."""
    index = {**json.loads((folder / checkpoints.INDEX).read_text()), **changes}
    (folder / checkpoints.INDEX).write_text(json.dumps({name: value for name, value in index.items() if value != ...}))
