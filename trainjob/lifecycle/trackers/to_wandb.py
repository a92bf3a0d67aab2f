"""An offline run of Weights & Biases, which `wandb sync` uploads; each export writes it anew."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.lifecycle.trackers.history import Exported, History, plain_id


def export(history: History, target: str) -> Exported:
    """Write a run below TARGET/wandb, in place of what an earlier export wrote there. Raises UserError."""
    try:
        import wandb
    except ImportError:
        raise UserError(
            "--wandb-offline needs the package wandb", "pip install 'trainjob[wandb]'", "missing-package"
        ) from None
    run_id = plain_id(history.name, "-_.")
    folder = Path(target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--wandb-offline {target}: the folder can't be made: {error.strerror}",
            "choose a folder that you may write",
        ) from None
    earlier = _folders(folder, run_id)
    try:
        run, lines = _started(wandb, history, folder, run_id), 0
        for point in history.points():
            at = {"_timestamp": history.began_at_s + point.elapsed_s}
            # Its steps only grow, and training and evaluation log the same update.
            run.log({**point.figures, "update": point.update, **at})
            lines += 1
        run.summary["state"] = history.state
        run.finish(exit_code=0 if history.state in (*states.ACTIVE, states.COMPLETED, states.STOPPED) else 1)
    except wandb.errors.Error as error:
        raise UserError(
            f"--wandb-offline {target}: wandb can't write the run: {error}", "choose a folder that you may write"
        ) from None
    for old in earlier:
        shutil.rmtree(old, ignore_errors=True)
    written = [one for one in _folders(folder, run_id) if one not in earlier]
    return Exported(str(written[0] if written else folder), lines)


def _started(wandb: Any, history: History, folder: Path, run_id: str) -> Any:
    run = wandb.init(
        mode="offline",
        dir=str(folder),
        id=run_id,
        name=history.name,
        project=os.environ.get("WANDB_PROJECT") or plain_id(history.group, "-_."),
        config={**history.settings, "places": dict(history.places)},
        # What runs here is the export: its machine, code and output say nothing about the run.
        settings=wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True
        ),
    )
    run.define_metric("update")
    run.define_metric("*", step_metric="update")
    return run


def _folders(folder: Path, run_id: str) -> list[Path]:
    own = re.compile(rf"offline-run-\d{{8}}_\d{{6}}-{re.escape(run_id)}")
    found = (folder / "wandb").glob("offline-run-*")
    return sorted(one for one in found if own.fullmatch(one.name) and not one.is_symlink())
