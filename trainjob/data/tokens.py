"""Tokens: text as bytes, the documentation that comes with Python, and token files made by other programs.

A split is one file of uint16 or uint32 numbers. Text becomes one token a byte, so that the vocabulary is 256; byte 0,
which no text holds, stands after every document.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional

import numpy as np

from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.data.checking import Say
from trainjob.data.manifest import PYTHON_DOCS, TOKENS, Manifest, SplitFacts
from trainjob.data.shards import split_facts
from trainjob.data.writing import write_file

_BYTES = 256
_END = b"\0"
_HELD_OUT_SHARE = 10  # one in so many tokens
_TEXTS = (".txt", ".md", ".rst", ".py")
_CHUNK = 1 << 22  # tokens
DTYPES = ("uint16", "uint32")
_DOCS_ORIGIN = "the topics of help() in Python %s" % platform.python_version()


# -- text --------------------------------------------------------------------------------------


def fill_text(
    staging: Path,
    say: Say,  # noqa: ARG001 - see prepare.Way
    name: str,
    origin: str,
    source: str,
    held_out: Optional[int] = None,
) -> Manifest:
    """Write the text files in `source`, a file or a folder, as tokens. Raises UserError."""
    path = with_home(source)
    files = (
        sorted(one for one in path.rglob("*") if one.suffix in _TEXTS and one.is_file()) if path.is_dir() else [path]
    )
    texts = [text for text in map(_text, files) if text]
    if not texts:
        raise UserError("%s holds no text: no file that ends in %s" % (path, ", ".join(_TEXTS)), "correct --from")
    return _write(staging, name, _splits_of(name, texts, held_out), origin)


def _text(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        content.decode("utf-8")
    except OSError as error:
        raise UserError("%s can't be read: %s" % (path, error.strerror), "correct --from") from None
    except UnicodeDecodeError as error:
        raise UserError("%s is not UTF-8 text: %s" % (path, error), "convert the file, or leave it out") from None
    if _END in content:
        raise UserError("%s is not text: it has a byte 0, which marks the end of a document" % path, "leave it out")
    return content


def _splits_of(name: str, texts: List[bytes], held_out: Optional[int] = None) -> Dict[str, np.ndarray]:
    """Return the tokens of `texts` by split: the last `held_out` of them, else a tenth, are held out."""
    tokens = np.frombuffer(b"".join(text + _END for text in texts), np.uint8).astype(np.uint16)
    last = len(tokens) // _HELD_OUT_SHARE if held_out is None else held_out
    if not 0 <= last < len(tokens):
        raise UserError(
            "%s has %d tokens, and %d are to be held out" % (name, len(tokens), last),
            "give --held-out below %d" % len(tokens),
        )
    parts = {"train": tokens[: len(tokens) - last], "test": tokens[len(tokens) - last :]}
    return {split: part for split, part in parts.items() if len(part)}


def _write(
    staging: Path,
    name: str,
    splits: Mapping[str, np.ndarray],
    origin: str,
    dtype: str = "uint16",
    vocabulary: int = _BYTES,
) -> Manifest:
    written = {}
    for split, tokens in splits.items():
        chunks = (part.tobytes() for part in _chunks(tokens))
        written[split] = SplitFacts(len(tokens), {"tokens": write_file(staging / (split + "-tokens.bin"), chunks)})
    return _manifest(name, dtype, vocabulary, written, origin)


def _chunks(tokens: np.ndarray) -> Iterator[np.ndarray]:
    return (tokens[at : at + _CHUNK] for at in range(0, len(tokens), _CHUNK))


def _manifest(name: str, dtype: str, vocabulary: int, splits: Dict[str, SplitFacts], origin: str) -> Manifest:
    return Manifest(
        name=name,
        shape=(),
        dtype=dtype,
        label_dtype=dtype,
        classes=vocabulary,
        maximum=vocabulary - 1,
        mean=(),
        std=(),
        splits=splits,
        source=origin,
        licence="PSF-2.0" if name == PYTHON_DOCS else "not stated",
        attribution="Python Software Foundation" if name == PYTHON_DOCS else "not stated",
        kind=TOKENS,
    )


# -- the documentation that comes with Python --------------------------------------------------


def fill_python_docs(staging: Path, say: Say) -> Manifest:  # noqa: ARG001 - see prepare.Way
    """Write the topics that Python's own `help` shows, as tokens: about 420,000 for training."""
    return _write(staging, PYTHON_DOCS, _python_docs(), _DOCS_ORIGIN)


def _python_docs() -> Dict[str, np.ndarray]:
    from pydoc_data import topics

    return _splits_of(PYTHON_DOCS, [topics.topics[topic].strip().encode() for topic in sorted(topics.topics)])


class PythonDocs:
    """The documentation in memory: token for token what `fill_python_docs` would write."""

    def __init__(self) -> None:
        self._splits = _python_docs()
        facts = {split: SplitFacts(len(part), {}) for split, part in self._splits.items()}
        self.manifest = _manifest(PYTHON_DOCS, "uint16", _BYTES, facts, _DOCS_ORIGIN)

    def tokens(self, name: str) -> np.ndarray:
        """Return the tokens of split `name`. Raises UserError if there is none."""
        split_facts(self.manifest, name)
        return self._splits[name]

    def identity(self) -> str:
        """Return a checksum that is equal where the tokens are."""
        return hashlib.sha256(b"".join(part.tobytes() for part in self._splits.values())).hexdigest()


# -- files of tokens ---------------------------------------------------------------------------


def fill_files(
    staging: Path,
    say: Say,  # noqa: ARG001 - see prepare.Way
    name: str,
    origin: str,
    source: str,
    dtype: str = "uint16",
) -> Manifest:
    """Copy the token files in `source`: raw numbers of type `dtype` as train.bin and val.bin, or .npy files.

    A file that is given by itself is the training split. Raises UserError.
    """
    path = with_home(source)
    if dtype not in DTYPES:
        raise UserError("tokens are uint16 or uint32, and --dtype is %s" % dtype, "give --dtype uint16 or uint32")
    files = {"train": path} if path.is_file() else {}
    stems = {"train": ("train",), "test": ("val", "validation", "valid", "test")} if not files else {}
    for split, names in stems.items():
        candidates = (path / (name + suffix) for name in names for suffix in (".bin", ".npy"))
        found = next((file for file in candidates if file.is_file()), None)
        if found is not None:
            files[split] = found
    if "train" not in files:
        raise UserError("%s has no train.bin and no train.npy" % path, "give --from FOLDER with one, or --from FILE")
    maps = {split: _mapped(file, dtype) for split, file in files.items()}
    kinds = {str(tokens.dtype) for tokens in maps.values()}
    if len(kinds) > 1:
        raise UserError("the token files in %s differ in type: %s" % (path, ", ".join(sorted(kinds))), "convert one")
    largest = max(int(part.max()) for tokens in maps.values() for part in _chunks(tokens))
    return _write(staging, name, maps, origin, kinds.pop(), largest + 1)


def _mapped(path: Path, dtype: str) -> np.ndarray:
    if path.suffix == ".npy":
        tokens: np.ndarray = np.load(str(path), mmap_mode="r", allow_pickle=False)
        if str(tokens.dtype) not in DTYPES or tokens.ndim != 1:
            raise UserError(
                "%s holds %s of shape %s, and tokens are one row of uint16 or uint32"
                % (path, tokens.dtype, tokens.shape),
                "convert the file",
            )
    else:
        size, width = os.path.getsize(str(path)), np.dtype(dtype).itemsize
        if size % width:
            raise UserError("%s has %d bytes, and a token of %s has %d" % (path, size, dtype, width), "give --dtype")
        tokens = np.memmap(str(path), dtype=dtype, mode="r") if size else np.zeros(0, dtype)
    if not len(tokens):
        raise UserError("%s holds no tokens" % path, "correct --from")
    return tokens
