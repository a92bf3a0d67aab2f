"""From flags to rehearsals of a pod: beside one process for verify, with another module for bench."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainjob.bench.pod import Rehearsing
from trainjob.cli.job_flags import JobFlags
from trainjob.cli.prepared import Prepared, our_templates, prepare, selected, site_templates
from trainjob.cluster.lookup import Found, find
from trainjob.contract.errors import UserError
from trainjob.plan.build import plan
from trainjob.rehearse.base import Rehearsal
from trainjob.rehearse.redirects import redirects
from trainjob.render.rendered import render
from trainjob.runs import index
from trainjob.runs.experiment import Workbench
from trainjob.verify import pod


def is_a_pod(flags: JobFlags) -> bool:
    """Return whether the cluster is an IPU-POD."""
    return find(flags.cluster).cluster.kind == "ipu-pod"


def prepared_pair(flags: JobFlags, updates: int) -> tuple[Rehearsal, Workbench]:
    """Return the rehearsal and the workbench with the job of one process. Raises UserError."""
    asked = prepare(flags)
    batch = asked.request.plan.batch
    if batch is None:
        raise UserError("verify trains tasks of the runtime, and a command's updates can't be seen: give --task")
    here = find("local")
    data_dir = Path(here.cluster.data_dir).expanduser() if here.cluster.data_dir else None
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
        redirects={**redirects(asked.found.cluster, os.environ, None, data_dir), **pod.STANDIN_FLOAT64},
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
    return rehearsal, Workbench(
        request=one,
        render=lambda request: render(request, our_templates(), site_templates()),
        runs_dir=_runs_dir(asked, here),
        project=asked.project,
        selection=selection,
    )


def rehearsing(flags: JobFlags) -> Rehearsing:
    """Return what makes a rehearsal of the job, with some settings changed and another module for its ranks."""
    asked = prepare(flags)
    here = find("local")
    data_dir = Path(here.cluster.data_dir).expanduser() if here.cluster.data_dir else None
    selection = selected(asked, untracked=flags.untracked)

    def rehearsal(changes: dict[str, Any], runtime: tuple[str, ...]) -> Rehearsal:
        job = asked.request.job.model_copy(update=changes)
        planned = plan(asked.found.name, asked.found.cluster, job)
        request = replace(asked.request, job=job, plan=planned, runtime=runtime)
        return Rehearsal(
            request=request,
            rendered=render(request, our_templates(), site_templates()),
            project=asked.project,
            selection=selection,
            folder=index.home() / "rehearsals" / index.new_id(planned.name),
            redirects=redirects(asked.found.cluster, os.environ, None, data_dir),
            inject=None,
            say=lambda _line: None,
        )

    return rehearsal


def _runs_dir(asked: Prepared, here: Found) -> Path:
    return replace(asked, found=here).runs_dir
