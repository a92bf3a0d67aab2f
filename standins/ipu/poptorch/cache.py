"""The traces of compiling: a file for each model in the executables' folder, and a progress bar; and saved models.

A file here holds no executable, and saves no time: it has one line for each time that its model was compiled, so that a
model compiled once by one process, and found by all others, has one line.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any, Dict, Sequence

import torch
from trainjob_standins.announce import warn

from poptorch.errors import Error

if TYPE_CHECKING:
    from poptorch.options import Options

# Where an executable runs, and what is shown of it: it is the same executable.
_ABOUT_RUNS = (
    "Distributed",
    "compilation_progress_bar",
    "connection_type",
    "executable_cache",
    "ipu_id",
    "log_cycle_count",
    "log_dir",
    "max_repeat_logs",
    "offline_ipu_version",
    "profile_dir",
    "random_seed",
)


def finds(options: Options, model: torch.nn.Module, expected: Sequence[object]) -> bool:
    """Return whether the model is in the folder that the options name; it is from now on. False without a folder."""
    folder = options.executable_cache
    if not folder:
        return False
    what = {"model": str(model), "inputs": str(expected), "options": str(sorted(_compiled(options).items()))}
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
    path = os.path.join(folder, name + ".standin")
    if os.path.exists(path):
        return True
    os.makedirs(folder, exist_ok=True)
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(what) + "\n")
    return False


def _compiled(options: Options) -> Dict[str, str]:
    """Return as text the options that an executable is compiled with."""
    found: Dict[str, Any] = options.toDict()
    return {name: _text(value) for name, value in found.items() if name not in _ABOUT_RUNS}


def _text(value: object) -> str:
    # An object's own text may hold its address.
    plain = isinstance(value, (int, float, str, bool, list, tuple, dict, type(None)))
    return repr(value) if plain else "%s %s" % (type(value).__name__, getattr(value, "__dict__", ""))


def show_progress(seconds: float) -> None:
    """Write the bar of a compilation that is over."""
    minutes, rest = divmod(int(seconds), 60)
    sys.stderr.write("Graph compilation: 100%%|##########| 100/100 [%02d:%02d<00:00]\n" % (minutes, rest))
    sys.stderr.flush()


def leave_profile(options: Options, training: bool) -> None:
    """Write a file where a profile would be, if the options ask for one: a stand-in measures nothing."""
    profiled: Dict[str, Any] = options.toDict()
    if profiled["profile_dir"]:
        folder = os.path.join(
            profiled["profile_dir"], profiled["model_name"] or ("training" if training else "inference")
        )
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "profile.pop"), "w", encoding="utf-8") as stream:
            stream.write("no profile: a stand-in ran here, and no IPU\n")


def write(kept: Dict[str, object], filename: str) -> None:
    """Write what a compiled model is made of to `filename`, or to model.poptorch in it where that is a folder."""
    folder = os.path.dirname(filename)
    if folder:
        os.makedirs(folder, exist_ok=True)
    if os.path.isdir(filename):
        warn("save(): %s is a directory, saving model to %s/model.poptorch" % (filename, filename))
        filename = os.path.join(filename, "model.poptorch")
    torch.save(kept, filename)


def read(filename: str) -> Dict[str, Any]:
    """Return what `write` wrote to `filename`. Raises Error for a file of something else."""
    try:
        try:
            kept = torch.load(filename, weights_only=False)
        except TypeError:  # torch < 1.13 has no such argument
            kept = torch.load(filename)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise Error("Invalid file %s: %s" % (filename, error)) from None
    if not isinstance(kept, dict) or "expected" not in kept:
        raise Error("Invalid file %s: it holds no compiled model" % filename)
    return kept
