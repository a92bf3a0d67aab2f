"""A checkpoint that is damaged, renamed, linked or another run's is passed over, and the one before it is used."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.support.attack import Attack
from tests.support.limits import within
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.export import export
from trainjob.records import checkpoints
from trainjob.records.checkpoints import INDEX, MODEL, TRAINING
from trainjob.train.recording import safetensors

Damage = Callable[[Path], object]

_RUN = "abcd-attacked"
_OTHER_VALUES: tuple[Any, ...] = (None, "x", [], {}, 1.5, True, -1, 10**30)
_DRAWS = random.Random(11)  # the same trials every time


def written(folder: Path, update: int, run: str = _RUN) -> None:
    folder.mkdir(parents=True)
    metadata, files = {"update": str(update)}, {}
    for name in (MODEL, TRAINING):
        tensors = {"weight": torch.full((3, 2), float(update)), "bias": torch.zeros(2)}
        files[name] = safetensors.save_durably(folder / name, tensors, metadata)
    index = {"contract": 1, "update": update, "run": run, "files": files}
    (folder / INDEX).write_text(json.dumps(index))


def sealed(folder: Path, name: str, content: bytes) -> None:
    """Change a file together with its checksum in the index, as someone does who means it."""
    (folder / name).write_bytes(content)
    index = json.loads((folder / INDEX).read_text())
    index["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / INDEX).write_text(json.dumps(index))


def with_header(content: bytes, header: bytes) -> bytes:
    length = struct.unpack("<Q", content[:8])[0]
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def changed(**values: Any) -> Damage:
    def damage(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        (folder / INDEX).write_text(json.dumps({**index, **values}))

    return damage


def changed_file(name: str, key: str, value: Any) -> Damage:
    def damage(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        index["files"][name][key] = value
        (folder / INDEX).write_text(json.dumps(index))

    return damage


def changed_metadata(name: str, metadata: Any) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
        header["__metadata__"] = metadata
        sealed(folder, name, with_header(content, json.dumps(header).encode()))

    return damage


def replaced_header(name: str, header: bytes) -> Damage:
    return lambda folder: sealed(folder, name, with_header((folder / name).read_bytes(), header))


def flipped(name: str, at: float, bit: int) -> Damage:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[int(at * len(content))] ^= 1 << bit
        (folder / name).write_bytes(content)

    return damage


def cut(name: str, share: float) -> Damage:
    return lambda folder: os.truncate(folder / name, int(share * (folder / name).stat().st_size))


def instead(name: str, make: Callable[[Path], object]) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name if name else folder
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        make(path)

    return damage


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 33)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


OTHER_THINGS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "an empty file": Path.touch,
    "a folder": Path.mkdir,
    "a pipe": lambda path: os.mkfifo(path),
    "a socket": bound,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "8 GB of nothing": sparse,
    "deep JSON": text("[" * 200_000),
    "deep whole JSON": text("[" * 900 + "]" * 900),
    "a list": text("[]"),
    "a number": text("1"),
    "null": text("null"),
    "a number without end": text("1" * 100_000),
    "half a character": text('{"contract": 1, "files": "\\ud800"}'),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
}


def to(name: str) -> Damage:
    return lambda folder: folder.rename(folder.with_name(name))


def swapped(folder: Path) -> None:
    other = folder.with_name("update-00000040")
    aside = folder.with_name("aside")
    folder.rename(aside)
    other.rename(folder)
    aside.rename(other)


def linked(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("update-00000040")


def copied(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("update-00000040"), folder)


def of_another_run(folder: Path) -> None:
    shutil.rmtree(folder)
    written(folder, 60, "efgh-other")


def with_files_of_another_update(folder: Path) -> None:
    for name in (MODEL, TRAINING):
        sealed(folder, name, (folder.with_name("update-00000040") / name).read_bytes())


def damages() -> Iterator[tuple[str, Damage]]:
    """Yield every trial's name, and what it does to the newest checkpoint folder."""
    yield from of_bytes()
    for what, make in OTHER_THINGS.items():
        for name in (MODEL, TRAINING, INDEX, ""):
            yield f"{what} as {name or 'the folder'}", instead(name, make)
    yield from of_statements()
    for name in ("update-00000080", "update-00000041", "update-99999999"):
        yield f"renamed to {name}", to(name)
    for whole in (swapped, linked, copied, of_another_run, with_files_of_another_update):
        yield whole.__name__, whole


def of_bytes() -> Iterator[tuple[str, Damage]]:
    for number in range(60):
        name = (MODEL, TRAINING)[number % 2]
        at, bit = _DRAWS.random(), _DRAWS.randrange(8)
        yield f"{name} with bit {bit} flipped at {at:.4f}", flipped(name, at, bit)
    for number in range(48):
        name, share = (MODEL, TRAINING, INDEX)[number % 3], _DRAWS.random()
        yield f"{name} cut to {share:.4f}", cut(name, share)
    for _ in range(60):
        at, bit = _DRAWS.random(), _DRAWS.randrange(8)
        yield f"{INDEX} with bit {bit} flipped at {at:.4f}", flipped(INDEX, at, bit)


def of_statements() -> Iterator[tuple[str, Damage]]:
    for value in _OTHER_VALUES:
        yield f"update {value!r}", changed(update=value)
        yield f"run {value!r}", changed(run=value)
        yield f"files {value!r}", changed(files=value)
        for key in ("bytes", "sha256"):
            yield f"{key} {value!r}", changed_file(MODEL, key, value)
        yield f"metadata {value!r}", changed_metadata(TRAINING, value)
    for name in (MODEL, TRAINING):
        for metadata in ({"update": "40"}, {"update": "600"}, {"update": 60}, {"update": [60]}):
            yield f"{name} with metadata {metadata}", changed_metadata(name, metadata)
        for header in (b"", b"[]", b"{", b"[" * 100_000, b'{"w": 1}', b'{"w": {"dtype": "F64", "shape": [9]}}'):
            yield f"{name} with header {header[:40]!r}", replaced_header(name, header)


def made(folder: Path) -> RunPaths:
    paths = RunPaths(folder / _RUN)
    for update in (20, 40, 60):
        written(paths.checkpoint(update), update)
    return paths


def tells_the_same(paths: RunPaths) -> bool:
    """Return whether the newest index still says what it said: a bit was flipped where it means nothing."""
    whole = {"update": 60, "run": _RUN}
    try:
        index = json.loads((paths.checkpoint(60) / INDEX).read_bytes())
        return {key: index.get(key, whole[key]) for key in whole} == whole
    except (OSError, ValueError, AttributeError):
        return False


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, attack: Attack) -> None:
    base = made(tmp_path / "base")
    weights = {update: (base.checkpoint(update) / MODEL).read_bytes() for update in (20, 40, 60)}
    with attack("damaged checkpoints") as trials:
        for number, (name, damage) in enumerate(damages()):
            paths = RunPaths(tmp_path / str(number) / _RUN)
            shutil.copytree(base.folder, paths.folder)
            damage(paths.checkpoint(60))
            with trials.trial(name), within(20):
                used(paths, weights)
            shutil.rmtree(paths.folder.parent)
        assert trials.tried >= 300


def used(paths: RunPaths, weights: dict[int, bytes]) -> None:
    """Assert that what is exported is what a sound checkpoint holds, and that every other has a line."""
    lines: list[str] = []
    target = paths.folder / "exported"
    try:
        chosen = export(paths, target, lines.append)
    except checkpoints.NewerContractError:
        return  # a flipped bit made it one of a later version, which only that can judge
    except UserError as error:
        raise AssertionError(str(error)) from None
    expected = 60 if chosen.update == 60 and tells_the_same(paths) else 40 if lines or not newest(paths) else 0
    if chosen.update == 20:
        expected = 20 if len(lines) >= 1 else 0  # both newer ones were swapped
    assert chosen.update == expected, (chosen.update, lines)
    assert target.read_bytes() == weights[chosen.update]
    assert all("is passed over: " in line for line in lines), lines


def newest(paths: RunPaths) -> bool:
    return os.path.lexists(paths.checkpoint(60))
