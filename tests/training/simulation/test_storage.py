"""What hosts see of shared storage in the simulation: what they saw there, for a while."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulation.storage import Storage
from simulation.world import World
from trainjob.records.files import see_anew

LATE_S = 30.0


class Shared:
    """A folder that hosts share, with a file. `host` looks at it; None: nobody, who sees what is there."""

    def __init__(self, folder: Path) -> None:
        self.world = World(1, folder, 0.0)
        self.folder = folder / "runs"
        self.folder.mkdir()
        self.file = self.folder / "state"
        self.file.write_text("RUNNING")
        self.storage = Storage(self.world, ("login1", "login2"), [self.folder], LATE_S)
        self.host: str | None = None

    def by(self, host: str | None, do: Callable[[], object]) -> object:
        before, self.host = self.host, host
        try:
            return do()
        finally:
            self.host = before


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path)
    with made.storage.shown_to(lambda: made.host):
        made.by("login1", made.file.read_text)
        made.file.write_text("COMPLETED")
        (made.folder / "exit_code").write_text("0")
        yield made


def test_a_host_believes_what_it_saw_until_it_is_too_old(shared: Shared) -> None:
    shared.host, shared.world.now = "login1", LATE_S - 1
    assert shared.file.read_text() == "RUNNING"
    assert not (shared.folder / "exit_code").exists()
    shared.world.now = LATE_S
    assert shared.file.read_text() == "COMPLETED"


@pytest.mark.parametrize("look", [see_anew, os.listdir])
def test_a_folder_that_is_opened_or_listed_is_seen_anew(shared: Shared, look: Callable[[Path], object]) -> None:
    shared.host = "login1"
    assert shared.file.read_text() == "RUNNING"
    getattr(os, look.__name__, look)(shared.folder)  # the world's own
    assert shared.file.read_text() == "COMPLETED"


def test_a_file_that_is_gone_is_still_seen(shared: Shared) -> None:
    shared.file.unlink()
    assert shared.by("login1", shared.file.read_text) == "RUNNING"
    assert not shared.by("login2", shared.file.exists)


def test_hosts_look_for_themselves(shared: Shared) -> None:
    assert shared.by("login2", shared.file.read_text) == "COMPLETED"


def test_a_host_sees_anew_what_it_changes(shared: Shared) -> None:
    shared.storage.changes(str(shared.folder / ".lock"), "login1")
    assert shared.by("login1", shared.file.read_text) == "COMPLETED"


def test_what_is_written_reaches_the_storage(shared: Shared) -> None:
    shared.by("login1", lambda: shared.file.write_text("CANCELLED"))
    assert shared.file.read_text() == "CANCELLED"
    with pytest.raises(FileExistsError):
        shared.by("login1", lambda: os.open(shared.folder / "exit_code", os.O_CREAT | os.O_EXCL))


def test_storage_that_is_never_late_shows_what_is_there(tmp_path: Path) -> None:
    world, folder = World(1, tmp_path, 0.0), tmp_path / "runs"
    folder.mkdir()
    read = os.stat
    with Storage(world, ("login1",), [folder], 0.0).shown_to(lambda: "login1"):
        assert os.stat is read
