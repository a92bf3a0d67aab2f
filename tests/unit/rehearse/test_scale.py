"""Which calls of a trace count as operations on the run directory."""

from __future__ import annotations

import pytest

from trainjob.rehearse.slurm.scale import is_operation


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ('7 openat(AT_FDCWD</runs/a/code>, "trainjob", O_RDONLY) = 3</runs/a/code/trainjob>', True),
        ('7 openat(AT_FDCWD</home>, "/runs/a/job.json", O_RDONLY <unfinished ...>', True),
        ("7 <... openat resumed>) = 3</runs/a/job.json>", False),
        ('7 read(3</runs/a/job.json>, ""..., 4096) = 12', True),
        ('7 newfstatat(3</runs/a/job.json>, "", {st_mode=S_IFREG|0600, ...}, AT_EMPTY_PATH) = 0', False),
        ('7 newfstatat(3</runs/a/job.json>, "",  <unfinished ...>', False),
        # Python's own library, from a process whose working folder is the run directory.
        ('7 openat(AT_FDCWD</runs/a/code>, "/usr/lib/python3/json.py", O_RDONLY) = 3</usr/lib/python3/json.py>', False),
    ],
)
def test_operations_on_a_run_directory(line: str, counts: bool) -> None:
    assert is_operation(line, "/runs/a") == counts
