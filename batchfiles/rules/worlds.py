"""Faults by which ranks wait for others that never come: on other nodes, at another address, behind another step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.bash.values import number
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.rules.meeting import ADDRESS_NAMES, PORT_NAMES, StatedEndpoint, addresses, spans_nodes
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.request import GPU_NAMES, gres_entries
from batchfiles.slurm.script import BatchScript
from batchfiles.slurm.servers import never_ends
from trainjob.contract.programs.launchers import option_names

_NODE_RANKS = ("node_rank", "machine_rank")


def expected_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find launchers that wait for more nodes than anything starts them on."""
    yield from _told(script)
    launching = [launch for launch in script.living if launch.launcher is not None]
    if len(launching) > 1 and any(launch.outermost.command.background for launch in launching):
        return  # several together may be the nodes that each of them waits for
    for launch in launching:
        name, options, started = launch.launcher_name, launch.options, script.nodes_of(launch)
        if name not in ("torchrun", "accelerate", "tune") or launch.has_unknown_options or _is_one_of_several(launch):
            continue
        wanted = number_of(launch.launcher, *option_names("nodes", of=name))
        number_is_given = any(value is not None and not value.known for value in map(options.get, _NODE_RANKS))
        meets_elsewhere = any(value is not None and is_host(value.text.partition(":")[0]) for value in options.values())
        if launch.srun is None and (script.request.nodes != 1 or number_is_given or meets_elsewhere):
            continue  # no-srun says so, or another job is the other node
        tasks = _tasks_on_node(script, launch)
        if wanted is not None and started is not None and tasks is not None and wanted > started * tasks:
            text = f"{name} waits for {wanted} nodes, and is started on {started} node{'s' * (started != 1)}"
            yield found("nodes-disagree", launch, text)
            return


_TOLD = {
    "nodes": re.compile(r"(?:--|\+*)(?:trainer\.)?(?:num|n)[-_]nodes"),
    "devices": re.compile(r"(?:--|\+*)trainer\.(?:devices|gpus)"),
    "ranks": re.compile(r"--(?:distributed[-_])?world[-_]size"),
}
# Else a world may be that of a game.
_MEETS_RANKS = re.compile(r"torch\.distributed|MASTER_ADDR|--distributed[-_]")


def _tasks_on_node(script: BatchScript, launch: LaunchedProgram) -> int | None:
    """Return the tasks of a launch on a node, one where nothing states them; None if only a run can tell."""
    stated = {"ntasks", "ntasks-per-node", "ntasks-per-gpu"} & (launch.srun.options.keys() if launch.srun else set())
    is_known = not stated and script.header.value("ntasks-per-gpu") is None
    return script.tasks_per_node_of(launch) or (1 if is_known else None)


def _told(script: BatchScript) -> Iterator[Finding]:
    """Find programs of which srun starts the ranks, and whose words count others: Lightning's compares them."""
    for launch in script.living:
        nodes, tasks = script.nodes_of(launch), _tasks_on_node(script, launch)
        if launch.launcher or not launch.srun or not nodes or not tasks or _is_one_of_several(launch):
            continue
        started = {"nodes": nodes, "devices": tasks, "ranks": nodes * tasks}
        per_node = "ntasks-per-node"
        if (
            tasks > 1
            and script.header.value(per_node) is None
            and per_node not in launch.srun.options
            and script.is_of_lightning(launch)
            and not script.hides_from_lightning(launch)
        ):
            text = f"Lightning refuses --ntasks={nodes * tasks} without --ntasks-per-node"
            yield found("nodes-disagree", launch, text, cure=f"#SBATCH --ntasks-per-node={tasks}")
            return
        for text, after in pairwise([*(word.text for word in launch.program), ""]):
            what = next((name for name, pattern in _TOLD.items() if pattern.fullmatch(text.partition("=")[0])), None)
            told = number(text.partition("=")[2] or after) if what else None
            # Nodes may be those of a graph, and one task on a node may start the ranks.
            is_graph = what == "nodes" and "trainer" not in text and (nodes == 1 or not launch.is_python)
            if not what or not told or told == started[what] or is_graph:
                continue
            meets = tasks > 1 and not launch.is_beside and _MEETS_RANKS.search(script.code)
            if meets if what == "ranks" else not script.hides_from_lightning(launch):
                starts = f"{tasks} task{'s' * (tasks != 1)} on each of {nodes} node{'s' * (nodes != 1)}"
                why = f"it is told of {told} {what}, and srun starts {starts}"
                yield found("nodes-disagree", launch, why, facts={"told_of": what})
                return


def _is_one_of_several(launch: LaunchedProgram) -> bool:
    command = launch.outermost.command
    return command.background and bool({"loop", "endless", "function"} & set(command.within))


_A_HOST = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[A-Za-z][\w-]*[0-9](?:\.[\w.-]+)?")
_HERE = re.compile(r"localhost.*|127\..*|0\.0\.0\.0|::1")


def is_host(text: str) -> bool:
    """Return whether a text names one host, and another than the one it stands on."""
    return _A_HOST.fullmatch(text) is not None and _HERE.fullmatch(text) is None


def node_ranks(script: BatchScript) -> Iterator[Finding]:
    """Find launchers that all take themselves for the same node."""
    for launch in script.living:
        name = {"torchrun": "node_rank", "accelerate": "machine_rank"}.get(launch.launcher_name)
        if name is None or launch.srun is None or not script.spans_nodes(launch) or launch.has_unknown_options:
            continue
        counts = option(launch.launcher, *option_names("nodes", of=launch.launcher_name))
        backend, stated = option(launch.launcher, "rdzv_backend"), option(launch.launcher, name)
        if counts is None or counts.text == "1" or {"standalone", "config_file"} & launch.options.keys():
            continue
        nodes = script.usual_nodes_of(launch)
        if backend is not None and backend.text != "static":
            continue
        if stated is None and launch.environment("PET_NODE_RANK") is None:
            text = f"{launch.launcher_name} has no --{name}, and is 0 on all {nodes} nodes"
            yield found("node-rank-same", launch, text, facts={"lacks": f"--{name}"})
        elif stated is not None and stated.fixed and number(stated.text) is not None:
            yield found("node-rank-same", launch, f"--{name} is {stated.text} on all {nodes} nodes")


_OWN = re.compile(r"\$\(\s*(?:/bin/)?hostname\b|`hostname\b|\$\{?HOSTNAME\b|\$\{?SLURMD_NODENAME\b")
_MEETS = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr|main_process_ip)=")
_DRAWN = re.compile(r"\bRANDOM\b|\bshuf\b|\.bind\(\(?['\"]")


def differing_places(script: BatchScript) -> Iterator[Finding]:
    """Find addresses and ports that each rank's own shell works out for itself."""
    inner = [one for one in script.living if one.outer and one.srun is not None and script.spans_nodes(one)]
    for launch in inner:
        inside = (*launch.outer.command.within, "called") if launch.outer else ()
        for one in script.assignments:
            if one.within[: len(inside)] != inside or one.conditions or one.source != launch.source:
                continue
            kind = _OWN if re.fullmatch(ADDRESS_NAMES, one.name) else _DRAWN
            called = (text_of(body) for name, (body, *_) in script.shell.functions.items() if name in one.text)
            text = "\n".join([one.text, *called])
            if re.fullmatch(f"{ADDRESS_NAMES}|{PORT_NAMES}", one.name) and kind.search(text):
                why = f"{one.name} is worked out by each node for itself"
                yield found("addr-differs", one, why, facts={"name": one.name})
                return
    for launch in inner:
        for word in launch.command.words if launch.launcher else ():
            if _MEETS.match(word.source) and _OWN.search(word.source):
                yield found("addr-differs", launch, f"{word.source[:50]} is another on each node")
                return


def hosts_by_name(script: BatchScript) -> Iterator[Finding]:
    """Find hosts that the file names where Slurm chooses them."""
    has_every_node = script.site.nodes is not None and script.request.nodes == script.site.nodes
    if script.header.value("nodelist") is not None or not script.is_batch_file or has_every_node:
        return
    for launch in script.living:
        for name in ("H", "host", "hosts"):
            value = option(launch.layer("mpirun"), name)
            named = value.text.split(",") if value is not None and value.fixed else []
            if any(is_host(one.partition(":")[0]) for one in named):
                of_mpi = f"-{'-' * (len(name) > 1)}{name}"
                text = f"{of_mpi} names {named[0].partition(':')[0]}"
                yield found("hosts-by-name", launch, text, facts={"option": of_mpi})
                return
    for place in addresses(script):
        is_default = script.may_be_given(script.line(place.line))
        if place.value.comes_from("SLURM_SUBMIT_HOST"):
            yield found(
                "hosts-by-name", place, f"{place.name} is $SLURM_SUBMIT_HOST", facts={"host": "$SLURM_SUBMIT_HOST"}
            )
            return
        if is_host(place.value.text) and not place.value.commands() and not is_default:
            users = [place.launch] if place.launch else [one for one in script.living if _reads(one, place)]
            if any(spans_nodes(script, one) for one in users):
                host = place.value.text
                yield found("hosts-by-name", place, f"{place.name} is {host}", facts={"host": host})
                return


def _reads(launch: LaunchedProgram, place: StatedEndpoint) -> bool:
    own = place.name == "MASTER_ADDR" and launch.launcher is None and launch.srun is not None
    return own or place.value in launch.options.values()


def beyond_job(script: BatchScript) -> Iterator[Finding]:
    """Find steps that ask for more nodes or GPUs than the job has (asked, Slurm 22.05)."""
    nodes, gpus = number(script.header.value("nodes")), script.request.gpus_per_node
    for launch in script.living if script.second_part is None and script.is_batch_file else ():
        asked = number_of(launch.srun, "nodes")
        if asked and nodes and asked > nodes:
            yield found("step-beyond-job", launch.step, f"srun --nodes={asked}, and the job has {nodes}")
        for name in ("gres", "gpus-per-node"):
            stated = option(launch.srun, name)
            entry = gres_entries(stated.text)[:1] if stated is not None and stated.known else []
            wanted = number(entry[0].rpartition(":")[2]) if entry else None
            if wanted and gpus and wanted > gpus and (name != "gres" or entry[0].partition(":")[0] in GPU_NAMES):
                text = f"srun --{name}={stated.text if stated else ''}, and the job has {gpus} a node"
                yield found("step-beyond-job", launch.step, text)


def _between(script: BatchScript, first: ShellCommand, second: ShellCommand) -> list[ShellCommand] | None:
    """Return what bash runs between two commands; None if the second one doesn't follow the first."""
    start, end = script.places[id(first)], script.places[id(second)]
    return script.commands[start + 1 : end] if start < end and not second.is_instead_of(first) else None


_ENDS = ("kill", "pkill", "killall", "scancel")
_LOOKS = ("wait", "jobs", "ps", "pgrep", "squeue", "sacct", *_ENDS)


def _may_wait(one: ShellCommand, start: ShellCommand) -> bool:
    """Return whether a command may wait for what `start` began: a loop around a sleep does so, too."""
    inner, outer = (sum(each in ("loop", "endless") for each in command.within) for command in (one, start))
    return not one.dead and (one.name in _LOOKS or (one.name == "sleep" and inner > outer))


_ELSEWHERE = {"overlap", "jobid", "het-group", "nodelist", "relative", "exclude"}
_OWN_CPUS = {"exact", "exclusive", "cpus-per-task"}
_OWN_GPUS = {"gres", "gpus", "gpus-per-task", "gpus-per-node", "tres-per-task"}
_OWN_MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}


def _is_told_to_share(script: BatchScript) -> bool:
    """Return whether a variable gives each step a part of its node."""
    return any(re.fullmatch("SLURM_(?:OVERLAP|EXACT)|SRUN_CPUS_PER_TASK", one.name) for one in script.assignments)


def steps_in_steps(script: BatchScript) -> Iterator[Finding]:
    """Find steps that a step starts, and that wait for its CPUs (asked, Slurm 22.05)."""
    for launch in script.living if not _is_told_to_share(script) else ():
        # `launch.srun` may be that of the step around it.
        own, outer = next((layer for layer in launch.layers if layer.name == "srun"), None), launch.outer
        if own is None or outer is None or outer.srun is None:
            continue
        if not (_ELSEWHERE | _OWN_CPUS) & (own.options.keys() | outer.srun.options.keys()):
            text = f"it is started by the step of line {outer.step.line}, and waits for its CPUs"
            yield found("step-waits", launch, text, cure="Leave out one of the two srun.")
            return


def steps_in_a_row(script: BatchScript) -> Iterator[Finding]:
    """Find steps that are started side by side on one node, and wait for each other (asked, 22.05 to 26.05)."""
    request, header = script.request, script.header
    if _is_told_to_share(script):
        return
    may_spread = request.nodes is None and (header.value("nodes") or (request.tasks or 1) > 1)
    if request.several_nodes or script.second_part is not None or may_spread:
        return
    before: ShellCommand | None = None
    looks = [one for one in script.named("sleep", *_LOOKS) if one.inside("loop")]
    for launch in script.work:
        command, own = launch.outermost.command, launch.srun.options.keys() if launch.srun else set()
        if launch.srun is None or not command.background or never_ends(command) or own & _ELSEWHERE:
            continue
        shared = {
            "CPUs": own & _OWN_CPUS,
            "GPUs": own & _OWN_GPUS or request.gpus_per_task or not request.gpus_per_node,
        }
        shared["memory"] = own & _OWN_MEMORY or header.value("mem") in (None, "0")
        whole = next((name for name, is_shared in shared.items() if not is_shared), None)
        if whole is None or command is before:
            continue
        between = _between(script, before, command) if before is not None else None
        follows = between is not None and not any(_may_wait(one, command) for one in between)
        repeats = command.inside("loop") and not any(_may_wait(one, command) for one in looks)
        if repeats or follows:
            text = f"it has all {whole} of the job on its node, and waits for the step before it"
            lighter = Severity.WARNING if whole == "memory" else None
            cure = "srun --exact with --mem and --gpus of its own for each step; or --overlap, where they may share."
            yield found("step-waits", launch.step, text, lighter, cure)
            return
        before = command
