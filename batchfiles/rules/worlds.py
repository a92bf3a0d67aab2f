"""Faults by which ranks wait for others that never come: on other nodes, at another address, behind another step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.values import HOLE, Value, number
from batchfiles.rules.codes import Finding, found
from batchfiles.rules.meeting import ADDRESS_NAMES, PORT_NAMES, StatedEndpoint, addresses, spans_nodes
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.request import GPU_NAMES, gres_entries
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs.launchers import option_names

_COUNTS_NODES = ("torchrun", "accelerate", "tune")
_NODE_RANKS = ("node_rank", "machine_rank")


def expected_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find launchers that wait for more nodes than anything starts them on."""
    yield from _told_nodes(script)
    launching = [launch for launch in script.living if launch.launcher is not None]
    if len(launching) > 1 and any(launch.outermost.command.background for launch in launching):
        return  # several together may be the nodes that each of them waits for
    for launch in launching:
        launcher = launch.launcher
        if launcher is None or launcher.name not in _COUNTS_NODES or launch.has_unknown_options:
            continue
        wanted = number_of(launcher, *option_names("nodes", of=launcher.name))
        started = script.nodes_of(launch)
        number_is_given = any(value is not None and not value.known for value in map(launcher.options.get, _NODE_RANKS))
        is_one_job_of_several = number_is_given or _meets_elsewhere(launcher.options.values())
        if launch.srun is None and (script.request.nodes != 1 or is_one_job_of_several):
            continue  # no-srun says so, or another job is the other node
        if wanted is not None and started is not None and wanted > started and not _is_one_of_several(launch):
            nodes = f"{started} node{'s' * (started != 1)}"
            text = f"{launcher.name} waits for {wanted} nodes, and is started on {nodes}"
            yield found("nodes-disagree", launch, text)
            return


_TOLD = re.compile(r"(?:--|\+*(?:trainer\.)?)(?:num|n)[-_]nodes(?:=([0-9]+))?")


def _told_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find programs of which srun starts the ranks, and whose words count other nodes: Lightning's compares them."""
    for launch in script.living:
        started = script.nodes_of(launch)
        if launch.launcher is not None or launch.srun is None or not launch.is_python or started is None:
            continue
        texts = [word.text for word in launch.program]
        for text, after in zip(texts, [*texts[1:], ""], strict=True):
            match = _TOLD.fullmatch(text)
            told = number(match[1] or after) if match is not None else None
            is_of_trainer = started > 1 or "trainer" in text  # else they may be those of a graph
            if told is not None and told != started and is_of_trainer and not _is_one_of_several(launch):
                yield found(
                    "nodes-disagree", launch, f"the program is told of {told} nodes, and srun starts it on {started}"
                )
                return


def _is_one_of_several(launch: LaunchedProgram) -> bool:
    command = launch.outermost.command
    return command.background and bool({"loop", "endless", "function"} & set(command.within))


_A_HOST = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[A-Za-z][\w-]*[0-9](?:\.[\w.-]+)?")
_HERE = re.compile(r"localhost.*|127\..*|0\.0\.0\.0|::1")


def _meets_elsewhere(values: Iterable[Value | None]) -> bool:
    texts = [value.text.partition(":")[0] for value in values if value is not None]
    return any(_A_HOST.fullmatch(text) and not _HERE.fullmatch(text) for text in texts)


def node_ranks(script: BatchScript) -> Iterator[Finding]:
    """Find launchers that all take themselves for the same node."""
    for launch in script.living:
        launcher, nodes = launch.launcher, script.usual_nodes_of(launch)
        if launcher is None or launcher.name not in ("torchrun", "accelerate") or launch.srun is None:
            continue
        if (nodes or 1) < 2 or launch.has_unknown_options or {"standalone", "config_file"} & set(launcher.options):
            continue
        counts = option(launcher, *option_names("nodes", of=launcher.name))
        backend = option(launcher, "rdzv_backend")
        if counts is None or counts.text == "1" or (backend is not None and backend.text != "static"):
            continue
        name = "node_rank" if launcher.name == "torchrun" else "machine_rank"
        stated, others = option(launcher, name), {**launch.command.variables.values, **launch.settings}
        if stated is None and "PET_NODE_RANK" not in others:
            yield found("node-rank-same", launch, f"{launcher.name} has no --{name}, and is 0 on all {nodes} nodes")
        elif stated is not None and stated.fixed and number(stated.text) is not None:
            yield found("node-rank-same", launch, f"--{name} is {stated.text} on all {nodes} nodes")


_OWN = re.compile(r"\$\(\s*(?:/bin/)?hostname\b|`hostname\b|\$\{?HOSTNAME\b|\$\{?SLURMD_NODENAME\b")
_DRAWN = re.compile(r"\bRANDOM\b|\bshuf\b|\.bind\(\(?['\"]")


def differing_places(script: BatchScript) -> Iterator[Finding]:
    """Find addresses and ports that each rank's own shell works out for itself."""
    for launch in script.living:
        shell = launch.outer
        if shell is None or launch.srun is None or (script.usual_nodes_of(launch) or 1) < 2:
            continue
        inside = (*shell.command.within, "called")
        for one in script.assignments:
            if one.within[: len(inside)] != inside or one.conditions or one.source != launch.source:
                continue
            kind = _OWN if re.fullmatch(ADDRESS_NAMES, one.name) else _DRAWN
            if re.fullmatch(f"{ADDRESS_NAMES}|{PORT_NAMES}", one.name) and kind.search(one.text):
                yield found("addr-differs", one, f"{one.name} is worked out by each node for itself")
                return
    for launch in script.living:
        launcher = launch.launcher
        if launch.srun is None or None in (launcher, launch.outer) or (script.usual_nodes_of(launch) or 1) < 2:
            continue
        for word in launch.command.words:
            if re.match(r"--(?:rdzv[-_]endpoint|master[-_]addr|main_process_ip)=", word.source) and _OWN.search(
                word.source
            ):
                yield found("addr-differs", launch, f"{word.source.replace(HOLE, '…')[:50]} is another on each node")
                return


def hosts_by_name(script: BatchScript) -> Iterator[Finding]:
    """Find hosts that the file names where Slurm chooses them."""
    if script.header.value("nodelist") is not None or not script.is_batch_file:
        return
    for launch in script.living:
        for name in ("H", "host", "hosts"):
            value = option(launch.layer("mpirun"), name)
            named = (
                [one.partition(":")[0] for one in value.text.split(",")] if value is not None and value.fixed else []
            )
            if named and any(_A_HOST.fullmatch(one) and not _HERE.fullmatch(one) for one in named):
                yield found("hosts-by-name", launch, f"-{'-' * (len(name) > 1)}{name} names {named[0]}")
                return
    for place in addresses(script):
        if (
            place.value.known
            and not place.value.commands()
            and _A_HOST.fullmatch(place.value.text)
            and not _HERE.fullmatch(place.value.text)
        ):
            users = [place.launch] if place.launch else [one for one in script.living if _reads(one, place)]
            if any(spans_nodes(script, one) for one in users) and not _is_default(script, place):
                yield found("hosts-by-name", place, f"{place.name} is {place.value.text}")
                return


def _reads(launch: LaunchedProgram, place: StatedEndpoint) -> bool:
    own = place.name == "MASTER_ADDR" and launch.launcher is None and launch.srun is not None
    return own or any(
        value is not None and value == place.value
        for value in (launch.launcher.options.values() if launch.launcher else ())
    )


def _is_default(script: BatchScript, place: StatedEndpoint) -> bool:
    """Return whether the address is only taken where none is given."""
    line = script.lines[place.line - 1] if 0 < place.line <= len(script.lines) else ""
    return ":-" in line or ":=" in line


def beyond_job(script: BatchScript) -> Iterator[Finding]:
    """Find steps that ask for more nodes or GPUs than the job has."""
    nodes, gpus = script.header.value("nodes"), script.request.gpus_per_node
    if script.second_part is not None:
        return
    for launch in script.living:
        srun = launch.srun
        if srun is None:
            continue
        asked = number_of(srun, "nodes")
        if asked is not None and nodes is not None and nodes.isdigit() and asked > int(nodes):
            yield found("step-beyond-job", launch.step, f"srun --nodes={asked}, and the job has {nodes}")
        for name in ("gres", "gpus-per-node"):
            stated = option(srun, name)
            entry = gres_entries(stated.text)[:1] if stated is not None and stated.known else []
            wanted = number(entry[0].rpartition(":")[2]) if entry else None
            if wanted and gpus and wanted > gpus and (name != "gres" or entry[0].partition(":")[0] in GPU_NAMES):
                yield found(
                    "step-beyond-job",
                    launch.step,
                    f"srun --{name}={stated.text if stated else ''}, and the job has {gpus} a node",
                )


_STAYS = re.compile(
    r"\bray start\b.*--block|\bnvidia-smi\b.*(?:-l\b|--loop|-lms|dmon)|\bsleep (?:inf|infinity)\b|\bvllm serve\b|"
    r"\bdcgmi dmon\b"
)


_ENDS = re.compile(r"kill|pkill|killall|scancel")


def waiting_steps(script: BatchScript) -> Iterator[Finding]:
    """Find steps that wait for the CPUs of one that never ends."""
    if "SLURM_OVERLAP" in script.shell.variables.values or any(
        one.name == "SLURM_OVERLAP" for one in script.assignments
    ):
        return
    holding = [one for one in script.launches if _holds_node(script, one)]
    for holder in holding:
        for launch in script.launches:
            if launch.srun is None or launch.place <= holder.place or launch.command.background or launch.command.dead:
                continue
            if "overlap" in launch.srun.options or not _meet(holder, launch):
                continue
            between = (one for one in script.commands if holder.step.command.at < one.at < launch.step.command.at)
            if any(_ENDS.fullmatch(one.name) for one in between):
                continue
            text = f"the step of line {holder.step.line} holds the CPUs of its node, and neither has --overlap"
            yield found("step-waits", launch.step, text)
            return


def _holds_node(script: BatchScript, launch: LaunchedProgram) -> bool:
    srun, request = launch.srun, script.request
    if (
        srun is None
        or not launch.outermost.command.background
        or launch.command.dead
        or {"overlap", "exact"} & set(srun.options)
    ):
        return False
    cpus = number_of(srun, "cpus-per-task")
    has_all = "cpus-per-task" not in srun.options or (
        request.tasks_per_node == 1 and cpus == request.cpus_per_task is not None
    )
    return has_all and _STAYS.search(launch.outermost.command.text) is not None


def _meet(holder: LaunchedProgram, launch: LaunchedProgram) -> bool:
    """Return whether two steps surely share a node: the second one runs on all, or both are sent to the same."""
    first, second = option(holder.srun, "nodelist"), option(launch.srun, "nodelist")
    if second is None:
        return not {"nodes", "ntasks", "relative"} & set(launch.srun.options if launch.srun else ())
    return first is not None and first == second and _source_of(holder.step.command) == _source_of(launch.step.command)


def _source_of(command: ShellCommand) -> str:
    sources = [word.source for word in command.words]
    return next((after for one, after in pairwise(sources) if one in ("-w", "--nodelist")), "")
