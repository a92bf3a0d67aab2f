"""States that scripts save are read value by value, and nothing in them is executed."""

from __future__ import annotations

import argparse
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import state_dict_saver

from trainjob.records import saved_states
from trainjob.records.files import DamagedError
from trainjob.records.saved_states import SavedTensor
from trainjob.train.recording import safetensors


def read(folder: Path) -> Mapping[str, object]:
    (state,) = saved_states.find(folder, lambda _path: False)
    return {"/".join(leaf.path): leaf.value for leaf in state.leaves()}


def test_a_state_of_torch_save_is_read_value_by_value(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "turned": torch.arange(6).reshape(2, 3).T,
        "half": torch.ones(2, dtype=torch.bfloat16),
        "args": argparse.Namespace(width=7),
        "step": 12,
    }
    torch.save(state, tmp_path / "last.pt")
    found = read(tmp_path)
    assert found["step"] == 12
    assert found["args/width"] == 7
    assert found["optimizer/param_groups/0/lr"] == 0.25
    assert found["model/weight"] == SavedTensor("F32", (2, 3), model.weight.detach().numpy().tobytes())
    assert found["optimizer/state/0/exp_avg"] == SavedTensor("F32", (2, 3), (torch.ones(2, 3) / 10).numpy().tobytes())
    assert found["turned"] == SavedTensor("I64", (3, 2), torch.tensor([0, 3, 1, 4, 2, 5]).numpy().tobytes())
    assert found["half"] == SavedTensor("BF16", (2,), b"\x80\x3f\x80\x3f")


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
def test_a_torn_file_is_told(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "last.pt"
    torch.save({"model": torch.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedError, match="is torn"):
        read(tmp_path)


def test_safetensors_and_counters_of_a_trainer(tmp_path: Path) -> None:
    safetensors.save(tmp_path / "model.safetensors", {"w": torch.ones(2)})
    assert read(tmp_path) == {"w": SavedTensor("F32", (2,), torch.ones(2).numpy().tobytes())}
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "trainer_state.json").write_text(
        '{"global_step": 7, "epoch": 0.5, "log_history": [{"train_runtime": 3}]}'
    )
    assert read(tmp_path) == {"global_step": 7, "epoch": 0.5}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_is_one_state(tmp_path: Path) -> None:
    state_dict_saver.save(
        {"model": {"w": torch.arange(4.0)}, "step": 5}, checkpoint_id=tmp_path / "step-5", no_dist=True
    )
    found = read(tmp_path)
    tensors = [value for value in found.values() if isinstance(value, SavedTensor)]
    assert [tensor.data for tensor in tensors] == [torch.arange(4.0).numpy().tobytes()]
    assert 5 in found.values()
    next((tmp_path / "step-5").glob("*.distcp")).write_bytes(b"")
    with pytest.raises(DamagedError, match="is torn"):
        read(tmp_path)
