"""trainjob doctor: finds what is wrong with a batch file, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainjob.cli.command import cluster_option, command, fail_unless, json_option
from trainjob.contract.errors import UserError
from trainjob.watch import show

if TYPE_CHECKING:
    from batchfiles.rules.diagnosis import Diagnosis
    from trainjob.cluster.base import Cluster


@command("trainjob doctor train.sbatch", "trainjob doctor --cluster hpc --strict jobs/*.sbatch")
@click.argument("files", nargs=-1, metavar="FILE…", help="Batch files for Slurm.")
@cluster_option("Also compare with what this cluster file says.")
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("--explain", metavar="CODE", help="Explain a fault, and exit.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "github", "sarif"]),
    default="text",
    help="github: annotations of a workflow; sarif: for code scanning.",
)
@json_option
def doctor(
    files: tuple[str, ...], cluster: str | None, strict: bool, explain: str | None, output: str, as_json: bool
) -> None:
    """Find what is wrong with batch files for Slurm that you wrote or were given."""
    if explain is not None:
        _explain(explain)
        return
    from batchfiles.rules import formats
    from batchfiles.rules.codes import Severity

    diagnoses = _diagnoses([Path(name) for name in files], cluster)
    if as_json:
        show.as_json([diagnosis.as_json() for diagnosis in diagnoses])
    else:
        click.echo({"text": formats.text, "github": formats.github, "sarif": formats.sarif}[output](diagnoses))
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
    click.echo(str(CODES[code]))
