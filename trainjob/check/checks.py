"""The list of all checks before a job is queued, for every kind of cluster."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from trainjob.backends import containers
from trainjob.check import memory, pod, project, requirements, slurm, software, storage
from trainjob.check.context import Context, Depth
from trainjob.cluster.base import Cluster
from trainjob.contract.errors import Problem, UserError, of_error
from trainjob.machines.ssh.failures import SshError


class Where(enum.Enum):
    """The part of a job's surroundings that a check examines."""

    FILES = "the job, its project and the cluster file: no machine is contacted"
    HOSTS = "the answer of every host, or of the container that its ranks would run in, to one probe"
    SCHEDULER = "the scheduler's own state and limits"


class Check(NamedTuple):
    """One row of the list. Checks without `before_submit` are slow, and only `trainjob check` runs them."""

    name: str
    find: Callable[[Context], Iterable[Problem]]
    where: Where
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


# In the order in which a job would fail.
CHECKS = (
    Check("facts", project.missing_facts, Where.FILES),
    Check("directives", project.refused, Where.FILES),
    Check("limits", slurm.limits, Where.FILES, _HAS_SCHEDULER),
    Check("arguments", project.too_long, Where.FILES, _is_command),
    Check("script", project.missing_script, Where.FILES, _is_command),
    Check("own-program", project.own_program, Where.FILES, _is_command),
    Check("left-behind", project.left_behind, Where.FILES, _is_command),
    Check("syntax", project.syntax, Where.FILES),
    Check("memory", memory.too_little, Where.FILES),
    Check("port", storage.port, Where.FILES, _TRAINS_HERE),
    Check("container", software.container, Where.FILES, lambda context: containers.find(context.request) is not None),
    Check("unreachable", software.unreachable, Where.HOSTS),
    Check("ssh", software.ssh_between_hosts, Where.HOSTS),
    Check("sdk", pod.sdk, Where.HOSTS, _IS_POD),
    Check("image", software.image_file, Where.HOSTS),
    Check("interpreter", software.interpreter, Where.HOSTS),
    Check("torch", software.torch, Where.HOSTS),
    Check("poptorch", pod.poptorch, Where.HOSTS, _IS_POD),
    Check("task", software.task, Where.HOSTS),
    Check("units", software.units, Where.HOSTS),
    Check("optimizer", software.optimizer, Where.HOSTS),
    Check("module", software.module, Where.HOSTS, _is_command),
    Check("program", software.program, Where.HOSTS, _is_command),
    Check("mpirun", software.mpirun, Where.HOSTS),
    Check("horovod", software.horovod, Where.HOSTS),
    Check("network", storage.network, Where.HOSTS),
    Check("runs-dir", storage.runs_dir, Where.HOSTS),
    Check("runs-dir", storage.other_users, Where.HOSTS),
    Check("runs-dir-open", storage.open_runs_dir, Where.HOSTS),
    Check("data", storage.data, Where.HOSTS),
    Check("damaged-data", storage.damaged_data, Where.HOSTS, before_submit=False),
    Check("stage", storage.staging_disk, Where.HOSTS),
    Check("init-from", storage.first_weights, Where.HOSTS),
    Check("secrets", storage.secrets, Where.HOSTS),
    Check("cache", pod.cache, Where.HOSTS, _IS_POD),
    # It is not known in advance whether a limit matters, and no limit keeps a run from starting.
    Check("memlock", pod.memlock, Where.HOSTS, _IS_POD, before_submit=False),
    Check("limits", software.limits, Where.HOSTS, _STARTS_BY_MPIRUN, before_submit=False),
    Check("different", software.different, Where.HOSTS),
    Check("vipu", pod.partition, Where.HOSTS, _IS_POD),
    Check("slurm", slurm.live, Where.SCHEDULER, _HAS_SCHEDULER),
)


def problems(context: Context, depth: Depth | None = None) -> list[Problem]:
    """Return the problems of a job in the order in which they would make it fail. Starts and changes nothing."""
    return list(_problems(context, depth or Depth()))


def _problems(context: Context, depth: Depth) -> Iterator[Problem]:
    rows = [row for row in CHECKS if (row.before_submit or depth.thorough) and row.applies(context)]
    try:
        for where in Where:
            if where is Where.SCHEDULER and not depth.scheduler:
                return
            if where is Where.HOSTS and not requirements.is_reachable(context.request):
                return
            for row in rows:
                try:
                    yield from row.find(context) if row.where is where else ()
                except SshError:
                    raise
                except UserError as error:
                    yield of_error(row.name, error)
    except SshError as error:
        yield of_error("unreachable", error)
