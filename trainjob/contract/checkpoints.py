"""Checkpoints as folders: which there are, and which of them are whole. Knows nothing of tensors.

checkpoints/update-00000200/ holds model.safetensors, training.safetensors and index.json, which has the size and the
SHA-256 of both. The folder appears complete or not at all; what a disk or a hand does to it later is seen here.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from trainjob.contract.errors import UserError
from trainjob.contract.files import read_json
from trainjob.contract.job import CONTRACT

MODEL = "model.safetensors"
TRAINING = "training.safetensors"
INDEX = "index.json"
_NAME = re.compile(r"update-(\d{8,})\Z")
_CHUNK = 1 << 20


class NewerContractError(UserError):
    """A checkpoint was made under a contract that this code does not speak."""


class Checkpoint(NamedTuple):
    """One checkpoint folder that is whole."""

    folder: Path
    update: int
    facts: Dict[str, Any]  # index.json

    @property
    def model(self) -> Path:
        """The weights and buffers."""
        return self.folder / MODEL

    @property
    def training(self) -> Path:
        """The optimizer's state."""
        return self.folder / TRAINING


def folders(checkpoints: Path) -> List[Path]:
    """Return the checkpoint folders under `checkpoints`, newest first, whole or not."""
    if not checkpoints.is_dir():
        return []
    found = [folder for folder in checkpoints.iterdir() if _NAME.match(folder.name)]
    return sorted(found, key=update_of, reverse=True)


def update_of(folder: Path) -> int:
    """Return the weight update after which the checkpoint in `folder` was made."""
    match = _NAME.match(folder.name)
    if match is None:
        raise ValueError(folder.name)
    return int(match.group(1))


def problem(folder: Path) -> Optional[str]:
    """Return what is wrong with the checkpoint in `folder`, in words; None when it is whole.

    Reads every byte. Raises NewerContractError for a checkpoint that only a newer trainjob can judge.
    """
    index = read_json(folder / INDEX)
    if not isinstance(index, dict) or not isinstance(index.get("files"), dict):
        return "%s is missing or broken" % INDEX
    _refuse_newer(folder, index)
    for name in (MODEL, TRAINING):
        facts = index["files"].get(name)
        if not isinstance(facts, dict):
            return "%s does not mention %s" % (INDEX, name)
        found = _problem_of_file(folder / name, facts)
        if found:
            return found
    return None


def _refuse_newer(folder: Path, index: Dict[str, Any]) -> None:
    number = index.get("contract")
    if not isinstance(number, int) or number > CONTRACT:
        raise NewerContractError(
            "checkpoint %s speaks contract %s and this trainjob speaks %d: use the trainjob that wrote it"
            % (folder, number, CONTRACT)
        )


def _problem_of_file(path: Path, facts: Dict[str, Any]) -> Optional[str]:
    if not path.is_file():
        return "%s is missing" % path.name
    size = path.stat().st_size
    if size != facts.get("bytes"):
        return "%s has %d bytes and should have %s" % (path.name, size, facts.get("bytes"))
    found = sha256_of(path)
    if found != facts.get("sha256"):
        return "%s has sha256 %s and should have %s" % (path.name, found, facts.get("sha256"))
    return None


def newest_sound(checkpoints: Path, warn: Callable[[str], None]) -> Optional[Checkpoint]:
    """Return the newest checkpoint that is whole; None where there is none.

    `warn` is told of each one that is passed over. Raises NewerContractError.
    """
    for folder in folders(checkpoints):
        trouble = problem(folder)
        if trouble is None:
            return read(folder)
        warn("checkpoint %s is passed over: %s" % (folder, trouble))
    return None


def read(folder: Path) -> Checkpoint:
    """Return the checkpoint in `folder`, which `problem` found whole."""
    index: Dict[str, Any] = read_json(folder / INDEX) or {}
    return Checkpoint(folder, update_of(folder), index)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(str(path), "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()
