"""The reference page of public machines: what the sites publish beside what trainjob renders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from batchfiles.slurm.directives import read_header
from trainjob.cluster.job import Job
from trainjob.kinds.lookup import UnreadClusterFile, sites
from trainjob.kinds.slurm import directives
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.planning.build import plan
from trainjob.render.request import Request

PUBLISHED = Path(__file__).with_name("published.yaml")
# Every job has them, at every site: see docs/design.md.
_OF_EVERY_JOB = frozenset(("job-name", "signal", "requeue", "propagate", "open-mode", "output", "export"))


@dataclass(frozen=True)
class Published:
    """What a site's example asks for. `per` node: srun starts one process on each node, which starts the ranks."""

    example: str
    instances: int
    directives: Mapping[str, Any]
    per: Literal["rank", "node"] = "rank"
    srun: Mapping[str, Any] = field(default_factory=dict)
    differ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One option with its value in the site's example and in ours; "" where it is absent."""

    option: str
    theirs: str
    ours: str

    @property
    def agrees(self) -> bool:
        """Whether both have the same value."""
        return self.theirs == self.ours


def published() -> dict[str, Published]:
    """Return the examples by the name of their site."""
    return {name: Published(**facts) for name, facts in yaml.safe_load(PUBLISHED.read_text(encoding="utf-8")).items()}


def request_of(site: UnreadClusterFile, asked: Published) -> Request:
    """Return the job of a site's example, with the account and QOS that a user would fill in."""
    facts = asked.directives
    filled = {name: facts.get(name, "yours") for name in ("account", "qos")}
    cluster = SlurmCluster.of(site.read().cluster)
    lacking = {name: value for name, value in filled.items() if name in cluster.required_directives}
    cluster = cluster.with_directives(lacking)
    time = {"time_limit": facts["time"]} if "time" in facts else {}
    job = Job(
        name="example", command=["torchrun", "train.py"], command_per=asked.per, instances=asked.instances, **time
    )
    return Request(cluster, site.origin_word, job, {}, plan(site.name, cluster, job))


def rows(site: UnreadClusterFile, asked: Published) -> Iterator[Row]:
    """Yield the options that the example or the rendered script has, in the example's order."""
    request = request_of(site, asked)
    cluster = SlurmCluster.of(request.cluster)
    lines = [str(line) for line in directives.lines(request, cluster)]
    ours = {one.name: one.value or "true" for one in read_header(lines, frozenset()).directives}
    theirs = {name: _word(value) for name, value in asked.directives.items()}
    for name in dict.fromkeys((*theirs, *ours)):
        if name not in _OF_EVERY_JOB:
            yield Row(name, theirs.get(name, ""), ours.get(name, ""))
    for name in dict.fromkeys((*asked.srun, *cluster.srun)):
        values = (asked.srun.get(name), cluster.srun.get(name))
        yield Row(f"srun {name}", *("" if value is None else _word(value) for value in values))


def _word(value: object) -> str:
    return "true" if value is True else str(value)


_INTRODUCTION = """\
`trainjob cluster init --site NAME` writes a cluster file for a public machine, in which you fill in your account and a
folder. Every line of such a file says where its value comes from and when that was read. What no page says is missing,
and the file says so. None of these files has run on its machine. `trainjob cluster check NAME --ask-controller`
compares yours with the machine as it is, on its login node or over ssh.

Each table compares a script that trainjob renders with the one that the site publishes, for the same nodes and ranks.
An empty cell is an option that is absent. Every job of trainjob also has `--signal`, `--requeue`, `--propagate=NONE`,
`--export=NONE` and an output in its run directory.
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _INTRODUCTION.splitlines()
    examples = published()
    for site in sites():
        title, *about = site.path.read_text(encoding="utf-8").split("\nkind:")[0].splitlines()
        yield from ("", f"## {site.name}", "", title.removeprefix("# "))
        yield from (line.removeprefix("# ") for line in about if not line.startswith(("# [", "# Sources:")))
        yield ""
        if site.name not in examples:
            yield "No example of the site's own was found."
            continue
        asked = examples[site.name]
        yield f"[The example]({asked.example}) of {asked.instances} ranks:"
        yield ""
        yield from ("| option | site | trainjob | why they differ |", "|---|---|---|---|")
        for row in rows(site, asked):
            why = "" if row.agrees else asked.differ[row.option]
            cells = (f"`{text}`" if text else "" for text in (row.option, row.theirs, row.ours))
            yield f"| {' | '.join(cells)} | {why} |"
