"""trainjob doctor: finds what is wrong with a batch file, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from batchfiles.commands import settings
from batchfiles.commands.settings import UsageError
from trainjob.cli.command import AsJson, cluster_option, command, commands, fail_unless
from trainjob.contract.errors import UserError
from trainjob.watch import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchfiles.rules.codes import Severity
    from batchfiles.rules.diagnosis import Diagnosis
    from batchfiles.slurm.request import SiteFacts
    from trainjob.cluster.base import Cluster

app = commands()
_MOST_BYTES = 4_000_000


@command(app, "trainjob doctor train.sbatch", "trainjob doctor --fix jobs/*.sbatch")
def doctor(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE…", help="Batch files for Slurm; - is standard input.")
    ] = None,
    cluster: Annotated[str | None, cluster_option("Also compare with what this cluster file says.")] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what is certain, and keep the old file beside it (FILE.orig).")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print what --fix would change, and change nothing.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Also mend what changes what a file does: set -e, the time limit.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="CODE", help="Report these codes alone; with commas."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODE", help="Do not report these codes.")
    ] = None,
    explain: Annotated[str | None, typer.Option(metavar="CODE", help="Explain a fault, and exit.")] = None,
    output: Annotated[
        Literal["text", "github", "sarif"],
        typer.Option("--format", help="github: annotations of a workflow; sarif: for code scanning."),
    ] = "text",
    as_json: AsJson = False,
) -> None:
    """Find what is wrong with batch files for Slurm that you wrote or were given, and mend it.

    Exits with 1 for errors, and with 2 where it was called wrongly. Options may stand in .trainjob-doctor.toml, or in
    [tool.trainjob.doctor] of pyproject.toml: cluster, select, ignore, strict.
    """
    if explain is not None:
        _explain(explain)
        return
    from batchfiles.rules import formats
    from batchfiles.rules.codes import Severity

    stated = settings.read(Path.cwd())
    chosen = settings.codes(select) or stated.select, (*settings.codes(ignore), *stated.ignore)
    site = _site(cluster or stated.cluster)
    read = [(name, _raw(name)) for name in files or ()]
    if not read:
        raise UsageError("doctor was given no batch file", "name one: trainjob doctor train.sbatch")
    if fix or diff:
        read = [(name, _mended(name, raw, site, chosen, writes=not diff, unsafe=unsafe_fixes)) for name, raw in read]
        if read[0][0] == "-" or diff:
            return
    diagnoses = [_diagnosis(name, raw, site).only(*chosen) for name, raw in read]
    if as_json:
        show.as_json([diagnosis.as_json() for diagnosis in diagnoses])
    elif output == "text":
        typer.echo(formats.text(diagnoses, _painted))
    else:
        typer.echo({"github": formats.github, "sarif": formats.sarif}[output](diagnoses))
    fatal = {Severity.ERROR, Severity.WARNING} if strict or stated.strict else {Severity.ERROR}
    fail_unless(not any(finding.severity in fatal for diagnosis in diagnoses for finding in diagnosis.findings))


def _site(cluster: str | None) -> SiteFacts:
    from batchfiles.slurm.request import SiteFacts, site_of

    return SiteFacts() if cluster is None else site_of(slurm_cluster(cluster))


def _raw(name: str) -> bytes:
    if name == "-":
        return typer.get_binary_stream("stdin").read(_MOST_BYTES)
    from trainjob.records.files import read_first

    refuse_unreadable(Path(name))
    return read_first(Path(name), _MOST_BYTES)


def _diagnosis(name: str, raw: bytes, site: SiteFacts) -> Diagnosis:
    from batchfiles.rules.diagnosis import diagnosis_with_bash
    from batchfiles.slurm.script import script_of

    return diagnosis_with_bash(script_of(Path("<stdin>" if name == "-" else name), raw, site))


def _mended(
    name: str, raw: bytes, site: SiteFacts, chosen: tuple[Sequence[str], Sequence[str]], *, writes: bool, unsafe: bool
) -> bytes:
    from batchfiles.fixes.mending import mended

    select, ignore = chosen
    path = Path("<stdin>" if name == "-" else name)
    result = mended(path, raw, site, unsafe=unsafe, select=select, ignore=ignore)
    if not writes:
        typer.echo(result.diff(), nl=False)
    elif name == "-":
        typer.get_binary_stream("stdout").write(result.after)
    elif result.mended:
        path = Path(name)
        path.with_name(f"{path.name}.orig").write_bytes(raw)
        path.write_bytes(result.after)
        typer.echo(f"{name}: mended {', '.join(result.mended)}; the old file is {name}.orig", err=True)
    return result.after


def _painted(text: str, severity: Severity) -> str:
    colour = {"error": "red", "warning": "yellow", "note": "cyan"}[severity.value]
    return show.painted(text, colour)


def refuse_unreadable(path: Path) -> None:
    """Raise UsageError for a batch file that does not exist, or is none."""
    if not path.is_file():
        what = "does not exist" if not path.exists() else "is a folder" if path.is_dir() else "is not a file"
        raise UsageError(f"{path} {what}", "name a batch file")


def slurm_cluster(name: str) -> Cluster:
    """Return the cluster that --cluster names. Raises UserError unless it is one of Slurm."""
    from trainjob.kinds.lookup import find

    found = find(name)
    if not found.cluster.has_scheduler:
        raise UserError(
            f"cluster {found.name} is of kind {found.cluster.kind}, and batch files are for Slurm",
            "name a cluster of kind slurm, or none: then the file's own directives count",
        )
    return found.cluster


def _explain(code: str) -> None:
    from batchfiles.rules.codes import CODES
    from trainjob.contract.errors import nearest

    if code not in CODES:
        near = nearest(code, list(CODES))
        raise UsageError(
            f'no fault is called "{code}"',
            f"did you mean {near}?" if near else "docs: reference/batch-codes.md lists all",
        )
    typer.echo(str(CODES[code]))
