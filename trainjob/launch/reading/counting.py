"""One count of updates, out of what the lines of several sources say: bars within bars, counts within epochs."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from trainjob.launch.reading.lines import Reading
from trainjob.records.progress import ProgressRecord

# A count without anything that belongs to a training must rise this often.
_WEAK_READINGS = 3
# Of two sources of one kind, the other one counts once it has this many times as many readings.
_MORE_READINGS = 2.0
_MOST_SOURCES = 64
_NEAR = 0.1  # of a whole: what is near its beginning


class Position(NamedTuple):
    """How far a training is. `source` changes if another one counts from now on, perhaps something else."""

    source: str
    update: int
    total: Optional[int]
    epoch: Optional[int]


class _Source:
    """One kind of line, and the updates that it has counted."""

    def __init__(self, first: Reading, rank: int, is_shared: bool = False) -> None:
        self.rank, self.is_shared = rank, is_shared
        self.is_within = first.within_epoch
        self.is_bar = first.is_bar
        self.first = self.last = -1
        self.rises = self.readings = 0
        self.size: Optional[int] = None  # the total that it states, of an epoch if it counts within one
        self.before = 0  # updates of earlier epochs, or of earlier bars
        self.epoch: Optional[int] = None
        self.steps_since_other = 0
        self.counts_epochs = self.is_aside = False

    def take(self, reading: Reading, epoch: Optional[int], first_epoch: Optional[int]) -> None:
        """Note the count of a new reading; `epoch` is known for a count within one."""
        count = reading.update or 0
        begins_again = count < self.last
        if self.is_shared and self.size:
            # Another rank is a step behind, or still at the end of the epoch before.
            is_behind = begins_again and self.last - count < self.size / 2
            if is_behind or (self.before and self.last <= _NEAR * self.size < count - self.size / 2):
                return
        if self.is_within and not self.is_bar and self.epoch is not None and epoch is not None and epoch > self.epoch:
            # A count that does not begin again with a new epoch is over all of them.
            self.is_within = begins_again or reading.total is None
            self.before = self.before if self.is_within else 0
        if begins_again and (self.is_within or self.is_bar or epoch != self.epoch):
            self.before += self.size or self.last
        if self.is_within and epoch is not None and first_epoch is not None and reading.total:
            self.before = max(0, epoch - first_epoch) * reading.total
        self.rises += count > self.last
        self.first = count if self.first < 0 else self.first
        self.steps_since_other += max(0, count - self.last) if self.last >= 0 else 0
        self.last, self.epoch, self.size = count, epoch, reading.total or self.size
        self.readings += 1

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and not yet reached its total."""
        return self.size is None or self.last < self.size

    @property
    def can_count(self) -> bool:
        """Whether its count may be that of updates."""
        return not self.is_aside and (self.rank != _WEAK or self.rises >= _WEAK_READINGS)


_PATTERN, _GLOBAL, _LOOP, _WEAK, _EPOCHS = 5, 4, 3, 2, 1


class Counter:
    """Counts the updates of one attempt.

    `epochs` and `total` are what the command states; `earlier` is the record of the attempt before. `is_shared`:
    several ranks print the same.
    """

    def __init__(
        self,
        epochs: Optional[int] = None,
        total: Optional[int] = None,
        earlier: Optional[ProgressRecord] = None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._epochs, self._total, self._earlier, self._is_shared = epochs, total, earlier, is_shared
        self._stated_epochs = epochs
        self._epoch: Optional[float] = None
        self._has_fractions = False  # of epochs
        self._first_epoch: Optional[int] = None
        self._sources: Dict[str, _Source] = {}
        self._counting: Optional[Tuple[str, _Source]] = None

    def add(self, reading: Reading) -> Optional[Position]:
        """Take a reading, and return the new position if it has one."""
        self._epochs = self._stated_epochs or reading.epochs or self._epochs
        if reading.update is None and reading.total is not None:
            self._total = reading.total
        if reading.epoch is not None and (reading.update is None or reading.is_bar or reading.within_epoch):
            self._note_epoch(reading)
        if reading.update is not None:
            self._count(reading)
        elif reading.source == "epoch":
            self._count_epochs(reading)
        else:
            return None
        return self._position()

    def _note_epoch(self, reading: Reading) -> None:
        self._epoch = reading.epoch
        if self._first_epoch is None and reading.epoch is not None and reading.epoch == int(reading.epoch):
            self._first_epoch = self._numbered_from(int(reading.epoch), reading)

    def _numbered_from(self, epoch: int, reading: Reading) -> int:
        """Return the number of the run's first epoch: scripts begin with 0 or with 1."""
        earlier = self._earlier
        if epoch <= 1:
            return epoch
        if earlier is not None and earlier.epoch is not None and earlier.update and reading.total:
            return max(0, min(1, earlier.epoch - (earlier.update - 1) // reading.total))
        return 1 if reading.epochs is not None else 0

    def _count(self, reading: Reading) -> None:
        source = self._sources.get(reading.source)
        if source is None:
            if len(self._sources) >= _MOST_SOURCES:
                return
            rank = _WEAK if reading.is_weak else _LOOP if reading.is_bar or reading.within_epoch else _GLOBAL
            source = _Source(reading, _PATTERN if reading.source == "pattern" else rank, self._is_shared)
            if reading.is_bar:
                self._nest(source)
            self._sources[reading.source] = source
        is_over_all = reading.epoch is not None and reading.epoch != int(reading.epoch)
        epoch = None if self._epoch is None or is_over_all else int(self._epoch)
        source.take(reading, epoch, self._first_epoch)
        if source.is_bar:
            self._look_at_bars(source)
        self._choose()

    def _nest(self, inner: _Source) -> None:
        """Note what a bar is that begins while another one is at work: a loop in an epoch, or an evaluation."""
        for outer in self._sources.values():
            if outer.is_bar and outer.is_open and not outer.is_aside:
                if outer.last > outer.first:
                    inner.is_aside = True
                else:
                    outer.counts_epochs = True

    def _look_at_bars(self, moved: _Source) -> None:
        for other in self._sources.values():
            if other is not moved and other.is_bar:
                if moved.counts_epochs and moved.steps_since_other > 1:
                    # It trains while the inner bar stands still.
                    moved.counts_epochs, other.is_aside = False, True
                other.steps_since_other = 0
        if moved.counts_epochs and moved.size:
            self._epochs = moved.size

    def _count_epochs(self, reading: Reading) -> None:
        epoch, total = reading.epoch or 0.0, self._epochs
        self._has_fractions |= epoch != int(epoch)
        if self._epochs and self._total:
            count, total = round(epoch / self._epochs * self._total), self._total
        elif not self._has_fractions:
            is_done = bool(reading.figures or reading.held_out)  # a bare `Epoch 3/10` begins one
            count = int(epoch) - (self._first_epoch or 0) + is_done
        else:
            return
        source = self._sources.setdefault(reading.source, _Source(reading, _EPOCHS))
        source.take(reading._replace(update=count, total=total), None, None)
        self._choose()

    def _choose(self) -> None:
        able = [(name, one) for name, one in self._sources.items() if one.can_count]
        best = max(able, key=lambda pair: (self._rank(pair[1]), pair[1].readings), default=None)
        now = self._counting
        if best is None or now is None or not now[1].can_count:
            self._counting = best
            return
        more = self._rank(best[1]) - self._rank(now[1])
        if more > 0 or (more == 0 and best[1].readings > _MORE_READINGS * now[1].readings):
            self._counting = best

    @staticmethod
    def _rank(source: _Source) -> int:
        return _EPOCHS if source.counts_epochs else source.rank

    def _position(self) -> Optional[Position]:
        if self._counting is None:
            return None
        name, source = self._counting
        total = source.size
        if source.is_within or source.before or self._is_one_of_epochs(source):
            total = source.size * self._epochs if source.size and self._epochs else None
        update = source.before + source.last
        total = total if total is not None else (self._total if source.rank == _GLOBAL else None)
        epoch = None if self._epoch is None else int(self._epoch)
        return Position(name, update, total if total is None or total >= update else None, epoch)

    def _is_one_of_epochs(self, source: _Source) -> bool:
        """Whether a bar is drawn within another one that counts epochs."""
        return source.is_bar and any(other.counts_epochs for other in self._sources.values() if other is not source)
