"""A rank that mpirun starts on a host which has another folder of the same path ends, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.train.shared_folder import refuse_another

TOKEN = "7.0.123"


def test_the_very_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".token").write_text(f"{TOKEN}\n")
    paths = RunPaths(tmp_path)
    refuse_another(paths, TOKEN, limit_s=0)
    assert paths.token.read_text() == f"{TOKEN}\n"


@pytest.mark.parametrize("there", ["6.0.99\n", None])
def test_another_folder_of_the_same_path_is_refused(tmp_path: Path, there: str | None) -> None:
    if there:
        (tmp_path / ".token").write_text(there)
    with pytest.raises(UserError, match=f"does not see run directory {tmp_path}, or another of that name"):
        refuse_another(RunPaths(tmp_path), TOKEN, limit_s=-1)
