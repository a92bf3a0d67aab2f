"""Faults that raise no error on GPUs: noticed while the script runs, reported at the end of the rehearsal."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any, Dict, List, Optional

_notes: "Dict[str, None]" = {}  # in the order in which they were made, each once
_saved: Dict[str, str] = {}  # path -> the line that wrote it first
# A launcher's own hook may wrap what the script calls.
_OTHERS = ("site-packages", "dist-packages", "trainjob_gpu", "trainjob_hooks", "/lib/python", "/sitecustomize.py")
_MOST_LINES = 4


def add(text: str) -> None:
    """Keep one note; it is reported once, however often it is made."""
    _notes.setdefault(text)


def all_notes() -> List[str]:
    """Return the notes, in the order in which they were first made."""
    return list(_notes)


def saved_files() -> Dict[str, str]:
    """Return the files that the script has written, by their whole paths, each with the line that did."""
    return dict(_saved)


def line_of_script() -> str:
    """Return the line of the user's script that is being run: FILE:LINE in FUNCTION."""
    return _lines(1, of_main_thread=False)


def lines_of_script(*, of_main_thread: bool = False) -> str:
    """Return the innermost lines of the user's script that are being run, each called from the next."""
    return _lines(_MOST_LINES, of_main_thread=of_main_thread)


def _lines(most: int, *, of_main_thread: bool) -> str:
    frame = None if of_main_thread else _own(sys._getframe(2))
    if frame is None:
        # Gradients are reduced by a thread of torch's own: the script waits for it in its main thread.
        frame = _own(sys._current_frames().get(threading.main_thread().ident or 0))
    lines: List[str] = []
    while frame is not None and len(lines) < most:
        code = frame.f_code
        lines.append("%s:%d in %s" % (short(code.co_filename), frame.f_lineno, code.co_name))
        frame = _own(frame.f_back)
    return ", called from ".join(lines) or "an unknown line"


def short(path: str) -> str:
    """Return a path as the user wrote it, if it is in the folder that the rank runs in."""
    folder = os.getcwd() + os.sep
    return path[len(folder) :] if path.startswith(folder) else path


def is_own(path: str) -> bool:
    """Return whether a file is the user's: neither Python's, nor an installed package's, nor a stand-in's."""
    return not path.startswith("<") and not any(part in path for part in _OTHERS)


def _own(frame: Optional[FrameType]) -> Optional[FrameType]:
    """Return the innermost frame that is the user's."""
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def loaded_to(index: int) -> None:
    """Note a rank that loads tensors to another rank's GPU, which is what torch.load does without map_location."""
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank and local_rank.isdigit() and int(local_rank) != index:
        add(
            "torch.load at %s puts tensors on cuda:%d, and this is local rank %s: with map_location='cpu' or its own "
            "GPU, not every rank fills the memory of one" % (line_of_script(), index, local_rank)
        )


def watch_sampler(module: Any) -> None:
    """Note a DistributedSampler that goes through its data more than once without set_epoch."""
    sampler = module.DistributedSampler
    iterate, set_epoch = sampler.__iter__, sampler.set_epoch

    def begin(self: Any) -> Any:
        passes = self.__dict__.setdefault("_trainjob_passes", [0, 0])  # begun, and calls of set_epoch
        passes[0] += 1
        if passes[0] > 1 and not passes[1] and self.shuffle:
            add(
                "DistributedSampler goes through its data again without set_epoch (%s): every epoch has the same "
                "order. Call sampler.set_epoch(epoch) before each" % line_of_script()
            )
        return iterate(self)

    def epoch_is_set(self: Any, epoch: int) -> None:
        self.__dict__.setdefault("_trainjob_passes", [0, 0])[1] += 1
        set_epoch(self, epoch)

    sampler.__iter__, sampler.set_epoch = begin, epoch_is_set


def watch_saving(torch: Any) -> None:
    """Keep the names of files that torch.save and open() write."""
    save = torch.save

    def saving(obj: Any, f: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            _written(os.fspath(f))
        return save(obj, f, *arguments, **options)

    torch.save = saving
    sys.addaudithook(_opened)


def _opened(event: str, arguments: Any) -> None:
    if event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in ("w", "x"):
        path = arguments[0]
        # Python's own writes have no line of the script; what goes to devices is no file.
        if isinstance(path, (str, os.PathLike)) and _own(sys._getframe(1)) is not None:
            _written(os.fspath(path))


def _written(path: Any) -> None:
    if isinstance(path, str) and not path.startswith(("/dev/", "/proc/")):
        _saved.setdefault(os.path.abspath(path), line_of_script())
