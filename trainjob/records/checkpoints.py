"""checkpoints/: which there are, and which of them are sound. Knows nothing of tensors.

checkpoints/update-00000200/ holds model.safetensors, training.safetensors and index.json, which has the size and the
SHA-256 of both. A model that instances hold in parts is written in parts, model-00001-of-00004.safetensors and so on.
The folder appears complete or not at all. Later damage is found here: the folder's name, the index and the metadata in
both files must state the same update, and the index this run. The files themselves do not name the run, so that equal
weights give equal files.

checkpoints/run-id has the id of the run that writes here. It stays with a run directory that is copied or renamed.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterable, List, NamedTuple, Optional, Union

from trainjob.contract.errors import UserError
from trainjob.contract.paths import CONTRACT, RunPaths
from trainjob.records.files import DamagedError, load_json, open_regular, read_word
from trainjob.records.safetensors import read_metadata

MODEL = "model.safetensors"
TRAINING = "training.safetensors"
AVERAGED = "averaged.safetensors"  # of a run with --average-decay
INDEX = "index.json"
RUN_ID = "run-id"
_NAME = re.compile(r"update-([0-9]{8}|[1-9][0-9]{8,17})\Z")  # one name for one update
_CHUNK = 1 << 20
_MOST_PARTS = 131_072


DAMAGED = "checkpoints-damaged"
FROM_SCRATCH = "Restore one from a backup, or start over with trainjob resume --from-scratch"


class NewerContractError(UserError):
    """A checkpoint was made under a contract that this code does not speak."""

    code = "newer-checkpoint"


class Checkpoint(NamedTuple):
    """One checkpoint folder that is whole."""

    folder: Path
    update: int
    facts: Dict[str, Any]  # index.json

    @property
    def model(self) -> List[Path]:
        """The weights and buffers: one file, or the parts that the instances wrote."""
        return self._parts(MODEL)

    @property
    def training(self) -> List[Path]:
        """The optimizer's state: a file for each file of the model."""
        return self._parts(TRAINING)

    @property
    def averaged(self) -> List[Path]:
        """The moving average of the weights: a file for each file of the model; empty if the run keeps no average."""
        files = self._parts(AVERAGED)
        return files if any(path.name in self.facts["files"] for path in files) else []

    @property
    def all_files(self) -> List[Path]:
        """Every file that the index must state."""
        return [*self.model, *self.training, *self.averaged]

    def _parts(self, name: str) -> List[Path]:
        return [self.folder / one for one in part_names(name, parts_of(self.facts))]


def is_too_late(durable_s: float, margin_s: float) -> bool:
    """Return whether the last checkpoint may be lost, if a job is asked to stop `margin_s` before its time limit.

    One takes up to `durable_s` until it is on disk. Before the last can be written, the one under way must be durable.
    """
    return 2 * durable_s > margin_s


def margin_for(durable_s: float) -> int:
    """Return a margin that such checkpoints need and a minute more, or the longest that Slurm takes."""
    return min(math.ceil(2 * durable_s) + 60, 65_535)


def parts_of(index: Dict[str, Any]) -> int:
    """Return how many parts the index of a checkpoint states. Raises DamagedError."""
    parts = index.get("parts", 1)
    if type(parts) is not int or not 1 <= parts <= _MOST_PARTS:
        raise DamagedError("%s is missing or broken: parts is %r" % (INDEX, parts))
    return parts


def part_names(name: str, parts: int) -> List[str]:
    """Return the names of the files that hold `name`: model-00001-of-00004.safetensors and so on."""
    if parts == 1:
        return [name]
    stem, _, ending = name.partition(".")
    return ["%s-%05d-of-%05d.%s" % (stem, number, parts, ending) for number in range(1, parts + 1)]


def folders(checkpoints: Path) -> List[Path]:
    """Return the checkpoint folders under `checkpoints`, newest first, sound or not. Raises UserError."""
    try:
        named = [folder for folder in checkpoints.iterdir() if _NAME.match(folder.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError("%s can't be read (%s)" % (checkpoints, error.strerror), "ask whoever owns it") from None
    return sorted(named, key=update_of, reverse=True)


def newest(paths: RunPaths) -> Optional[Path]:
    """Return the folder of a run's newest checkpoint, sound or not; None if there is none. Raises UserError."""
    return next(iter(folders(paths.checkpoints)), None)


class StoredFile(NamedTuple):
    """A file of a checkpoint, as its index states it."""

    bytes: int
    sha256: str


def files_of(folder: Path) -> Optional[Dict[str, StoredFile]]:
    """Return the files of a checkpoint by name, from its index alone; None for a damaged index."""
    try:
        files = load_json(folder / INDEX)["files"]
        return {name: StoredFile(int(one["bytes"]), str(one["sha256"])) for name, one in files.items()}
    except (OSError, DamagedError, TypeError, KeyError, ValueError, AttributeError):
        return None


def update_of(folder: Path) -> int:
    """Return the weight update after which the checkpoint in `folder` was made."""
    match = _NAME.match(folder.name)
    if match is None:
        raise ValueError(folder.name)
    return int(match.group(1))


def run_of(checkpoints: Path) -> str:
    """Return the id of the run whose checkpoints are in the folder `checkpoints`."""
    return read_word(checkpoints / RUN_ID) or RunPaths(checkpoints.parent).id


def _index(folder: Path) -> Dict[str, Any]:
    try:
        index = load_json(folder / INDEX)
    except (FileNotFoundError, DamagedError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else str(error)
        raise DamagedError("%s is missing or broken: %s" % (INDEX, why)) from None
    if not isinstance(index, dict) or not isinstance(index.get("files"), dict):
        raise DamagedError("%s is missing or broken: it lists no files" % INDEX)
    number = index.get("contract")
    if type(number) is not int:
        raise DamagedError("%s is missing or broken: contract is %r, expected a number" % (INDEX, number))
    if number > CONTRACT:
        raise NewerContractError(
            "checkpoint %s speaks contract %s and this trainjob speaks %d" % (folder, number, CONTRACT),
            "use the trainjob that wrote it",
        )
    return index


def read(folder: Path) -> Checkpoint:
    """Return the checkpoint in `folder`, which `check` found sound. Raises UserError if it no longer is."""
    try:
        return Checkpoint(folder, update_of(folder), _index(folder))
    except DamagedError as error:
        raise UserError("checkpoint %s: %s" % (folder, error), "trainjob resume uses an older one") from None


def check(folder: Path) -> Checkpoint:
    """Return the checkpoint in `folder` if it is sound. Reads every byte.

    Raises DamagedError, and NewerContractError for a checkpoint that only a newer trainjob can judge.
    """
    try:
        if folder.is_symlink() or not folder.is_dir():
            raise DamagedError("it is not a folder of its own")
        checkpoint = Checkpoint(folder, update_of(folder), _index(folder))
        for path in checkpoint.all_files:
            facts = checkpoint.facts["files"].get(path.name)
            if not isinstance(facts, dict):
                raise DamagedError("%s does not mention %s" % (INDEX, path.name))
            _refuse_changed(path, facts)
        _refuse_another(checkpoint)
    except OSError as error:
        name = os.path.basename(str(error.filename or folder))
        raise DamagedError("%s can't be read (%s)" % (name, error.strerror or error)) from None
    return checkpoint


def _refuse_changed(path: Path, facts: Dict[str, Any]) -> None:
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != facts.get("bytes"):
                raise DamagedError("%s has %d bytes and should have %s" % (path.name, size, facts.get("bytes")))
            digest = _sha256(stream)
    except FileNotFoundError:
        raise DamagedError("%s is missing" % path.name) from None
    if digest != facts.get("sha256"):
        raise DamagedError("%s has sha256 %s and should have %s" % (path.name, digest, facts.get("sha256")))


def _refuse_another(checkpoint: Checkpoint) -> None:
    """Raise DamagedError where name, index and metadata do not all state the same update of this run."""
    update, index, expected = checkpoint.update, checkpoint.facts, run_of(checkpoint.folder.parent)
    if index.get("update") != update:
        raise DamagedError("%s is of update %r, and the folder of update %d" % (INDEX, index.get("update"), update))
    if index.get("run", expected) != expected:  # earlier versions did not record it
        raise DamagedError("it belongs to run %r, and this is run %s" % (index["run"], expected))
    for path in checkpoint.all_files:
        stated = read_metadata(path).get("update", str(update))
        if stated != str(update):
            raise DamagedError("%s holds update %s, and the folder is of update %d" % (path.name, stated, update))


def newest_sound(checkpoints: Path, warn: Callable[[str], None]) -> Optional[Checkpoint]:
    """Return the newest checkpoint that is sound; None if there is none.

    `warn` is called with a line about each one that is passed over. Raises NewerContractError.
    """
    for folder in folders(checkpoints):
        try:
            return check(folder)
        except DamagedError as error:
            warn("checkpoint %s is passed over: %s" % (folder, error))
    return None


def passed_over(checkpoints: Path) -> List[str]:
    """Return a line about each checkpoint that is newer than the newest sound one.

    Raises UserError if there are checkpoints and none of them is sound: starting over is for the user to decide.
    """
    lines: List[str] = []
    if newest_sound(checkpoints, lines.append) is None and lines:
        raise UserError("%s. No checkpoint of this run is sound" % "; ".join(lines), FROM_SCRATCH, DAMAGED)
    return lines


def set_aside(checkpoints: Path) -> None:
    """Rename every checkpoint folder, so that the next attempt starts over and nothing is lost."""
    for folder in folders(checkpoints):
        target = folder.with_name("set-aside-" + folder.name)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(str(target))
        elif os.path.lexists(str(target)):
            target.unlink()
        folder.rename(target)


def write_durably(path: Path, chunks: Iterable[Union[bytes, memoryview]]) -> StoredFile:
    """Write `chunks` to `path` and fsync the file, but not its folder. Return what an index says of it."""
    # Hashed while writing: reading it again would take CPU time from the training.
    import hashlib  # loads OpenSSL, which a launcher has no use for

    digest = hashlib.sha256()
    with open(str(path), "wb") as stream:
        for chunk in chunks:
            digest.update(chunk)
            stream.write(chunk)
        stream.flush()
        os.fsync(stream.fileno())
        return StoredFile(stream.tell(), digest.hexdigest())


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file as hexadecimal digits."""
    with open_regular(path) as stream:
        return _sha256(stream)


def _sha256(stream: BinaryIO) -> str:
    import hashlib

    digest = hashlib.sha256()
    for chunk in iter(lambda: stream.read(_CHUNK), b""):
        digest.update(chunk)
    return digest.hexdigest()
