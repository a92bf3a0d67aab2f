"""What `trainjob rehearse` refuses before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.check import checks
from trainjob.cli.main import main
from trainjob.contract.errors import UserError
from trainjob.rehearse import kinds
from trainjob.rehearse.base import Rehearsal, RehearsalVerdict


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--cluster", "local"], 1, "its own rehearsal is trainjob submit --cluster local"),
        (["--cluster", "slurm-gpu", "--inject", "fire"], 2, "'fire' is not one of 'timeout', 'preempt'"),
        (["--cluster", "slurm-gpu", "--instances", "99"], 1, "99"),
    ],
)
def test_refuses(arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rehearse", *arguments])
    assert ended.value.code == code
    assert message in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("launcher", ["torchrun", "python"])
def test_the_cure_for_lightning_under_torchrun_is_printed_before_anything_starts(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(_rehearsal: Rehearsal) -> RehearsalVerdict:
        raise UserError("it would start now")

    monkeypatch.setitem(kinds.KINDS, "slurm", start)
    monkeypatch.setattr(checks, "of_rehearsal", lambda *_: [])  # Lightning need not be installed
    (tmp_path / "train.py").write_text("import lightning\n\nlightning.Trainer(max_epochs=3).fit(None)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["rehearse", "--cluster", "slurm-gpu", "--no-gpus", "--", launcher, "train.py"])
    printed = capsys.readouterr()
    assert "it would start now" in printed.err
    assert ("warning: train.py uses Lightning" in printed.out) == (launcher == "torchrun")
    assert ("-- python train.py, with its devices and num_nodes" in printed.out) == (launcher == "torchrun")
