"""trainjob cluster: list, show, create and check cluster files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.app import examples, new
from trainjob.watch import show

app = new(no_args_is_help=True, help="List, show, create and check cluster files.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name or a path.", autocompletion=complete.clusters)]


@app.command(
    "list",
    epilog=examples(
        "trainjob cluster list",
        "trainjob cluster list --json",
    ),
)
def list_clusters(as_json: show.AsJson = False) -> None:
    """List the names that --cluster accepts here, and the file behind each."""
    from trainjob.kinds.lookup import candidates

    known = candidates()
    if as_json:
        show.as_json([{"name": one.name, "path": str(one.path), "from": one.origin_word} for one in known])
    else:
        show.table(("NAME", "FROM"), ((one.name, one.origin_word) for one in known))


@app.command(
    "show",
    epilog=examples(
        "trainjob cluster show pod64",
        "trainjob cluster show ./clusters/hpc.yaml",
    ),
)
def show_cluster(name: Name, as_json: show.AsJson = False) -> None:
    """Print a cluster file; with --json as it was read, with defaults filled in."""
    from trainjob.kinds.lookup import find

    found = find(name)
    if as_json:
        show.as_json(found.cluster.as_values())
    else:
        typer.echo(found.path.read_text(encoding="utf-8"), nl=False)


@app.command(
    epilog=examples(
        "trainjob cluster init mine --from pod16",
        "trainjob cluster init hpc --from slurm-gpu",
    )
)
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new cluster.")],
    kind: Annotated[str, typer.Option("--kind", help="ipu-pod | slurm | hosts | local.")] = "slurm",
    source: Annotated[
        str | None,
        typer.Option("--from", help="Start from this file of the catalog.", autocompletion=complete.clusters),
    ] = None,
    from_slurm: Annotated[
        bool, typer.Option("--from-slurm", help="Start from what sinfo and scontrol report of the live cluster.")
    ] = False,
    ssh: Annotated[
        str | None, typer.Option("--ssh", help="The cluster's login node: a host name, or an alias of ~/.ssh/config.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Partition to describe. Default: the cluster's default partition.")
    ] = None,
    as_json: show.AsJson = False,
) -> None:
    """Write clusters/NAME.yaml, from the catalog or from a live cluster, with the places that your site fills in."""
    from trainjob.kinds import draft

    if not from_slurm and (ssh or partition):
        raise typer.BadParameter("--ssh and --partition say where --from-slurm looks: give that, too")
    path = Path("clusters") / f"{name}.yaml"
    draft.refuse_name(name)
    if from_slurm:
        text = _of_the_live_cluster(name, ssh, partition)
    else:
        text = draft.draft(name, source or draft.source_of_kind(kind))
    draft.write_draft(path, text)
    _say_what_to_fill_in(name, path, text, as_json=as_json)


def _of_the_live_cluster(name: str, ssh: str | None, partition: str | None) -> str:
    from trainjob.machines.access import machine_at
    from trainjob.machines.slurm import drafted

    return drafted.text(name, machine_at(ssh), ssh, partition)


def _say_what_to_fill_in(name: str, path: Path, text: str, *, as_json: bool) -> None:
    from trainjob.kinds import draft

    places = draft.places_to_fill_in(text)
    if as_json:
        show.as_json({"path": str(path), "fill_in": [{"line": line, "key": key} for line, key in places]})
        return
    typer.echo(f"wrote {path}. Fill in for your site:" if places else f"wrote {path}. Nothing needs to be filled in.")
    for line, key in places:
        typer.echo(f"  line {line}: {key}")
    typer.echo(f"then: trainjob cluster check {name}")


@app.command(
    epilog=examples(
        "trainjob cluster check pod64",
        "trainjob cluster check ./clusters/hpc.yaml --json",
    )
)
def check(name: Name, as_json: show.AsJson = False) -> None:
    """Check a cluster file, and show what it still needs before you can submit."""
    from trainjob.kinds.lookup import find

    found = find(name)
    missing = found.cluster.missing_facts
    if as_json:
        show.as_json({"name": found.name, "from": found.origin_word, "ok": True, "missing": list(missing)})
        return
    typer.echo(f"{found.origin_word} is valid: kind {found.cluster.kind}")
    if missing:
        typer.echo(f"before you can submit, fill in: {', '.join(missing)}")


@app.command(
    epilog=examples(
        "trainjob cluster schema",
        "trainjob cluster schema --json",
    )
)
def schema(
    job: Annotated[bool, typer.Option("--job", help="The schema of job files instead.")] = False,
    as_json: show.AsJson = False,  # noqa: ARG001 - the schema is JSON in any case
) -> None:
    """Print the JSON Schema of cluster files, for completion and checks in an editor."""
    from trainjob.kinds.schema import cluster_schema, job_schema

    typer.echo(json.dumps(job_schema() if job else cluster_schema(), indent=1, ensure_ascii=False))


@app.command(
    epilog=examples(
        "trainjob cluster inventory pod64",
        "trainjob cluster inventory ./clusters/mine.yaml",
    )
)
def inventory(name: Name, as_json: show.AsJson = False) -> None:  # noqa: ARG001 - Ansible's inventories are JSON
    """Print the hosts, and what is installed on them, as a dynamic inventory for Ansible."""
    from trainjob.kinds.lookup import find
    from trainjob.provision.inventory import inventory as made

    show.as_json(made(find(name)))
