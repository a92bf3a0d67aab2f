"""Writing checkpoints: complete or absent, the last few kept, never by a stale attempt."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import torch

from trainjob.contract import checkpoints
from trainjob.contract.files import sync_folder, write_json
from trainjob.contract.paths import RunPaths
from trainjob.train import safetensors
from trainjob.train.engines.base import State

# In training.safetensors, before the names of what belongs to the precision; all others are the optimizer's.
PRECISION = "precision/"


class CheckpointWriter:
    """Writes behind the training: what is saved is copied at once, and reaches the disk while updates go on."""

    def __init__(
        self, paths: RunPaths, keep: int, before_it_lasts: Callable[[], None], warn: Callable[[str], None]
    ) -> None:
        self._paths = paths
        self._keep = keep
        self._before_it_lasts = before_it_lasts  # raises where this attempt may not write
        self._warn = warn
        self._copies = Copies()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Optional["Future[bool]"] = None

    def save(self, update: int, state: State, facts: Dict[str, Any]) -> None:
        """Begin to write the checkpoint of `update`, after the one before it is done."""
        self.finish()
        self._under_way = self._writer.submit(self._write, update, self._copies.of(state), facts)

    def finish(self) -> bool:
        """Wait for the checkpoint under way; return whether the last one saved is durable.

        Raises what `before_it_lasts` raised.
        """
        return self._under_way is None or self._under_way.result()

    def close(self) -> None:
        """Wait for the checkpoint under way, and write no more."""
        self._writer.shutdown()

    def _write(self, update: int, state: State, facts: Dict[str, Any]) -> bool:
        """Write one checkpoint; False, with a loud warning and the older ones untouched, where the disk refuses."""
        folder = self._paths.checkpoint(update)
        staging = folder.with_name(".%s.%d.part" % (folder.name, os.getpid()))
        try:
            _fill(staging, state, facts)
            self._before_it_lasts()
            _move(staging, folder)
        except OSError as error:
            self._warn(
                "WARNING: the checkpoint of update %d was NOT written: %s. Training goes on; the checkpoint before it "
                "stays. Make room on the disk of %s" % (update, error, self._paths.checkpoints)
            )
            return False
        finally:
            shutil.rmtree(str(staging), ignore_errors=True)
        self._remove_old(update)
        return True

    def _remove_old(self, newest: int) -> None:
        # One that claims a later update was passed over as broken, or the run went back behind it.
        mine = [
            folder for folder in checkpoints.folders(self._paths.checkpoints) if checkpoints.update_of(folder) <= newest
        ]
        for folder in set(checkpoints.folders(self._paths.checkpoints)) - set(mine[: self._keep]):
            _remove(folder)


def remove_left_behind(paths: RunPaths) -> None:
    """Remove what earlier attempts were writing or removing when they were killed."""
    if paths.checkpoints.is_dir():
        for folder in paths.checkpoints.glob(".update-*"):
            shutil.rmtree(str(folder), ignore_errors=True)


class Copies:
    """Memory on the host that one state after the other is copied into.

    It is kept, because the training waits for the copy, and to fresh memory that takes six times as long (measured).
    """

    def __init__(self) -> None:
        self._kept: Dict[Tuple[int, str], Any] = {}

    def of(self, state: State) -> State:
        """Return a copy of `state`, in whose place the next one will be."""
        parts = [
            {name: self._copy((number, name), tensor) for name, tensor in tensors.items()}
            for number, tensors in enumerate(state)
        ]
        return State(*parts)

    def _copy(self, key: Tuple[int, str], tensor: Any) -> Any:
        kept = self._kept.get(key)
        if kept is None or (kept.shape, kept.dtype) != (tensor.shape, tensor.dtype):
            kept = self._kept[key] = torch.empty(tensor.shape, dtype=tensor.dtype)
        return kept.copy_(tensor.detach())


def _fill(staging: Path, state: State, facts: Dict[str, Any]) -> None:
    staging.parent.mkdir(exist_ok=True)
    staging.mkdir()
    files: Dict[str, Any] = {}
    training = {**state.optimizer, **{PRECISION + name: tensor for name, tensor in state.precision.items()}}
    for name, tensors in ((checkpoints.MODEL, state.model), (checkpoints.TRAINING, training)):
        written = safetensors.save_durably(staging / name, tensors, {"update": str(facts["update"])})
        files[name] = written._asdict()
    write_json(staging / checkpoints.INDEX, dict(facts, files=files))


def _move(staging: Path, folder: Path) -> None:
    if folder.exists():
        # Only one that was found broken is ever written again.
        _remove(folder)
    os.rename(str(staging), str(folder))
    sync_folder(folder.parent)


def _remove(folder: Path) -> None:
    hidden = folder.with_name(".%s.removed" % folder.name)
    shutil.rmtree(str(hidden), ignore_errors=True)
    os.rename(str(folder), str(hidden))
    shutil.rmtree(str(hidden), ignore_errors=True)
