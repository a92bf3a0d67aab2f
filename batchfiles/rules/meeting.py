"""Faults of the place where ranks meet: address, port, rendezvous, world size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from batchfiles.bash.commands import Assignment
from batchfiles.bash.expansion import text_of
from batchfiles.bash.values import HOLE, Value
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.script import BatchScript
from batchfiles.slurm.servers import NEVER_ENDS
from trainjob.contract.programs.ranks import SLURM_PLACE

ADDRESS_NAMES = (
    r"(?i:(?:PET_)?MASTER_?(?:ADDR|ADDRESS|IP|HOST|NODE(?:_IP|_ADDR)?)|HEAD_?NODE(?:_?IP|"
    r"_?ADDR\w*|_?HOST\w*)?|RDZV_HOST|PET_RDZV_ENDPOINT|RDZV_ENDPOINT|MAIN_PROCESS_IP|MAIN_IP|"
    r"COORDINATOR_ADDR\w*|IP_HEAD|HEAD_IP|DIST_URL)"
)
PORT_NAMES = r"(?i:(?:PET_)?MASTER_?PORT|MAIN_PROCESS_PORT|RDZV_PORT|COORDINATOR_PORT|DIST_PORT)"
_ADDRESS_OPTIONS = (
    "master_addr",
    "rdzv_endpoint",
    "main_process_ip",
    "coordinator_address",
    "coordinator_ip",
    "node_ip_address",
)
_PORT_OPTIONS = ("master_port", "main_process_port", "rdzv_endpoint")
_LISTS = ("SLURM_NODELIST", "SLURM_JOB_NODELIST")


class StatedEndpoint(NamedTuple):
    """An address or a port that the script states."""

    name: str
    value: Value
    line: int
    launch: LaunchedProgram | None = None
    source: str = ""
    open_ended: bool = False


def addresses(script: BatchScript) -> Iterator[StatedEndpoint]:
    """Yield the addresses where ranks meet, in order of their lines."""
    assigned = [one for one in script.assigned(ADDRESS_NAMES) if not one.dead]
    for at, one in enumerate(assigned):
        if not any(_replaces(script, later, one) for later in assigned[at + 1 :]):
            yield StatedEndpoint(
                one.name, one.value, one.line, source=one.source, open_ended=script.shell.variables.open_ended
            )
    for launch in script.launches:
        for name in _ADDRESS_OPTIONS:
            value = option(launch.launcher, name)
            if value is not None and not launch.command.dead:
                yield StatedEndpoint(
                    f"--{name}",
                    value.with_text(re.sub(rf":[\d{HOLE}]*$", "", value.text.removeprefix("tcp://"))),
                    launch.line,
                    launch,
                    launch.command.source,
                    launch.command.variables.open_ended,
                )


def _replaces(script: BatchScript, later: Assignment, one: Assignment) -> bool:
    """Return whether a variable has another value before anything reads the one that it was given."""
    if later.name != one.name or later.conditions or later.within or later.source or one.source:
        return False
    between = "\n".join(script.lines[one.line : later.line])
    return one.line < later.line and re.search(rf"\$\{{?{one.name}\b|\bexport\s+{one.name}\b", between) is None


def _stands_alone(script: BatchScript) -> bool:
    """Return whether torchrun chooses the place where ranks meet, whatever is stated."""
    living = [launch.launcher for launch in script.living]
    return bool(living) and all(launcher is not None and "standalone" in launcher.options for launcher in living)


def address(script: BatchScript) -> Iterator[Finding]:
    """Find addresses that are none."""
    stated = [] if _stands_alone(script) else list(addresses(script))
    guessed = False
    for place in stated:
        origins = place.value.commands()
        by_address = re.search(r"hostname\s+(?:-\w*[iI]\w*\b|--ip-address|--all-ip-addresses)", origins)
        if by_address and not guessed and _is_used(script, place):
            guessed = True
            yield found("addr-hostname-ip", place, f"{place.name} comes from hostname --ip-address")
        compressed = place.value.comes_from(*_LISTS) and not re.search(
            r"scontrol|nodeset|hostlist|srun|python|getent", origins
        )
        if compressed:
            yield found("addr-from-compressed-list", place, f"{place.name} is cut from SLURM_JOB_NODELIST")
        literal = place.value.text.replace(HOLE, "")
        if HOLE in place.value.text and re.search(r"\d+\.", literal) and not literal.startswith(":"):
            yield found("addr-guessed-from-name", place, f"{place.name} is {place.value.text.replace(HOLE, '…')}")
        if (
            re.fullmatch(r"\$\((?:/bin/)?hostname(?:\s+-[sf]+|\s+--(?:fqdn|short))?\)", origins)
            and place.launch is None
        ):
            yield found("addr-batch-host", place, f"{place.name}={origins}")
    yield from _localhost(script, stated)


def _is_used(script: BatchScript, place: StatedEndpoint) -> bool:
    """Return whether more than the log gets an address."""
    if place.launch is not None:
        return True
    used = re.compile(rf"\$\{{?{place.name}\b|\bexport\s+(?:\w+=\S*\s+)*{place.name}\b")
    return any(used.search(line) and not re.match(r"\s*(?:#|echo|printf)", line) for line in script.lines)


def _localhost(script: BatchScript, stated: list[StatedEndpoint]) -> Iterator[Finding]:
    for place in stated:
        if not re.fullmatch(r"localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0", place.value.text):
            continue
        users = [place.launch] if place.launch else [one for one in script.training if _uses_address(one, place.name)]
        if any(spans_nodes(script, one) for one in users if not one.command.dead):
            yield found("addr-localhost", place, f"{place.name} is {place.value.text}")


def without_endpoint(script: BatchScript) -> Iterator[Finding]:
    """Find c10d rendezvous that have no endpoint: torchrun then takes localhost, in spite of --master-addr."""
    for launch in script.training:
        launcher = launch.launcher
        if launcher is None or launcher.name != "torchrun" or launch.command.dead or not spans_nodes(script, launch):
            continue
        backend = option(launcher, "rdzv_backend")
        given = {"rdzv_endpoint", "rdzv_conf", "standalone"} & set(
            launcher.options
        ) or "PET_RDZV_ENDPOINT" in launch.command.variables.values
        is_c10d = backend is not None and backend.text == "c10d"
        if is_c10d and not given:
            yield found("addr-localhost", launch, "c10d without --rdzv-endpoint meets at localhost")
        nodes = option(launcher, "nnodes")
        given = (
            given
            or "master_addr" in launcher.options
            or "PET_MASTER_ADDR" in launch.command.variables.values
            or launch.has_unknown_options
        )
        if not (is_c10d or given) and backend is None and nodes is not None and nodes.text != "1":
            text = "torchrun without --master-addr meets at 127.0.0.1, whatever MASTER_ADDR is"
            yield found("addr-localhost", launch, text)


def spans_nodes(script: BatchScript, launch: LaunchedProgram) -> bool:
    """Return whether a launch has ranks on several nodes, or says that it has."""
    return (script.usual_nodes_of(launch) or 1) > 1 or (number_of(launch.launcher, "nnodes", "num_machines") or 1) > 1


def _uses_address(launch: LaunchedProgram, name: str) -> bool:
    """Return whether a variable reaches the ranks: those that torch reads do, unless launcher options overrule them."""
    if name.upper() != "MASTER_ADDR" or launch.line < 0:
        return False
    value = launch.settings.get(name, launch.command.variables.values.get(name))
    last = value is not None and re.fullmatch(r"localhost|127\..*|::1|0\.0\.0\.0", value.text) is not None
    return last and (launch.launcher is None or launch.launcher.name == "composer")


def undefined(script: BatchScript) -> Iterator[Finding]:
    """Find addresses that are empty when ranks ask for them."""
    reported: set[str] = set()
    if not script.is_batch_file:  # a part of one, which finds its variables set
        return
    for place in addresses(script):
        missing = next(
            (origin for origin in sorted(place.value.origins) if origin.startswith(("unset ", "kept back "))), None
        )
        if missing is None or place.value.text.strip() != HOLE or place.open_ended or place.value.commands():
            continue
        name = missing.rpartition(" ")[2]
        if name in reported or _is_parameter(script, name):
            continue
        reported.add(name)
        why = "never set" if missing.startswith("unset") else "not exported"
        yield found("addr-undefined", place, f"{place.name} comes from ${name}, which is {why}")
    for launch in script.training:
        value = option(launch.launcher, "rdzv_endpoint", "master_addr", "main_process_ip")
        empty = value is not None and re.fullmatch(r"\s*(?::.*)?", value.text)
        if empty and not launch.command.dead and value is not None and "m" not in value.text[:1]:
            yield found("addr-undefined", launch, "the address of the rendezvous is empty")


def _is_parameter(script: BatchScript, name: str) -> bool:
    """Return whether a comment or a check shows that the caller of sbatch sets it."""
    pattern = re.compile(rf"\b{name}=\S+.*\bsbatch\b|--export=\S*\b{name}\b|\$\{{{name}:\?|-[zn] \"?\$\{{?{name}\b")
    return any(pattern.search(line) for line in script.lines)


def port(script: BatchScript) -> Iterator[Finding]:
    """Find ports that every job shares; on nodes that are this job's alone it matters less."""
    reported: set[str] = set()
    # A loop that looks for a free port begins with one.
    counted = re.findall(r"\(\(\s*(\w+)(?:\+\+|\s*\+=)|\b(\w+)=\$\(\(", "\n".join(script.lines))
    names = {
        one or other
        for one, other in counted
        if one or re.search(rf"{other}=\$\(\(\s*\$?{other}\b", text_of(script.root))
    }
    tried = {one.value.text for one in script.assignments if one.name in names}
    for place in () if _stands_alone(script) else _ports(script):
        value, number = place.value, re.search(r"([0-9]+)$", place.value.text)
        if number is None or int(number[1][:9]) == 0 or value.text.endswith(f"{HOLE}{number[1]}"):
            continue
        if value.comes_from("SLURM_JOB_ID", "SLURM_JOBID", "RANDOM", "SLURM_ARRAY_TASK_ID") and ":" not in value.text:
            continue
        if number[1] not in reported and number[1] not in tried:
            reported.add(number[1])
            lighter = Severity.NOTE if script.request.exclusive else None
            yield found("port-fixed", place, f"{place.name} is always {number[1]}", lighter)


def _ports(script: BatchScript) -> Iterator[StatedEndpoint]:
    for one in script.assigned(PORT_NAMES):
        if one.value.known:
            yield StatedEndpoint(one.name, one.value, one.line, source=one.source)
    for one in script.assigned(r"(?:JAX_)?COORDINATOR_ADDR\w*"):
        if re.search(r":[0-9]+$", one.value.text):
            yield StatedEndpoint(one.name, one.value, one.line, source=one.source)
    for launch in script.launches:
        for name in _PORT_OPTIONS:
            value = option(launch.launcher, name)
            if value is not None and (name != "rdzv_endpoint" or re.search(r":\d+$", value.text)):
                yield StatedEndpoint(f"--{name}", value, launch.line, source=launch.source)
        yield from _ports_in_words(launch)


def _ports_in_words(launch: LaunchedProgram) -> Iterator[StatedEndpoint]:
    words = launch.program
    is_ray = bool(words) and words[0].text.rpartition("/")[2] == "ray" and any(word.text == "--head" for word in words)
    is_server = bool(NEVER_ENDS.search(launch.command.text)) and launch.outermost.command.background
    names = (
        r"--(?:master[-_](?:port|addr(?:ess)?)|main_process_port|dist[-_]url|init[-_]method|coordinator(?:[-_]addr(?:ess)?)?|dist[-_]port%s)"
        % ("|port" if is_ray or is_server else "")
    )
    for at, word in enumerate(words):
        key, equals, text = word.text.partition("=")
        if re.fullmatch(names, key):
            value = word.value.with_text(text) if equals else words[at + 1].value if at + 1 < len(words) else Value()
            if re.search(r"(?:^|:)\d+$", value.text):
                yield StatedEndpoint(key, value, launch.line, source=launch.source)


def rendezvous_ids(script: BatchScript) -> Iterator[Finding]:
    """Find rendezvous ids that are the same in every job, or another on each node."""
    for launch in script.training:
        value = option(launch.launcher, "rdzv_id")
        if value is None:
            continue
        if value.comes_from("RANDOM"):
            yield found("rdzv-id-random", launch, "--rdzv-id=$RANDOM")
        elif value.fixed and "$" not in value.text:
            yield found("rdzv-id-fixed", launch, f"--rdzv-id={value.text}")


def world(script: BatchScript) -> Iterator[Finding]:
    """Find world sizes that don't follow the job."""
    living = [launch.launcher for launch in script.living]
    if living and all(one is not None and one.name == "torchrun" for one in living):
        return  # which gives its workers another
    for one in script.assigned("WORLD_SIZE"):
        if one.exported and one.value.fixed and one.value.text.isdigit() and int(one.value.text[:9]) > 1:
            yield found("world-size-fixed", one, f"WORLD_SIZE is always {one.value.text}")


_RANK = re.compile(
    r"(?i)(?:\b|_|--?)(?:node[-_]|machine[-_]|local[-_]|group[-_]|global[-_])?(?:rank|id)[\"']?[ =]+[\"']?0\b"
)


def ranks(script: BatchScript) -> Iterator[Finding]:
    """Find ranks that the batch shell numbers, before there are any."""
    reported = False
    for launch in script.launches:
        if (
            reported
            or launch.command.dead
            or launch.srun is None
            or launch.command.variables.in_step
            or not _several(script, launch)
        ):
            continue
        words = [word for word in launch.command.words if word.value.comes_from(*SLURM_PLACE)]
        text = " ".join(word.text for word in launch.command.words)
        # srun torchrun --node_rank $SLURM_NODEID; srun bash -c "… RANK=$SLURM_PROCID …"
        if words and _RANK.search(text):
            reported = True
            name = next(name for name in SLURM_PLACE if words[0].value.comes_from(name))
            # With a c10d rendezvous torchrun numbers nodes itself. In --rdzv_conf the word has no effect.
            numbers = re.search(r"--[\w-]*backend\W*c10d", text)
            harmless = numbers and not re.search(r"(?i)(?<![-_a-z])(?:local_)?rank=0", text)
            lighter = Severity.NOTE if harmless else None
            yield found("rank-expanded-early", launch, f"${name} is 0 here, for every rank", lighter)
    if not reported:
        yield from _exported_ranks(script)
    for at, line in enumerate(script.lines, 1):
        if _PATH_OF_A_RANK.match(line) and any(
            launch.srun and launch.line > at and _several(script, launch) for launch in script.training
        ):
            yield Finding("rank-expanded-early", at, f"{line.strip()[:60]}: the same for every rank", Severity.WARNING)
            return


# export FILE=out-$SLURM_NODEID.json in the batch shell.
_PATH_OF_A_RANK = re.compile(
    r"\s*export \w+=\"?(?=[^'\"#\s]*[./-])[^'\"#\s]*\$\{?(?:SLURM_NODEID|SLURM_PROCID|SLURM_LOCALID)\b"
)


def _several(script: BatchScript, launch: LaunchedProgram) -> bool:
    return (script.usual_nodes_of(launch) or 1) > 1 or (script.tasks_per_node_of(launch) or 1) > 1


def _exported_ranks(script: BatchScript) -> Iterator[Finding]:
    """Find RANK=$SLURM_PROCID in the batch shell, which every rank inherits."""
    for one in script.assigned("RANK|LOCAL_RANK|NODE_RANK|GROUP_RANK"):
        if not (one.exported and one.value.known and one.value.comes_from(*SLURM_PLACE)) or "called" in one.within:
            continue
        for launch in script.training:
            own = launch.command.variables.values.get(one.name)
            if (
                launch.srun
                and launch.line > one.line
                and _several(script, launch)
                and own == one.value
                and one.name not in launch.settings
            ):
                if launch.launcher is None or (one.name == "NODE_RANK" and launch.launcher.name == "composer"):
                    yield found("rank-expanded-early", one, f"{one.text[:60]}: 0 for every rank")
                break
