"""What two runs of a script of the user's own left on disk, compared value by value."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.paths import RunPaths
from trainjob.records.files import DamagedError
from trainjob.verify.scripts import saved_states
from trainjob.verify.scripts.saved_states import Leaf, SavedState
from trainjob.verify.scripts.saved_tensors import SavedTensor

WEIGHTS, OPTIMIZER, SCHEDULER, SCALER, AVERAGE = "weights", "optimizer", "scheduler", "scaler", "ema"
RANDOM, COUNTER, SAMPLER, TRACKER, OTHER = "rng", "step-counter", "sampler", "tracker", "other"

# The first that fits a value's path decides. A path has the file's name first, then the keys.
_KINDS = (
    (RANDOM, r"rng|random|(^|[/_])generator"),
    (AVERAGE, r"(^|[/_.])(ema|swa|averaged|polyak|shadow)([/_.]|$|model|params|weights)"),
    (SCALER, r"scaler|loss_scale"),
    (SCHEDULER, r"sched"),
    (OPTIMIZER, r"optim|exp_avg|momentum_buffer"),
    (TRACKER, r"(wandb|mlflow|tracker|run)_?id$"),
    (COUNTER, r"(^|[/_.])(steps?|epochs?|iters?|iterations?|updates?|\w+_seen)(_num|_idx|_count|_seen)?$"),
    (SAMPLER, r"sampler|loader"),
)
_MEASURED = 20  # tensors of a file whose difference is measured; of the others it is only said
_PARTS = re.compile(r"rank[_-]?\d+|\d+-of-\d+|rng_state_\d+")


@dataclass(frozen=True)
class Apart:
    """A value that the two runs saved differently. `kind` says what it is, as far as its name tells."""

    kind: str
    file: str
    name: str
    difference: str
    has_grown: bool = False  # a whole number that is larger in the interrupted run


@dataclass(frozen=True)
class Compared:
    """The comparison of the final states of two runs."""

    files: tuple[str, ...]  # of the first run, relative to its project
    values: int
    counts: int  # values that count steps or epochs
    apart: tuple[Apart, ...]
    unread: tuple[str, ...]  # files, and why they can't be compared


def states(paths: RunPaths) -> list[SavedState]:
    """Return what the script saved below its working folder, the oldest first."""
    runtime = paths.code / "trainjob"
    found = saved_states.find(paths.code, lambda path: path == runtime or path.name.startswith("."))
    return sorted(found, key=lambda state: state.written_at)


def torn(paths: RunPaths) -> list[tuple[SavedState, str]]:
    """Return the saved states that can't be read, and why, the newest first."""
    return list(reversed(_newest(states(paths))[1]))


def compare(whole: RunPaths, broken: RunPaths) -> Compared:
    """Return how the newest states of each kind differ between two runs."""
    (ours, our_damage), (theirs, their_damage) = (_newest(states(paths)) for paths in (broken, whole))
    files, apart, values, counts = [], [], 0, 0
    for group, state in theirs.items():
        name = _name(state, whole)
        match = ours.get(group)
        if match is None:
            apart.append(Apart(OTHER, name, "", "the interrupted run has no such file"))
            continue
        one, two = ({leaf.path: leaf for leaf in read.leaves()} for read in (match, state))
        files.append(name)
        values += len(two)
        counts += sum(_kind(name, path, leaf.value) == COUNTER for path, leaf in two.items())
        both = {path: (one.get(path), two.get(path)) for path in [*two, *one]}
        differ = [(path, leaves) for path, leaves in both.items() if not _same(*leaves)]
        apart += [
            _apart(name, path, *leaves, measured=number < _MEASURED) for number, (path, leaves) in enumerate(differ)
        ]
    damaged = [(whole, one) for one in their_damage] + [(broken, one) for one in our_damage]
    unread = dict.fromkeys(f"{_name(state, paths)} {why}" for paths, (state, why) in damaged)
    return Compared(tuple(files), values, counts, tuple(apart), tuple(unread))


def _name(state: SavedState, paths: RunPaths) -> str:
    top = paths.project if state.path.is_relative_to(paths.project) else paths.code
    return str(state.path.relative_to(top))


def _newest(found: Sequence[SavedState]) -> tuple[dict[tuple[object, ...], SavedState], list[tuple[SavedState, str]]]:
    """Return the newest state of each kind, and those that can't be read, and why.

    Of one kind are files whose names differ in numbers alone, or that hold the same keys.
    """
    newest: dict[tuple[object, ...], SavedState] = {}
    damaged = []
    for state in found:
        try:
            keys = frozenset(leaf.path[0] if leaf.path else "" for leaf in state.leaves())
        except DamagedError as error:
            damaged.append((state, str(error)))
            continue
        name = state.path.name
        newest[state.kind, tuple(_PARTS.findall(name)), keys] = state
    return newest, damaged


def _same(one: Leaf | None, two: Leaf | None) -> bool:
    if one is None or two is None:
        return False
    if isinstance(one.value, float) and isinstance(two.value, float) and math.isnan(one.value):
        return math.isnan(two.value)
    if isinstance(one.value, SavedTensor) and isinstance(two.value, SavedTensor):
        return one.value.same(two.value)
    return type(one.value) is type(two.value) and one.value == two.value


def _apart(file: str, path: tuple[str, ...], one: Leaf | None, two: Leaf | None, *, measured: bool) -> Apart:
    kind = _kind(file, path, (two or one or Leaf(path, None)).value)
    ours, theirs = (leaf.value if leaf is not None else None for leaf in (one, two))
    has_grown = isinstance(ours, int) and isinstance(theirs, int) and ours > theirs
    return Apart(kind, file, "/".join(path), _difference(one, two, measured=measured), has_grown)


def _kind(file: str, path: tuple[str, ...], value: object) -> str:
    return kind_of(file, path, is_tensor=isinstance(value, SavedTensor))


def kind_of(file: str, path: tuple[str, ...], *, is_tensor: bool) -> str:
    """Return what a value of a saved state is, as far as the names that lead to it tell."""
    where = f"{file}/{'/'.join(path)}".lower()
    if "/_spec/" in where:
        return OTHER  # how a sharded tensor is laid out: its mesh has a hash that each process makes anew
    by_name = next((kind for kind, pattern in _KINDS if re.search(pattern, where)), None)
    return by_name or (WEIGHTS if is_tensor else OTHER)


def _difference(one: Leaf | None, two: Leaf | None, *, measured: bool) -> str:
    if one is None or two is None:
        return "only the uninterrupted run has it" if one is None else "only the interrupted run has it"
    if isinstance(one.value, SavedTensor) and isinstance(two.value, SavedTensor):
        if one.value.shape != two.value.shape:
            return f"shape {list(one.value.shape)}, uninterrupted {list(two.value.shape)}"
        largest = one.value.largest_difference(two.value) if measured else None
        return "other bits" if largest is None else f"up to {largest:.1e} apart"
    shown = [repr(leaf.value)[:40] for leaf in (one, two)]
    return f"{shown[0]}, uninterrupted {shown[1]}"


def stray(paths: RunPaths, saved: Sequence[str]) -> list[Path]:
    """Return which of the files that a script saved lie outside of its run, where another run would meet them."""
    inside = paths.folder.resolve()
    outside = (Path(name) for name in dict.fromkeys(saved))
    return [path for path in outside if path.exists() and not path.resolve().is_relative_to(inside)]
