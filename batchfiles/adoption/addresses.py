"""Addresses that a batch file has for what it starts, and what trainjob tells the training in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from batchfiles.adoption.found_roles import FoundRoles
from batchfiles.adoption.start import main_launch
from batchfiles.bash.expansion import text_of
from batchfiles.slurm.script import BatchScript

_HERE = r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\$\{?HOSTNAME\}?|\$\(hostname(?: -[a-zA-Z])?\))"
_APART = rf"(--?[\w-]*(?:host|addr|ip)[\w-]*[= ])['\"]?{_HERE}['\"]?(?!\S)"


class Address(NamedTuple):
    """An address: what the file has in its place, as patterns, and its variables, each with what the job has there."""

    variable: str
    patterns: dict[str, str]
    names: dict[str, str]


def address_in(script: BatchScript, variable: str, figure: str, sources: Iterable[tuple[str, str]]) -> Address:
    """Find an address in the file. `sources` are words that hold it, or its host or port."""
    whole, host, number = f"${variable}", f"${{{variable}%:*}}", f"${{{variable}##*:}}"
    parts = {"address": whole, "node-ip-address": host, "port": number}
    waiting = [(source, parts[name]) for name, source in sources]
    for one in script.assignments:
        value = one.text.partition("=")[2].strip("'\"")
        is_host = re.search(r"(?i)host|addr|ip$", one.name) and "MASTER" not in one.name and re.fullmatch(_HERE, value)
        if is_host or ("port" in one.name.lower() and one.value.known and one.value.text == figure):
            waiting.append((f"${one.name}", host if is_host else number))
    names, patterns = dict[str, str](), dict[str, str]()
    while waiting:
        source, stands = waiting.pop()
        name = re.fullmatch(r"\$\{?(\w+)\}?", source)
        if name is not None and name[1] not in names and not name[1].startswith("SLURM"):
            names[name[1]] = stands
            given = (one for one in script.assignments if one.name == name[1])
            waiting += [(one.text.partition("=")[2].strip("'\""), stands) for one in given]
        elif name is None and stands == whole and ":" in source:
            waiting += zip(source.rsplit(":", 1), (host, number), strict=True)
        elif re.fullmatch(r"\$\{\w+\[[^]]+\]\}", source):
            patterns[re.escape(source)] = stands
    hosts = [_HERE, *patterns, *(rf"\$\{{?{name}\}}?" for name, stands in names.items() if stands == host)]
    numbers = [rf"\$\{{?{name}\}}?" for name, stands in names.items() if stands == number]
    numbers += [figure if figure.isdigit() else "(?!)"]
    of_number = rf"(?:{'|'.join(numbers)})(?![\w.])"
    at_port = {
        rf"(?:{'|'.join(hosts)}):{of_number}": whole,
        rf"(--?[\w-]*port[= ]){of_number}": rf"\g<1>{number}",
        _APART: rf"\g<1>{host}",
    }
    return Address(variable, at_port | patterns, names)


def tell(found: FoundRoles, address: Address) -> str:
    """Put what trainjob tells in place of an address in the training's statement, and of variables made of them.

    Return the new text of the statement.
    """
    script, at = found.original, main_launch(found.script).command.at
    known = dict(address.names)
    given = {address.variable}

    def told(text: str) -> str:
        for pattern, stands in address.patterns.items():
            text = re.sub(pattern, stands, text)
        for name, stands in known.items():
            text = re.sub(rf"\$\{{{name}\}}|\${name}\b", stands.replace("\\", r"\\"), text)
        return text

    training = None
    for node in (one for one in found.left() if one.start_byte <= at):
        training, text = node, text_of(node)
        assigned = [one for one in script.assignments if node.start_byte <= one.at < node.end_byte and not one.source]
        if node.type in ("variable_assignment", "declaration_command", "variable_assignments"):
            for one in assigned:
                value = one.text.partition("=")[2].strip("'\"")
                if told(value) != value and "$(" not in value:
                    known.setdefault(one.name, told(value))
        is_export = re.match(r"export\s|declare -\w*x", text) is not None
        unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "''", text)
        bare = re.findall(r"(?<=\s)\w+(?=\s|$)", unquoted) if is_export else []
        names = {*(one.name for one in assigned), *bare}
        all_told = known.keys() | given
        if node.end_byte <= at and names & all_told and (names <= all_told or node.type == "if_statement"):
            found.take(node, f"{address.variable} has its address")
            found.exports |= {name: known[name] for name in names - given if is_export}
    found.told = told
    if training is None or training.end_byte <= at:
        return ""
    statement = bytes(found.text[at : training.end_byte]).decode()
    new = told(re.sub(r"\bRAY_ADDRESS=\S+\s+", "", statement) if found.has_ray else statement)
    found.write(at, training.end_byte, new.encode())
    return " ".join((new, *found.exports.values()))
