"""Reading a pickle of numpy arrays from somebody else: loading executes nothing that it brings along."""

from __future__ import annotations

import pickle
from typing import Any, BinaryIO, Callable, Dict, Tuple

import numpy as np

from trainjob.contract.errors import UserError


class ForeignPickleError(UserError):
    """A pickle asks for something other than numpy arrays and Python's own values."""

    code = "foreign-pickle"


def _encode(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes this way for Python 2; any other codec could be code.
    if encoding != "latin1":
        raise ForeignPickleError("a pickle encodes text as %s, and only latin1 is how bytes are written" % encoding)
    return text.encode("latin1")


def _reconstruct(kind: Any, shape: Any, code: Any) -> Any:
    # numpy makes every array this way: empty, filled by the state that follows.
    if kind is not np.ndarray or tuple(shape) != (0,):
        raise ForeignPickleError("a pickle makes an array of %s %s, and only plain arrays are read" % (kind, shape))
    return np.ndarray.__new__(np.ndarray, shape, code)


_ADMITTED: Dict[Tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # numpy ≥ 2
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return what the pickle names, where it is one of the few. Raises ForeignPickleError."""
        admitted = _ADMITTED.get((module, name))
        if admitted is None:
            raise ForeignPickleError(
                "a pickle asks for %s.%s, and only numpy arrays, numbers, text, lists and dictionaries are read: "
                "loading anything else could run code" % (module, name)
            )
        return admitted


def load(stream: BinaryIO, what: str) -> Any:
    """Return the value in `stream`, Python 2's texts as bytes. Raises ForeignPickleError, naming `what` was read."""
    try:
        return _Unpickler(stream, encoding="bytes").load()
    except ForeignPickleError as error:
        raise ForeignPickleError("%s: %s" % (what, error)) from None
    except Exception as error:  # noqa: BLE001 - damaged pickles fail in any way whatever
        raise UserError(
            "%s is not a pickle that can be read: %s" % (what, error), "the archive is damaged: download it again"
        ) from None
