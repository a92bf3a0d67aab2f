"""The safetensors layout: every type there and back, readable by the real package, and broken files refused."""

from __future__ import annotations

import contextlib
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainjob.contract.errors import UserError
from trainjob.records.safetensors import BrokenFileError
from trainjob.train.recording import safetensors
from trainjob.train.recording.safetensors import load, save


def some(dtype: torch.dtype, *shape: int) -> Any:
    count = torch.Size(shape).numel()
    size = torch.empty(0, dtype=dtype).element_size()
    if dtype is torch.bool:
        return (torch.arange(count) % 2 == 0).reshape(shape)
    data = bytearray(number * 37 % 251 for number in range(count * size))
    return torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def bits(tensor: Any) -> Any:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def model_like() -> dict[str, Any]:
    tied = torch.randn(3, 5)
    return {
        **{f"of {word}": some(dtype, 3, 2) for word, dtype in safetensors.DTYPES.items()},
        "no dimensions": torch.tensor(7, dtype=torch.int64),
        "nothing in it": torch.empty(0, 4),
        "tied.one": tied,
        "tied.other": tied,
        "not contiguous": torch.arange(12.0).reshape(3, 4).t(),
        "a part": torch.arange(100.0)[10:20],
        "with gradient": torch.nn.Parameter(torch.randn(2)),
        "ünïcode.名": torch.ones(1),
        "not a number": torch.tensor([float("nan"), float("inf"), -0.0]),
    }


def test_every_tensor_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = model_like()
    save(tmp_path / "file", tensors)
    found = load(tmp_path / "file")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert bits(found[name]) == bits(tensor.detach()), name


def test_the_same_tensors_give_the_same_bytes_whatever_their_order(tmp_path: Path) -> None:
    tensors = model_like()
    save(tmp_path / "one", tensors)
    save(tmp_path / "other", dict(reversed(list(tensors.items()))))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_tensors_lie_aligned_and_without_gaps(tmp_path: Path) -> None:
    save(tmp_path / "file", model_like(), {"update": "3"})
    data = (tmp_path / "file").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"update": "3"}
    spans = sorted(entry["data_offsets"] for entry in header.values())
    assert length % 8 == 0
    assert all(end == begin for (_, end), (begin, _) in pairwise(spans))
    assert 8 + length + spans[-1][1] == len(data)
    for entry in header.values():
        size = torch.empty(0, dtype=safetensors.DTYPES[entry["dtype"]]).element_size()
        assert entry["data_offsets"][0] % size == 0


def test_the_real_package_reads_our_files_and_we_read_its(tmp_path: Path) -> None:
    real = pytest.importorskip(
        "safetensors.torch", reason="safetensors is not installed: the layout is checked by hand"
    )
    tensors = model_like()
    save(tmp_path / "ours", tensors)
    found = real.load_file(tmp_path / "ours")
    assert {name: bits(tensor) for name, tensor in found.items()} == {
        name: bits(tensor.detach()) for name, tensor in tensors.items()
    }
    plain = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    real.save_file(plain, tmp_path / "theirs")
    assert {name: bits(tensor) for name, tensor in load(tmp_path / "theirs").items()} == {
        name: bits(tensor) for name, tensor in plain.items()
    }


def test_a_type_that_the_layout_has_not_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tensor wave is of type torch\.complex128"):
        save(tmp_path / "file", {"wave": torch.zeros(2, dtype=torch.complex128)})


@given(cut=st.integers(0, 10**9), at=st.integers(0, 10**9), byte=st.integers(0, 255))
def test_a_damaged_file_gives_our_error_or_tensors_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, byte: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "file"
    save(path, {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.int16)})
    data = bytearray(path.read_bytes())
    data[at % len(data)] = byte
    path.write_bytes(data[: len(data) - cut % len(data)])
    with contextlib.suppress(BrokenFileError):
        load(path)


def test_an_empty_file_and_one_of_another_kind_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"\x80\x02}q\x00.", b"PK\x03\x04" + bytes(100), struct.pack("<Q", 2) + b"[]"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(BrokenFileError, match="safetensors layout"):
            load(tmp_path / "file")
