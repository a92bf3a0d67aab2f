"""Reading a prepared data set: its splits as memory maps, nothing loaded until a sample is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Optional, Protocol, Tuple, Union

import numpy as np

from trainjob.contract.errors import UserError
from trainjob.data.checking import check_size
from trainjob.data.manifest import (
    ENCODED,
    FILE_NAME,
    SOURCE,
    FileFacts,
    Manifest,
    SplitFacts,
    find,
    not_prepared,
    read_manifest,
)
from trainjob.records.checkpoints import sha256_of


class Split(NamedTuple):
    """One split. Arrays are read-only memory maps."""

    images: Any  # (samples, channels, height, width) uint8; or data.encoded.EncodedImages
    labels: Any  # (samples,)


class DataSet(Protocol):
    """A data set that samples are read from."""

    @property
    def manifest(self) -> Manifest:
        """Return what it holds."""

    def split(self, name: str) -> Split:
        """Return split `name`. Raises UserError if there is none."""

    def identity(self) -> str:
        """Return a checksum that is equal where the samples are."""


class TokenSet(Protocol):
    """A data set that tokens are read from."""

    @property
    def manifest(self) -> Manifest:
        """Return what it holds."""

    def tokens(self, name: str) -> Any:
        """Return the tokens of split `name`, one after the other. Raises UserError if there is none."""

    def identity(self) -> str:
        """Return a checksum that is equal where the tokens are."""


class Shards:
    """A prepared data set: its manifest, and its splits by name."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def identity(self) -> str:
        """Return the checksum of its manifest, which has the checksums of all files."""
        return sha256_of(self.folder / FILE_NAME)

    def split(self, name: str) -> Split:
        """Return split `name` as memory maps. Raises UserError if there is no such split, or a file is cut."""
        facts = split_facts(self.manifest, name)
        if self.manifest.kind == ENCODED:
            from trainjob.data.encoded import FILES, SAMPLES, EncodedImages

            samples = self._map(facts.files["samples"], SAMPLES, (facts.samples,))
            files = self._map(facts.files["files"], FILES, (facts.files["files"].bytes // FILES.itemsize,))
            names = self._map(facts.files["names"], "uint8", (facts.files["names"].bytes,))
            copied = self.folder / SOURCE
            root = copied if copied.is_dir() else Path(self.manifest.root or self.folder)
            encoded = EncodedImages(self.manifest.name, root, self.manifest.shape, samples, files, names)
            return Split(encoded, samples["label"])
        shape = (facts.samples, *self.manifest.shape)
        images = self._map(facts.files["images"], self.manifest.dtype, shape)
        return Split(images, self._map(facts.files["labels"], self.manifest.label_dtype, shape[:1]))

    def tokens(self, name: str) -> Any:
        """Return the tokens of split `name` as a memory map. Raises UserError as `split` does."""
        facts = split_facts(self.manifest, name)
        return self._map(facts.files["tokens"], self.manifest.dtype, (facts.samples,))

    def check_sources(self) -> None:
        """Read every byte of the files that an index names. Raises UserError at the first that changed."""
        if self.manifest.root:
            for name in self.manifest.splits:
                self.split(name).images.check_files()

    def require(self, *kinds: str) -> Shards:
        """Return itself. Raises UserError unless it holds data of one of `kinds`."""
        if self.manifest.kind not in kinds:
            raise UserError(
                "data set %s holds %s and the task reads %s" % (self.manifest.name, self.manifest.kind, kinds[0]),
                "use another data set or another task",
            )
        return self

    def _map(self, facts: FileFacts, dtype: "Union[str, np.dtype]", shape: Tuple[int, ...]) -> np.ndarray:
        check_size(self.folder, self.manifest.name, facts)
        return np.memmap(str(self.folder / facts.file), dtype=np.dtype(dtype), mode="r", shape=shape)


def split_facts(manifest: Manifest, name: str) -> SplitFacts:
    """Return what the manifest says of split `name`. Raises UserError if there is none."""
    facts = manifest.splits.get(name)
    if facts is None:
        raise UserError(
            "data set %s has no split %s" % (manifest.name, name), "it has %s" % ", ".join(sorted(manifest.splits))
        )
    return facts


def open_data_set(folder: Path) -> Shards:
    """Return the prepared data set in `folder`. Raises UserError if there is none."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise not_prepared(folder.name, folder.parent)
    return Shards(folder, manifest)


def open_by_name(name: str, data_dir: Optional[Path]) -> Shards:
    """Return data set `name`, from `data_dir` or as shipped. Raises UserError, naming the command that prepares it."""
    folder = find(name, data_dir)
    if folder is None:
        raise not_prepared(name, data_dir)
    return open_data_set(folder)
