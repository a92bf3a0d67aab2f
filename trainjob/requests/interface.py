"""The public Python interface: `import trainjob`, then plan(), submit(), runs() and run().

Every call makes the same checks as the command line, by the same functions. Every error that the user can fix
is raised as `trainjob.UserError`, whose message has the rule, both values and the cure.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.contract import clock, states
from trainjob.contract.errors import Problem, UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import index
from trainjob.records.job import Plan, PlanWarning
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import Prepared, prepare

if TYPE_CHECKING:
    from trainjob.observe.report.report import Report
    from trainjob.observe.status import Snapshot
    from trainjob.render.rendered import Rendered


@dataclass(frozen=True)
class PlannedJob:
    """A job that fits its cluster. Its plan is computed; nothing is written or started."""

    prepared: Prepared

    @property
    def plan(self) -> Plan:
        """The arithmetic: topology, batch, engine, learning rate."""
        return self.prepared.request.plan

    @property
    def warnings(self) -> Sequence[PlanWarning]:
        """Settings that can run but are probably not intended, each with its cure."""
        return self.plan.warnings

    def render(self) -> Rendered:
        """Return the files that would run: `.files` has bytes and mode by name, `.script` is the script's name.

        The same job gives the same bytes on any machine. Raises UserError for a value that a script can't hold.
        """
        return self.prepared.render()

    def check(self, *, thorough: bool = False) -> list[Problem]:
        """Return the problems of the job that `trainjob check` would find; empty if there are none.

        `thorough` reads whole data sets. Raises UserError if the cluster can't be reached.
        """
        from trainjob.check.context import Depth
        from trainjob.requests.submission import find_problems

        return find_problems(self.prepared, Depth(thorough=thorough, scheduler=True))

    def submit(
        self,
        *,
        after: Iterable[str] = (),
        again: bool = False,
        check: bool = True,
        allow_secret_env: bool = False,
    ) -> Run:
        """Return the run, which has begun or waits in a queue.

        Under Slurm the run starts once the runs named in `after` are COMPLETED. `again` allows the same job a second
        time within a minute. `check=False` skips all checks. `allow_secret_env` lets environment,
        command and steps hold what looks like a secret. Raises UserError.
        """
        from trainjob.requests import submission

        return Run(
            submission.submit(
                self.prepared, after=tuple(after), again=again, check=check, allow_secret_env=allow_secret_env
            )
        )


@dataclass(frozen=True)
class Run:
    """One run on any cluster. Each call reads the run directory or asks the back end; nothing is kept in memory."""

    paths: RunPaths

    def __repr__(self) -> str:
        return f"<trainjob.Run {self.id}: {self.folder}>"

    @property
    def id(self) -> str:
        """The run's id, as `trainjob list` shows it."""
        return self.paths.id

    @property
    def folder(self) -> Path:
        """The run directory on this machine."""
        return self.paths.folder

    def status(self) -> Snapshot:
        """Return the status of the run. Times are seconds since 1970; `exit_code` is None until the run has ended."""
        from trainjob.observe.status import status

        return status(self.paths)

    def wait(self, timeout_s: float | None = None) -> Snapshot:
        """Return the status once the run has ended, successfully or not.

        Raises TimeoutError after `timeout_s` seconds; the run continues.
        """
        from trainjob.observe.status import poll

        deadline = None if timeout_s is None else clock.monotonic() + timeout_s

        def pause(left_s: float) -> None:
            if deadline is not None:
                left_s = min(left_s, deadline - clock.monotonic())
                if left_s <= 0:
                    raise TimeoutError(f"run {self.id} has not ended within {timeout_s:g} s")
            clock.sleep(left_s)

        return poll(self.paths, lambda now: now.state not in states.ACTIVE, pause)

    def logs(self, rank: int | None = None) -> str:
        """Return the output of one rank; without `rank` that of all ranks, each line with its rank in front.

        Raises UserError for a rank that the run does not have.
        """
        from trainjob.observe import arrays, logs

        arrays.refuse_whole(self.paths, "logs")
        return b"".join(logs.read(self.paths, rank)).decode(errors="replace")

    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """Return the lines of metrics.jsonl; `kind` is begin, train, evaluation or end.

        They have `epoch`, `update`, `loss`, `samples_per_s` and `seconds` by phase. A resumed run may repeat updates:
        of two lines for one update, the later one counts.
        """
        from trainjob.backends import mirror
        from trainjob.records import metrics
        from trainjob.records import submission as submissions

        mirror.refresh_output(self.paths, submissions.read(self.paths))
        return metrics.raw(self.paths)

    def report(self) -> Report:
        """Return the figures of the run so far: epochs, losses, accuracy, samples/s, seconds by phase."""
        from trainjob.backends import mirror
        from trainjob.observe.report.report import report
        from trainjob.records import submission as submissions

        submission = submissions.read(self.paths)
        mirror.refresh_output(self.paths, submission)
        return report(self.paths, submission)

    def cancel(self, *, grace_s: float = 30.0) -> Snapshot:
        """End every process of the run, and no other; its ranks get `grace_s` seconds to checkpoint.

        Raises UserError if its machine can't be reached.
        """
        from trainjob.lifecycle.cancel import cancel

        return cancel(self.paths, grace_s=grace_s)

    def resume(
        self,
        *,
        instances: int | None = None,
        from_scratch: bool = False,
        completed: bool = False,
        inside: str | None = None,
        cluster: str | Path | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> Run:
        """Start the next attempt, from the newest sound checkpoint, and return the run.

        On another `cluster`, a name or a path, it is a new run, which begins as a copy of this one. `instances` changes
        the number of instances and keeps the global batch. `from_scratch` sets all checkpoints aside. `completed`
        allows a run that is called COMPLETED and has ended early all the same. `inside` is the number of the job that a
        run inside an allocation continues in. `warn` is called with a line about each checkpoint that is skipped; by
        default this is a Python warning. Raises UserError for a run
        that can't be resumed.
        """
        from trainjob.requests import resumption

        say = warn or (lambda text: warnings.warn(text, stacklevel=4))
        if cluster is not None:
            from trainjob.requests import elsewhere

            if from_scratch or inside is not None:
                raise UserError("another cluster excludes from_scratch and inside", "submit a new run there")
            return Run(elsewhere.resume(self.paths, str(cluster), instances=instances, completed=completed, warn=say))
        resumption.resume(
            self.paths, instances=instances, from_scratch=from_scratch, completed=completed, inside=inside, warn=say
        )
        return self

    def export(self, target: str | Path) -> Path:
        """Write the newest sound checkpoint's weights to `target`, in the safetensors layout, and return that path.

        Raises UserError for a run that has no checkpoint.
        """
        from trainjob.lifecycle.export import export
        from trainjob.observe import arrays

        arrays.refuse_whole(self.paths, "export")
        export(self.paths, Path(target), lambda text: warnings.warn(text, stacklevel=3))
        return Path(target)


def plan(
    cluster: str | Path | None = None,
    *,
    job_file: str | Path | None = None,
    command: Sequence[str] | None = None,
    project: str | Path | None = None,
    untracked: bool = False,
    inside: str | None = "none",
    **settings: Any,
) -> PlannedJob:
    """Return a job that is planned on a cluster.

    `cluster` is a name (pod64) or the path of a cluster file; absent: the one in use (`trainjob cluster use`), else
    this machine. `settings` have the keys of a job file (instances=8, micro_batch=4, set={"width": 32},
    env={"NAME": "text"}) and override those in `job_file`. `command` is your own command, word by word, instead of a
    task. `project` is the top folder of your project (default: the git top level of the working folder); `untracked`
    also copies files that git does not track. `inside` is the number of a Slurm job, of which the run is to be a step;
    None: that of the job which this process is in, if any. Raises UserError for an unknown cluster or setting, and for
    a job that can't run on the cluster, with the nearest settings that can.
    """
    return plan_of(
        JobOptions(
            cluster=None if cluster is None else str(cluster),
            file=None if job_file is None else Path(job_file),
            values={**settings, **({"command": list(command)} if command else {})},
            project=None if project is None else Path(project),
            untracked=untracked,
            inside=inside,
        )
    )


def plan_of(options: JobOptions) -> PlannedJob:
    """Return the planned job for the command line's options. Raises UserError."""
    return PlannedJob(prepare(options))


def submit(
    cluster: str | Path | None = None,
    *,
    after: Iterable[str] = (),
    again: bool = False,
    check: bool = True,
    **settings: Any,
) -> Run:
    """Plan, check and submit a job, and return its run; the arguments are those of `plan` and `PlannedJob.submit`.

    Raises UserError with every problem; nothing has been started then.
    """
    return plan(cluster, **settings).submit(after=after, again=again, check=check)


def runs() -> list[Run]:
    """Return the runs whose folders exist, in the order of their ids."""
    return [Run(paths) for paths in index.every_run()]


def run(name: str | Path) -> Run:
    """Return the run with this id, unique prefix of an id, or folder, or the "last" run. Raises UserError."""
    return Run(index.find(str(name)))


__all__ = ["PlannedJob", "Problem", "Run", "UserError", "plan", "run", "runs", "submit"]
