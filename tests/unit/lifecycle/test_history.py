"""What TensorBoard gets of a run beside its metrics."""

from __future__ import annotations

from pathlib import Path

from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.tensorboard import history


def test_exports_name_the_newest_of_several_checkpoints(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "k3xq-digits")
    for update in (200, 1000, 600):
        paths.checkpoint(update).mkdir(parents=True)
    paths.job.write_text(record(2, name="digits").to_json())
    assert history(paths).places["newest checkpoint"] == str(paths.checkpoint(1000))


def test_exports_name_no_checkpoint_where_there_is_none(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "k3xq-digits")
    paths.folder.mkdir()
    paths.job.write_text(record(2, name="digits").to_json())
    assert "newest checkpoint" not in history(paths).places
