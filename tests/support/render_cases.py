"""Requests that the tests of rendering share, and the golden files beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies

from tests.support import ROOT
from tests.support.pod_cases import pod_requests, slurm_ipu_requests
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.kinds.lookup import find
from trainjob.kinds.table import EVERY_KIND, cluster_of
from trainjob.planning.build import plan
from trainjob.render.elements import Elements, Variation
from trainjob.render.rendered import Rendered, render
from trainjob.render.rendered import script as rendered_script
from trainjob.render.request import Request

OURS = ROOT / "templates"
GOLDEN = ROOT / "tests" / "golden"

# Everything that a cluster file of kind local can say to a script.
FULL = {
    "kind": "local",
    "python": "~/venvs/torch 2/bin/python",
    "network": {"interface": "lo", "port": 23456},
    "data_dir": "~/data sets",
    "env": {"GREETING": "it's $HOME; `date`", "OMP_NUM_THREADS": "2"},
    "prologue": ["module load python/3.11", 'source "$HOME/site.sh"'],
    "secrets_file": "~/.config/trainjob/secrets.env",
}
# Everything that a cluster file of kind slurm can say to a script.
FULL_SLURM = {
    **FULL,
    "kind": "slurm",
    "nodes": {"count": 8, "accelerator": "gpu", "accelerators": 4, "type": "a100", "cpus": 64, "memory_gb": 500},
    "python": "/shared/venvs/torch 2/bin/python",
    "network": {"interface": "ib0", "port": 23456},
    "limits": {"max_nodes": 4, "max_time": "24:00:00"},
    "request": "gpus-per-node",
    "directives": {"partition": "gpu", "account": "abc 123", "exclusive": True, "hold": False, "nice": 10},
    "time_limit": "04:00:00",
    "time_limit_signal": {"to": "batch", "margin_s": 300},
    "preemption": "user-signal",
}
# What could be taken for something else by bash, by argparse, by Jinja or by a terminal.
HOSTILE = [
    "",
    " ",
    "-",
    "--",
    "-x",
    "--instances=9",
    "--parent",
    "a b",
    "it's",
    'say "hi"',
    "$HOME",
    "$(touch canary)",
    "`touch canary`",
    "; touch canary #",
    "&& touch canary",
    "| touch canary",
    "' ; touch canary ; '",
    "\n touch canary\n",
    "\r\n",
    "\t",
    "\\",
    "a\\nb",
    "!!",
    "*",
    "~",
    "~/x",
    "a=~/x",
    "{a,b}",
    "# no comment",
    "<(touch canary)",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "%s%n",
    "@file",
    "then",
    "==1",
    "näh ✓ 数",
    "\ue000origin\ue001",
    "\x1b[31m",
    "\x01\x7f\x85\u2028",
    "x" * 8192,
]

# Any text that an argument can carry: no NUL, no lone surrogates.
TEXT = strategies.text(strategies.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


def cluster(**values: Any) -> Cluster:
    return cluster_of({"kind": "local", **values})


def request(place: Cluster | None = None, origins: Mapping[str, str] | None = None, **job: Any) -> Request:
    found = cluster() if place is None else place
    asked = Job(**job)
    return Request(found, "cluster file here.yaml", asked, origins or {}, plan("here", found, asked))


def rendered(asked: Request, *site: Path) -> Rendered:
    return render(asked, EVERY_KIND[asked.cluster.kind], OURS, site)


def script(asked: Request, *site: Path) -> str:
    made = rendered(asked, *site)
    return made.files[made.script].content.decode()


def explained_script(asked: Request, *site: Path) -> str:
    return rendered_script(asked, EVERY_KIND[asked.cluster.kind], OURS, site, explain=True)


def site_template(folder: Path, text: str, name: str = "jobs/local.sh.j2") -> Path:
    """Write a template of a site's own; return the folder to render with."""
    path = folder / "templates" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder / "templates"


def golden_script(name: str) -> Path:
    return GOLDEN / f"{name}{'.sbatch' if name.startswith('slurm') else '.sh'}"


def golden_requests() -> dict[str, Request]:
    """Return the request of each pair of golden files: NAME.sh (or .sbatch) and NAME.job.json."""
    return {
        "local-digits": _digits("local"),
        "local-horovod": _horovod(cluster(**FULL)),
        "local-command": _command(cluster(**FULL)),
        "local-hostile": _hostile("local"),
        "local-docker": _command(cluster(**FULL, container={"runtime": "docker", "image": "our images/torch:2"})),
        "local-podman": _podman(),
        "slurm-digits": _digits("slurm-gpu"),
        "slurm-command": _command(cluster(**FULL_SLURM)),
        **{f"slurm-{runtime}": _contained(runtime) for runtime in ("apptainer", "pyxis", "docker", "podman")},
        "slurm-hostile": _hostile("slurm", nodes={"count": 1, "cpus": 4}),
        "slurm-sweep": _sweep(),
        "slurm-pack": _pack(),
        "slurm-groups": _groups(),
        "slurm-horovod": _horovod(cluster(**{**FULL_SLURM, "nodes": {"count": 2, "cpus": 16}, "request": "none"})),
        "hosts-digits": _digits("hosts-gpu"),
        "hosts-command": _command(_hosts()),
        "hosts-hostile": _hostile("hosts", hosts=["a", "b"]),
        **slurm_ipu_requests(),
        **pod_requests(),
    }


def _digits(name: str) -> Request:
    found = find(name)
    job = Job(instances=2)
    origins = {"instances": "flag --instances"}
    return Request(found.cluster, found.origin_word, job, origins, plan(found.name, found.cluster, job))


def _horovod(place: Cluster) -> Request:
    hosts: dict[str, Any] = {} if place.trains_here else {"hosts": 2}
    job = Job(instances=4, engine="horovod", **hosts)
    origins = {"instances": "flag --instances", "engine": "flag --engine"}
    return Request(place, "cluster file full.yaml", job, origins, plan("full", place, job))


def _hosts() -> Cluster:
    nodes = {"accelerator": "gpu", "accelerators": 2, "cpus": 16}
    more = {
        "data_dir": "/localdata",
        "secrets_file": "~/.secrets",
        "env": {"GREETING": "a b"},
        "prologue": ["ulimit -n 4096"],
    }
    network = {"interface": "eno1", "port": 29500}
    return cluster(
        kind="hosts", hosts="gpu-[1-3]", nodes=nodes, network=network, python="/shared/venv/bin/python", **more
    )


def _groups() -> Request:
    """Return a job on nodes with eight GPUs and with four."""
    alike = {"accelerator": "gpu", "type": "a100"}
    directives = {"partition": "gpu", "account": "abc123"}
    big = {"name": "big", "count": 1, "accelerators": 8, "cpus": 128, "memory_gb": 1000, **alike}
    small = {"name": "small", "count": 2, "accelerators": 4, "cpus": 48, "memory_gb": 500, **alike}
    nodes = [{**big, "directives": {"constraint": "nvlink"}}, small]
    site = cluster(kind="slurm", nodes=nodes, directives=directives, time_limit="04:00:00", srun={"cpu-bind": "cores"})
    return request(site, {"instances": "flag --instances"}, instances=8)


def _sweep() -> Request:
    place = cluster(kind="slurm", nodes={"count": 4, "cpus": 8})
    asked = Job(name="many", command=["python", "train.py"], instances=2, array="0-1%1", sweep="sweep.yaml")
    own: dict[int, Any] = {
        0: {"arguments": ["--lr", "0.1"], "env": {"NOTE": "it's $HOME"}},
        1: {"arguments": ["--lr", "0.2 "]},
    }
    elements = Elements(asked, (0, 1), {number: Variation(**values) for number, values in own.items()})
    origins = {"array": "flag --array", "sweep": "flag --sweep"}
    return elements.planned(Request(place, "cluster file here.yaml", asked, origins, plan("here", place, asked)))


def _pack() -> Request:
    nodes = {"count": 4, "accelerator": "gpu", "accelerators": 4, "type": "a100", "cpus": 64}
    place = cluster(kind="pack", nodes=nodes, directives={"partition": "gpu"}, time_limit="04:00:00")
    asked = Job(name="many", command=["python", "train.py"], instances=2, array="0-9%3", pack=2)
    origins = {"array": "flag --array", "pack": "flag --pack", "instances": "flag --instances"}
    request = Request(place, "cluster file here.yaml", asked, origins, plan("here", place, asked))
    return Elements(asked, tuple(range(10)), {}).planned(request)


def _podman() -> Request:
    image = {"runtime": "podman", "image": "localhost/trainjob:cuda"}
    place = cluster(accelerator="gpu", accelerators=4, container=image)
    return Request(place, "cluster file gpus.yaml", Job(instances=4), {}, plan("gpus", place, Job(instances=4)))


def _command(place: Cluster) -> Request:
    job = Job(
        name="mine",
        command=["python", "train.py", "--lr", "0.1", "--note", "a b"],
        instances=4,
        env={"EPOCHS": "3", "GREETING": "mine"},
    )
    origins = {
        "name": "job file mine.yaml",
        "command": "flag -- command",
        "instances": "flag --instances",
        "env.EPOCHS": "flag --env EPOCHS",
        "env.GREETING": "job file mine.yaml",
    }
    return Request(place, "cluster file full.yaml", job, origins, plan("full", place, job), "src/deep er")


def _contained(runtime: str) -> Request:
    image = "~/images/train job.sif" if runtime == "apptainer" else "registry/trainjob:cuda"
    container = {"runtime": runtime, "image": image, "mounts": ["/opt/shared"]}
    nodes = {"count": 2, "accelerator": "gpu", "accelerators": 2, "cpus": 16}
    more = {"data_dir": "/shared/data", "secrets_file": "~/.secrets", "env": {"GREETING": "a b"}}
    place = cluster(kind="slurm", nodes=nodes, container=container, **more)
    hosts = 1 if runtime in ("docker", "podman") else 2
    job = Job(instances=2 * hosts)
    return Request(place, "cluster file full.yaml", job, {}, plan("full", place, job))


def _hostile(kind: str, **more: Any) -> Request:
    values: dict[str, Any] = {f"V{number}": text for number, text in enumerate(HOSTILE) if len(text) < 100}
    place = cluster(kind=kind, env=values, **more)
    # Slurm reads the name of a job in its own way, and some of it is refused.
    name = "'; touch canary; $(touch canary) #" if kind == "local" else "; touch canary; $(touch canary) #"
    job = Job(name=name, command=["echo", *values.values()])
    return Request(place, "cluster file bad.yaml", job, {}, plan("bad\ntouch canary\n", place, job))
