"""A batch file's job under a private Slurm: what the controller and the job's processes tell of it now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from batchfiles.rehearsal.recording import EndedJob, RecordedProcess, Recording, SlurmStep, processes_in
from trainjob.rehearse.slurm.following import FollowedJob, fields_of

_TAIL_LINES = "25"


@dataclass
class BatchJob(FollowedJob):
    """A job, and what its processes have recorded."""

    poll_s: ClassVar[float] = 0.5  # looking starts two programs, and reads a file of each process

    seen: Path  # where its processes leave their records
    with_more: bool = False  # follow the jobs that it submits as well
    processes: Sequence[RecordedProcess] = ()
    steps: dict[str, SlurmStep] = field(default_factory=dict)
    first_nodes: dict[str, str] = field(default_factory=dict)  # of each element, as Slurm writes them

    def look(self) -> None:
        """Ask the controller, and read what processes have recorded."""
        super().look()
        for row in self.rows:
            if row.get("NodeList", "(null)") not in ("", "(null)"):
                self.first_nodes.setdefault(row["JobId"], row["NodeList"])
        shown = self.slurm.run(["scontrol", "--oneliner", "show", "step"], check=False).text
        for step in fields_of(shown):
            number = step.get("StepId", "").partition(".")[2]
            if number.isdigit() and step["StepId"] not in self.steps:
                nodes = self.nodes_named(step.get("NodeList", ""))
                tasks, cpus = int(step.get("Tasks", "0")), int(step.get("CPUs", "0"))
                self.steps[step["StepId"]] = SlurmStep(step["StepId"], step.get("Name", ""), nodes, tasks, cpus)
        self.processes = processes_in(self.seen)

    def is_followed(self, row: Mapping[str, str]) -> bool:
        """Return whether a job is this one, a part of it, or one that it has submitted."""
        return self.with_more or super().is_followed(row)

    def reason(self) -> str:
        """Return Slurm's reason for its state."""
        return self.rows[0].get("Reason", "") if self.rows else ""

    def restarts(self) -> int:
        """Return how often Slurm has started it again."""
        return max((int(row.get("Restarts", "0")) for row in self.rows), default=0)

    def ranks(self) -> list[RecordedProcess]:
        """Return the processes that train now, or that would."""
        record, attempt = Recording((), (), self.processes, (), 0), self.restarts() + 1
        return [rank for row in self.rows for rank in record.ranks(row["JobId"], attempt)]

    def is_at_work(self) -> bool:
        """Return whether ranks have started, and none imports torch, waits for others, or is about to."""
        ranks = self.ranks()
        if any(one.torch == "" for one in self.processes):
            return False
        if any((rank.world_size or 1) > 1 and rank.torch and not rank.meeting for rank in ranks):
            return False
        worlds = Counter(rank.world.id for rank in ranks if rank.world)
        return (
            bool(ranks)
            and all(rank.world or not rank.meeting for rank in ranks)
            and all(worlds[rank.world.id] >= rank.world.size for rank in ranks if rank.world)
        )

    def ended(self) -> list[EndedJob]:
        """End the job if it has not ended, and return its elements, each with the last lines of its output."""
        jobs = [self._ended(row) for row in self.rows]  # before anything is printed about the end
        if not self.is_over():
            # What a script does about TERM is another question (--inject cancel).
            self.slurm.run(["scancel", "--full", "--signal=KILL", self.id], check=False)
            self.slurm.run(["scancel", self.id], check=False)
        return jobs

    def _ended(self, row: Mapping[str, str]) -> EndedJob:
        code, _, signal = row.get("ExitCode", "0:0").partition(":")
        paths = list(dict.fromkeys(row[name] for name in ("StdOut", "StdErr") if row.get(name)))
        output = [self.slurm.run(["tail", "--lines", _TAIL_LINES, path], check=False).text for path in paths]
        return EndedJob(
            id=row["JobId"],
            state=row.get("JobState", ""),
            exit_code=int(code),
            signal=int(signal or 0),
            nodes=self.nodes_named(self.first_nodes.get(row["JobId"], "")),
            restarts=int(row.get("Restarts", "0")),
            reason=row.get("Reason", ""),
            output="".join(output),
            output_file=row.get("StdOut", ""),
        )
