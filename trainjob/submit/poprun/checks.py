"""What is wrong with a pod before a run is handed over: asked of its hosts and of V-IPU, nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from trainjob.contract.errors import UserError
from trainjob.plan import sdk as releases
from trainjob.submit.checking.problem import Problem
from trainjob.submit.poprun import probe
from trainjob.submit.poprun.probe import Host

if TYPE_CHECKING:
    from trainjob.cluster.models import PodCluster
    from trainjob.render.request import Request
    from trainjob.submit.machine import Machine

LEAST_CACHE_MB = 2_048  # an executable has hundreds of MB
_STATE = re.compile(r"\bPS_[A-Z]+\b")
_SIZE = re.compile(r"\bsize\b\W*(\d+)", re.IGNORECASE)
_SAME = {
    "sdk": ("SDK", "Install one SDK at the same path on all of them: trainjob provision"),
    "torch": ("torch", "Give every host the same virtualenv: trainjob provision"),
    "poptorch": ("poptorch", "Give every host the same virtualenv: trainjob provision"),
    "data": ("data set", "Prepare it anew on the hosts that differ: trainjob data prepare"),
    "runs": ("runs_dir", "Set runs_dir to a folder on storage that all hosts share"),
}


def problems(request: Request, cluster: PodCluster, machine: Machine) -> list[Problem]:
    """Return what is wrong, in the order in which it would fail. `machine` is the launch host."""
    try:
        machine.run(["true"])
    except UserError as error:
        return [Problem("launch-host", f"the launch host can't be asked: {error}", "Nothing else was looked at")]
    hosts = probe.hosts(machine, request, cluster)
    found = [problem for host in hosts for problem in _of_host(request, cluster, host)]
    return [*found, *_different(hosts), *_of_partition(request, cluster, machine)]


def _of_host(request: Request, cluster: PodCluster, host: Host) -> Iterator[Problem]:
    if host.why is not None:
        yield Problem("unreachable", f"host {host.name} can't be asked: {host.why}", _SSH_CURE)
        return
    for why in host.unreached:
        yield Problem("ssh", f"host {host.name} can't log in to {why}", _SSH_CURE)
    yield from _software(cluster, host)
    yield from _places(request, cluster, host)


_SSH_CURE = "mpirun needs ssh among all hosts without a question and with known keys: trainjob provision sets it up"


def _software(cluster: PodCluster, host: Host) -> Iterator[Problem]:
    facts, sdk = host.facts, cluster.sdk
    if sdk is None:
        return
    if sdk.path and "sdk" not in facts:
        text = f"host {host.name} has no Poplar SDK in {sdk.path}: no poplar-*/enable.sh is there"
        yield Problem("sdk", text, "Set sdk.path to the unpacked SDK, or install it: trainjob provision")
    elif sdk.path and not _is_release(facts["sdk"], sdk.version):
        text = f"host {host.name} has {facts['sdk']} in {sdk.path}, and sdk.version is {sdk.version}"
        yield Problem("sdk-version", text, "Put the one right that is wrong: a release decides poprun's options")
    if "poprun" not in facts:
        text = f"host {host.name} has no poprun on PATH, even with the SDK enabled"
        yield Problem("poprun", text, "Set sdk.path to a whole SDK: poprun is a part of poplar")
    if sdk.venv and "venv" not in facts:
        text = f"host {host.name} has no virtualenv in {sdk.venv}: bin/python is not there"
        yield Problem("venv", text, "Set sdk.venv to one that has poptorch, or make it: trainjob provision")
    yield from _torch(cluster, host)


def _is_release(folder: str, version: str) -> bool:
    # poplar-ubuntu_20_04-3.3.0+7857-b67b751185: the first number with two dots is the SDK's.
    found = re.search(r"(\d+\.\d+)\.\d+", folder)
    return found is None or releases.release(found[1]) == releases.release(version)


def _torch(cluster: PodCluster, host: Host) -> Iterator[Problem]:
    facts = host.facts
    if cluster.sdk is None or "venv" not in facts:
        return
    if "poptorch" not in facts:
        text = f"the virtualenv {cluster.sdk.venv} of host {host.name} has no poptorch"
        yield Problem("poptorch", text, "Install the SDK's own wheel there: trainjob provision")
    elif "torch" in facts:
        release = releases.release(facts["poptorch"])
        made_for = releases.RELEASES.get(release)
        if made_for is not None and facts["torch"].split("+")[0] != made_for.torch:
            text = (
                f"poptorch {facts['poptorch']} on host {host.name} is made for torch {made_for.torch}, "
                f"and its virtualenv has torch {facts['torch']}"
            )
            yield Problem("torch", text, f"Install torch=={made_for.torch} there: poptorch refuses any other")


def _places(request: Request, cluster: PodCluster, host: Host) -> Iterator[Problem]:
    facts, name = host.facts, probe.data_set(request)
    if cluster.network.interface and not facts.get("network"):
        text = f"host {host.name} has no network {cluster.network.interface}"
        yield Problem("network", text, "Set network.interface to one that all hosts have, by name or as a CIDR")
    if cluster.runs_dir and "runs" not in facts:
        text = f"host {host.name} can't write to runs_dir {cluster.runs_dir}"
        yield Problem("runs-dir", text, "Set runs_dir to a folder there that you may write, on storage all hosts share")
    if name is not None and "data" not in facts:
        text = f"host {host.name} has no data set {name} in {cluster.data_dir}"
        yield Problem("data", text, f"Run: trainjob data prepare {name}, and copy it to every host")
    if int(facts.get("cache_mb") or LEAST_CACHE_MB) < LEAST_CACHE_MB:
        text = f"host {host.name} has {facts['cache_mb']} MB left for executables in {cluster.poprun.executable_cache}"
        yield Problem("cache", text, f"Make room for {LEAST_CACHE_MB} MB at least, or set poprun.executable_cache")
    if facts.get("memlock") not in (None, "unlimited"):
        text = f"host {host.name} lets a process lock {facts['memlock']} kB of memory, and IPU-Fabric locks all it uses"
        yield Problem("memlock", text, "Raise memlock to unlimited for your account: trainjob provision")


def _different(hosts: Sequence[Host]) -> Iterator[Problem]:
    for key, (word, cure) in _SAME.items():
        found = {host.name: host.facts[key] for host in hosts if key in host.facts}
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{name} has {_short(key, value)}" for name, value in found.items())
            yield Problem(f"different-{key}", f"all hosts have the same {word}: {listed}", cure)


def _short(key: str, value: str) -> str:
    return {"data": f"checksum {value[:8]}", "runs": f"folder number {value}"}.get(key, value)


def _of_partition(request: Request, cluster: PodCluster, machine: Machine) -> Iterable[Problem]:
    vipu = cluster.vipu
    if vipu.server is None:
        return []
    try:
        ended = machine.run(["env", f"VIPU_CLI_API_HOST={vipu.server}", "vipu", "list", "partitions"], check=False)
    except UserError as error:
        return [_unanswered(vipu.server, str(error))]
    if ended.code == 127:
        return [Problem("vipu", f"{machine.name} has no vipu on PATH", "Install the V-IPU command line there")]
    if ended.code != 0:
        return [_unanswered(vipu.server, (ended.stderr or ended.text).strip())]
    return [] if vipu.partition is None else _named_partition(request, cluster, machine)


def _unanswered(server: str, said: str) -> Problem:
    return Problem("vipu-server", f"the V-IPU server {server} gives no answer: {said}", "Is vipu.server right, and up?")


def _named_partition(request: Request, cluster: PodCluster, machine: Machine) -> Iterator[Problem]:
    vipu, topology = cluster.vipu, request.plan.topology
    asked = ["env", f"VIPU_CLI_API_HOST={vipu.server}", "vipu", "get", "partition", str(vipu.partition)]
    ended = machine.run(asked, check=False)
    if ended.code != 0:
        if vipu.allocation is None:
            text = f"partition {vipu.partition} is not there, or another user's: you see your own alone"
            yield Problem("partition", text, "Make it, name another, or give vipu.allocation for poprun to make it in")
        return
    state, size = _STATE.search(ended.text), _SIZE.search(ended.text)
    if state and state[0] != "PS_ACTIVE" and not vipu.reset_partition:
        text = f"partition {vipu.partition} is in state {state[0]}, and a run needs PS_ACTIVE"
        yield Problem("partition-state", text, f"Reset it: vipu reset partition {vipu.partition}")
    if size and int(size[1]) < topology.devices and not vipu.update_partition:
        needed = f"{topology.replicas} replicas need {topology.devices}"
        text = f"partition {vipu.partition} has {size[1]} IPUs, and {needed}"
        yield Problem("partition-size", text, "Use fewer replicas, or let poprun change it: update_partition: true")
