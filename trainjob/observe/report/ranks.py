"""The time of each rank by phase, and the rank that the others waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainjob.contract.paths import RunPaths
from trainjob.records.measures import PHASES, RankTimes, rank_times

# What a rank does by itself; in the other phases it waits, or writes what all have computed.
_OWN = ("data", "compute")
_NOTABLE = 0.05


@dataclass(frozen=True)
class RankFigures:
    """One rank over all attempts: seconds by phase."""

    rank: int
    seconds: Mapping[str, float]
    times: Sequence[RankTimes]

    @property
    def own_s(self) -> float:
        """The seconds that it spent on its own samples, while others may have waited for it."""
        return own_seconds(self.seconds)


@dataclass(frozen=True)
class Slowest:
    """The rank that spent most time on its own samples. `excess` is a share of the median rank's time."""

    rank: int
    own_s: float
    excess: float
    phase: str  # in which it lost most against the median rank

    def __str__(self) -> str:
        """Return a sentence that names the rank."""
        took = f"rank {self.rank}, with {self.own_s:.1f} s of data and compute"
        if self.excess < _NOTABLE:
            return f"{took}; no rank is much slower than the others"
        return f"{took}, {100 * self.excess:.0f} % more than the median rank, most of it in {self.phase}"


def ranks(paths: RunPaths, instances: int) -> list[RankFigures]:
    """Return the ranks that have recorded their times, by number; none of a run on one instance."""
    every = ((rank, list(rank_times(paths, rank).new())) for rank in range(instances if instances > 1 else 0))
    return [
        RankFigures(rank, {name: sum(line.seconds.get(name, 0.0) for line in times) for name in PHASES}, times)
        for rank, times in every
        if times
    ]


def slowest(listed: Sequence[RankFigures]) -> Slowest | None:
    """Return the slowest rank; None with fewer than two."""
    if len(listed) < 2:
        return None
    one = max(listed, key=lambda rank: rank.own_s)
    usual = median(rank.own_s for rank in listed)
    lost = {name: one.seconds[name] - median(rank.seconds[name] for rank in listed) for name in _OWN}
    return Slowest(one.rank, one.own_s, one.own_s / usual - 1 if usual else 0.0, max(lost, key=lost.__getitem__))


def over_time(rank: RankFigures) -> list[tuple[float, float]]:
    """Return the milliseconds of data and compute of an update, by the update up to which they were measured."""
    return [
        (float(line.update), 1000 * own_seconds(line.seconds) / line.updates) for line in rank.times if line.updates > 0
    ]


def own_seconds(seconds: Mapping[str, float]) -> float:
    """Return the seconds by phase that a rank spent on its own samples."""
    return sum(seconds.get(name, 0.0) for name in _OWN)
