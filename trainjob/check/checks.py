"""The list of all checks before a job is queued, for every kind of cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from trainjob.backends import containers
from trainjob.check import memory, pod, project, requirements, script_problems, slurm, software, storage
from trainjob.check.context import Context, Depth
from trainjob.cluster.base import Cluster
from trainjob.contract.errors import Problem, UserError, of_error
from trainjob.machines.ssh.failures import SshError

# The code of a problem that is none of the job's: later, the same command may find none.
OUT_OF_REACH = "out-of-reach"
# The code of the problem that this machine is no login node: then it is not one to look at for what a job needs.
NO_SLURM = "slurm-missing"


class Check(NamedTuple):
    """One row of the list. Checks without `before_submit` are slow, and only `trainjob check` runs them."""

    name: str
    find: Callable[[Context], Iterable[Problem]]
    applies: Callable[[Context], bool] = lambda _context: True
    before_submit: bool = True


def _fact(is_so: Callable[[Cluster], bool]) -> Callable[[Context], bool]:
    return lambda context: is_so(context.request.cluster)


_IS_POD = _fact(lambda cluster: cluster.hosts_are_named and cluster.ranks_by == "poprun")
_HAS_SCHEDULER = _fact(lambda cluster: cluster.has_scheduler)
_TRAINS_HERE = _fact(lambda cluster: cluster.trains_here)
_STARTS_BY_MPIRUN = _fact(lambda cluster: cluster.ranks_by == "mpirun")


def _is_command(context: Context) -> bool:
    return bool(context.request.job.command)


def _runs_command_under_scheduler(context: Context) -> bool:
    return _is_command(context) and _HAS_SCHEDULER(context)


# In the order in which a job would fail: by the job, its project and the cluster file alone,
_OF_FILES = (
    Check("facts", project.missing_facts),
    Check("directives", project.refused),
    Check("limits", slurm.limits, _HAS_SCHEDULER),
    Check("arguments", project.too_long, _is_command),
    Check("script", project.missing_script, _is_command),
    Check("own-program", project.own_program, _is_command),
    Check("left-behind", project.left_behind, _is_command),
    Check("requests", script_problems.requests, _runs_command_under_scheduler),
    Check("environment", project.environment),
    Check("syntax", project.syntax),
    Check("memory", memory.too_little),
    Check("port", storage.port, _TRAINS_HERE),
    Check("container", software.container, lambda context: containers.find(context.request) is not None),
)
# by the answer of every host, or of the container that its ranks would run in, to one probe,
_OF_HOSTS = (
    Check("unreachable", software.unreachable),
    Check("ssh", software.ssh_between_hosts),
    Check("sdk", pod.sdk, _IS_POD),
    Check("image", software.image_file),
    Check("interpreter", software.interpreter),
    Check("torch", software.torch),
    Check("poptorch", pod.poptorch, _IS_POD),
    Check("task", software.task),
    Check("units", software.units),
    Check("optimizer", software.optimizer),
    Check("script", script_problems.find, _is_command),
    Check("module", software.module, _is_command),
    Check("program", software.program, _is_command),
    Check("mpirun", software.mpirun),
    Check("horovod", software.horovod),
    Check("network", storage.network),
    Check("runs-dir", storage.runs_dir),
    Check("runs-dir", storage.other_users),
    Check("runs-dir-open", storage.open_runs_dir),
    # A command may write next to nothing, and a task's first checkpoint be small.
    Check("disk", storage.free_space, before_submit=False),
    Check("data", storage.data),
    Check("damaged-data", storage.damaged_data, before_submit=False),
    Check("stage", storage.staging_disk),
    Check("init-from", storage.first_weights),
    Check("secrets", storage.secrets),
    Check("cache", pod.cache, _IS_POD),
    # It is not known in advance whether a limit matters, and no limit keeps a run from starting.
    Check("memlock", pod.memlock, _IS_POD, before_submit=False),
    Check("limits", software.limits, _STARTS_BY_MPIRUN, before_submit=False),
    Check("different", software.different),
    Check("vipu", pod.partition, _IS_POD),
)
# and by the scheduler's own state and limits.
_OF_SCHEDULER = (Check("slurm", slurm.live, _HAS_SCHEDULER),)
_OF_LOGIN_NODE = Check(NO_SLURM, slurm.missing, _HAS_SCHEDULER)


def of_rehearsal(context: Context, python: str, brought: Collection[str]) -> list[Problem]:
    """Return what keeps the job's own script from being rehearsed here by the interpreter `python`.

    `brought` are the modules that the rehearsal adds to those that it has.
    """
    if not context.request.job.command:
        return []
    finders = (project.missing_script, project.own_program, project.left_behind)
    found = [problem for find in finders for problem in find(context)]
    return found or list(script_problems.by(python, context, brought=brought))


def warnings_of_rehearsal(context: Context) -> list[Problem]:
    """Return what a rehearsal may not show of the job's own script, which it runs all the same."""
    return list(script_problems.requests(context)) if _runs_command_under_scheduler(context) else []


def problems(context: Context, depth: Depth | None = None) -> list[Problem]:
    """Return the problems of a job in the order in which they would make it fail. Starts and changes nothing."""
    return list(_problems(context, depth or Depth()))


def _problems(context: Context, depth: Depth) -> Iterator[Problem]:
    checks: tuple[Check, ...] = _OF_FILES
    if depth.hosts and requirements.is_reachable(context.request):
        checks += (_OF_LOGIN_NODE, *_OF_HOSTS, *(_OF_SCHEDULER if depth.scheduler else ()))
    try:
        for check in checks:
            if not ((check.before_submit or depth.thorough) and check.applies(context)):
                continue
            try:
                yield from check.find(context)
            except SshError:
                raise
            except UserError as error:
                yield of_error(OUT_OF_REACH if error.is_out_of_reach else check.name, error)
                if check is _OF_LOGIN_NODE:
                    return
    except SshError as error:
        yield of_error(OUT_OF_REACH if error.is_out_of_reach else "unreachable", error)
