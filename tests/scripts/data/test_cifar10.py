"""Processes that prepare the same data set at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.cutting_server import Behaviour, serving
from tests.support.small_cifar import files, make_batches, sha256, write_archive
from trainjob.data.checking import check_folder

PREPARE = """
import sys
from pathlib import Path
from trainjob.data.prepare import prepare
prepare("cifar10", Path(sys.argv[1]), source=sys.argv[2], sha256=sys.argv[3])
"""


def test_several_at_once_leave_one_whole_data_set(tmp_path: Path) -> None:
    archive, folder = write_archive(tmp_path / "cifar-10-python.tar.gz", make_batches()), tmp_path / "data"
    with serving(Behaviour(archive.read_bytes(), cuts=[500, 500, 500])) as server:
        words = [sys.executable, "-c", PREPARE, str(folder), server.url, sha256(archive)]
        started = [subprocess.Popen(words) for _ in range(3)]
        assert [process.wait(60) for process in started] == [0, 0, 0]
    assert files(folder) == ["cifar10"]
    check_folder(folder / "cifar10")
