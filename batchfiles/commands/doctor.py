"""trainjob doctor: finds what is wrong with a batch file, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainjob.cli.command import AsJson, cluster_option, command, commands, fail_unless
from trainjob.contract.errors import UserError
from trainjob.watch import show

if TYPE_CHECKING:
    from batchfiles.rules.diagnosis import Diagnosis
    from trainjob.cluster.base import Cluster

app = commands()


@command(app, "trainjob doctor train.sbatch", "trainjob doctor --cluster hpc --strict jobs/*.sbatch")
def doctor(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE…", help="Batch files for Slurm.")] = None,
    cluster: Annotated[str | None, cluster_option("Also compare with what this cluster file says.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    explain: Annotated[str | None, typer.Option(metavar="CODE", help="Explain a fault, and exit.")] = None,
    output: Annotated[
        Literal["text", "github", "sarif"],
        typer.Option("--format", help="github: annotations of a workflow; sarif: for code scanning."),
    ] = "text",
    as_json: AsJson = False,
) -> None:
    """Find what is wrong with batch files for Slurm that you wrote or were given."""
    if explain is not None:
        _explain(explain)
        return
    from batchfiles.rules import formats
    from batchfiles.rules.codes import Severity

    diagnoses = _diagnoses([Path(name) for name in files or ()], cluster)
    if as_json:
        show.as_json([diagnosis.as_json() for diagnosis in diagnoses])
    else:
        typer.echo({"text": formats.text, "github": formats.github, "sarif": formats.sarif}[output](diagnoses))
    fatal = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    fail_unless(not any(finding.severity in fatal for diagnosis in diagnoses for finding in diagnosis.findings))


def _diagnoses(files: list[Path], cluster: str | None) -> list[Diagnosis]:
    from batchfiles.rules.diagnosis import diagnose
    from batchfiles.slurm.request import SiteFacts, site_of

    if not files:
        raise UserError("doctor was given no batch file", "name one: trainjob doctor train.sbatch")
    site = SiteFacts() if cluster is None else site_of(slurm_cluster(cluster))
    for path in files:
        refuse_unreadable(path)
    return [diagnose(path, site) for path in files]


def refuse_unreadable(path: Path) -> None:
    """Raise UserError for a batch file that does not exist, or is none."""
    if not path.is_file():
        what = "does not exist" if not path.exists() else "is a folder" if path.is_dir() else "is not a file"
        raise UserError(f"{path} {what}", "name a batch file")


def slurm_cluster(name: str) -> Cluster:
    """Return the cluster that --cluster names. Raises UserError unless it is one of Slurm."""
    from trainjob.kinds.lookup import find

    found = find(name)
    if not found.cluster.has_scheduler:
        raise UserError(
            f"cluster {found.name} is of kind {found.cluster.kind}, and batch files are for Slurm",
            "name a cluster of kind slurm",
        )
    return found.cluster


def _explain(code: str) -> None:
    from batchfiles.rules.codes import CODES
    from trainjob.contract.errors import nearest

    if code not in CODES:
        near = nearest(code, list(CODES))
        raise UserError(
            f'no fault is called "{code}"',
            f"did you mean {near}?" if near else "docs: reference/batch-codes.md lists all",
        )
    typer.echo(str(CODES[code]))
