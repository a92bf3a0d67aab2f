"""Lets a save end that is under way when TERM comes: it would end ranks that don't handle it in the middle of it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Optional, Sequence

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.launch.rank_environment import Rank
from trainjob.launch.ranks.asking import places_of_saves

# A save has ended once its files have not changed for so long. TERM waits for one so long at most.
_QUIET_S, _MOST_S = 1.0, 10.0


class Save:
    """What a rank may be writing, looked at in a thread of its own, because storage may hang.

    `folders` are those in which its processes work; `most_s` is how long TERM may wait. Raises RuntimeError where the
    system starts no thread.
    """

    def __init__(self, paths: RunPaths, rank: Rank, folders: Sequence[Path], most_s: float) -> None:
        self._paths, self._rank, self._folders = paths, rank, folders
        self._most_s = min(_MOST_S, most_s)
        self._deadline = clock.monotonic() + self._most_s
        self._has_ended = False
        threading.Thread(target=self._look, daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether nothing is being written any more, or TERM has waited long enough."""
        return self._has_ended or clock.monotonic() >= self._deadline

    def _look(self) -> None:
        from trainjob.records import tracked

        places = places_of_saves(self._paths, self._rank, self._folders)
        before: Optional[float] = None
        first = newest = tracked.newest_checkpoint(places)
        while newest not in (0.0, before):
            if before == first and not self.is_over:  # once
                sys.stderr.write("trainjob: a checkpoint is being written: the ranks get TERM later\n")
            clock.sleep(_QUIET_S)
            before, newest = newest, tracked.newest_checkpoint(places)
        self._has_ended = True
