"""One attempt of a batch file's job: its worlds, its GPUs and its nodes, and what is wrong with them."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from batchfiles.rehearsal.recording import EndedJob, RecordedProcess, Recording
from trainjob.planning.words import quantity

_LOCALHOST = re.compile(r"(localhost|127(\.\d+){3}|::1|\[::1\])(:[\d?]+)?")
OWN_NAME = "127.0.1.1"  # of a node here, as by default on Debian; a cluster's may mean its address
_ADDRESS_OPTION = re.compile(r"--(rdzv[-_]endpoint|master[-_]addr|main_process_ip)(?:=(.*))?")
_NOT_HERE = re.compile(
    r"ConnectionError|gaierror|Temporary failure in name resolution|couldn't connect to|LocalEntryNotFound"
    r"|OfflineModeIsEnabled|MaxRetryError"
)


@dataclass(frozen=True)
class RehearsedAttempt:
    """The actions of the ranks of one attempt."""

    recording: Recording
    job: EndedJob
    number: int = 1
    world: str = ""  # of several trainings, one after another: the one whose ranks these are

    @cached_property
    def ranks(self) -> list[RecordedProcess]:
        """The processes that trained, or that would have."""
        own = self.recording.ranks(self.job.id, self.number)
        return [rank for rank in own if rank.world and rank.world.id == self.world] if self.world else own

    @property
    def parts(self) -> list[RehearsedAttempt]:
        """The attempt, or one for each of its trainings if they ran one after another."""
        begun = sorted((min(rank.began_at for rank in ranks), world) for world, ranks in self.worlds.items())
        ends = {
            world: max((rank.ended_at or 0.0 for rank in ranks), default=0.0) for world, ranks in self.worlds.items()
        }
        in_turn = all(ends[world] and ends[world] <= began for (_, world), (began, _) in itertools.pairwise(begun))
        if len(begun) < 2 or not in_turn or self.waiting:
            return [self]
        return [replace(self, world=world) for _, world in begun]

    @cached_property
    def worlds(self) -> dict[str, list[RecordedProcess]]:
        """The ranks of each world that was formed."""
        found: dict[str, list[RecordedProcess]] = defaultdict(list)
        for rank in self.ranks:
            if rank.world:
                found[rank.world.id].append(rank)
        return dict(found)

    @property
    def waiting(self) -> list[RecordedProcess]:
        """The ranks that waited for others, and met none."""
        return [rank for rank in self.ranks if rank.meeting and not rank.world]

    @property
    def absent(self) -> RecordedProcess | None:
        """The first that ended with an error in the same program, before it met those that wait for it."""
        words = [rank.words for rank in self.waiting]
        own = (one for one in self.recording.processes if (one.job, one.attempt) == (self.job.id, self.number))
        return next((one for one in own if one.error and not one.meeting and one.words in words), None)

    @property
    def not_here(self) -> RecordedProcess | None:
        """The first rank that ended because a file, a data set or a network was not here."""
        return next((rank for rank in self.ranks if rank.missing or _NOT_HERE.search(rank.error or "")), None)

    @property
    def is_one_world(self) -> bool | None:
        """Whether all ranks are in one world, by what they made or else were told; None if that can't be told."""
        if self.worlds or self.waiting:
            return len(self.worlds) == 1 and not self.waiting
        assigned = [(rank.rank, rank.world_size) for rank in self.ranks if rank.world_size is not None]
        if not assigned:
            return None
        return (
            sorted(rank or 0 for rank, _ in assigned) == list(range(assigned[0][1] or 0))
            and len({size for _, size in assigned}) == 1
        )

    @property
    def was_restarted(self) -> bool:
        """Whether Slurm has started the job again, or the file has submitted one of its own."""
        again = self.job.restarts and self.recording.ranks(self.job.id, self.job.restarts + 1)
        return bool(again) or any(call.name == "sbatch" for call in self.recording.calls)

    # -- worlds

    def worlds_in_words(self) -> str | None:
        """Return what world the ranks are in, if it is one; None if that is a problem, or unknown."""
        if not self.is_one_world:
            return None
        nodes = quantity(len({rank.node for rank in self.ranks}), "node")
        ranks = quantity(len(self.ranks), "rank")
        if self.worlds:
            backend = next(rank.world.backend for rank in self.ranks if rank.world)
            return f"{ranks} on {nodes} formed one world ({backend})"
        return f"{ranks} on {nodes} were assigned to one world but did not initialise torch.distributed"

    def world_problems(self) -> Iterator[str]:
        """Yield what is wrong with how ranks meet."""
        yield from self._wrong_worlds()
        if (local := self.at_localhost) and not local.startswith(OWN_NAME):
            nodes = len({rank.node for rank in self.ranks})
            yield (
                f"the ranks of {nodes} nodes meet at {local}, which on a cluster is each node itself. "
                "Here all nodes are one machine, and they may find each other"
            )

    def _wrong_worlds(self) -> Iterator[str]:
        if len(self.worlds) > 1:
            alike = Counter(len(ranks) for ranks in self.worlds.values())
            each = " and ".join(f"{count} of {quantity(size, 'rank')}" for size, count in alike.items())
            yield f"the ranks formed {len(self.worlds)} worlds ({each}) that never train together"
        if self.waiting:
            sizes = Counter(rank.world_size for rank in self.waiting)
            each = " and ".join(
                f"{quantity(count, 'rank')} waited for a world of {size}" for size, count in sizes.items()
            )
            numbers = Counter(rank.rank for rank in self.waiting)
            twice = [f"{count} of them are rank {number}" for number, count in numbers.items() if count > 1]
            yield "; ".join([f"{each} that never formed", *twice])
        if self.is_one_world is False and not self.worlds and not self.waiting:
            assigned = Counter(str(rank.rank) for rank in self.ranks)
            each = ", ".join(
                f"{quantity(assigned[number], 'process', 'processes')} as rank {number}" for number in sorted(assigned)
            )
            yield f"the rank numbers do not form a world: {each}"
        if self.is_one_world is None:
            steps = Counter(rank.environment.get("SLURM_STEP_ID", "") for rank in self.ranks)
            for step, count in steps.items():
                if step and count > 1 and any(rank.torch for rank in self.ranks):
                    yield f"{count} tasks of step {step} run the same program, and each trains alone"

    @property
    def at_localhost(self) -> str | None:
        """The address of this machine at which the ranks of several nodes meet; None if there is none."""
        place = self.meeting_place or ""
        return place if len({rank.node for rank in self.ranks}) > 1 and _LOCALHOST.fullmatch(place) else None

    @property
    def meeting_place(self) -> str | None:
        """The address that a launcher was given, else a rank; None if they were given none."""
        launchers = (one for one in self.recording.processes if one.job == self.job.id and one.is_launcher)
        stated = next(filter(None, (_address_option(one.words) for one in launchers)), None)
        own = next((rank for rank in self.ranks if "TORCHELASTIC_RUN_ID" not in rank.environment), None)
        return stated or (None if own is None else own.address)

    # -- GPUs and nodes

    @cached_property
    def users(self) -> dict[tuple[str, int], list[RecordedProcess]]:
        """The ranks that used each GPU, by node and the node's own number."""
        found: dict[tuple[str, int], list[RecordedProcess]] = defaultdict(list)
        for rank in self.ranks:
            for number in rank.used_gpus:
                found[rank.node, number].append(rank)
        return dict(found)

    @property
    def shared_gpus(self) -> dict[tuple[str, int], list[RecordedProcess]]:
        """The GPUs that several ranks used."""
        return {gpu: ranks for gpu, ranks in self.users.items() if len(ranks) > 1}

    @property
    def idle_gpus(self) -> list[tuple[str, int]]:
        """The GPUs of the job that no rank used, or that none can see; none if no rank used or sees any."""
        busy = set(self.users) or {gpu for gpus in self._seen_gpus.values() for gpu in gpus}
        given = {(rank.node, number) for rank in self.ranks for number in self._given(rank)}
        return sorted(given - busy) if busy else []

    @cached_property
    def _seen_gpus(self) -> dict[str, set[tuple[str, int]]]:
        """The GPUs of each node that its ranks can see, of ranks that came to use none: a program that only waits."""
        found: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for rank in self.ranks:
            listed = rank.environment.get("CUDA_VISIBLE_DEVICES", "")
            if rank.torch is None and re.fullmatch(r"\d+(?:,\d+)*", listed):
                numbers = [int(number) for number in listed.split(",")]
                if "TORCHELASTIC_RUN_ID" in rank.environment:  # of a launcher, which has a GPU for each
                    numbers = numbers[rank.local_rank or 0 :][:1]
                found[rank.node] |= {(rank.node, number) for number in numbers}
        return dict(found)

    @property
    def crowded_nodes(self) -> dict[str, int]:
        """The nodes where a step has more ranks than GPUs that these can see, and the number of ranks."""
        steps = Counter((rank.node, rank.environment.get("SLURM_STEP_ID")) for rank in self.ranks)
        most = {node: count for (node, step), count in sorted(steps.items(), key=lambda one: one[1]) if step}
        return {node: most[node] for node, gpus in self._seen_gpus.items() if most.get(node, 0) > len(gpus)}

    def _given(self, rank: RecordedProcess) -> Sequence[int]:
        listed = rank.environment.get("SLURM_STEP_GPUS") or rank.environment.get("SLURM_JOB_GPUS") or ""
        if listed and all(number.isdigit() for number in listed.split(",")):
            return [int(number) for number in listed.split(",")]
        return rank.visible_gpus or ()

    @property
    def launchers(self) -> list[RecordedProcess]:
        """The processes that start ranks."""
        own = (one for one in self.recording.processes if (one.job, one.attempt) == (self.job.id, self.number))
        return [one for one in own if one.is_launcher and one.torch is not None]

    @property
    def idle_nodes(self) -> list[str]:
        """The nodes of the job on which nothing trained, or where no rank came so far: on which nothing was started."""
        busy = {one.node for one in self.ranks or self.launchers}
        return [node for node in self.job.nodes if node not in busy] if busy else []

    def gpu_problems(self) -> Iterator[str]:
        """Yield which GPUs and nodes are shared or idle."""
        by_ranks: dict[str, list[str]] = defaultdict(list)
        for (node, number), ranks in sorted(self.shared_gpus.items()):
            by_ranks[f"GPU {number} of {node}"].append(", ".join(str(rank.rank) for rank in ranks))
        yield from (f"ranks {ranks[0]} share {gpu}" for gpu, ranks in by_ranks.items())
        for node, count in self.crowded_nodes.items():
            yield f"{count} ranks of {node} can see {quantity(len(self._seen_gpus[node]), 'GPU')} in all"
        blind = [rank for rank in self.ranks if rank.visible_gpus == () and rank.torch]
        if blind and self.recording.gpus_per_node:
            yield f"{quantity(len(blind), 'rank')} of {quantity(len(self.ranks), 'rank')} saw no GPU"
        idle: dict[str, list[str]] = defaultdict(list)
        for node, number in self.idle_gpus:
            idle[node].append(str(number))
        yield from (f"GPU {', '.join(numbers)} of {node} was never used" for node, numbers in idle.items())
        if self.idle_nodes:
            nodes, waiting = quantity(len(self.job.nodes), "node"), {one.node for one in self.launchers}
            why = ", where a launcher waits for others" if waiting & set(self.idle_nodes) else ""
            yield f"nothing trained on {', '.join(self.idle_nodes)}{why}: the job has {nodes}"

    def gpus_in_words(self) -> str | None:
        """Return who used which GPUs, if each rank had its own; None otherwise."""
        if not self.users or self.shared_gpus:
            return None
        return f"each rank used a GPU of its own: {quantity(len(self.users), 'GPU')}"


def _address_option(words: Sequence[str]) -> str | None:
    """Return the address in a launcher's own options; None if it states none."""
    for at, word in enumerate(words):
        match = _ADDRESS_OPTION.fullmatch(word)
        if match:
            return match[2] if match[2] is not None else (words[at + 1] if at + 1 < len(words) else None)
        if word.endswith(".py"):
            return None
    return None
