"""Ranks of a real run use the environment that the job brings to their node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_runs import Here


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return a packed virtualenv that finds what this one has, too."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "beside.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    subprocess.run(["tar", "-cf", str(tmp_path / "env.tar"), "-C", str(folder), "."], check=True)
    return tmp_path / "env.tar"


def test_the_ranks_of_a_command_and_of_a_task(here: Here, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    flags = ("--environment", f"archive={archive}", "--environment", f"folder={tmp_path / 'disk'}")
    here.write("tell.py", "import sys\nprint(sys.prefix)\n")
    run = here.follow("python", "tell.py", flags=flags)
    prefixes = {line for rank in (0, 1) for line in run.log(rank).splitlines() if line.startswith("/")}
    assert len(prefixes) == 1
    assert Path(prefixes.pop()).is_relative_to(tmp_path / "disk")
    asked = ("submit", "--cluster", "local", "--instances", "2", "--updates", "2", "--follow", *flags)
    task = here.at(here.json(*asked)["folder"])
    assert task.word("state") == "COMPLETED"
    (one,) = here.json("report", str(task.folder))["startups"]
    assert one["parts"]["imports"] > 0
