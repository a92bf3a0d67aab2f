"""The ways in which ssh fails, recognized by its messages, each with its cure."""

from __future__ import annotations

import os
import re
import shlex

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.ssh.connection import SshTarget

# ssh's own exit code when the connection, not the command, has failed.
FAILED = 255


# Kinds that time may cure, unlike a name or a key.
_MAY_PASS = ("refused", "timeout", "no-route", "cut")


class SshError(UserError):
    """The machine can't be reached. `kind` is a stable word; `reached`: a command may have started there."""

    code = "unreachable"

    def __init__(self, kind: str, message: str, *, reached: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.reached = reached
        self.is_out_of_reach = kind in _MAY_PASS


# The kinds by ssh's messages, the first that fits, with what they mean. Two kinds need a closer look.
_DENIED, _JUMP = "denied", "jump"
_KINDS = (
    (
        "host-key-changed",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {address} has changed: somebody may be intercepting the connection, or the host was "
        "reinstalled. Ask its administrators; only then run ssh-keygen -R {known_as} and {login}",
    ),
    (
        "host-key-unknown",
        r"Host key verification failed|host key is known for",
        "the host key of {address} is not known yet, and trainjob never accepts one unseen. Log in once by "
        "hand and compare its fingerprint with the site's: {login}",
    ),
    (
        "name",
        r"Could not resolve hostname|Name or service not known",
        "the name {name} can't be resolved: correct ssh.host in the cluster file, add the host to ~/.ssh/config, or "
        "join the site's network (VPN)",
    ),
    (
        "refused",
        r"Connection refused",
        "{address} refuses the connection: is that the port of its sshd (Port in ~/.ssh/config)?",
    ),
    (
        "timeout",
        r"(Connection|Operation) timed out",
        "{address} did not answer in time: is it up, and does its network (VPN, firewall) let you through?",
    ),
    (
        "no-route",
        r"No route to host|Network is unreachable",
        "there is no route to {address}: are you in the site's network (VPN)?",
    ),
    (
        "configuration",
        r"Bad configuration option|bad configuration options|Bad owner or permissions",
        "your ssh configuration can't be read: {first_line}",
    ),
    (_DENIED, r"Permission denied \(|Too many authentication failures", ""),
    (_JUMP, r"kex_exchange_identification[^\n]*\s+[^\n]*UNKNOWN port 65535", ""),
    (
        "cut",
        r"Connection (closed|reset)|Broken pipe|not responding|unexpectedly closed|client_loop|mux_client",
        "the connection to {address} broke: run the same command again, and it continues where it stopped",
    ),
    ("other", "", "the connection broke, or was never made: {last_line}. Try it by hand: {login}"),
)


def error(target: SshTarget, stderr: str) -> SshError:
    """Return the error that ssh's messages mean."""
    kind, text = next((kind, text) for kind, pattern, text in _KINDS if re.search(pattern, stderr, re.IGNORECASE))
    if kind == _DENIED:
        text = _denied(target, stderr)
    elif kind == _JUMP:
        text = _jump(target)
    else:
        name, port = target.settings.get("hostname", target.host), target.settings.get("port", "22")
        lines = stderr.strip().splitlines() or ["ssh printed no reason"]
        text = text.format(
            address=target.address,
            name=name,
            known_as=shlex.quote(name if port == "22" else f"[{name}]:{port}"),
            login=target.login,
            first_line=lines[0],
            last_line=lines[-1],
        )
    return SshError(kind, f"ssh to {target.host}: {text}", reached=kind in ("cut", "other"))


def _jump(target: SshTarget) -> str:
    # With a shared connection, ssh does not pass on the jump host's own message.
    jump = target.settings.get("proxyjump")
    if jump is None:
        program = target.settings.get("proxycommand", "none")
        return f"its ProxyCommand made no connection: {program}. Try it by hand: {target.login}"
    first = jump.split(",")[0]
    return (
        f"its jump host {first} can't be reached, or does not let you through. Try it by hand: ssh {shlex.quote(first)}"
    )


def _denied(target: SshTarget, stderr: str) -> str:
    present = [path for path in target.identity_files if os.path.isfile(path)]
    for path in present:
        opened = process.run(["ssh-keygen", "-y", "-P", "", "-f", path], check=False)
        if opened.code == 0 or "passphrase" not in opened.stderr:
            continue
        fingerprint = process.run(["ssh-keygen", "-l", "-f", path], check=False).text.split()[1:2]
        held = process.run(["ssh-add", "-l"], check=False).text.split()
        if not fingerprint or fingerprint[0] not in held:
            return (
                f"key {path} has a passphrase, no agent holds it, and {target.host} accepts no other key of yours. "
                f'Run: eval "$(ssh-agent)"; ssh-add {shlex.quote(path)}'
            )
    if re.search(r"password|keyboard-interactive", stderr):
        return (
            f"{target.host} asks for a password or one-time code, which only you can type. Open a connection, which "
            f"trainjob then shares: {target.opening_command}"
        )
    return (
        f"{target.host} accepts none of your keys ({', '.join(present) or 'you have none'}) for user "
        f"{target.settings.get('user', 'of your configuration')}: install your public key there, or name the "
        "right one (IdentityFile in ~/.ssh/config)"
    )
