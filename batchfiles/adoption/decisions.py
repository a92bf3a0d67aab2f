"""Decides where each statement around the training of a batch file goes.

The rules stand in order, and the first that has a decision counts. A statement for which none has one is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from batchfiles.adoption.account import HOLDS_SECRET, IN_COMMAND, SECRETS_FILE, Where
from batchfiles.adoption.parts import Parts, Role, Statement, names_in, takes_arguments
from batchfiles.adoption.places import PathOrigin, makes_environment
from batchfiles.bash.commands import Assignment, ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.bash.shell import parse
from batchfiles.bash.values import HOLE, Value
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.layers import taken_apart
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.cluster.common import refuse_name
from trainjob.contract.errors import RuleError
from trainjob.contract.programs.helpers import LEAVES_NOTHING, PRINTERS, WATCHES
from trainjob.contract.programs.ranks import PLACE_VARIABLES, SLURM_PLACE
from trainjob.contract.programs.secret_names import holds_secret, is_secret_file, is_secret_variable
from trainjob.contract.programs.secrets_in_shell import holds_written_secret

# Set by modules too: where they stand matters.
_OF_MODULES = re.compile(
    r"\w*PATH|HOME|\w+_HOME|\w+_ROOT|\w+_DIR|LD_\w+|CC|CXX|\w*FLAGS|(?:NCCL|FI|UCX|MPICH|OMPI|CUDA|ROCM|MIOPEN|HSA|CXI|PYTHON)_?\w+"
)
# A variable that holds words of a command line, and not one figure or name for the program.
COMMAND_WORDS = re.compile(r"(?:^|\s)(?:--?\w|(?:torchrun|accelerate)\s)")
_OF_SLURM = {
    "SRUN_CPUS_PER_TASK": "srun gets the CPUs of the job",
    "CUDA_VISIBLE_DEVICES": "Slurm chooses the GPUs",
    "ROCR_VISIBLE_DEVICES": "Slurm chooses the GPUs",
    "HIP_VISIBLE_DEVICES": "Slurm chooses the GPUs",
}
_ASSIGNS = ("declaration_command", "variable_assignment", "variable_assignments")
_SIMPLE = (*_ASSIGNS, "command", "pipeline")
RANKS_OWN = ("RANK", "LOCAL_RANK")  # another figure of these names is something else
_MET = frozenset(("MASTER_ADDR", "MASTER_PORT"))  # a job's shell has them, and of the ranks' places none
DECIDED_PLACE = "each rank gets its rank number and the rendezvous"
ASKING_VERBS = ("list", "avail", "show", "spider", "info", "freeze", "--version")
_PASSES_ON = ("kill", "pkill", "killall", "wait", "scancel")
_AFTER = "a job ends with its training, and its nodes' own disks are emptied: have the program do it, or another job"
_REQUEUED = "the job is requeued by itself: --max-attempts limits how often"
_SIGNALLED = "a job has handlers of its own: ranks that handle USR1 get it before the time limit, and it starts again"


@dataclass(frozen=True)
class Decision:
    """The destination of a statement, and what it puts into the files."""

    where: Where
    what: str
    env: Mapping[str, str] | None = None  # variables of the job
    prologue: Sequence[str] = ()
    in_command: str = ""  # a statement for the shell of the command
    is_secret: bool = False


@dataclass(frozen=True)
class Needs:
    """The variables and functions that what follows a statement needs: the prologue, and the command's shell."""

    prologue: frozenset[str]
    command: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Those of both."""
        return self.prologue | self.command


@dataclass(frozen=True)
class Surroundings:
    """The file and its training, as the rules look at them."""

    script: BatchScript
    launch: LaunchedProgram
    parts: Parts
    place: PathOrigin
    threads: int | None  # of a rank, where nothing sets another number; None where a launcher may set one
    container: str | None  # the runtime
    prefix: str  # of variables that Apptainer takes into a clean environment, or Singularity
    arrays: frozenset[str]  # the variables that are arrays anywhere
    is_decided: bool  # the file itself tells that its training starts
    consumed: Mapping[str, tuple[Where, str]]  # the variables that the training's line is made of, and what has them
    after_modules: int  # the first byte behind a statement that loads modules

    def expanded(self, one: Statement) -> list[ShellCommand]:
        """Return the commands of a statement outside of substitutions; those of a function stand for its call."""
        functions = self.parts.functions
        bodies = [functions[two.name] for two in one.commands if two.name in functions]
        inside = (two for two in self.script.commands if not two.source and any(two.line in body for body in bodies))
        return [
            two for two in (*one.commands, *inside) if two.name not in functions and "substitution" not in two.within
        ]

    def runs_again(self, commands: Sequence[ShellCommand]) -> bool:
        """Return whether one of the commands submits or requeues the file itself."""
        return any(self._is_again(one.name, " ".join(word.source for word in one.words)) for one in commands)

    def _is_again(self, name: str, text: str) -> bool:
        own = rf"\$0|\$\{{?0|BASH_SOURCE|\b{re.escape(self.script.path.name)}"
        wanted = {"scontrol": r"\srequeue", "sbatch": own}.get(name, rf"\bsbatch\b.*(?:{own})")
        return name not in PRINTERS - {"scontrol"} | {"echo", "printf"} and re.search(wanted, text) is not None

    def handler(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each command of a trap's handler; of functions, those in their bodies."""
        for node in nodes_of(parse(text), "command"):
            name = text_of(node).split()[0]
            if name not in self.parts.functions:
                yield name, text_of(node)
            for one in self.script.commands if name in self.parts.functions else ():
                if one.line in self.parts.functions[name] and not one.source and one.name:
                    yield one.name, " ".join(word.source for word in one.words)

    def of_handler(self, handler: str, signals: Sequence[str]) -> Decision:
        """Return what becomes of a trap: of what it does at a signal."""
        if not handler and (ignored := [one for one in signals if one not in ("EXIT", "0", "ERR", "DEBUG", "RETURN")]):
            if self.launch.srun is not None:
                return Decision(Where.NOWHERE, "only the batch shell ignores it: srun's tasks are not started by it")
            return Decision(Where.LOST, f"ranks ignore {' '.join(ignored)}, as their shell does: do it in the program")
        for name, text in dict.fromkeys(self.handler(handler)):
            if not (name in (*_PASSES_ON, *LEAVES_NOTHING) or "=" in name or self._is_again(name, text)):
                what = f"`{text.splitlines()[0][:50]}` at {' '.join(signals) or 'this'}: do it in the program"
                return Decision(Where.LOST, what)
        return Decision(Where.TRAINJOB, _SIGNALLED)


Rule = Callable[[Surroundings, Statement, Needs], Decision | None]


def before_training(around: Surroundings, one: Statement, needs: Needs) -> Decision:
    """Return what becomes of a statement before the training. What does not have another place is kept."""
    return _first(_BEFORE, around, one, needs) or kept(around, one, needs)


def after_training(around: Surroundings, one: Statement) -> Decision:
    """Return what becomes of a statement behind the training: a job ends there."""
    return _first(_BEHIND, around, one, _NOTHING) or Decision(Where.LOST, _AFTER)


def _first(rules: Sequence[Rule], around: Surroundings, one: Statement, needs: Needs) -> Decision | None:
    return next((decision for rule in rules if (decision := rule(around, one, needs)) is not None), None)


_NOTHING = Needs(frozenset(), frozenset())


def _own(one: Statement) -> list[ShellCommand]:
    return [command for command in one.commands if "substitution" not in command.within]


def _of_branch(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    if one.role is Role.CALL:
        return Decision(Where.JOB, "command")
    if one.role is Role.CONDITION:
        if around.is_decided:
            return Decision(Where.NOWHERE, "it holds in this job")
        return Decision(Where.LOST, "the job starts its training in any case")
    if one.role is Role.BRANCH:
        if around.is_decided:
            return Decision(Where.NOWHERE, "never reached in this job")
        return Decision(Where.LOST, "the training is in another branch, and the job starts it in any case")
    return None


def _never(_around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    dead = [*(two.dead for two in one.commands), *(two.dead for two in one.assignments)]
    return Decision(Where.NOWHERE, "never reached in this job") if dead and all(dead) else None


def _no_command(_around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    own = _own(one)
    is_option = own and all(two.name.startswith("-") for two in own)
    return Decision(Where.LOST, "bash finds no such command") if is_option else None


def _defined(around: Surroundings, one: Statement, needs: Needs) -> Decision | None:
    if one.kind != "function_definition":
        return None
    name = re.match(r"(?:function\s+)?([\w-]+)", one.text)
    if name is not None and name[1] in needs.all:
        return kept(around, one, needs)
    for trap in around.script.named("trap"):
        handler, *signals = [word.text for word in trap.words[1:]] or [""]
        if name is not None and name[1] in handler.split():
            return around.of_handler(handler, signals)
    return Decision(Where.NOWHERE, "no statement that was kept calls it")


def _secret(_around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    commands = any(holds_secret(word.value.text) for two in _own(one) for word in two.words)
    given = any(
        holds_secret(two.value.text) or (is_secret_variable(two.name) and two.value.known and two.value.text)
        for two in one.assignments
    )
    given = given or any(two.name == "printf" and _fills_secret(two) for two in one.commands)
    written = [path.text for two in _own(one) for sign, path in two.writes_to if sign != "<"]
    written += [word.text for two in _own(one) if two.name == "tee" for word in two.words[1:]]
    if commands or given or any(is_secret_file(path) for path in written):
        return Decision(Where.LOST, HOLDS_SECRET, is_secret=True)
    return None


def _fills_secret(printf: ShellCommand) -> bool:
    option, name, *words = [*(word.text for word in printf.words[1:]), "", ""][: len(printf.words) + 1]
    return option == "-v" and is_secret_variable(name) and HOLE not in "".join(words)


_NAMED = ("variable_assignment", "variable_name", "word")


def _assigned(around: Surroundings, one: Statement, needs: Needs) -> Decision | None:
    """Put variables into the environment, or leave them out where they are only words of the command."""
    sets = all(two.name in ("let", "printf") for two in one.commands)
    declarations = nodes_of(parse(one.text), "declaration_command")
    # Of what stands between quotes, or has a name that only a run knows, no assignment tells.
    if any(child.type not in _NAMED for node in declarations for child in node.named_children):
        return None
    if not one.assignments or (one.commands and one.kind not in _ASSIGNS and not sets):
        return None
    fates = [_of_variable(around, one, two, needs) for two in one.assignments]
    found = [fate for fate in fates if fate is not None]
    if len(found) < len(fates) or (one.kind not in _SIMPLE and any(fate.env for fate in found)):
        return None
    env = {name: value for fate in found for name, value in (fate.env or {}).items()}
    rank = [Where.LOST, Where.JOB, Where.CLUSTER, Where.TRAINJOB, Where.NOWHERE]
    where = min((fate.where for fate in found), key=rank.index)
    return Decision(where, "; ".join(dict.fromkeys(fate.what for fate in found)), env)


def _of_variable(around: Surroundings, one: Statement, given: Assignment, needs: Needs) -> Decision | None:
    """Return what becomes of a variable; None if the prologue has to keep its statement."""
    name, value = given.name, given.value
    is_own = not (given.exported or value.origins) and value.known and around.consumed.get(name) == IN_COMMAND
    if name in PLACE_VARIABLES and not (is_own and name in RANKS_OWN) and name not in needs.prologue - _MET:
        return Decision(Where.TRAINJOB, DECIDED_PLACE)
    if decided_by_slurm(name, value):
        return Decision(Where.TRAINJOB, _OF_SLURM[name])
    if name == "OMP_NUM_THREADS" and value.origins and _is_own(around, value):
        return Decision(Where.TRAINJOB, "each rank gets a thread for each of its CPUs")
    if not given.exported:
        if name in needs.all:
            return None
        if name not in around.consumed:
            return Decision(Where.NOWHERE, "nothing uses it")
        return Decision(*around.consumed[name])
    if name in around.consumed and COMMAND_WORDS.search(value.text):
        return Decision(*around.consumed[name]) if name not in needs.all else None
    after_modules = one.span[0] >= around.after_modules
    if given.array is not None or not value.known or (after_modules and _OF_MODULES.fullmatch(name)):
        return None
    if not can_be_stated(name) or "\0" in value.text:
        return None
    return Decision(Where.JOB, f"env: {name}", {name: value.text})


def _is_own(around: Surroundings, threads: Value) -> bool:
    """Return whether a job gives its ranks this number of threads by itself."""
    return threads.text == str(around.threads) if threads.known else "SLURM_CPUS_PER_TASK" in threads.origins


def tells_place(name: str) -> bool:
    """Return whether a job sets a variable of this name itself: it tells ranks where they are and meet."""
    return name in PLACE_VARIABLES or name in _OF_SLURM


def decided_by_slurm(name: str, value: Value) -> bool:
    """Return whether Slurm decides a variable, unless it hides all GPUs."""
    return name in _OF_SLURM and not (value.known and value.text.strip() in ("", "-1", "NoDevFiles"))


def can_be_stated(name: str) -> bool:
    """Return whether a job's env may have a variable of this name."""
    try:
        refuse_name(name)
    except RuleError:
        return False
    return True


def _declared(around: Surroundings, one: Statement, needs: Needs) -> Decision | None:
    """Keep what takes a variable away, or gives it to programs or another kind, if anything needs it."""
    if one.assignments or one.commands or one.kind not in ("declaration_command", "unset_command"):
        return None
    names = one.declared
    if names and all(tells_place(name) for name in names) and not names & needs.all:
        return Decision(Where.TRAINJOB, DECIDED_PLACE)
    if names & needs.command and re.search(r"\s-\w*[aA]", one.text):
        return Decision(Where.CLUSTER, "prologue", prologue=[one.text], in_command=one.text)
    if _exports(one) or names & needs.all:
        return kept(around, one, needs)
    return Decision(Where.NOWHERE, "nothing uses it")


def _trapped(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    commands = _own(one)
    if {two.name for two in commands} != {"trap"} or len(commands[0].words) < 2:
        return None
    handler, *signals = [word.text for word in commands[0].words[1:]]
    return around.of_handler(handler, signals)


def _reads_secrets(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    """Tell what reads or runs a file that no copy of the project has."""
    commands = [two for two in one.commands if two.name not in ("echo", "printf")]
    words = [word.text for two in commands for word in two.words[1:]]
    words += [two.words[0].text for two in commands if two.words and "/" in two.words[0].text]
    words += [path.text for two in one.commands for sign, path in two.writes_to if sign == "<"]
    if not one.commands and one.kind == "declaration_command":  # export $(cat .env)
        words += re.findall(r"(?<![\w./-])[\w.-][\w./-]*", one.text)
    for word in words:
        if not re.match(r"[\w.]", word):
            continue
        if is_secret_file(word):
            return Decision(Where.LOST, f"no copy of the project has {word}: {SECRETS_FILE}")
        if holds_written_secret(around.script.path.parent / word):
            cure = f"take the secret out of it, and {SECRETS_FILE}"
            return Decision(Where.LOST, f"no copy of the project has {word}: {cure}")
    return None


def _submitted(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    commands = [two for two in around.expanded(one) if two.name != "trap" and not two.dead]
    if around.runs_again(commands):
        return Decision(Where.TRAINJOB, _REQUEUED)
    if any(two.name == "sbatch" for two in commands):
        return Decision(Where.LOST, "a job submits no other: submit it with --after this one's id")
    return None


def _linked_log(_around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    """Leave out what names or moves the log that sbatch writes: that of a job has another name and folder."""
    commands = _own(one)
    is_log = any(_SLURMS_LOG.search(word.source) for two in commands for word in two.words[1:])
    if not is_log or not all(two.name in ("ln", "mv", "cp", "tail", "cat") for two in commands):
        return None
    return Decision(Where.LOST, "a job's log has another name and folder: trainjob logs prints it")


_SLURMS_LOG = re.compile(r"\$\{?SLURM_(?:ARRAY_)?JOB_?ID\}?[\w.${}-]*\.(?:out|err|log)|slurm-\$")


def _trained(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    lines = {two.line for two in around.script.training if not two.source}
    is_again = any(two.line in lines for two in around.expanded(one))
    return Decision(Where.LOST, "a job trains once") if is_again else None


def _ended(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    """Leave out what ends the file, and what only prints or waits at its end."""
    commands = around.expanded(one)
    ends = Decision(Where.TRAINJOB, "the job ends with the code of its ranks")
    if all(two.name in ("wait", "exit", "return", "set", "kill", "trap", "") for two in commands):
        return ends if commands or not any(two.exported for two in one.assignments) else None
    prints = _writes_nothing(commands) and all(_prints(two) or two.name in ("set", "exit", "wait") for two in commands)
    if prints and any(two.name == "exit" for two in commands):
        return ends
    return Decision(Where.NOWHERE, _ONLY_PRINTS) if prints else None


_ONLY_PRINTS = "it only prints, checks or waits"


def _shell_set(_around: Surroundings, one: Statement, needs: Needs) -> Decision | None:
    """Leave out options that job scripts have, or that only print; any other changes what follows, and is kept."""
    if not one.commands or not all(_OF_CHECKS.fullmatch(two.text) for two in one.commands):
        return None
    if all(_OF_PRINTS.fullmatch(two.text) for two in one.commands):
        return Decision(Where.NOWHERE, "it only prints")
    if needs.prologue and re.search(r"\s-\w*u|nounset", one.text):
        return None  # a prologue has no set -u by itself
    return Decision(Where.TRAINJOB, "job scripts have set -euo pipefail")


_OF_CHECKS = re.compile(r"set(?:\s+(?:[-+][euxvETo]+|errexit|nounset|pipefail|xtrace|verbose|errtrace|functrace))+")
_OF_PRINTS = re.compile(r"set(?:\s+(?:[-+][xv]+|[-+]o (?:xtrace|verbose)))+")


_EXPANSIONS = re.compile(r"\$\([^)]*\)|`[^`]*`|\$\{[^}]*\}|\$\w+")
_BELOW = re.compile(r"/\w")


def _moved(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    commands = _own(one)
    moves = [two for two in commands if two.name in ("cd", "pushd", "popd")]
    if not moves or _exports(one) or any(two not in moves and not _prints(two) for two in commands):
        return None
    target = moves[-1].words[1] if len(moves[-1].words) > 1 else None
    inside = around.place.moves.get(one.span)
    prologue = [] if inside is None else [around.place.move(inside)]
    if inside:
        return Decision(Where.JOB, "command", prologue=prologue)
    origins = target.value.origins if target is not None else frozenset()
    is_own = target is not None and (
        not origins.isdisjoint(("SLURM_SUBMIT_DIR", "PWD", "$(pwd)"))
        or re.search(r"\$\{?0|BASH_SOURCE", target.source + target.value.commands())
    )
    if target is None or (is_own and not _BELOW.search(_EXPANSIONS.sub("", target.source))):
        return Decision(Where.TRAINJOB, "ranks start in a copy of the folder in which you submit", prologue=prologue)
    folder = target.text if target.value.known else target.source
    return Decision(Where.LOST, f"submit in {folder}: ranks start in a copy of that folder", prologue=prologue)


_GIT_CHANGES = re.compile(
    r"\S*git(?:\s+-[cC]\s+\S+|\s+--\S+)*\s+(?:pull|fetch|checkout|switch|reset|stash|clean|merge|submodule)\b"
)


def _updated(_around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    """Tell what git would change in the project: the copy of it has no history."""
    if not any(two.name == "git" and _GIT_CHANGES.match(two.text) for two in _own(one)):
        return None
    return Decision(Where.LOST, "ranks have the project as it is when you submit: do it before")


def _beside(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    behind = around.script.raw[one.span[1] :].lstrip(b" \t")
    is_beside = any(two.background for two in _own(one)) or re.match(rb"&(?!&)", behind)
    if around.launch.command.background or not is_beside:
        return None
    names = {two.name for two in _own(one)}
    if names & WATCHES and names <= WATCHES | LEAVES_NOTHING | {""}:
        return Decision(Where.NOWHERE, "`trainjob usage` shows what ranks use")
    if one.kind in _ASSIGNS:
        return Decision(Where.NOWHERE, "a shell of its own sets it, because of the &, and nothing sees it")
    return Decision(Where.LOST, "it runs beside the training")


def _of_left_out(around: Surroundings, one: Statement, _needs: Needs) -> Decision | None:
    """Leave out what reads the process id ($!) of a command that is left out."""
    if around.launch.command.background or one.kind == "function_definition":
        return None
    own = (two for other in around.parts.before for two in other.assignments if _is_within(two, other))
    ids = {two.name for two in own if _PROCESS_ID.search(two.text)}
    if ids.isdisjoint(names_in(one.text)) and not _PROCESS_ID.search(one.text):
        return None
    return Decision(Where.LOST, "it is about a process that ran beside the training, and is left out")


_PROCESS_ID = re.compile(r"\$(?:!|\{!\})")


def _is_within(given: Assignment, one: Statement) -> bool:
    return one.kind != "function_definition" and one.span[0] <= given.at < one.span[1]


def _printed(around: Surroundings, one: Statement, needs: Needs) -> Decision | None:
    """Leave out what only prints. What may end the file is kept, but for a look at its arguments, which are known."""
    commands = around.expanded(one)
    if needs.all.intersection(two.name for two in one.assignments) or any(two.exported for two in one.assignments):
        return None
    if not _writes_nothing(commands) or (one.assignments and one.kind in _SIMPLE):
        return None
    if not all(_prints(two) for two in commands):
        return None
    if _exports(one):
        return None
    ends = any(two.name == "exit" for two in commands) or re.search(r"\breturn\b|\$\{\w+:?\?", one.text)
    if ends and not takes_arguments(one.text):
        return None
    return Decision(Where.NOWHERE, _ONLY_PRINTS)


def _exports(one: Statement) -> bool:
    """Return whether a part of a statement gives a variable to programs, or takes one away."""
    declared = [text_of(node) for node in nodes_of(parse(one.text), "declaration_command", "unset_command")]
    return any(is_export(text) or text.startswith("unset") for text in declared)


def is_export(declaration: str) -> bool:
    """Return whether a declaration gives its variables to programs, as `export` and `declare -x` do."""
    return re.match(r"export\b|\w+\s+-\w*x", declaration) is not None


def _writes_nothing(commands: Sequence[ShellCommand]) -> bool:
    return all(
        sign == "<" or path.text == "/dev/null" or path.text.isdigit()
        for one in commands
        for sign, path in one.writes_to
    )


def _prints(command: ShellCommand) -> bool:
    if command.name == "srun":
        layers, program, _ = taken_apart(command)
        started = program[0].text.rpartition("/")[2] if program and len(layers) == 1 else ""
        return started in LEAVES_NOTHING and not re.search(r"mkdir|cp|rsync|tar|\.sh\b", command.text)
    pattern = _PRINTS.get(command.name)
    return command.name in LEAVES_NOTHING if pattern is None else pattern.match(command.text) is not None


_PRINTS = {
    **dict.fromkeys(
        ("module", "ml", "conda", "mamba", "micromamba", "pip", "pip3", "spack", "uv"),
        re.compile(rf"\S+ (?:{'|'.join(ASKING_VERBS)})"),
    ),
    **dict.fromkeys(("python", "python3"), re.compile(r"\S+ (?:--version|-V)")),
    "git": re.compile(r"git (?:log|rev-parse|status|describe|diff)"),
    "scontrol": re.compile(r"scontrol show"),
    "tee": re.compile(r"tee(?: -a)?(?: /dev/null)?$"),
    "sed": re.compile(r"(?!.* (?:-\w*i|--in-place))"),
    "sort": re.compile(r"(?!.* -o)"),
    "local": re.compile("(?!)"),
}


def may_fail(around: Surroundings, one: Statement, decision: Decision) -> bool:
    """Return whether a failure of a statement in the prologue would end the job, where it does not end the file."""
    # A result of 0 is a failure, and so is a function that there is not.
    is_no_command = re.search(r"(?<!\$)\(\(|\b(?:export|declare|typeset)\s+-\w*f\s", one.text) is not None
    calculates = is_no_command and "e" not in around.launch.outermost.command.options
    # A declaration hides that the command fails which gives its variable a value.
    commands = _own(one) if one.kind == "declaration_command" else one.commands
    ends = (({"e", "pipefail"} if two.piped_into else {"e"}) <= two.options for two in commands)
    return bool(decision.prologue) and (calculates or not all(ends))


def kept(around: Surroundings, one: Statement, needs: Needs) -> Decision:
    """Keep a statement in the prologue."""
    in_branch = one.kind not in _SIMPLE  # which may export it in another one only
    named = [two for two in one.assignments if in_branch or not two.exported]
    own = list(dict.fromkeys(two.name for two in named if two.name in needs.command))
    text, after = _exporting(around, one, own)
    if any(two.name in ("source", ".", "eval") for two in one.commands):
        # A file that only the cluster has may set anything.
        set_here = {two.name for two in around.script.assignments if not two.source}
        others = sorted(name for name in needs.command - set_here if may_be_unset(name))
        if others and any(two.name in ("source", ".") and not is_site_file(two) for two in one.commands):
            after.append(f"export {' '.join(others)}")
    text = around.place.in_copy(text, one.span[0])
    if one.role is Role.REQUIRED and not all("e" in two.options for two in one.commands):
        text += " || exit"
    is_function = one.kind == "function_definition"  # whose arguments are its own
    given = around.script.arguments or ()
    is_missing = not given and one.assignments and not in_branch and re.search(r"\$(?:[1-9]|\{[1-9]\})", text)
    if takes_arguments(text) and not is_function and (is_missing or any(map(holds_secret, given))):
        return Decision(Where.LOST, "it reads an argument of the file: write the value, or adopt it with its arguments")
    in_command = text if around.arrays.intersection(own) else ""
    if in_command and not needs.prologue.intersection(own) and not one.commands:
        return Decision(*IN_COMMAND, in_command=in_command)
    names = list(dict.fromkeys(two.name for two in one.assignments if two.exported or two.name in own))
    inside = [name for name in names if not re.match(r"(?:APPTAINER|SINGULARITY)|(?:LD_LIBRARY_)?PATH$", name)]
    if around.container == "apptainer" and inside:
        # The environment is clean inside: only these names get there.
        after.append("export " + " ".join(f'{around.prefix}_{name}="${name}"' for name in inside))
    elif around.container in ("docker", "podman") and names:
        what = f"{', '.join(names)}: a container gets only what env of the job states"
        return Decision(Where.LOST, what, prologue=[text, *after], in_command=in_command)
    if any(map(makes_environment, one.commands)):
        what = "kept, but each run has a copy of the project, and makes this environment anew: make it once, elsewhere"
        return Decision(Where.LOST, what, prologue=[text, *after], in_command=in_command)
    per_node = around.script.request.tasks_per_node or 1
    if per_node > 1 and any(two.name == "srun" and not _STATES_TASKS.search(two.text) for two in one.commands):
        what = f"kept, but srun runs it once on each node, and not {per_node} times: state --ntasks-per-node"
        return Decision(Where.LOST, what, prologue=[text, *after], in_command=in_command)
    told = [two for two in one.assignments if two.exported and two.name not in PLACE_VARIABLES]
    if any(two.value.comes_from(*SLURM_PLACE) for two in told):
        what = "kept, but the prologue runs once: it is the same for every rank; have the program read Slurm's own"
        return Decision(Where.LOST, what, prologue=[text, *after], in_command=in_command)
    return Decision(Where.CLUSTER, "prologue", prologue=[text, *after], in_command=in_command)


_STATES_TASKS = re.compile(r"\s(?:-n\s*\d|--ntasks|-N\s*\d|--nodes)")


def _exporting(around: Surroundings, one: Statement, own: Sequence[str]) -> tuple[str, list[str]]:
    """Return a statement's text, and what follows it, so that the command gets the variables `own` of it."""
    text, own = one.text, [name for name in own if name not in around.arrays]  # bash exports no array
    if own and one.kind in _ASSIGNS and re.match(r"(?:readonly )?\w+\+?=", text):
        return f"export {text.removeprefix('readonly ')}", []
    is_exported = one.kind in _SIMPLE and text.startswith(("export", "declare -x"))
    return text, [f"export {' '.join(own)}"] if own and not is_exported else []


def is_site_file(source: ShellCommand) -> bool:
    """Return whether what is sourced sets up programs, and no variables of the file."""
    path = source.words[1].text if len(source.words) > 1 else ""
    return path.startswith("/etc/") or path.endswith(("activate", "conda.sh", "mamba.sh", "bashrc", "profile"))


def may_be_unset(name: str) -> bool:
    """Return whether a job's shell may lack a variable, unless a login shell or a sourced file sets it."""
    return _EVERYWHERE.fullmatch(name) is None and name not in PLACE_VARIABLES


_EVERYWHERE = re.compile(
    r"SLURM\w*|HOME|USER|PATH|PWD|HOSTNAME|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|RANDOM|SECONDS|E?UID|PPID|BASH\w*|"
    r"TRAINJOB_\w+|"
    r"CUDA_VISIBLE_DEVICES|RAY_ADDRESS|IFS|\w"
)
_BEFORE: tuple[Rule, ...] = (
    _of_branch,
    _never,
    _no_command,
    _defined,
    _secret,
    _reads_secrets,
    _beside,
    _assigned,
    _declared,
    _trapped,
    _submitted,
    _linked_log,
    _shell_set,
    _updated,
    _moved,
    _printed,
    _of_left_out,
)
_BEHIND: tuple[Rule, ...] = (_of_branch, _never, _no_command, _defined, _submitted, _secret, _trained, _ended)
