"""The stand-ins `gc-monitor`, `gc-info` and `gc-inventory`: the IPUs of a partition and the processes attached to them.

Tables and lists are laid out as Graphcore's command line tools print them; what only hardware could say reads "N/A".
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from standins.pod import Refused, tables
from standins.pod.server import FOLDER, Server, user

_PARTITION = "IPUOF_VIPU_API_PARTITION_ID"
_NOT_KNOWN = "N/A"
_BOARDS = (13, 20, 8, 14, 10, 6, 4, 6, 7)
_PROCESSES = (8, 18, 8, 13, 4, 10, 8, 8, 8)
_TICKS_S = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process that poprun has started, and the IPUs of its partition that it uses."""

    pid: int
    command: str
    age_s: float
    ipus: range


def gc_monitor(words: List[str]) -> int:
    """Print the boards of the active partition, or of all, and the processes attached to them."""
    parser = _Parser(prog="gc-monitor", allow_abbrev=False)
    parser.add_argument("--all-partitions", action="store_true")
    parser.add_argument("--no-card-info", action="store_true")
    return _reporting(parser, words, _monitor)


def gc_info(words: List[str]) -> int:
    """Print a list of devices, or what is known of one."""
    parser = _Parser(prog="gc-info", allow_abbrev=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-l", "--list-devices", action="store_true")
    what.add_argument("-i", "--device-info", action="store_true")
    what.add_argument("--ipu-count", action="store_true")
    what.add_argument("--ipu-arch", action="store_true")
    parser.add_argument("-d", "--device-id", type=int)
    parser.add_argument("--all-partitions", action="store_true")
    return _reporting(parser, words, _info)


def gc_inventory(words: List[str]) -> int:
    """Print the attributes of every IPU of the active partition."""
    return _reporting(_Parser(prog="gc-inventory", allow_abbrev=False), words, _inventory)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused("%s (a stand-in): %s" % (self.prog, message))


def _reporting(
    parser: argparse.ArgumentParser, words: List[str], act: Callable[[argparse.Namespace], Iterable[str]]
) -> int:
    try:
        for line in act(parser.parse_args(words)):
            sys.stdout.write(line + "\n")
    except Refused as refused:
        sys.stderr.write("%s\n" % refused)
        return 1
    return 0


def _partitions(every: bool) -> List[Tuple[str, Dict[str, Any]]]:
    """Return the active partition, which the environment names or which comes first; after it the others of `every`."""
    visible = Server().visible()
    named = os.environ.get(_PARTITION)
    if named and named not in visible:
        raise Refused("partition '%s' not found: vipu list partitions shows those there are" % named)
    ordered = sorted(visible.items(), key=lambda item: (item[0] != named, item[0]))
    if not ordered:
        raise Refused("no partition is active: vipu create partition makes one")
    return ordered if every else ordered[:1]


def _monitor(options: argparse.Namespace) -> Iterator[str]:
    for number, (name, partition) in enumerate(_partitions(options.all_partitions)):
        if not options.no_card_info:
            yield from _boards(name, partition, is_active=number == 0)
            yield ""
        yield from _attached(name)


def _boards(name: str, partition: Dict[str, Any], is_active: bool) -> Iterator[str]:
    kind = "reconfigurable IPUs" if partition["reconfigurable"] else "IPUs"
    title = "Partition: %s%s has %d %s" % (name, " [active]" if is_active else "", partition["size"], kind)
    yield from tables.titles([("gc-monitor", 15), (title, sum(_BOARDS) + len(_BOARDS) - 17)])
    heads = ("IPU-M", "Serial", "IPU-M SW", "Server version", "ICU FW", "Type", "ID", "IPU#", "Routing")
    yield from tables.boxed(_BOARDS, heads, [_board(ipu) for ipu in range(partition["size"])], group_by=0)


def _board(ipu: int) -> Sequence[str]:
    return (
        _machine(ipu),
        _serial(ipu),
        _NOT_KNOWN,
        _NOT_KNOWN,
        _NOT_KNOWN,
        "M2000",
        str(ipu),
        str(_number_in_machine(ipu)),
        "DNC",
    )


def _attached(name: str) -> Iterator[str]:
    rows = [
        (str(one.pid), one.command, "%ds" % one.age_s, user(), str(ipu), _NOT_KNOWN, _NOT_KNOWN, _NOT_KNOWN, _NOT_KNOWN)
        for one in attached(name)
        for ipu in one.ipus
    ]
    if not rows:
        yield "No attached processes in partition %s" % name
        return
    left, ipu, board = sum(_PROCESSES[:4]) + 3, sum(_PROCESSES[4:7]) + 2, sum(_PROCESSES[7:]) + 1
    yield from tables.titles([("Attached processes in partition %s" % name, left), ("IPU", ipu), ("Board", board)])
    heads = ("PID", "Command", "Time", "User", "ID", "Clock", "Temp", "Temp", "Power")
    yield from tables.boxed(_PROCESSES, heads, rows)


def attached(name: str) -> List[Process]:
    """Return the instances that poprun has started in partition `name` of this controller, by their first IPU."""
    first: Dict[int, Process] = {}
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        environ = _environ(pid)
        if environ.get(_PARTITION) == name and environ.get(FOLDER) == os.environ.get(FOLDER):
            one = _process(pid, environ)
            # What an instance starts has its environment.
            if one is not None and one.ipus.start not in first:
                first[one.ipus.start] = one
    return [first[start] for start in sorted(first)]


def _environ(pid: int) -> Dict[str, str]:
    try:
        pairs = Path("/proc/%d/environ" % pid).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def _process(pid: int, environ: Dict[str, str]) -> Optional[Process]:
    names = ("POPDIST_REPLICA_INDEX_OFFSET", "POPDIST_NUM_LOCAL_REPLICAS", "POPDIST_NUM_IPUS_PER_REPLICA")
    try:
        offset, replicas, ipus = (int(environ[name]) for name in names)
        fields = Path("/proc/%d/stat" % pid).read_text(errors="replace").rpartition(")")[2].split()
        command = Path("/proc/%d/comm" % pid).read_text(errors="replace").strip()
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS_S
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return Process(pid, command, max(0.0, age_s), range(offset * ipus, (offset + replicas) * ipus))


def _machine(ipu: int) -> str:
    return "10.1.5.%d" % (10 + ipu // 4)


def _serial(ipu: int) -> str:
    return "0000.000%d.%07d" % (2 - ipu % 4 // 2, ipu // 4)


def _number_in_machine(ipu: int) -> int:
    return 3 - ipu % 4


def _info(options: argparse.Namespace) -> Iterator[str]:
    listed = _partitions(options.all_partitions)
    size = int(listed[0][1]["size"])
    if options.list_devices:
        yield "Graphcore device listing:"
        for number, (name, partition) in enumerate(listed):
            yield "Partition: %s%s" % (name, " [active]" if number == 0 else "")
            yield from _devices(int(partition["size"]))
    elif options.ipu_count:
        yield str(size)
    elif options.ipu_arch:
        yield "ipu2"
    else:
        if options.device_id is None or not 0 <= options.device_id < size:
            raise Refused("gc-info: --device-id is %s, and there are IPUs 0 to %d" % (options.device_id, size - 1))
        yield from _attributes(listed[0][0], options.device_id)


def _devices(size: int) -> Iterator[str]:
    """Yield every device: each IPU, then the groups of 2, 4, 8, … IPUs that a model can use."""
    for ipu in range(size):
        yield "-+- Id: [%d], target: [Fabric], %s" % (ipu, _place(ipu))
    number, width = size, 2
    while width <= size:
        for start in range(0, size, width):
            yield "-+- Id: [%d], target: [Multi IPU]" % number
            for ipu in range(start, start + width):
                yield " |--- Id: [%d], DNC Id: [%d], %s" % (ipu, ipu - start, _place(ipu))
            number += 1
        width *= 2


def _place(ipu: int) -> str:
    return "IPU-M host: [%s], IPU#: [%d]" % (_machine(ipu), _number_in_machine(ipu))


def _inventory(options: argparse.Namespace) -> Iterator[str]:  # noqa: ARG001 - every program is called alike
    name, partition = _partitions(every=False)[0]
    for ipu in range(partition["size"]):
        yield from _attributes(name, ipu)


def _attributes(partition: str, ipu: int) -> Iterator[str]:
    user_of = next((one for one in attached(partition) if ipu in one.ipus), None)
    facts: Dict[str, Any] = {
        "id": ipu,
        "target": "Fabric",
        "board ipu index": _number_in_machine(ipu),
        "board serial number": _serial(ipu),
        "board type": "M2000",
        "ipu architecture": "ipu2",
        "partition": partition,
    }
    if user_of is not None:
        facts.update({"user executable": user_of.command, "user name": user(), "user process id": user_of.pid})
    yield "Device Info:"
    for key, value in facts.items():
        yield "  %s: %s" % (key, value)
