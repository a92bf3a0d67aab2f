"""The stand-in `vipu`: partitions of the controller in small (vipu create|list|get|remove|reset)."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Dict, List, NoReturn

from trainjob.rehearse.standins.pod.refusal import Refused
from trainjob.rehearse.standins.pod.server import Server

VERSION = "1.18.0"
# What the real one prints for the fabric's drivers, of which there is nothing here.
_CONFIGS = ("--ipu-configs", "--ipuof-configs")


def main(words: List[str]) -> int:
    """Return 0, or 1 with the reason on standard error."""
    if "--server-version" in words:
        sys.stdout.write("version: %s (a stand-in on this machine)\n" % VERSION)
        return 0
    try:
        asked = _parser().parse_args(words)
        return _answer(asked)
    except Refused as refused:
        sys.stderr.write("Error: %s\n" % refused)
        return 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused("%s: %s" % (self.prog, message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="vipu", allow_abbrev=False)
    parser.add_argument("-H", "--api-host", default=os.environ.get("VIPU_CLI_API_HOST"))
    parser.add_argument("--timeout", type=float, default=120.0)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)
    create = verbs.add_parser("create")
    _create(create)
    listed = verbs.add_parser("list")
    listed.add_argument("what", choices=["partitions", "allocations", "ipu-attrs"])
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


def _answer(asked: argparse.Namespace) -> int:
    server = Server(asked.timeout)
    for flag in _CONFIGS:
        if getattr(asked, flag[2:].replace("-", "_"), False):
            sys.stderr.write("vipu: option %s has no meaning on this machine: ignored\n" % flag)
    if asked.verb == "create":
        more = {name: getattr(asked, name) for name in ("reconfigurable", "allocation", "gcds", "sync_type")}
        server.create(asked.name, asked.size, **more)
        _say("create partition (%s): success." % asked.name)
    elif asked.verb == "list":
        _list(asked.what, server)
    elif asked.verb == "get":
        _get(asked.name, server)
    else:
        (server.remove if asked.verb == "remove" else server.reset)(asked.name)
        _say("%s partition (%s): success." % (asked.verb, asked.name))
    return 0


def _list(what: str, server: Server) -> None:
    if what == "allocations":
        for name in server.site()["allocations"]:
            _say(name)
        return
    if what == "ipu-attrs":
        for number in range(server.site()["ipus"]):
            _say("IPU %d" % number)
        return
    _say(_row("Name", "Allocation", "Size", "GCDs", "State"))
    for name, one in sorted(server.visible().items()):
        _say(_row(name, one["allocation"], one["size"], one["gcds"], one["state"]))


def _row(*cells: Any) -> str:
    return "  ".join("%-16s" % cell for cell in cells).rstrip()


def _get(name: str, server: Server) -> None:
    found = server.get(name)
    if found is None:
        raise Refused("partition '%s' not found" % name)
    for key, value in _facts(name, found).items():
        _say("%-16s %s" % (key + ":", value))


def _facts(name: str, one: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "Name": name,
        "Size": one["size"],
        "Allocation": one["allocation"],
        "Reconfigurable": "yes" if one["reconfigurable"] else "no",
        "GCDs": one["gcds"],
        "Sync type": one["sync_type"],
        "State": one["state"],
    }


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
