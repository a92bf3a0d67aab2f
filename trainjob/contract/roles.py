"""The roles of a job: servers, and the one role that needs them, which is the job's own command.

Two shapes are known: servers with those that need them, and a role that drives a Ray cluster of its own, which may be
the only one. All else is refused.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from trainjob.contract.errors import RuleError

# Settings of the job itself, which the role that needs the servers may state in its place.
OF_JOB = ("command", "command_per", "hosts", "instances", "task")
FILE = "file:"
# It is part of a folder's name and of a variable's.
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_READY = re.compile(r"https?://\{host\}:\{port\}(/[!-~]*)?|\{host\}:\{port\}|file:[A-Za-z0-9_][A-Za-z0-9._-]*")


class JobRole(NamedTuple):
    """A role: a server, which is one process on each of its hosts, or what needs the servers, which is the job itself.

    `ready` tells when others may start: an address for HTTP or TCP with {host} and {port}, or file:NAME in the role's
    folder. `ready_timeout_s` is the limit of that, and of Ray's nodes to be in. `gpus` are those of each host of the
    job, which the server shares; None: it has hosts of its own.
    """

    name: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = {}
    gpus: Optional[int] = None
    hosts: int = 1
    needs: Sequence[str] = ()
    ray: bool = False
    ready: str = ""
    ready_timeout_s: float = 600.0
    restarts: int = 0


class Roles(NamedTuple):
    """The roles of a job. `servers` come in the order in which they start; `main` is what needs them."""

    main: JobRole = JobRole()
    servers: Sequence[JobRole] = ()

    @property
    def shared_gpus(self) -> int:
        """The GPUs of each of the job's hosts that its servers take."""
        return sum(server.gpus or 0 for server in self.servers)


def _whole(least: int) -> Tuple[Callable[[Any], bool], str, str]:
    return (lambda value: type(value) is int and value >= least), "a whole number, at least %d" % least, str(least)


# What each key of a server may hold: what fits, that in words, and an example.
_KEYS: Dict[str, Tuple[Callable[[Any], bool], str, str]] = {
    "command": (lambda value: isinstance(value, list) and value != [], "the words of a command", "[python, serve.py]"),
    "env": (lambda value: isinstance(value, dict), "names with values", "{NAME: value}"),
    "gpus": _whole(0),
    "hosts": _whole(1),
    "needs": (lambda value: isinstance(value, (list, tuple)), "names of roles", "[server]"),
    "ray": (lambda value: isinstance(value, bool), "true or false", "true"),
    "ready": (
        lambda value: isinstance(value, str) and _READY.fullmatch(value) is not None,
        "what tells others that they can start",
        '"http://{host}:{port}/health", "{host}:{port}" or file:NAME',
    ),
    "ready_timeout_s": (lambda value: isinstance(value, (int, float)) and value > 0, "seconds, more than 0", "600"),
    "restarts": _whole(0),
}
OF_SERVERS = tuple(_KEYS)


def _refuse_misfit(name: str, key: str, value: object) -> None:
    fits, expected, example = _KEYS[key]
    if not fits(value):
        shown = "missing" if value is None else repr(value)
        if key == "needs" and isinstance(value, str):
            example = "[%s]" % value
        raise RuleError("%s.%s is %s, expected %s" % (name, key, shown, expected), "write %s: %s" % (key, example))


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
        _refuse_misfit(name, "needs", keys.get("needs") or [])
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
    of_main = {key: value for key, value in roles[main].items() if key not in OF_JOB}
    for key in of_main:
        of_ray = key == "ray" or (key == "ready_timeout_s" and roles[main].get("ray"))
        if key != "needs" and not of_ray:
            cure = "write env beside roles" if key == "env" else "take it out: it is for roles that others need"
            raise RuleError("%s.%s is stated, and no other role needs %s" % (main, key, main), cure)
    servers = {
        name: _role(name, {"command": None, "ready": None, **keys}) for name, keys in roles.items() if name != main
    }
    return Roles(_role(main, of_main), _in_order(servers))


def _role(name: str, keys: Mapping[str, Any]) -> JobRole:
    for key, value in keys.items():
        if key not in _KEYS:
            raise RuleError(
                "%s.%s is stated" % (name, key), "a server is one process on each of its hosts: take it out"
            )
        _refuse_misfit(name, key, value)
    env = {str(key): str(value) for key, value in keys.get("env", {}).items()}
    return JobRole(name, **{**keys, "env": env})


def _in_order(servers: Mapping[str, JobRole]) -> List[JobRole]:
    ordered: List[JobRole] = []
    while len(ordered) < len(servers):
        started = [role.name for role in ordered]
        free = [role for role in servers.values() if role.name not in started and set(role.needs) <= set(started)]
        if not free:
            left = ", ".join(name for name in servers if name not in started)
            raise RuleError("roles need each other in turn: %s" % left, "take one of the needs out")
        ordered += free
    return ordered
