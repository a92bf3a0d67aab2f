"""Looks at the ranks of one run: what they use, where their Python code is, and a shell next to one of them."""

from __future__ import annotations

import itertools
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainjob.backends import mirror, registry
from trainjob.backends.base import place_of
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.machines import remote_files
from trainjob.machines.machine import Machine
from trainjob.machines.processes import entering
from trainjob.observe.status import between_looks_s, status
from trainjob.records import attempts, usage
from trainjob.records import job as jobs
from trainjob.records import stacks as stack_records
from trainjob.records import submission as submissions
from trainjob.records.stacks import RankStacks
from trainjob.records.usage import UsageRecord

# With fewer ranks the median says nothing about what is usual.
_FEWEST_COMPARED = 3
_MUCH_LESS = 0.5


@dataclass(frozen=True)
class RankUsage:
    """One rank over its newest attempt: means over time, and the most at any one time."""

    rank: int
    host: str
    attempt: int
    samples: int
    seconds: float  # between the first sample and the last
    cpus: int
    cpu_cores: float | None
    most_cpu_cores: float | None
    memory_bytes: int
    most_memory_bytes: int
    memory_limit_bytes: int | None
    devices: list[str]
    device_use: float | None
    most_device_memory_bytes: int | None
    device_memory_total_bytes: int | None
    power_w: float | None
    openmp: dict[str, str]  # the variables of its threads
    uses_much_less: bool = False  # than the other ranks: it may hang, or wait for something that they have


def usage_of(paths: RunPaths) -> list[RankUsage]:
    """Return what each rank of a run uses; marked if it is much less of its devices, else of its CPUs, than is usual.

    Raises UserError where nothing was recorded.
    """
    mirror.refresh_usage(paths, submissions.read(paths))
    listed = [_summed_up(samples) for rank in _ranks(paths) if (samples := list(usage.lines(paths, rank).new()))]
    if not listed:
        raise UserError(
            f"run {paths.id} has recorded nothing of what its ranks use",
            "It ended before the first sample was taken, or its folder lacks logs/usage-*.jsonl: "
            f"trainjob status {paths.id}"
            if attempts.state(paths) in states.ENDED
            else "It has not begun, or it was submitted by an earlier version of trainjob",
        )
    if len(listed) < _FEWEST_COMPARED:
        return listed
    by_devices = all(one.device_use is not None for one in listed)
    used = [(one.device_use if by_devices else one.cpu_cores) or 0.0 for one in listed]
    usual = statistics.median(used)
    return [replace(one, uses_much_less=mine < usual * _MUCH_LESS) for one, mine in zip(listed, used, strict=True)]


def _summed_up(every: Sequence[UsageRecord]) -> RankUsage:
    samples = [one for one in every if one.attempt == every[-1].attempt]
    first, last = samples[0], samples[-1]
    devices = [device for one in samples for device in one.devices]
    cores = [one.cpu_cores for one in samples if one.cpu_cores is not None]
    elapsed_s = last.time - first.time
    # Intervals between samples are not all equally long.
    used_s = sum((after.time - before.time) * (after.cpu_cores or 0.0) for before, after in itertools.pairwise(samples))
    return RankUsage(
        rank=last.rank,
        host=last.host,
        attempt=last.attempt,
        samples=len(samples),
        seconds=elapsed_s,
        cpus=last.cpus,
        cpu_cores=(used_s / elapsed_s if elapsed_s > 0 else 0.0) if cores else None,
        most_cpu_cores=max(cores, default=None),
        memory_bytes=last.memory_bytes,
        most_memory_bytes=max(one.memory_bytes for one in samples),
        memory_limit_bytes=last.memory_limit_bytes,
        devices=list(dict.fromkeys(device.device for device in devices)),
        device_use=_mean([device.use for device in devices]),
        most_device_memory_bytes=max((one for device in devices if (one := device.memory_bytes)), default=None),
        device_memory_total_bytes=max((one for device in devices if (one := device.memory_total_bytes)), default=None),
        power_w=_mean([device.power_w for device in devices]),
        openmp=first.openmp,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


@dataclass(frozen=True)
class Answers:
    """The stacks of those ranks that answered, in order; or, of a run that does not run, those that were kept last."""

    stacks: list[RankStacks]
    are_current: bool
    limit_s: float = 0.0

    def refuse_silent(self, paths: RunPaths, rank: int | None = None) -> None:
        """Raise UserError where a rank, or this `rank`, has not answered."""
        wanted = _ranks(paths) if rank is None else [rank]
        silent = sorted(set(wanted) - {one.rank for one in self.stacks})
        if not silent:
            return
        named = stack_records.named(silent)
        if not self.are_current:
            raise UserError(
                f"of run {paths.id}, no stacks of rank {named} were kept",
                f"see its output: trainjob logs {paths.id} --rank {silent[0]}",
            )
        raise UserError(
            f"rank {named} of run {paths.id} did not answer within {self.limit_s:g} s",
            "Its launcher has not begun, its host is frozen, or an earlier version of trainjob submitted the run",
        )


def stacks_of(paths: RunPaths, limit_s: float) -> Answers:
    """Return where the ranks of a run are, of those that answer within `limit_s`.

    Of a run that does not run, what was kept last. Raises UserError where nothing is known.
    """
    now = status(paths.run)
    if now.state == states.PENDING:
        raise UserError(
            f"run {paths.id} waits to run: its ranks have not begun",
            f"`trainjob status {paths.id}` says what it waits for",
        )
    machine, folder = place_of(paths, submissions.read(paths))
    if now.state == states.RUNNING:
        word = f"ask-{secrets.token_hex(8)}"
        remote_files.write_word(machine, f"{folder}/{paths.stacks_request.name}", word)
        deadline = clock.monotonic() + limit_s
        while True:
            answers = [one for one in _recorded(paths, machine, folder) if one.word == word]
            if len(answers) == len(_ranks(paths)) or clock.monotonic() > deadline:
                return Answers(answers, are_current=True, limit_s=limit_s)
            clock.sleep(between_looks_s(now.submission))
    kept = _recorded(paths, machine, folder)
    if not kept:
        raise UserError(
            f"run {paths.id} does not run ({now.state}), and no stacks of its ranks were kept",
            f"see its output: trainjob logs {paths.id}",
        )
    return Answers(kept, are_current=False)


def _recorded(paths: RunPaths, machine: Machine, folder: str) -> list[RankStacks]:
    """Return what launchers wrote down last of each rank, in order."""
    names = [f"{folder}/{paths.rank_stacks(rank).relative_to(paths.folder)}" for rank in _ranks(paths)]
    parsed = (stack_records.parse(text) for text in remote_files.present(machine, names).values())
    return sorted((one for one in parsed if one is not None), key=lambda one: one.rank)


def _ranks(paths: RunPaths) -> range:
    return range(jobs.read(paths.job).plan.topology.ranks)


_ENGINES = ("docker", "podman")


def command_next_to(paths: RunPaths, rank: int, words: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command that runs `words`, or a shell where there are none, next to rank `rank`. Raises UserError.

    `terminal`: it gets one.
    """
    record = jobs.read(paths.job)
    record.plan.topology.refuse_unknown_rank(paths.id, rank)
    now = status(paths)
    submission = now.submission
    if now.state != states.RUNNING or submission is None or submission.native is None:
        raise UserError(
            f"run {paths.id} is {now.state}: a shell is opened next to a rank that runs",
            f"look at its output: trainjob logs {paths.id}",
        )
    runtime = table.recorded_cluster(record).container.runtime
    machine, folder = place_of(paths, now.submission)
    entered = entering(runtime if runtime in _ENGINES else "", folder, rank, words)
    there = registry.get(submission.backend).next_to(paths, submission, rank, entered, terminal=terminal)
    return machine.interactive(there, terminal=terminal)
