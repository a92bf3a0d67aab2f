"""trainjob cluster: list, show, make and check cluster files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli import complete, show
from trainjob.cli.app import new

app = new(no_args_is_help=True, help="List, show, make and check cluster files.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name or a path.", autocompletion=complete.clusters)]


@app.command("list")
def list_clusters(as_json: show.AsJson = False) -> None:
    """List the clusters that --cluster knows here, and the file behind each."""
    from trainjob.cluster.lookup import everything_known

    known = everything_known()
    if as_json:
        show.as_json([{"name": one.name, "path": str(one.path), "from": one.origin_word} for one in known])
    else:
        show.table(("NAME", "FROM"), ((one.name, one.origin_word) for one in known))


@app.command("show")
def show_cluster(name: Name, as_json: show.AsJson = False) -> None:
    """Print a cluster file; with --json as it was understood, defaults filled in."""
    from trainjob.cluster.lookup import find

    found = find(name)
    if as_json:
        show.as_json(found.cluster.model_dump(mode="json"))
    else:
        typer.echo(found.path.read_text(encoding="utf-8"), nl=False)


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new cluster.")],
    kind: Annotated[str, typer.Option("--kind", help="ipu-pod | slurm | local.")] = "slurm",
    source: Annotated[
        str | None, typer.Option("--from", help="Begin with this catalog file.", autocompletion=complete.clusters)
    ] = None,
    from_slurm: Annotated[
        bool, typer.Option("--from-slurm", help="Begin with what sinfo and scontrol say of the live cluster.")
    ] = False,
    ssh: Annotated[str | None, typer.Option("--ssh", help="Login node of that cluster, as ssh knows it.")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Partition of it. Absent: the default one.")
    ] = None,
    as_json: show.AsJson = False,
) -> None:
    """Write clusters/NAME.yaml: a catalog file, or a live cluster's, with the places that your site fills in."""
    from trainjob.cluster import draft

    if not from_slurm and (ssh or partition):
        raise typer.BadParameter("--ssh and --partition say where --from-slurm looks: give that, too")
    path = Path("clusters") / f"{name}.yaml"
    draft.refuse_name(name)
    text = _of_the_live_cluster(name, ssh, partition) if from_slurm else _of_the_catalog(name, kind, source)
    draft.write_draft(path, text)
    _say_what_to_fill_in(name, path, text, as_json=as_json)


def _of_the_catalog(name: str, kind: str, source: str | None) -> str:
    from trainjob.cluster import draft

    return draft.draft(name, source or draft.source_of_kind(kind))


def _of_the_live_cluster(name: str, ssh: str | None, partition: str | None) -> str:
    from trainjob.submit import machines
    from trainjob.submit.slurm import drafted

    return drafted.text(name, machines.reached(ssh), ssh, partition)


def _say_what_to_fill_in(name: str, path: Path, text: str, *, as_json: bool) -> None:
    from trainjob.cluster import draft

    places = draft.places_to_fill_in(text)
    if as_json:
        show.as_json({"path": str(path), "fill_in": [{"line": line, "key": key} for line, key in places]})
        return
    typer.echo(
        f"{path} is written. Your site fills in:" if places else f"{path} is written. Nothing has to be filled in."
    )
    for line, key in places:
        typer.echo(f"  line {line}: {key}")
    typer.echo(f"then: trainjob cluster check {name}")


@app.command()
def check(name: Name, as_json: show.AsJson = False) -> None:
    """Check a cluster file, and say what submitting to it still needs."""
    from trainjob.cluster.lookup import find
    from trainjob.cluster.site import missing_facts

    found = find(name)
    missing = missing_facts(found.cluster)
    if as_json:
        show.as_json({"name": found.name, "from": found.origin_word, "ok": True, "missing": list(missing)})
        return
    typer.echo(f"{found.origin_word} is sound: kind {found.cluster.kind}")
    if missing:
        typer.echo(f"to submit, fill in: {', '.join(missing)}")


@app.command()
def schema(
    job: Annotated[bool, typer.Option("--job", help="The schema of job files instead.")] = False,
    as_json: show.AsJson = False,  # noqa: ARG001 - the schema is JSON in any case
) -> None:
    """Print the JSON Schema of cluster files, with which an editor completes and checks them."""
    from trainjob.cluster.schema import cluster_schema, job_schema

    typer.echo(json.dumps(job_schema() if job else cluster_schema(), indent=1, ensure_ascii=False))


@app.command()
def inventory(name: Name, as_json: show.AsJson = False) -> None:  # noqa: ARG001 - Ansible's inventories are JSON
    """Print the hosts and what they get as Ansible's dynamic inventory."""
    from trainjob.cluster.lookup import find
    from trainjob.provision.inventory import inventory as made

    show.as_json(made(find(name)))
