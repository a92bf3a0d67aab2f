"""One count of updates, out of what the lines of several sources say: bars within bars, counts within epochs.

Where the updates themselves are counted (counts.py), `Pace` says which of these counts is theirs.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from trainjob.launch.reading.lines import Reading
from trainjob.records.progress import ProgressRecord

# A count without anything that belongs to a training must rise this often.
_WEAK_READINGS = 3
# Of two sources of one kind, the other one counts once it has this many times as many readings.
_MORE_READINGS = 2.0
_MOST_SOURCES = 64
_LEAST_UPDATES = 3  # that must be seen before a printed count is known to be theirs
_SURE = 3  # between the least and the most that it may be ahead by


class Position(NamedTuple):
    """Training progress. `source` changes when another counter, perhaps of something else, takes over."""

    source: str
    update: int
    total: Optional[int]
    epoch: Optional[int]
    may_be_of_epoch: bool = False  # the total: a bar states it, which may be drawn anew in each epoch


class _Source:
    """One kind of line, and the updates that it has counted."""

    def __init__(self, first: Reading, rank: int) -> None:
        self.rank = rank
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
        if self.is_within and not self.is_bar and self.epoch is not None and epoch is not None and epoch > self.epoch:
            # A count that does not begin again with a new epoch is over all of them.
            self.is_within = begins_again or reading.total is None
            self.before = self.before if self.is_within else 0
        if begins_again and (self.is_within or self.is_bar or epoch != self.epoch or count <= self.first):
            self.before += self.size or self.last + (self.first == 0)
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

    `epochs` and `total` are what the command states; `earlier` is the record of the attempt before.
    """

    def __init__(
        self, epochs: Optional[int] = None, total: Optional[int] = None, earlier: Optional[ProgressRecord] = None
    ) -> None:
        self._epochs, self._total, self._earlier = epochs, total, earlier
        self._stated_epochs = epochs
        self._bar_of_epochs: Optional[int] = None  # the total of a bar around others
        self._epoch: Optional[float] = None
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
        if reading.update is None:
            return None
        self._count(reading)
        return None if self._counting is None else self._position(*self._counting, self._epochs or self._bar_of_epochs)

    @property
    def epochs(self) -> Optional[int]:
        """The number of epochs that the command states, or its output, if that counts from 1: others end at N - 1."""
        return self._stated_epochs or (self._epochs if self._first_epoch == 1 else None)

    @property
    def named_epochs(self) -> Optional[int]:
        """The number of epochs, or that of the last one, that the command states, or its output."""
        return self._epochs

    @property
    def stated_total(self) -> Optional[int]:
        """The number of updates that the command or its output states."""
        return self._total

    @property
    def epoch(self) -> Optional[int]:
        """The newest epoch that the output names."""
        return None if self._epoch is None else int(self._epoch)

    def of(self, reading: Reading) -> Optional[Position]:
        """Return what the source of this reading alone counts."""
        source = self._sources.get(reading.source)
        if source is None or reading.update is None:
            return None
        return self._position(reading.source, source, self.epochs)

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
            source = _Source(reading, _PATTERN if reading.source == "pattern" else rank)
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
            self._bar_of_epochs = moved.size

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

    def _position(self, name: str, source: _Source, epochs: Optional[int]) -> Position:
        total = source.size
        if source.is_within or source.before or self._is_one_of_epochs(source):
            total = source.size * epochs if source.size and epochs else None
        update = source.before + source.last
        total = total if total is not None else (self._total if source.rank == _GLOBAL else None)
        may_be_of_epoch = source.is_bar and not epochs
        return Position(name, update, total if total is None or total >= update else None, self.epoch, may_be_of_epoch)

    def _is_one_of_epochs(self, source: _Source) -> bool:
        """Whether a bar is drawn within another one that counts epochs."""
        return source.is_bar and any(other.counts_epochs for other in self._sources.values() if other is not source)


class Pace:
    """A printed count beside the updates that are counted: whether it moves as they do.

    `times` is how many times as fast it moves, once that is known.
    """

    def __init__(self) -> None:
        self.label = ""
        self.total: Optional[int] = None
        self.may_be_of_epoch = False
        self._first: Optional[Tuple[int, int]] = None
        self._last = (0, 0)
        self._before = 0
        self._least, self._most = -(1 << 60), 1 << 60  # what it may be ahead by

    def add(self, position: Position, before: int, now: int, label: str, *, is_bar: bool) -> None:
        """Take a count that was printed when between `before` and `now` updates had been made."""
        self.label, self.total, self._last = label, position.total, (position.update, now)
        self.may_be_of_epoch = position.may_be_of_epoch
        self._first = self._first or self._last
        # A bar ends where the next one begins, and is read then.
        earliest, self._before = self._before if is_bar else before, before
        # A line may be printed before its update, and count from 0.
        self._least = max(self._least, position.update - now - 1)
        self._most = min(self._most, position.update - earliest + 1)

    def is_ahead_by(self, offset: int) -> bool:
        """Return whether it is known to count updates, and may be ahead of those that are counted by so many."""
        if self._first is None:
            return False
        made = min(last - first for first, last in zip(self._first, self._last))  # as printed, and as counted
        is_known = made >= _LEAST_UPDATES and self._most - self._least < made
        return is_known and self._least <= offset <= self._most

    @property
    def offset(self) -> Optional[int]:
        """How much it is ahead by; None while that is not known to the update."""
        nearest = self._least + 1
        return nearest if self._most - self._least <= _SURE and self.is_ahead_by(nearest) else None

    def is_at(self, updates: int) -> bool:
        """Return whether as much was printed last as has been counted in the end."""
        return self._least <= 0 <= self._most and updates >= _LEAST_UPDATES and abs(self._last[0] - updates) <= 1

    @property
    def times(self) -> Optional[float]:
        """How many times as fast as the updates it moves; None while that is not known."""
        if self._first is None or self._least <= self._most or self._last[1] <= self._first[1]:
            return None
        return (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])
