"""Checks of a pod: Poplar SDK, poptorch, space for executables, V-IPU partition."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainjob.check import probe
from trainjob.check.context import Context
from trainjob.cluster.base import IpuCluster
from trainjob.contract.errors import Problem, UserError
from trainjob.machines.process import Completed
from trainjob.planning import poprun as releases

LEAST_CACHE_MB = 2_048  # an executable takes hundreds of MB
_STATE = re.compile(r"\bPS_[A-Z]+\b")
_SIZE = re.compile(r"\bsize\b\W*(\d+)", re.IGNORECASE)


def sdk(context: Context) -> Iterator[Problem]:
    """Yield hosts without the SDK, with a different release, or with an SDK that lacks poprun."""
    stated = IpuCluster.of(context.request.cluster).sdk
    if stated is None:
        return
    where = context.where(lambda facts: "sdk" not in facts) if stated.path else None
    if where:
        text = f"there is no Poplar SDK in {stated.path} on {where}: no poplar-*/enable.sh"
        yield Problem("sdk", text, "Set sdk.path to the unpacked SDK, or install it: trainjob provision")
    for folder, hosts in context.by_value("sdk"):
        # poplar-ubuntu_20_04-3.3.0+7857-b67b751185: the first number with two dots is the SDK's.
        named = re.search(r"(\d+\.\d+)\.\d+", folder)
        if named is not None and releases.release(named[1]) != releases.release(stated.version):
            text = f"the SDK in {stated.path} on {hosts} is {folder}, and sdk.version is {stated.version}"
            yield Problem("sdk-version", text, "Correct the wrong one: the release decides poprun's options")
    if where := context.where(lambda facts: facts.get("poprun") == "no" and ("sdk" in facts or not stated.path)):
        text = f"there is no poprun on the PATH of {where}, even with the SDK enabled"
        yield Problem("poprun", text, "Set sdk.path to a complete SDK: poprun is a part of poplar")


def poptorch(context: Context) -> Iterator[Problem]:
    """Yield virtualenvs without poptorch, or with a torch that their poptorch does not support."""
    stated = IpuCluster.of(context.request.cluster).sdk
    if stated is None or not stated.venv or context.request.job.command:
        return
    if where := context.where(lambda facts: "torch" in facts and "poptorch" not in facts):
        text = f"the virtualenv {stated.venv} of {where} has no poptorch"
        yield Problem("poptorch", text, "Install the SDK's own wheel there: trainjob provision")
    for answer in context.answers:
        made_with, torch = answer.facts.get("poptorch"), answer.facts.get("torch")
        made_for = releases.RELEASES.get(releases.release(made_with)) if made_with else None
        if made_for is not None and torch is not None and torch.split("+")[0] != made_for.torch:
            text = (
                f"poptorch {made_with} on {probe.listed([answer])} is made for torch {made_for.torch}, "
                f"and its virtualenv has torch {torch}"
            )
            yield Problem("torch", text, f"Install torch=={made_for.torch} there: poptorch refuses any other")


def cache(context: Context) -> Iterator[Problem]:
    """Yield hosts whose folder of compiled executables is nearly full."""
    folder = IpuCluster.of(context.request.cluster).poprun.executable_cache
    for free_mb, where in context.by_value("cache-mb"):
        if free_mb.isdigit() and int(free_mb) < LEAST_CACHE_MB:
            text = f"{free_mb} MB are left for executables in {folder} on {where}"
            yield Problem("cache", text, f"Free at least {LEAST_CACHE_MB} MB, or set poprun.executable_cache")


def memlock(context: Context) -> Iterator[Problem]:
    """Yield hosts that limit the memory that a process may lock."""
    for kilobytes, where in context.by_value("memlock"):
        if kilobytes != "unlimited":
            text = f"a process may lock {kilobytes} kB of memory on {where}, and IPU-Fabric locks all that it uses"
            yield Problem("memlock", text, "Raise memlock to unlimited for your account: trainjob provision")


def partition(context: Context) -> Iterator[Problem]:
    """Yield the problems that keep the job from its partition on the V-IPU server."""
    vipu = IpuCluster.of(context.request.cluster).vipu
    if vipu.server is None:
        return
    try:
        ended = _vipu(context, vipu.server, "list", "partitions")
    except UserError as error:
        yield _unanswered(vipu.server, str(error))
        return
    if ended.code == 127:
        yield Problem("vipu", f"{context.machine.name} has no vipu on PATH", "Install the V-IPU command line there")
    elif ended.code != 0:
        yield _unanswered(vipu.server, (ended.stderr or ended.text).strip())
    elif vipu.partition is not None:
        yield from _named_partition(context, vipu.server, vipu.partition)


def _vipu(context: Context, server: str, *words: str) -> Completed:
    return context.machine.run(["env", f"VIPU_CLI_API_HOST={server}", "vipu", *words], check=False)


def _unanswered(server: str, why: str) -> Problem:
    return Problem(
        "vipu-server",
        f"the V-IPU server {server} does not answer: {why}",
        "Check vipu.server, and that the server is up",
    )


def _named_partition(context: Context, server: str, name: str) -> Iterator[Problem]:
    vipu, topology = IpuCluster.of(context.request.cluster).vipu, context.request.plan.topology
    ended = _vipu(context, server, "get", "partition", name)
    if ended.code != 0:
        if vipu.allocation is None:
            text = f"partition {name} does not exist, or belongs to another user: vipu lists only your own"
            yield Problem(
                "partition", text, "Create it, name another, or set vipu.allocation, in which poprun creates it"
            )
        return
    state, size = _STATE.search(ended.text), _SIZE.search(ended.text)
    if state and state[0] != "PS_ACTIVE" and not vipu.reset_partition:
        text = f"partition {name} is in state {state[0]}, and a run needs PS_ACTIVE"
        yield Problem("partition-state", text, f"Reset it: vipu reset partition {name}")
    if size and int(size[1]) < topology.devices and not vipu.update_partition:
        text = f"partition {name} has {size[1]} IPUs, and {topology.replicas} replicas need {topology.devices}"
        yield Problem("partition-size", text, "Use fewer replicas, or let poprun change it: update_partition: true")
