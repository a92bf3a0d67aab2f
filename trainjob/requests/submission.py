"""From a prepared request to a run: refusals, and submission."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Collection, Sequence

from trainjob.check.checks import OUT_OF_REACH, problems
from trainjob.check.context import Context, Depth
from trainjob.contract import roles, steps
from trainjob.contract.errors import Problem, ProblemsError, UserError, of_error
from trainjob.contract.paths import RunPaths
from trainjob.contract.programs.secret_names import is_secret_variable
from trainjob.contract.programs.secrets_in_shell import secrets_in
from trainjob.contract.quoting import QuotingError
from trainjob.kinds.lookup import refuse_missing_facts
from trainjob.lifecycle import ledger, start
from trainjob.observe import index, notify
from trainjob.render.request import DirectiveError
from trainjob.requests import budget
from trainjob.requests.inside import refuse_any
from trainjob.requests.prepared import Prepared


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
        inside=prepared.inside and prepared.inside.allocation,
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
