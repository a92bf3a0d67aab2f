"""Faults of the place where ranks meet: address, port, rendezvous, world size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from batchfiles.bash.commands import Assignment
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE, Value, number
from batchfiles.rules.around import LOCAL_DISK
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
    is_open = script.shell.variables.open_ended
    for at, one in enumerate(assigned):
        later = next((each for each in islice(assigned, at + 1, None) if _may_replace(each, one)), None)
        if later is None or not _is_unread(script, one, later):
            yield StatedEndpoint(one.name, one.value, one.line, source=one.source, open_ended=is_open)
    for launch in script.launches:
        for name in _ADDRESS_OPTIONS:
            value, command = launch.options.get(name), launch.command
            if value is not None and not command.dead:
                host = value.with_text(re.sub(rf":[\d{HOLE}]*$", "", value.text.removeprefix("tcp://")))
                is_open = command.variables.open_ended
                yield StatedEndpoint(f"--{name}", host, launch.line, launch, launch.source, is_open)


def _may_replace(later: Assignment, one: Assignment) -> bool:
    return later.name == one.name and not (later.conditions or later.within or later.source or one.source)


def _is_unread(script: BatchScript, one: Assignment, later: Assignment) -> bool:
    """Return whether a variable has its later value before anything reads the one that it was given."""
    between = "\n".join(script.lines[one.line : later.line])
    return one.line < later.line and re.search(rf"\$\{{?{one.name}\b|\bexport\s+{one.name}\b", between) is None


def _stands_alone(script: BatchScript) -> bool:
    """Return whether torchrun chooses the place where ranks meet, whatever is stated."""
    return bool(script.living) and all("standalone" in launch.options for launch in script.living)


def address(script: BatchScript) -> Iterator[Finding]:
    """Find addresses that are none."""
    guessed = False
    for place in () if _stands_alone(script) else addresses(script):
        text, origins, named = place.value.text, place.value.commands(), {"name": place.name}
        if _BY_ADDRESS.search(origins) and not guessed and _is_used(script, place):
            guessed = True
            yield found("addr-hostname-ip", place, f"{place.name} comes from hostname --ip-address")
        if place.value.comes_from("SLURM_NODELIST", "SLURM_JOB_NODELIST") and not _EXPANDS.search(origins):
            yield found("addr-from-compressed-list", place, f"{place.name} is cut from SLURM_JOB_NODELIST", facts=named)
        literal = text.replace(HOLE, "")
        if HOLE in text and re.search(r"\d+\.", literal) and not literal.startswith(":"):
            yield found("addr-guessed-from-name", place, f"{place.name} is {text}", facts=named)
        if _HOSTNAME.fullmatch(origins) and place.launch is None:
            yield found("addr-batch-host", place, f"{place.name}={origins}")
        if not _LOCALHOST.fullmatch(text):
            continue
        users = [place.launch] if place.launch else [one for one in script.living if _uses_address(one, place.name)]
        if any(spans_nodes(script, one) for one in users):
            yield found("addr-localhost", place, f"{place.name} is {text}", facts=named)


_BY_ADDRESS = re.compile(r"hostname\s+(?:-\w*[iI]\w*\b|--ip-address|--all-ip-addresses)")
_EXPANDS = re.compile(r"scontrol|nodeset|hostlist|srun|python|getent")
_HOSTNAME = re.compile(r"\$\((?:/bin/)?hostname(?:\s+-[sf]+|\s+--(?:fqdn|short))?\)")
_LOCALHOST = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0")


def _is_used(script: BatchScript, place: StatedEndpoint) -> bool:
    """Return whether more than the log gets an address."""
    if place.launch is not None:
        return True
    used = re.compile(rf"\$\{{?{place.name}\b|\bexport\s+(?:\w+=\S*\s+)*{place.name}\b")
    return any(used.search(line) and not re.match(r"\s*(?:#|echo|printf)", line) for line in script.lines)


def without_endpoint(script: BatchScript) -> Iterator[Finding]:
    """Find c10d rendezvous that have no endpoint: torchrun then takes localhost, in spite of --master-addr."""
    for launch in script.living:
        if launch.launcher_name != "torchrun" or not spans_nodes(script, launch):
            continue
        options, backend, nodes = launch.options, launch.options.get("rdzv_backend"), launch.options.get("nnodes")
        given = {"rdzv_endpoint", "rdzv_conf", "standalone"} & options.keys()
        if given or launch.environment("PET_RDZV_ENDPOINT") is not None:
            continue
        if backend is not None:
            if backend.text == "c10d":
                text = "c10d without --rdzv-endpoint meets at localhost"
                yield found("addr-localhost", launch, text, facts={"lacks": "--rdzv-endpoint"})
            continue
        has_address = "master_addr" in options or launch.environment("PET_MASTER_ADDR") is not None
        if nodes is not None and nodes.text != "1" and not (has_address or launch.has_unknown_options):
            text = "torchrun without --master-addr meets at 127.0.0.1, whatever MASTER_ADDR is"
            yield found("addr-localhost", launch, text, facts={"lacks": "--master-addr"})


def container_networks(script: BatchScript) -> Iterator[Finding]:
    """Find ranks of several nodes in containers with a network of their own."""
    for launch in script.living:
        layer = launch.layer("container")
        if layer is None or layer.program not in ("docker", "podman") or " run " not in f"{layer.own} ":
            continue
        is_open = HOLE + " " in layer.own or re.search(r"\s--net(?:work)?[= ]", layer.own)
        if spans_nodes(script, launch) and not is_open:
            text = f"{layer.program} run without --network=host: other nodes know no address in its network"
            cure, facts = f"{layer.program} run --network=host", {"lacks": "--network=host"}
            yield found("addr-localhost", launch.step, text, cure=cure, facts=facts)
            return


def spans_nodes(script: BatchScript, launch: LaunchedProgram) -> bool:
    """Return whether a launch has ranks on several nodes, or says that it has."""
    return script.spans_nodes(launch) or (number_of(launch.launcher, "nnodes", "num_machines") or 1) > 1


def _uses_address(launch: LaunchedProgram, name: str) -> bool:
    """Return whether a variable reaches the ranks: those that torch reads do, unless launcher options overrule them."""
    value = launch.environment(name) if name.upper() == "MASTER_ADDR" else None
    is_it = value is not None and _LOCALHOST.fullmatch(value.text) is not None
    return is_it and launch.launcher_name in ("", "composer")


def undefined(script: BatchScript) -> Iterator[Finding]:
    """Find addresses that are empty when ranks ask for them."""
    reported: set[str] = set()
    if not script.is_batch_file:  # a part of one, which finds its variables set
        return
    for place in addresses(script):
        missing = min((one for one in place.value.origins if one.startswith(("unset ", "kept back "))), default="")
        name = missing.rpartition(" ")[2]
        is_empty = place.value.text.strip() == HOLE and not place.open_ended and not place.value.commands()
        if missing.startswith("unset") and re.search(rf"\b{re.escape(name)}=", script.code):
            continue  # by something that is not followed, such as an exported function that a rank's shell calls
        if missing and is_empty and name not in reported and not _is_parameter(script, name):
            reported.add(name)
            why = "never set" if missing.startswith("unset") else "not exported"
            facts = {"never_set" if missing.startswith("unset") else "kept_back": name}
            yield found("addr-undefined", place, f"{place.name} comes from ${name}, which is {why}", facts=facts)
    for launch in script.living:
        value = option(launch.launcher, "rdzv_endpoint", "master_addr", "main_process_ip")
        if value is not None and re.fullmatch(r"\s*(?::.*)?", value.text):
            yield found("addr-undefined", launch, "the address of the rendezvous is empty")


def _is_parameter(script: BatchScript, name: str) -> bool:
    """Return whether a comment or a check shows that the caller of sbatch sets it."""
    pattern = re.compile(rf"\b{name}=\S+.*\bsbatch\b|--export=\S*\b{name}\b|\$\{{{name}:\?|-[zn] \"?\$\{{?{name}\b")
    return any(pattern.search(line) for line in script.lines)


def port(script: BatchScript) -> Iterator[Finding]:
    """Find ports that every job shares; on nodes that are this job's alone it matters less."""
    counted = _counted(script)
    reported = {one.value.text for one in script.assignments if one.name in counted}
    for place in () if _stands_alone(script) else _ports(script):
        value, digits = place.value, re.search(r"([0-9]+)$", place.value.text)
        if digits is None or int(digits[1][:9]) == 0 or value.text.endswith(f"{HOLE}{digits[1]}"):
            continue
        of_job = value.comes_from("SLURM_JOB_ID", "SLURM_JOBID", "RANDOM", "SLURM_ARRAY_TASK_ID")
        if digits[1] not in reported and not (of_job and ":" not in value.text):
            reported.add(digits[1])
            lighter = Severity.NOTE if script.request.exclusive else None
            facts = {"name": place.name, "port": digits[1]}
            yield found("port-fixed", place, f"{place.name} is always {digits[1]}", lighter, facts=facts)


def _counted(script: BatchScript) -> set[str]:
    """Return the variables that the file counts on: a loop that looks for a free port begins with one."""
    text = "\n".join(script.lines)
    stepped = re.findall(r"\(\(\s*(\w+)(?:\+\+|\s*\+=)", text)
    return {*stepped, *re.findall(r"\b(\w+)=\$\(\(\s*\$?\1\b", text)}


def _ports(script: BatchScript) -> Iterator[StatedEndpoint]:
    for pattern, ending in ((PORT_NAMES, f"[^{HOLE}]*"), (r"(?:JAX_)?COORDINATOR_ADDR\w*", r".*:[0-9]+")):
        for one in script.assigned(pattern):
            if re.fullmatch(ending, one.value.text, re.DOTALL):
                yield StatedEndpoint(one.name, one.value, one.line, source=one.source)
    for launch in script.launches:
        for name in _PORT_OPTIONS:
            value = launch.options.get(name)
            if value is not None and (name != "rdzv_endpoint" or re.search(r":\d+$", value.text)):
                yield StatedEndpoint(f"--{name}", value, launch.line, source=launch.source)
        yield from _ports_in_words(launch)


def _ports_in_words(launch: LaunchedProgram) -> Iterator[StatedEndpoint]:
    words = launch.program
    is_ray = launch.name == "ray" and any(word.text == "--head" for word in words)
    is_server = bool(NEVER_ENDS.search(launch.command.text)) and launch.outermost.command.background
    for word, after in pairwise([*words, Word(Value(), "")]):
        key, equals, text = word.text.partition("=")
        if _PORT_WORDS.fullmatch(key) or (key == "--port" and (is_ray or is_server)):
            value = word.value.with_text(text) if equals else after.value
            if re.search(r"(?:^|:)\d+$", value.text):
                yield StatedEndpoint(key, value, launch.line, source=launch.source)


_PORT_WORDS = re.compile(
    r"--(?:master[-_](?:port|addr(?:ess)?)|main_process_port|dist[-_](?:url|port)|init[-_]method|"
    r"coordinator(?:[-_]addr(?:ess)?)?)"
)


def rendezvous_ids(script: BatchScript) -> Iterator[Finding]:
    """Find rendezvous ids that are the same in every job, or another on each node."""
    for launch in script.training:
        value = launch.options.get("rdzv_id")
        if value is not None and value.comes_from("RANDOM"):
            yield found("rdzv-id-random", launch, "--rdzv-id=$RANDOM")
        elif value is not None and value.fixed and "$" not in value.text:
            yield found("rdzv-id-fixed", launch, f"--rdzv-id={value.text}")


def world(script: BatchScript) -> Iterator[Finding]:
    """Find world sizes that don't follow the job."""
    if script.living and all(launch.launcher_name == "torchrun" for launch in script.living):
        return  # which gives its workers another
    if script.may_be_given(" ".join(re.findall(r"\bWORLD_SIZE=\S+", script.code))):
        return
    for one in script.assigned("WORLD_SIZE"):
        if one.exported and one.value.fixed and (number(one.value.text) or 0) > 1:
            yield found("world-size-fixed", one, f"WORLD_SIZE is always {one.value.text}")


_RANK = re.compile(
    r"(?i)(?:\b|_|--?)(?:node[-_]|machine[-_]|local[-_]|group[-_]|global[-_])?(?:rank|id)[\"']?[ =]+[\"']?0\b"
)


def ranks(script: BatchScript) -> Iterator[Finding]:
    """Find ranks that the batch shell numbers, before there are any."""
    steps = [one for one in script.launches if one.srun is not None and script.starts_several(one)]
    early = next(filter(_is_numbered_early, (one for one in steps if not one.command.dead)), None)
    if early is not None:
        name = next(name for name in SLURM_PLACE if any(word.value.comes_from(name) for word in early.command.words))
        # With a c10d rendezvous torchrun numbers nodes itself. In --rdzv_conf the word has no effect.
        numbers = re.search(r"--[\w-]*backend\W*c10d", early.command.text)
        harmless = numbers and not re.search(r"(?i)(?<![-_a-z])(?:local_)?rank=0", early.command.text)
        lighter = Severity.NOTE if harmless else None
        yield found("rank-expanded-early", early, f"${name} is 0 here, for every rank", lighter)
    else:
        yield from _exported_ranks(script)
    for at, line in enumerate(script.lines, 1):
        path = _PATH_OF_A_RANK.match(line)
        on_own_disk = path is not None and path[2] == "SLURM_NODEID" and LOCAL_DISK.match(path[1])
        if path and not on_own_disk and any(one.trains and one.line > at for one in steps):
            yield Finding("rank-expanded-early", at, f"{line.strip()[:60]}: the same for every rank", Severity.WARNING)
            return


def _is_numbered_early(launch: LaunchedProgram) -> bool:
    """Srun torchrun --node_rank $SLURM_NODEID; srun bash -c "… RANK=$SLURM_PROCID …"."""
    of_a_rank = any(word.value.comes_from(*SLURM_PLACE) for word in launch.command.words)
    return of_a_rank and not launch.command.variables.in_step and _RANK.search(launch.command.text) is not None


# export FILE=out-$SLURM_NODEID.json in the batch shell.
_PATH_OF_A_RANK = re.compile(
    r"\s*export \w+=\"?(?=[^'\"#\s]*[./-])([^'\"#\s]*)\$\{?(SLURM_NODEID|SLURM_PROCID|SLURM_LOCALID)\b"
)


def _exported_ranks(script: BatchScript) -> Iterator[Finding]:
    """Find RANK=$SLURM_PROCID in the batch shell, which every rank inherits."""
    steps = [one for one in script.training if one.srun is not None and script.starts_several(one)]
    for one in script.assigned("RANK|LOCAL_RANK|NODE_RANK|GROUP_RANK"):
        if not (one.exported and one.value.text == "0" and one.value.comes_from(*SLURM_PLACE)):
            continue
        inherits = (step for step in steps if step.place > one.line or one.source)
        inherits = (step for step in inherits if step.environment(one.name) == one.value)
        first = next(inherits, None)
        if first and first.launcher_name in ("", *(["composer"] if one.name == "NODE_RANK" else [])):
            yield found("rank-expanded-early", one, f"{one.text[:60]}: 0 for every rank")
