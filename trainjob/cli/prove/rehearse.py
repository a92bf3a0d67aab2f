"""Rehearse: run a job's exact files on this machine, on CPUs; --inject adds a fault."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from trainjob.cli.command import command, fail_unless, json_option
from trainjob.cli.job_flags import takes_a_job
from trainjob.contract import clock
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainjob.rehearse.base import Rehearsal, RehearsalVerdict
    from trainjob.verify.tasks.diagnosis import LikelyCause

_UPDATES = 5
# What rehearses batch files: named, as in the table of commands, because nothing here imports it.
_BATCH_FILES = "batchfiles.commands.rehearse"
_TELL_EVERY_S = 10.0


@command("trainjob rehearse --cluster hpc --instances 4 --inject preempt", "trainjob rehearse train.sbatch")
@takes_a_job()
@click.option(
    "--inject",
    type=click.Choice(["timeout", "preempt", "node-failure", "rank-death", "cancel"]),
    help="A fault, while the job trains.",
)
@click.option(
    "--stop-after",
    type=float,
    metavar="SECONDS",
    help="Of a batch file: end its job after so much training. Default: 10.",
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="FOLDER=HERE",
    help="Of a batch file: a folder that only the cluster has, and one that is here.",
)
@click.option(
    "--writable",
    multiple=True,
    metavar="FOLDER",
    help="Of a batch file: let its job write there. Default: to folders of temporary files, and to copies.",
)
@click.option("--yes", is_flag=True, help="Of a batch file: run one that somebody else has written.")
@click.option("--keep", is_flag=True, help="Keep the run directory (default: removed if the rehearsal passes).")
@click.option(
    "--shell", is_flag=True, help="Open a shell with a pod's poprun, vipu, poptorch, popdist; or with a node's GPUs."
)
@click.option(
    "--slurm",
    default="installed",
    metavar="RELEASE",
    help="20.11 | 22.05 | 24.11 | 26.05 | installed: the Slurm to rehearse on; made from Debian's packages, once.",
)
@click.option(
    "--gpus/--no-gpus",
    default=None,
    help="Put stand-in GPUs under torch, so that scripts for CUDA and NCCL run. Default: for your own command.",
)
@click.option(
    "--python",
    metavar="PROGRAM",
    help="Interpreter of the ranks. Default: the cluster file's where it exists here; for your own command, what "
    "PATH names.",
)
@json_option
def rehearse(
    flags: JobOptions,
    inject: str | None,
    stop_after: float | None,
    maps: tuple[str, ...],
    writable: tuple[str, ...],
    yes: bool,
    keep: bool,
    shell: bool,
    slurm: str,
    gpus: bool | None,
    python: str | None,
    as_json: bool,
) -> None:
    """Run exactly the bytes of a job, or a batch file of your own, on this machine, on CPUs.

    --updates (5) ends a job early and changes no byte. A batch file runs unmodified, under plain sbatch.
    """
    batch_file = importlib.import_module(_BATCH_FILES)
    if flags.words and not shell and batch_file.is_batch_file(flags.words[0]):
        chosen = _chosen(python).get("TRAINJOB_PYTHON")
        options = batch_file.options_of(
            flags,
            inject=inject,
            stop_after_s=stop_after,
            maps=maps,
            writable=writable,
            gpus=gpus is not False,
            python=chosen,
            slurm=slurm,
        )
        fail_unless(batch_file.rehearse(options, keep=keep, yes=yes, as_json=as_json))
        return
    if stop_after is not None or maps or writable or yes:
        of_files = "--stop-after, --map, --writable and --yes"
        raise click.BadParameter(f"{of_files} are for batch files: trainjob rehearse train.sbatch")
    if shell or flags.words[:1] == ("poprun",):
        raise click.exceptions.Exit(_by_hand(flags, python, shell=shell))
    from trainjob.contract.paths import RunPaths
    from trainjob.rehearse import kinds
    from trainjob.verify.scripts.ranks import of_run

    asked = _asked(flags, inject, quiet=as_json, gpus=gpus, python=python, slurm=slurm)
    began_at = clock.monotonic()

    def tell() -> None:
        asked.say(f"  … {clock.monotonic() - began_at:.0f} s: {kinds.progress(asked)}")

    try:
        with show.every(_TELL_EVERY_S, tell):
            verdict = kinds.rehearse(asked)
        # Stand-in GPUs note the files themselves, with the line that writes them.
        findings = [one for one in of_run(RunPaths(asked.folder)) if not (asked.has_gpus and one.code == "all-save")]
    except KeyboardInterrupt:
        shutil.rmtree(asked.folder, ignore_errors=True)
        raise
    kept = keep or not verdict.passed
    if not kept:
        shutil.rmtree(asked.folder, ignore_errors=True)
    if as_json:
        found = {"findings": [asdict(one) for one in findings]}
        show.as_json({**verdict.as_json(), **found, "kept": kept, "redirects": dict(asked.redirects)})
    else:
        _print(verdict, findings, kept=kept)
    fail_unless(verdict.passed)


def _by_hand(flags: JobOptions, python: str | None, *, shell: bool) -> int:
    from trainjob.contract.paths import expanded
    from trainjob.kinds.lookup import find
    from trainjob.rehearse import pod
    from trainjob.rehearse.base import redirects

    if shell and flags.words:
        raise click.BadParameter("--shell opens a shell and takes no command: give one of the two")
    found = find(flags.cluster)
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
    has_gpus = prepared.request.plan.topology.device == "GPU"
    if gpus and not has_gpus:
        raise click.BadParameter(f"--gpus: cluster {prepared.named_cluster.name} has no GPUs to stand in for")
    return rehearsal(
        prepared,
        # A fault needs a job that still trains when it is injected.
        updates=flags.values.get("updates") or (None if inject else _UPDATES),
        inject=inject,
        redirected=_chosen(python),
        slurm=slurm,
        say=(lambda _line: None) if quiet else click.echo,
        # What a task prints is its progress, which the verdict sums up; a command's output is what its user looks for.
        show=show_line if flags.words and not quiet else None,
        has_gpus=has_gpus and (bool(flags.words) if gpus is None else gpus),
    )


def _chosen(python: str | None) -> dict[str, str]:
    if python is None:
        return {}
    program = shutil.which(os.path.expanduser(python))
    if program is None:
        raise click.BadParameter(f"--python {python}: that program can't be run here")
    return {"TRAINJOB_PYTHON": os.path.abspath(program)}


def _print(verdict: RehearsalVerdict, findings: Sequence[LikelyCause], *, kept: bool) -> None:
    click.echo()
    show.rows((step, f"{at_s:6.2f} s") for step, at_s in verdict.seconds.items())
    click.echo()
    for line in verdict.gpus:
        click.echo(line)
    for found in findings:
        click.echo(show.visible(f"note: {found.text} ({found.evidence}). {found.cure}"))
    if verdict.same_bytes:
        click.echo("same bytes: what ran is exactly what `trainjob render` writes")
    click.echo(f"{'PASSED' if verdict.passed else 'FAILED'}: {verdict.outcome}")
    if not verdict.passed:
        click.echo(f"expected: {verdict.expected}")
    if kept:
        click.echo(f"kept the run directory: {verdict.folder}")
