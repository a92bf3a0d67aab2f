"""trainjob verify: N ≡ 1, and interrupted ≡ uninterrupted, on the user's task."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import takes_a_job
from trainjob.contract import exits, setting_row
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.requests.prepared import Prepared
    from trainjob.requests.workbench import Workbench
    from trainjob.verify.bitwise import BitwiseVerdict
    from trainjob.verify.instances import Verdict
    from trainjob.verify.interrupted import Ordeal, ResumeVerdict

app = new()

_By = Annotated[
    str | None, typer.Option("--by", help="With --resume: interrupt by signal or by kill. Default: in turn.")
]
_OtherInstances = Annotated[
    int | None, typer.Option("--other-instances", min=1, help="With --resume: continue with this number of instances.")
]
_Dtype = Annotated[str, typer.Option("--dtype", help="Precision of the comparison: float64 or float32.")]
_Resume = Annotated[
    bool, typer.Option("--resume", help="Interrupt and resume a run, and compare it with an uninterrupted one.")
]
_Bitwise = Annotated[
    bool, typer.Option("--bitwise", help="Train with --sum-order fixed on 1 to N instances; all bits must be equal.")
]
_Interruptions = Annotated[int, typer.Option("--interruptions", min=1, help="With --resume: number of interruptions.")]
_Keep = Annotated[bool, typer.Option("--keep", help="Keep the run directories even if the runs are equal.")]
_INSTANCES, _UPDATES, _RESUME_UPDATES = 2, 5, 120


@app.command(
    epilog=examples(
        "trainjob verify --task my_task:MyTask --instances 4",
        "trainjob verify --resume --interruptions 5 --other-instances 1",
    )
)
@functools.partial(
    takes_a_job, without=("epochs", "log_every", "trace", "keep_checkpoints"), groups_without=(setting_row.SLURM,)
)
def verify(
    flags: JobOptions,
    dtype: _Dtype = "float64",
    resume: _Resume = False,
    bitwise: _Bitwise = False,
    interruptions: _Interruptions = 3,
    by: _By = None,
    other_instances: _OtherInstances = None,
    keep: _Keep = False,
    as_json: show.AsJson = False,
) -> None:
    """Check that N instances train exactly as one does; with --resume, that interruptions change nothing.

    With --bitwise, that --sum-order fixed gives the same weights, bit for bit, on any number of instances.

    Trains on the CPUs of this machine: 2 instances and 5 updates (120 with --resume) unless you say otherwise.
    """
    from trainjob.requests.workbench import workbench
    from trainjob.verify.gpus import standing_in

    if bitwise and resume:
        raise typer.BadParameter("--bitwise and --resume are two comparisons: make one after the other")
    prepared = _prepared(flags, dtype)
    verdict: Verdict | ResumeVerdict | BitwiseVerdict
    with standing_in(prepared) as prepared, workbench(prepared, show.progress) as bench:
        if bitwise:
            verdict = _bitwise(flags, bench)
        elif resume:
            verdict = _resumed(prepared, flags, bench, dtype, interruptions, by, other_instances)
        else:
            verdict = _compared(prepared, flags, bench, dtype)
        kept = keep or not verdict.equal
        if kept:
            bench.keep()
    if as_json:
        show.as_json({**verdict.as_json(), "kept": kept})
    else:
        _print(verdict, kept=kept)
    if not verdict.equal:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _print(verdict: Verdict | ResumeVerdict | BitwiseVerdict, *, kept: bool) -> None:
    from trainjob.verify.bitwise import BitwiseVerdict
    from trainjob.verify.instances import Verdict

    if isinstance(verdict, Verdict):
        _print_instances(verdict)
    elif isinstance(verdict, BitwiseVerdict):
        _print_bitwise(verdict)
    else:
        _print_resume(verdict)
    if kept:
        typer.echo("\nkept the run directories: " + " ".join(str(paths.folder) for paths in verdict.runs))


def _prepared(flags: JobOptions, dtype: str) -> Prepared:
    from trainjob.requests.prepared import prepare
    from trainjob.requests.workbench import refuse_unfit
    from trainjob.verify import gpus
    from trainjob.verify.instances import PRECISION

    if dtype not in PRECISION:
        raise typer.BadParameter(f"--dtype {dtype}: expected {' or '.join(PRECISION)}")
    prepared = prepare(flags)
    if prepared.named_cluster.cluster.ipu_keys is None and not gpus.are_of(prepared.named_cluster.cluster):
        refuse_unfit(prepared)
    return prepared


def _compared(prepared: Prepared, flags: JobOptions, bench: Workbench, dtype: str) -> Verdict:
    from trainjob.verify import instances, pod

    updates = flags.values.get("updates", _UPDATES)
    if prepared.named_cluster.cluster.ipu_keys is None:
        count = bench.request.job.instances or _INSTANCES
        return instances.verify(bench, instances=count, updates=updates, dtype=dtype)
    if dtype != "float64":
        raise typer.BadParameter(f"--dtype {dtype}: a pod's stand-in is compared in float64")
    return pod.verify(prepared, bench, updates=updates)


def _bitwise(flags: JobOptions, bench: Workbench) -> BitwiseVerdict:
    from trainjob.verify import bitwise

    count = bench.request.job.instances or _INSTANCES
    return bitwise.verify(bench, instances=count, updates=flags.values.get("updates", _UPDATES))


def _resumed(
    prepared: Prepared,
    flags: JobOptions,
    bench: Workbench,
    dtype: str,
    interruptions: int,
    by: str | None,
    other_instances: int | None,
) -> ResumeVerdict:
    from trainjob.verify.interrupted import WAYS, Ordeal, verify_resume

    if by not in (None, *WAYS):
        raise typer.BadParameter(f"--by {by}: expected {' or '.join(WAYS)}")
    updates = flags.values.get("updates", _RESUME_UPDATES)
    ordeal = Ordeal(
        instances=bench.request.job.instances or _INSTANCES,
        other_instances=other_instances,
        updates=updates,
        checkpoint_every=flags.values.get("checkpoint_every", max(1, updates // 10)),
        interruptions=min(interruptions, updates - 1),
        ways=WAYS if by is None else (by,),
        dtype=dtype,
        seed=flags.values.get("seed", 0),
    )
    cluster = prepared.named_cluster.cluster
    if cluster.hosts_are_named and cluster.ranks_by == "poprun":
        return _resumed_on_a_pod(prepared, bench, ordeal)
    return verify_resume(bench, ordeal)


def _resumed_on_a_pod(prepared: Prepared, bench: Workbench, ordeal: Ordeal) -> ResumeVerdict:
    from trainjob.verify import pod
    from trainjob.verify.interrupted import verify_resume

    if ordeal.other_instances is not None:
        raise typer.BadParameter(
            "--other-instances: weights on IPUs have at most 32 bits, so another order of sums changes them"
        )
    with pod.standing_in(prepared):
        instances = bench.request.plan.topology.instances
        settings = pod.resumable(bench.request.job)
        return verify_resume(bench, dataclasses.replace(ordeal, instances=instances, settings=settings))


def _print_instances(verdict: Verdict) -> None:
    from trainjob.contract.settings import flag
    from trainjob.verify.instances import is_apart

    without = f" without {' and '.join(flag(name) for name in verdict.faster)}" if verdict.faster else ""
    typer.echo(
        f"{verdict.instances} instances ({verdict.engine}) beside one{without}, {verdict.dtype}, one thread a rank\n"
    )
    show.table(
        ("UPDATE", "SAMPLES", "GRADIENTS", "PARAMETERS", "BUFFERS", "LOSS", ""),
        (
            (
                str(one.update),
                "same" if one.same_samples else "other",
                *(_figure(figure) for figure in (one.gradients, one.parameters, one.buffers, one.loss)),
                "apart" if is_apart(one, verdict.dtype, verdict.tolerance) else "",
            )
            for one in verdict.differences
        ),
    )
    typer.echo(f"\njudged by {verdict.judged}, tolerance {verdict.tolerance:.0e}, relative")
    typer.echo("buffers (running statistics) are not gradients: they are shown and not judged")
    _say_stream(verdict.stream)
    for finding in verdict.findings:
        word = "INCONCLUSIVE" if verdict.inconclusive else "NOT EQUAL"
        typer.echo(f"\n{word}, {finding.code}: {finding.text}\n  {finding.evidence}\n  {finding.cure}")
    if verdict.equal:
        typer.echo(f"\nEQUAL: {verdict.instances} instances train as one")


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
    typer.echo("\nbuffers (running statistics) are not gradients: not compared")
    typer.echo(f"\n{'EQUAL' if verdict.equal else 'NOT EQUAL'}: every bit of the weights")


def _figure(value: float) -> str:
    return "unknown" if value != value else f"{value:.1e}"


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
    typer.echo(f"\nparameters {verdict.parameters:.1e} apart after the last update, must be equal {how}")
    typer.echo(f"samples seen: {'the same' if verdict.same_samples else 'NOT the same'}, update by update")
    typer.echo("neither run evaluated the held-out data, because evaluation changes no weight")
    _say_stream(verdict.stream)
    typer.echo(f"\n{'EQUAL' if verdict.equal else 'NOT EQUAL'}: interrupted and uninterrupted")


def _say_stream(stream: bool) -> None:
    if stream:
        typer.echo("the data set is iterable: every instance reads all of it and keeps its share")
