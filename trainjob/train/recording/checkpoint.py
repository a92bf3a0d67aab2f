"""Writes checkpoints. Each is complete or absent, the last few are kept, and a stale attempt writes none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.records.files import sync_folder, write_atomically, write_json
from trainjob.records.safetensors import ROWS
from trainjob.train.recording import safetensors
from trainjob.train.recording.sharded import is_sharded, local, rows_of
from trainjob.train.recording.state import State

# Prefix of the precision's tensors in training.safetensors; all other tensors there are the optimizer's.
PRECISION = "precision/"


class CheckpointWriter:
    """Writes in the background: `save` copies the state at once, and training continues while it is written.

    `before_it_lasts` is called right before a checkpoint appears, and raises if this attempt may no longer write;
    `done` is given the update of each checkpoint that is durable, for how many seconds training stood still and after
    how many it was durable; `warn` a line about each that is not. With a `crew`, every instance writes its part.
    """

    def __init__(
        self,
        paths: RunPaths,
        keep: int,
        before_it_lasts: Callable[[], None],
        warn: Callable[[str], None],
        done: Callable[[int, float, float], None] = lambda _update, _stood_still_s, _durable_s: None,
        crew: Optional[Crew] = None,
    ) -> None:
        self._paths = paths
        self._keep = keep
        self._before_it_lasts = before_it_lasts
        self._warn = warn
        self._done = done
        self._crew = crew
        self._copies = Copies()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Optional["Future[bool]"] = None
        self.durable_s = 0.0  # from the request until the last durable checkpoint was on disk

    def save(self, update: int, state: State, facts: Dict[str, Any]) -> None:
        """Start writing the checkpoint of `update`, once the previous one is finished."""
        began = time.perf_counter()
        self.finish()
        copy = self._copies.of(state, self._crew is None or self._crew.part == 0)
        stood_still_s = time.perf_counter() - began
        self._under_way = self._writer.submit(self._write, update, copy, facts, began, stood_still_s)

    def finish(self) -> bool:
        """Wait for the checkpoint being written; return whether the last one saved is durable.

        Raises whatever `before_it_lasts` raised.
        """
        return self._under_way is None or self._under_way.result()

    def close(self) -> None:
        """Wait for the checkpoint being written, and accept no more."""
        self._writer.shutdown()

    def _write(
        self, update: int, state: State, facts: Dict[str, Any], began: float = 0.0, stood_still_s: float = 0.0
    ) -> bool:
        """Write one checkpoint. If the disk refuses it, warn, leave the older ones alone and return False."""
        folder = self._paths.checkpoint(update)
        if self._crew is not None and not self._crew.leads:
            return self._crew.write(_staging(folder, facts["attempt"]), state, update) is not None
        staging = _staging(folder, os.getpid() if self._crew is None else facts["attempt"])
        try:
            if self._crew is None:
                facts = dict(facts, run=self._run())
                staging.mkdir()
                files = _fill(staging, state, {"update": str(update)})
            else:
                files = self._crew.lead(staging, state, update)
                facts = dict(facts, run=self._run(), parts=self._crew.parts)
            write_json(staging / checkpoints.INDEX, dict(facts, files=files))
            self._before_it_lasts()
            _move(staging, folder)
        except OSError as error:
            self._warn(
                "WARNING: the checkpoint of update %d was NOT written: %s. Training continues, and the previous "
                "checkpoint is still there. Free some space on the disk of %s"
                % (update, error, self._paths.checkpoints)
            )
            return False
        finally:
            shutil.rmtree(str(staging), ignore_errors=True)
        self.durable_s = time.perf_counter() - began
        self._done(update, stood_still_s, self.durable_s)
        self._remove_old(update)
        return True

    def _run(self) -> str:
        """Return the run's id, recorded beside its first checkpoint: it stays when the run directory is renamed."""
        record = self._paths.checkpoints / checkpoints.RUN_ID
        if not record.exists():
            record.parent.mkdir(exist_ok=True)
            write_atomically(record, self._paths.id + "\n")
        return checkpoints.run_of(self._paths.checkpoints)

    def _remove_old(self, newest: int) -> None:
        # What stays does no harm, and goes with the next checkpoint: also where the folder can't be listed now.
        with contextlib.suppress(UserError):
            every = checkpoints.folders(self._paths.checkpoints)
            # A folder with a later update was skipped as damaged, or the run was set back to before it.
            mine = [folder for folder in every if checkpoints.update_of(folder) <= newest]
            for folder in set(every) - set(mine[: self._keep]):
                with contextlib.suppress(OSError):
                    _remove(folder)


def remove_left_behind(paths: RunPaths) -> None:
    """Remove what earlier attempts were writing or deleting when they were killed."""
    if paths.checkpoints.is_dir():
        for folder in paths.checkpoints.glob(".update-*"):
            _delete(folder)


class Copies:
    """Host memory into which each state is copied.

    The buffers are reused, because training waits for the copy and copying into fresh memory takes six times as long
    (measured).
    """

    def __init__(self) -> None:
        self._buffers: Dict[Tuple[int, str], torch.Tensor] = {}

    def of(self, state: State, has_whole: bool = True) -> State:
        """Return a copy of `state`, valid until the next call; without `has_whole`, of sharded tensors alone."""
        parts = [
            {
                name: self._copy((number, name), tensor)
                for name, tensor in tensors.items()
                if has_whole or is_sharded(tensor)
            }
            for number, tensors in enumerate(state)
        ]
        return State(*parts)

    def _copy(self, key: Tuple[int, str], tensor: torch.Tensor) -> Any:
        if is_sharded(tensor):
            return Part(self._copy(key, local(tensor)), rows_of(tensor).start, tensor.shape[0])
        buffer = self._buffers.get(key)
        if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
            buffer = self._buffers[key] = torch.empty(tensor.shape, dtype=tensor.dtype)
        return buffer.copy_(local(tensor.detach()))


class Part(NamedTuple):
    """Some rows of a tensor."""

    rows: torch.Tensor
    first_row: int
    all_rows: int


class Crew:
    """The instances that write one checkpoint together, each its part: `part` of `parts`, or None for a replica's.

    Their threads agree through `gather`, which returns what every instance gave, in the order of ranks.
    """

    def __init__(self, rank: int, part: Optional[int], parts: int, gather: Callable[[Any], List[Any]]) -> None:
        self.leads = rank == 0
        self.part, self.parts = part, parts
        self._gather = gather

    def lead(self, staging: Path, state: State, update: int) -> Dict[str, Any]:
        """Make the folder, and return the files that all have written there. Raises OSError if one of them can't."""
        trouble = ""
        try:
            _delete(staging)
            staging.parent.mkdir(exist_ok=True)
            staging.mkdir()
        except OSError as error:
            trouble = str(error)
        if any(self._gather(trouble)):
            raise OSError(trouble)
        given = self._written(staging, state, update)
        failed = ["rank %d: %s" % (rank, one) for rank, one in enumerate(given) if isinstance(one, str)]
        if failed:
            raise OSError("; ".join(failed))
        return {name: facts for files in given for name, facts in files.items()}

    def write(self, staging: Path, state: State, update: int) -> Optional[List[Any]]:
        """Write this instance's part, once the folder is there."""
        return None if any(self._gather("")) else self._written(staging, state, update)

    def _written(self, staging: Path, state: State, update: int) -> List[Any]:
        given: Any = {}
        if self.part is not None:
            try:
                given = _fill(staging, state, {"update": str(update)}, self.part, self.parts)
            except OSError as error:
                given = str(error)
        return self._gather(given)


def _staging(folder: Path, owner: int) -> Path:
    return folder.with_name(".%s.%d.part" % (folder.name, owner))


def _fill(staging: Path, state: State, metadata: Dict[str, str], part: int = 0, parts: int = 1) -> Dict[str, Any]:
    """Write the files of a part, and return their sizes and digests by name."""
    files: Dict[str, Any] = {}
    # The run is stated by the index alone: equal weights give equal files, whichever run made them.
    precision = {PRECISION + name: tensor for name, tensor in state.precision.items()}
    contents: Dict[str, Dict[str, Any]] = {
        checkpoints.MODEL: {**state.model},
        checkpoints.TRAINING: {**state.optimizer, **precision},
    }
    if state.average:
        contents[checkpoints.AVERAGED] = {**state.average}
    for kind, tensors in contents.items():
        name = checkpoints.part_names(kind, parts)[part]
        rows = {one: [held.first_row, held.all_rows] for one, held in tensors.items() if isinstance(held, Part)}
        more = {ROWS: json.dumps(rows, sort_keys=True)} if parts > 1 else {}
        plain = {one: held.rows if isinstance(held, Part) else held for one, held in tensors.items()}
        files[name] = safetensors.save_durably(staging / name, plain, {**metadata, **more})._asdict()
    return files


def _move(staging: Path, folder: Path) -> None:
    if os.path.lexists(str(folder)):
        # Only a damaged checkpoint is ever written a second time.
        _remove(folder)
    os.rename(str(staging), str(folder))
    sync_folder(folder.parent)


def _remove(folder: Path) -> None:
    hidden = folder.with_name(".%s.removed" % folder.name)
    _delete(hidden)
    os.rename(str(folder), str(hidden))
    _delete(hidden)


def _delete(folder: Path) -> None:
    """Delete a folder, or what a hand has put in its place: a file or a link."""
    with contextlib.suppress(OSError):
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(str(folder), ignore_errors=True)
        else:
            folder.unlink()
