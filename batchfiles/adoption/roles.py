"""A batch file that brings up Ray, or a server beside its training: the roles of a job in place of these lines.

Two shapes are known: a server in the background and then the training, and Ray's head, its workers and the driver.
Their lines are taken out of the file, and what is left of it is adopted as any other. A kept line that reads an
address is refused, for a role's address is known only when its command starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from batchfiles.adoption.account import HOLDS_SECRET, Account, Entry, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.parts import names_in
from batchfiles.adoption.places import PathOrigin, with_lines
from batchfiles.adoption.start import AdoptedStart, AdoptionError, main_launch, start_of
from batchfiles.bash.expansion import text_of
from batchfiles.bash.values import HOLE
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.script import BatchScript, nodes_of, script_of
from batchfiles.slurm.servers import SERVES, looks_for_server
from trainjob.contract import roles as contract
from trainjob.contract.programs.helpers import PRINTERS, WATCHES
from trainjob.contract.programs.secret_names import is_secret_variable
from trainjob.planning.words import quantity

if TYPE_CHECKING:
    from tree_sitter import Node

_MAIN, _SERVER = "train", "server"
_TOLD = re.compile(rf"\$\{{?(?:{contract.variable('')}|RAY_ADDRESS)")
_RAY_START = re.compile(r"\bray\s+start\b")
_RAY_JOB = re.compile(r"ray\s+job\s+submit\b.*?\s--\s+", re.DOTALL)
# Options of `ray start` that a role with ray: true decides.
_OF_RAY = re.compile(
    r"head|address|block|(?:[\w-]+-)?port(?:-list)?|node-ip-address|num-(?:cpus|gpus)|(?:include-)?dashboard(?:-host)?|"
    r"disable-usage-stats|temp-dir|redis-password|verbose|log-\w+|autoscaling-config"
)
_PORT = re.compile(r"--?(?:p|port|http[-_]port|server[-_]port)")
_HOST = re.compile(r"--host|--bind|-H")
_HERE = r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\$\{?HOSTNAME\}?|\$\(hostname(?: -[a-zA-Z])?\))"
_APART = rf"(--?[\w-]*(?:host|addr|ip)[\w-]*[= ])['\"]?{_HERE}['\"]?(?!\S)"
_SHARES = r"--?(?:(?:tp|dp|pp|tensor[-_]parallel|data[-_]parallel|pipeline[-_]parallel)(?:[-_]size)?|num[-_]shard)"
_ENDS = re.compile(
    r"(?:srun\s[^;&|]*\s)?ray\s+stop\b.*|(?:kill|pkill|killall)\b.*|redis-cli\b.*\bshutdown\b.*|(?:export\s+)?\w+=\"?\$!\"?",
    re.DOTALL,
)
_SWITCHES = re.compile(
    r"(?:source|\.|conda|mamba|micromamba|module|ml|spack|deactivate)\s|deactivate$|eval\b.*\bhook\b"
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


@dataclass
class FoundRoles:
    """The roles of a file: `text` is what is left of it, and `servers` are the keys of the others.

    What is taken out leaves blanks, so that all else stays where it is.
    """

    original: BatchScript
    text: bytearray
    has_ray: bool
    nodes: int = 1  # of the training
    servers: dict[str, dict[str, object]] = field(default_factory=dict)
    taken: list[tuple[Node, Where, str]] = field(default_factory=list)
    lost: list[tuple[int, str, str]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    told: Callable[[str], str] = str  # a text of the file with what trainjob tells in place of addresses
    exports: dict[str, str] = field(default_factory=dict)  # the training's, which hold addresses
    _script: BatchScript | None = None

    def take(self, node: Node, what: str, where: Where = Where.TRAINJOB) -> None:
        """Take a statement out of the file."""
        behind = node.next_sibling
        end = behind.end_byte if behind and behind.type in ("&", ";") else node.end_byte
        self.write(node.start_byte, end, re.sub(rb"[^\n]", b" ", self.text[node.start_byte : end]))
        self.taken.append((node, where, what))

    def write(self, start: int, end: int, text: bytes) -> None:
        """Put a text in the place of another."""
        self.text[start:end] = text
        self._script = None

    @property
    def script(self) -> BatchScript:
        """What is left of the file."""
        if self._script is None:
            one = self.original
            self._script = script_of(one.path, bytes(self.text), one.site, one.arguments, one.options)
        return self._script

    def left(self) -> list[Node]:
        """Return the statements that were not taken."""
        return [node for node in _statements(self.original) if not any(node == one for one, _, _ in self.taken)]

    def refused(self, line: int, what: str, cure: str) -> AdoptionError:
        """Return the error of a line that no role can be made of."""
        return AdoptionError(f"{self.original.path}:{line} {what}", cure)

    @property
    def _shared(self) -> int:
        return sum(int(str(server.get("gpus", 0))) for server in self.servers.values())

    @property
    def _apart(self) -> int:
        return sum(int(str(server["hosts"])) for server in self.servers.values() if "gpus" not in server)

    def start_of(self, launch: LaunchedProgram, account: Account) -> AdoptedStart:
        """Return what the training starts: with Ray or beside a server, one program on each node, or its ranks."""
        is_alike = not self.has_ray and not self._shared
        found = start_of(self.script, launch, account if is_alike and launch.srun is not None else Account())
        if is_alike:
            return found._replace(nodes=self.nodes)
        gpus = _gpus_of_node(self.script) or found.gpus
        return AdoptedStart(self.nodes, gpus or 1, "node", gpus, found.cpus)

    def fill(self, start: AdoptedStart, keys: Keys, account: Account, place: PathOrigin) -> None:
        """Turn the job's command into the role that needs the others, and say what became of the lines taken out."""
        self._refuse_kept(keys, account)
        at = {what: node.start_byte for node, where, what in self.taken if where is Where.JOB}
        for name, server in self.servers.items():
            server["command"] = place.from_folder(_words(server), at[f"roles: {name}"])
        job = keys.job
        main: dict[str, object] = {"hosts": start.nodes, "ray": True} if self.has_ray else {"hosts": start.nodes}
        main["command"] = job.pop("command")
        main["instances"] = start.nodes * (start.ranks - self._shared)
        per = job.pop("command_per", None)
        if self.exports:
            exports = [f'export {name}="{value}"' for name, value in sorted(self.exports.items())]
            main["command"] = with_lines(_words(main), exports)
            per = "node" if start.per == "node" else per
        if per is not None and not self.has_ray:
            main["command_per"] = per
        if self.servers:
            main["needs"] = list(self.servers)
        job.pop("instances", None)
        job.pop("hosts", None)
        job["roles"] = {**self.servers, _MAIN: main}
        if ("command",) in keys.comments:
            keys.comments["roles",] = keys.comments.pop(("command",))
        nodes = keys.of_cluster("nodes")
        if nodes and self._apart:
            nodes["count"] = start.nodes + self._apart
        account.entries = [self._as_it_stood(one, start) for one in account.entries]
        for node, where, what in self.taken:
            first, last = node.start_point.row + 1, node.end_point.row + (1 if node.end_point.column else 0)
            span = (node.start_byte, node.end_byte)
            account.note(where, first, text_of(node).split("\n")[0], what, max(first, last), span)
        for line, text, what in self.lost:
            account.note(Where.LOST, line, text.replace(HOLE, "…"), what)
        account.changes += self.changes

    def _refuse_kept(self, keys: Keys, account: Account) -> None:
        """Raise AdoptionError for what reads an address beside the training, or gives it another environment."""
        gone = {one.name for one in self.original.assignments} - {one.name for one in self.script.assignments}
        kept = keys.cluster.get("prologue")
        servers = [word for one in self.servers.values() for word in _words(one)]
        of_job = keys.job.get("env")
        env = [f"{name}={value}" for name, value in of_job.items()] if isinstance(of_job, dict) else []
        for text in [*(kept if isinstance(kept, list) else []), *env, *servers]:
            names = sorted(gone & names_in(text))
            if names or _TOLD.search(self.told(text)):
                line = next((at for at, one in enumerate(self.original.lines, 1) if text.split("\n")[0] in one), 0)
                raise self.refused(
                    line,
                    f"reads {names[0] if names else 'an address'}, and a role's address is known only when its command "
                    f"starts: {text}",
                    "have the training itself do what that line does",
                )
        first = min((node.start_point.row + 1 for node, where, _ in self.taken if where is Where.JOB), default=None)
        for one in account.entries:
            if first is not None and one.line > first and one.what == "prologue" and _SWITCHES.match(one.text):
                raise self.refused(
                    one.line,
                    f"changes the environment behind the start of a server in line {first}, and the roles of a job "
                    f"have one: {one.text}",
                    "start the server by its whole path (/envs/server/bin/vllm), and set up the training's above it",
                )

    def _as_it_stood(self, entry: Entry, start: AdoptedStart) -> Entry:
        """Return an entry with the file's own text, and with the role in the place of the number of instances."""
        what = f"roles: {_MAIN}: hosts" if entry.what == f"instances: {start.instances}" else entry.what
        if self._apart and re.match(r"srun --(?:exclude|nodelist)", entry.text):
            return entry._replace(where=Where.TRAINJOB, what="servers have nodes of their own")
        is_told = entry.span is not None and _TOLD.search(entry.text) is not None
        return entry._replace(what=what, text=self.original.lines[entry.line - 1].strip() if is_told else entry.text)


def roles_of(script: BatchScript) -> FoundRoles | None:
    """Return the roles of a file; None if it is of neither shape. Raises AdoptionError for one that is nearly so."""
    has_ray = any(_RAY_START.search(one.text) and not one.dead for one in script.commands)
    found = FoundRoles(script, bytearray(script.root.text or b""), has_ray)
    return _ray(found) if has_ray else _served(found)


def _words(server: Mapping[str, object]) -> list[str]:
    words = server["command"]
    return words if isinstance(words, list) else []


def _statements(script: BatchScript) -> list[Node]:
    return [one for one in script.root.named_children if one.type not in ("comment", "function_definition")]


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


def _gpus_of_node(script: BatchScript) -> int:
    request = script.request
    per_task = (request.gpus_per_task or 0) * (request.tasks_per_node or 1)
    total = re.search(r"(?:^|:)(\d{1,6})$", script.header.value("gpus") or "")
    in_all = -(-int(total[1]) // (request.nodes or 1)) if total is not None else 0
    return request.gpus_per_node or per_task or in_all


def _ray(found: FoundRoles) -> FoundRoles | None:
    script = found.original
    words: list[tuple[str, str]] = []
    started: list[LaunchedProgram] = []
    for node in _statements(script):
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
        found.take(node, f"ray: true of role {_MAIN} starts Ray")
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
    _tell(found, [_address(script, "RAY_ADDRESS", figure, words)])
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
    name: str = _SERVER
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
            elif _HOST.fullmatch(asked) and (value in ("localhost", "127.0.0.1") or HOLE in value):
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
            what = f"starts {self.launch.name}, and none of its words is its port"
            cure = "give it the port as --port NUMBER, for trainjob chooses a free one"
            raise found.refused(self.launch.line, what, cure)

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
    script, servers = found.original, list(_servers(found.original))
    if not servers:
        return None
    for at, one in enumerate(servers):
        one.name = f"{_SERVER}{at + 1}" if len(servers) > 1 else _SERVER
        _refuse_container(found, one.launch, "a server")
        one.read(found)
        found.take(one.node, f"roles: {one.name}", Where.JOB)
    if len(servers) > 1 and (apart := re.search(_APART, main_launch(found.script).command.text)):
        what = f"has the host of a server without its port, and there are {len(servers)} servers: {apart[0]}"
        raise found.refused(servers[0].launch.line, what, "give the training each address as host:port")
    waits = [(_awaited_by(servers, node, text), node, text) for node, text in _waits(found)]
    for one in servers:
        ready = one.ready("\n".join(text for server, _, text in waits if server is one))
        found.servers[one.name] = {"command": one.words, "ready": ready}
        if env := one.env(found.lost):
            found.servers[one.name]["env"] = env
        for _, node, _ in (wait for wait in waits if wait[0] is one):
            found.take(node, f"ready: {ready}")
    told = _tell(found, [_address(script, contract.variable(one.name), one.port, one.sources) for one in servers])
    for one in servers:
        variable = contract.variable(one.name)
        if not re.search(rf"\$(?:{variable}(?!\w)|\{{{variable}##)", told):
            what = f"what asks the server for its port must read {variable}: host:port"
            found.lost.append((one.launch.line, f"port {one.port}", what))
    _place(found, servers)
    return found


def _awaited_by(servers: list[_Server], node: Node, text: str) -> _Server:
    """Return the server whose port a wait names, or the last one that was started before it."""
    before = [one for one in servers if one.node.start_byte < node.start_byte]
    named = [one for one in servers if re.search(rf"(?:{re.escape(one.port)}|{re.escape(one.source)})(?!\w)", text)]
    return (named or before[-1:])[0]


def _servers(script: BatchScript) -> Iterator[_Server]:
    """Yield the servers: what starts in the background and is awaited before the training starts."""
    statements = _statements(script)
    for at, node in enumerate(statements):
        inside = _launches_in(script, node) if node.type in ("command", "redirected_statement", "pipeline") else []
        inside = [one for one in inside if one.outer is None and "substitution" not in one.command.within]
        started = [one for one in inside if one.command.background]
        if len(started) != 1:
            continue
        launch, text = started[0], started[0].command.text
        if not launch.program or launch.name in WATCHES | PRINTERS or launch.launcher is not None:
            continue
        asked = _awaited(script, statements[at + 1 :])
        known = next((row for pattern, row in _KNOWN.items() if re.search(pattern, text)), None)
        waits_itself = known is not None and known.has_gpus  # as its client may
        if asked == "address" or (asked == "sleep" and SERVES.search(text)) or waits_itself:
            yield _Server(node, launch, known)


def _awaited(script: BatchScript, behind: list[Node]) -> str:
    """Return how what was started is awaited before the next launch: by a look at an address, by a sleep, or not."""
    asked = ""
    for node in behind:
        how = looks_for_server(script, node.start_byte, node.end_byte)
        if how == "address":
            return how
        asked = asked or how
        if not how and any(one.trains and not one.command.background for one in _launches_in(script, node)):
            break
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


class _Address(NamedTuple):
    """An address: what the file has in its place, as patterns, and its variables, each with what the job has there."""

    variable: str
    patterns: dict[str, str]
    names: dict[str, str]


def _address(script: BatchScript, variable: str, figure: str, sources: Iterable[tuple[str, str]]) -> _Address:
    """Find an address in the file. `sources` are words that hold it, or its host or port."""
    whole, host, number = f"${variable}", f"${{{variable}%:*}}", f"${{{variable}##*:}}"
    parts = {"address": whole, "node-ip-address": host, "port": number}
    waiting = [(source, parts[name]) for name, source in sources]
    for one in script.assignments:
        value = one.text.partition("=")[2].strip("'\"")
        is_host = re.search(r"(?i)host|addr|ip$", one.name) and "MASTER" not in one.name and re.fullmatch(_HERE, value)
        if is_host or ("port" in one.name.lower() and one.value.known and one.value.text == figure):
            waiting.append((f"${one.name}", host if is_host else number))
    names, patterns = dict[str, str](), dict[str, str]()
    while waiting:
        source, stands = waiting.pop()
        name = re.fullmatch(r"\$\{?(\w+)\}?", source)
        if name is not None and name[1] not in names and not name[1].startswith("SLURM"):
            names[name[1]] = stands
            given = (one for one in script.assignments if one.name == name[1])
            waiting += [(one.text.partition("=")[2].strip("'\""), stands) for one in given]
        elif name is None and stands == whole and ":" in source:
            waiting += zip(source.rsplit(":", 1), (host, number), strict=True)
        elif re.fullmatch(r"\$\{\w+\[[^]]+\]\}", source):
            patterns[re.escape(source)] = stands
    hosts = [_HERE, *patterns, *(rf"\$\{{?{name}\}}?" for name, stands in names.items() if stands == host)]
    numbers = [rf"\$\{{?{name}\}}?" for name, stands in names.items() if stands == number]
    numbers += [figure if figure.isdigit() else "(?!)"]
    of_number = rf"(?:{'|'.join(numbers)})(?![\w.])"
    at_port = {
        rf"(?:{'|'.join(hosts)}):{of_number}": whole,
        rf"(--?[\w-]*port[= ]){of_number}": rf"\g<1>{number}",
        _APART: rf"\g<1>{host}",
    }
    return _Address(variable, at_port | patterns, names)


def _tell(found: FoundRoles, addresses: list[_Address]) -> str:
    """Put what trainjob tells in place of addresses in the training's statement, and of variables made of them.

    Return the new text of the statement.
    """
    script, at = found.original, main_launch(found.script).command.at
    known = {name: stands for one in addresses for name, stands in one.names.items()}
    given = {one.variable for one in addresses}

    def told(text: str) -> str:
        for one in addresses:
            for pattern, stands in one.patterns.items():
                text = re.sub(pattern, stands, text)
        for name, stands in known.items():
            text = re.sub(rf"\$\{{{name}\}}|\${name}\b", stands.replace("\\", r"\\"), text)
        return text

    training = None
    for node in (one for one in found.left() if one.start_byte <= at):
        training, text = node, text_of(node)
        assigned = [one for one in script.assignments if node.start_byte <= one.at < node.end_byte and not one.source]
        if node.type in ("variable_assignment", "declaration_command", "variable_assignments"):
            for one in assigned:
                value = one.text.partition("=")[2].strip("'\"")
                if told(value) != value and "$(" not in value:
                    known.setdefault(one.name, told(value))
        is_export = re.match(r"export\s|declare -\w*x", text) is not None
        unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "''", text)
        bare = re.findall(r"(?<=\s)\w+(?=\s|$)", unquoted) if is_export else []
        names = {*(one.name for one in assigned), *bare}
        all_told = known.keys() | given
        if node.end_byte <= at and names & all_told and (names <= all_told or node.type == "if_statement"):
            found.take(node, f"{addresses[0].variable} has its address")
            found.exports |= {name: known[name] for name in names - given if is_export}
    found.told = told
    if training is None or training.end_byte <= at:
        return ""
    statement = bytes(found.text[at : training.end_byte]).decode()
    new = told(re.sub(r"\bRAY_ADDRESS=\S+\s+", "", statement) if found.has_ray else statement)
    found.write(at, training.end_byte, new.encode())
    return " ".join((new, *found.exports.values()))


def _place(found: FoundRoles, servers: list[_Server]) -> None:
    """Say on which hosts, or on how many GPUs of the training's, each server runs."""
    script, training = found.original, main_launch(found.script)
    total, gpus, line = script.request.nodes or 1, _gpus_of_node(script), servers[0].launch.line
    found.nodes = found.script.nodes_of(training) or total
    own = {one.name: script.nodes_of(one.launch) or 1 for one in servers}
    is_short = found.nodes + sum(own.values()) > total
    if not is_short or not gpus:
        found.servers |= {name: {"hosts": hosts, **found.servers[name]} for name, hosts in own.items()}
        if is_short:
            found.changes.append(
                f"line {line}: the server shares the CPUs of {quantity(total, 'node')} with the "
                f"training; in the job it has {quantity(sum(own.values()), 'node')} of its own"
            )
        return
    visible = training.settings.get("CUDA_VISIBLE_DEVICES")
    of_training = visible.text.count(",") + 1 if visible is not None and visible.known and visible.text else gpus
    taken = {one.name: one.gpus or (gpus - of_training if len(servers) == 1 else 0) for one in servers}
    if found.nodes > 1:
        what = f"starts a server on one of the {found.nodes} nodes of the training"
        raise found.refused(line, what, "start the training on the other nodes, or give the job a node more")
    if not all(taken.values()):
        what = f"does not say how many of {quantity(gpus, 'GPU')} the server takes"
        raise found.refused(line, what, "write CUDA_VISIBLE_DEVICES=0 before it, with those that it takes")
    if sum(taken.values()) >= gpus:
        what = f"gives the server {sum(taken.values())} of {quantity(gpus, 'GPU')}, and leaves none to the training"
        cure = "ask for more GPUs, or write a job file whose server has hosts: 1, a node of its own (docs/jobs.md)"
        raise found.refused(line, what, cure)
    found.servers |= {name: {"gpus": count, **found.servers[name]} for name, count in taken.items()}
