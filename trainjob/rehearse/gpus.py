"""Stand-in GPUs for a rehearsal: compiled once for the ranks' torch, and on the ranks' path while it lasts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.planning.words import quantity
from trainjob.records.files import read_json

FOLDER = package.companion("standins") / "gpu"
_SPECIFICATION = "TRAINJOB_STANDIN_GPUS"
_SUMMARY = "TRAINJOB_STANDIN_GPUS_SUMMARY"
_CACHE = "TRAINJOB_STANDIN_CACHE"
_TORCH = "TRAINJOB_STANDIN_TORCH"  # names a folder with a CPU build of torch, for users of a CUDA build
_INSTALLING_S = 1800.0
_Key = TypeVar("_Key")

# What a cluster file's `nodes.type` means, by NVIDIA's data sheets: name, memory in GB, compute capability, processors.
_TYPES: dict[str, tuple[str, float, tuple[int, int], int]] = {
    "v100": ("Tesla V100-SXM2-32GB", 32, (7, 0), 80),
    "a40": ("NVIDIA A40", 48, (8, 6), 84),
    "a100": ("NVIDIA A100-SXM4-80GB", 80, (8, 0), 108),
    "l40s": ("NVIDIA L40S", 48, (8, 9), 142),
    "h100": ("NVIDIA H100 80GB HBM3", 80, (9, 0), 132),
    "h200": ("NVIDIA H200", 141, (9, 0), 132),
}


def make_ready(python: str, say: Callable[[str], object] = lambda line: sys.stderr.write(line + "\n")) -> Path | None:
    """Compile what the torch of `python` needs, unless that was done before; `say` gets messages about the progress.

    Return the folder with a CPU build of torch that must come before a CUDA build; None if torch is a CPU build.
    Raises UserError, with the cure: no compiler, no torch, a CUDA build whose CPU build can't be installed.
    """
    named = os.environ.get(_TORCH)
    folder = Path(named) if named else None
    ended = _compile(python, folder, say)
    if "packages" in ended:
        folder = _cpu_build(python, ended["packages"], say)
        ended = _compile(python, folder, say)
    if ended:
        raise UserError(
            f"no stand-in GPUs for {python}: {ended.get('refused', 'it says nothing more')}",
            "Rehearse with --no-gpus, on CPUs",
            "no-standin-gpus",
        )
    return folder


def _compile(python: str, torch: Path | None, say: Callable[[str], object]) -> dict[str, Any]:
    """Return nothing once stand-in GPUs are ready, otherwise the last message of `python -m trainjob_gpu`."""
    environ = {**os.environ, "PYTHONPATH": _python_path(torch)}
    lines = process.lines_of([python, "-m", "trainjob_gpu"], folder=Path.cwd(), environment=environ)
    message: dict[str, Any] = {}
    while True:
        try:
            line = next(lines)
        except StopIteration as end:
            return {} if end.value == 0 else message or {"refused": f"its `-m trainjob_gpu` exited with {end.value}"}
        if line.startswith('{"'):  # what else starts with Python may print
            message = json.loads(line)
            if "say" in message:
                say(message["say"])


def _cpu_build(python: str, packages: Sequence[str], say: Callable[[str], object]) -> Path:
    """Return the folder in the user's cache with CPU builds of `packages` (torch==2.6.0+cpu), installed once."""
    tag = hashlib.sha256(" ".join([os.path.realpath(python), *packages]).encode()).hexdigest()[:12]
    folder = platformdirs.user_cache_path("trainjob") / "gpu-standin" / f"{packages[0].replace('==', '-')}-{tag}"
    if folder.exists():
        return folder
    say(f"stand-in GPUs need a CPU build of torch beside {python}'s CUDA build: pip installs {packages[0]}, once")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".installing-") as staging:
        # Our pip can install for another interpreter.
        has_pip = process.run([python, "-m", "pip", "--version"], check=False).code == 0
        pip = [python, "-m", "pip"] if has_pip else [sys.executable, "-m", "pip", "--python", python]
        words = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", f"{staging}/new"]
        ended = process.run([*pip, *words, *packages], timeout_s=_INSTALLING_S, check=False)
        if ended.code != 0:
            raise UserError(
                f"{python} has a CUDA build of torch, stand-in GPUs need a CPU build of the same version, and pip "
                f"can't install it: {(ended.stderr.strip() or 'no reason given').splitlines()[-1]}",
                "Rehearse with --no-gpus, on CPUs. For stand-in GPUs give pip an index that has CPU builds "
                "(PIP_EXTRA_INDEX_URL=URL trainjob rehearse …; PyTorch's start page shows the URL under CPU), or "
                f"install {' '.join(packages)} into a folder of its own (pip's --target) and set {_TORCH}=FOLDER",
                code="no-standin-gpus",
            )
        with contextlib.suppress(OSError):  # another rehearsal has just installed them
            Path(staging, "new").rename(folder)
    return folder


def environment(
    place: Path, count: int, kind: str | None, python: str = sys.executable, torch: Path | None = None
) -> dict[str, str]:
    """Return the environment of ranks on a node with `count` GPUs of type `kind`; programs and summaries go to `place`.

    `python` is the interpreter of the ranks, `torch` what make_ready returned for it.
    """
    program = place / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True, exist_ok=True)
    words = ["env", f"PYTHONPATH={FOLDER}", sys.executable, "-S", "-m", "trainjob_gpu.nvidia_smi"]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    name, memory_gb, capability, processors = _TYPES.get(kind or "", ("Stand-in GPU", 80, (8, 0), 108))
    specification = {
        "per_node": count,
        "name": name,
        "memory_gb": memory_gb,
        "capability": capability,
        "processors": processors,
    }
    return {
        _SPECIFICATION: json.dumps(specification),
        _SUMMARY: str(place / "summary"),
        _CACHE: str(platformdirs.user_cache_path()),
        "PATH": os.pathsep.join([str(place / "bin"), process.search_path(python)]),
        "PYTHONPATH": _python_path(torch or (Path(os.environ[_TORCH]) if os.environ.get(_TORCH) else None)),
    }


def of_path(python: str) -> str:
    """Return the interpreter that a shell's `python` is (an activated virtualenv's), if it has torch; else `python`."""
    named = shutil.which("python") or shutil.which("python3")
    return named if named and has_package(named, "torch") else python


def has_package(python: str, name: str) -> bool:
    """Return whether an interpreter finds a package. It is looked up, not imported, which may take seconds."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return process.run([python, "-c", look], check=False).code == 0


@contextlib.contextmanager
def visible_here(python: str, count: int, kind: str | None) -> Iterator[Path]:
    """While this lasts, child processes find `count` stand-in GPUs. Yield the folder of the summaries."""
    before = dict(os.environ)
    torch = make_ready(python)
    with tempfile.TemporaryDirectory(prefix="trainjob-gpus-") as place:
        os.environ.update(environment(Path(place), count, kind, python, torch))
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in range(count))
        try:
            yield Path(place)
        finally:
            os.environ.clear()
            os.environ.update(before)


def _python_path(torch: Path | None) -> str:
    """Return the stand-ins' folder, that of a CPU build of torch if there is one, and the user's own."""
    folders = (str(FOLDER), str(torch) if torch else None, os.environ.get("PYTHONPATH"))
    return os.pathsep.join(folder for folder in folders if folder)


@dataclass(frozen=True)
class Usage:
    """What ranks did with their stand-in GPUs, from the summaries that they left."""

    ranks: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, place: Path) -> Usage:
        """Return what the ranks of a rehearsal wrote to `place`; a rank that was killed has left nothing."""
        found = (read_json(path) for path in sorted((place / "summary").glob("rank-*.json")))
        return cls([summary for summary in found if isinstance(summary, dict)])

    def lines(self) -> list[str]:
        """Return the lines for the user: GPUs and memory, collectives, and mistakes that raise no error."""
        if not self.ranks:
            return []
        return [*self._gpus(), *self._collectives(), *self.notes(), "timings on stand-in GPUs are meaningless"]

    def notes(self) -> list[str]:
        """Return what would go wrong on real GPUs, though nothing failed here; each once, with its ranks."""
        ranks = self._by(lambda rank: rank["notes"])
        noted = [f"note: {note} ({_of_ranks(numbers)})" for note, numbers in ranks.items()]
        return noted + self._shared() + self._written_by_many()

    def _gpus(self) -> list[str]:
        most = max((size for rank in self.ranks for size in rank["gpus"].values()), default=0)
        named = [", ".join(f"GPU {number}" for number in rank["gpus"]) or "no GPU" for rank in self.ranks]
        return [
            *(f"rank {rank['rank']}: {gpus} of {rank['host']}" for rank, gpus in zip(self.ranks, named, strict=True)),
            f"largest amount of tensor memory on one GPU: {most / 2**20:.3g} MiB, "
            "without what CUDA and its libraries take",
        ]

    def _collectives(self) -> list[str]:
        calls: Counter[tuple[str, str]] = Counter()
        sizes: Counter[tuple[str, str]] = Counter()
        for rank in self.ranks:
            for row in rank["collectives"]:
                calls[row["kind"], row["dtype"]] += row["calls"]
                sizes[row["kind"], row["dtype"]] += row["bytes"]
        return [
            f"{kind} of {dtype or 'nothing'}: {quantity(count, 'call')} over all ranks, "
            f"{sizes[kind, dtype] / count:.0f} bytes each on average"
            for (kind, dtype), count in sorted(calls.items())
        ]

    def _shared(self) -> list[str]:
        users = self._by(lambda rank: [(rank["host"], number) for number in rank["gpus"]])
        return [
            f"note: {_of_ranks(ranks)} put tensors on GPU {number} of {host}, where each takes the memory of a CUDA "
            "context: call torch.cuda.set_device(LOCAL_RANK) before anything is put on a GPU"
            for (host, number), ranks in users.items()
            if len(ranks) > 1
        ]

    def _written_by_many(self) -> list[str]:
        writers = self._by(lambda rank: rank["saved"])
        lines = {path: line for rank in self.ranks for path, line in rank["saved"].items()}
        return [
            f"note: {path} was written by {_of_ranks(ranks)} ({lines[path]}): let rank 0 alone write it, or give each "
            "rank a name of its own"
            for path, ranks in writers.items()
            if len(ranks) > 1
        ]

    def _by(self, keys: Callable[[Mapping[str, Any]], Iterable[_Key]]) -> dict[_Key, list[int]]:
        """Return, for each key that summaries have, the ranks that have it."""
        found: dict[_Key, list[int]] = {}
        for rank in self.ranks:
            for key in keys(rank):
                found.setdefault(key, []).append(rank["rank"])
        return found


def _of_ranks(numbers: Sequence[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(str(number) for number in numbers)}"
