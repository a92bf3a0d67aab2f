"""trainjob rehearse: the very bytes of a job, here and on CPU, with a fault injected where one is asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import takes_a_job
from trainjob.contract import exits
from trainjob.requests.options import JobOptions
from trainjob.watch import show, terminal

if TYPE_CHECKING:
    from trainjob.rehearse.base import Launch, Rehearsal, Verdict

app = new()

_UPDATES = 5
_TELL_EVERY_S = 10.0


_Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PROGRAM",
        help="Interpreter of the ranks. Default: the cluster file's where it exists here; for your own command, what "
        "PATH names.",
    ),
]
_Slurm = Annotated[
    str,
    typer.Option(
        "--slurm",
        metavar="RELEASE",
        help="20.11 | 22.05 | 24.11 | 26.05 | installed: the Slurm to rehearse on; made from Debian's packages, once.",
    ),
]
_Gpus = Annotated[
    bool | None,
    typer.Option(
        "--gpus/--no-gpus",
        help="Put stand-in GPUs under torch, so that scripts for CUDA and NCCL run. Default: for your own command.",
    ),
]
_Inject = Annotated[
    str | None, typer.Option("--inject", help="timeout | preempt | node-failure | rank-death | cancel.")
]
_LaunchOnly = Annotated[
    bool,
    typer.Option(
        "--launch-only",
        help="Start launchers and no ranks, on as many nodes as the plan has (at most 256), and show what grows with "
        "their number.",
    ),
]
_Keep = Annotated[bool, typer.Option("--keep", help="Keep the run directory, which is removed when all went well.")]
_Shell = Annotated[
    bool,
    typer.Option("--shell", help="Open a shell with a pod's poprun, vipu, poptorch, popdist; or with a node's GPUs."),
]


@app.command(
    epilog=examples("trainjob rehearse --cluster hpc --instances 4", "trainjob rehearse --cluster hpc --inject preempt")
)
@takes_a_job
def rehearse(
    flags: JobOptions,
    inject: _Inject = None,
    launch_only: _LaunchOnly = False,
    keep: _Keep = False,
    shell: _Shell = False,
    slurm: _Slurm = "installed",
    gpus: _Gpus = None,
    python: _Python = None,
    as_json: show.AsJson = False,
) -> None:
    """Run exactly the bytes of a job on this machine, on CPUs. --updates (5) ends it early and changes no byte."""
    from trainjob.rehearse import kinds
    from trainjob.rehearse.base import INJECTIONS

    if shell or flags.words[:1] == ("poprun",):
        raise typer.Exit(_by_hand(flags, python, shell=shell))
    if inject not in (None, *INJECTIONS):
        raise typer.BadParameter(f"--inject {inject}: expected one of {', '.join(INJECTIONS)}")
    asked = _asked(flags, inject, quiet=as_json, gpus=gpus, python=python, slurm=slurm, launch_only=launch_only)
    began_at = time.monotonic()

    def tell() -> None:
        asked.say(f"  … {time.monotonic() - began_at:.0f} s: {kinds.progress(asked)}")

    try:
        with terminal.every(_TELL_EVERY_S, tell):
            verdict = kinds.rehearse(asked)
    except KeyboardInterrupt:
        _remove(asked.folder)
        raise
    kept = keep or not verdict.passed
    if not kept:
        _remove(asked.folder)
    if as_json:
        show.as_json({**verdict.as_json(), "kept": kept, "redirects": dict(asked.redirects)})
    else:
        _print(verdict, kept=kept)
    if not verdict.passed:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _by_hand(flags: JobOptions, python: str | None, *, shell: bool) -> int:
    import os

    from trainjob.contract.paths import expanded
    from trainjob.kinds.lookup import find
    from trainjob.rehearse import pod_environment
    from trainjob.rehearse.base import redirects

    if shell and flags.words:
        raise typer.BadParameter("--shell opens a shell and takes no command: give one of the two")
    found = find(flags.cluster)
    here = find("local").cluster.data_dir
    redirected = redirects(found.cluster, os.environ, None, expanded(here) if here else None, flags.words)
    redirected |= _chosen(python)
    if shell:
        return pod_environment.shell(found.name, found.cluster, redirected)
    return pod_environment.run(found.name, found.cluster, flags.words, redirected)


def _asked(
    flags: JobOptions,
    inject: str | None,
    *,
    quiet: bool,
    gpus: bool | None,
    python: str | None,
    slurm: str,
    launch_only: bool,
) -> Rehearsal:
    from trainjob.rehearse.base import rehearsal
    from trainjob.requests.prepared import prepare

    # --updates is the rehearsal's own: it must not change the bytes.
    values = {name: value for name, value in flags.values.items() if name != "updates"}
    prepared = prepare(flags._replace(values=values))
    has_gpus = prepared.request.plan.topology.device_word == "GPU"
    if gpus and not has_gpus:
        raise typer.BadParameter(f"--gpus: cluster {prepared.named_cluster.name} has no GPUs to stand in for")
    return rehearsal(
        prepared,
        # A fault needs a job that still trains when it strikes.
        updates=flags.values.get("updates") or (None if inject else _UPDATES),
        inject=inject,
        redirected=_chosen(python),
        slurm=slurm,
        launch_only=launch_only,
        say=(lambda _line: None) if quiet else typer.echo,
        # What a task prints is its progress, which the verdict sums up; a command's output is what its user looks for.
        show=_write if flags.words and not quiet else None,
        has_gpus=has_gpus and not launch_only and (bool(flags.words) if gpus is None else gpus),
    )


def _chosen(python: str | None) -> dict[str, str]:
    import os
    import shutil

    if python is None:
        return {}
    program = shutil.which(os.path.expanduser(python))
    if program is None:
        raise typer.BadParameter(f"--python {python}: that program can't be run here")
    return {"TRAINJOB_PYTHON": os.path.abspath(program)}


def _write(line: bytes) -> None:
    import sys

    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


_LAUNCH_HEAD = (
    "nodes",
    "ranks",
    "srun true",
    "srun python",
    "launch",
    "÷ true",
    "÷ python",
    "launcher CPU",
    "connections",
    "operations: first node",
    "last node",
    "of these on code",
)


def _launch_line(one: Launch) -> list[str]:
    operations = [
        "-" if count is None else str(count) for count in (one.first_operations, one.last_operations, one.last_on_code)
    ]
    return [
        str(one.nodes),
        str(one.ranks),
        f"{one.bare_s:.2f} s",
        f"{one.python_s:.2f} s",
        f"{one.launch_s:.2f} s",
        f"{one.launch_s / one.bare_s:.2f}",
        f"{one.launch_s / one.python_s:.2f}",
        f"{one.launcher_cpu_s:.3f} s",
        str(one.connections),
        *operations,
    ]


def _print(verdict: Verdict, *, kept: bool) -> None:
    typer.echo()
    show.rows((step, f"{at_s:6.2f} s") for step, at_s in verdict.seconds.items())
    typer.echo()
    for line in verdict.gpus:
        typer.echo(line)
    if verdict.launches:
        show.table(_LAUNCH_HEAD, map(_launch_line, verdict.launches))
        typer.echo()
    if verdict.same_bytes:
        typer.echo("same bytes: what ran is exactly what `trainjob render` writes")
    typer.echo(f"{'PASSED' if verdict.passed else 'FAILED'}: {verdict.outcome}")
    if not verdict.passed:
        typer.echo(f"expected: {verdict.expected}")
    if kept:
        typer.echo(f"kept the run directory: {verdict.folder}")
