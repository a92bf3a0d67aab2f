"""Exports the weights of a run to a file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainjob.backends import mirror
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.records import submission as submissions
from trainjob.records.safetensors import header, pieces, whole_shape

_BLOCK_BYTES = 1 << 24


def _join(parts: list[Path], target: Path, update: int) -> None:
    """Write the weights to `target` in the layout that a single instance would have written."""
    if len(parts) == 1:
        shutil.copyfile(parts[0], target)
        return
    by_name = pieces(parts)
    kinds = {name: (listed[0].place.dtype, whole_shape(listed)) for name, listed in by_name.items()}
    beginning, names = header(kinds, {"update": str(update)})
    with target.open("wb") as output:
        output.write(beginning)
        for piece in (piece for name in names for piece in by_name[name]):
            with piece.path.open("rb") as source:
                source.seek(piece.place.start)
                left = piece.place.size
                while left:
                    block = source.read(min(left, _BLOCK_BYTES))
                    if not block:
                        raise OSError(errno.EIO, "a part of the checkpoint is shorter than its header says")
                    output.write(block)
                    left -= len(block)


def export(
    paths: RunPaths, target: Path, warn: Callable[[str], None], *, averaged: bool = False
) -> checkpoints.Checkpoint:
    """Copy the weights of the newest sound checkpoint, or their moving average, to `target`; return that checkpoint.

    `warn` is called for each damaged checkpoint. Raises UserError without a sound one, or if `target` can't be written.
    """
    mirror.fetch_checkpoints(paths, submissions.read(paths))
    newest = checkpoints.newest_sound(paths.checkpoints, warn)
    if newest is None and checkpoints.newest(paths):
        raise UserError(
            f"no checkpoint of run {paths.id} can be exported: each is damaged or can't be read",
            f"Make them readable, or restore one from a backup: {paths.checkpoints}",
        )
    if newest is None:
        raise UserError(
            f"run {paths.id} has no sound checkpoint yet",
            "a run of a task writes one at its end and every --checkpoint-every updates",
        )
    source = newest.averaged if averaged else newest.model
    if not source:
        raise UserError(
            f"run {paths.id} keeps no average of its weights",
            "leave out --averaged, or train with --average-decay 0.999",
        )
    staging = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _join(source, staging, newest.update)
        staging.replace(target)
    except OSError as error:
        staging.unlink(missing_ok=True)
        raise UserError(f"{target} can't be written: {error.strerror}", "choose a file that you may write") from None
    return newest
