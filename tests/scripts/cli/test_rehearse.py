"""What `trainjob rehearse` refuses before anything starts."""

from __future__ import annotations

import pytest

from trainjob.cli.main import main


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
