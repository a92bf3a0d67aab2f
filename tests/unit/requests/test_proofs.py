"""What a kept proof of `verify --resume` takes for a change."""

from __future__ import annotations

from pathlib import Path

from trainjob.records.checkpoints import sha256_of
from trainjob.records.files import MOST_BYTES
from trainjob.requests.proofs import ResumeProof


def test_a_change_of_a_file_larger_than_any_record_is_a_change(tmp_path: Path) -> None:
    extension = tmp_path / "kernels.so"
    with extension.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    files = {extension.name: sha256_of(extension)}
    proof = ResumeProof(0.0, ("python", "train.py"), instances=1, interruptions=1, codes=(), files=files)
    assert proof.changed(tmp_path) == []
    with extension.open("ab") as stream:
        stream.write(b"changed")
    assert proof.changed(tmp_path) == ["kernels.so"]
