"""A batch file that brings up Ray, or a server beside its training: the roles of a job in place of these lines.

Two shapes are known: a server in the background and then the training, and Ray's head, its workers and the driver.
Their lines are taken out of the file, and what is left of it is adopted as any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchfiles.adoption.account import HOLDS_SECRET, Account, Entry, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.parts import names_in
from batchfiles.adoption.start import AdoptedStart, AdoptionError, main_launch, start_of
from batchfiles.bash.expansion import Word, text_of
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
_TOLD = rf"\$\{{?(?:{contract.variable('')}|RAY_ADDRESS)"
_RAY_START = re.compile(r"\bray\s+start\b")
_RAY_JOB = re.compile(r"ray\s+job\s+submit\b.*?\s--\s+", re.DOTALL)
_ADDRESS = r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\$\{?HOSTNAME\}?|\$\(hostname(?: -[a-zA-Z])?\))"
# Options of `ray start` that a role with ray: true decides.
_OF_RAY = re.compile(
    r"head|address|block|(?:[\w-]+-)?port(?:-list)?|node-ip-address|num-(?:cpus|gpus)|(?:include-)?dashboard(?:-host)?|"
    r"disable-usage-stats|temp-dir|redis-password|verbose|log-\w+|autoscaling-config"
)
_SHARES = r"--?(?:(?:tp|dp|pp|tensor[-_]parallel|data[-_]parallel|pipeline[-_]parallel)(?:[-_]size)?|num[-_]shard)"


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
class _Edits:
    """What is taken out of a file and put in: lines stay where they are."""

    script: BatchScript
    taken: list[tuple[Node, Where, str]] = field(default_factory=list)
    replaced: list[tuple[int, int, bytes]] = field(default_factory=list)

    @property
    def text(self) -> bytes:
        return self.script.root.text or b""

    def take(self, node: Node, what: str, where: Where = Where.TRAINJOB) -> None:
        if not self.has_taken(node):
            self.taken.append((node, where, what))

    def has_taken(self, node: Node) -> bool:
        return any(one == node for one, _, _ in self.taken)

    def result(self) -> BatchScript:
        text = self.text
        edits = list(self.replaced)
        for node, _, _ in self.taken:
            end = node.end_byte
            if node.next_sibling is not None and node.next_sibling.type in ("&", ";"):
                end = node.next_sibling.end_byte
            edits.append((node.start_byte, end, re.sub(rb"[^\n]", b" ", text[node.start_byte : end])))
        for start, end, put in sorted(edits, reverse=True):
            text = text[:start] + put + text[end:]
        script = self.script
        return script_of(script.path, text, script.site, script.arguments, script.options)


@dataclass
class FoundRoles:
    """The roles of a file: `script` is what is left of it, and `servers` are the keys of the others."""

    original: BatchScript
    script: BatchScript
    taken: list[tuple[Node, Where, str]]
    nodes: int  # of the training
    servers: dict[str, dict[str, object]]
    has_ray: bool = False
    lost: list[tuple[int, str, str]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

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

    def fill(self, start: AdoptedStart, keys: Keys, account: Account) -> None:
        """Turn the job's command into the role that needs the others, and say what became of the lines taken out."""
        kept = keys.cluster.get("prologue")
        gone = {one.name for one in self.original.assignments} - {one.name for one in self.script.assignments}
        for name in sorted(gone & names_in("\n".join(kept) if isinstance(kept, list) else "")):
            line = next(number for number, text in enumerate(self.script.lines, 1) if name in names_in(text))
            raise AdoptionError(
                f"{self.script.path}:{line} reads {name}, and a role's address is known only when its command starts",
                "have the training itself do what that line does",
            )
        job = keys.job
        main: dict[str, object] = {"hosts": start.nodes}
        if self.has_ray:
            main["ray"] = True
        main["command"] = job.pop("command")
        main["instances"] = start.nodes * (start.ranks - self._shared)
        per = job.pop("command_per", None)
        if per is not None and not self.has_ray:
            main["command_per"] = per
        if self.servers:
            main["needs"] = list(self.servers)
        for key in ("instances", "hosts"):
            job.pop(key, None)
        job["roles"] = {**self.servers, _MAIN: main}
        if ("command",) in keys.comments:
            keys.comments["roles",] = keys.comments.pop(("command",))
        nodes = keys.of_cluster("nodes")
        if nodes and self._apart:
            nodes["count"] = start.nodes + self._apart
        lines = self.original.lines
        account.entries = [self._as_it_stood(one, start, lines) for one in account.entries]
        for node, where, what in self.taken:
            first, last = node.start_point.row + 1, node.end_point.row + (1 if node.end_point.column else 0)
            account.note(
                where, first, text_of(node).split("\n")[0], what, max(first, last), (node.start_byte, node.end_byte)
            )
        for line, text, what in self.lost:
            account.note(Where.LOST, line, text, what)
        account.changes += self.changes

    def _as_it_stood(self, entry: Entry, start: AdoptedStart, lines: Sequence[str]) -> Entry:
        """Return an entry with the file's own text, and with the role in the place of the number of instances."""
        what = f"roles: {_MAIN}: hosts" if entry.what == f"instances: {start.instances}" else entry.what
        if self._apart and re.match(r"srun --(?:exclude|nodelist)", entry.text):
            return entry._replace(where=Where.TRAINJOB, what="servers have nodes of their own")
        is_told = entry.span is not None and re.search(_TOLD, entry.text) is not None
        return entry._replace(what=what, text=lines[entry.line - 1].strip() if is_told else entry.text)


def roles_of(script: BatchScript) -> FoundRoles | None:
    """Return the roles of a file; None if it is of neither shape. Raises AdoptionError for one that is nearly so."""
    if any(_RAY_START.search(one.text) and not one.dead for one in script.commands):
        return _ray(script)
    return _served(script)


def _statements(script: BatchScript) -> list[Node]:
    return [one for one in script.root.named_children if one.type not in ("comment", "function_definition")]


def _launches_in(script: BatchScript, node: Node) -> list[LaunchedProgram]:
    return [
        one
        for one in script.launches
        if node.start_byte <= one.command.at < node.end_byte and not one.source and not one.command.dead
    ]


def _refuse_container(script: BatchScript, launch: LaunchedProgram, what: str) -> None:
    if launch.layer("container") is not None or option(launch.srun, "container-image", "container-name") is not None:
        raise AdoptionError(
            f"{script.path}:{launch.line} starts {what} in a container, and roles run outside of containers",
            "keep this file, or take an environment that needs no container",
        )


def _gpus_of_node(script: BatchScript) -> int:
    request = script.request
    per_task = (request.gpus_per_task or 0) * (request.tasks_per_node or 1)
    total = re.search(r"(?:^|:)(\d{1,6})$", script.header.value("gpus") or "")
    in_all = -(-int(total[1]) // (request.nodes or 1)) if total is not None else 0
    return request.gpus_per_node or per_task or in_all


# Ray


def _ray(script: BatchScript) -> FoundRoles | None:
    edits, nodes = _Edits(script), script.request.nodes or 1
    started = [
        (node, found)
        for node in _statements(script)
        if (found := [one for one in _launches_in(script, node) if _RAY_START.search(one.command.text)])
    ]
    if not started:
        return None  # in a function, or a script of its own
    lost, addresses = [], dict[str, str]()
    for node, found in started:
        others = [one for one in _launches_in(script, node) if one.is_python or one.launcher is not None]
        if others:
            raise AdoptionError(
                f"{script.path}:{others[0].line} starts the driver in the same statement as Ray",
                "write a job file whose role has ray: true, which starts Ray and then its command (docs/jobs.md)",
            )
        for one in found:
            _refuse_container(script, one, "Ray")
            words = [word for word in one.command.words if word.text.startswith("--")] if one.name == "ray" else []
            for word in words:
                name = word.text.removeprefix("--").partition("=")[0]
                if not _OF_RAY.fullmatch(name) and one.srun is not None and name not in one.srun.options:
                    lost.append((one.line, word.text.replace(HOLE, "…"), "Ray is started without it"))
            addresses |= _addresses_of_ray(script, one)
        edits.take(node, f"ray: true of role {_MAIN} starts Ray")
    first, last = started[0][0].start_byte, started[-1][0].end_byte
    lost += _take_jobs(script, edits, last)
    _take_waits(script, edits, first, "Ray's own list of nodes says when all are in")
    rest = edits.result()
    driver = main_launch(rest)
    _use(script, edits, driver, addresses, frozenset({"RAY_ADDRESS"}), "RAY_ADDRESS is set for the command")
    has_workers = any("--head" not in one.command.text for _, found in started for one in found)
    changes = []
    if nodes > 1 and not has_workers and len(started) == 1:
        changes.append(f"line {started[0][1][0].line}: only Ray's head is started; the job starts it on {nodes} nodes")
    return FoundRoles(script, edits.result(), edits.taken, nodes, {}, has_ray=True, lost=lost, changes=changes)


def _addresses_of_ray(script: BatchScript, launch: LaunchedProgram) -> dict[str, str]:
    """Return the variables that hold the head's address or a part of it, and what stands for them in a role."""
    whole, host, port = "$RAY_ADDRESS", "${RAY_ADDRESS%:*}", "${RAY_ADDRESS##*:}"
    found: dict[str, str] = {}
    waiting = []
    for text in (" ".join(word.source for word in launch.command.words), launch.command.text):
        for name, value in re.findall(r"--(address|node-ip-address|port)[= ]['\"]?([^\s'\"]+)", text):
            waiting.append((value, {"address": whole, "node-ip-address": host, "port": port}[name]))
    while waiting:
        value, stands = waiting.pop()
        match = re.fullmatch(r"\$\{?(\w+)\}?", value)
        if match is None and stands == whole and ":" in value:
            waiting += list(zip(value.rsplit(":", 1), (host, port), strict=True))
        elif match is not None and match[1] not in found:
            found[match[1]] = stands
            given = {one.text.partition("=")[2].strip("'\"") for one in script.assignments if one.name == match[1]}
            waiting += [(text, stands) for text in given]
    return {name: stands for name, stands in found.items() if not name.startswith("SLURM")}


def _take_jobs(script: BatchScript, edits: _Edits, after: int) -> list[tuple[int, str, str]]:
    """Let the words behind `ray job submit … --` be the driver."""
    lost = []
    for node in nodes_of(script.root, "command"):
        match = _RAY_JOB.search(text_of(node)) if node.start_byte >= after else None
        if match is None:
            continue
        text = text_of(node)
        begin = node.start_byte + len(text[: match.start()].encode())
        end = node.start_byte + len(text[: match.end()].encode())
        line = node.start_point.row + 1
        for name in re.findall(r"--(runtime-env[\w-]*|working-dir|entrypoint[\w-]*)", match[0]):
            lost.append(
                (line, f"ray job submit --{name}", "the role's command is the driver itself, in the run's environment")
            )
        # A line that went on still does.
        blank = re.sub(rb"[^\n]", b" ", edits.text[begin:end]).replace(b"\n", b"\\\n")
        edits.replaced.append((begin, end, blank))
    return lost


# Servers


@dataclass
class _Server:
    node: Node
    launch: LaunchedProgram
    known: _Known | None
    name: str = _SERVER

    @property
    def words(self) -> list[Word]:
        words, srun = list(self.launch.command.words), self.launch.srun
        if srun is not None:
            words = words[len(words) - srun.left :]
        while words and (words[0].text in ("exec", "nohup", "env") or re.match(r"[A-Za-z_]\w*=", words[0].source)):
            words = words[1:]
        return words


def _served(script: BatchScript) -> FoundRoles | None:
    servers = list(_servers(script))
    if not servers:
        return None
    edits = _Edits(script)
    for at, one in enumerate(servers):
        one.name = f"{_SERVER}{at + 1}" if len(servers) > 1 else _SERVER
        edits.take(one.node, f"roles: {one.name}", Where.JOB)
    first = servers[0].node.start_byte
    waits = _take_waits(script, edits, first, "", of_servers=True)
    training = main_launch(edits.result())
    looked = " ".join(text_of(node) for node in waits)
    functions = {text_of(name): text_of(node) for node, name in _functions(script)}
    looked += " ".join(body for name, body in functions.items() if re.search(rf"\b{name}\b", looked))
    stated, ports = dict[str, dict[str, object]](), dict[str, tuple[str, str]]()
    lost: list[tuple[int, str, str]] = []
    for one in servers:
        _refuse_container(script, one.launch, "a server")
        stated[one.name], ports[one.name] = _keys_of(script, one, looked, lost)
    edits.taken = [
        (node, where, what or f"ready: {stated[_nearest(servers, node).name]['ready']}")
        for node, where, what in edits.taken
    ]
    for one in servers:
        _address(script, edits, training, one, ports[one.name], lost)
    changes: list[str] = []
    rest = edits.result()
    nodes = _placed(script, rest, servers, stated, changes)
    return FoundRoles(script, rest, edits.taken, nodes, stated, lost=lost, changes=changes)


def _nearest(servers: list[_Server], node: Node) -> _Server:
    return next((one for one in reversed(servers) if one.node.start_byte <= node.start_byte), servers[0])


def _functions(script: BatchScript) -> Iterator[tuple[Node, Node]]:
    for node in nodes_of(script.root, "function_definition"):
        name = node.child_by_field_name("name")
        if name is not None:
            yield node, name


def _servers(script: BatchScript) -> Iterator[_Server]:
    """Yield the servers: what starts in the background and is awaited before the training starts."""
    statements = _statements(script)
    for at, node in enumerate(statements):
        found = [
            one
            for one in _launches_in(script, node)
            if one.command.background and one.outer is None and "substitution" not in one.command.within
        ]
        if len(found) != 1 or node.type not in ("command", "redirected_statement", "pipeline"):
            continue
        launch, text = found[0], found[0].command.text
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


def _take_waits(script: BatchScript, edits: _Edits, first: int, what: str, *, of_servers: bool = False) -> list[Node]:
    """Take out what waits for the start, keeps a process number, or ends what was started."""
    found = []
    for node in _statements(script):
        if node.start_byte <= first or edits.has_taken(node):
            continue
        text = text_of(node)
        if looks_for_server(script, node.start_byte, node.end_byte):
            found.append(node)
            edits.take(node, what)
        elif re.fullmatch(r"(?:export\s+)?\w+=\"?\$!\"?", text):
            edits.take(node, "trainjob ends servers when the training has ended", Where.TRAINJOB)
        elif re.match(r"(?:srun\s[^;&|]*\s)?ray\s+(?:stop|status|health-check)\b", text):
            edits.take(node, "Ray ends with the command" if "stop" in text else what, Where.TRAINJOB)
        elif of_servers and re.match(r"(?:kill|pkill|killall)\b", text):
            edits.take(node, "trainjob ends servers when the training has ended", Where.TRAINJOB)
    return found


_PORT = re.compile(r"--?(?:p|port|http[-_]port|server[-_]port)")


def _keys_of(
    script: BatchScript, one: _Server, looked: str, lost: list[tuple[int, str, str]]
) -> tuple[dict[str, object], tuple[str, str]]:
    """Return the keys of a server's role, and its port: as the file's figure, and as its source."""
    launch, words = one.launch, one.words
    texts = [_text(script, launch, word) for word in words]
    port, source = "", ""
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if _PORT.fullmatch(name) and equals:
            port, source, texts[at] = value, word.source.partition("=")[2], f"{name}={{port}}"
        elif _PORT.fullmatch(name) and at + 1 < len(words):
            port, source, texts[at + 1] = words[at + 1].text, words[at + 1].source, "{port}"
        elif (
            name in ("--host", "--bind", "-H")
            and at + 1 < len(words)
            and words[at + 1].text in ("localhost", "127.0.0.1")
        ):
            texts[at + 1] = "{host}"
    if not port and one.known is not None:
        port = source = str(one.known.port)
        texts += ["--port", "{port}"]
    if not port:
        raise AdoptionError(
            f"{script.path}:{launch.line} starts {launch.name}, and none of its words is its port",
            "give it the port as --port NUMBER, for trainjob chooses a free one",
        )
    if one.known is not None and one.known.listens and one.known.listens[0] not in texts:
        texts += one.known.listens
    env = {}
    for name, setting in launch.settings.items():
        if name == "CUDA_VISIBLE_DEVICES":
            continue
        if is_secret_variable(name):
            lost.append((launch.line, f"{name}=…", HOLDS_SECRET))
        elif setting.known:
            env[name] = setting.text
        else:
            lost.append((launch.line, f"{name}=…", f"the value of {name} is known only when it runs"))
    asked = re.search(r"https?://[^\s'\"/]+(/[\w./-]*)", looked)
    is_http = asked is not None or re.search(r"\bcurl\b|\bwget\b", looked) is not None
    path = asked[1] if asked is not None else one.known.health if one.known is not None else "/" if is_http else None
    ready = "{host}:{port}" if path is None else f"http://{{host}}:{{port}}{path}"
    keys: dict[str, object] = {"command": texts, "ready": ready}
    if env:
        keys["env"] = env
    return keys, (port, source)


def _text(script: BatchScript, launch: LaunchedProgram, word: Word) -> str:
    if HOLE in word.text and not _PORT.match(word.text):
        before = next((one for one in launch.command.words if _PORT.fullmatch(one.text)), None)
        at = launch.command.words.index(word)
        if before is None or launch.command.words[at - 1] is not before:
            raise AdoptionError(
                f"{script.path}:{launch.line} starts a server with {word.source}, which is known only when it runs",
                "write its value there",
            )
    return word.text


def _address(
    script: BatchScript,
    edits: _Edits,
    training: LaunchedProgram,
    one: _Server,
    port: tuple[str, str],
    lost: list[tuple[int, str, str]],
) -> None:
    """Put the server's address, as trainjob tells it, where the file has it."""
    whole = f"${contract.variable(one.name)}"
    host, number = f"${{{whole[1:]}%:*}}", f"${{{whole[1:]}##*:}}"
    names: dict[str, str] = {}
    own = re.fullmatch(r"['\"]?\$\{?(\w+)\}?['\"]?", port[1])
    if own is not None:
        names[own[1]] = number
    for given in script.assignments:
        if given.value.known and given.value.text == port[0] and "port" in given.name.lower():
            names[given.name] = number
        elif _names(script, one, given.name):
            names[given.name] = host
    figures = [re.escape(port[0])] if HOLE not in port[0] else []
    figures += [rf"\$\{{?{name}\}}?" for name, stands in names.items() if stands == number]
    hosts = [_ADDRESS, *(rf"\$\{{?{name}\}}?" for name, stands in names.items() if stands == host)]
    at_port = rf"(?:{'|'.join(hosts)}):(?:{'|'.join(figures)})(?![\w.])"
    apart = rf"(--?[\w-]*(?:host|addr|ip)[\w-]*[= ])['\"]?{_ADDRESS}['\"]?(?=\s)"
    figure = rf"(--?[\w-]*port[= ])(?:{'|'.join(figures)})(?![\w.])"
    told = _use(
        script, edits, training, names, frozenset(), f"{contract.variable(one.name)} has its address",
        patterns={at_port: whole, apart: rf"\g<1>{host}", figure: rf"\g<1>{number}"},
    )  # fmt: skip
    if number not in told and re.search(rf"\{whole}(?!\w)", told) is None:
        what = f"what asks the server for its port must read {contract.variable(one.name)}: host:port"
        lost.append((one.launch.line, f"port {port[0]}".replace(HOLE, "…"), what))


def _names(script: BatchScript, one: _Server, name: str) -> bool:
    """Return whether a variable holds the node on which srun starts the server."""
    if option(one.launch.srun, "nodelist") is None:
        return False
    sources = " ".join(word.source for word in one.launch.command.words)
    given = {one.text.partition("=")[2].strip("'\"") for one in script.assignments if one.name == name}
    is_named = re.search(rf"(?:-w|--nodelist)[= ]?\s*['\"]?\$\{{?{re.escape(name)}\b", sources) is not None
    return is_named or any(text.startswith("$") and text in sources for text in given)


def _use(
    script: BatchScript,
    edits: _Edits,
    training: LaunchedProgram,
    names: Mapping[str, str],
    given: frozenset[str],
    what: str,
    *,
    patterns: Mapping[str, str] = {},
) -> str:
    """Put what trainjob tells in place of addresses in the training's statement, and of variables made of them.

    `given` are variables that trainjob sets by itself. Return the statement, if the training is told.
    """
    of_training = next(
        (node for node in _statements(script) if node.start_byte <= training.command.at < node.end_byte), None
    )
    known, exported = dict(names), set[str]()
    declared = {
        name
        for node in nodes_of(script.root, "declaration_command")
        if text_of(node).startswith(("export", "declare -x"))
        for name in re.findall(r"(?<=\s)([A-Za-z_]\w*)(?==|\s|$)", text_of(node))
    }

    def told(text: str) -> str:
        for pattern, stands in patterns.items():
            text = re.sub(pattern, stands, text)
        for name, stands in known.items():
            text = re.sub(rf"\$\{{{name}\}}|\${name}\b", stands, text)
        return text

    for node in _statements(script):
        if node is of_training or edits.has_taken(node) or node.start_byte >= training.command.at:
            continue
        assigned = [one for one in script.assignments if node.start_byte <= one.at < node.end_byte and not one.source]
        mine = {one.name for one in assigned}
        bare = set(re.findall(r"(?<=\s)\w+", text_of(node))) if text_of(node).startswith("export ") else set()
        for one in (
            assigned if node.type in ("variable_assignment", "declaration_command", "variable_assignments") else ()
        ):
            value = one.text.partition("=")[2].strip("'\"")
            if one.name not in known and told(value) != value and "$(" not in value:
                known[one.name] = told(value)
        if (mine and (mine & (known.keys() | given))) or (bare and bare <= (known.keys() | given)):
            exported |= (mine | bare) & declared & known.keys()
            if mine <= known.keys() | given or node.type == "if_statement":
                edits.take(node, what)
    if of_training is None:
        return ""
    start = training.command.at
    text = edits.text[start : of_training.end_byte].decode()
    new = told(text)
    prefix = "".join(f'{name}="{known[name]}" ' for name in sorted(exported - given))
    new = re.sub(rf"\b(?:{'|'.join(given)})=\S+\s+", "", new) if given else new
    if prefix + new == text:
        return ""
    overlapping = [one for one in edits.replaced if one[0] >= start]
    for begin, end, put in sorted(overlapping, reverse=True):
        raw = edits.text[start : of_training.end_byte]
        raw = raw[: begin - start] + put + raw[end - start :]
        new = told(raw.decode())
    edits.replaced = [one for one in edits.replaced if one[0] < start]
    edits.replaced.append((start, of_training.end_byte, (prefix + new).encode()))
    return prefix + new


def _placed(
    script: BatchScript,
    rest: BatchScript,
    servers: list[_Server],
    stated: dict[str, dict[str, object]],
    changes: list[str],
) -> int:
    """Say on which hosts, or on how many GPUs of the training's, each server runs; return the training's nodes."""
    training = main_launch(rest)
    total, gpus = script.request.nodes or 1, _gpus_of_node(script)
    nodes = rest.nodes_of(training) or total
    own = {one.name: script.nodes_of(one.launch) or 1 for one in servers}
    if nodes + sum(own.values()) <= total or not gpus:
        for name, hosts in own.items():
            stated[name] = {"hosts": hosts, **stated[name]}
        if nodes + sum(own.values()) > total:
            changes.append(
                f"line {servers[0].launch.line}: the server shares the CPUs of {quantity(total, 'node')} with the "
                f"training; in the job it has {quantity(sum(own.values()), 'node')} of its own"
            )
        return nodes
    if nodes > 1:
        raise AdoptionError(
            f"{script.path}:{servers[0].launch.line} starts a server on one of the {nodes} nodes of the training",
            "start the training on the other nodes, or give the job a node more: a server has nodes of its own, or "
            "shares all of the training's",
        )
    visible = training.settings.get("CUDA_VISIBLE_DEVICES")
    of_training = visible.text.count(",") + 1 if visible is not None and visible.known and visible.text else 0
    for one in servers:
        taken = _gpus_of(one) or (gpus - of_training if of_training and len(servers) == 1 else 0)
        if not taken:
            raise AdoptionError(
                f"{script.path}:{one.launch.line} does not say how many of {quantity(gpus, 'GPU')} the server takes",
                "write CUDA_VISIBLE_DEVICES=0 before it, with those that it takes",
            )
        stated[one.name] = {"gpus": taken, **stated[one.name]}
    sum_taken = sum(int(str(keys["gpus"])) for keys in stated.values())
    if sum_taken >= gpus:
        raise AdoptionError(
            f"{script.path}:{servers[0].launch.line} gives the server {sum_taken} of {quantity(gpus, 'GPU')}, and "
            "leaves none to the training",
            "ask for more GPUs, or write a job file whose server has hosts: 1, a node of its own (docs/jobs.md)",
        )
    return nodes


def _gpus_of(one: _Server) -> int:
    visible = one.launch.settings.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.known and visible.text:
        return visible.text.count(",") + 1
    if (asked := number_of(one.launch.srun, "gpus", "gpus-per-task", "gpus-per-node")) is not None:
        return asked
    texts = [word.text for word in one.words]
    counts = [int(value) for value in re.findall(rf"(?<!\S){_SHARES}[= ](\d+)", " ".join(texts))]
    product = 1
    for count in counts:
        product *= count
    if counts:
        return product
    return 1 if one.known is not None and one.known.has_gpus else 0
