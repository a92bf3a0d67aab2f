"""The stand-ins `vipu` and `vipu-admin`: partitions of the miniature controller (create, list, get, remove, reset).

An administrator sees everybody's partitions, and the agents and clusters; `vipu` those of its user.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Dict, Iterator, List, NoReturn, Tuple

from standins.pod import Refused, tables
from standins.pod.server import Server

VERSION = "1.18.0"
# What the real one prints for the fabric's drivers, of which there is nothing here.
_CONFIGS = ("--ipu-configs", "--ipuof-configs")
_LISTS = ["partitions", "allocations", "ipu-attrs"]
_ADMIN_LISTS = ["agents", "clusters"]
# An IPU-Machine has four IPUs, and an agent.
_AGENT_IPUS = 4
# IPUs that one IPU-Link domain connects.
_DOMAIN_IPUS = 64


def main(words: List[str], is_admin: bool = False) -> int:
    """Return 0, or 1 with the reason on standard error."""
    if "--server-version" in words:
        _say("version: %s (a stand-in on this machine)" % VERSION)
        return 0
    try:
        return _answer(_parser(is_admin).parse_args(words), is_admin)
    except Refused as refused:
        sys.stderr.write("Error: %s\n" % refused)
        return 1


def admin(words: List[str]) -> int:
    """Do the same for the administrator."""
    return main(words, is_admin=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused("%s: %s" % (self.prog, message))


def _parser(is_admin: bool) -> argparse.ArgumentParser:
    parser = _Parser(prog="vipu-admin" if is_admin else "vipu", allow_abbrev=False)
    parser.add_argument("-H", "--api-host", default=os.environ.get("VIPU_CLI_API_HOST"))
    parser.add_argument("--timeout", type=float, default=120.0)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)
    create = verbs.add_parser("create")
    _create(create)
    listed = verbs.add_parser("list")
    listed.add_argument("what", choices=_LISTS + (_ADMIN_LISTS if is_admin else []))
    listed.add_argument("-H", "--api-host")
    for verb in ("get", "remove", "reset"):
        one = verbs.add_parser(verb)
        one.add_argument("what", choices=["partition"])
        one.add_argument("name")
        one.add_argument("-H", "--api-host")
        one.add_argument("--gcd", type=int)
        for flag in _CONFIGS:
            one.add_argument(flag, action="store_true")
    return parser


def _create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["partition"])
    parser.add_argument("name")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--reconfigurable", action="store_true")
    parser.add_argument("--allocation", "--cluster")
    parser.add_argument("--num-gcds", type=int, dest="gcds")
    parser.add_argument("--gcd-sync-replicas", type=int)
    parser.add_argument("--total-num-replicas", type=int)
    parser.add_argument("--sync-type")
    parser.add_argument("--routing")
    parser.add_argument("--index", type=int)


def _answer(arguments: argparse.Namespace, is_admin: bool) -> int:
    server = Server(arguments.timeout, is_admin)
    for flag in _CONFIGS:
        if getattr(arguments, flag[2:].replace("-", "_"), False):
            sys.stderr.write("vipu: option %s has no meaning on this machine: ignored\n" % flag)
    if arguments.verb == "create":
        more = {name: getattr(arguments, name) for name in ("reconfigurable", "allocation", "gcds", "sync_type")}
        server.create(arguments.name, arguments.size, **more)
        _say("create partition (%s): success." % arguments.name)
    elif arguments.verb == "list":
        _list(arguments.what, server)
    elif arguments.verb == "get":
        _get(arguments.name, server)
    else:
        (server.remove if arguments.verb == "remove" else server.reset)(arguments.name)
        _say("%s partition (%s): success." % (arguments.verb, arguments.name))
    return 0


def _list(what: str, server: Server) -> None:
    site = server.site()
    agents = ["ag%d" % number for number in range(-(-site["ipus"] // _AGENT_IPUS))]
    if what == "allocations":
        lines = tables.ruled(
            ("Allocation ID", "Agents"), [(name, " ".join(agents)) for name in site["allocations"]], rule_above=True
        )
    elif what == "ipu-attrs":
        lines = tables.ruled(("Agent", "IPU", "Attribute", "Value"), list(_attributes(site["ipus"])))
    elif what == "agents":
        lines = tables.ruled(("Agent", "IPUs"), [(name, str(_AGENT_IPUS)) for name in agents])
    elif what == "clusters":
        clusters = [(name, " ".join(agents), str(site["ipus"])) for name in site["allocations"]]
        lines = tables.ruled(("Cluster", "Agents", "IPUs"), clusters)
    else:
        heads = ("Partition", "Cluster", "ILDs", "GW Routing", "ILD Routing", "Size", "GCDs", "State")
        lines = tables.ruled(heads, [_of_partition(name, one) for name, one in sorted(server.visible().items())])
    for line in lines:
        _say(line)


def _attributes(ipus: int) -> Iterator[Tuple[str, ...]]:
    for number in range(ipus):
        agent, ipu = "ag%d" % (number // _AGENT_IPUS), number % _AGENT_IPUS
        yield (agent if ipu == 0 else "", str(ipu), "board ipu index", str(_AGENT_IPUS - 1 - ipu))
        yield ("", "", "board type", "M2000")
        yield ("", "", "ipu architecture", "ipu2")


def _of_partition(name: str, one: Dict[str, Any]) -> Tuple[str, ...]:
    domains = max(1, one["size"] // _DOMAIN_IPUS)
    state = one["state"].replace("PS_", "")
    routing = ("DEFAULT", "RINGSWNC" if one["size"] >= _DOMAIN_IPUS else "DNC")
    return (name, one["allocation"], str(domains), *routing, str(one["size"]), str(one["gcds"]), state)


def _get(name: str, server: Server) -> None:
    found = server.get(name)
    if found is None:
        raise Refused("partition '%s' not found" % name)
    facts = {
        "Name": name,
        "Size": found["size"],
        "Allocation": found["allocation"],
        "Reconfigurable": "yes" if found["reconfigurable"] else "no",
        "GCDs": found["gcds"],
        "Sync type": found["sync_type"],
        "State": found["state"],
    }
    for key, value in facts.items():
        _say("%-16s %s" % (key + ":", value))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
