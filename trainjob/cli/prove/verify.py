"""trainjob verify: N ≡ 1, and interrupted ≡ uninterrupted, on the user's task or script."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainjob.cli.command import AsJson, command, commands, fail_unless, hours
from trainjob.cli.job_flags import takes_a_job
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainjob.render.request import Request
    from trainjob.requests.prepared import Prepared
    from trainjob.requests.workbench import Workbench
    from trainjob.verify.interruptions import InterruptionPlan
    from trainjob.verify.scripts.ranks import RanksVerdict
    from trainjob.verify.scripts.resume import ScriptVerdict
    from trainjob.verify.tasks.diagnosis import ComparisonVerdict, DiagnosedVerdict
    from trainjob.verify.tasks.instances import BitwiseVerdict, InstancesVerdict
    from trainjob.verify.tasks.interrupted import InterruptedJob, ResumeVerdict

app = commands()

_STREAM = "the data set is iterable: every instance reads all of it and keeps its share"
_INSTANCES, _UPDATES, _RESUME_UPDATES = 2, 5, 120
_INTERRUPTIONS, _SCRIPT_INTERRUPTIONS = 3, 6
_TIME_LIMIT = "00:10:00"  # of each job on a cluster, unless another is asked for


@command(
    app,
    "trainjob verify --task my_task:MyTask --instances 4",
    "trainjob verify --resume -- python train.py --epochs 3",
)
@takes_a_job(
    without=(
        *("epochs", "log_every", "trace", "keep_checkpoints", "profile"),
        *("time_min", "hint", "max_attempts", "retry", "array", "sweep"),
    )
)
def verify(
    flags: JobOptions,
    dtype: Annotated[Literal["float64", "float32"], typer.Option(help="Precision of the comparison.")] = "float64",
    resume: Annotated[
        bool, typer.Option("--resume", help="Interrupt and resume a run, and compare it with an uninterrupted one.")
    ] = False,
    bitwise: Annotated[
        bool,
        typer.Option("--bitwise", help="Train with --sum-order fixed on 1 to N instances; all bits must be equal."),
    ] = False,
    interruptions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"With --resume: number of interruptions. Default: {_INTERRUPTIONS}; of a script, "
            f"{_SCRIPT_INTERRUPTIONS}.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="With --resume: interrupt by time-limit, preemption or kill. Default: in turn, and a task not by "
            "preemption."
        ),
    ] = None,
    stops: Annotated[
        str | None,
        typer.Option(
            help="With --resume: these interruptions, for example time-limit@update:7,kill@save:12; of a task, at "
            "updates. Default: drawn from --seed, and of a script fewer of them tried again where something is lost."
        ),
    ] = None,
    other_instances: Annotated[
        int | None,
        typer.Option(min=1, help="With --resume: continue with this number of instances."),
    ] = None,
    alone: Annotated[
        str,
        typer.Option(help="Words added to a script's command where one rank trains alone: '--batch 16'."),
    ] = "",
    profile: Annotated[
        Literal["strict", "standard", "relaxed"],
        typer.Option(
            help="With --resume, of a script that differs from itself: its losses may differ by nothing, 0.001 or "
            "0.01, relative."
        ),
    ] = "standard",
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="HOURS",
            help="With --resume, of a script on a cluster with a scheduler: hours that its jobs may cost at most: "
            "2gpu-hours, or 2node-hours where ranks train on CPUs.",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the run directories even if the runs are equal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check that N instances train exactly as one does; with --resume, that interruptions change nothing.

    With --bitwise, that --sum-order fixed gives the same weights, bit for bit, on any number of instances.

    Trains on the CPUs of this machine: 2 instances and 5 updates (120 with --resume) unless you say otherwise. With
    --resume and a script, --cluster NAME of a cluster with a scheduler runs small real jobs there.
    """
    from trainjob.requests.workbench import workbench
    from trainjob.verify.tasks import instances, simulated

    prepared, is_on_cluster = _prepared(flags, resume=resume)
    _refuse_conflicts(prepared, resume=resume, bitwise=bitwise, other_instances=other_instances)
    if budget is not None and not is_on_cluster:
        raise typer.BadParameter("--budget is for --resume of a script on a cluster with a scheduler")
    verdict: ComparisonVerdict
    is_script = bool(prepared.request.job.command)
    with contextlib.ExitStack() as stack:
        if not is_on_cluster:
            prepared = stack.enter_context(simulated.on_simulated_gpus(prepared))
        bench = stack.enter_context(workbench(prepared, show.progress, is_on_cluster=is_on_cluster))
        count = bench.request.job.instances or _INSTANCES
        updates = flags.values.get("updates", _RESUME_UPDATES if resume else _UPDATES)
        if resume:
            most = None if is_script else updates - 1
            count_of_stops = interruptions or (_INTERRUPTIONS if is_on_cluster and stops is None else None)
            plan = _interruptions(count_of_stops, by, stops, flags.values.get("seed", 0), most)
        if resume and is_script:
            from trainjob.requests import proofs
            from trainjob.verify.scripts.resume import verify_script

            alone_or_more = bench.request.job.instances or 1
            if is_on_cluster:
                show.progress(_cost(bench.vary(instances=alone_or_more), plan.count, budget))
            verdict = scripted = verify_script(bench, instances=alone_or_more, plan=plan, profile=profile)
            if not scripted.inconclusive:
                made, lost = len(scripted.interruptions), [one.code for one in scripted.findings]
                proofs.keep(prepared, scripted.runs[0], interruptions=made, codes=lost)
            ranks_asked = flags.values.get("instances")
            several = ("--instances", str(ranks_asked)) if ranks_asked else ()
            where = ("--cluster", prepared.named_cluster.name) if is_on_cluster else ()
            tell = partial(_print_script, scripted, (*where, *several, "--", *flags.words))
        elif resume:
            from trainjob.verify.tasks.interrupted import InterruptedJob

            every = flags.values.get("checkpoint_every", max(1, updates // 10))
            verdict = resumed = _resumed(
                prepared, bench, InterruptedJob(count, other_instances, updates, every, dtype), plan
            )
            tell = partial(_print_resume, resumed)
        elif bitwise:
            verdict = bits = instances.verify_bitwise(bench, instances=count, updates=updates)
            tell = partial(_print_bitwise, bits)
        elif is_script:
            from trainjob.verify.scripts.ranks import verify_ranks

            verdict = ranks = verify_ranks(bench, instances=count, alone=shlex.split(alone))
            tell = partial(_print_ranks, ranks)
        else:
            verdict = compared = _compared(prepared, bench, count, updates, dtype)
            tell = partial(_print_instances, compared)
        kept = keep or not verdict.equal
        if kept:
            bench.keep()
    if as_json:
        show.as_json({**verdict.as_json(), "kept": kept})
    else:
        tell()
        if kept:
            typer.echo("\nkept the run directories: " + " ".join(str(paths.folder) for paths in verdict.runs))
    fail_unless(verdict.equal)


def _refuse_conflicts(prepared: Prepared, *, resume: bool, bitwise: bool, other_instances: int | None) -> None:
    if bitwise and resume:
        raise typer.BadParameter("--bitwise and --resume are two comparisons: make one after the other")
    if other_instances is not None and (not resume or prepared.request.job.command):
        raise typer.BadParameter(
            "--other-instances is for --resume of a task: a run of your own command resumes with as many as it had"
        )


def _interruptions(
    count: int | None, by: str | None, stops: str | None, seed: int, most: int | None
) -> InterruptionPlan:
    """Return what the flags ask for: of a task, at most `most` interruptions; of a script (None), at its moments."""
    from trainjob.verify.interruptions import WAYS, InterruptionPlan, parse_stops
    from trainjob.verify.tasks import interrupted

    if by not in (None, *WAYS):
        raise typer.BadParameter(f"--by {by}: expected {' or '.join(WAYS)}")
    if stops is not None and (by, count) != (None, None):
        raise typer.BadParameter("--stops states every interruption: leave out --by and --interruptions")
    stated = None if stops is None else parse_stops(stops, most)
    if stated is not None:
        count = len(stated)
    elif most is not None:
        count = min(count or _INTERRUPTIONS, most)
    ways = WAYS if most is None else interrupted.DEFAULT_WAYS
    return InterruptionPlan(count or _SCRIPT_INTERRUPTIONS, ways if by is None else (by,), seed, stated)


def _compared(prepared: Prepared, bench: Workbench, count: int, updates: int, dtype: str) -> InstancesVerdict:
    from trainjob.verify.tasks import instances, simulated

    if prepared.named_cluster.cluster.ipu_keys is None:
        return instances.verify(bench, instances=count, updates=updates, dtype=dtype)
    if dtype != "float64":
        raise typer.BadParameter(f"--dtype {dtype}: a pod's stand-in is compared in float64")
    return simulated.verify_pod(prepared, bench, updates=updates)


def _cost(request: Request, stops: int, budget: str | None) -> str:
    """Return the words for what the jobs cost at most. Raises UserError for more than the budget."""
    from trainjob.contract.errors import UserError
    from trainjob.planning.words import quantity
    from trainjob.verify.scripts.interruptions import most_attempts

    # Beside the interrupted run one that is not, and another where both differ.
    attempts, topology, limit_s = most_attempts(stops) + 2, request.plan.topology, request.times.limit_s
    assert limit_s is not None  # noqa: S101 - a job without a limit was refused
    on_cpus = topology.device == "CPU"
    count, unit = (topology.host_count, "node") if on_cpus else (topology.devices, "device")
    cost = attempts * count * limit_s / 3600
    each = f"{attempts} attempts on {quantity(count, unit)}, each of at most {request.times.limit}"
    if budget is not None and cost > hours(budget, *(("node",) if on_cpus else ("gpu", "device"))):
        raise UserError(
            f"--budget {budget}: {each}, may cost {cost:.2f} {unit}-hours",
            "Give a shorter --time-limit, fewer --interruptions, or a larger budget",
        )
    return f"{request.plan.cluster}: at most {cost:.2f} {unit}-hours ({each})"


def _prepared(flags: JobOptions, *, resume: bool) -> tuple[Prepared, bool]:
    """Return the job, and whether it is verified by jobs on its own cluster."""
    from trainjob.contract.errors import UserError
    from trainjob.requests.prepared import prepare
    from trainjob.requests.workbench import refuse_unfit, refuse_unready
    from trainjob.verify.tasks.simulated import has_simulated_gpus

    prepared = prepare(flags.on_this_machine())
    cluster = prepared.named_cluster.cluster
    if resume and prepared.request.job.command and cluster.has_scheduler:
        if prepared.request.job.time_limit is None:
            prepared = prepared.changed(time_limit=_TIME_LIMIT)
        prepared = prepared.changed(max_attempts=1)  # of each job; the one that is interrupted has more
        if prepared.request.times.limit_s is None:
            raise UserError(
                f"the time limit is {prepared.request.times.limit}, so its jobs may cost any amount",
                f"Give a time limit: --time-limit {_TIME_LIMIT}",
            )
        refuse_unready(prepared)
        return prepared, True
    if cluster.ipu_keys is None and not has_simulated_gpus(cluster):
        refuse_unfit(prepared)
    return prepared, False


def _resumed(prepared: Prepared, bench: Workbench, job: InterruptedJob, plan: InterruptionPlan) -> ResumeVerdict:
    from trainjob.verify.tasks import simulated
    from trainjob.verify.tasks.interrupted import verify_resume

    cluster = prepared.named_cluster.cluster
    if not (cluster.hosts_are_named and cluster.ranks_by == "poprun"):
        return verify_resume(bench, job, plan)
    if job.other_instances is not None:
        raise typer.BadParameter(
            "--other-instances: weights on IPUs have at most 32 bits, so another order of sums changes them"
        )
    with simulated.pod_on_path(prepared):
        instances = bench.request.plan.topology.instances
        settings = simulated.resumable(bench.request.job)
        return verify_resume(bench, dataclasses.replace(job, instances=instances, settings=settings), plan)


def _print_instances(verdict: InstancesVerdict) -> None:
    from trainjob.contract.settings import flag
    from trainjob.verify.tasks.instances import is_apart

    without = f" without {' and '.join(flag(name) for name in verdict.faster)}" if verdict.faster else ""
    typer.echo(
        f"{verdict.instances} instances ({verdict.engine}) compared with one{without}: {verdict.dtype}, one thread per "
        "rank\n"
    )
    show.table(
        ("UPDATE", "SAMPLES", "GRADIENTS", "PARAMETERS", "BUFFERS", "LOSS", ""),
        (
            (
                str(one.update),
                "same" if one.same_samples else "other",
                *("unknown" if math.isnan(figure) else f"{figure:.1e}" for figure in one.figures),
                "apart" if is_apart(one, verdict.dtype, verdict.tolerance) else "",
            )
            for one in verdict.differences
        ),
    )
    typer.echo(f"\njudged by {verdict.judged}, tolerance {verdict.tolerance:.0e}, relative")
    typer.echo("buffers (running statistics) are shown for information only")
    if verdict.stream:
        typer.echo(_STREAM)
    _conclude(verdict, f"{verdict.instances} instances train as one")


def _print_bitwise(verdict: BitwiseVerdict) -> None:
    typer.echo(f"--sum-order fixed, precision {verdict.precision}, {verdict.updates} updates\n")
    show.table(
        ("INSTANCES", "ACCUMULATION", "DIGEST OF THE WEIGHTS", ""),
        (
            (
                str(one.instances),
                str(one.accumulation),
                one.weights,
                "" if one.first_apart is None else f"apart from update {one.first_apart} on",
            )
            for one in verdict.trained
        ),
    )
    typer.echo("\nbuffers (running statistics) are not compared")
    typer.echo(f"\n{'EQUAL' if verdict.equal else 'NOT EQUAL'}: every bit of the weights")


def _print_resume(verdict: ResumeVerdict) -> None:
    show.table(
        ("INTERRUPTED BY", "AFTER UPDATE", "CONTINUED WITH"),
        ((one.way, str(one.after_update), f"{one.instances} instances") for one in verdict.interruptions),
    )
    made = len(verdict.interruptions)
    if made < verdict.requested:
        typer.echo(
            f"\n{made} of {verdict.requested} interruptions: the run ended before the next one: give more --updates"
        )
    sums = "another number of instances sums in another order, and Horovod does so in every run"
    how = "bit for bit" if verdict.bitwise else f"within {verdict.tolerance:.0e}: {sums}"
    typer.echo(
        f"\nlargest difference between parameters after the last update: {verdict.parameters:.1e} (required: {how})"
    )
    typer.echo(f"samples seen: {'the same' if verdict.same_samples else 'NOT the same'}, update by update")
    typer.echo("neither run evaluated the held-out data, because evaluation changes no weight")
    if verdict.stream:
        typer.echo(_STREAM)
    typer.echo(f"\n{'EQUAL' if verdict.equal else 'NOT EQUAL'}: interrupted and uninterrupted")


def _print_script(verdict: ScriptVerdict, words: Sequence[str]) -> None:
    show.table(
        ("INTERRUPTED BY", "AT", "AFTER UPDATE", "ENDED AS", "CONTINUED AFTER UPDATE"),
        (
            (
                one.way,
                one.moment,
                f"{one.after} of attempt {one.attempt}",
                one.state,
                "–" if one.continued_at is None else str(one.continued_at),
            )
            for one in verdict.interruptions
        ),
    )
    compared = verdict.compared
    if compared is not None and compared.files:
        typer.echo(
            f"\ncompared: {verdict.updates} updates, and {compared.values} values in {', '.join(compared.files)}"
        )
    if verdict.judged_by:
        typer.echo(f"\ncompared with {show.visible(verdict.judged_by)}")
    for note in verdict.notes:
        typer.echo(f"note: {show.visible(note)}")
    but = f", but not every loss and gradient is finite ({verdict.infinite})" if verdict.infinite else ""
    _conclude(verdict, f"interrupted and uninterrupted{but}")
    if not verdict.equal and not verdict.inconclusive:
        again = shlex.join(["trainjob", "verify", "--resume", "--stops", ",".join(verdict.stops), *words])
        typer.echo(f"\nthe same again, with the interruptions that show it: {show.visible(again)}")


def _print_ranks(verdict: RanksVerdict) -> None:
    typer.echo(f"{verdict.instances} ranks compared with each other and with one, {verdict.updates} updates")
    for note in verdict.notes:
        typer.echo(f"note: {show.visible(note)}")
    _conclude(verdict, "the samples of every update, and the losses and gradients of the first")


def _conclude(verdict: DiagnosedVerdict, what: str) -> None:
    """Print each difference, or that `what` is equal."""
    if verdict.equal:
        typer.echo(f"\nEQUAL: {what}")
    word = "INCONCLUSIVE" if verdict.inconclusive else "NOT EQUAL"
    for finding in verdict.findings:
        typer.echo(f"\n{word}, {finding.code}: {finding.text}\n  {show.visible(finding.evidence)}\n  {finding.cure}")
