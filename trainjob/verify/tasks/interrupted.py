"""Interrupted ≡ uninterrupted: a run is stopped by signals and kill -9, resumed, and compared with one that was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainjob.backends.folder import write_again
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import resume as resuming
from trainjob.machines import processes
from trainjob.planning.engines import ENGINES
from trainjob.records import attempts, checkpoints, typed
from trainjob.records.checkpoints import Checkpoint
from trainjob.records.trace import TracePaths
from trainjob.render.request import Request
from trainjob.requests.prepared import rendered
from trainjob.requests.workbench import Workbench, wait, wait_for
from trainjob.verify.interruptions import KILL, TIME_LIMIT, InterruptionPlan, PlannedStop, interrupt
from trainjob.verify.tasks import traces
from trainjob.verify.tasks.diagnosis import ComparisonVerdict
from trainjob.verify.tasks.instances import PRECISION
from trainjob.verify.tasks.traces import relative

# A run that ends before it is interrupted is started again: the machine may have been busy.
_MOST_TRIES = 3
# How a task is interrupted unless it is stated: poprun passes on no TERM that all its instances get.
DEFAULT_WAYS = (TIME_LIMIT, KILL)
# For another number of instances, which sums in another order from the interruption on: float64's last bit grows,
# to 3e-8 in 200 updates with BatchNorm over micro batches of 2 (measured); a real mistake is above 1e-3.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Interruption:
    """One interruption: how, after which update, and with how many instances the run continued."""

    way: str  # of interruptions.WAYS
    after_update: int
    instances: int


@dataclass(frozen=True, kw_only=True)
class ResumeVerdict(ComparisonVerdict):
    """Whether the interrupted run ended as the uninterrupted one. `bitwise` says which comparison decided."""

    interruptions: Sequence[Interruption]
    requested: int = typed.field(key="asked")  # interruptions: fewer are made if the run ends before the next one
    engine: str
    bitwise: bool
    parameters: float  # relative difference after the last update
    same_bytes: bool  # of weights, buffers and the optimizer's state
    same_samples: bool
    tolerance: float
    stream: bool  # the data set is iterable

    @property
    def equal(self) -> bool:
        """Whether parameters and samples are the same."""
        same = self.same_bytes if self.bitwise else self.parameters <= self.tolerance
        return same and self.same_samples


@dataclass(frozen=True)
class InterruptedJob:
    """The job that is interrupted, so that it trains the same way twice."""

    instances: int
    other_instances: int | None  # the run continues with these after its first interruption
    updates: int
    checkpoint_every: int
    dtype: str
    settings: Mapping[str, object] = field(default_factory=dict)


def verify_resume(workbench: Workbench, job: InterruptedJob, plan: InterruptionPlan) -> ResumeVerdict:
    """Return whether the interrupted run equals the uninterrupted: bitwise, or within the tolerance for another N.

    Raises UserError when a run fails by itself.
    """
    workbench.refuse_command()
    other = job.other_instances
    if other is not None and job.dtype != "float64":
        raise UserError(
            f"another number of instances sums in another order, which in {job.dtype} moves weights as far as a "
            "mistake would",
            "leave --dtype out",
        )
    request = workbench.vary(
        instances=job.instances,
        updates=job.updates,
        epochs=None,
        log_every=1,
        checkpoint_every=job.checkpoint_every,
        trace="samples",
        env={**workbench.request.job.env, "OMP_NUM_THREADS": "1"},
        **{"precision": PRECISION[job.dtype], **job.settings},
    )
    if other is not None:
        # Refuse, before anything is trained, a number of instances that can't share the global batch.
        batch = request.plan.batch
        assert batch is not None  # noqa: S101 - commands were refused
        resuming.refuse_uneven(batch.micro_batch, batch.accumulation * batch.replicas, other)
        kept = {"micro_batch": batch.micro_batch, "global_batch": batch.global_batch, "accumulation": None}
        workbench.vary(**kept, instances=other)
    whole = workbench.run(request)
    broken, interruptions = interrupted(workbench, request, job, plan)
    workbench.refuse_incomplete(wait(broken, workbench.say))
    expected, found = traces.read(whole), traces.read(broken)
    ours, theirs = _last_checkpoint(broken), _last_checkpoint(whole)
    parameters, others = (
        {name: values for name, values in traces.tensors_of(*checkpoint.model) if name not in trace.buffers}
        for checkpoint, trace in ((ours, found), (theirs, expected))
    )
    return ResumeVerdict(
        interruptions=interruptions,
        requested=plan.count,
        engine=request.plan.engine,
        bitwise=other is None and ENGINES[request.plan.engine].same_bits,
        parameters=relative(parameters, others),
        same_bytes=ours.facts["files"] == theirs.facts["files"],
        same_samples=found.has_samples_of(expected),
        tolerance=_TOLERANCE,
        stream=expected.stream,
        runs=(whole, broken),
    )


def _last_checkpoint(paths: RunPaths) -> Checkpoint:
    """Return the last checkpoint of a complete run."""
    found = checkpoints.newest_sound(paths.checkpoints, lambda _warning: None)
    if found is None:
        raise UserError(f"run {paths.id} has no sound checkpoint left in {paths.checkpoints}", "run this command again")
    return found


def interrupted(
    workbench: Workbench, request: Request, job: InterruptedJob, plan: InterruptionPlan
) -> tuple[RunPaths, list[Interruption]]:
    """Return a run that was interrupted, and how. Raises UserError if it fails, or ends too early each time."""
    for number in range(1, _MOST_TRIES + 1):
        paths = workbench.begin(request)
        # Early: a small net's updates are made before a signal has reached every rank of a busy machine.
        done = interrupt_at(workbench, paths, job, plan.at_updates(job.updates // (2 * number)))
        if done:
            return paths, done
        workbench.refuse_incomplete(wait(paths, workbench.say))
        workbench.say(f"  run {paths.id} ended before it could be interrupted")
    raise UserError(f"{_MOST_TRIES} runs ended before they could be interrupted", "give more --updates")


def interrupt_at(
    workbench: Workbench, paths: RunPaths, job: InterruptedJob, stops: Sequence[PlannedStop]
) -> list[Interruption]:
    """Interrupt a run at each of `stops`, and resume it. Return what was done; nothing if it ended before that."""
    done: list[Interruption] = []
    attempt, instances = 1, job.instances
    for stop in stops:
        seen = _wait_for_update(paths, attempt, stop.after)
        if seen is None:
            break
        ranks = sorted(processes.ranks_of(str(paths.folder)))
        chosen = ranks[stop.after % len(ranks)] if ranks else None
        interrupt(paths, stop.way, chosen, takes_usr1=True)
        now = wait(paths, workbench.say)
        if now.state == states.COMPLETED:
            break
        if job.other_instances is not None:
            instances = job.instances if done else job.other_instances
            write_again(paths, rendered(resuming.with_instances(paths, instances)))
        resuming.resume(now)
        attempt = now.attempt + 1
        done.append(Interruption(stop.way, seen, instances))
        workbench.say(f"  interrupted by {stop.way} after update {seen}, {len(done)} of {len(stops)}")
    return done


def _wait_for_update(paths: RunPaths, submitted: int, update: int) -> int | None:
    """Wait until attempt `submitted` has made `update`, and return its last one; None if it ended before."""
    # progress.json is written once a second, the trace with every update.
    trace, reached = TracePaths(paths).lines(0), dict[int, int]()

    def made() -> int | None:
        reached.update((line["attempt"], line["update"]) for line in trace.new())
        # An earlier attempt's progress says nothing about an attempt whose script has not begun yet.
        attempt = attempts.current(paths)
        return reached[attempt] if attempt >= submitted and reached.get(attempt, 0) >= update else None

    return wait_for(paths, made)
