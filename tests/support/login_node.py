"""A real sshd on a loopback port, as a cluster's login node, with keys, configuration and known hosts of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shlex
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainjob.machines.ssh.connection import SshTarget

LIMIT_S = 30.0


def free_port() -> int:
    """Return a port that stays free until it is listened on, and between two daemons: nothing is given it by chance.

    What asks for any port, and every connection, gets one from 32768 on; ranks of jobs meet between 20000 and that.
    """
    while True:
        port = random.randrange(10000, 20000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("0.0.0.0", port))
            return port


def new_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path], check=True)
    return path


@dataclass
class LoginNode:
    """A host called `login` in the user's own ssh configuration."""

    folder: Path
    sshd: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def key(self) -> Path:
        return self.folder / "id"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def bin(self) -> Path:
        """A folder for PATH whose ssh reads the user's configuration: the real one looks in the home of the account."""
        return self.folder / "bin"

    def write(self) -> None:
        """Write all that client and server read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new_key(self.key)
        new_key(self.folder / "host_key")
        (self.folder / "authorized").write_text(self.key.with_suffix(".pub").read_text())
        self.know_the_host()
        self.configure()
        self.bin.mkdir()
        for program in ("ssh",):
            self.stand_in(program, f'exec /usr/bin/{program} -F {shlex.quote(str(self.config))} "$@"')

    def stand_in(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def know_the_host(self, key: Path | None = None) -> None:
        public = (key or self.folder / "host_key").with_suffix(".pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")

    def configure(self, **changes: str) -> None:
        """Write the user's ssh configuration; `changes` are further or other keys of it."""
        asked = {
            "HostName": "127.0.0.1",
            "Port": str(self.port),
            "User": pwd.getpwuid(os.getuid()).pw_name,
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            **changes,
        }
        lines = [f"  {key} {value}" for key, value in asked.items()]
        self.config.write_text("\n".join(["Host login", *lines, ""]))

    def start(self, environment: Mapping[str, str] | None = None, **changes: str) -> None:
        """Start sshd; `environment` is that of every command over there, `changes` keys of sshd_config."""
        self.write_server(environment, **changes)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd gives up its privileges; a package makes it at boot
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.sshd, "-D", "-e", "-f", self.folder / "sshd_config"], stdout=log, stderr=log
            )
        self._wait()

    def write_server(self, environment: Mapping[str, str] | None = None, **changes: str) -> None:
        """Write what sshd reads."""
        asked = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": str(self.folder / "host_key"),
            "AuthorizedKeysFile": str(self.folder / "authorized"),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
            "MaxStartups": "100",
            **changes,
        }
        lines = [f"{key} {value}" for key, value in asked.items()]
        # Not the account's own home: what its shell reads at log-in is none of ours.
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        every = {"HOME": str(home), **(environment or {})}
        lines.append("SetEnv " + " ".join(f'"{name}={value}"' for name, value in every.items()))
        (self.folder / "sshd_config").write_text("\n".join([*lines, ""]))

    def _wait(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, (self.folder / "sshd.log").read_text()
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """End sshd; open connections stay."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(LIMIT_S)
        self.process = None


def disconnect() -> None:
    """Close the connection to the host `login` that machines share, if there is one."""
    options = SshTarget("login", None).options
    subprocess.run(["ssh", *options, "-O", "exit", "--", "login"], check=False, capture_output=True, timeout=60)
