"""States that scripts save are read value by value, nothing in them is executed, and damage is only ever told."""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import random
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import state_dict_saver

from trainjob.records.files import DamagedError
from trainjob.train.recording import safetensors
from trainjob.verify.scripts import saved_states
from trainjob.verify.scripts.saved_tensors import SavedTensor, Storage


def read(folder: Path) -> Mapping[str, object]:
    (state,) = saved_states.find(folder, lambda _path: False)
    return {"/".join(leaf.path): leaf.value for leaf in state.leaves()}


def holds(found: object, dtype: str, tensor: torch.Tensor) -> bool:
    """Return whether `found` has the elements of `tensor`, row by row."""
    tensor = tensor.detach().contiguous()
    content = Storage(memoryview(bytes(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())))
    expected = SavedTensor(dtype, tuple(tensor.shape), content, 0, tensor.stride())
    return isinstance(found, SavedTensor) and found.same(expected)


def test_a_state_of_torch_save_is_read_value_by_value(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "eight bits": torch.ones(2).to(torch.float8_e5m2),
        "args": argparse.Namespace(width=7),
        "step": 12,
        "names": {"a"},
        "history": [0.5] * 100,
    }
    torch.save(state, tmp_path / "last.pt")
    found = read(tmp_path)
    assert found["step"] == 12
    assert found["args/width"] == 7
    assert found["names/0/0"] == "a"
    assert found["optimizer/param_groups/0/lr"] == 0.25
    assert holds(found["model/weight"], "F32", model.weight)
    assert holds(found["optimizer/state/0/exp_avg"], "F32", torch.ones(2, 3) / 10)
    assert holds(found["half"], "BF16", torch.ones(2, dtype=torch.bfloat16))
    assert holds(found["eight bits"], "F8_E5M2", torch.ones(2).to(torch.float8_e5m2))


@pytest.mark.parametrize(
    "view",
    [
        torch.arange(6).reshape(2, 3).T,
        torch.arange(12)[3::2],
        torch.arange(3)[:, None].expand(3, 1000),
        torch.arange(120).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(3_000_000).reshape(3, 1000, 1000).transpose(0, 2),
        torch.zeros(0, 4, dtype=torch.int64),
        torch.tensor(7),
    ],
)
def test_a_view_in_any_order_equals_its_elements(tmp_path: Path, view: torch.Tensor) -> None:
    torch.save({"view": view}, tmp_path / "last.pt")
    found = read(tmp_path)["view"]
    assert holds(found, "I64", view)
    if view.numel():
        other = view.clone()
        other[(-1,) * view.dim()] += 5
        assert not holds(found, "I64", other)
        (tmp_path / "last.pt").unlink()  # and not written over: it is mapped
        torch.save({"view": other}, tmp_path / "last.pt")
        changed = read(tmp_path)["view"]
        assert isinstance(found, SavedTensor)
        assert isinstance(changed, SavedTensor)
        assert found.largest_difference(changed) == 5


def test_a_large_state_is_compared_without_a_copy_of_it(tmp_path: Path) -> None:
    shared = torch.arange(1_000_000.0)
    state = {"turned": torch.ones(1000, 2000).T, "views": [shared[number:] for number in range(400)]}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        torch.save(state, tmp_path / name / "last.pt")
    tracemalloc.start()
    one, two = (read(tmp_path / name) for name in ("one", "two"))
    for name, value in one.items():
        other = two[name]
        assert isinstance(value, SavedTensor)
        assert isinstance(other, SavedTensor)
        assert value.same(other)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(one) == 401
    assert most < 12_000_000  # what both files hold twice


class Wicked:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (f"{self.folder}/executed",)


def test_what_a_checkpoint_would_execute_is_only_remembered(tmp_path: Path) -> None:
    torch.save({"step": 3, "hook": Wicked(tmp_path), "get": print}, tmp_path / "custom_checkpoint_0.pkl")
    assert read(tmp_path)["step"] == 3
    assert not (tmp_path / "executed").exists()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(Wicked(tmp_path / "nowhere")))


@pytest.mark.parametrize("kept", [0, 100, -100])
def test_a_torn_file_is_reported(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "last.pt"
    torch.save({"model": torch.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedError, match="is torn"):
        read(tmp_path)


def test_safetensors_and_counters_of_a_trainer(tmp_path: Path) -> None:
    safetensors.save(tmp_path / "model.safetensors", {"w": torch.ones(2)})
    assert holds(read(tmp_path)["w"], "F32", torch.ones(2))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "trainer_state.json").write_text(
        '{"global_step": 7, "epoch": 0.5, "log_history": [{"train_runtime": 3}]}'
    )
    assert read(tmp_path) == {"global_step": 7, "epoch": 0.5}


@pytest.mark.parametrize("content", ["[1]", "null", "7", '{"epoch": [1]}', "", "{"])
def test_counters_that_are_none_are_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "trainer_state.json").write_text(content)
    with pytest.raises(DamagedError):
        read(tmp_path)


@pytest.fixture
def distributed(tmp_path: Path) -> Path:
    """Return the folder of a distributed checkpoint."""
    folder = tmp_path / "step-5"
    with pytest.warns(UserWarning, match="torch.distributed is"):
        state_dict_saver.save({"model": {"w": torch.arange(4.0)}, "step": 5}, checkpoint_id=folder, no_dist=True)
    return folder


def test_a_distributed_checkpoint_is_one_state(tmp_path: Path, distributed: Path) -> None:
    found = read(tmp_path)
    tensors = [value for value in found.values() if isinstance(value, SavedTensor)]
    assert [holds(tensor, "F32", torch.arange(4.0)) for tensor in tensors] == [True]
    assert 5 in found.values()
    next(distributed.glob("*.distcp")).write_bytes(b"")
    with pytest.raises(DamagedError, match="is torn"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("file", "reported"),
    [
        ("__7_7.distcp", "is torn: __7_7.distcp is missing"),
        ("../__0_0.distcp", "no file of its folder"),
        ("/etc/passwd", "no file of its folder"),
        ("link.distcp", "no file of its folder"),
        (7, "no file of its folder"),
    ],
)
def test_a_distributed_checkpoint_reads_its_own_files_only(
    tmp_path: Path, distributed: Path, file: object, reported: str
) -> None:
    (distributed / "link.distcp").symlink_to("/etc/passwd")
    metadata = pickle.loads((distributed / ".metadata").read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = file
    (distributed / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(DamagedError, match=reported):
        read(tmp_path)


def test_flipped_bits_never_end_the_reading(tmp_path: Path, distributed: Path) -> None:
    torch.save({"model": torch.nn.Linear(3, 2).state_dict(), "step": 12, "x": [{1: "a"}, {2}]}, tmp_path / "whole.pt")
    safetensors.save(tmp_path / "whole.safetensors", {"w": torch.ones(2)})
    chance = random.Random(7)
    for kind in (".pt", ".safetensors", ".metadata"):
        path = tmp_path / f"whole{kind}" if kind != ".metadata" else distributed / kind
        whole = path.read_bytes()
        for number in range(400):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            folder = distributed if kind == ".metadata" else tmp_path / f"{kind[1:]}-{number % 2}"
            folder.mkdir(exist_ok=True)
            (folder / (kind if kind == ".metadata" else f"flipped{kind}")).write_bytes(damaged)
            with contextlib.suppress(DamagedError):
                read(folder)


def archive(path: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as made:
        made.writestr("archive/data.pkl", pickled)
        made.writestr("archive/data/0", bytes(8))


def twice(levels: int, make: Any) -> Any:
    value = make(0, 0)
    for _ in range(levels):
        value = make(value, value)
    return value


@pytest.mark.parametrize(
    "pickled",
    [
        pytest.param(pickle.dumps(twice(40, lambda a, b: [a, b])), marks=pytest.mark.full),
        pytest.param(pickle.dumps(twice(40, lambda a, b: (a, b))), marks=pytest.mark.full),
        pickle.dumps(twice(40, lambda a, b: {"a": a, "b": b})),
        # A key whose hash takes 2^50 steps: {((…,…),(…,…)): 1}
        b"}" + b"K\x00" + b"".join(b"q%c" % n + b"h%c" % n + b"\x86" for n in range(50)) + b"K\x01s.",
        # A place in the memo that C's unpickler makes room for.
        b"Nr\xff\xff\xff\x7f.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"".join(b"cm\nn%d\n0" % number for number in range(20_000)) + b"N.",
        b"(" * 100_000 + b"l" * 100_000 + b".",
        b"]" * 1000 + b"a" * 999 + b".",
        b"",
        b".",
        b"\x80\xff.",
    ],
    ids=range(12),
)
def test_a_pickle_made_to_harm_is_read_or_reported_soon(tmp_path: Path, pickled: bytes) -> None:
    archive(tmp_path / "bomb.pt", pickled)
    with contextlib.suppress(DamagedError):
        read(tmp_path)


def test_a_large_number_and_a_compressed_archive_are_no_bombs(tmp_path: Path) -> None:
    archive(tmp_path / "number.pt", pickle.dumps({"n": 1 << 100_000}))
    assert read(tmp_path)["n"] == hex(1 << 100_000)
    archive(tmp_path / "number.pt", pickle.dumps(bytes(100 << 20)), zipfile.ZIP_DEFLATED)
    with pytest.raises(DamagedError, match="compressed"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("shape", "stride", "offset"), [((10**9, 10**9), (1, 1), 0), ((3,), (1,), 0), ((1,), (1,), 2), ((-1,), (1,), 0)]
)
def test_a_tensor_that_ends_behind_its_storage_is_reported(
    tmp_path: Path, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    torch.save({"w": torch.zeros(2)}, tmp_path / "last.pt")
    with zipfile.ZipFile(tmp_path / "last.pt") as whole:
        pickled = whole.read("last/data.pkl")
    sizes = (b"(" + b"".join(b"I%d\n" % one for one in numbers) + b"t" for numbers in (shape, stride))
    made = b"I%d\n" % offset + b"".join(sizes)
    place = pickled.index(b"QK\x00") + 1
    archive(tmp_path / "last.pt", pickled[:place] + made + pickled[pickled.index(b"\x89", place) :])
    with pytest.raises(DamagedError, match=r"has a tensor of|ends behind"):
        read(tmp_path)


def test_an_expanded_tensor_costs_what_its_storage_does(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(10**6, 10**6)}, tmp_path / "one.pt")
    torch.save({"w": torch.zeros(10**6).as_strided((10**6 - 10, 11), (1, 1))}, tmp_path / "two.pt")
    for state in saved_states.find(tmp_path, lambda _path: False):
        (leaf,) = state.leaves()
        assert isinstance(leaf.value, SavedTensor)
        assert leaf.value.same(leaf.value)
