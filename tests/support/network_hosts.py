"""Several hosts on one machine, each with an address, a name and processes of its own, and a real sshd.

They stand on a network that leads nowhere else, and share all files. `desk` is the user's machine on that network.
"""

from __future__ import annotations

import functools
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.login_node import new_key
from tests.support.programs import ran
from tests.support.waiting import until

INTERFACE = "site0"
_NETWORK = "10.213.78.{}"
_DESK = 250
# Debian's and Ubuntu's default: a host's own name means an address that no other host reaches.
_OWN_NAME = 'printf "127.0.0.1 localhost\\n127.0.1.1 %s.site %s\\n" "$1" "$1" >"$2"; mount --bind "$2" /etc/hosts; '
# /sys shows the interfaces. The first process, from which a host is entered, waits for the network; sshd then reaps
# what loses its parent.
_BEGIN = f'{_OWN_NAME}mount -t sysfs sysfs /sys; hostname "$1"; shift 2; echo here; read -r _; exec "$@"'


@dataclass
class _Space:
    """Namespaces that end with their first process."""

    process: subprocess.Popen[bytes]

    @property
    def first(self) -> int:
        """The first process inside, as seen from outside."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def enter(self, *words: str) -> list[str]:
        return ["nsenter", "--target", str(self.first), "--net", "--uts", "--pid", "--mount", "--", *words]

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.close()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@dataclass
class NetworkHosts:
    """The hosts by name, in order; their addresses are `address(0)` and so on."""

    folder: Path
    names: Sequence[str]
    environment: dict[str, str]  # of every command on a host
    spaces: dict[str, _Space] = field(default_factory=dict)

    def address(self, name: str) -> str:
        return _NETWORK.format(self.names.index(name) + 1 if name in self.names else _DESK)

    def call(
        self, host: str, *words: str, environ: Mapping[str, str], folder: Path, timeout_s: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host, or at the `desk`."""
        # Entering a mount namespace takes the folder away.
        whole = self.spaces[host].enter("env", f"--chdir={folder}", *words)
        return ran(whole, environ=dict(environ), timeout_s=timeout_s)

    def cut(self, host: str) -> None:
        """Take a host's network away."""
        self._ip_of(host, "link", "set", INTERFACE, "down")

    def start(self, sshd: Path) -> None:
        self._keys()
        Path("/run/sshd").mkdir(exist_ok=True)
        self.spaces["switch"] = self._space("switch", "sleep", "infinity")
        self._ip_of("switch", "link", "add", "bridge0", "type", "bridge")
        self._ip_of("switch", "link", "set", "bridge0", "up")
        for number, name in enumerate((*self.names, "desk")):
            daemon = ("sleep", "infinity") if name == "desk" else (str(sshd), "-D", "-f", str(self._server(name)))
            self.spaces[name] = self._space(name, *daemon)
            self._join(name, f"port{number}")
            self.spaces[name].begin()
        for name in self.names:
            until(functools.partial(self._listens, name), f"the sshd of {name}")

    def _space(self, name: str, *daemon: str) -> _Space:
        unshare = ["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
        words = [*unshare, "sh", "-c", _BEGIN, "sh", name, str(self.folder / f"{name}.hosts"), *daemon]
        made = _Space(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert made.process.stdout is not None
        assert made.process.stdout.readline() == b"here\n", name
        return made

    def _listens(self, name: str) -> bool:
        # Port 22 in hexadecimal, and the state of a socket that listens.
        return ":0016 00000000:0000 0A" in Path(f"/proc/{self.spaces[name].first}/net/tcp").read_text()

    def _join(self, name: str, port: str) -> None:
        inside, switch = str(self.spaces[name].first), str(self.spaces["switch"].first)
        _ip("link", "add", INTERFACE, "netns", inside, "type", "veth", "peer", "name", port, "netns", switch)
        self._ip_of("switch", "link", "set", port, "master", "bridge0", "up")
        self._ip_of(name, "addr", "add", f"{self.address(name)}/24", "dev", INTERFACE)
        for device in ("lo", INTERFACE):
            self._ip_of(name, "link", "set", device, "up")

    def _ip_of(self, name: str, *words: str) -> None:
        subprocess.run(
            ["nsenter", "--target", str(self.spaces[name].first), "--net", "ip", *words],
            check=True,
            capture_output=True,
        )

    def _keys(self) -> None:
        new_key(self.folder / "host_key")
        new_key(self.folder / "id")
        shutil.copy(self.folder / "id.pub", self.folder / "authorized")
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        known = self.folder / "known_hosts"
        known.write_text("".join(f"{self.address(name)} {kind} {key}\n" for name in self.names))
        user = pwd.getpwuid(os.getuid()).pw_name
        common = f"  User {user}\n  IdentityFile {self.folder}/id\n  IdentitiesOnly yes\n"
        common += f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n  ConnectTimeout 10\n"
        # No name service knows the names: they are ssh's own.
        hosts = (f"Host {name} {self.address(name)}\n  HostName {self.address(name)}\n{common}" for name in self.names)
        (self.folder / "config").write_text("".join(hosts))
        (self.folder / "bin").mkdir()
        ssh = self.folder / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {shlex.quote(str(self.folder / "config"))} "$@"\n')
        ssh.chmod(0o755)

    def _server(self, name: str) -> Path:
        config = self.folder / f"{name}.sshd_config"
        environment = " ".join(f'"{key}={value}"' for key, value in self.environment.items())
        config.write_text(
            f"ListenAddress {self.address(name)}:22\nHostKey {self.folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nPermitRootLogin yes\nMaxStartups 100\n"
            f"SetEnv {environment}\n"
        )
        return config


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network_hosts(
    sshd: Path, names: Sequence[str], *, programs: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[NetworkHosts]:
    """Yield hosts; they are gone afterwards, with all that runs on them.

    `programs` is a folder that their PATH has, too, and `environment` what every command finds there.
    """
    # A short path: sockets of ssh have at most 108 characters.
    folder = Path(tempfile.mkdtemp(prefix="tjn-"))
    for name in ("home", "sockets"):
        (folder / name).mkdir()
    path = [str(folder / "bin"), *([] if programs is None else [str(programs)]), os.environ["PATH"]]
    every = {
        "PATH": os.pathsep.join(path),
        "HOME": str(folder / "home"),
        "XDG_RUNTIME_DIR": str(folder / "sockets"),
        **(environment or {}),
    }
    made = NetworkHosts(folder, names, every)
    try:
        made.start(sshd)
        yield made
    finally:
        for space in made.spaces.values():
            space.end()
        shutil.rmtree(folder, ignore_errors=True)
