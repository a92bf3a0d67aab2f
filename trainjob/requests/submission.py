"""From a prepared request to a run: refusals, submission, and resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from trainjob.backends.folder import write_again
from trainjob.check.checks import OUT_OF_REACH, problems
from trainjob.check.context import Context, Depth
from trainjob.contract import roles, steps
from trainjob.contract.errors import Problem, ProblemsError, UserError, of_error
from trainjob.contract.paths import RunPaths
from trainjob.contract.programs.secret_names import is_secret_variable
from trainjob.contract.programs.secrets_in_shell import secrets_in
from trainjob.contract.quoting import QuotingError
from trainjob.kinds import table
from trainjob.kinds.lookup import refuse_missing_facts
from trainjob.lifecycle import ledger, start
from trainjob.lifecycle import resume as resuming
from trainjob.lifecycle.lock import locked
from trainjob.observe import index, notify, reservations
from trainjob.observe.report.report import slowest_checkpoint_s
from trainjob.observe.status import Snapshot, status
from trainjob.planning.build import plan
from trainjob.planning.rules import Refusal
from trainjob.records import checkpoints
from trainjob.records import job as jobs
from trainjob.render.request import MARGIN, DirectiveError, Request
from trainjob.requests import budget
from trainjob.requests.inside import chosen, refuse_any, refuse_misfit
from trainjob.requests.prepared import Prepared, rendered


def find_problems(prepared: Prepared, depth: Depth, context: Context | None = None) -> list[Problem]:
    """Return the problems of a job before it is queued. `context` may hold answers of an earlier check."""
    from trainjob.observe import earlier

    all_problems = problems(context or context_of(prepared), depth)
    with contextlib.suppress(OSError):  # earlier runs that can't be read are ignored
        all_problems += earlier.too_late_for_a_checkpoint(prepared.request)
    charge = budget.charged(prepared)
    return [*all_problems, *(one.problem for one in budget.refusals(charge, budget.standing(charge)))]


def context_of(prepared: Prepared) -> Context:
    """Return what checks examine. If the script can't be rendered, a check reports the reason."""
    request, project, selection, machine = prepared.request, prepared.project, prepared.selection, prepared.machine
    path = prepared.named_cluster.path
    try:
        files = prepared.render()
    except (DirectiveError, QuotingError) as error:
        refused = of_error(error.code, error)
        return Context(request, project, selection, machine, refused=refused, cluster_file=path)
    return Context(request, project, selection, machine, files.files[files.script].content, cluster_file=path)


def refuse_problems(prepared: Prepared, *, over_budget: bool = False) -> None:
    """Raise ProblemsError with every problem of a job. Does not read whole data sets.

    In an allocation nothing waits in a queue: what its nodes lack shows as soon as a look at them would tell.
    """
    all_problems = [
        problem
        for problem in find_problems(prepared, Depth(scheduler=True, hosts=prepared.inside is None))
        if not (over_budget and problem.code == ledger.OverBudgetError.code)
    ]
    if all_problems:
        refusal = ProblemsError.of_all(all_problems, "; ")
        refusal.is_out_of_reach = all(problem.code == OUT_OF_REACH for problem in all_problems)
        raise refusal


def submit(
    prepared: Prepared,
    *,
    after: Sequence[str] = (),
    again: bool = False,
    check: bool = True,
    allow_secret_env: bool | None = None,
    over_budget: bool = False,
    before: Callable[[RunPaths], None] = lambda _paths: None,
) -> RunPaths:
    """Return the run, which has begun or waits in a queue. Under a scheduler it waits for the runs named in `after`.

    `before` is called with the run directory before anything of the run exists. `allow_secret_env` is None where the
    user has no such option.

    Raises UserError for a redirecting variable, missing facts about the site, every problem that `check` would find
    (unless `check` is False), an unreadable configuration of the user, the same job within a minute (unless `again` is
    true), and more than is left of a budget (unless `over_budget` is true: a person has agreed).
    """
    start.refuse_redirects(os.environ)
    refuse_any(prepared.inside)
    notify.configured()
    if not allow_secret_env:
        refuse_secrets(prepared, can_allow=allow_secret_env is not None)
    files = prepared.render()
    named = prepared.named_cluster
    refuse_missing_facts(named.name, named.cluster, named.path)
    refuse_no_job(prepared)
    if check:
        refuse_problems(prepared, over_budget=over_budget)
    charge = budget.charged(prepared)
    if over_budget:
        charge = charge._replace(limits=())
    remote = prepared.remote()
    backend = named.cluster.back_end
    wait_for = start.to_wait_for(map(index.find, after), named.name, backend, remote) if after else ()
    handover = start.Handover(
        rendered=files,
        name=prepared.request.plan.name,
        cluster=named.name,
        backend=backend,
        runs_dir=prepared.runs_dir,
        share=named.cluster.share,
        project=prepared.project,
        selection=prepared.selection,
        remote=remote,
        after=wait_for,
        inside=prepared.inside and prepared.inside.allocation.job_id,
        charge=charge,
        holds_nodes=named.cluster.holds_nodes,
        before=before,
    )
    paths = start.submit(handover, again=again)
    notify.watch(paths)
    return paths


def refuse_secrets(prepared: Prepared, passed: Collection[str] | None = None, *, can_allow: bool = False) -> None:
    """Raise UserError for a secret, by its name or by its value: the run's script or job.json would contain it.

    `passed`: the variables of a run that goes on, whose job was let pass when it was submitted. `can_allow`: the
    user's command has --allow-secret-env.
    """
    or_allow = "; or give --allow-secret-env if it is no secret" if can_allow else ""
    job, cluster = prepared.request.job, prepared.request.cluster
    of_cluster, servers = f"in the file of cluster {prepared.request.plan.cluster}", roles.parse(job.roles).servers
    given = [(f"env.{name} {of_cluster}", name, value) for name, value in cluster.env.items()]
    own = [(f"roles.{one.name}.env.{name}", name, value) for one in servers for name, value in one.env.items()]
    own += [(f"--env {name}", name, value) for name, value in job.env.items()]
    for where, name, _ in [*given, *own]:
        if is_secret_variable(name) and name not in (passed or ()):
            raise UserError(
                f"{where}: the name looks like a secret's, and its value would be in the run's script or job.json",
                f"write {name}=… into the file that secrets_file in the cluster file names (mode 0600){or_allow}",
                "secret-env",
            )
    texts = [(where, value) for where, _, value in given]
    texts += [(f"prologue {of_cluster}", line) for line in cluster.prologue]
    if passed is None:
        texts += [(where, value) for where, _, value in own]
        texts += [(f"roles.{one.name}.command", shlex.join(one.command)) for one in servers]
        texts += [(f"once.{one.scope}, {one.name}", shlex.join(one.command)) for one in steps.parse(job.once)]
        texts += [("the command", shlex.join(job.command or ()))]
    written = next((where for where, text in texts if secrets_in(str(text))), None)
    if written is not None:
        raise UserError(
            f"{written}: a password or key is written there, and it would be in the run's script or job.json",
            "write it as NAME=… into the file that secrets_file in the cluster file names (mode 0600), and read NAME "
            f"from the environment{or_allow}",
            "secret-env",
        )


def refuse_no_job(prepared: Prepared) -> None:
    """Raise UserError if no job is given: the default task is only for a first try on the user's own machine."""
    job = prepared.request.job
    if job.task is None and job.command is None and prepared.named_cluster.cluster.is_shared:
        raise UserError(
            f"no job is given, and cluster {prepared.named_cluster.name} is shared with others",
            "give --task digits-cnn for a first run, --task module:attribute or --job FILE for your own task, or a "
            "command after --",
            "no-job",
        )


def resume(
    paths: RunPaths,
    *,
    instances: int | None = None,
    from_scratch: bool = False,
    completed: bool = False,
    inside: str | None = None,
    over_budget: bool = False,
    warn: Callable[[str], None],
) -> None:
    """Start the next attempt of a run, with `instances` if given, and the same global batch.

    With `from_scratch` all checkpoints are set aside first. With `completed` a COMPLETED run goes on, too. A run inside
    an allocation begins in job `inside`, and without one in the same as before. `warn` is called with lines about
    checkpoints that the attempt skips, checkpoints that the last attempt could not write, and a margin before the time
    limit that is too short for them; it becomes longer unless the user has stated it. Raises UserError if another
    `resume` is under way, a redirecting variable is set, the run can't be resumed, all checkpoints are damaged, or
    `instances` does not divide the batch.
    """
    start.refuse_redirects(os.environ)
    with locked(paths.whole, "trainjob resume"):
        now = status(paths)
        resuming.refuse_unless_ended(now, completed=completed)
        if inside is not None:
            now = _moved(now, inside)
        lost = now.checkpoints_not_written
        if lost:
            warn(f"{lost} checkpoint{'s' if lost > 1 else ''} of the last attempt NOT written")
        for line in [] if from_scratch else resuming.passed_over(now):
            warn(line)
        request = None if instances is None else resuming.with_instances(paths, instances)
        request = follow_checkpoints(paths, request, warn)
        begin = resuming.parts_to_resume(now, completed=completed)
        again = [request or resuming.request_of(jobs.read(one.paths.job)) for one in begin]
        ledger.release(now)  # it is charged again, for the attempt that never began
        with ledger.charged(paths.whole, charge_of_run(now, begin, again, over_budget=over_budget)) as begins:
            if from_scratch:
                resuming.start_over(now)
            if request is not None:
                write_again(paths, rendered(request))
            begins()
            resuming.resume(now, completed=completed)
        notify.watch(paths)


def charge_of_run(
    now: Snapshot, begin: Sequence[Snapshot], again: Sequence[Request], *, over_budget: bool
) -> ledger.Charge | None:
    """Return what the next attempts of a run may cost, which are those of `begin`; None for nothing."""
    cost = budget.cost_of(again)
    if not cost.devices or now.submission is None:
        return None
    inside = now.submission.inside
    paid_by = None if inside is None else reservations.jobs(now.submission.cluster).get(inside)
    project = Path(str(now.submission.project.get("top")), str(now.submission.project.get("start") or ""))
    charge = budget.charge_of(cost, again[0].cluster, again[0].plan.cluster, project, paid_by)
    if not charge.cost.devices:
        return None
    return charge._replace(
        limits=() if over_budget else charge.limits,
        again=[now.paths.whole] if again[0].cluster.packs else [one.paths for one in begin],
    )


def _moved(now: Snapshot, inside: str) -> Snapshot:
    """Return the status of a run whose next attempt begins in job `inside`. Raises UserError where it does not fit."""
    if now.submission is None or now.submission.inside is None:
        raise UserError(f"run {now.id} is a job of its own, and --in is for runs inside an allocation", "leave it out")
    again = resuming.request_of(jobs.read(now.paths.job))
    held = chosen(inside, again.plan.cluster, again.cluster)
    refuse_any(held)
    if held is None:
        raise UserError(
            f"--in {inside}: run {now.id} was rendered for an allocation",
            "Submit it anew with --in none, or name a job",
        )
    refuse_misfit(held.allocation, again.cluster, again)
    return dataclasses.replace(now, submission=now.submission.replace(inside=held.allocation.job_id))


def follow_checkpoints(paths: RunPaths, request: Request | None, say: Callable[[str], None]) -> Request | None:
    """Return the request with a longer margin, to render the run again, if its checkpoints need it; else `request`.

    A margin that the user has stated stays. `say` is called with a line about a margin that changes, or should change.
    """
    record = jobs.read(paths.job)
    cluster = table.recorded_cluster(record)
    if record.train is None:
        return request
    if paths.element is not None or paths.elements():  # one script starts all elements of an array
        return request
    margin_s, durable_s = record.train.limit_margin_s, 0.0
    with contextlib.suppress(UserError, OSError):  # without readable records, the duration is unknown
        durable_s = slowest_checkpoint_s(paths)
    if margin_s is None or not checkpoints.is_too_late(durable_s, margin_s):
        return request
    needed_s = checkpoints.margin_for(durable_s)
    observation = (
        f"a checkpoint of this run took up to {durable_s:.0f} s until it was on disk, and the stop signal comes only "
        f"{margin_s:.0f} s before the time limit"
    )
    if MARGIN not in record.request.origins and cluster.states_margin:
        say(
            f"{observation}, as its cluster file says. "
            f"Submit it again with time_limit_signal.margin_s: {needed_s} there"
        )
        return request
    try:
        before = request or resuming.request_of(record)
        longer = before.cluster.with_margin(needed_s)
        planned = plan(before.plan.cluster, longer, before.job)
    except Refusal as refused:
        say(f"{observation}. It stays so, because {needed_s} s do not fit: {refused}")
        return request
    say(f"{observation}: from now on {needed_s} s, also in its job script")
    origins = {**before.origins, MARGIN: f"measured: a checkpoint of this run took up to {durable_s:.0f} s"}
    return dataclasses.replace(before, cluster=longer, origins=origins, plan=planned)
