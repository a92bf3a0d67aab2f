"""trainjob cluster: list, show, create and check cluster files."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.command import AsJson, command, commands, fail_unless, hours
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.accept.acceptance import PlannedStep
    from trainjob.accept.steps import StepOutcome
    from trainjob.check.slurm import Change

ClusterName = Annotated[str, typer.Argument(metavar="NAME", help="A name or a path.", autocompletion=complete.clusters)]


app = commands("List, show, create and check cluster files.")


@command(app, "trainjob cluster list", "trainjob cluster list --json")
def list_command(as_json: AsJson = False) -> None:
    """List the names that --cluster accepts here, and the file behind each."""
    from trainjob.kinds.lookup import candidates

    known = candidates()
    if as_json:
        show.as_json([{"name": one.name, "path": str(one.path), "from": one.origin_word} for one in known])
    else:
        show.table(("NAME", "FROM"), ((one.name, one.origin_word) for one in known))


@command(app, "trainjob cluster use hpc", "trainjob cluster use")
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A name or a path.", autocompletion=complete.clusters)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have commands that name no cluster use this one; without NAME, show which one they use here."""
    from trainjob.kinds import choice
    from trainjob.requests.login_node import login_node

    path = None if name is None else choice.use(name)
    chosen = choice.choose(None)
    if as_json:
        show.as_json({"cluster": chosen.value, "chosen_by": chosen.chosen_by, "written": path and str(path)})
        return
    if path is not None:
        typer.echo(f"wrote {path}")
    typer.echo(f"commands that name no cluster use {chosen.value} here, chosen by {chosen.chosen_by}")
    if chosen.chosen_by == choice.BY_DEFAULT and (proposed := login_node()) is not None:
        typer.echo(str(proposed))


@command(app, "trainjob cluster show pod64", "trainjob cluster show ./clusters/hpc.yaml")
def show_command(name: ClusterName, as_json: AsJson = False) -> None:
    """Print a cluster file; with --json as it was read, with defaults filled in."""
    from trainjob.kinds.lookup import find

    found = find(name)
    if as_json:
        show.document(found.cluster.as_values())
    else:
        typer.echo(found.path.read_text(encoding="utf-8"), nl=False)


@command(app, "trainjob cluster init --site lumi-g", "trainjob cluster init hpc --from slurm-gpu")
def init(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the new cluster. Default: that of --site.")
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="Start from this public machine.", autocompletion=complete.sites)
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start from this file of the catalog (slurm-gpu, hosts-gpu, pod64, local). Default: slurm-gpu.",
            autocompletion=complete.clusters,
        ),
    ] = None,
    from_slurm: Annotated[
        bool, typer.Option("--from-slurm", help="Start from what sinfo and scontrol report of the live cluster.")
    ] = False,
    ssh: Annotated[
        str | None, typer.Option(help="The cluster's login node: a host name, or an alias of ~/.ssh/config.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="Partition to describe. Default: the cluster's default partition.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM",
            help="Interpreter of the jobs, which have a PATH of their own. Default: the active one there; on a "
            "terminal you are asked.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write clusters/NAME.yaml, from the catalog or from a live cluster, with the places that your site fills in."""
    from trainjob.kinds import lookup
    from trainjob.requests.login_node import login_node

    if not from_slurm and (ssh or partition or python):
        raise typer.BadParameter("--ssh, --partition and --python are for --from-slurm: give that, too")
    if site and (source or from_slurm):
        raise typer.BadParameter("--site, --from and --from-slurm exclude each other: give one of them")
    proposed = None if site or source or ssh else login_node()
    name = name or site
    if name is None:
        raise typer.BadParameter(
            "give the NAME of the new cluster, or a --site" + (f"; {proposed}" if proposed else "")
        )
    path = Path("clusters") / f"{name}.yaml"
    lookup.refuse_name(name)
    if from_slurm:
        from trainjob.contract.errors import UserError
        from trainjob.machines.access import machine_at
        from trainjob.machines.slurm import drafted
        from trainjob.machines.slurm.commands import SlurmMissingError

        machine = machine_at(ssh)
        if python is None and not as_json and sys.stdin.isatty():
            active = drafted.active_python(machine)
            python = typer.prompt("Interpreter of the jobs, at the same path on every node", active or "python3")
        try:
            text = drafted.text(name, machine, ssh, partition, python)
        except SlurmMissingError as error:
            raise UserError(
                error.text,
                f"Name its login node: trainjob cluster init {name} --from-slurm --ssh LOGIN. Or take a public "
                f"machine by --site (trainjob cluster list), or draft a file by hand: trainjob cluster init {name}",
                error.code,
            ) from None
    else:
        text = lookup.draft(name, site or source or "slurm-gpu", is_site=site is not None)
    lookup.write_draft(path, text)
    places = lookup.places_to_fill_in(text)
    refused = _why_refused(path) if from_slurm else None
    if as_json:
        fill_in = [{"line": line, "key": key} for line, key in places]
        show.as_json({"path": str(path), "fill_in": fill_in, "refused": refused})
        return
    typer.echo(f"wrote {path}. {'Fill in for your site:' if places else 'Nothing needs to be filled in.'}")
    for line, key in places:
        typer.echo(f"  line {line}: {key}")
    if refused is not None:
        typer.echo(f"Slurm refuses a job of this file as it stands, so something is missing: {refused}")
    elif from_slurm:
        typer.echo("Slurm takes a job of this file (sbatch --test-only)")
    if proposed is not None:
        typer.echo(f"note: {proposed}")
    typer.echo(f"then: trainjob cluster check {name}")


def _why_refused(path: Path) -> str | None:
    """Return why Slurm would refuse a job that fills a node of the cluster in `path`; None if it would take it."""
    from trainjob.check import slurm
    from trainjob.contract.errors import Problem
    from trainjob.requests.interface import plan

    job = plan(path, command=["true"])
    rendered = job.render()
    answer = slurm.test_only(job.prepared.machine, rendered.files[rendered.script].content)
    return answer.text if isinstance(answer, Problem) else None


@command(app, "trainjob cluster check pod64", "trainjob cluster check hpc --ask-controller --json")
def check(
    name: ClusterName,
    ask_controller: Annotated[
        bool, typer.Option("--ask-controller", help="Compare it with what the live Slurm reports, here or over ssh.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a cluster file, and show what it still needs before you can submit."""
    from trainjob.kinds.lookup import find
    from trainjob.planning.rules import Refusal
    from trainjob.requests.interface import plan

    found = find(name)
    with contextlib.suppress(Refusal):  # this job needs not be one that the cluster can run
        plan(name, command=["true"]).prepared.refuse_conflicts()
    missing = found.cluster.missing_facts
    changes: list[Change] = []
    if ask_controller:
        if not found.cluster.has_scheduler:
            kind = found.cluster.kind
            raise typer.BadParameter(f"--ask-controller is for Slurm, and {found.name} is of kind {kind}")
        from trainjob.check import slurm
        from trainjob.machines.access import machine_of

        changes = slurm.changes(found.cluster, machine_of(found.cluster))
    if as_json:
        facts = {"name": found.name, "from": found.origin_word, "ok": not changes, "missing": list(missing)}
        show.as_json({**facts, **({"changes": [vars(one) for one in changes]} if ask_controller else {})})
    else:
        typer.echo(f"{found.origin_word} is valid: kind {found.cluster.kind}")
        if missing:
            typer.echo(f"before you can submit, fill in: {', '.join(missing)}")
        if ask_controller:
            typer.echo("the live cluster differs:" if changes else "the live cluster is as the file says")
        for one in changes:
            typer.echo(f"  {one.key}: {one.stated} in the file, {one.live} on the cluster")
    fail_unless(not changes)


@command(
    app,
    "trainjob cluster accept hpc --budget 2gpu-hours",
    "trainjob cluster accept hpc --against before/acceptance.json",
)
def accept(
    name: ClusterName,
    budget: Annotated[
        str | None,
        typer.Option(metavar="HOURS", help="Device-hours that the jobs may cost at most: 2gpu-hours."),
    ] = None,
    hosts: Annotated[int | None, typer.Option(min=3, help="End with the network between this many hosts.")] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Leave this step out. May be repeated.")] = None,
    stage: Annotated[
        str, typer.Option(help="Folder on a disk of every host, for the copy of a data set. Default: /tmp.")
    ] = "/tmp",  # noqa: S108 - of the hosts; the copy lies in a folder of the user's own
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps and their cost; submit nothing.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Also show what changed since this acceptance.json was written.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of acceptance.json and acceptance.html. Default: accept-NAME."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run small real jobs that show that a cluster works, one after the other; stop at the first that fails."""
    import tempfile

    from trainjob.accept import acceptance
    from trainjob.kinds.lookup import find

    named, earlier = find(name), None if against is None else acceptance.read(against)
    if budget is not None and named.cluster.accelerator == "cpu":
        raise typer.BadParameter(
            f"--budget {budget}: ranks of cluster {named.name} train on CPUs, which cost no device-hours: leave it out"
        )
    limit = None if budget is None else hours(budget, "gpu", "device")
    with tempfile.TemporaryDirectory(prefix="trainjob-accept-") as project:
        listed = acceptance.plan_steps(named, Path(project), hosts, stage, skip or ())
        if not as_json or dry_run:
            _show_steps(listed, as_json=as_json)
        if dry_run:
            return
        folder = output or Path(f"accept-{named.name}")
        evidence, changes = acceptance.accept(named.name, listed, limit, folder, earlier, _show_outcome, show.progress)
    if as_json:
        show.as_json({**evidence.as_json(), "changes": changes, "accepted": evidence.has_passed})
    else:
        for line in changes:
            typer.echo(f"changed: {line}")
        typer.echo(f"{named.name}: {acceptance.verdict(evidence)}; see {folder}/acceptance.html")
    fail_unless(evidence.has_passed)


def _show_steps(listed: Sequence[PlannedStep], *, as_json: bool) -> None:
    if as_json:
        show.as_json([{"step": one.name, "shows": one.shows, "device_hours": one.device_hours} for one in listed])
        return
    costs = [
        one.absent or (f"at most {one.device_hours:.2f}" if one.jobs and one.device_hours else "none") for one in listed
    ]
    show.table(
        ("STEP", "SHOWS", "DEVICE-HOURS"),
        ((one.name, one.shows, cost) for one, cost in zip(listed, costs, strict=True)),
    )
    typer.echo(f"at most {sum(one.device_hours for one in listed):.2f} device-hours in all\n")


def _show_outcome(outcome: StepOutcome) -> None:
    figures = ", ".join(
        f"{name} {value if isinstance(value, str) else format(value, '.3g')}" for name, value in outcome.figures.items()
    )
    note = f" ({outcome.note})" if outcome.note else ""
    show.progress(f"{outcome.step}: {outcome.state}{note}, {outcome.seconds:.0f} s{': ' + figures if figures else ''}")
    for found in outcome.problems:
        show.progress(f"  {found.text}\n  Cure: {found.cure}")


@command(app, "trainjob cluster schema", "trainjob cluster schema --json")
def schema(
    job: Annotated[bool, typer.Option("--job", help="The schema of job files instead.")] = False, _json: AsJson = False
) -> None:
    """Print the JSON Schema of cluster files, for completion and checks in an editor."""
    from trainjob.kinds.schema import cluster_schema, job_schema

    typer.echo(json.dumps(job_schema() if job else cluster_schema(), indent=1, ensure_ascii=False))


@command(app, "trainjob cluster inventory pod64", "trainjob cluster inventory ./clusters/mine.yaml")
def inventory(name: ClusterName, _json: AsJson = False) -> None:
    """Print the hosts, and what is installed on them, as a dynamic inventory for Ansible."""
    from trainjob.kinds.lookup import find
    from trainjob.provision.inventory import inventory as made

    show.document(made(find(name)).as_json())
