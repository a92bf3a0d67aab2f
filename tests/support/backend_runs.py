"""One run of the suite, as its folder, its status and /proc show it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.local_runs import command_of, every_process, kill, marked, oldest_first, parent_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.backend_places import Place

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "STOPPED", "LOST", "TIMEOUT")


class Run:
    """One run of a place."""

    def __init__(self, place: Place, run: str) -> None:
        self.place = place
        self.id = run

    @property
    def folder(self) -> Path:
        return self.place.runs / self.id

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.place.json("status", self.id)
        return status

    def word(self, name: str) -> str:
        path = self.folder / name
        return path.read_text().strip() if path.exists() else ""

    def log(self, rank: int) -> str:
        return self.word(f"logs/rank-{rank:04d}.log")

    def weights(self) -> dict[str, Any]:
        """Return the digest of the weights of each checkpoint, by its name."""
        folders = sorted((self.folder / "checkpoints").glob("update-*"))
        indexes = {path.name: json.loads((path / "index.json").read_text()) for path in folders}
        return {name: index["files"]["model.safetensors"] for name, index in indexes.items()}

    def wait_until_ready(self) -> None:
        """Wait until both ranks of the script STAY are at work, and each has left its daemon behind."""

        def ready() -> bool:
            return all("ready" in self.log(rank) for rank in (0, 1)) and len(self.daemons()) == 2

        until(lambda: self._is_at_work() and ready(), f"{self.id} ready")

    def wait_for_updates(self, number: int) -> None:
        def made() -> int:
            text = self.word("progress.json")
            return (json.loads(text).get("update") or 0) if text else 0

        until(lambda: self._is_at_work() and made() >= number, f"{number} updates of {self.id}")

    def _is_at_work(self) -> bool:
        assert self.word("state") not in ENDED, self.everything()
        return True

    def wait(self, state: str) -> None:
        """Wait until the run's own files say that it has ended, and require that it did so."""
        until(lambda: self.word("state") in ENDED, f"the end of {self.id}")
        assert self.word("state") == state, self.everything()

    def wait_for_status(self, state: str) -> dict[str, Any]:
        """Return the status, once it says `state`: files alone don't tell how a killed script's run has ended."""
        return dict(until(lambda: (now := self.status())["state"] == state and now, f"{self.id} {state}"))

    def processes(self) -> list[int]:
        """Return the processes of the run on every host, also those that have lost its mark from their environment."""
        return [*(pid for pid in marked(self.folder) if command_of(pid)), *self.daemons()]

    def daemons(self) -> list[int]:
        """Return the daemons of the script STAY that have lost the run's mark."""
        return [pid for pid in every_process() if command_of(pid)[:1] == [f"left-by-{self.id}"]]

    def script(self) -> list[int]:
        """Return the job script; Slurm runs a copy of it, which lacks the run's mark."""
        shells = (
            pid for pid in every_process() if [os.path.basename(word) for word in command_of(pid)[:1]] == ["bash"]
        )
        return oldest_first(pid for pid in shells if _folder_of(pid) == self.folder)[:1]

    def launcher(self) -> list[int]:
        """Return the process that watches over a rank: neither its guard, above it, nor the observer, below it."""
        above = [parent_of(pid) for pid in self.rank()]
        return [pid for pid in above if command_of(pid)[1:3] == ["-m", "trainjob.launch"]]

    def rank(self) -> list[int]:
        """Return a rank of the script STAY."""
        return [pid for pid in self.processes() if command_of(pid)[1:2] == ["stay.py"]][-1:]

    def kill(self, victims: list[int]) -> None:
        assert victims, self.everything()
        kill(victims)

    def wait_until_nothing_is_left(self) -> None:
        until(lambda: not self.processes(), f"the processes of {self.id} to be gone")

    def everything(self) -> str:
        """Return what the script and the ranks have printed, for the message of a failing test."""
        parts = [f"state {self.word('state')!r}, processes {[command_of(pid) for pid in self.processes()]}"]
        for log in sorted((self.folder / "logs").glob("*")):
            parts.append(f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        return "\n".join(parts)


def _folder_of(pid: int) -> Path | None:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return None
