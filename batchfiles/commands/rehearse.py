"""Rehearse with a batch file that the user brought: options, progress, and the verdict in words."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from batchfiles.commands.doctor import slurm_cluster
from batchfiles.rules.codes import Severity
from trainjob.contract import clock
from trainjob.contract.paths import with_home
from trainjob.records.files import read_first
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchfiles.rehearsal.rehearsal import BatchOptions
    from batchfiles.rehearsal.verdict import BatchVerdict

_HEAD_BYTES = 1 << 16
_SUFFIXES = (".sbatch", ".slurm")
_OUTPUT_LINES = 12
# Of torch, in a network where no address has a name.
_NOISE = "The hostname of the client socket cannot be retrieved"


def is_batch_file(word: str) -> bool:
    """Return whether `word` names a file for sbatch. Raises BadParameter for one that is not here."""
    path = Path(word)
    if not path.is_file():
        if path.suffix in _SUFFIXES:
            raise typer.BadParameter(f"{word}: no such batch file here")
        return False
    head = read_first(path, _HEAD_BYTES)
    return path.suffix in _SUFFIXES or head.startswith(b"#SBATCH") or b"\n#SBATCH" in head


class FileFlags(NamedTuple):
    """The flags of `rehearse` that are for batch files."""

    stop_after_s: float | None
    maps: Sequence[str]
    writable: Sequence[str]
    yes: bool

    def refuse(self) -> None:
        """Raise BadParameter if one of them is given."""
        if self != FileFlags(None, (), (), yes=False):
            of_files = "--stop-after, --map, --writable and --yes"
            raise typer.BadParameter(f"{of_files} are for batch files: trainjob rehearse train.sbatch")


def flags_of_files(
    stop_after: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Of a batch file: end its job after so much training. Default: 10."),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FOLDER=HERE",
            help="Of a batch file: a folder that only the cluster has, and one that is here.",
        ),
    ] = None,
    writable: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="Of a batch file: let its job write there. Default: to folders of temporary files, and to copies.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run a batch file that another user has written.")] = False,
) -> FileFlags:
    """Return the flags that `rehearse` has for batch files."""
    return FileFlags(stop_after, tuple(maps or ()), tuple(writable or ()), yes)


def options_of(
    flags: JobOptions, of_files: FileFlags, *, inject: str | None, has_gpus: bool, python: str | None, slurm: str
) -> BatchOptions:
    """Return what the command line asks for. Raises BadParameter for settings that the batch file has itself."""
    from batchfiles.rehearsal.rehearsal import STOP_AFTER_S, BatchOptions
    from trainjob.kinds.slurm.model import SlurmCluster

    own = [name for name in flags.values if name != "command"] + (["job"] if flags.file else [])
    if own:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in own)
        raise typer.BadParameter(f"{named}: a batch file states that itself; take it out, or change the file")
    cluster = None if flags.cluster == "local" else flags.cluster
    return BatchOptions(
        path=Path(flags.words[0]),
        arguments=tuple(flags.words[1:]),
        cluster=None if cluster is None else SlurmCluster.of(slurm_cluster(cluster)),
        stop_after_s=STOP_AFTER_S if of_files.stop_after_s is None else of_files.stop_after_s,
        inject=inject,
        maps=dict(mapped_folder(text) for text in of_files.maps),
        writable=tuple(_writable(text) for text in of_files.writable),
        has_gpus=has_gpus,
        python=python,
        slurm=slurm,
    )


def mapped_folder(text: str) -> tuple[str, Path]:
    """Return the folder of the cluster and the one here that --map states. Raises BadParameter."""
    there, equals, here = text.partition("=")
    if not equals or not there.startswith("/") or not with_home(here).is_dir():
        raise typer.BadParameter(f"--map {text}: expected /FOLDER/OF/THE/CLUSTER=HERE, where HERE is a folder")
    return there.rstrip("/"), with_home(here).resolve()


def _writable(text: str) -> Path:
    folder = with_home(text).resolve()
    if not folder.is_dir() or folder == Path("/"):
        raise typer.BadParameter(f"--writable {text}: expected a folder that is here, and not the root")
    return folder


def rehearse(options: BatchOptions, *, keep: bool, yes: bool, as_json: bool) -> bool:
    """Rehearse a batch file and print the verdict. Return whether it passed."""
    from dataclasses import replace

    from batchfiles.commands.trust import agree_to_run
    from batchfiles.rehearsal import rehearsal
    from trainjob.contract.paths import home
    from trainjob.observe import index

    raw = agree_to_run(options.path, yes=yes)
    began_at = clock.monotonic()
    kept = home() / "rehearsals" / index.new_id(options.path.stem)
    options = replace(options, raw=raw, keep=kept, say=(lambda _line: None) if as_json else typer.echo)
    try:
        verdict = rehearsal.rehearse(options)
    except KeyboardInterrupt:
        shutil.rmtree(kept, ignore_errors=True)
        raise
    has_files = kept.is_dir() and any(kept.iterdir()) and (keep or not verdict.passed)
    if not has_files:
        shutil.rmtree(kept, ignore_errors=True)
    if as_json:
        show.as_json({**verdict.as_json(), "folder": str(kept) if has_files else None})
    else:
        print_verdict(verdict, clock.monotonic() - began_at)
        if has_files:
            typer.echo(f"what the job wrote: {kept}")
    return verdict.passed


def print_verdict(verdict: BatchVerdict, took_s: float) -> None:
    """Print what a rehearsal has shown, and last whether it passed."""
    typer.echo()
    for fact in verdict.facts:
        typer.echo(show.visible(f"- {fact}"))
    states = {True: "confirmed", False: "cleared"}
    for state, word in states.items():
        for one in verdict.confirmations:
            if one.is_confirmed is state:
                found = one.finding
                typer.echo(show.visible(f"{word}: {found.code} (line {found.line}): {found.text}"))
    for severity in Severity:
        if (codes := _not_shown(verdict, severity)) and not (verdict.passed and severity is Severity.ERROR):
            typer.echo(f"doctor finds {severity.value}s that this rehearsal does not show: {codes}")
    if not verdict.passed:
        for job in verdict.recording.jobs:
            lines = [line for line in job.output.rstrip().splitlines() if _NOISE not in line][-_OUTPUT_LINES:]
            nothing = "nothing but warnings of torch" if job.output.strip() else "nothing"
            typer.echo(f"the last lines of job {job.id}:" if lines else f"job {job.id} has printed {nothing}")
            typer.echo(show.visible("\n".join(f"  | {line}" for line in lines)))
        if verdict.recording.slurm_logs:
            typer.echo(show.visible(f"the last lines of Slurm's own logs:\n{verdict.recording.slurm_logs.rstrip()}"))
    typer.echo(_result(verdict, took_s) + (":" if verdict.problems else ""))
    for problem in verdict.problems:
        typer.echo(show.visible(f"  {problem}"))


def _not_shown(verdict: BatchVerdict, severity: Severity) -> str:
    """Return doctor's codes that the rehearsal neither confirms nor clears."""
    codes = (
        one.finding.code + (f" (--inject {one.shown_by} does)" if one.shown_by else "")
        for one in verdict.confirmations
        if one.is_confirmed is None and one.finding.severity is severity
    )
    return ", ".join(dict.fromkeys(codes))


def _result(verdict: BatchVerdict, took_s: float) -> str:
    if not verdict.passed:
        return f"FAILED in {show.seconds(took_s)}"
    errors = _not_shown(verdict, Severity.ERROR)
    # An error that no rehearsal has cleared limits what the word says.
    limit = f", but for errors that doctor finds and this rehearsal does not show: {errors}" if errors else ""
    return f"PASSED in {show.seconds(took_s)}{limit}"
