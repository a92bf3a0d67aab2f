"""What `trainjob rehearse` refuses before anything starts."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(
    ("words", "about", "cure"),
    [
        (["--", "torchrun"], ["under torchrun"], "-- python train.py, with its devices and num_nodes"),
        (["--instances", "2", "--", "python"], ["whose ranks save"], "the callback in docs/your-own-script.md"),
        (["--instances", "1", "--", "python"], [], ""),
    ],
)
def test_what_lightning_does_at_the_time_limit_is_printed_before_anything_starts(
    words: list[str],
    about: list[str],
    cure: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(_rehearsal: Rehearsal) -> RehearsalVerdict:
        raise UserError("it would start now")

    monkeypatch.setitem(kinds.KINDS, "slurm", start)
    monkeypatch.setattr(checks, "of_rehearsal", lambda *_: [])  # Lightning need not be installed
    (tmp_path / "train.py").write_text("import lightning\n\nlightning.Trainer(max_epochs=3).fit(None)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["rehearse", "--cluster", "slurm-gpu", "--no-gpus", *words, "train.py"])
    printed = capsys.readouterr()
    assert "it would start now" in printed.err
    warnings = re.findall("uses Lightning, (?:which )?(under torchrun|whose ranks save)", printed.out)
    assert warnings == about
    assert cure in printed.out
