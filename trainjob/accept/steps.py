"""The steps of an acceptance: each one's job, and the problems that its result shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainjob.cluster.base import Cluster
from trainjob.contract import states
from trainjob.contract.errors import Problem
from trainjob.observe.status import Snapshot

Figure = float | str
Rank = Mapping[str, Any]  # what one rank's probe printed

# Short: an acceptance costs at most its devices for as long as this.
LIMIT = "00:05:00"
# Dense TFLOP/s of bfloat16 or float16 by a part of the device's name, from the makers' data sheets.
PEAK_TFLOP_PER_S = {
    "B200": 2250, "GH200": 990, "H200": 990, "H100 PCIe": 756, "H100 NVL": 835, "H100": 990, "A100": 312, "L40S": 362,
    "A40": 150, "A30": 165, "A10": 125, "L4": 121, "V100": 125, "T4": 65, "MI300A": 981, "MI300X": 1307, "MI250": 191,
}  # fmt: skip
_LEAST_OF_PEAK, _LEAST_OF_LINK = 0.4, 0.2
_TRANSPORT = re.compile(r"via ((?:NET|P2P|SHM)[^\s\[]*)")


@dataclass(frozen=True)
class Result:
    """The end of a step's job. `cancelled_s` is how long it took to cancel it."""

    cluster: Cluster
    instances: int
    status: Snapshot
    ranks: Sequence[Rank]
    log: str
    cancelled_s: float = 0.0


@dataclass(frozen=True)
class Trial:
    """One step of an acceptance. `settings` are those of its job; None: the cluster has nothing that it could show."""

    name: str
    shows: str
    action: str  # of the probe; empty: the job has a task
    settings: Callable[[Cluster], dict[str, Any] | None]
    judge: Callable[[Result], Iterator[Problem]] = lambda _result: iter(())
    figures: Callable[[Result], dict[str, Figure]] = lambda _result: {}
    expects: str = states.COMPLETED
    cure: str = ""  # of a job that ends otherwise, without a known cause
    is_cancelled: bool = False  # once its ranks are at work
    absent: str = ""  # why a cluster without it needs no such step


@dataclass(frozen=True)
class StepOutcome:
    """The record of one step, as the evidence has it. `state` is passed, failed, skipped, or not run."""

    step: str
    shows: str
    state: str
    run: str | None = None
    seconds: float = 0.0
    figures: dict[str, Figure] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the record for `--json` and acceptance.json."""
        return {**vars(self), "problems": [problem.as_json() for problem in self.problems]}


def devices_per_host(cluster: Cluster) -> int:
    """Return the ranks that fill one host; two where ranks train on CPUs."""
    return max(1, cluster.accelerators_per_host or 0) if cluster.accelerator == "gpu" else 2


# -- jobs ----------------------------------------------------------------------------------------


def _job(instances: int, hosts: int = 1, limit: str = LIMIT, starts: int = 1) -> dict[str, Any]:
    # A budget is asked for every start that a job may take.
    return {"instances": instances, "hosts": hosts, "time_limit": limit, "max_attempts": starts}


def _full_hosts(count: int) -> Callable[[Cluster], dict[str, Any] | None]:
    """Return the job that fills `count` hosts, where the cluster has them and more than one rank runs."""

    def settings(cluster: Cluster) -> dict[str, Any] | None:
        instances = count * devices_per_host(cluster)
        return _job(instances, count) if cluster.capacity.most_hosts >= count and instances > 1 else None

    return settings


def _two_ranks(cluster: Cluster) -> dict[str, Any] | None:
    hosts = 1 if devices_per_host(cluster) > 1 else 2
    return _job(2, hosts) if cluster.capacity.most_hosts >= hosts else None


def _with_limit(cluster: Cluster) -> dict[str, Any] | None:
    # The request to stop comes a margin before the limit, and Slurm may send it a minute early.
    minutes = cluster.stop_margin_s // 60 + 2
    limit = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return _job(1, limit=limit, starts=2) if cluster.has_scheduler else None


def _if_restarted(cluster: Cluster) -> dict[str, Any] | None:
    # A container has no scontrol.
    return _job(1, starts=2) if cluster.restarts_preempted and cluster.container.runtime == "none" else None


# -- judgement -----------------------------------------------------------------------------------


def unexpected(now: Snapshot, cure: str = "") -> Problem:
    """Return the reason why a job did not end as it should; `cure` is its step's, where no better one is known."""
    cause, failure = now.cause, now.failure
    text = now.note or "no cause is known" if cause is None else cause.text
    if cause is None and failure is not None and failure.tail:
        text += f" (rank {failure.rank} on {failure.host}: {failure.tail[-1].strip()})"
    if cause is not None and (cause.code != "exception" or not cure):
        cure = cause.cure
    return Problem("unexpected-end", f"the run is {now.state}: {text}", cure or f"See trainjob logs {now.id}")


def _host(result: Result) -> Iterator[Problem]:
    """Judge what one rank has beside what the cluster file says."""
    for rank in result.ranks[:1]:
        node, cluster = rank["node"], result.cluster
        stated_gb = cluster.memory_gb_per_host
        if stated_gb is not None and rank["memory_gb"] < 0.9 * stated_gb:
            yield Problem(
                "host",
                f"{node} has {rank['memory_gb']:.0f} GB of memory, and the cluster file says {stated_gb} GB",
                f"Set nodes.memory_gb to {int(rank['memory_gb'])}, or find out what the node has lost",
            )
        if cluster.cpus_per_host is not None and rank["node_cpus"] < cluster.cpus_per_host:
            yield Problem(
                "host",
                f"{node} has {rank['node_cpus']} CPUs, and the cluster file says {cluster.cpus_per_host}",
                f"Set nodes.cpus to {rank['node_cpus']}",
            )
        if cluster.container.runtime != "none" and not rank["in_container"]:
            yield Problem(
                "host",
                f"container.runtime is {cluster.container.runtime}, and the rank ran outside of any container",
                "Look at the launch line: trainjob render --explain",
            )
        if "torch_missing" in rank:
            yield Problem(
                "host",
                f"{node}: {rank['torch_missing']} in Python {rank['python']}",
                f"Set {cluster.interpreter_key} in the cluster file to an interpreter that has torch",
            )


def _device(result: Result) -> Iterator[Problem]:
    """Judge one rank's GPU: that it is there, alone, and as fast as its kind."""
    for rank in result.ranks[:1]:
        if not rank.get("gpus"):
            yield Problem(
                "device",
                f"torch {rank.get('torch', '')} finds no GPU on {rank['node']}",
                "Its torch may lack CUDA, or the job asks for no GPU: look at request: in the cluster file, and at "
                "nvidia-smi on the node",
            )
        elif rank["gpus"] > 1:
            yield Problem(
                "device",
                f"one rank of one GPU sees {rank['gpus']} GPUs on {rank['node']}",
                "Other jobs may share them: have the administrator set ConstrainDevices=yes in cgroup.conf",
            )
        yield from _faults(rank)
        peak = _peak(rank)
        if peak is not None and rank["tflop_per_s"] < _LEAST_OF_PEAK * peak:
            yield Problem(
                "device",
                f"{rank['device']} on {rank['node']} computes {rank['tflop_per_s']:.0f} TFLOP/s, and the maker "
                f"states {peak}",
                "Look at its clocks, power cap and temperature: nvidia-smi -q -d PERFORMANCE,CLOCK",
            )


def _faults(rank: Rank) -> Iterator[Problem]:
    for fact, what in (("product_is_right", "computes a wrong matrix product"), ("sum_is_right", "got a wrong sum")):
        if rank.get(fact) is False:
            yield Problem(
                "wrong-result",
                f"rank {rank['rank']}, on {rank.get('device', 'CPU')} {rank['local_rank']} of {rank['node']}, {what}",
                f"Take {rank['node']} out of use (directives: exclude), and accept the cluster again",
            )


def _peak(rank: Rank) -> int | None:
    if rank.get("is_stand_in"):
        return None
    return next((peak for name, peak in PEAK_TFLOP_PER_S.items() if name in str(rank.get("device", ""))), None)


def _together(result: Result) -> Iterator[Problem]:
    """Judge ranks that reduced: their sum, their devices, their CPUs, and the network between them."""
    ranks, cluster = result.ranks, result.cluster
    for rank in ranks:
        yield from _faults(rank)
    for node in sorted({rank["node"] for rank in ranks}):
        here = [rank for rank in ranks if rank["node"] == node]
        ids = [rank["device_id"] for rank in here if rank.get("gpus")]
        if len(set(ids)) < len(ids):
            yield Problem(
                "ranks",
                f"{len(ids)} ranks of {node} use {len(set(ids))} GPUs",
                "Ranks choose by LOCAL_RANK: look at what --gpus-per-task and --gpu-bind in directives: do",
            )
        needed, union = sum(max(1, rank["threads"]) for rank in here), {cpu for rank in here for cpu in rank["cpus"]}
        some_share = len({tuple(rank["cpus"]) for rank in here}) < len(here) and len(union) > len(here[0]["cpus"])
        if len(union) < needed or some_share:
            yield Problem(
                "ranks",
                f"{len(here)} ranks of {node} have {needed} threads, and are bound to {len(union)} of its "
                f"{here[0]['node_cpus']} CPUs{', some to the same' if some_share else ''}",
                "Look at cpu-bind under srun: and at nodes.cpus in the cluster file, and at TaskPlugin in slurm.conf; "
                "with binding: none trainjob binds nothing itself",
            )
    if len({rank["node"] for rank in ranks}) > 1:
        yield from _network(ranks, result.log, cluster)
    devices = [rank for rank in ranks if rank.get("gpus") and not rank.get("is_stand_in")]
    typical = sorted(rank["tflop_per_s"] for rank in devices)[len(devices) // 2] if devices else 0.0
    for rank in devices:
        if rank["tflop_per_s"] < 0.7 * typical:
            yield Problem(
                "ranks",
                f"GPU {rank['local_rank']} of {rank['node']} computes {rank['tflop_per_s']:.0f} TFLOP/s, and the "
                f"median GPU {typical:.0f}",
                f"Look at nvidia-smi -q on {rank['node']}; exclude the node until it is mended: directives: exclude",
            )


def _network(ranks: Sequence[Rank], log: str, cluster: Cluster) -> Iterator[Problem]:
    slowest = min(rank["gb_per_s"] for rank in ranks)
    links = {name: speed for rank in ranks for name, speed in rank["links_gb_per_s"].items()}
    fabric = [name for name in links if ":" in name]
    way = transports(log)
    if fabric and any("Socket" in one for one in way) and not any("IB" in one or "OFI" in one for one in way):
        yield Problem(
            "network",
            f"NCCL sends over TCP, though {fabric[0]} is active",
            "Look at NCCL_IB_DISABLE and NCCL_IB_HCA, and whether the site has a plugin for its fabric (aws-ofi-nccl)",
        )
    interface = cluster.network.interface
    own = [speed for name, speed in links.items() if interface and name == interface] or list(links.values())
    if own and slowest < _LEAST_OF_LINK * max(own):
        yield Problem(
            "network",
            f"an all-reduce over {len({rank['node'] for rank in ranks})} nodes moves {slowest:.2f} GB/s, and the link "
            f"carries {max(own):.1f} GB/s",
            "Look at network.interface in the cluster file, and at the transport above",
        )


def transports(log: str) -> list[str]:
    """Return the ways that NCCL took between ranks, by its own log."""
    return sorted(set(_TRANSPORT.findall(log)))


def own_addresses(ranks: Sequence[Rank]) -> str:
    """Return a remark about nodes whose own name is an address that no other node reaches; empty without any."""
    known = {rank["node"]: rank["address"] for rank in ranks if str(rank.get("address")).startswith("127.")}
    if not known or len({rank.get("node") for rank in ranks}) < 2:
        return ""
    nodes, address = ", ".join(sorted(known)), ", ".join(sorted(set(known.values())))
    return (
        f"the own address of {nodes} is {address}, which no other node reaches: trainjob names another one to the "
        "ranks; for scripts that look up their own name have /etc/hosts give each node its address"
    )


def _is_restarted(result: Result) -> Iterator[Problem]:
    if not any(rank.get("resumed") for rank in result.ranks):
        yield Problem("not-requeued", f"the job did not start again: it is {result.status.state}", _REQUEUE)


def _named_the_dead(result: Result) -> Iterator[Problem]:
    failure, last = result.status.failure, result.instances - 1
    if failure is None or failure.rank != last:
        named = "no rank" if failure is None else f"rank {failure.rank}"
        yield Problem(
            "dead-rank-not-named",
            f"rank {last} was killed, and the run blames {named}",
            "Look at the ranks' logs: trainjob logs",
        )


def _of_ranks(result: Result) -> dict[str, Figure]:
    first = result.ranks[0] if result.ranks else {}
    names = ("node", "device", "torch", "cuda", "python", "address", "meeting_at")
    figures: dict[str, Figure] = {name: str(first[name]) for name in names if first.get(name)}
    if first.get("is_stand_in"):
        figures["device"] = f"{first['device']} (a stand-in)"
    speeds = [rank["tflop_per_s"] for rank in result.ranks if "tflop_per_s" in rank]
    if speeds:
        figures["tflop_per_s"] = min(speeds)
    peak = _peak(first)
    if peak is not None:
        figures["stated_tflop_per_s"] = float(peak)
    bandwidths = [rank["gb_per_s"] for rank in result.ranks if "gb_per_s" in rank]
    if bandwidths:
        figures["gb_per_s"] = min(bandwidths)
        figures["transport"] = ", ".join(transports(result.log)) or "gloo"
    return figures


NO_SECOND = "the cluster has one host, or its limits allow no more"
_REACHABLE = "Set network.interface in the cluster file to one whose address the other nodes reach: see meeting_at"
_REQUEUE = "Slurm must allow requeueing (JobRequeue=1 in slurm.conf) or follow-up jobs from compute nodes"

# In the order in which a job would fail, the cheapest first.
STEPS = (
    Trial("rank", "one rank starts and has what the cluster file says", "look", lambda _: _job(1), _host, _of_ranks),
    Trial("device", "one rank's GPU is there and computes as it should", "look",
         lambda cluster: _job(1) if cluster.accelerator == "gpu" else None, _device, _of_ranks,
         absent="ranks train on CPUs"),
    Trial("host", "all devices of one host: sums, CPUs, bandwidth", "reduce", _full_hosts(1), _together, _of_ranks,
         absent="a host has one device"),
    Trial("two-hosts", "the network between two hosts", "reduce", _full_hosts(2), _together, _of_ranks,
         cure=_REACHABLE, absent=NO_SECOND),
    Trial("time-limit", "a job stops before its time limit and starts again", "hold", _with_limit, _is_restarted,
         cure=_REQUEUE, absent="nothing starts a job again without a scheduler"),
    Trial("preemption", "a job that Slurm requeues, as it does with preempted ones, starts again", "requeue",
         _if_restarted, _is_restarted, cure=f"{_REQUEUE}; otherwise set preemption: cancel",
         absent="preempted jobs don't start again here, or ranks are in containers, which have no scontrol"),
    Trial("cancel", "a cancelled job ends, and nothing of it is left", "hold", lambda _: _job(1),
         figures=lambda result: {"ended_after_s": result.cancelled_s}, expects=states.CANCELLED, is_cancelled=True),
    Trial("killed-rank", "a killed rank ends the others, and the run names it", "die", _two_ranks, _named_the_dead,
         expects=states.FAILED),
)  # fmt: skip


def staging(disk: str) -> Trial:
    """Return the step that trains from a copy of the digits on a disk of the host."""
    job = {"task": "digits-cnn", "updates": 1, "stage": disk, "remove_staged": True, **_job(1)}
    return Trial("staging", f"a host copies a data set to {disk} and trains from it", "", lambda _cluster: job)


def over_hosts(count: int) -> Trial:
    """Return the step of the network between `count` hosts."""
    absent = f"the cluster does not allow {count} hosts"
    shows = f"the network between {count} hosts"
    return Trial(
        f"{count}-hosts", shows, "reduce", _full_hosts(count), _together, _of_ranks, cure=_REACHABLE, absent=absent
    )


def problems(step: Trial, result: Result) -> list[Problem]:
    """Return the problems that a step's result shows."""
    if result.status.state != step.expects:
        return [unexpected(result.status, step.cure)]
    return list(step.judge(result))
