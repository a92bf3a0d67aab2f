"""trainjob verify: N ≡ 1, and interrupted ≡ uninterrupted, on the user's task."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job
from trainjob.contract import exits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainjob.contract.paths import RunPaths
    from trainjob.verify.instances import Verdict
    from trainjob.verify.interrupted import Ordeal, ResumeVerdict

app = new()

_INSTANCES, _UPDATES, _RESUME_UPDATES = 2, 5, 120


@app.command()
@takes_a_job
def verify(
    flags: JobFlags,
    dtype: Annotated[str, typer.Option("--dtype", help="float64 | float32.")] = "float64",
    resume: Annotated[
        bool, typer.Option("--resume", help="Interrupt, resume, and compare with no interruption.")
    ] = False,
    interruptions: Annotated[int, typer.Option("--interruptions", min=1, help="How often (with --resume).")] = 3,
    by: Annotated[str | None, typer.Option("--by", help="signal | kill; both in turn otherwise (--resume).")] = None,
    other_instances: Annotated[
        int | None, typer.Option("--other-instances", min=1, help="Go on with another number (with --resume).")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the runs, which are removed when they are equal.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Show that N instances train as one, or that an interrupted run ends as an uninterrupted one."""
    from trainjob.verify.instances import PRECISION, Verdict

    if dtype not in PRECISION:
        raise typer.BadParameter(f"--dtype {dtype}: expected {' or '.join(PRECISION)}")
    verdict = _resumed(flags, dtype, interruptions, by, other_instances) if resume else _compared(flags, dtype)
    kept = keep or not verdict.equal
    if as_json:
        show.as_json({**verdict.as_json(), "kept": kept})
    elif isinstance(verdict, Verdict):
        _print_instances(verdict)
    else:
        _print_resume(verdict)
    if not kept:
        _remove(verdict.runs)
    elif not as_json:
        typer.echo("\nkept, to be looked at: " + " ".join(str(paths.folder) for paths in verdict.runs))
    if not verdict.equal:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _compared(flags: JobFlags, dtype: str) -> Verdict:
    from trainjob.cli.pod_workbench import has_ipus
    from trainjob.cli.workbench import workbench
    from trainjob.verify.instances import verify as compared

    if has_ipus(flags):
        return _of_a_pod(flags, dtype)
    bench = workbench(flags)
    instances, updates = bench.request.job.instances or _INSTANCES, flags.values.get("updates", _UPDATES)
    return compared(bench, instances=instances, updates=updates, dtype=dtype)


def _of_a_pod(flags: JobFlags, dtype: str) -> Verdict:
    from trainjob.cli.pod_workbench import prepared_pair
    from trainjob.verify.pod import verify as compared

    if dtype != "float64":
        raise typer.BadParameter(f"--dtype {dtype}: a pod's stand-in is compared in float64")
    return compared(*prepared_pair(flags, flags.values.get("updates", _UPDATES)))


def _resumed(
    flags: JobFlags, dtype: str, interruptions: int, by: str | None, other_instances: int | None
) -> ResumeVerdict:
    from trainjob.cli.pod_workbench import is_a_pod
    from trainjob.cli.workbench import workbench
    from trainjob.verify.interrupted import WAYS, Ordeal, verify_resume

    if by not in (None, *WAYS):
        raise typer.BadParameter(f"--by {by}: expected {' or '.join(WAYS)}")
    updates = flags.values.get("updates", _RESUME_UPDATES)
    ordeal = Ordeal(
        instances=_INSTANCES,
        other_instances=other_instances,
        updates=updates,
        checkpoint_every=flags.values.get("checkpoint_every", max(1, updates // 10)),
        interruptions=min(interruptions, updates - 1),
        ways=WAYS if by is None else (by,),
        dtype=dtype,
        seed=flags.values.get("seed", 0),
    )
    if is_a_pod(flags):
        return _resumed_on_a_pod(flags, ordeal)
    bench = workbench(flags)
    return verify_resume(bench, dataclasses.replace(ordeal, instances=bench.request.job.instances or _INSTANCES))


def _resumed_on_a_pod(flags: JobFlags, ordeal: Ordeal) -> ResumeVerdict:
    from trainjob.cli.pod_workbench import standing_in
    from trainjob.verify import pod
    from trainjob.verify.interrupted import verify_resume

    if ordeal.other_instances is not None:
        raise typer.BadParameter("--other-instances: an IPU's weights have 32 bits at most, which other sums move")
    with standing_in(flags) as bench:
        instances = bench.request.plan.topology.instances
        settings = pod.resumable(bench.request.job)
        return verify_resume(bench, dataclasses.replace(ordeal, instances=instances, settings=settings))


def _print_instances(verdict: Verdict) -> None:
    from trainjob.verify.instances import is_apart

    typer.echo(f"{verdict.instances} instances ({verdict.engine}) beside one, {verdict.dtype}, one thread a rank\n")
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
    typer.echo("buffers (running statistics) are not gradients: shown, not judged")
    _say_stream(verdict.stream)
    for finding in verdict.findings:
        word = "INCONCLUSIVE" if verdict.inconclusive else "NOT EQUAL"
        typer.echo(f"\n{word}, {finding.code}: {finding.text}\n  {finding.evidence}\n  {finding.cure}")
    if verdict.equal:
        typer.echo(f"\nEQUAL: {verdict.instances} instances train as one")


def _figure(value: float) -> str:
    return "not seen" if value != value else f"{value:.1e}"


def _print_resume(verdict: ResumeVerdict) -> None:
    show.table(
        ("INTERRUPTED BY", "AFTER UPDATE", "WENT ON WITH"),
        ((one.way, str(one.after_update), f"{one.instances} instances") for one in verdict.interruptions),
    )
    made = len(verdict.interruptions)
    if made < verdict.asked:
        typer.echo(f"\n{made} of {verdict.asked} interruptions: the run ended before the next. Give more --updates")
    sums = "sums are in another order with other instances, and with Horovod every time"
    how = "bit for bit" if verdict.bitwise else f"within {verdict.tolerance:.0e}: {sums}"
    typer.echo(f"\nparameters {verdict.parameters:.1e} apart after the last update, to be equal {how}")
    typer.echo(f"samples seen: {'the same' if verdict.same_samples else 'NOT the same'}, update by update")
    if verdict.engine == "ipu":
        typer.echo("both trained by SGD without momentum: an IPU keeps what an optimizer gathers to itself")
    typer.echo("neither run evaluated anything: that changes no weight")
    _say_stream(verdict.stream)
    typer.echo(f"\n{'EQUAL' if verdict.equal else 'NOT EQUAL'}: interrupted and uninterrupted")


def _say_stream(stream: bool) -> None:
    if stream:
        typer.echo("the data set is iterable: every instance reads all of it, in its own order, and keeps its share")


def _remove(runs: Sequence[RunPaths]) -> None:
    from trainjob.runs.prune import remove_run

    for paths in runs:
        remove_run(paths)
