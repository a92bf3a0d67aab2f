"""Several hosts on one machine: each a real sshd with its own files, users, keys and processes, on a loopback address.

Namespaces keep them apart, so every host has its own /srv, /etc/ssh, /etc/hosts and limits; /mnt is storage they share.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.login_node import free_port
from tests.support.programs import ran

LIMIT_S = 60.0
_ADDRESS = "127.77.0.{}"
_USER = "ml"
USER_ID = 12345

_BEGIN = """\
set -e
hostname "$2"
cd "$1"
mount --bind srv /srv
mount --bind shared /mnt
mount --bind etc-ssh /etc/ssh
mount --bind limits.d /etc/security/limits.d
mount --bind sudoers.d /etc/sudoers.d
for name in passwd group hosts; do mount --bind "etc/$name" "/etc/$name"; done
mount -t tmpfs tmpfs /run
mkdir -m 0755 /run/sshd
if [ -n "$3" ]; then mkdir -p /srv/small; mount -t tmpfs -o "size=$3" tmpfs /srv/small; fi
exec "$4" -D -e -f /etc/ssh/sshd_config
"""
_SSHD = """\
ListenAddress {address}:{port}
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
PidFile none
MaxStartups 100
Subsystem sftp internal-sftp
"""


@dataclass
class Host:
    """One host; `files` is what it sees as /srv."""

    name: str
    number: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return _ADDRESS.format(self.number)

    @property
    def files(self) -> Path:
        return self.folder / "srv"

    @property
    def logins(self) -> int:
        """How often anybody has logged in."""
        return (self.folder / "sshd.log").read_text().count("Accepted publickey")

    def at(self, path: str) -> Path:
        """Return where a path of the host under /srv lies here."""
        return self.files / Path(path).relative_to("/srv")


@dataclass
class Site:
    """Hosts that know one administrator's key, and how to reach them."""

    folder: Path
    port: int
    sshd: Path
    hosts: dict[str, Host] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)

    @property
    def shared(self) -> Path:
        """What every host sees as /mnt."""
        return self.folder / "shared"

    def at_shared(self, path: str) -> Path:
        """Return where a path under /mnt lies here."""
        return self.shared / Path(path).relative_to("/mnt")

    @property
    def environment(self) -> dict[str, str]:
        """What ansible and ssh need to reach the hosts, and nothing of the user's own."""
        return {
            **os.environ,
            "ANSIBLE_SSH_ARGS": f"-F {self.folder}/ssh_config -o ControlMaster=auto -o ControlPersist=60s",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp"),
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "ansible-local"),
            "ANSIBLE_NOCOWS": "1",
        }

    def add(self, name: str, small: str = "") -> Host:
        """Start one more host. `small` is the size of a tmpfs at its /srv/small."""
        host = Host(name, len(self.hosts) + 1, self.folder / name)
        self._furnish(host)
        self.hosts[name] = host
        self._write_ssh_config()
        self.start(host, small)
        return host

    def name(self, host: Host, names: Sequence[str]) -> None:
        """Let the administrator reach `host` by further names."""
        self.aliases = {**self.aliases, host.name: list(names)}
        self._write_ssh_config()

    def start(self, host: Host, small: str = "") -> None:
        """Start the host's sshd and wait until it answers."""
        log = (host.folder / "sshd.log").open("ab")
        words = ["bash", "-c", _BEGIN, "bash", str(host.folder), host.name, small, str(self.sshd)]
        host.process = subprocess.Popen(
            ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        deadline = time.monotonic() + LIMIT_S
        while not _answers(host.address, self.port):
            output = (host.folder / "sshd.log").read_text()
            assert host.process.poll() is None, f"{host.name} did not start: {output}"
            assert time.monotonic() < deadline, f"{host.name} does not answer: {output}"
            time.sleep(0.02)

    def stop(self, host: Host) -> None:
        """Take the host down: every process on it ends."""
        if host.process is not None:
            host.process.kill()
            host.process.wait()
            host.process = None

    def ssh(
        self, host: str, *command: str, user: str = "root", limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        words = ["ssh", "-F", str(self.folder / "ssh_config"), "-l", user, host, *command]
        return ran(words, timeout_s=limit_s)

    def _furnish(self, host: Host) -> None:
        for name in ("srv/root/.ssh", f"srv/{_USER}/.ssh", "etc-ssh", "etc", "limits.d", "sudoers.d"):
            (host.folder / name).mkdir(parents=True)
        (host.folder / "shared").symlink_to(self.shared)
        _make_key(host.folder / "etc-ssh/ssh_host_ed25519_key", f"root@{host.name}")
        config = _SSHD.format(address=host.address, port=self.port)
        (host.folder / "etc-ssh/sshd_config").write_text(config)
        (host.folder / "etc-ssh/ssh_config").write_text(f"Host *\n  Port {self.port}\n")
        _write_users(host.folder)
        (host.folder / "sudoers.d/ml").write_text(f"{_USER} ALL=(ALL) NOPASSWD: ALL\n")
        for name in ("root", _USER):
            shutil.copy(self.folder / "id.pub", host.folder / f"srv/{name}/.ssh/authorized_keys")
            for path in (host.folder / f"srv/{name}", host.folder / f"srv/{name}/.ssh"):
                path.chmod(0o700)
        _give_to_user(host.folder / f"srv/{_USER}")
        (host.folder / "etc/hosts").touch()

    def _write_ssh_config(self) -> None:
        common = f"""\
  Port {self.port}
  User root
  IdentityFile {self.folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {self.folder}/known_hosts
  StrictHostKeyChecking yes
  ConnectTimeout 10
"""
        hosts = "".join(
            f"Host {' '.join([host.name, *self.aliases.get(host.name, ())])}\n  HostName {host.address}\n{common}"
            for host in self.hosts.values()
        )
        (self.folder / "ssh_config").write_text(hosts)
        keys = [
            f"[{host.address}]:{self.port} {(host.folder / 'etc-ssh/ssh_host_ed25519_key.pub').read_text()}"
            for host in self.hosts.values()
        ]
        (self.folder / "known_hosts").write_text("".join(keys))
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts.values())
        for host in self.hosts.values():
            (host.folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")


@contextlib.contextmanager
def site(sshd: Path, names: Sequence[str]) -> Iterator[Site]:
    """Run hosts of these names; they are gone afterwards."""
    # A short path: sockets of ssh have at most 108 characters.
    folder = Path(tempfile.mkdtemp(prefix="tjs-"))
    made = Site(folder, free_port(), sshd)
    (folder / "shared").mkdir()
    _make_key(folder / "id", "administrator")
    try:
        for name in names:
            made.add(name)
        yield made
    finally:
        for host in made.hosts.values():
            made.stop(host)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1.0) as connection:
            return connection.recv(3) == b"SSH"
    except OSError:
        return False


def _make_key(path: Path, comment: str) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(words, check=True, timeout=LIMIT_S)


def _write_users(folder: Path) -> None:
    others = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")]
    users = ["root:x:0:0:root:/srv/root:/bin/bash", *others, f"{_USER}:*:{USER_ID}:{USER_ID}::/srv/{_USER}:/bin/bash"]
    (folder / "etc/passwd").write_text("\n".join(users) + "\n")
    (folder / "etc/group").write_text(Path("/etc/group").read_text() + f"{_USER}:*:{USER_ID}:\n")


def _give_to_user(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER_ID, USER_ID)
