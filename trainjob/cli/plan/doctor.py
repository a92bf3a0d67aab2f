"""trainjob doctor: what is wrong with a batch file, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.contract import exits
from trainjob.contract.errors import UserError
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.scripts.diagnosis import Diagnosis
    from trainjob.scripts.site import Site

app = new()


FORMATS = ("text", "github", "sarif")


@app.command(epilog=examples("trainjob doctor train.sbatch", "trainjob doctor --cluster hpc --strict jobs/*.sbatch"))
def doctor(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE…", help="Batch files for Slurm.")] = None,
    explain: Annotated[str | None, typer.Option("--explain", metavar="CODE", help="Explain a fault, and exit.")] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Also compare with what this cluster file says.")
    ] = None,
    output: Annotated[
        str, typer.Option("--format", help="text; github: annotations of a workflow; sarif: for code scanning.")
    ] = "text",
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Find what is wrong with batch files for Slurm that you wrote or were given."""
    if explain is not None:
        _explain(explain)
        return
    if output not in FORMATS:
        raise UserError(f'no format is called "{output}"', f"--format is one of {', '.join(FORMATS)}")
    from trainjob.scripts import formats
    from trainjob.scripts.codes import Severity

    diagnoses = _diagnoses([Path(name) for name in files or []], cluster)
    if as_json:
        show.as_json([diagnosis.as_json() for diagnosis in diagnoses])
    else:
        typer.echo({"text": formats.text, "github": formats.github, "sarif": formats.sarif}[output](diagnoses))
    fatal = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    if any(finding.severity in fatal for diagnosis in diagnoses for finding in diagnosis.findings):
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _diagnoses(files: list[Path], cluster: str | None) -> list[Diagnosis]:
    from trainjob.scripts.diagnosis import diagnose

    if not files:
        raise UserError("doctor was given no batch file", "name one: trainjob doctor train.sbatch")
    site = _site(cluster)
    for path in files:
        if not path.exists() or path.is_dir():
            raise UserError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}", "name a batch file")
    return [diagnose(path, site) for path in files]


def _site(cluster: str | None) -> Site:
    from trainjob.scripts.site import Site

    if cluster is None:
        return Site()
    from trainjob.kinds.lookup import find
    from trainjob.scripts.site import site_of

    found = find(cluster)
    if found.cluster.kind != "slurm":
        raise UserError(
            f"cluster {found.name} is of kind {found.cluster.kind}, and batch files are for Slurm",
            "name a cluster of kind slurm",
        )
    return site_of(found.cluster)


def _explain(code: str) -> None:
    from trainjob.contract.errors import nearest
    from trainjob.scripts.codes import CODES

    if code not in CODES:
        near = nearest(code, list(CODES))
        raise UserError(
            f'no fault is called "{code}"',
            f"did you mean {near}?" if near else "docs: reference/batch-codes.md lists all",
        )
    typer.echo(str(CODES[code]))
