"""Tokens: text as bytes, the documentation that comes with Python, and token files that somebody else has made.

A split is one file of uint16 or uint32 numbers. Text becomes one token a byte, so that the vocabulary is 256; byte 0,
which no text holds, stands after every document.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import numpy as np

from trainjob.contract.errors import UserError
from trainjob.data.manifest import PYTHON_DOCS, TOKENS, FileFacts, Manifest, SplitFacts
from trainjob.data.shards import split_facts
from trainjob.data.writing import write_file

_BYTES = 256
_END = b"\0"
_HELD_OUT_SHARE = 10  # one in so many tokens
_TEXTS = (".txt", ".md", ".rst", ".py")
_CHUNK = 1 << 22  # tokens
DTYPES = ("uint16", "uint32")


# -- text --------------------------------------------------------------------------------------


def fill_text(staging: Path, name: str, source: str, held_out: Optional[int], origin: str) -> Manifest:
    """Write the text files in `source`, a file or a folder, as tokens. Raises UserError."""
    path = Path(source).expanduser()
    files = (
        sorted(one for one in path.rglob("*") if one.suffix in _TEXTS and one.is_file()) if path.is_dir() else [path]
    )
    texts = [text for text in map(_text, files) if text]
    if not texts:
        raise UserError("%s holds no text: no file that ends in %s" % (path, ", ".join(_TEXTS)), "correct --from")
    return _write(staging, name, _parts(name, _of_texts(texts), held_out), origin)


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


def _of_texts(texts: List[bytes]) -> Any:
    return np.frombuffer(b"".join(text + _END for text in texts), np.uint8).astype(np.uint16)


def _parts(name: str, tokens: Any, held_out: Optional[int]) -> Dict[str, Any]:
    """Return the splits of `tokens`: the last `held_out` of them, else a tenth, are held out."""
    last = len(tokens) // _HELD_OUT_SHARE if held_out is None else held_out
    if not 0 <= last < len(tokens):
        raise UserError(
            "%s has %d tokens, and %d are to be held out" % (name, len(tokens), last),
            "give --held-out below %d" % len(tokens),
        )
    parts = {"train": tokens[: len(tokens) - last], "test": tokens[len(tokens) - last :]}
    return {split: part for split, part in parts.items() if len(part)}


def _write(
    staging: Path, name: str, parts: Dict[str, Any], origin: str, dtype: str = "uint16", vocabulary: int = _BYTES
) -> Manifest:
    splits = {split: SplitFacts(len(part), {"tokens": _copy(staging, split, part)}) for split, part in parts.items()}
    return _manifest(name, dtype, vocabulary, splits, origin)


def _copy(staging: Path, split: str, tokens: Any) -> FileFacts:
    chunks: Iterator[bytes] = (tokens[at : at + _CHUNK].tobytes() for at in range(0, len(tokens), _CHUNK))
    return write_file(staging / (split + "-tokens.bin"), chunks)


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


def fill_python_docs(staging: Path) -> Manifest:
    """Write the topics that Python's own `help` shows, as tokens: about 420,000 for training."""
    return _write(staging, PYTHON_DOCS, _python_docs(), _docs_origin())


def _docs_origin() -> str:
    return "the topics of help() in Python %s" % platform.python_version()


def _python_docs() -> Dict[str, Any]:
    from pydoc_data import topics

    texts = [topics.topics[topic].strip().encode() for topic in sorted(topics.topics)]
    return _parts(PYTHON_DOCS, _of_texts(texts), None)


class PythonDocs:
    """The documentation in memory: token for token what `fill_python_docs` would write."""

    def __init__(self) -> None:
        self._splits = _python_docs()
        facts = {split: SplitFacts(len(part), {}) for split, part in self._splits.items()}
        self.manifest = _manifest(PYTHON_DOCS, "uint16", _BYTES, facts, _docs_origin())

    def tokens(self, name: str) -> Any:
        """Return the tokens of split `name`. Raises UserError if there is none."""
        split_facts(self.manifest, name)
        return self._splits[name]

    def identity(self) -> str:
        """Return a checksum that is equal where the tokens are."""
        return hashlib.sha256(b"".join(part.tobytes() for part in self._splits.values())).hexdigest()


# -- files of tokens ---------------------------------------------------------------------------


def fill_files(staging: Path, name: str, source: str, dtype: str, origin: str) -> Manifest:
    """Copy the token files in `source`: raw numbers of type `dtype` as train.bin and val.bin, or .npy files.

    A file that is given by itself is the training split. Raises UserError.
    """
    path = Path(source).expanduser()
    if dtype not in DTYPES:
        raise UserError("tokens are uint16 or uint32, and --dtype is %s" % dtype, "give --dtype uint16 or uint32")
    files = {"train": path} if path.is_file() else _token_files(path)
    if "train" not in files:
        raise UserError("%s has no train.bin and no train.npy" % path, "give --from FOLDER with one, or --from FILE")
    maps = {split: _mapped(file, dtype) for split, file in files.items()}
    kinds = {str(tokens.dtype) for tokens in maps.values()}
    if len(kinds) > 1:
        raise UserError("the token files in %s differ in type: %s" % (path, ", ".join(sorted(kinds))), "convert one")
    largest = max(
        int(tokens[at : at + _CHUNK].max()) for tokens in maps.values() for at in range(0, len(tokens), _CHUNK)
    )
    return _write(staging, name, maps, origin, kinds.pop(), largest + 1)


def _token_files(folder: Path) -> Dict[str, Path]:
    files: Dict[str, Path] = {}
    for split, stems in (("train", ("train",)), ("test", ("val", "validation", "valid", "test"))):
        candidates = [folder / (stem + suffix) for stem in stems for suffix in (".bin", ".npy")]
        present = [one for one in candidates if one.is_file()]
        if present:
            files[split] = present[0]
    return files


def _mapped(path: Path, dtype: str) -> Any:
    if path.suffix == ".npy":
        tokens = np.load(str(path), mmap_mode="r", allow_pickle=False)
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
