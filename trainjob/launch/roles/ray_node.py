"""One node of a Ray cluster, which a role with `ray: true` has on each of its hosts; the first also runs its command.

The first node is Ray's head. It starts the command, Ray's driver, once all nodes are in. The others have a connection
to its program, where ranks would meet: by it they learn the port of the head once that is up, and that all has ended.
A node whose Ray ends earlier fails its rank, and so the job.

    python -I ray_node.py NODE NODES TIMEOUT_S LOGS DROPPED OPTION-OF-RAY… -- COMMAND…
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zlib
from functools import partial
from pathlib import Path
from typing import Dict, List, Optional

if __name__ == "__main__":  # by `python -I`: neither the user's modules nor this folder's are in the way
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from trainjob.contract import clock, environment, exits
from trainjob.launch import network, processes
from trainjob.launch.rank_environment import OPENMP, Rank, free_port
from trainjob.launch.ranks.guard import PASSED_ON, in_child

_NODES = str(Path(__file__).with_name("ray_nodes.py"))
# USR1, which asks for a checkpoint, is the driver's: the launcher finds that below this process, which ignores it.
_WATCHED = {signal.SIGCHLD, *PASSED_ON} - {signal.SIGUSR1}
_LOOK_S, _CONNECT_S = 0.2, 2.0
# The path of a socket has at most 107 characters, of which Ray's own folders and names take some 70.
_LONGEST_FOLDER = 12
_OPEN = "r"  # Ray opens its folder to everybody, so it is in one that is not
# Jobs may share hosts, and Ray gives all of them these ports: 10002 and more for workers, 52365 for its agent.
_ANY_PORT = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
_MOST_TRIES = 3
_TOLD = 128 + signal.SIGTERM
_OF_RANKS = (*environment.RANK_NAMES, "RAY_ADDRESS", "NODE_RANK", "NNODES", "NPROC_PER_NODE", "JAX_LOCAL_DEVICE_IDS")


def of_node(rank: Rank, cpus: int, gpus: Optional[int], timeout_s: float) -> Rank:
    """Return what starts instead of `rank`: this program. `gpus` None: Ray counts those that it sees."""
    # Where the ranks of a launcher meet, and their threads, are nothing to Ray, which gives its workers their own.
    dropped = [*_OF_RANKS, *(name for name in OPENMP if name not in os.environ)]
    place, logs = rank.ranking, str(rank.log.parent.parent / "ray" / ("node-%04d" % rank.ranking.rank))
    words = [str(place.rank), str(place.world_size), "%g" % timeout_s, logs, ",".join(dropped), "--num-cpus=%d" % cpus]
    words += [] if gpus is None else ["--num-gpus=%d" % gpus]
    return rank._replace(command=[sys.executable, "-I", os.path.abspath(__file__), *words, "--", *rank.command])


class _Node:
    def __init__(self, words: List[str], command: List[str]) -> None:
        number, nodes, timeout_s, self._logs, dropped, *self._options = words
        self._number, self._nodes, self._timeout_s = int(number), int(nodes), float(timeout_s)
        own, self._command = os.environ, command
        self._host = socket.gethostbyname(own[environment.MASTER_ADDR])
        if network.is_loopback(self._host):  # in its place Ray takes the address of the default route
            self._host = network.own_address_towards(network.ANYWHERE) or self._host
        self._port = int(own[environment.MASTER_PORT])
        self._began, self._is_told, self._tries = clock.monotonic(), False, 0
        self._driver: Optional[int] = None
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST_FOLDER else "/tmp"  # noqa: S108 - 0700
        # In /tmp/ray, Ray's default, jobs on a host collide, and so do nodes of Ray that share a folder.
        node = "%s %s %d %s" % (own[environment.RUN_DIR], own[environment.ATTEMPT], self._port, number)
        self._folder = Path(base, "ray-%d-%08x" % (os.getuid(), zlib.crc32(node.encode())))
        self._environment = {name: value for name, value in own.items() if name not in dropped.split(",")}
        # From 2.52 on, Ray serves only those who know a word: else whoever reaches its port runs code as this user.
        self._environment.setdefault("RAY_AUTH_MODE", "token")
        self._environment.setdefault("RAY_AUTH_TOKEN", own[environment.TOKEN])

    def run(self) -> int:
        processes.adopt_orphans()
        code: int = exits.USER_OR_CLUSTER_CAN_FIX
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.stat().st_uid != os.getuid():
                raise PermissionError("%s is another user's" % self._folder)
            code = self._run()
        except OSError as error:
            _say("Ray can't run on this node: %s" % error)
        finally:
            processes.kill_children()
            if code not in (exits.DONE, exits.CHECKPOINTED, _TOLD):
                with contextlib.suppress(OSError):
                    shutil.copytree(str(self._folder / _OPEN / "session_latest" / "logs"), self._logs)
            shutil.rmtree(str(self._folder), ignore_errors=True)
        return code

    def _run(self) -> int:
        python, found = self._interpreter()
        start = [python, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *_ANY_PORT]
        start += ["--temp-dir=%s" % (self._folder / _OPEN), *self._options]
        if self._number > 0:
            return self._serve(start)
        start += ["--head", "--include-dashboard=false", "--node-ip-address=" + self._host]
        if found == "client":  # its port would be 10001 for all jobs
            start.append("--ray-client-server-port=%d" % free_port(os.getpid()))
        with socket.create_server(("", self._port), backlog=self._nodes) as gate:
            gate.setblocking(False)
            return self._lead(python, start, gate)

    def _lead(self, python: str, start: List[str], gate: socket.socket) -> int:
        port = free_port(os.getpid() + 1)
        ray = self._start([*start, "--port=%d" % port])
        nodes = self._start([python, _NODES, self._host, str(port), str(self._nodes), "%g" % self._timeout_s])
        self._environment["RAY_ADDRESS"] = "%s:%d" % (self._host, port)
        others: List[socket.socket] = []
        while True:
            ended = self._wait(_LOOK_S)
            if self._driver in ended:
                return ended[self._driver]
            if ray in ended:
                return self._lead(python, start, gate) if self._starts_again() else _early(ended[ray])
            if self._driver is None and self._is_told:
                return _TOLD
            with contextlib.suppress(OSError):  # nobody else has come, or one has gone
                while self._is_in:
                    others.append(gate.accept()[0])
                    others[-1].sendall(b"%d" % port)
            if nodes in ended:
                if ended[nodes]:
                    return exits.USER_OR_CLUSTER_CAN_FIX
                took_s = clock.monotonic() - self._began
                _say("Ray has all of its %d nodes after %.1f s, and its driver starts" % (self._nodes, took_s))
                self._driver = self._start(self._command)

    def _serve(self, start: List[str]) -> int:
        head: Optional[socket.socket] = None
        address, ray = "", None
        while True:  # with Ray even when told to end: the driver may have to save, and the launcher has a limit
            ended = self._wait(_LOOK_S)
            if ray in ended and not self._starts_again():
                return _early(ended[ray])
            if ray in ended:
                ray = self._start([*start, address])
            if ray is None and self._is_told:
                return _TOLD
            if ray is None and clock.monotonic() - self._began >= self._timeout_s:
                _say("Ray's head is not up on %s after %g s" % (self._host, self._timeout_s))
                return exits.USER_OR_CLUSTER_CAN_FIX
            try:
                if head is None:
                    head = socket.create_connection((self._host, self._port), timeout=_CONNECT_S)
                    head.setblocking(False)
                told = head.recv(8)
            except OSError:  # nothing is there yet, or nothing new
                continue
            if not told:
                return exits.DONE
            address = "--address=%s:%s" % (self._host, told.decode())
            ray = self._start([*start, address])

    @property
    def _is_in(self) -> bool:
        """Whether Ray is up on this node: then it writes this file."""
        return (self._folder / _OPEN / "ray_current_cluster").exists()

    def _starts_again(self) -> bool:
        """Return whether Ray has another try: it gives a node 30 s to start, which a busy host may exceed."""
        self._tries += 1
        if self._is_told or self._tries >= _MOST_TRIES or self._is_in:
            return False
        _say("Ray did not start on this node, and tries again")
        processes.kill_children()
        shutil.rmtree(str(self._folder / _OPEN), ignore_errors=True)
        return True

    def _interpreter(self) -> "tuple[str, str]":
        """Return the first Python of this job that has Ray, and what it says of it. Raises OSError without one."""
        first = os.path.basename(self._command[0])
        for name in (self._command[0] if first.startswith("python") else "python", "python3", sys.executable):
            path = shutil.which(name, path=self._environment.get("PATH"))
            asked = path and subprocess.run([path, _NODES], check=False, stdout=subprocess.PIPE, env=self._environment)
            if path and asked and asked.returncode == 0:
                return path, asked.stdout.decode().strip()
        raise OSError("no Python of the job has it. Install ray where the command runs")

    def _start(self, words: List[str]) -> int:
        as_child = partial(in_child, signal.SIGKILL, signal.SIG_DFL)
        return subprocess.Popen(words, env=self._environment, preexec_fn=as_child).pid  # noqa: PLW1509 - one thread

    def _wait(self, timeout_s: float) -> Dict[Optional[int], int]:
        """Return the exit codes of children that have ended, after a moment at most. TERM goes to the driver."""
        received = signal.sigtimedwait(_WATCHED, timeout_s)
        if received is not None and received.si_signo != signal.SIGCHLD:
            self._is_told = True
            if self._driver is not None:
                os.kill(self._driver, signal.SIGTERM)
        return {pid: exits.from_wait_status(ended.returncode) for pid, ended in processes.reap().items()}


def _early(code: int) -> int:
    _say("Ray ended on this node with exit code %d, before the role's command" % code)
    return code or exits.USER_OR_CLUSTER_CAN_FIX


def _say(text: str) -> None:
    sys.stderr.write("trainjob: %s\n" % text)
    sys.stderr.flush()


def main(arguments: List[str]) -> int:
    """Return the exit code of the command; on another node than the first 0, once the head has ended."""
    at = arguments.index("--")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    return _Node(arguments[:at], arguments[at + 1 :]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
