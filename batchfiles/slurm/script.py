"""A batch file that others wrote: its directives, its commands, the programs it starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from batchfiles.bash.builtins import obey
from batchfiles.bash.commands import Assignment, ShellCommand
from batchfiles.bash.expansion import Variables, Word, text_of
from batchfiles.bash.shell import Bash, ShellReader, parse
from batchfiles.bash.statements import READERS
from batchfiles.bash.syntax import shebang_options
from batchfiles.bash.values import HOLE, Value, number, unknown
from batchfiles.slurm.directives import Directive, Header, read_header, with_arguments
from batchfiles.slurm.launches import LaunchedProgram, launches, number_of, option
from batchfiles.slurm.request import RequestedResources, SiteFacts, request_of
from trainjob.cluster import slurm_text
from trainjob.contract.errors import UserError
from trainjob.contract.programs.launchers import uses_lightning
from trainjob.contract.programs.ranks import SLURM_PLACE
from trainjob.contract.programs.slurm_options import read_options
from trainjob.records.files import read_first

if TYPE_CHECKING:
    from tree_sitter import Node

_PARTS = re.compile(r"#SBATCH\s+(?:hetjob|packjob)\b")
_TO_FILL_IN = re.compile(r"\s*(?:export\s+)?[A-Za-z_]\w*=[^\s'\"<>]*<[A-Za-z][\w.-]*>")
# The name of the file may precede or follow the option, so the first group is the rest of the command.
_ON_COMMAND_LINE = re.compile(r"\bsbatch(?=(\s[^#;&|]*))\s(?:[^#;&|]*?\s)?(?:-N\s*|--nodes[=\s])([1-9][0-9]{0,3})\b")
_SCRIPT = re.compile(r"(?<![\w.=-])([\w.-]+\.(?:sbatch|slurm|sh|bash|job|batch|sub|sl|cmd))\b")
ASKS_FOR_GPUS = frozenset(
    (
        *("gpus", "gres", "gpus-per-node", "gpus-per-task", "ntasks-per-gpu"),
        *("gpus-per-socket", "tres-per-task", "exclusive", "cpus-per-gpu"),
    )
)
LARGEST_BYTES = 4_000_000
_OF_TRAINER = re.compile(
    r"(?:--|\+*)trainer\.(?:devices|gpus|num_nodes|strategy|accelerator|precision|max_epochs)(?:=.*)?"
)
_HIDES_JOB = re.compile(r"\bSLURM_JOB_NAME=|\b(?:unset|env) [^;&|\n]*\bSLURM_NTASKS\b")


@dataclass
class BatchScript:
    """A batch file and all that is known of it without running it."""

    path: Path
    raw: bytes
    lines: list[str]
    header: Header
    request: RequestedResources
    shell: ShellReader
    comments: list[tuple[int, str]]
    site: SiteFacts
    root: Node
    placeholders: list[tuple[int, str]]  # lines with a <name> that has to be filled in
    arguments: Sequence[str] | None  # of the file, where they are known
    options: Sequence[str]  # that sbatch is given beside the file's own
    first_error: int | None  # the first line that bash's grammar does not allow

    @property
    def commands(self) -> list[ShellCommand]:
        """The commands, in order."""
        return self.shell.commands

    @cached_property
    def places(self) -> dict[int, int]:
        """When bash comes to each command, by its identity."""
        return {id(one): at for at, one in enumerate(self.commands)}

    @property
    def assignments(self) -> list[Assignment]:
        """The variables that are set, in order."""
        return self.shell.assignments

    @cached_property
    def launches(self) -> list[LaunchedProgram]:
        """The programs that the commands start."""
        return list(launches(self.commands))

    @cached_property
    def training(self) -> list[LaunchedProgram]:
        """The job's own work: the launches that are no helpers."""
        return [launch for launch in self.launches if launch.trains]

    @cached_property
    def work(self) -> list[LaunchedProgram]:
        """The training; without one the scripts that a shell is given, which may train."""
        return self.training or [one for one in self.launches if one.is_script and not one.command.dead]

    @cached_property
    def living(self) -> list[LaunchedProgram]:
        """The training, without what no path through the file reaches."""
        return [launch for launch in self.training if not launch.command.dead]

    @property
    def second_part(self) -> int | None:
        """The line that begins the second part of a heterogeneous job, which has its own nodes and tasks."""
        return next((number for number, line in enumerate(self.lines, 1) if _PARTS.match(line)), None)

    @property
    def is_batch_file(self) -> bool:
        """True if sbatch has something to read in it."""
        return bool(self.header.directives or self.header.ignored)

    @property
    def is_sent(self) -> bool:
        """True if the file is one for sbatch, or says so: not of another file, and it sends none."""
        if any(not re.search(r"\$\{?0|BASH_SOURCE", one.words[-1].source) for one in self.named("sbatch")):
            return self.is_batch_file
        said = (_SCRIPT.findall(line) for line in self.lines if re.search(r"\bsbatch\b", line))
        return self.is_batch_file or any(self.path.name in (names or [self.path.name]) for names in said)

    @property
    def asks_for_gpus(self) -> bool:
        """True if a directive asks for GPUs, or for whole nodes."""
        return any(
            one.name in ASKS_FOR_GPUS or one.spelled.startswith(("gpu", "gres")) for one in self.header.directives
        )

    @property
    def limit_s(self) -> int | None:
        """The seconds of its time limit; None for none, and for one that sbatch refuses."""
        with suppress(UserError, ValueError):
            return slurm_text.seconds(self.header.value("time") or "0")
        return None

    def line(self, number: int) -> str:
        """Return the text of a line; empty for one that there is not."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    @cached_property
    def code(self) -> str:
        """The file without its comments."""
        return "\n".join(line.partition(" #")[0] for line in self.lines if not line.lstrip().startswith("#"))

    def named(self, *names: str) -> Iterator[ShellCommand]:
        """Yield the commands of these names."""
        return (command for command in self.commands if command.name in names)

    def assigned(self, pattern: str) -> Iterator[Assignment]:
        """Yield what is given to variables whose whole name fits `pattern`; settings of one command are among them."""
        yield from (one for one in self.assignments if re.fullmatch(pattern, one.name))
        for launch in self.launches:
            for name, value in launch.settings.items():
                if re.fullmatch(pattern, name):
                    yield Assignment(
                        name, value, launch.line, exported=True, source=launch.command.source, dead=launch.command.dead
                    )

    def may_be_given(self, text: str) -> bool:
        """Return whether a text has a value that the environment may replace: ${NAME:-2}, or what has one."""
        names = re.findall(r"\$\{?(\w+)", text)
        return any(
            re.search(":[-=]", each) for each in (text, *(one.text for one in self.assignments if one.name in names))
        )

    def source_of(self, launch: LaunchedProgram) -> str:
        """Return the Python source of a launch, where it is beside the file; else an empty text."""
        name = next((word.text for word in launch.program if word.text.endswith(".py")), "")
        if name and name not in self._sources:
            with suppress(OSError, ValueError):
                self._sources[name] = read_first(self.path.parent / name, LARGEST_BYTES).decode(errors="replace")
        return self._sources.setdefault(name, "")

    @cached_property
    def _sources(self) -> dict[str, str]:
        """The Python sources that were looked for, by their names in the file."""
        return {}

    def is_of_lightning(self, launch: LaunchedProgram) -> bool:
        """Return whether a program is one of Lightning's, by its words or its source."""
        told = any(_OF_TRAINER.fullmatch(word.text) for word in launch.program)
        return told or uses_lightning(self.source_of(launch))

    def hides_from_lightning(self, launch: LaunchedProgram) -> bool:
        """Return whether Lightning may not take this for a job: by a session's name, or without the number of tasks."""
        named = [self.header.value("job-name"), *(one.text for one in [option(launch.srun, "job-name", "J")] if one)]
        hidden = _HIDES_JOB.search(self.code) or re.search(r"SLURM_(?:NTASKS|JOB_NAME)\b", self.source_of(launch))
        return hidden is not None or not {"bash", "interactive"}.isdisjoint(named)

    def nodes_of(self, launch: LaunchedProgram) -> int | None:
        """Return the number of nodes on which a launch starts processes; None if the file does not tell."""
        starter = launch.srun or launch.layer("mpirun")
        if starter is None:
            return 1
        if number_of(starter, "nodes") is not None:
            return number_of(starter, "nodes")
        if number_of(starter, "ntasks") == 1:
            return 1
        return self.request.nodes

    @cached_property
    def usual_nodes(self) -> int | None:
        """The nodes of the job: those of the directives, else of sbatch's command line as comments show it."""
        if not self.guesses_nodes:
            return self.request.nodes
        lines = (found for _, comment in self.comments if (found := _ON_COMMAND_LINE.search(comment)))
        # A line for another file says nothing of this one.
        own = [found for found in lines if self.path.name in (_SCRIPT.findall(found[1]) or [self.path.name])]
        return min((int(found[2]) for found in own), default=None)

    @property
    def guesses_nodes(self) -> bool:
        """True if only a comment may tell how many nodes the job has."""
        return self.request.nodes is None and self.header.value("nodes") is None

    def usual_nodes_of(self, launch: LaunchedProgram) -> int | None:
        """Return as `nodes_of`, for a job with the usual nodes."""
        found = self.nodes_of(launch)
        follows = found is None and (launch.srun or launch.layer("mpirun")) is not None
        return self.usual_nodes if follows else found

    def spans_nodes(self, launch: LaunchedProgram) -> bool:
        """Return whether a launch has processes on several nodes of a job with the usual nodes."""
        return (self.usual_nodes_of(launch) or 1) > 1

    def starts_several(self, launch: LaunchedProgram) -> bool:
        """Return whether a launch is started several times: on several nodes, or as several tasks of one."""
        return self.spans_nodes(launch) or (self.tasks_per_node_of(launch) or 1) > 1

    def tasks_per_node_of(self, launch: LaunchedProgram) -> int | None:
        """Return how often each node starts a launch; None if the file does not tell."""
        srun = launch.srun
        if srun is None:
            return 1
        nodes = self.nodes_of(launch)
        per_node, tasks = number_of(srun, "ntasks-per-node"), self.request.tasks
        # Beside the job's own number of tasks srun ignores it (asked, Slurm 22.05, 24.11 and 26.05).
        is_ignored = per_node is not None and tasks is not None and nodes is not None and tasks > per_node * nodes
        if per_node is not None and not (is_ignored and not {"nodes", "ntasks"} & set(srun.options)):
            return per_node
        if (tasks := number_of(srun, "ntasks")) is not None:
            return max(1, tasks // nodes) if nodes else None
        if "ntasks" in srun.options or ("ntasks-per-node" in srun.options and per_node is None):
            return None
        return self.request.tasks_per_node

    def gpus_of(self, launch: LaunchedProgram) -> int | None:
        """Return the GPUs that one task of a launch sees; None if the file does not tell."""
        srun = launch.srun
        if srun is not None:
            if (per_task := number_of(srun, "gpus-per-task") or self.request.gpus_per_task) is not None:
                return per_task
            own = next((name for name in ("gpus", "gres", "gpus-per-node") if name in srun.options), None)
            if own is not None:
                stated = option(srun, own)
                is_per_node = own != "gpus" or self.nodes_of(launch) == 1
                return number(stated.text.rpartition(":")[2]) if stated and stated.known and is_per_node else None
        return self.request.gpus_per_node


def read_script(
    path: Path, site: SiteFacts, arguments: Sequence[str] | None = None, options: Sequence[str] = ()
) -> BatchScript:
    """Return what `path` says, called with `arguments` if they are known. Raises OSError, DamagedError.

    `options` are those that sbatch is given beside the file's own.
    """
    return script_of(path, read_first(path, LARGEST_BYTES), site, arguments, options)


def script_of(
    path: Path,
    raw: bytes,
    site: SiteFacts,
    arguments: Sequence[str] | None = None,
    options: Sequence[str] = (),
    *,
    hides_undecided: bool = False,
) -> BatchScript:
    """Return what the bytes `raw` say, as the content of `path`.

    `hides_undecided`: what a branch sets of which only a run can tell whether it is taken is not known, nor a place
    that Slurm tells each task.
    """
    text = _text(raw)
    lines = text.split("\n")
    placeholders = [(number, line.strip()) for number, line in enumerate(lines, 1) if _TO_FILL_IN.match(line)]
    # bash would read from a file of that name, and what was meant would be lost.
    root = parse("\n".join(map(_readable, lines)))
    comments = [(comment.start_point.row + 1, text_of(comment)) for comment in nodes_of(root, "comment")]
    whole_lines = {
        number
        for number, comment in comments
        if 0 < number <= len(lines) and lines[number - 1].lstrip().startswith("#")
    }
    header = with_arguments(read_header(lines, frozenset(whole_lines)), arguments or ())
    header.directives += [Directive(0, name, value, name) for name, value, _ in read_options(options)]
    request = request_of(header, site)
    variables = Variables(hides_undecided=hides_undecided)
    for name, known in request.slurm_variables.items():
        is_hidden = hides_undecided and name in SLURM_PLACE
        variables.set(name, unknown(name) if is_hidden else Value(known, frozenset({name})))
    for name, option_name in (("SLURM_GPUS_PER_NODE", "gpus-per-node"), ("SLURM_GPUS", "gpus")):
        if (stated := header.value(option_name)) is not None and re.fullmatch(r"[\w:.-]+", stated):
            variables.set(name, Value(stated, frozenset({name})))  # as it is written
    if arguments is not None:
        variables.set_arguments([Word(Value(one), "$@", quoted=True) for one in arguments])
        if header.value("array") is None:
            variables.absent = frozenset(f"SLURM_ARRAY_{name}" for name in ("JOB_ID", "TASK_ID", "TASK_COUNT"))
    shell = ShellReader(Bash(READERS, obey), variables, _beside(path))
    shell.options |= shebang_options(lines[0])
    with suppress(RecursionError):  # brackets inside brackets: what was read until here counts
        shell.run(root)
    error = next((node.start_point.row + 1 for node in nodes_of(root, "ERROR")), None) if root.has_error else None
    return BatchScript(
        path, raw, lines, header, request, shell, comments, site, root, placeholders, arguments, options, error
    )


def _text(raw: bytes) -> str:
    text = raw.decode(errors="replace").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")


# A substitution of nothing but a comment, in a command that goes on in the next line.
_COMMENT_WITHIN = re.compile(r"(?<=\s)`#[^`]*`(?=\s*\\$)")


def _readable(line: str) -> str:
    """Return a line as it is meant, with as many bytes."""
    if _TO_FILL_IN.match(line):
        return re.sub(r"<([A-Za-z][\w.-]*)>", r"_\1_", line)
    return _COMMENT_WITHIN.sub(lambda found: " " * len(found[0].encode()), line) if "`#" in line else line


def nodes_of(root: Node, *kinds: str, outside: tuple[str, ...] = ()) -> Iterator[Node]:
    """Yield the nodes of these kinds below `root`, in order, however deep they are; none below those `outside`."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in kinds:
            yield node
        if node.type not in outside:
            waiting.extend(reversed(node.children))


def _beside(path: Path) -> Callable[[str], tuple[str, str] | None]:
    folder = path.parent

    def find(name: str) -> tuple[str, str] | None:
        """Return the path and the text of a script that the file calls, if it is beside it."""
        if HOLE in name or not name or len(name) > 500 or "\n" in name or "\0" in name:
            return None
        for place in (folder / name, folder.parent / name, folder / Path(name).name):
            try:
                if place.is_file() and place.resolve() != path.resolve():
                    return str(place), _text(read_first(place, LARGEST_BYTES))
            except (OSError, ValueError):
                continue
        return None

    return find
