"""A batch file that brings up Ray, or a server beside its training: the roles of a job in place of these lines.

Two shapes are known: a server in the background and then the training, and Ray's head, its workers and the driver.
Their lines are taken out of the file, and what is left of it is adopted as any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from batchfiles.adoption.account import HOLDS_SECRET, Where
from batchfiles.adoption.addresses import address_in, tell
from batchfiles.adoption.found_roles import MAIN, SERVER, FoundRoles, statements_of
from batchfiles.adoption.start import main_launch
from batchfiles.bash.expansion import text_of
from batchfiles.bash.values import HOLE
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.script import BatchScript, nodes_of
from batchfiles.slurm.servers import SERVES, is_look, looks_for_server
from trainjob.contract import roles as contract
from trainjob.contract.programs.helpers import PRINTERS, WATCHES
from trainjob.contract.programs.secret_names import is_secret_variable
from trainjob.planning.words import quantity

if TYPE_CHECKING:
    from tree_sitter import Node

_RAY_START = re.compile(r"\bray\s+start\b")
_RAY_JOB = re.compile(r"ray\s+job\s+submit\b.*?\s--\s+", re.DOTALL)
# Options of `ray start` that a role with ray: true decides.
_OF_RAY = re.compile(
    r"head|address|block|(?:[\w-]+-)?port(?:-list)?|node-ip-address|num-(?:cpus|gpus)|(?:include-)?dashboard(?:-host)?|"
    r"disable-usage-stats|temp-dir|redis-password|verbose|log-\w+|autoscaling-config"
)
_PORT = re.compile(r"--?(?:p|port|http[-_]port|server[-_]port)")
_HOST = re.compile(r"--host|--bind|-H|-b")
_LOCAL = ("localhost", "127.0.0.1")
_SHARES = r"--?(?:(?:tp|dp|pp|tensor[-_]parallel|data[-_]parallel|pipeline[-_]parallel)(?:[-_]size)?|num[-_]shard)"
_ENDS = re.compile(
    r"(?:srun\s[^;&|]*\s)?ray\s+stop\b.*|(?:kill|pkill|killall)\b.*|redis-cli\b.*\bshutdown\b.*|(?:export\s+)?\w+=\"?\$!\"?",
    re.DOTALL,
)


@dataclass(frozen=True)
class _Known:
    """A program that serves: its port where none is stated, whether it answers HTTP, and how it listens to others."""

    port: int
    health: str | None = "/health"
    listens: tuple[str, ...] = ()
    has_gpus: bool = True


_KNOWN = {
    r"\bvllm serve\b|\bvllm\.entrypoints\b": _Known(8000),
    r"\bsglang\.launch_server\b": _Known(30000, listens=("--host", "{host}")),
    r"\btrl vllm-serve\b": _Known(8000, "/health/"),
    r"\bmlflow (?:ui|server)\b": _Known(5000, listens=("--host", "{host}"), has_gpus=False),
}


def roles_of(script: BatchScript) -> FoundRoles | None:
    """Return the roles of a file; None if it is of neither shape. Raises AdoptionError for one that is nearly so."""
    has_ray = any(_RAY_START.search(one.text) and not one.dead for one in script.commands)
    found = FoundRoles(script, bytearray(script.root.text or b""), has_ray)
    return _ray(found) if has_ray else _served(found)


def _launches_in(script: BatchScript, node: Node) -> list[LaunchedProgram]:
    inside = [one for one in script.launches if node.start_byte <= one.command.at < node.end_byte]
    return [one for one in inside if not one.source and not one.command.dead]


def _refuse_container(found: FoundRoles, launch: LaunchedProgram, what: str) -> None:
    if launch.layer("container") is not None or option(launch.srun, "container-image", "container-name") is not None:
        raise found.refused(
            launch.line,
            f"starts {what} in a container, and roles run outside of containers",
            "keep this file, or take an environment that needs no container",
        )


def _ray(found: FoundRoles) -> FoundRoles | None:
    script = found.original
    words: list[tuple[str, str]] = []
    started: list[LaunchedProgram] = []
    for node in statements_of(script):
        inside = _launches_in(script, node)
        starts = [one for one in inside if _RAY_START.search(one.command.text)]
        if not starts:
            continue
        if others := [one for one in inside if one.is_python or one.launcher is not None]:
            raise found.refused(
                others[0].line,
                "starts the driver in the same statement as Ray",
                "write a job file whose role has ray: true, which starts Ray and then its command (docs/jobs.md)",
            )
        for one in starts:
            _refuse_container(found, one, "Ray")
            for word in one.command.words if one.name == "ray" else ():
                name = word.text.removeprefix("--").partition("=")[0]
                is_own = word.text.startswith("--") and (one.srun is None or name not in one.srun.options)
                if is_own and not _OF_RAY.fullmatch(name):
                    found.lost.append((one.line, word.text, "Ray is started without it"))
            for text in (" ".join(word.source for word in one.command.words), one.command.text):
                words += re.findall(r"--(address|node-ip-address|port)[= ]['\"]?([^\s'\"]+)", text)
                found.gpus = max(found.gpus, *map(int, re.findall(r"--num-gpus[= ](\d+)", text)), 0)
        found.take(node, f"ray: true of role {MAIN} starts Ray")
        started += starts
    if not started:
        return None  # in a function, or a script of its own
    found.nodes = script.request.nodes or 1
    if found.nodes > 1 and len(found.taken) == 1 and all("--head" in one.command.text for one in started):
        found.changes.append(
            f"line {started[0].line}: only Ray's head is started; the job starts it on {found.nodes} nodes"
        )
    for node, _ in _waits(found):
        found.take(node, "Ray's own list of nodes says when all are in")
    _take_jobs(found)
    figure = next((value for name, value in words if name == "port" and value.isdigit()), "6379")
    tell(found, address_in(script, "RAY_ADDRESS", figure, words))
    return found


def _take_jobs(found: FoundRoles) -> None:
    """Let the words behind `ray job submit … --` be the driver."""
    for node in nodes_of(found.original.root, "command"):
        text = text_of(node)
        match = _RAY_JOB.search(text)
        if match is None or node.start_byte < found.taken[0][0].start_byte:
            continue
        begin = node.start_byte + len(text[: match.start()].encode())
        end = begin + len(match[0].encode())
        blank = re.sub(rb"[^\n]", b" ", found.text[begin:end])
        found.write(begin, end, blank.replace(b" \n", b"\\\n"))  # the command goes on
        for name in re.findall(r"--(runtime-env[\w-]*|working-dir|entrypoint[\w-]*)", match[0]):
            what = "the role's command is the driver itself, in the run's environment"
            found.lost.append((node.start_point.row + 1, f"ray job submit --{name}", what))


@dataclass
class _Server:
    """A server: the words of its role, and its port: as the file's figure, and as its source."""

    node: Node
    launch: LaunchedProgram
    known: _Known | None
    words: list[str] = field(default_factory=list)
    port: str = ""
    source: str = ""

    def read(self, found: FoundRoles) -> None:
        """Read the words of the command. Raises AdoptionError for one that only a run knows."""
        own, srun = list(self.launch.command.words), self.launch.srun
        own = own[len(own) - srun.left :] if srun is not None else own
        while own and (own[0].text in ("exec", "nohup", "env") or re.match(r"[A-Za-z_]\w*=", own[0].source)):
            own = own[1:]
        before = ""
        for word in own:
            name, equals, value = word.text.partition("=") if word.text.startswith("-") else ("", "", word.text)
            asked = name if equals else before
            text, before = word.text, "" if equals else name
            if _PORT.fullmatch(asked) and value:
                self.port, self.source = value, word.source.removeprefix(f"{name}=")
                text = f"{name}{equals}{{port}}"
            elif _HOST.fullmatch(asked) and (bound := re.fullmatch(r"(.*):(\d+)", value)):
                self.port, self.source = bound[2], word.source.rpartition(":")[2]
                text = f"{name}{equals}{'{host}' if bound[1] in _LOCAL else bound[1]}:{{port}}"
            elif _HOST.fullmatch(asked) and (value in _LOCAL or HOLE in value):
                text = f"{name}{equals}{{host}}"
            elif HOLE in text:
                what = f"starts a server with {word.source}, which is known only when it runs"
                raise found.refused(self.launch.line, what, "write its value there")
            self.words.append(text)
        if self.known is not None and not self.port:
            self.port = self.source = str(self.known.port)
            self.words += ["--port", "{port}"]
        if self.known is not None and self.known.listens and self.known.listens[0] not in self.words:
            self.words += self.known.listens
        if not self.port:
            text = (found.original.root.text or b"").decode(errors="replace")
            numbers = [word for word in self.words if word.isdigit() and re.search(rf":{word}(?!\d)", text)]
            if len(set(numbers)) != 1:
                what = f"starts {self.launch.name}, and none of its words is known to be its port"
                cure = (
                    "write a job file whose server has {port} in its place: trainjob chooses a free one (docs/jobs.md)"
                )
                raise found.refused(self.launch.line, what, cure)
            self.port = self.source = numbers[0]
            self.words = ["{port}" if word == numbers[0] else word for word in self.words]

    def ready(self, looked: str) -> str:
        """Return how the role is ready; `looked` is what waits for it in the file."""
        asked = re.search(r"(?:://[^\s'\"/]+|:(?:\d+|\$\{?\w+\}?))(/[\w./-]*)", looked)
        is_http = re.search(r"\bcurl\b|\bwget\b", looked) is not None
        by_default = self.known.health if self.known is not None else "/" if is_http else None
        path = asked[1] if asked is not None else by_default
        return "{host}:{port}" if path is None else f"http://{{host}}:{{port}}{path}"

    def env(self, lost: list[tuple[int, str, str]]) -> dict[str, str]:
        """Return the variables set before the command; those that no job may state are `lost`."""
        found = {}
        for name, setting in self.launch.settings.items():
            if is_secret_variable(name):
                lost.append((self.launch.line, f"{name}=…", HOLDS_SECRET))
            elif not setting.known:
                lost.append((self.launch.line, f"{name}=…", f"the value of {name} is known only when it runs"))
            elif name != "CUDA_VISIBLE_DEVICES":
                found[name] = setting.text
        return found

    @property
    def gpus(self) -> int:
        """The GPUs that it takes as far as the file says; 0 if it does not."""
        visible = self.launch.settings.get("CUDA_VISIBLE_DEVICES")
        if visible is not None and visible.known and visible.text:
            return visible.text.count(",") + 1
        asked = number_of(self.launch.srun, "gpus", "gpus-per-task", "gpus-per-node")
        counts = re.findall(rf"(?<!\S){_SHARES}[= ](\d+)", " ".join(self.words))
        by_default = 1 if counts or (self.known is not None and self.known.has_gpus) else 0
        return asked if asked is not None else math.prod(map(int, counts)) * by_default

    @property
    def sources(self) -> list[tuple[str, str]]:
        """What the file has for parts of its address."""
        words = " ".join(word.source for word in self.launch.command.words)
        named = re.findall(r"(?:-w|--nodelist|--host)[= ]?\s*['\"]?(\$[^\s'\"]+)", words)
        return [("port", self.source), *(("node-ip-address", text) for text in named)]


def _served(found: FoundRoles) -> FoundRoles | None:
    servers = list(_servers(found.original))
    _refuse_nested(found, [one.launch for one in servers])
    if not servers:
        return None
    server, *others = servers
    line = server.launch.line
    if others:
        what = f"starts a server beside that of line {line}, and a job that is adopted has one"
        raise found.refused(others[0].launch.line, what, "write a job file with roles for them (docs/jobs.md)")
    _refuse_container(found, server.launch, "a server")
    server.read(found)
    found.take(server.node, f"roles: {SERVER}", Where.JOB)
    waits = _waits(found)
    ready = server.ready("\n".join(text for _, text in waits))
    found.server = {"command": server.words, "ready": ready}
    if env := server.env(found.lost):
        found.server["env"] = env
    for node, _ in waits:
        found.take(node, f"ready: {ready}")
    variable = contract.variable(SERVER)
    told = tell(found, address_in(found.original, variable, server.port, server.sources))
    if not re.search(rf"\$(?:{variable}(?!\w)|\{{{variable}##)", told):
        what = f"what asks the server for its port must read {variable}: host:port"
        found.lost.append((line, f"port {server.port}", what))
    _place(found, server)
    return found


def _refuse_nested(found: FoundRoles, roles: list[LaunchedProgram]) -> None:
    """Raise AdoptionError for a server that an `if`, a loop or a function starts: without it, the training has none."""
    script = found.original
    training = max((one.command.at for one in script.training if not one.command.background), default=0)
    for one in script.launches:
        command, known = one.command, _known(one)
        is_server = known is not None or SERVES.search(command.text) is not None
        if not (is_server and command.background) or command.dead or one.name in WATCHES | PRINTERS or one in roles:
            continue
        behind = [other for other in script.commands if command.at < other.at < training or "function" in other.within]
        if (known is not None and known.has_gpus) or any(is_look(other) or other.name == "sleep" for other in behind):
            what = (
                f"starts a server in a statement with others ({', '.join(command.within)}), and a role starts by itself"
            )
            cure = "start it in a line of its own, or write a job file with roles (docs/jobs.md)"
            raise found.refused(one.line, what, cure)


def _known(launch: LaunchedProgram) -> _Known | None:
    return next((row for pattern, row in _KNOWN.items() if re.search(pattern, launch.command.text)), None)


def _servers(script: BatchScript) -> Iterator[_Server]:
    """Yield the servers: what starts in the background and is awaited before the training starts."""
    statements = statements_of(script)

    @cache
    def how(at: int) -> str:
        node = statements[at]
        looks = looks_for_server(script, node.start_byte, node.end_byte)
        trains = any(one.trains and not one.command.background for one in _launches_in(script, node))
        return looks or ("trains" if trains else "")

    for at, node in enumerate(statements):
        is_alone = node.type in ("command", "redirected_statement", "pipeline") or (
            node.type in ("subshell", "compound_statement") and len(node.named_children) == 1
        )
        inside = _launches_in(script, node) if is_alone else []
        inside = [one for one in inside if one.outer is None and "substitution" not in one.command.within]
        started = [one for one in inside if one.command.background]
        if len(started) != 1:
            continue
        launch, text = started[0], started[0].command.text
        if not launch.program or launch.name in WATCHES | PRINTERS or launch.launcher is not None:
            continue
        asked = _awaited(map(how, range(at + 1, len(statements))))
        known = _known(launch)
        waits_itself = known is not None and known.has_gpus  # as its client may
        if asked == "address" or (asked == "sleep" and SERVES.search(text)) or waits_itself:
            yield _Server(node, launch, known)


def _awaited(behind: Iterable[str]) -> str:
    """Return how what was started is awaited before the next launch: by a look at an address, by a sleep, or not."""
    asked = ""
    for how in behind:
        if how == "address":
            return how
        if how == "trains":
            break
        asked = asked or how
    return asked


def _waits(found: FoundRoles) -> list[tuple[Node, str]]:
    """Return what waits for the start, with the functions that it calls; take what ends what was started."""
    script, first = found.original, found.taken[0][0].start_byte
    functions = {text_of(one.named_children[0]): text_of(one) for one in nodes_of(script.root, "function_definition")}
    waits = []
    for node in (one for one in found.left() if one.start_byte > first):
        text = text_of(node)
        if _ENDS.fullmatch(text):
            found.take(node, "trainjob ends it when the training has ended")
        elif looks_for_server(script, node.start_byte, node.end_byte):
            called = (body for name, body in functions.items() if re.search(rf"\b{re.escape(name)}\b", text))
            waits.append((node, " ".join((text, *called))))
    return waits


def _place(found: FoundRoles, server: _Server) -> None:
    """Say on which hosts, or on how many GPUs of the training's, the server runs."""
    script, training = found.original, main_launch(found.script)
    total, line = script.request.nodes or 1, server.launch.line
    gpus = script.request.gpus_of_node(total)
    found.nodes = found.script.nodes_of(training) or total
    own = script.nodes_of(server.launch) or 1
    is_short = found.nodes + own > total
    if not is_short or not gpus:
        found.server = {"hosts": own, **found.server}
        if is_short:
            found.changes.append(
                f"line {line}: the server shares the CPUs of {quantity(total, 'node')} with the "
                f"training; in the job it has {quantity(own, 'node')} of its own"
            )
        return
    visible = training.settings.get("CUDA_VISIBLE_DEVICES")
    of_training = visible.text.count(",") + 1 if visible is not None and visible.known and visible.text else gpus
    taken = server.gpus or gpus - of_training
    if found.nodes > 1:
        what = f"starts a server on one of the {found.nodes} nodes of the training"
        raise found.refused(line, what, "start the training on the other nodes, or give the job a node more")
    if not taken:
        what = f"does not say how many of {quantity(gpus, 'GPU')} the server takes"
        raise found.refused(line, what, "write CUDA_VISIBLE_DEVICES=0 before it, with those that it takes")
    if taken >= gpus:
        what = f"gives the server {taken} of {quantity(gpus, 'GPU')}, and leaves none to the training"
        cure = "ask for more GPUs, or write a job file whose server has hosts: 1, a node of its own (docs/jobs.md)"
        raise found.refused(line, what, cure)
    found.server = {"gpus": taken, **found.server}
