"""From flags to rehearsals of a pod: beside one process for verify, with another module for bench."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainjob.bench.pod import Rehearsing
from trainjob.cli.job_flags import JobFlags
from trainjob.cli.prepared import Prepared, our_templates, prepare, selected, site_templates
from trainjob.cluster.lookup import Found, find
from trainjob.cluster.models import PodCluster, ipu_place
from trainjob.contract.errors import UserError
from trainjob.plan.build import plan
from trainjob.rehearse.base import Rehearsal
from trainjob.rehearse.pod_environment import environment
from trainjob.rehearse.redirects import redirects
from trainjob.render.rendered import render
from trainjob.render.request import Request
from trainjob.runs import index
from trainjob.runs.experiment import Workbench
from trainjob.submit.project import Selection
from trainjob.verify import pod


def is_a_pod(flags: JobFlags) -> bool:
    """Return whether the cluster is an IPU-POD."""
    return find(flags.cluster).cluster.kind == "ipu-pod"


def has_ipus(flags: JobFlags) -> bool:
    """Return whether the cluster has IPUs: a pod, or nodes that Slurm gives."""
    return ipu_place(find(flags.cluster).cluster) is not None


def prepared_pair(flags: JobFlags, updates: int) -> tuple[Rehearsal, Workbench]:
    """Return the rehearsal and the workbench with the job of one process. Raises UserError."""
    asked = prepare(flags)
    batch = asked.request.plan.batch
    if batch is None:
        raise UserError("verify trains tasks of the runtime, and a command's updates can't be seen: give --task")
    here = find("local")
    selection = selected(asked, untracked=flags.untracked)
    rehearsed = asked.request.job.model_copy(
        update={**pod.shared(asked.request.job, updates), "precision": "32.32", "eight_bit_io": True}
    )
    several = replace(asked.request, job=rehearsed, plan=plan(asked.found.name, asked.found.cluster, rehearsed))
    rehearsal = Rehearsal(
        request=several,
        rendered=render(several, our_templates(), site_templates()),
        project=asked.project,
        selection=selection,
        folder=index.home() / "rehearsals" / index.new_id(several.plan.name),
        redirects={**redirects(asked.found.cluster, os.environ, None, _data_dir(here)), **pod.STANDIN_FLOAT64},
        inject=None,
        say=lambda _line: None,
    )
    alone = pod.alone(asked.request.job, batch, updates)
    one = replace(
        asked.request,
        cluster=here.cluster,
        cluster_origin=here.origin_word,
        job=alone,
        plan=plan(here.name, here.cluster, alone),
    )
    return rehearsal, _workbench(asked, one, here, selection)


def _workbench(asked: Prepared, request: Request, here: Found, selection: Selection | None) -> Workbench:
    return Workbench(
        request=request,
        render=lambda one: render(one, our_templates(), site_templates()),
        runs_dir=replace(asked, found=here).runs_dir,
        project=asked.project,
        selection=selection,
    )


@contextmanager
def standing_in(flags: JobFlags) -> Iterator[Workbench]:
    """Yield the workbench of a pod's job: while it lasts, what is started here finds stand-ins on its paths."""
    asked = prepare(flags)
    cluster, here, before = asked.found.cluster, find("local"), dict(os.environ)
    if not isinstance(cluster, PodCluster):
        raise TypeError(cluster.kind)
    with tempfile.TemporaryDirectory(prefix="trainjob-pod-") as place:
        redirected = redirects(cluster, before, None, _data_dir(here))
        os.environ.update(environment(Path(place), cluster, cluster.ipus, redirected))
        try:
            yield _workbench(asked, asked.request, here, selected(asked, untracked=flags.untracked))
        finally:
            os.environ.clear()
            os.environ.update(before)


def rehearsing(flags: JobFlags) -> Rehearsing:
    """Return what makes a rehearsal of the job, with some settings changed and maybe another module for its ranks."""
    asked = prepare(flags)
    here = find("local")
    selection = selected(asked, untracked=flags.untracked)

    def rehearsal(changes: dict[str, Any], runtime: tuple[str, ...] | None) -> Rehearsal:
        job = asked.request.job.model_copy(update=changes)
        planned = plan(asked.found.name, asked.found.cluster, job)
        request = replace(asked.request, job=job, plan=planned, runtime=runtime or asked.request.runtime)
        return Rehearsal(
            request=request,
            rendered=render(request, our_templates(), site_templates()),
            project=asked.project,
            selection=selection,
            folder=index.home() / "rehearsals" / index.new_id(planned.name),
            redirects=redirects(asked.found.cluster, os.environ, None, _data_dir(here)),
            inject=None,
            say=lambda _line: None,
        )

    return rehearsal


def _data_dir(here: Found) -> Path | None:
    return Path(here.cluster.data_dir).expanduser() if here.cluster.data_dir else None
