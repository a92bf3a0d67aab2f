"""What is found of the roles of a batch file: its lines that make them, and what is left of it for the training.

A kept line that reads an address is refused, for a role's address is known only when its command starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchfiles.adoption.account import Account, Entry, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.parts import names_in
from batchfiles.adoption.places import PathOrigin, with_lines
from batchfiles.adoption.start import NOT_ASKED, AdoptedStart, AdoptionError, start_of
from batchfiles.bash.expansion import text_of
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, script_of
from trainjob.contract import roles as contract

if TYPE_CHECKING:
    from tree_sitter import Node

MAIN, SERVER = "train", "server"
_TOLD = re.compile(rf"\$\{{?(?:{contract.variable('')}|RAY_ADDRESS)")
_SWITCHES = re.compile(
    r"(?:source|\.|conda|mamba|micromamba|module|ml|spack|deactivate)\s|deactivate$|eval\b.*\bhook\b"
)


@dataclass
class FoundRoles:
    """The roles of a file: `text` is what is left of it, and `server` has the keys of the other role, if there is one.

    What is taken out leaves blanks, so that all else stays where it is.
    """

    original: BatchScript
    text: bytearray
    has_ray: bool
    nodes: int = 1  # of the training
    gpus: int = 0  # of each node, as Ray is told
    server: dict[str, object] = field(default_factory=dict)
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
        return [node for node in statements_of(self.original) if not any(node == one for one, _, _ in self.taken)]

    def refused(self, line: int, what: str, cure: str) -> AdoptionError:
        """Return the error of a line that no role can be made of."""
        return AdoptionError(f"{self.original.path}:{line} {what}", cure)

    @property
    def _shared(self) -> int:
        return int(str(self.server.get("gpus", 0)))

    @property
    def _apart(self) -> int:
        return int(str(self.server.get("hosts", 0)))

    def start_of(self, launch: LaunchedProgram, account: Account) -> AdoptedStart:
        """Return what the training starts: with Ray or beside a server, one program on each node, or its ranks."""
        is_alike = not self.has_ray and not self._shared
        found = start_of(self.script, launch, account if is_alike and launch.srun is not None else Account())
        if is_alike:
            return found._replace(nodes=self.nodes)
        stated = self.script.request.gpus_of_node(self.script.request.nodes or 1) or self.gpus
        if found.gpus and not stated:
            account.note(Where.LOST, launch.place, "GPUs", NOT_ASKED)
        gpus = stated or found.gpus
        return AdoptedStart(self.nodes, gpus or 1, "node", gpus, found.cpus)

    def fill(self, start: AdoptedStart, keys: Keys, account: Account, place: PathOrigin) -> None:
        """Turn the job's command into the role that needs the others, and say what became of the lines taken out."""
        self._refuse_kept(keys, account)
        for node in (node for node, where, _ in self.taken if where is Where.JOB):
            self.server["command"] = place.from_folder(_words(self.server), node.start_byte)
        job, server = keys.job, {SERVER: self.server} if self.server else {}
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
        if server:
            main["needs"] = list(server)
        job.pop("instances", None)
        job.pop("hosts", None)
        job["roles"] = {**server, MAIN: main}
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
            account.note(Where.LOST, line, text, what)
        account.changes += self.changes

    def _refuse_kept(self, keys: Keys, account: Account) -> None:
        """Raise AdoptionError for what reads an address beside the training, or gives it another environment."""
        gone = {one.name for one in self.original.assignments} - {one.name for one in self.script.assignments}
        kept = keys.cluster.get("prologue")
        of_job = keys.job.get("env")
        env = [f"{name}={value}" for name, value in of_job.items()] if isinstance(of_job, dict) else []
        for text in [*(kept if isinstance(kept, list) else []), *env, *_words(self.server)]:
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
        what = f"roles: {MAIN}: hosts" if entry.what == f"instances: {start.instances}" else entry.what
        if self._apart and re.match(r"srun --(?:exclude|nodelist)", entry.text):
            return entry._replace(where=Where.TRAINJOB, what="a server has nodes of its own")
        is_told = entry.span is not None and _TOLD.search(entry.text) is not None
        return entry._replace(what=what, text=self.original.lines[entry.line - 1].strip() if is_told else entry.text)


def _words(server: Mapping[str, object]) -> list[str]:
    words = server.get("command")
    return words if isinstance(words, list) else []


def statements_of(script: BatchScript) -> list[Node]:
    """Return the statements at the top of a file."""
    return [one for one in script.root.named_children if one.type not in ("comment", "function_definition")]
