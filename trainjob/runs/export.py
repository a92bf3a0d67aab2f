"""The trained model as plain weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainjob.contract import checkpoints
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.submit import mirror


def export(paths: RunPaths, target: Path, warn: Callable[[str], None]) -> checkpoints.Checkpoint:
    """Copy the newest sound checkpoint's weights to `target` and return that checkpoint; `warn` is told of broken ones.

    Raises UserError when the run has none, or when `target` can't be written.
    """
    mirror.fetch_checkpoints(paths)
    found = checkpoints.newest_sound(paths.checkpoints, warn)
    if found is None:
        raise UserError(
            f"run {paths.id} has no sound checkpoint yet: a run of a task makes one at its end and every "
            "--checkpoint-every updates"
        )
    staging = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(found.model, staging)
        staging.replace(target)
    except OSError as error:
        staging.unlink(missing_ok=True)
        raise UserError(f"{target} can't be written: {error.strerror}") from None
    return found
