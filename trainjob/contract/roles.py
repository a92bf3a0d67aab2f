"""The roles of a job: servers, and the one role that needs them, which is the job's own command.

Two shapes are known: servers with those that need them, and a role that drives a Ray cluster of its own, which may be
the only one. All else is refused.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from trainjob.contract.errors import RuleError

# Settings of the job itself, which the role that needs the servers may state in its place.
OF_JOB = ("command", "command_per", "hosts", "instances", "task")
OF_SERVERS = ("command", "env", "gpus", "hosts", "needs", "ray", "ready", "ready_timeout_s", "restarts")
READY_TIMEOUT_S = 600.0
FILE = "file:"
# It is part of a folder's name and of a variable's.
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_READY = re.compile(r"https?://\{host\}:\{port\}(/[!-~]*)?|\{host\}:\{port\}|file:[A-Za-z0-9_][A-Za-z0-9._-]*")
_READY_WORDS = 'ready: "http://{host}:{port}/health", "{host}:{port}" or file:NAME'


class Server(NamedTuple):
    """A server: what runs on its hosts, one process each, and how it is known to be ready."""

    name: str
    command: List[str]
    hosts: int
    needs: List[str]
    ready: str  # an address for HTTP or TCP with {host} and {port}, or file:NAME in the role's folder
    ready_timeout_s: float
    restarts: int
    env: Dict[str, str]
    has_ray: bool = False
    gpus: Optional[int] = None  # of each host of the job, which it shares; None: it has hosts of its own


class Roles(NamedTuple):
    """The roles of a job. `servers` come in the order in which they start; `main` is what needs them."""

    main: str = ""
    needs: Sequence[str] = ()
    servers: Sequence[Server] = ()
    has_ray: bool = False  # of main
    ready_timeout_s: float = READY_TIMEOUT_S  # of main's Ray

    @property
    def shared_gpus(self) -> int:
        """The GPUs of each of the job's hosts that its servers take."""
        return sum(server.gpus or 0 for server in self.servers)


def variable(name: str) -> str:
    """Return the environment variable that has the address of a server, as host:port."""
    return "TRAINJOB_ROLE_" + name.upper()


def with_address(command: Sequence[str], address: str) -> List[str]:
    """Return a server's command with its own address, host:port, in place of {host} and {port}."""
    host, _, port = address.rpartition(":")
    return [word.replace("{host}", host).replace("{port}", port) for word in command]


def main_of(roles: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the role that no other needs. Raises RuleError unless there is exactly one."""
    for name, keys in roles.items():
        needs = keys.get("needs") or []
        if not isinstance(needs, (list, tuple)):
            raise RuleError("%s.needs is %r, expected names of roles" % (name, needs), "write needs: [%s]" % needs)
    if len(roles) < 2 and not any(keys.get("ray") for keys in roles.values()):
        cure = "add the servers that it needs, or ray: true, or give its command as that of the job, without roles"
        raise RuleError("%s is the only role" % ", ".join(roles), cure)
    needed = {name for keys in roles.values() for name in keys.get("needs") or ()}
    for name, keys in roles.items():
        for other in keys.get("needs") or ():
            if other not in roles or other == name:
                known = " or ".join(role for role in roles if role != name)
                raise RuleError("%s needs %s, which is no other role" % (name, other), "it can need %s" % known)
    free = [name for name in roles if name not in needed]
    if not free:
        raise RuleError("every role needs another in turn: %s" % ", ".join(roles), "take one of the needs out")
    if len(free) > 1:
        both = " and ".join(free)
        cure = "let one of them need the other, or submit a job for each: roles are servers and the one that needs them"
        raise RuleError("%s are needed by no other role, and a job has one such role" % both, cure)
    return free[0]


def parse(roles: Mapping[str, Mapping[str, Any]]) -> Roles:
    """Return the roles of a job. Raises RuleError for a shape or a key that is not supported."""
    if not roles:
        return Roles()
    main = main_of(roles)
    for key in roles[main]:
        of_ray = key == "ray" or (key == "ready_timeout_s" and roles[main].get("ray"))
        if key != "needs" and key in OF_SERVERS and key not in OF_JOB and not of_ray:
            cure = "write env beside roles" if key == "env" else "take it out: it is for roles that others need"
            raise RuleError("%s.%s is stated, and no other role needs %s" % (main, key, main), cure)
    servers = {name: _server(name, keys) for name, keys in roles.items() if name != main}
    needs, has_ray = tuple(roles[main].get("needs") or ()), _has_ray(main, roles[main])
    return Roles(main, needs, _in_order(servers), has_ray, _ready_timeout_s(main, roles[main]))


def _server(name: str, keys: Mapping[str, Any]) -> Server:
    for key in keys:
        if key not in OF_SERVERS:
            raise RuleError(
                "%s.%s is stated" % (name, key), "a server is one process on each of its hosts: take it out"
            )
    command, ready = keys.get("command"), keys.get("ready")
    hosts, restarts, gpus = keys.get("hosts", 1), keys.get("restarts", 0), keys.get("gpus")
    timeout_s, env = _ready_timeout_s(name, keys), keys.get("env") or {}
    if not isinstance(command, list) or not command:
        text = "%s.command is %s, expected the words of a command" % (name, _shown(command))
        raise RuleError(text, "write command: [python, serve.py]")
    if not isinstance(ready, str) or not _READY.fullmatch(ready):
        text = "%s.ready is %s, and others start when it is ready" % (name, _shown(ready))
        raise RuleError(text, "write " + _READY_WORDS)
    for key, value, least in (("hosts", hosts, 1), ("restarts", restarts, 0), ("gpus", 0 if gpus is None else gpus, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            text = "%s.%s is %r, expected a whole number, at least %d" % (name, key, value, least)
            raise RuleError(text, "write %s: %d" % (key, least))
    if not isinstance(env, dict):
        raise RuleError("%s.env is %r, expected names with values" % (name, env), "write env: {NAME: value}")
    texts = {str(key): str(value) for key, value in env.items()}
    needs, has_ray = list(keys.get("needs") or ()), _has_ray(name, keys)
    return Server(name, command, hosts, needs, ready, timeout_s, restarts, texts, has_ray, gpus)


def _ready_timeout_s(name: str, keys: Mapping[str, Any]) -> float:
    timeout_s = keys.get("ready_timeout_s", READY_TIMEOUT_S)
    if not isinstance(timeout_s, (int, float)) or timeout_s <= 0:
        expected = "expected seconds, more than 0"
        raise RuleError("%s.ready_timeout_s is %r, %s" % (name, timeout_s, expected), "write ready_timeout_s: 600")
    return float(timeout_s)


def _has_ray(name: str, keys: Mapping[str, Any]) -> bool:
    ray = keys.get("ray", False)
    if not isinstance(ray, bool):
        raise RuleError("%s.ray is %r, expected true or false" % (name, ray), "write ray: true")
    return ray


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)


def _in_order(servers: Mapping[str, Server]) -> List[Server]:
    ordered: List[Server] = []
    while len(ordered) < len(servers):
        started = [role.name for role in ordered]
        free = [role for role in servers.values() if role.name not in started and set(role.needs) <= set(started)]
        if not free:
            left = ", ".join(name for name in servers if name not in started)
            raise RuleError("roles need each other in turn: %s" % left, "take one of the needs out")
        ordered += free
    return ordered
