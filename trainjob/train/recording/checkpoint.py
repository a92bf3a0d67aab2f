"""Writes checkpoints. Each is complete or absent, the last few are kept, and a stale attempt writes none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.records.files import sync_folder, write_atomically, write_json
from trainjob.records.safetensors import ROWS
from trainjob.train.recording import safetensors
from trainjob.train.recording.state import State, is_sharded, local, rows_of

# Prefix of the precision's tensors in training.safetensors; all other tensors there are the optimizer's.
PRECISION = "precision/"


class CheckpointWriter:
    """Writes in the background: `save` copies the state at once, and training continues while it is written.

    `before_commit` is called right before a checkpoint appears, and raises if this attempt may no longer write; `done`
    is given the update of each checkpoint that is durable, how long training was paused and how long it took until the
    checkpoint was durable; `warn` a line about each that is not. With a `group`, every instance writes its part.
    """

    def __init__(
        self,
        paths: RunPaths,
        keep: int,
        before_commit: Callable[[], None],
        warn: Callable[[str], None],
        done: Callable[[int, float, float], None] = lambda _update, _stood_still_s, _durable_s: None,
        group: Optional[ShardGroup] = None,
    ) -> None:
        self._paths = paths
        self._keep = keep
        self._before_commit = before_commit
        self._warn = warn
        self._done = done
        self._group = group
        self._copies = Copies()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Optional["Future[bool]"] = None
        self.durable_s = 0.0  # from the request until the last durable checkpoint was on disk

    def save(self, update: int, state: State, facts: Mapping[str, object]) -> None:
        """Start writing the checkpoint of `update`, once the previous one is finished."""
        began = clock.monotonic()
        self.finish()
        copy = self._copies.of(state, self._group is None or self._group.part == 0)
        stood_still_s = clock.monotonic() - began
        self._under_way = self._writer.submit(self._write, update, copy, facts, began, stood_still_s)

    def finish(self) -> bool:
        """Wait for the checkpoint being written; return whether the last one saved is durable.

        Raises whatever `before_commit` raised.
        """
        return self._under_way is None or self._under_way.result()

    def close(self) -> None:
        """Wait for the checkpoint being written, and accept no more."""
        self._writer.shutdown()

    def _write(
        self, update: int, state: State, facts: Mapping[str, object], began: float = 0.0, stood_still_s: float = 0.0
    ) -> bool:
        """Write one checkpoint. If the disk refuses it, warn, leave the older ones alone and return False."""
        folder, group = self._paths.checkpoint(update), self._group
        staging = folder.with_name(".%s.%s.part" % (folder.name, os.getpid() if group is None else facts["attempt"]))
        if group is not None and not group.leads:
            return group.follow(staging, state, update)
        try:
            if group is None:
                facts = dict(facts, run=self._run())
                staging.mkdir()
                files = _fill(staging, state, update)
            else:
                files = group.lead(staging, state, update)
                facts = dict(facts, run=self._run(), parts=group.parts)
            write_json(staging / checkpoints.INDEX, dict(facts, files=files))
            self._before_commit()
            if os.path.lexists(str(folder)):
                # Only a damaged checkpoint is ever written a second time.
                remove(folder)
            os.rename(str(staging), str(folder))
            sync_folder(folder.parent)
        except OSError as error:
            self._warn(
                "WARNING: the checkpoint of update %d was NOT written: %s. Training continues, and the previous "
                "checkpoint is still there. Free some space on the disk of %s"
                % (update, error, self._paths.checkpoints)
            )
            return False
        finally:
            shutil.rmtree(str(staging), ignore_errors=True)
        self.durable_s = clock.monotonic() - began
        self._done(update, stood_still_s, self.durable_s)
        # What stays does no harm, and goes with the next checkpoint: also where the folder can't be listed now.
        with contextlib.suppress(UserError):
            every = checkpoints.folders(self._paths.checkpoints)
            # A folder with a later update was skipped as damaged, or the run was set back to before it.
            mine = [old for old in every if checkpoints.update_of(old) <= update]
            for old in set(every) - set(mine[: self._keep]):
                with contextlib.suppress(OSError):
                    remove(old)
        return True

    def _run(self) -> str:
        """Return the run's id, recorded beside its first checkpoint: it stays when the run directory is renamed."""
        record = self._paths.checkpoints / checkpoints.RUN_ID
        if not record.exists():
            record.parent.mkdir(exist_ok=True)
            write_atomically(record, self._paths.id + "\n")
        return checkpoints.run_of(self._paths.checkpoints)


def remove_left_behind(paths: RunPaths) -> None:
    """Remove what earlier attempts were writing or deleting when they were killed."""
    if paths.checkpoints.is_dir():
        for folder in paths.checkpoints.glob(".update-*"):
            _delete(folder)


class TensorPart(NamedTuple):
    """Some rows of a tensor."""

    rows: torch.Tensor
    first_row: int
    all_rows: int


class Copies:
    """Host memory into which each state is copied.

    The buffers are reused, because training waits for the copy and copying into fresh memory takes six times as long
    (measured).
    """

    def __init__(self) -> None:
        self._buffers: Dict[Tuple[int, str], torch.Tensor] = {}

    def of(self, state: State, has_whole: bool = True) -> State:
        """Return a copy of `state`, valid until the next call; without `has_whole`, of sharded tensors alone."""
        parts: List[Dict[str, Any]] = [{} for _ in state]
        for number, tensors in enumerate(state):
            for name, tensor in tensors.items():
                if is_sharded(tensor):
                    rows = rows_of(tensor)
                    parts[number][name] = TensorPart(self._copy((number, name), tensor), rows.start, tensor.shape[0])
                elif has_whole:
                    parts[number][name] = self._copy((number, name), tensor)
        return State(*parts)

    def _copy(self, key: Tuple[int, str], tensor: torch.Tensor) -> torch.Tensor:
        held, buffer = local(tensor.detach()), self._buffers.get(key)
        if buffer is None or (buffer.shape, buffer.dtype) != (held.shape, held.dtype):
            buffer = self._buffers[key] = torch.empty(held.shape, dtype=held.dtype)
        return buffer.copy_(held)


class ShardGroup:
    """The instances that write one checkpoint together: each its `part` of `parts`, or None for a replica's.

    Their threads agree through `gather`, which returns what every instance gave, in the order of ranks.
    """

    def __init__(self, rank: int, part: Optional[int], parts: int, gather: Callable[[object], List[object]]) -> None:
        self.leads = rank == 0
        self.part, self.parts = part, parts
        self._gather = gather

    def lead(self, staging: Path, state: State, update: int) -> Dict[str, object]:
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
        failed = ["rank %d: %s" % (rank, files) for rank, files in enumerate(given) if isinstance(files, str)]
        if failed:
            raise OSError("; ".join(failed))
        return {name: facts for files in given for name, facts in files.items()}

    def follow(self, staging: Path, state: State, update: int) -> bool:
        """Write this instance's part once the folder is there; return whether it ever was."""
        if any(self._gather("")):
            return False
        self._written(staging, state, update)
        return True

    def _written(self, staging: Path, state: State, update: int) -> List[Any]:
        """Write this instance's part. Return each instance's files, or why it could not write them."""
        given: object = {}
        if self.part is not None:
            try:
                given = _fill(staging, state, update, self.part, self.parts)
            except OSError as error:
                given = str(error)
        return self._gather(given)


def _fill(staging: Path, state: State, update: int, part: int = 0, parts: int = 1) -> Dict[str, object]:
    """Write the files of a part, and return their sizes and digests by name."""
    files: Dict[str, object] = {}
    # The run is stated by the index alone: equal weights give equal files, whichever run made them.
    metadata = {"update": str(update)}
    precision = {PRECISION + name: tensor for name, tensor in state.precision.items()}
    contents: Dict[str, Dict[str, Any]] = {
        checkpoints.MODEL: {**state.model},
        checkpoints.TRAINING: {**state.optimizer, **precision},
    }
    if state.average:
        contents[checkpoints.AVERAGED] = {**state.average}
    for kind, tensors in contents.items():
        name = checkpoints.part_names(kind, parts)[part]
        rows = {one: [held.first_row, held.all_rows] for one, held in tensors.items() if isinstance(held, TensorPart)}
        more = {ROWS: json.dumps(rows, sort_keys=True)} if parts > 1 else {}
        plain = {one: held.rows if isinstance(held, TensorPart) else held for one, held in tensors.items()}
        files[name] = safetensors.save_durably(staging / name, plain, {**metadata, **more})
    return files


def remove(folder: Path) -> None:
    """Remove a checkpoint, at once for whoever looks for checkpoints."""
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
