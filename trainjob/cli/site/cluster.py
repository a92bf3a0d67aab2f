"""trainjob cluster: list, show, create and check cluster files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainjob.cli import complete
from trainjob.cli.command import Group, json_option
from trainjob.watch import show

name_argument = click.argument("name", metavar="NAME", help="A name or a path.", shell_complete=complete.clusters)


@click.group(cls=Group)
def cluster() -> None:
    """List, show, create and check cluster files."""


@cluster.command(examples=["trainjob cluster list", "trainjob cluster list --json"])
@json_option
def list_command(as_json: bool) -> None:
    """List the names that --cluster accepts here, and the file behind each."""
    from trainjob.kinds.lookup import candidates

    known = candidates()
    if as_json:
        show.as_json([{"name": one.name, "path": str(one.path), "from": one.origin_word} for one in known])
    else:
        show.table(("NAME", "FROM"), ((one.name, one.origin_word) for one in known))


@cluster.command(examples=["trainjob cluster show pod64", "trainjob cluster show ./clusters/hpc.yaml"])
@name_argument
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Print a cluster file; with --json as it was read, with defaults filled in."""
    from trainjob.kinds.lookup import find

    found = find(name)
    if as_json:
        show.as_json(found.cluster.as_values())
    else:
        click.echo(found.path.read_text(encoding="utf-8"), nl=False)


@cluster.command(examples=["trainjob cluster init mine --from pod16", "trainjob cluster init hpc --from slurm-gpu"])
@click.argument("name", metavar="NAME", help="Name of the new cluster.")
@click.option("--kind", default="slurm", help="ipu-pod | slurm | hosts | local.")
@click.option("--from", "source", help="Start from this file of the catalog.", shell_complete=complete.clusters)
@click.option("--from-slurm", is_flag=True, help="Start from what sinfo and scontrol report of the live cluster.")
@click.option("--ssh", help="The cluster's login node: a host name, or an alias of ~/.ssh/config.")
@click.option("--partition", help="Partition to describe. Default: the cluster's default partition.")
@json_option
def init(
    name: str, kind: str, source: str | None, from_slurm: bool, ssh: str | None, partition: str | None, as_json: bool
) -> None:
    """Write clusters/NAME.yaml, from the catalog or from a live cluster, with the places that your site fills in."""
    from trainjob.kinds import lookup

    if not from_slurm and (ssh or partition):
        raise click.BadParameter("--ssh and --partition say where --from-slurm looks: give that, too")
    path = Path("clusters") / f"{name}.yaml"
    lookup.refuse_name(name)
    if from_slurm:
        from trainjob.machines.access import machine_at
        from trainjob.machines.slurm import drafted

        text = drafted.text(name, machine_at(ssh), ssh, partition)
    else:
        text = lookup.draft(name, source or lookup.source_of_kind(kind))
    lookup.write_draft(path, text)
    places = lookup.places_to_fill_in(text)
    if as_json:
        show.as_json({"path": str(path), "fill_in": [{"line": line, "key": key} for line, key in places]})
        return
    click.echo(f"wrote {path}. {'Fill in for your site:' if places else 'Nothing needs to be filled in.'}")
    for line, key in places:
        click.echo(f"  line {line}: {key}")
    click.echo(f"then: trainjob cluster check {name}")


@cluster.command(examples=["trainjob cluster check pod64", "trainjob cluster check ./clusters/hpc.yaml --json"])
@name_argument
@json_option
def check(name: str, as_json: bool) -> None:
    """Check a cluster file, and show what it still needs before you can submit."""
    from trainjob.kinds.lookup import find

    found = find(name)
    missing = found.cluster.missing_facts
    if as_json:
        show.as_json({"name": found.name, "from": found.origin_word, "ok": True, "missing": list(missing)})
        return
    click.echo(f"{found.origin_word} is valid: kind {found.cluster.kind}")
    if missing:
        click.echo(f"before you can submit, fill in: {', '.join(missing)}")


# They print JSON with and without it.
_json_accepted = click.option("--json", is_flag=True, expose_value=False, help="Print JSON.")


@cluster.command(examples=["trainjob cluster schema", "trainjob cluster schema --json"])
@click.option("--job", is_flag=True, help="The schema of job files instead.")
@_json_accepted
def schema(job: bool) -> None:
    """Print the JSON Schema of cluster files, for completion and checks in an editor."""
    from trainjob.kinds.schema import cluster_schema, job_schema

    click.echo(json.dumps(job_schema() if job else cluster_schema(), indent=1, ensure_ascii=False))


@cluster.command(examples=["trainjob cluster inventory pod64", "trainjob cluster inventory ./clusters/mine.yaml"])
@name_argument
@_json_accepted
def inventory(name: str) -> None:
    """Print the hosts, and what is installed on them, as a dynamic inventory for Ansible."""
    from trainjob.kinds.lookup import find
    from trainjob.provision.inventory import inventory as made

    show.as_json(made(find(name)).as_json())
