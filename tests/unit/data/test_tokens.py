"""Tokens: text as bytes, token files as others write them, and the samples that a task takes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainjob.contract.errors import UserError
from trainjob.data.manifest import TOKENS, read_manifest
from trainjob.data.prepare import prepare
from trainjob.data.shards import open_by_name
from trainjob.data.tokens import PythonDocs
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.sources import TokenSource
from trainjob.train.tasks.base import DataPlace, TaskData


def place(name: str | None, folder: Path) -> DataPlace:
    return DataPlace(name, folder, 0, reads_every_byte=True)


def files(folder: Path, dtype: str = "uint16", **splits: Any) -> Path:
    folder.mkdir()
    for split, numbers in splits.items():
        np.array(numbers, dtype).tofile(folder / f"{split}.bin")
    return folder


def test_text_becomes_bytes_and_a_tenth_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "texts/more").mkdir(parents=True)
    (tmp_path / "texts/b.md").write_text("Ünd")
    (tmp_path / "texts/more/a.txt").write_text("x" * 94)
    (tmp_path / "texts/image.png").write_bytes(b"\xff\0")  # not text, and not named like text
    prepare("mine", tmp_path, kind="text", source=str(tmp_path / "texts"))
    opened = open_by_name("mine", tmp_path).require(TOKENS)
    train, test = opened.tokens("train"), opened.tokens("test")
    whole = np.concatenate([train, test]).astype(np.uint8).tobytes()
    assert whole == "Ünd".encode() + b"\0" + b"x" * 94 + b"\0"
    assert (len(train), len(test), opened.manifest.classes) == (90, 10, 256)
    prepare("mine", tmp_path, kind="text", source=str(tmp_path / "texts"))  # it is there
    with pytest.raises(UserError, match=r"already exists, text in .*--held-out 7: give --again"):
        prepare("mine", tmp_path, kind="text", source=str(tmp_path / "texts"), held_out=7)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not UTF-8 text"), (b"a\0b", "is not text: it has a byte 0"), (b"", "holds no text")],
)
def test_what_is_not_text_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "odd.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"odd.txt {message}"):
        prepare("mine", tmp_path, kind="text", source=str(tmp_path / "odd.txt"))


def test_token_files_are_taken_as_they_are(tmp_path: Path) -> None:
    source = files(tmp_path / "there", "uint32", train=range(0, 200_000, 2), val=[7, 8])
    prepare("mine", tmp_path, kind="tokens", source=str(source), dtype="uint32")
    opened = open_by_name("mine", tmp_path)
    assert (opened.manifest.dtype, opened.manifest.classes) == ("uint32", 199_999)
    assert opened.tokens("train").tolist() == list(range(0, 200_000, 2))
    assert opened.tokens("test").tolist() == [7, 8]


def test_token_files_that_make_no_data_set_are_refused(tmp_path: Path) -> None:
    def refused(message: str, source: Path, **options: Any) -> None:
        with pytest.raises(UserError, match=message):
            prepare("mine", tmp_path, kind="tokens", source=str(source), **options)

    there = files(tmp_path / "there", train=[1, 2, 3])
    refused("has 6 bytes, and a token of uint32 has 4", there, dtype="uint32")
    refused("--dtype is int8", there, dtype="int8")
    refused(r"has no train\.bin", files(tmp_path / "empty"))
    refused("train.bin holds no tokens", files(tmp_path / "nothing", train=[]))
    np.save(there / "val.npy", np.zeros((2, 2), np.uint16))
    refused(r"val.npy holds uint16 of shape \(2, 2\)", there)
    np.save(there / "val.npy", np.zeros(2, np.uint32))
    refused("differ in type: uint16, uint32", there)
    with pytest.raises(UserError, match="no --from is given"):
        prepare("mine", tmp_path, kind="tokens")
    with pytest.raises(UserError, match="can't be called digits"):
        prepare("digits", tmp_path, kind="tokens", source=str(there))
    with pytest.raises(UserError, match="there is no kind token of data: did you mean tokens"):
        prepare("mine", tmp_path, kind="token", source=str(there))


def test_a_sample_is_a_stretch_and_what_follows_each_token_of_it() -> None:
    source = TokenSource(np.arange(23, dtype=np.uint16), 4)
    inputs, targets = source.gather(np.array([4, 0]), None)
    assert (len(source), len(TokenSource(np.arange(4), 4)), len(TokenSource(np.arange(5), 4))) == (5, 0, 1)
    assert inputs.tolist() == [[16, 17, 18, 19], [0, 1, 2, 3]]
    assert targets.tolist() == [[17, 18, 19, 20], [1, 2, 3, 4]]
    assert inputs.dtype == targets.dtype == torch.int64


def test_the_order_is_the_same_for_any_number_of_instances_and_after_resuming() -> None:
    source = TokenSource(np.arange(400, dtype=np.uint16), 4)

    def taken(instances: int, start: int = 0) -> list[Any]:
        counts = Arithmetic(len(source), 2, 6, instances, 1, "drop", 3)
        parts = [list(blocks(source, counts, one, start, 12)) for one in range(instances)]
        return [torch.cat([block.inputs for block in update]).tolist() for update in zip(*parts, strict=True)]

    whole = taken(1)
    assert whole == taken(2) == taken(3)
    assert whole[5:] == taken(2, start=5)


def test_the_documentation_of_python_needs_no_preparing(tmp_path: Path) -> None:
    unprepared = place("python-docs", tmp_path).token_data(64, 256)
    prepare("python-docs", tmp_path)
    prepared = place("python-docs", tmp_path).token_data(64, 256)
    assert np.array_equal(open_by_name("python-docs", tmp_path).tokens("test"), PythonDocs().tokens("test"))
    first = [data.train.gather(np.arange(3), None)[0].numpy().astype(np.uint8) for data in (unprepared, prepared)]
    assert np.array_equal(*first)
    assert b"assert" in first[0].tobytes()
    assert len(unprepared.train) > 5000 < len(unprepared.train) + len(unprepared.held_out)


def test_what_does_not_fit_the_task_is_named(tmp_path: Path) -> None:
    prepare("mine", tmp_path, kind="tokens", source=str(files(tmp_path / "there", train=[1, 2, 300])))
    with pytest.raises(UserError, match=r"has tokens up to 300 and the task's vocabulary is 256.* vocabulary of 301"):
        place("mine", tmp_path).token_data(2, 256)
    with pytest.raises(UserError, match="has 3 training tokens and a sample takes 5"):
        place("mine", tmp_path).token_data(4, 301)
    with pytest.raises(UserError, match="data set mine holds tokens and the task reads images"):
        place("mine", tmp_path).data_set()
    with pytest.raises(UserError, match="data set digits holds images and the task reads tokens"):
        place("digits", tmp_path).token_data(2, 256)
    assert isinstance(place("mine", tmp_path).token_data(2, 301), TaskData)
    manifest = read_manifest(tmp_path / "mine")
    assert (manifest.kind, manifest.format) == (TOKENS, 2)
