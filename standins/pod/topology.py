"""Places instances on hosts and IPUs: the guide's division rules, and the table that poprun prints."""

from __future__ import annotations

import re
from typing import Iterable, Iterator, List, NamedTuple

from standins.pod import Refused
from standins.pod.options import Options

IPUS_PER_REPLICA = (1, 2, 4, 8, 16)
_IPUS_PER_ILD = 64
_ENTRY = re.compile(r"([^\[\],]+)(?:\[([0-9,-]+)\])?(?:,|$)")


class Instance(NamedTuple):
    """One process. Replicas are numbered across all instances."""

    number: int
    host: str
    local_index: int
    on_host: int
    first_replica: int
    replicas: int
    ild: int


class Topology(NamedTuple):
    """All instances, in order."""

    hosts: List[str]
    ilds: int
    replicas: int
    ipus_per_replica: int
    instances: List[Instance]

    @property
    def ipus(self) -> int:
        """IPUs in use."""
        return self.replicas * self.ipus_per_replica


def topology(options: Options) -> Topology:
    """Return which instance runs where. Raises Refused with the rule that is broken."""
    replicas, count = options.counted("num-replicas"), options.counted("num-instances")
    each = options.counted("ipus-per-replica")
    hosts = _hosts(options.text("host") or "localhost")
    ilds = options.number("num-ilds") or -(-replicas * each // _IPUS_PER_ILD)
    _check(replicas, count, each, len(hosts), ilds)
    instances = [_instance(index, count, replicas, hosts, ilds) for index in range(count)]
    return Topology(hosts, ilds, replicas, each, instances)


def _hosts(text: str) -> List[str]:
    """Return every host of a list as poprun reads it: a,b or host[0-2,4]. Raises Refused."""
    names: List[str] = []
    at = 0
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None:
            raise Refused("option --host: '%s' can't be read from '%s' on" % (text, text[at:]))
        names.extend(_names(match.group(1), match.group(2)))
        at = match.end()
    if len(set(names)) != len(names) or not names:
        raise Refused("option --host: '%s' names no host, or one twice" % text)
    return names


def _names(stem: str, ranges: str) -> Iterator[str]:
    if not ranges:
        yield stem
        return
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield stem + str(number).zfill(len(first))


def _check(replicas: int, count: int, each: int, hosts: int, ilds: int) -> None:
    if each not in IPUS_PER_REPLICA:
        raise Refused("ipus-per-replica must be 1, 2, 4, 8 or 16, and is %d" % each)
    if count > replicas:
        raise Refused("every instance needs at least one replica: %d instances, %d replicas" % (count, replicas))
    if replicas % count:
        raise Refused("num-replicas (%d) is not divisible by num-instances (%d)" % (replicas, count))
    if count % hosts:
        raise Refused("num-instances (%d) is not divisible by the number of hosts (%d)" % (count, hosts))
    if ilds > count:
        raise Refused("every ILD needs at least one instance: %d ILDs, %d instances" % (ilds, count))


def _instance(index: int, count: int, replicas: int, hosts: List[str], ilds: int) -> Instance:
    here = count // len(hosts)
    each = replicas // count
    return Instance(index, hosts[index // here], index % here, here, index * each, each, index * ilds // count)


def table(layout: Topology) -> Iterator[str]:
    """Yield the lines of the topology table."""
    rows = {
        "hosts": layout.hosts,
        "ILDs": [str(ild) for ild in range(layout.ilds)],
        "instances": [str(one.number) for one in layout.instances],
        "replicas": [str(replica) for replica in range(layout.replicas)],
    }
    width = _width(rows.values())
    line = width + len("| instances |") + 1
    yield " " + "=" * (line - 2)
    yield "|" + "poprun topology".center(line - 2) + "|"
    for number, (name, cells) in enumerate(rows.items()):
        yield "|" + ("=" if number == 0 else "-") * (line - 2) + "|"
        yield "| %-9s |%s|" % (name, _cells(cells, width))
    yield " " + "-" * (line - 2)


def _width(rows: Iterable[List[str]]) -> int:
    return max((max(len(cell) for cell in cells) + 3) * len(cells) - 1 for cells in rows)


def _cells(cells: List[str], width: int) -> str:
    # The remainder goes to the first cells, one character each.
    room = width - (len(cells) - 1)
    each, more = divmod(room, len(cells))
    return "|".join(cell.center(each + (number < more)) for number, cell in enumerate(cells))
