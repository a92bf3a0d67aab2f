"""Updates are counted on stand-in GPUs as on others, also where an optimizer leaves out a step by itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.gpu_scripts import alone, environment
from trainjob.launch.reading.counts import Counts

SCRIPT = """\
import torch
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.{optimizer}
scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** 10)
for step in range(8):
    loss = model(torch.randn(8, 4, device="cuda")).square().mean() * (float("inf") if step in (1, 4) else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
"""


@pytest.mark.parametrize("optimizer", ["SGD(model.parameters(), lr=0.1)", "AdamW(model.parameters(), fused=True)"])
def test_steps_that_are_left_out_are_no_updates(optimizer: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    path = f"{ROOT / 'trainjob/launch/hooks'}:{environment(tmp_path)['PYTHONPATH']}"
    with tempfile.TemporaryFile() as file:
        counts = Counts(file)
        ours = {"PYTHONPATH": path, "RANK": "0", "TRAINJOB_STACKS": str(tmp_path / "notes"), **counts.environment()}
        ended = alone(tmp_path, SCRIPT.format(optimizer=optimizer), 4, **ours)
        assert ended.code == 0, ended.err
        assert counts.look((tmp_path / "notes").read_text()).counted.updates == 6
