"""Rehearse: run a job's exact files on this machine, on CPUs; --inject adds a fault."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trainjob.cli.command import AsJson, command, commands, fail_unless
from trainjob.cli.job_flags import in_allocation, say_inside, takes_a_job
from trainjob.contract import clock
from trainjob.contract.paths import with_home
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainjob.rehearse.base import Rehearsal, RehearsalVerdict

app = commands()

_UPDATES = 5
# What rehearses batch files: named, as in the table of commands, because nothing here imports it.
_batch_files = importlib.import_module("batchfiles.commands.rehearse")
_TELL_EVERY_S = 10.0


@command(app, "trainjob rehearse --cluster hpc --instances 4 --inject preempt", "trainjob rehearse train.sbatch")
@takes_a_job(also=[in_allocation, _batch_files.flags_of_files])
def rehearse(
    flags: JobOptions,
    inside: str | None,
    of_files: Any,  # a value of batch files'
    inject: Annotated[
        Literal["timeout", "preempt", "node-failure", "rank-death", "cancel"] | None,
        typer.Option(help="A fault, while the job trains."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the run directory (default: removed if the rehearsal passes).")
    ] = False,
    shell: Annotated[
        bool,
        typer.Option(
            "--shell", help="Open a shell with a pod's poprun, vipu, poptorch, popdist; or with a node's GPUs."
        ),
    ] = False,
    slurm: Annotated[
        str,
        typer.Option(
            metavar="RELEASE",
            help="20.11 | 22.05 | 24.11 | 26.05 | installed: the Slurm to rehearse on; made from Debian's packages, "
            "once.",
        ),
    ] = "installed",
    gpus: Annotated[
        bool | None,
        typer.Option(
            "--gpus/--no-gpus",
            help="Put stand-in GPUs under torch, so that scripts for CUDA and NCCL run. Default: for your own command.",
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM",
            help="Interpreter of the ranks. Default: the cluster file's where it exists here; for your own "
            "command, what PATH names.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run exactly the bytes of a job, or a batch file of your own, on this machine, on CPUs.

    --updates (5) ends a job early and changes no byte. A batch file runs unmodified, under plain sbatch.
    """
    if not shell and flags.words and _batch_files.is_batch_file(flags.words[0]):
        if inside is not None:
            raise typer.BadParameter(f"--in {inside}: a batch file is a job of its own")
        chosen = _chosen(python).get("TRAINJOB_PYTHON")
        options = _batch_files.options_of(
            flags, of_files, inject=inject, has_gpus=gpus is not False, python=chosen, slurm=slurm
        )
        fail_unless(_batch_files.rehearse(options, keep=keep, yes=of_files.yes, as_json=as_json))
        return
    of_files.refuse()
    if shell or flags.words[:1] == ("poprun",):
        raise typer.Exit(_by_hand(flags, python, shell=shell))
    asked = _asked(flags._replace(inside=inside), inject, quiet=as_json, gpus=gpus, python=python, slurm=slurm)
    fail_unless(_rehearse(asked, keep=keep, as_json=as_json))


def _rehearse(asked: Rehearsal, *, keep: bool, as_json: bool) -> bool:
    """Rehearse a job and print the verdict. Return whether it passed."""
    from trainjob.contract.paths import RunPaths
    from trainjob.rehearse import kinds
    from trainjob.verify.scripts.mistakes import NOT_FINITE
    from trainjob.verify.scripts.ranks import ends_infinite, notes_of_run, of_run

    began_at = clock.monotonic()

    def tell() -> None:
        asked.say(f"  … {clock.monotonic() - began_at:.0f} s: {kinds.progress(asked)}")

    try:
        with show.every(_TELL_EVERY_S, tell):
            verdict = kinds.rehearse(asked)
        # Stand-in GPUs note the files themselves, with the line that writes them.
        findings = [one for one in of_run(RunPaths(asked.folder)) if not (asked.has_gpus and one.code == "all-save")]
        notes = notes_of_run(RunPaths(asked.folder))
        if verdict.passed and ends_infinite(RunPaths(asked.folder)):
            verdict = replace(verdict, passed=False, expected="losses and gradients that are finite at the end")
    except KeyboardInterrupt:
        shutil.rmtree(asked.folder, ignore_errors=True)
        raise
    kept = keep or not verdict.passed
    if not kept:
        shutil.rmtree(asked.folder, ignore_errors=True)
    if as_json:
        found = {"findings": [asdict(one) for one in findings], "notes": notes}
        show.as_json({**verdict.as_json(), **found, "kept": kept, "redirects": dict(asked.redirects)})
    else:
        infinite = [f", but {one.text}: {one.evidence}" for one in findings if one.code == NOT_FINITE]
        words = [*notes, *(f"{one.text} ({one.evidence}). {one.cure}" for one in findings)]
        _print(verdict, words, but="".join(infinite), kept=kept)
    return verdict.passed


def _by_hand(flags: JobOptions, python: str | None, *, shell: bool) -> int:
    from trainjob.contract.paths import expanded
    from trainjob.kinds.choice import choose
    from trainjob.kinds.lookup import find
    from trainjob.rehearse import pod
    from trainjob.rehearse.base import redirects

    if shell and flags.words:
        raise typer.BadParameter("--shell opens a shell and takes no command: give one of the two")
    found = find(choose(flags.cluster, flags.file).value)
    here = find("local").cluster.data_dir
    redirected = redirects(found.cluster, os.environ, None, expanded(here) if here else None, flags.words)
    redirected |= _chosen(python)
    if shell:
        return pod.shell(found.name, found.cluster, redirected)
    return pod.run(found.name, found.cluster, flags.words, redirected)


def _asked(
    flags: JobOptions,
    inject: str | None,
    quiet: bool,
    gpus: bool | None,
    python: str | None,
    slurm: str,
) -> Rehearsal:
    from trainjob.rehearse.base import rehearsal
    from trainjob.requests.prepared import prepare

    def show_line(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    # --updates is the rehearsal's own: it must not change the bytes.
    values = {name: value for name, value in flags.values.items() if name != "updates"}
    prepared = prepare(flags._replace(values=values))
    say_inside(prepared)
    has_gpus = prepared.request.plan.topology.device == "GPU"
    if gpus and not has_gpus:
        raise typer.BadParameter(f"--gpus: cluster {prepared.named_cluster.name} has no GPUs to stand in for")
    return rehearsal(
        prepared,
        # A fault needs a job that still trains when it is injected.
        updates=flags.values.get("updates") or (None if inject else _UPDATES),
        inject=inject,
        redirected=_chosen(python),
        slurm=slurm,
        say=(lambda _line: None) if quiet else typer.echo,
        # What a task prints is its progress, which the verdict sums up; a command's output is what its user looks for.
        show=show_line if flags.words and not quiet else None,
        has_gpus=has_gpus and (bool(flags.words) if gpus is None else gpus),
    )


def _chosen(python: str | None) -> dict[str, str]:
    if python is None:
        return {}
    program = shutil.which(with_home(python))
    if program is None:
        raise typer.BadParameter(f"--python {python}: that program can't be run here")
    return {"TRAINJOB_PYTHON": os.path.abspath(program)}


def _print(verdict: RehearsalVerdict, notes: Sequence[str], *, but: str, kept: bool) -> None:
    from trainjob.rehearse.base import COMPLETED

    typer.echo()
    show.rows((step, f"{at_s:6.2f} s") for step, at_s in verdict.seconds.items())
    typer.echo()
    for line in verdict.gpus:
        typer.echo(line)
    for note in notes:
        typer.echo(show.visible(f"note: {note}"))
    if verdict.same_bytes:
        typer.echo("same bytes: what ran is exactly what `trainjob render` writes")
    typer.echo(f"{'PASSED' if verdict.passed else 'FAILED'}: {verdict.outcome}{but}")
    if not verdict.passed and verdict.expected != COMPLETED:
        typer.echo(f"expected: {verdict.expected}")
    if kept:
        typer.echo(f"kept the run directory: {verdict.folder}\nnext: trainjob logs {verdict.folder}")
