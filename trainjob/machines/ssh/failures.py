"""The ways in which ssh fails, recognized by its messages, each with its cure."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.ssh import connection
from trainjob.machines.ssh.connection import Settings

# ssh's own exit code when the connection, not the command, has failed.
FAILED = 255


class SshError(UserError):
    """The machine can't be reached. `kind` is a stable word; `reached`: a command may have started there."""

    code = "unreachable"

    def __init__(self, kind: str, message: str, *, reached: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.reached = reached


@dataclass(frozen=True)
class Target:
    """The host that ssh should reach, as errors name it."""

    host: str
    user: str | None
    settings: Settings

    @property
    def address(self) -> str:
        """The name and port that ssh connects to."""
        single = self.settings.single
        return f"{single.get('hostname', self.host)} port {single.get('port', '22')}"

    @property
    def login(self) -> str:
        """The command with which a user logs in."""
        return shlex.join(["ssh", *([] if self.user is None else ["-l", self.user]), self.host])


def error(target: Target, stderr: str) -> SshError:
    """Return the error that ssh's messages mean."""
    for kind, pattern, explain in _KINDS:
        if re.search(pattern, stderr, re.IGNORECASE):
            return SshError(kind, f"ssh to {target.host}: {explain(target, stderr)}", reached=kind == "cut")
    lines = stderr.strip().splitlines()
    last = lines[-1] if lines else "ssh printed no reason"
    message = f"the connection broke, or was never made: {last}. Try it by hand: {target.login}"
    return SshError("other", f"ssh to {target.host}: {message}", reached=True)


def _changed_key(target: Target, _: str) -> str:
    name, port = target.settings.single.get("hostname", target.host), target.settings.single.get("port", "22")
    known_as = name if port == "22" else f"[{name}]:{port}"
    return (
        f"the host key of {target.address} has changed: somebody may be intercepting the connection, or the host was "
        f"reinstalled. Ask its administrators; only then run ssh-keygen -R {shlex.quote(known_as)} and "
        f"{target.login}"
    )


def _unknown_key(target: Target, _: str) -> str:
    return (
        f"the host key of {target.address} is not known yet, and trainjob never accepts one unseen. Log in once by "
        f"hand and compare its fingerprint with the site's: {target.login}"
    )


def _refused(target: Target, _: str) -> str:
    return f"{target.address} refuses the connection: is that the port of its sshd (Port in ~/.ssh/config)?"


def _not_found(target: Target, _: str) -> str:
    return (
        f"the name {target.settings.single.get('hostname', target.host)} can't be resolved: correct ssh.host in the "
        "cluster file, add the host to ~/.ssh/config, or join the site's network (VPN)"
    )


def timed_out(target: Target, _: str) -> str:
    """Return the message for a host that does not answer."""
    return f"{target.address} did not answer in time: is it up, and does its network (VPN, firewall) let you through?"


def _no_route(target: Target, _: str) -> str:
    return f"there is no route to {target.address}: are you in the site's network (VPN)?"


def _configuration(_: Target, stderr: str) -> str:
    return f"your ssh configuration can't be read: {stderr.strip().splitlines()[0]}"


def _cut(target: Target, _: str) -> str:
    return f"the connection to {target.address} broke: run the same command again, and it continues where it stopped"


def _jump(target: Target, _: str) -> str:
    # With a shared connection, ssh does not pass on the jump host's own message.
    single = target.settings.single
    jump = single.get("proxyjump")
    if jump is None:
        return (
            f"its ProxyCommand made no connection: {single.get('proxycommand', 'none')}. Try it by hand: {target.login}"
        )
    first = jump.split(",")[0]
    return (
        f"its jump host {first} can't be reached, or does not let you through. Try it by hand: ssh {shlex.quote(first)}"
    )


def _denied(target: Target, stderr: str) -> str:
    locked = [path for path in target.settings.identity_files if _has_passphrase(path) and not _agent_has(path)]
    if locked:
        return (
            f"key {locked[0]} has a passphrase, no agent holds it, and {target.host} accepts no other key of yours. "
            f'Run: eval "$(ssh-agent)"; ssh-add {shlex.quote(locked[0])}'
        )
    opening = connection.opening_command(target.host, target.user, target.settings)
    if re.search(r"password|keyboard-interactive", stderr):
        return (
            f"{target.host} asks for a password or one-time code, which only you can type. Open a connection, which "
            f"trainjob then shares: {opening}"
        )
    present = [path for path in target.settings.identity_files if os.path.isfile(path)]
    return (
        f"{target.host} accepts none of your keys ({', '.join(present) or 'you have none'}) for user "
        f"{target.settings.single.get('user', 'of your configuration')}: install your public key there, or name the "
        "right one (IdentityFile in ~/.ssh/config)"
    )


def _has_passphrase(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    opened = process.run(["ssh-keygen", "-y", "-P", "", "-f", path], check=False)
    return opened.code != 0 and "passphrase" in opened.stderr


def _agent_has(path: str) -> bool:
    public = process.run(["ssh-keygen", "-l", "-f", path], check=False).text.split()
    held = process.run(["ssh-add", "-l"], check=False).text.split()
    return len(public) > 1 and public[1] in held


_Explain = Callable[[Target, str], str]
_KINDS: tuple[tuple[str, str, _Explain], ...] = (
    ("host-key-changed", r"REMOTE HOST IDENTIFICATION HAS CHANGED", _changed_key),
    ("host-key-unknown", r"Host key verification failed|host key is known for", _unknown_key),
    ("name", r"Could not resolve hostname|Name or service not known", _not_found),
    ("refused", r"Connection refused", _refused),
    ("timeout", r"(Connection|Operation) timed out", timed_out),
    ("no-route", r"No route to host|Network is unreachable", _no_route),
    ("configuration", r"Bad configuration option|bad configuration options|Bad owner or permissions", _configuration),
    ("denied", r"Permission denied \(|Too many authentication failures", _denied),
    ("jump", r"kex_exchange_identification[^\n]*\s+[^\n]*UNKNOWN port 65535", _jump),
    ("cut", r"Connection (closed|reset)|Broken pipe|not responding|unexpectedly closed|client_loop|mux_client", _cut),
)
