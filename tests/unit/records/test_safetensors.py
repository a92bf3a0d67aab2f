"""The header of a safetensors file, without torch: where tensors are, and what no such file is."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.checkpoint_folders import WIDTH, weights
from trainjob.records import safetensors
from trainjob.records.files import DamagedError
from trainjob.records.safetensors import BrokenFileError, TensorPlace, header, pieces, read_header, read_metadata

PATH = Path("x.safetensors")


def of(entries: object, data: bytes = b"", length: int | None = None) -> io.BytesIO:
    text = json.dumps(entries).encode()
    return io.BytesIO(struct.pack("<Q", len(text) if length is None else length) + text + data)


def test_tensors_follow_each_other_and_the_largest_types_come_first() -> None:
    tensors = {"b": ("U8", [3]), "c": ("F32", [2, 2]), "a": ("F32", []), "d": ("F64", [0])}
    beginning, names = header(tensors, {"update": "1"})
    assert names == ["d", "a", "c", "b"]
    assert len(beginning) % 8 == 0
    places, metadata = read_header(io.BytesIO(beginning + bytes(23)), PATH)
    at = len(beginning)
    assert metadata == {"update": "1"}
    assert places == {
        "d": TensorPlace("F64", [0], at, 0),
        "a": TensorPlace("F32", [], at, 4),
        "c": TensorPlace("F32", [2, 2], at + 4, 16),
        "b": TensorPlace("U8", [3], at + 20, 3),
    }
    assert b"__metadata__" not in header(tensors, {})[0]


def entry(**changes: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


def test_a_file_that_ends_with_its_last_tensor_is_whole() -> None:
    places, metadata = read_header(of(entry(), bytes(8)), PATH)
    assert (places["w"].size, metadata) == (8, {})


@each(
    ("stream", "said"),
    [
        (io.BytesIO(b""), "is truncated: it has 0 bytes"),
        (io.BytesIO(b"1234567"), "is truncated: it has 7 bytes"),
        (of({}, length=3), "is truncated: it has 10 bytes"),
        (io.BytesIO(struct.pack("<Q", 1 << 62) + bytes(100)), "is truncated"),
        (of([]), "has a header that is not in the safetensors layout"),
        (io.BytesIO(struct.pack("<Q", 2) + b"{]"), "has a header that is not"),
        (of({"w": 1}), "has a header that is not"),
        (of({"w": {}}), "has a header that is not"),
        (of(entry(dtype="F33"), bytes(8)), "type F33 is unknown"),
        (of(entry(shape=[-2]), bytes(8)), r"shape \[-2\] at bytes 0 to 8"),
        (of(entry(shape=[2.0]), bytes(8)), r"shape \[2.0\] at bytes 0 to 8"),
        (of(entry(shape=[True, 2]), bytes(8)), "at bytes 0 to 8"),
        (of(entry(data_offsets=[-1, 7]), bytes(8)), "at bytes -1 to 7"),
        (of(entry(data_offsets=[0, 7]), bytes(8)), "a tensor of 8 bytes at bytes 0 to 7 of 8"),
        (of(entry(data_offsets=[0]), bytes(8)), "has a header that is not"),
        (of(entry(), bytes(7)), "a tensor of 8 bytes at bytes 0 to 8 of 7"),
    ],
)
def test_what_is_no_such_file_is_said(stream: io.BytesIO, said: str) -> None:
    with pytest.raises(BrokenFileError, match=said):
        read_header(stream, PATH)


@pytest.mark.parametrize(("more", "said"), [(0, "has a header that is not"), (1, "is truncated")])
def test_a_header_may_be_large_but_not_immense(tmp_path: Path, more: int, said: str) -> None:
    length = (100 << 20) + more
    with (tmp_path / "f").open("w+b") as stream:
        stream.write(struct.pack("<Q", length))
        stream.truncate(8 + length)
        with pytest.raises(BrokenFileError, match=said):
            read_header(stream, PATH)


def test_metadata_is_an_object_of_a_sound_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    weights(path, 7, range(2), 2)
    assert read_metadata(path) == {"update": "7"}
    path.write_bytes(of({"__metadata__": [1]}).getvalue())
    with pytest.raises(DamagedError, match=r"m\.safetensors has metadata that is not an object"):
        read_metadata(path)
    path.write_bytes(b"x")
    with pytest.raises(DamagedError, match="is truncated"):
        read_metadata(path)


def test_pieces_are_in_the_order_of_their_rows_and_make_one_tensor(tmp_path: Path) -> None:
    second, first = tmp_path / "a", tmp_path / "b"
    weights(second, 1, range(1, 3), 3)
    weights(first, 1, range(1), 3)
    listed = pieces([second, first])["w"]
    assert [(piece.path, piece.first_row) for piece in listed] == [(first, 0), (second, 1)]
    assert safetensors.whole_shape(listed) == [3, WIDTH]
    weights(second, 1, range(2, 3), 3)
    with pytest.raises(BrokenFileError, match="w has 3 rows, and 1 of them are in its files"):
        pieces([second, first])
    with pytest.raises(BrokenFileError, match="w has 3 rows, and 0 of them"):
        pieces([second])


def test_rows_that_are_in_two_files_are_not_passed_over(tmp_path: Path) -> None:
    for name, rows in (("a", range(2)), ("b", range(1, 3)), ("c", range(2, 4))):
        weights(tmp_path / name, 1, rows, 4)
    with pytest.raises(BrokenFileError, match="w has 4 rows, and 2 of them are in its files"):
        pieces([tmp_path / name for name in "abc"])


def test_a_tensor_without_dimensions_is_one_piece(tmp_path: Path) -> None:
    beginning, _ = header({"step": ("I64", [])}, {})
    (tmp_path / "a").write_bytes(beginning + bytes(8))
    listed = pieces([tmp_path / "a"])["step"]
    assert (len(listed), safetensors.whole_shape(listed)) == (1, [])
