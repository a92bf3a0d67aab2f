"""Which data sets a run would find."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from trainjob.contract.manifest import find, names, read_manifest
from trainjob.data.checking import files_of


class Listed(NamedTuple):
    """One line of `trainjob data list`."""

    name: str
    folder: Path
    samples: Dict[str, int]  # by split
    bytes: int


def list_prepared(data_dir: Optional[Path]) -> List[Listed]:
    """Return the data sets that a run would find, by name."""
    found = ((name, find(name, data_dir)) for name in names(data_dir))
    listed = (_listed(name, folder) for name, folder in found if folder is not None)
    return [one for one in listed if one is not None]


def _listed(name: str, folder: Path) -> Optional[Listed]:
    manifest = read_manifest(folder)
    if manifest is None:  # removed while we look
        return None
    samples = {split: facts.samples for split, facts in manifest.splits.items()}
    return Listed(name, folder, samples, sum(facts.bytes for facts in files_of(manifest)))
