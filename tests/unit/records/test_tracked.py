"""Files that frameworks write about their training, written here as their formats say."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from trainjob.records import tracked
from trainjob.records.tracked import Tracked


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, content: bytes | int | float) -> bytes:
    """Return a field of a protocol buffer: an int as varint, a float as 32 bits, bytes with their length."""
    if isinstance(content, bytes):
        return varint(number << 3 | 2) + varint(len(content)) + content
    if isinstance(content, float):
        return varint(number << 3 | 5) + struct.pack("<f", content)
    return varint(number << 3) + varint(content)


def event(step: int, tag: str, value: float, at: float = 1.75e9) -> bytes:
    summary = field(1, field(1, tag.encode()) + field(2, value))
    message = bytes([9]) + struct.pack("<d", at) + (field(2, step) if step else b"") + field(5, summary)
    return struct.pack("<Q", len(message)) + bytes(4) + message + bytes(4)


def wandb(*messages: bytes) -> bytes:
    """Return a file of W&B's: records in blocks of 32 kB, in parts where they don't fit."""
    content = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for message in messages:
        begun = False
        while True:
            left = 32768 - len(content) % 32768
            if left < 7:
                content += bytes(left)
                continue
            part, message = message[: left - 7], message[left - 7 :]
            kind = {(False, False): 1, (False, True): 2, (True, True): 3, (True, False): 4}[begun, bool(message)]
            content += struct.pack("<IHB", 0, len(part), kind) + part
            begun = True
            if not message:
                break
    return content


def history(**values: object) -> bytes:
    items = [
        field(1, field(1, name.encode()) + field(16, json.dumps(value).encode())) for name, value in values.items()
    ]
    return field(2, b"".join(items))


def test_event_files_are_read_on_as_they_grow(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    whole = event(0, "train/loss", 2.5) + event(10, "train/loss", 2.25, 1.75e9 + 60)
    path.write_bytes(whole[:-5])
    file = Tracked(path)
    assert [(one.step, dict(one.values)) for one in file.new()] == [(0, {"train/loss": 2.5})]
    path.write_bytes(whole)
    assert [(one.step, dict(one.values), one.at) for one in file.new()] == [(10, {"train/loss": 2.25}, 1.75e9 + 60)]
    assert list(file.new()) == []


def test_records_of_wandb_may_lie_in_several_blocks(tmp_path: Path) -> None:
    path = tmp_path / "run-a.wandb"
    whole = wandb(
        history(_step=0, loss=2.5), history(_step=1, loss=2.25, table="x" * 70_000), history(_step=2, loss=2.0)
    )
    file = Tracked(path)
    found = []
    for end in (20, 40_000, 65_536, len(whole)):
        path.write_bytes(whole[:end])
        found += [(one.step, one.values["loss"]) for one in file.new()]
    assert found == [(0, 2.5), (1, 2.25), (2, 2.0)]


def test_trainer_state_tells_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    log = [{"step": step, "loss": 3 - step / 10, "epoch": step / 10} for step in (5, 10)]
    path.write_text(json.dumps({"global_step": 5, "max_steps": 20, "epoch": 0.5, "log_history": log[:1]}))
    os.utime(path, (1, 1))
    file = Tracked(path)
    assert [(one.step, one.total, dict(one.values).get("loss")) for one in file.new()] == [(5, 20, 2.5), (5, 20, None)]
    assert list(file.new()) == []
    path.write_text(json.dumps({"global_step": 10, "max_steps": 20, "epoch": 1.0, "log_history": log}))
    assert [(one.step, dict(one.values).get("loss")) for one in file.new()] == [(10, 2.0), (10, None)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.csv", "epoch,step,train_loss,val_loss\n0,49,2.5,\n0,99,,2.75\n"),
        ("log.jsonl", '{"step": 49, "train_loss": 2.5}\nnot json\n[1]\n{"step": 99, "val_loss": 2.75}\n{"step": 1'),
    ],
)
def test_rows_that_are_complete(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    file = Tracked(tmp_path / name)
    first, second = file.new()
    assert (first.step, first.values["train_loss"], second.step, second.values["val_loss"]) == (49, 2.5, 99, 2.75)
    with (tmp_path / name).open("a") as stream:
        stream.write('49}\n{"step": 149}\n' if name.endswith("l") else "1,149,2.0,\n")
    assert [one.step for one in file.new()] == [149] * (2 if name.endswith("l") else 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("events.out.tfevents.1", struct.pack("<Q", 1 << 62) + bytes(100)),
        ("events.out.tfevents.1", struct.pack("<Q", 40) + bytes(4) + b"\xff" * 40 + bytes(4)),
        ("a.wandb", b":W&B123" + struct.pack("<IHB", 0, 30, 1) + b"\xff" * 30),
        ("trainer_state.json", b"[" * 100_000),
        ("trainer_state.json", b'{"log_history": {"a": 1}, "max_steps": [], "global_step": 1e999}'),
        ("log.jsonl", b"[" * 100_000 + b"\n"),
        ("metrics.csv", b'"' * 300_000 + b"\n"),
    ],
)
def test_a_damaged_file_says_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    file = Tracked(tmp_path / name)
    assert [one for one in (*file.new(), *file.new()) if one.values or one.step] == []


def test_only_new_files_near_by_are_found(tmp_path: Path) -> None:
    names = [
        "out/checkpoint-5/trainer_state.json",
        "logs/version_0/metrics.csv",
        "logs/events.out.tfevents.7",
        "a.wandb",
    ]
    others = ["train.py", "data/a.csv", ".git/a.jsonl", "a/b/c/d/e/f/log.jsonl", "old.jsonl"]
    for name in (*names, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    os.utime(tmp_path / "old.jsonl", (1, 1))
    os.mkfifo(tmp_path / "pipe.jsonl")
    found = tracked.find([tmp_path, tmp_path / "missing"], 1e9)
    assert {str(path.relative_to(tmp_path)) for path in found} == set(names)
    assert found[-1].name == "metrics.csv"


def scalar(tag: str, tensor: bytes) -> bytes:
    """Return an event of a newer TensorBoard: its value is a tensor."""
    message = field(2, 1) + field(5, field(1, field(1, tag.encode()) + field(8, tensor)))
    return struct.pack("<Q", len(message)) + bytes(4) + message + bytes(4)


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (field(1, 1) + field(4, struct.pack("<f", 2.5)), 2.5),
        (field(1, 1) + field(5, struct.pack("<f", 2.5)), 2.5),
        (field(1, 2) + field(4, struct.pack("<f", 2.5)), None),  # of another type
        (field(1, 1) + field(4, struct.pack("<ff", 2.5, 1.0)), None),  # of several values
        (field(1, 1) + field(4, 7), None),
        (field(1, 1), None),
        (field(1, 1) + field(4, struct.pack("<f", float("inf"))), None),
    ],
)
def test_a_tensor_of_one_float_is_a_value(tmp_path: Path, tensor: bytes, value: float | None) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(scalar("loss", tensor))
    found = [one.values.get("loss") for one in Tracked(tmp_path / "events.out.tfevents.1").new()]
    assert [one for one in found if one is not None] == ([] if value is None else [value])


@pytest.mark.parametrize("step", [1, 127, 128, 300, 1 << 14, (1 << 49) + 5])
def test_numbers_of_any_length_are_read(tmp_path: Path, step: int) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(event(step, "x" * 200, 0.5))
    assert [(one.step, dict(one.values)) for one in Tracked(tmp_path / "events.out.tfevents.1").new()] == [
        (step, {"x" * 200: 0.5})
    ]


@pytest.mark.parametrize("bytes_of_number", [10, 11])
def test_a_number_of_more_bytes_than_any_has_ends_the_record(tmp_path: Path, bytes_of_number: int) -> None:
    number = b"\x80" * (bytes_of_number - 1) + b"\x01"
    message = bytes([2 << 3]) + number + field(5, field(1, field(1, b"loss") + field(2, 0.5)))
    (tmp_path / "events.out.tfevents.1").write_bytes(struct.pack("<Q", len(message)) + bytes(4) + message + bytes(4))
    found = list(Tracked(tmp_path / "events.out.tfevents.1").new())
    assert [dict(one.values) for one in found] == ([{"loss": 0.5}] if bytes_of_number == 10 else [])


def test_fields_that_are_not_known_are_passed_over_by_their_width(tmp_path: Path) -> None:
    value = field(1, b"loss") + bytes([9 << 3 | 1]) + bytes(8) + bytes([10 << 3 | 5]) + bytes(4) + field(2, 0.5)
    message = field(2, 3) + field(5, field(1, value))
    (tmp_path / "events.out.tfevents.1").write_bytes(struct.pack("<Q", len(message)) + bytes(4) + message + bytes(4))
    assert [(one.step, dict(one.values)) for one in Tracked(tmp_path / "events.out.tfevents.1").new()] == [
        (3, {"loss": 0.5})
    ]


def test_folders_are_searched_four_levels_deep_and_no_others(tmp_path: Path) -> None:
    found_in = ["", "a", "a/b", "a/b/c", "a/b/c/d"]
    for folder in (*found_in, "a/b/c/d/e", ".hidden", "node_modules", "a/__pycache__"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "log.jsonl").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = tracked.find([tmp_path], 0.0)
    assert {str(path.parent.relative_to(tmp_path)) for path in found} == {folder or "." for folder in found_in}


def test_a_folder_with_very_many_files_is_searched_in_part(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(3100):
        (tmp_path / "many" / f"{number}.jsonl").touch()
    assert len(tracked.find([tmp_path], 0.0)) == 2999


def test_saved_state_is_known_by_its_name(tmp_path: Path) -> None:
    assert tracked.newest_checkpoint([tmp_path]) == 0.0
    for at, name in enumerate(("model.pt", "CKPT-5", "old.safetensors", "log.txt", "model.ptx"), 1):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert tracked.newest_checkpoint([tmp_path, tmp_path / "missing"]) == 3.0
    (tmp_path / "checkpoint-9").mkdir()
    assert tracked.newest_checkpoint([tmp_path]) == 3.0


@pytest.mark.parametrize(
    ("name", "is_state"),
    [
        ("last.ckpt", True),
        ("checkpoint-100", True),
        ("checkpoint_best", True),
        ("model.safetensors", True),
        ("checkpointable.py", False),
        ("checkpoint.cpython-311.pyc", False),
        ("checkpointing.log", False),
        ("checkpoint-is-incomplete.txt", False),  # Trainer's, while it writes one
    ],
)
def test_what_a_training_has_saved_is_known_by_its_name(name: str, is_state: bool, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert (tracked.newest_checkpoint([tmp_path]) > 0) == is_state


def test_saved_state_is_found_beside_a_folder_with_very_many_files(tmp_path: Path) -> None:
    for folder in ("data", "saved"):
        (tmp_path / folder).mkdir()
    for number in range(3100):
        (tmp_path / "data" / f"{number}.jpg").touch()
    (tmp_path / "saved" / "model.pt").touch()
    assert tracked.newest_checkpoint([tmp_path / "data", tmp_path / "saved"]) > 0
