"""Writes progress.json and metrics.jsonl for a command of the user's own, as our runtime does for a task.

Updates are those that the hook in the Python of rank 0 has counted. Of a program without torch's optimizers they are
what it prints; where it prints no count, what is in the files that it writes. What is printed beside counted updates
gives the total, if it moves as they do, and the loss of the training. The epoch of counted updates follows from them.
Accuracies, what evaluations found and all else are quoted as printed. progress.json says where each value comes from.
All times are those at which something was seen, unless the hook or a file says when it happened.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from pathlib import Path
from typing import Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from trainjob.contract import clock
from trainjob.contract.forms import parse_pattern
from trainjob.contract.paths import RunPaths
from trainjob.launch.reading import lines
from trainjob.launch.reading.counting import Counter, Pace, Position
from trainjob.launch.reading.counts import Counted, Look
from trainjob.launch.reading.lines import Reading
from trainjob.records import attempts, metrics, tracked
from trainjob.records import progress as progress_records
from trainjob.records.output import Output
from trainjob.records.progress import ProgressRecord
from trainjob.records.tracked import Tracked

# One line of metrics for a thousandth of the time so far, so that a long run's file stays small.
_SHARE_OF_TIME = 0.001
# The first counts of an attempt that are compared to learn where it has begun.
_FIRST_POINTS = 3
_JUMP = 5.0
# Files are looked for this long after the start, and this often.
_SEARCH_AFTER_S, _SEARCH_EVERY_S, _MOST_OF_TIME = 10.0, 10.0, 0.005
_MOST_FILES = 8
_LEAST_GAPS, _MOST_GAPS, _MOST_MADE = 3, 50, 2000
_LONGEST_PATH, _MOST_WORDS, _LONGEST_LABEL = 500, 50, 60
_MOST_QUOTES, _LONGEST_QUOTE = 3, 120
_BLOCKS = re.compile("[\u2500-\u25ff]+")  # of which bars are made
_WITH_PATHS = (".py", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf")
_MANY_TIMES = 1.5
_COUNTED = "counted"  # the source of positions that the hook has counted
# The key under which the seconds of an interval are recorded, which can't be divided into phases from outside.
_UNDIVIDED = "training"
_EPOCHS = re.compile(r"(?:(?:num|n|max|nb|total|train)_)*(?:train_)?epochs\Z")
_TOTALS = re.compile(r"(?:(?:num|n|max|total|train|training)_){1,3}(?:steps|iters|iterations|updates)\Z")


class _Point(NamedTuple):
    """An update at which the figures of an interval are recorded."""

    at: float
    position: Position
    aside_s: float  # of the interval, in evaluations
    figures: Dict[str, float]


class ScriptProgress:
    """The progress of one attempt of a command. `logs` are those of the ranks that may print it, the surest first."""

    def __init__(
        self,
        paths: RunPaths,
        attempt: int,
        logs: Sequence[Path],
        command: Sequence[str] = (),
        pattern: str = "",
        folder: Optional[Path] = None,
        *,
        counts: Callable[[], Look] = Look,
        started: Optional[Tuple[float, float]] = None,
        start_up: Callable[[float, float], Dict[str, float]] = lambda _started, _updated: {},
    ) -> None:
        self._launched = started  # when the launcher began, and when it started the command
        self._start_up = start_up  # what the command's processes noted between its start and its first update
        self._paths, self._attempt = paths, attempt
        self._pattern = parse_pattern(pattern) if pattern else None
        self._earlier: Optional[ProgressRecord] = progress_records.read(paths)
        if not 0 < self._earlier.attempt < attempt:
            self._earlier = None
        epochs, total = stated(command)
        self._outputs = [(Output(log, attempt), Counter(epochs, total, self._earlier)) for log in logs]
        self._log_of_counts = self._outputs[0][0]  # into which the process prints whose updates are counted
        self._counter_of_files = Counter(epochs, total, self._earlier)
        self._lines = metrics.Writer(paths, attempt)
        self._started = clock.time()
        self._position: Optional[Position] = None
        self._moved_at = self._beat_at = self._looked_at = self._started
        self._timed: Optional[Tuple[int, float]] = None  # the first update that was seen, and when
        self._counts = counts  # what the hook in the ranks' Python has counted
        self._known, self._counted_before = Look(), 0
        self._asides_seen = 0  # of what may have been evaluations, those that were known in the look before
        self._base: Optional[int] = None  # updates before those that are counted
        self._paces: Dict[str, Pace] = {}  # by source
        self._epoch: Optional[int] = None  # the newest that is printed
        self._epochs_differ = False  # what is printed, from the passes over the loader
        self._quotes: Dict[str, str] = {}  # the newest line of each wording that names figures
        self._sources: Dict[str, str] = {}  # where each value comes from
        self._heading = ""  # the line before, if it says that the next one is of an evaluation
        self._figures: Dict[str, float] = {}
        self._output_counts = self._output_has_loss = False
        self._gaps: Deque[float] = deque(maxlen=_MOST_GAPS)  # seconds between two counts
        self._longest_gap_s = 0.0
        self._trouble: Optional[str] = None
        self._made: Deque[Tuple[float, int]] = deque(maxlen=_MOST_MADE)  # when, and which update
        self._durable_update: Optional[int] = None
        self._kept_at: Optional[float] = None  # when it wrote its newest checkpoint, while no update is known
        self._aside_s = 0.0
        self._points: List[_Point] = []  # not yet written
        self._last: Optional[_Point] = None  # the newest one that was written
        self._began_at: Optional[int] = None
        self._is_changed = False
        # Looked for where the output tells no count, or no loss. None: it tells both, or an expression reads it.
        self._files: Optional[Dict[Path, Tracked]] = None if self._pattern else {}
        self._folders = folders_of(folder, command) if folder is not None else []
        # Where others may write as well, what they log is not taken for this command's.
        self._saves_to = [*self._folders, *(stated_in_files(folder, command) if folder is not None else [])]
        self._names_of_files: Set[str] = set()
        # By the clock of the file system, where checkpoints are written as a rule: nodes' own differ.
        self._saves_from = self._started
        with contextlib.suppress(OSError):
            self._saves_from = paths.attempt.stat().st_mtime
        self._search_at = self._checkpoint_at = self._started + _SEARCH_AFTER_S

    def since_progress(self) -> Optional[Tuple[float, float, float]]:
        """Return the seconds since the last progress, the usual gap and the longest; None if unknown, or at the end.

        What took long before, such as an evaluation, may take so long again.
        """
        position = self._position
        if position is None or len(self._gaps) < _LEAST_GAPS or position.update == position.total:
            return None
        return clock.time() - self._beat_at, sorted(self._gaps)[len(self._gaps) // 2], self._longest_gap_s

    def trouble(self, text: Optional[str]) -> None:
        """Have the record of progress say what is wrong, or that nothing is any more."""
        self._trouble = text
        with contextlib.suppress(OSError):
            if not attempts.is_stale(self._paths, self._attempt):
                progress_records.write(self._paths, self._record())

    def look(self, *, is_last: bool = False) -> None:
        """Read what is new, and write what it says; `is_last`: the ranks have ended."""
        now = clock.time()
        before, self._known = self._counted_before, self._counts()
        # What is printed from here on is read in the next look.
        self._counted_before = self._known.counted.updates if self._known.counted is not None else 0
        if self._output_counts and self._output_has_loss:
            self._files = None
        if self._files is not None and (now >= self._search_at or is_last):
            self._look_at_files(self._files, now)
        for number, (output, counter) in enumerate(self._outputs):
            printed: List[Tuple[Reading, str, Optional[Tuple[int, int]]]] = []
            for line, at in output.new(is_last=is_last):
                reading, label = self._read(line)
                if reading is not None:
                    place = (at, at + len(line.encode())) if output is self._log_of_counts else None
                    printed.append((reading, label, place))
            self._known = self._counts() if printed else self._known
            for reading, label, place in printed:
                if reading.update is not None and self._files is not None and not self._output_counts:
                    # Without a terminal, a bar may be drawn once, at the end, when a file has reported everything.
                    self._look_at_files(self._files, now)
                known = reading if self._pattern else self._of_training(reading, place)
                self._output_counts |= self._take(known, counter, now, label, before)
            if self._output_counts:
                # All ranks may print the same; the first one that does is enough.
                self._outputs = [self._outputs[number]]
                break
        if self._known.counted is not None and self._pattern is None:
            self._asides_seen = self._known.counted.asides_before + len(self._known.counted.asides)
            self._follow(self._known.counted, is_last)
        if now >= self._checkpoint_at or is_last:
            began = clock.monotonic()
            newest = tracked.newest_checkpoint(self._saves_to)
            written = newest if newest >= self._saves_from else 0.0  # by this attempt
            durable = max((update for at, update in self._made if at <= written), default=None)
            is_read = self._position is not None or (self._earlier is not None and self._earlier.update is not None)
            kept_at = written if written and not is_read else None
            if (durable, kept_at) != (self._durable_update, self._kept_at):
                self._durable_update, self._kept_at, self._is_changed = durable, kept_at, True
            self._checkpoint_at = now + max(_SEARCH_EVERY_S, (clock.monotonic() - began) / _MOST_OF_TIME)
        self._write(now, is_last)
        self._looked_at = now
        if is_last:
            self._lines.close()

    def _look_at_files(self, files: Dict[Path, Tracked], now: float) -> None:
        """Read the files that the command has written."""
        began = clock.monotonic()
        for path in reversed(tracked.find(self._folders, self._started)[:_MOST_FILES]):
            # Each checkpoint of Hugging Face's Trainer has the whole history: the newest file goes on for the others.
            key = path.parent.parent if path.name == "trainer_state.json" else path
            files.setdefault(key, Tracked(path)).path = path
            self._names_of_files.add(str(key))
        for key, file in files.items():
            for logged in file.new():
                reading = lines.of_values(str(key), logged)
                if self._output_counts:
                    # The count of the output wins. A file only adds figures that nothing else had around that time.
                    reading = Reading("figures", figures=reading.figures)
                elif self._position is not None and (logged.step or 0) > self._position.update:
                    # With all that was logged before this step. Rows without a time come many at once.
                    self._add_point(reading.at or now, forced=reading.at is None)
                label = "file: %s" % file.path.name[:_LONGEST_LABEL]
                if reading.is_telling:
                    values = ", ".join("%s %.6g" % one for one in logged.values.items())
                    self._quote(label + " ".join(logged.values), "%s: %s" % (file.path.name, values))
                self._take(reading, self._counter_of_files, reading.at or now, label)
        if not self._output_counts:
            self._add_point(now, forced=True)
        self._search_at = now + max(_SEARCH_EVERY_S, (clock.monotonic() - began) / _MOST_OF_TIME)

    def _take(self, reading: Reading, counter: Counter, at: float, label: str, counted_before: int = 0) -> bool:
        """Take over what a reading says, and return whether it has a count."""
        position, counted, is_stated = counter.add(reading), self._known.counted, self._pattern is not None
        if reading.source == "aside" and (counted is None or counted.updates == counted_before):
            self._aside_s += max(0.0, at - self._beat_at)
        self._beat_at, self._is_changed = at, True
        self._figures.update(reading.figures)
        self._output_has_loss |= "loss" in reading.figures
        self._sources.update(dict.fromkeys(reading.figures, label))
        if reading.epoch is not None:
            self._epoch, self._sources["epoch"] = int(reading.epoch), label
            self._compare_epochs(self._epoch, counted_before)
        if counted is not None and not is_stated:
            own = counter.of(reading)
            if own is not None:
                pace = self._paces.setdefault(own.source, Pace())
                pace.add(own, counted_before, counted.updates, label, is_bar=reading.is_bar)
                shows_loss = "loss" in reading.figures and "loss" in self._figures
                if shows_loss and self._base is not None and pace.is_ahead_by(self._base):
                    self._add_line(own.update, self._base + counted.updates, counted.last_at)
        elif position is not None and (is_stated or not self._may_be_of_something_else(reading, position)):
            self._sources.update({"update": label, **({"total_updates": label} if position.total else {})})
            self._move(position, at)
        return position is not None

    def _read(self, line: str) -> Tuple[Optional[Reading], str]:
        """Return what a line says, and how it is named as a source; keep it if it names figures."""
        heading, self._heading = self._heading, line if lines.is_held_out_heading(line) else ""
        reading = lines.read_by(self._pattern, line) if self._pattern else lines.read(line)
        if reading is None:
            return None, ""
        if heading and self._pattern is None:
            reading = Reading("aside", is_telling=reading.is_telling)
        text = " ".join(_BLOCKS.sub("", lines.plain(heading + line)).split())
        # Without numbers and colours, a line says where a value comes from.
        label = "printed: %s" % re.sub(r"[-+]?\d[\d.,:eE+-]*", "#", text)[:_LONGEST_LABEL]
        if reading.is_telling:
            self._quote(label, text)
        return reading, label

    def _of_training(self, reading: Reading, place: Optional[Tuple[int, int]]) -> Reading:
        """Return the reading of a line without the figures that may be those of an evaluation."""
        counted, is_unknown = self._known.counted, self._known.has_optimizer
        if counted is not None:
            told = counted.may_be_of_evaluation(place, self._asides_seen)
            is_unknown = counted.evaluates if told is None else told
        return reading._replace(figures={}) if is_unknown and not reading.names_training else reading

    def _quote(self, wording: str, text: str) -> None:
        """Keep a line as the newest of its wording, for people to read."""
        self._quotes.pop(wording, None)
        self._quotes[wording] = text[:_LONGEST_QUOTE]
        for oldest in [*self._quotes][:-_MOST_QUOTES]:
            del self._quotes[oldest]

    def _compare_epochs(self, printed: int, counted_before: int) -> None:
        """Note if an epoch that is printed, from 0 or from 1, is not the pass over the loader that was then made."""
        counted = self._known.counted
        if counted is not None and counted.per_pass and self._base is not None:
            first, last = ((self._base + made) // counted.per_pass for made in (counted_before, counted.updates))
            self._epochs_differ |= not first - 1 <= printed <= last + 1

    def _may_be_of_something_else(self, reading: Reading, position: Position) -> bool:
        """Return whether a count may be none of updates: without a name, or before the first one of an optimizer."""
        if position.source == lines.UNNAMED:
            return True
        return self._known.is_awaited and (self._known.has_optimizer or "loss" not in reading.figures)

    def _move(self, position: Position, at: float) -> None:
        """Take over a new position, which was reached at that time."""
        before = self._position
        if before is not None and position.update == before.update:
            self._position = position
            return
        # What one look finds was printed at an unknown time since the last one.
        if before is not None and position.source == before.source and at > self._moved_at:
            self._gaps.append(at - self._moved_at)
            self._longest_gap_s = max(self._longest_gap_s, at - self._moved_at)
        self._moved_at = at
        is_same = before is not None and (position.source == before.source or before.source in self._names_of_files)
        if before is None or not is_same or position.update < before.update:
            # Another source may count something else: nothing is compared with what came before.
            self._timed, self._last = (position.update, at), None
            self._points = [_Point(at, position, 0.0, {})]
        # It was made since the look before, perhaps before a checkpoint that was written meanwhile.
        self._made.append((self._looked_at, position.update))
        self._position = position

    def _follow(self, counted: Counted, is_last: bool) -> None:
        """Take over the updates that have been counted, and a total that is known to be theirs."""
        if self._base is None:
            self._base = 0 if self._earlier is None else self._continued_from(counted, self._earlier)
        if self._base is None:
            return
        update = self._base + counted.updates
        total, self._sources["total_updates"] = self._total(counted, self._base, is_last)
        if total is None or total < update:
            total = None
        # A bar's total may be that of an epoch, as long as no loader tells how many updates a pass has.
        may_be_of_epoch = (
            counted.per_pass is None
            and counted.loops != 1
            and any(pace.may_be_of_epoch for pace in self._paces.values() if pace.total == total)
        )
        self._sources["update"] = "counted at Optimizer.step"
        epoch = None
        if counted.per_pass and not self._epochs_differ:
            epoch = -(-update // counted.per_pass)
            self._sources["epoch"] = "updates, by those of a pass over the loader"
        if self._position is None or self._position.source != _COUNTED:
            self._position = None
            self._move(Position(_COUNTED, self._base + 1, total, epoch, may_be_of_epoch), counted.first_at)
        self._beat_at = max(self._beat_at, counted.last_at)
        self._is_changed |= self._position is None or update != self._position.update
        self._move(Position(_COUNTED, update, total, epoch, may_be_of_epoch), counted.last_at)

    def _continued_from(self, counted: Counted, earlier: ProgressRecord) -> Optional[int]:
        """Return the update from which this attempt has continued; None while it is unknown."""
        if counted.began is not None:
            return counted.began  # as the state says that the optimizer has loaded
        for pace in self._paces.values():
            for update in (earlier.durable_update, pace.offset):
                if update is not None and pace.is_ahead_by(update):
                    return update
        return None

    def _total(self, counted: Counted, base: int, is_last: bool) -> Tuple[Optional[int], str]:
        """Return how many updates the run has, None if that is unknown, and where that comes from."""
        epochs = self._outputs[0][1].epochs
        in_all = base + counted.updates if is_last else None
        for pace in self._paces.values():
            is_known = pace.is_ahead_by(base) or (is_last and pace.is_at(counted.updates))
            if pace.total is not None and is_known and counted.is_of_all(pace.total, in_all):
                return pace.total, pace.label
        if is_last and counted.has_made(base + counted.updates):
            return base + counted.updates, "what its variables state, and it has made"
        if self._earlier is not None:
            return self._earlier.total_updates, "attempt %d" % self._earlier.attempt
        named = self._outputs[0][1].named_epochs
        total = None if self._epochs_differ else counted.total(named if named == counted.epochs else epochs)
        if total is not None:
            for other, label in self._other_totals():
                if other not in (total, counted.per_pass):
                    text = "unknown: %d by the loader's length and the epochs, %d by what is printed (%s)"
                    return None, text % (total, other, label)
            return total, "updates of a pass over the loader, times the epochs that are printed or stated"
        for pace in self._paces.values():
            if pace.times is not None and pace.times > _MANY_TIMES:
                text = "unknown: what is printed (%s) rises %.3g times as fast as updates are made: samples?"
                return None, text % (pace.label, pace.times)
        return None, "unknown"

    def _other_totals(self) -> Iterator[Tuple[int, str]]:
        """Yield the totals that are printed, unless they are known to be of something else."""
        stated = self._outputs[0][1].stated_total
        if stated is not None:
            yield stated, "a number of steps"
        for pace in self._paces.values():
            if pace.total is not None and pace.times is None:
                yield pace.total, pace.label

    def _write(self, now: float, is_last: bool) -> None:
        position = self._position
        if not (self._is_changed or is_last) or attempts.is_stale(self._paths, self._attempt):
            return
        if position is None:
            says_epochs = self._epoch is not None and self._known == Look()  # they are all that it says of its progress
            if says_epochs or self._kept_at is not None:
                with contextlib.suppress(OSError):
                    progress_records.write(self._paths, self._record())
            return
        # Where losses are printed, an interval ends with one.
        if is_last or "loss" in self._figures or not self._output_has_loss:
            self._add_point(now, forced=is_last)
        with contextlib.suppress(OSError):  # a full disk: the ranks will report it
            if self._began_at is None and (is_last or len(self._points) >= _FIRST_POINTS):
                self._begin()
            if self._began_at is not None:
                self._flush()
                if is_last:  # of the evaluation behind the last update
                    self._append_evaluation(position, self._aside_s)
            progress_records.write(self._paths, self._record())
        self._is_changed = False

    def _add_point(self, now: float, *, forced: bool) -> None:
        """End an interval with the figures so far if updates were made in it; unless `forced`, not too soon."""
        position, before = self._position, self._points[-1] if self._points else self._last
        if position is None or before is None or position.update <= before.position.update:
            return
        if not forced and now - before.at < _SHARE_OF_TIME * (now - self._started):
            return
        self._points.append(_Point(self._moved_at, position, self._aside_s, self._figures))
        self._figures, self._aside_s = {}, 0.0

    def _add_line(self, update: int, newest: int, newest_at: float) -> None:
        """End an interval with the loss of a line, whose count is known to be of updates, at about its own time."""
        position, before = self._position, self._points[-1] if self._points else self._last
        if position is None or before is None or not before.position.update < update < newest:
            return
        share = (update - before.position.update) / (newest - before.position.update)
        at = before.at + share * max(0.0, newest_at - before.at)
        if at - before.at >= _SHARE_OF_TIME * (at - self._started):
            self._points.append(_Point(at, position._replace(update=update), self._aside_s, self._figures))
            self._figures, self._aside_s = {}, 0.0

    def _begin(self) -> None:
        """Write the line that begins an attempt: from which update it continued, and when, judged by its pace."""
        first, began_at, began = self._points[0], self._points[0].position.update, self._points[0].at
        if first.position.source == _COUNTED:
            began_at -= 1
            if len(self._points) > 1:
                second = self._points[1]
                began -= (second.at - began) / (second.position.update - first.position.update)
        elif len(self._points) > 1:
            second = self._points[1]
            made, took_s = second.position.update - began_at, second.at - began
            if self._earlier is None and 0 < began_at <= _JUMP * made:
                began_at, began = 0, began - took_s * began_at / made
            elif self._earlier is not None and len(self._points) > 2:
                third = self._points[2]
                pace = (third.position.update - second.position.update) / max(third.at - second.at, 1e-3)
                if made > _JUMP * max(1.0, pace * took_s):
                    # A bar that is drawn from 0, and then jumps to where the attempt before has stopped.
                    self._points, first, began_at, began = self._points[1:], second, second.position.update, second.at
        self._began_at, began = began_at, max(self._started, began)
        self._last = first._replace(at=began, position=first.position._replace(update=began_at))
        self._lines.append("begin", first.position.epoch, began_at, {"time": round(began, 3)})
        if self._launched is not None and self._timed is not None:
            (launched, started), (update, at) = self._launched, self._timed
            parts = self._start_up(started, at)
            parts = {"launcher": started - launched, **parts, "script": max(0.0, at - started - sum(parts.values()))}
            seconds = {name: round(part_s, 3) for name, part_s in parts.items()}
            self._lines.append("startup", first.position.epoch, update, {"time": round(at, 3), "seconds": seconds})

    def _flush(self) -> None:
        points, self._points = self._points, []
        for point in points:
            before, counts = self._last, (point.position.epoch, point.position.update)
            if before is not None and point.position.update > before.position.update:
                seconds = max(0.0, point.at - before.at - point.aside_s)
                figures = {name: point.figures.get(name) for name in metrics.TRAINING}
                values = {**figures, "seconds": {_UNDIVIDED: round(seconds, 6)}}
                self._append_evaluation(point.position, point.aside_s)
                self._lines.append("train", *counts, values)
            self._last = point

    def _append_evaluation(self, position: Position, seconds: float) -> None:
        if seconds:
            values = {"loss": None, "accuracy": None, "samples": None, "seconds": round(seconds, 3)}
            self._lines.append("evaluation", position.epoch, position.update, values)

    def _record(self) -> ProgressRecord:
        position = self._position
        timed_from, timed_since = self._timed or (None, None)
        epoch = position.epoch if position else self._epoch
        return ProgressRecord(
            attempt=self._attempt,
            epoch=epoch,
            update=position.update if position else None,
            total_updates=position.total if position else None,
            may_be_of_epoch=position is not None and position.may_be_of_epoch,
            heartbeat=self._beat_at if position is not None or self._epoch is not None else None,
            began_at=self._began_at,
            timed_from=timed_from,
            timed_since=timed_since,
            durable_update=self._durable_update,
            checkpoint_at=self._kept_at,
            trouble=self._trouble,
            sources={
                name: text
                for name, text in self._sources.items()
                if (position is not None or name == "epoch") and (epoch is not None or name != "epoch")
            },
            printed=[*self._quotes.values()],
        )


def folders_of(folder: Path, command: Sequence[str]) -> List[Path]:
    """Return the folder in which a command runs, and those that its words may name."""
    return [folder, *(folder / word for word in _words_for_paths(command))]


def stated_in_files(folder: Path, command: Sequence[str]) -> List[Path]:
    """Return the absolute paths that stand in the scripts and configuration files that a command names."""
    files = [folder / word for word in _words_for_paths(command) if word.endswith(_WITH_PATHS)]
    found = [path for file in files for path in tracked.absolute_paths_in(file)]
    return [*dict.fromkeys(found)][:_MOST_WORDS]


def _words_for_paths(command: Sequence[str]) -> List[str]:
    values = (word.partition("=")[2] or word for word in command if not word.startswith("-") or "=" in word)
    return [value for value in values if len(value) < _LONGEST_PATH and value.strip("./")][:_MOST_WORDS]


def stated(command: Sequence[str]) -> Tuple[Optional[int], Optional[int]]:
    """Return how many epochs, and how many updates, the words of a command state: `--epochs 5`, `max_steps=100`."""
    epochs = total = None
    for word, following in zip(command, [*command[1:], ""]):
        name, equals, value = word.lstrip("-+").partition("=")
        name, value = name.replace("-", "_").rpartition(".")[2].lower(), value if equals else following
        if re.fullmatch(r"[1-9][0-9]{0,11}", value) and (equals or word.startswith("--")):
            if _EPOCHS.match(name):
                epochs = int(value)
            elif _TOTALS.match(name):
                total = int(value)
    return epochs, total
