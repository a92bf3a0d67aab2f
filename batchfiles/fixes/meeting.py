"""Edits of where ranks meet: addresses, ports, the numbers of ranks."""

from __future__ import annotations

import re

from batchfiles.bash.expansion import text_of
from batchfiles.fixes.lines import TORCHRUN, Edit, directive_named, exported, replaced, spliced, with_before, with_line
from batchfiles.rules.codes import Finding
from batchfiles.slurm.launches import option
from batchfiles.slurm.script import BatchScript, nodes_of

FIRST_HOST = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
FIRST_HOST_IN_QUOTES = FIRST_HOST.replace('"', "")
_PORTS = tuple(
    f"$(({first} + SLURM_JOB_ID % {count}))" for first, count in ((20000, 20000), (40000, 20000), (10000, 10000))
)


def own_port(script: BatchScript) -> str:
    """Return a number that is the job's own, and no other port of the file."""
    text = "\n".join(script.lines)
    return next((port for port in _PORTS if port not in text), _PORTS[0])


def _first_host(script: BatchScript, one: Finding) -> str | None:
    return _with_value(script, one, FIRST_HOST)


def _with_value(script: BatchScript, one: Finding, new: str) -> str | None:
    """Return the text with another value of the variable that a fault names first, in its line."""
    for node in nodes_of(script.root, "variable_assignment"):
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if (
            name is not None
            and text_of(name) == one.facts.get("name")
            and value is not None
            and node.start_point.row + 1 == one.line
        ):
            return spliced(script, value.start_byte, value.end_byte, new)
    return None


# An assignment's $(… hostname …): a port behind it stays, and a variable that is made of it.
_ASKS_HOSTNAME = (
    r"^(\s*(?:export\s+)?\w+=)(\"?)(?:\$\((?:[^()]|\$\([^()]*\))*\bhostname\b[^()]*\)|`[^`]*\bhostname\b[^`]*`)"
    r"(?:\2(?=\s|;|$)|(?=:))"
)


def _host_for_address(match: re.Match[str]) -> str:
    quote = match[2] if match.string[match.end() :].startswith(":") else ""
    return f"{match[1]}{quote}{FIRST_HOST}"


def _address(script: BatchScript, one: Finding) -> str | None:
    """Set the variable that is never set, before the line that needs it."""
    if "kept_back" in one.facts:
        return exported(script, one.facts["kept_back"])
    if "never_set" not in one.facts:
        return None
    at = script.header.first_command or one.line
    start = min(at, one.line) - 1
    while start > 0 and script.lines[start - 1].endswith("\\"):
        start -= 1
    return with_before(script, start + 1, f"export {one.facts['never_set']}={FIRST_HOST}")


def _port(script: BatchScript, one: Finding) -> str | None:
    name, port = one.facts["name"], one.facts["port"]
    stated = re.compile(rf"^(?!\s*(?:#|echo|printf)).*(?<![\w.]){port}(?![\w.])")
    places = [at for at, line in enumerate(script.lines) if stated.match(line)]
    if len(places) > 1:
        return _ports_at(script, port, places)
    if name == "--port" and not (places and _is_told(script, script.lines[places[0]])):
        return None  # who asks this server has its port from elsewhere
    line, new = script.lines[one.line - 1], own_port(script)
    if (given := re.sub(rf"(=\"?\$\{{\w+:-){port}(?=\}})", rf"\g<1>{new}", line)) != line:
        return with_line(script, one.line, given)
    if re.match(r"\w*(?i:port)", name) and (text := _with_value(script, one, new)) is not None:
        return text
    own = re.compile(rf"\$\{{\w+:-{port}\}}|\"{port}\"|(?<![\w.]){port}(?![\w.])")
    for number in [*range(one.line, min(one.line + 12, len(script.lines)) + 1), *range(1, one.line)]:
        line = script.lines[number - 1]
        if not line.lstrip().startswith("#") and own.search(line):
            return with_line(script, number, own.sub(lambda _match: new, line, count=1))
    return None


def _is_told(script: BatchScript, line: str) -> bool:
    """Return whether a line sets a variable that others read, too."""
    name = re.match(r"\s*(export\s+)?(\w+)=", line)
    return name is not None and (
        name[1] is not None or len(re.findall(rf"\$\{{?{name[2]}\b", "\n".join(script.lines))) > 1
    )


def _ports_at(script: BatchScript, port: str, places: list[int]) -> str | None:
    """Return the text with the job's own port in several lines; None unless each says that it is a port, to a shell."""
    lines, new = list(script.lines), own_port(script)
    is_port = re.compile(rf"((?i:port)\w*[= ]\"?|[\w}})]\"?:){port}(?![\w.])")
    for at in places:
        lines[at], count = is_port.subn(lambda found: found[1] + new, lines[at])
        if count != len(re.findall(rf"(?<![\w.]){port}(?![\w.])", script.lines[at])) or "'" in lines[at]:
            return None
    quoted = (node for node in nodes_of(script.root, "heredoc_body", "raw_string"))
    within = {row for node in quoted for row in range(node.start_point.row, node.end_point.row + 1)}
    return None if within & {*places} else "\n".join(lines)


def has_a_line_a_node(script: BatchScript) -> bool:
    """Return whether each node of one training has a line of its own: mended alone, each line would be all of it."""
    ranks = (option(launch.launcher, "node_rank", "machine_rank") for launch in script.training)
    return len({rank.text for rank in ranks if rank is not None and rank.fixed}) > 1


def _first_host_in_words(script: BatchScript, one: Finding) -> str | None:
    lacks = one.facts.get("lacks", "")
    if lacks == "--network=host":
        return replaced(r"\b(docker|podman) run\b", r"\1 run --network=host")(script, one)
    endpoint = f'--rdzv-endpoint="{FIRST_HOST_IN_QUOTES}:{own_port(script)}"'
    if lacks == "--master-addr":
        return (
            None
            if has_a_line_a_node(script)
            else replaced(TORCHRUN, rf"\1 --rdzv-backend=c10d {endpoint}")(script, one)
        )
    if lacks == "--rdzv-endpoint":
        return replaced(r"(--rdzv[-_]backend[= ]c10d)", rf"\1 {endpoint}")(script, one)
    if (text := _first_host(script, one)) is not None:
        return text
    return replaced(r"(?<=[= \"/])(?:localhost|127\.[0-9.]+|0\.0\.0\.0)(?=[:\s\"]|$)", FIRST_HOST)(script, one)


def _world_size(script: BatchScript, one: Finding) -> str | None:
    """Count the tasks, whose number the batch shell has only where a directive states it."""
    if directive_named(script, "ntasks", "ntasks-per-node") is None:
        return None
    return replaced(r"(WORLD_SIZE)=\S+", r"\1=$SLURM_NTASKS")(script, one)


SAFE: dict[str, Edit] = {
    "addr-undefined": _address,
    "addr-localhost": _first_host_in_words,
    "addr-hostname-ip": replaced(_ASKS_HOSTNAME, _host_for_address),
    "addr-from-compressed-list": _first_host,
    "addr-batch-host": replaced(
        r"=\"?(?:\$\(hostname(?: -[-\w]+)?\)|`hostname(?: -[-\w]+)?`)\"?(?=\s*(?:#.*)?$)", f"={FIRST_HOST}"
    ),
    "addr-guessed-from-name": _first_host,
    "port-fixed": _port,
    "rdzv-id-fixed": replaced(r"(--rdzv[-_]id[= ])\S+", r"\1$SLURM_JOB_ID"),
    "rdzv-id-random": replaced(r"(--rdzv[-_]id[= ])\S+", r"\1$SLURM_JOB_ID"),
}
UNSAFE: dict[str, Edit] = {
    "world-size-fixed": _world_size,
}
