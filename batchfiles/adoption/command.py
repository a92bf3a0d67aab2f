"""The command of the job: the words of a launch, without those that trainjob itself decides."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from batchfiles.adoption.account import HOLDS_SECRET, IN_BASH, Account, Where
from batchfiles.adoption.asked import exported_to_ranks
from batchfiles.adoption.decisions import DECIDED_PLACE, RANKS_OWN, can_be_stated, decided_by_slurm
from batchfiles.adoption.parts import Statement, names_in, takes_arguments
from batchfiles.adoption.places import PathOrigin
from batchfiles.adoption.rest import IN_LOGS, NO_INPUT, note_redirect
from batchfiles.adoption.start import AdoptedStart, AdoptionError
from batchfiles.bash.expansion import Word, is_pattern, text_of
from batchfiles.bash.shell import parse
from batchfiles.bash.values import HOLE, Value, braced
from batchfiles.slurm.launches import LaunchedProgram, shell_among
from batchfiles.slurm.layers import launcher_options
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs import launchers
from trainjob.contract.programs.helpers import CONTAINERS, FOR_THE_LOG
from trainjob.contract.programs.ranks import PLACE_VARIABLES, SLURM_PLACE
from trainjob.contract.programs.secret_names import is_secret_variable

if TYPE_CHECKING:
    from tree_sitter import Node

# What the job states, or trainjob tells a launcher through its environment and options.
_DECIDED = frozenset(launchers.option_names("nodes", "ranks", "world", "alone", "place"))
# And what it tells none: what they did with it is left out.
_NOT_TOLD = frozenset(("role", "rdzv_conf", "local_addr", "deepspeed_multinode_launcher"))
_OF_ACCELERATE = """
--multi_gpu --num_machines $NNODES --machine_rank $NODE_RANK --num_processes $WORLD_SIZE
--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT
"""


@dataclass
class AdoptedCommand:
    """The words of the job's command, the variables that they name, and those that are set for the command alone."""

    words: list[str]
    names: set[str] = field(default_factory=set)  # of shell variables that the command expands when it starts
    env: dict[str, str] = field(default_factory=dict)


def run_of(
    script: BatchScript, launch: LaunchedProgram, start: AdoptedStart, account: Account, place: PathOrigin
) -> AdoptedCommand:
    """Return the command of the job, in the folder in which the file starts it. Raises AdoptionError."""
    env, set_there = _settings(launch, account)
    env = exported_to_ranks(launch) | env
    called = launch
    while called.outer is not None and called.command.source:
        called = called.outer
    if called is not launch:
        launch, words, inner = called, _program_words(called), ""
        account.settle(words)
    else:
        words = _own_words(launch, account)
        inner = _around(script, launch, account)
    moves = place.move_of_command(ends="e" in launch.outermost.command.options)
    inner = "".join(f"{line}\n" for line in [*moves, *set_there]) + inner
    words = _program_alone(words)
    if not words:
        raise AdoptionError(f"{script.path}:{launch.place}: no program is left of this line", "keep this file")
    words = [word for word in words if word.text or word.quoted or not word.source.startswith("$")]
    if (own := _OF_VIRTUALENV.fullmatch(words[0].value.written)) is not None:
        # The copy of a project has no virtualenv.
        words = [Word(Value(f"{place.base}/{own[1]}"), words[0].source), *words[1:]]
    around = _around_shells(launch)
    needs_shell = bool(inner or (around and launch.launcher is not None))
    if not inner:
        words, around = [*around, *words], []
    if not needs_shell and not any(HOLE in word.text for word in words):
        return AdoptedCommand([word.text for word in words], env=env)
    if launch.launcher is not None and launch.launcher.name == "accelerate":
        # Only a word of the command itself gets its options from trainjob.
        at = 1 + next(at for at, word in enumerate(words) if word.text.endswith("launch"))
        added = [
            Word(Value(HOLE, holes=(text,)) if text[0] == "$" else Value(text), text) for text in _OF_ACCELERATE.split()
        ]
        has_mode = "config_file" in launch.launcher.options or start.instances == 1
        words = [*words[:at], *added[has_mode:], *words[at:]]
    text = _shell_words(script, launch, words)
    for word in words:
        if any(is_pattern(source) for source in word.value.sources if source[:1] not in ("$", '"', "'")):
            what = "the shell of the command finds the files, in the copy of the project"
            account.note(Where.JOB, launch.place, word.source, what)
    body = f"{inner}exec {text}"
    names = names_in(body)
    if around:
        text = _shell_words(script, launch, around)
        body, names = f"exec {text} bash -c {shlex.quote(body)}", names | names_in(text)
    _refuse_other_places(script, launch, names)
    return AdoptedCommand(["bash", "-c", body], names, env)


def _refuse_other_places(script: BatchScript, launch: LaunchedProgram, names: set[str]) -> None:
    """Raise AdoptionError for a variable of the file's own that has the name by which ranks are told their places."""
    for one in script.assignments:
        is_own = not (one.exported or one.dead or one.source or one.value.origins) and one.value.known
        if one.name in names.intersection(RANKS_OWN) and is_own:
            raise AdoptionError(
                f"{script.path}:{launch.place} reads {one.name} of line {one.line}, which is also a rank's place",
                "give that variable another name",
            )


_OF_VIRTUALENV = re.compile(r'"?(?:(?:\./)|\$\{?SLURM_SUBMIT_DIR\}?"?/)?([\w.][\w./-]*/bin/\w[\w.]*)"?')


def _around_shells(launch: LaunchedProgram) -> list[Word]:
    """Return the words before the shells in which a launch stands: programs that start these, as numactl does."""
    words: list[Word] = []
    outer = launch.outer
    while outer is not None:
        own = _program_words(outer)
        words = [*_program_alone(own[: shell_among(own)]), *words]
        outer = outer.outer
    return words


def _program_alone(words: list[Word]) -> list[Word]:
    """Return words without those at their beginning that are no program: what a shell knows, and the settings."""
    while words and _is_around(words[0], words[1].text if len(words) > 1 else ""):
        words = words[1:]
    return words


def _is_around(first: Word, following: str) -> bool:
    return _is_setting(first) or (first.text in ("env", "exec", "command", "time") and not following.startswith("-"))


def _is_setting(word: Word) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*=.*", word.text, re.DOTALL) is not None and not word.quoted


def _program_words(launch: LaunchedProgram) -> list[Word]:
    """Return the words behind srun and the container."""
    every = launch.command.words
    outer = [layer for layer in launch.layers if layer.name in _STARTED_BY_US]
    return every[len(every) - outer[-1].left :] if outer else list(every)


_CLEARS = re.compile(r"-|-\w*i\w*|--ignore\S*")


def _own_words(launch: LaunchedProgram, account: Account) -> list[Word]:
    """Return the words of the launch, without the launcher's options that the job decides."""
    words = _program_words(launch)
    layer = launch.launcher
    account.settle(words)
    at = len(words) - len(launch.program if layer is None else layer.words)
    if not any(_CLEARS.fullmatch(word.text) for word in words[:at]):  # else they have no other way
        given = {id(word) for one in launch.layers for word in one.words[: -one.left or None]}  # nsys profile -e A=1
        words = [*(word for word in words[:at] if id(word) in given or not _is_setting(word)), *words[at:]]
    if layer is None:
        return words
    begin, end = len(words) - len(layer.words), len(words) - len(launch.program)
    options = words[begin:end]
    kept, decided, at = [], [], 0
    if options and not options[0].text.startswith("-"):  # accelerate launch, tune run
        kept, at = options[:1], 1
    rest, before = options[at:], 0
    for name, _, following in launcher_options(rest):
        own = rest[before:following]
        if name not in _DECIDED:
            kept += own
        elif name in _NOT_TOLD:
            account.note(
                Where.LOST,
                launch.place,
                " ".join(word.text for word in own),
                "ranks are started without it",
            )
        else:
            decided += own
        before = following
    account.note_decided(
        launch.place, layer.name, decided, "trainjob tells it its nodes and ranks, and where they meet"
    )
    return [*words[:begin], *kept, *words[end:]]


def _is_decided(name: str, value: Value) -> bool:
    return name in PLACE_VARIABLES or decided_by_slurm(name, value)


def _settings(launch: LaunchedProgram | None, account: Account) -> tuple[dict[str, str], list[str]]:
    """Return what is set for the command alone: NAME=VALUE before it; and lines for what only a run knows."""
    found: dict[str, str] = {}
    lines: list[str] = []
    while launch is not None:
        for name, value in {**launch.command.settings, **launch.settings}.items():
            if _is_decided(name, value):
                what = DECIDED_PLACE if name in PLACE_VARIABLES else "Slurm decides it"
                account.note(Where.TRAINJOB, launch.place, f"{name}={value.text}", what)
            elif is_secret_variable(name) and value.known and value.text:
                account.note(Where.LOST, launch.place, f"{name}=…", HOLDS_SECRET)
            elif not can_be_stated(name):
                account.note(Where.LOST, launch.place, f"{name}=…", "the env of a job has no variable of this name")
            elif value.known:
                found.setdefault(name, value.text)
            elif all(value.sources) and not takes_arguments(" ".join(value.sources)):
                lines.append(f"export {name}={_shell_word(value, HOLE)}")
            else:
                account.note(Where.LOST, launch.place, f"{name}=…", f"the value of {name} is known only when it runs")
        launch = launch.outer
    return found, lines


# A relative path from which a program resumes.
_RESUMES = re.compile(r"(?i)(?<!\S)(--?[\w.-]*(?:resume|restore|load|ckpt|checkpoint)[\w.-]*)[= ](?![/~-])(\S*[/.]\S*)")
_STARTED_BY_US = ("srun", "container")
_FILTERS = ("tee", "cat", "ts", "grep", "sed", "awk", "tail", "head", "tr", "sort")


def note_left_out(
    script: BatchScript, training: Statement, launch: LaunchedProgram, account: Account, place: PathOrigin
) -> None:
    """Say what the training's statement has beside the words of the command: redirections, and programs around srun."""
    for at in range(training.line, training.last + 1):
        if (found := re.search(r"\\[ \t]+(#.*)$", script.lines[at - 1])) is not None:
            what = "bash passes these words to the training: a backslash before a blank continues no line"
            account.note(Where.LOST, at, found[1], what)
    for name, path in _RESUMES.findall(" ".join(word.text for word in launch.program)):
        what = "each run has a copy of the project of its own, and finds there what its own attempts have left"
        account.note(Where.LOST, training.line, f"{name} {path}", what)
    for word in launch.program:
        place.note_outside(word.text, training.line, training.span[0], account)
    own = ("command_substitution", "process_substitution")  # what these pipe and write is theirs
    begin = launch.outermost.command.at - training.span[0]
    for node in nodes_of(parse(training.text), "pipeline", outside=own):
        of_training = [n for n, one in enumerate(node.named_children) if one.start_byte <= begin < one.end_byte]
        for at in of_training:
            _note_streams(node.named_children, at, training.line, account)
    reads = () if launch.outermost is not launch else ("heredoc_redirect", "herestring_redirect")
    for node in nodes_of(parse(training.text), "file_redirect", *reads, outside=own):
        note_redirect(node, training.line, account)


def _note_streams(parts: Sequence[Node], own: int, line: int, account: Account) -> None:
    """Say what becomes of the redirections of a training, or of the other parts of its pipeline."""
    for at, one in enumerate(parts):
        if one.type.endswith("_redirect"):
            note_redirect(one, line, account)
        elif at < own:
            account.note(Where.LOST, line, f"{_first_line(one)} |", NO_INPUT)
        elif at > own:
            is_filter = text_of(one).split()[0] in _FILTERS
            became = (Where.TRAINJOB, IN_LOGS) if is_filter else (Where.LOST, "ranks write into logs")
            account.note(became[0], line, f"| {_first_line(one)}", became[1])


def in_reading(other: BatchScript, script: BatchScript, launch: LaunchedProgram) -> tuple[BatchScript, LaunchedProgram]:
    """Return the launch in another reading of the file; as it is, where that does not have it."""
    for one in sorted(other.launches, key=lambda one: one.command.literals != launch.command.literals):
        command, name = one.command, [word.source for word in one.program[:1]]
        same = (command.at, one.line, command.source) == (launch.command.at, launch.line, launch.command.source)
        same_layers = [layer.name for layer in one.layers] == [layer.name for layer in launch.layers]
        if same and same_layers and name == [word.source for word in launch.program[:1]]:
            return other, one
    return script, launch


def _around(script: BatchScript, launch: LaunchedProgram, account: Account) -> str:
    """Return what the shells of a rank do before the training, up to its own words.

    What tells ranks their places is not among it. A chain of `a && b` stays one. Raises AdoptionError.
    """
    text = ""
    while launch.outer is not None:
        text = _before(script, launch, account) + text
        launch = launch.outer
        words = _program_words(launch)
        account.settle(words)  # the shell, with its text and what that is given
        if any(word.text.endswith("zsh") for word in words[shell_among(words) :][:1]):
            account.note(Where.LOST, launch.place, "zsh", f"{IN_BASH} zsh")
    return text


def _before(script: BatchScript, launch: LaunchedProgram, account: Account) -> str:
    whole = _text_of_shell(launch)
    if whole is None:
        return ""
    root = parse(whole.value.written)
    node = _node_of(script, launch, root)
    if node is None:
        return ""
    chain: list[tuple[Node, str]] = []  # statements, and what stands behind each
    after: list[Node] = []
    while node.parent is not None:
        above = node.parent
        named = [child for child in above.named_children if child.type != "comment"]
        at = next(n for n, child in enumerate(named) if child.start_byte == node.start_byte)
        if above.type == "list":
            sign = next((child.type for child in above.children if child.type in ("&&", "||")), "&&")
            chain = [*(_flat(named[0], sign) if at else []), *chain]
            after += named[1:] if not at else []
        elif above.type in ("program", "compound_statement", "subshell", "do_group"):
            chain = [*((one, "\n") for one in named[:at]), *chain]
            after += named[at + 1 :]
        elif above.type in ("if_statement", "while_statement", "for_statement", "case_statement"):
            account.note(
                Where.LOST,
                launch.place,
                text_of(above).split("\n")[0],
                "the job starts its training in any case, and once",
            )
        elif above.type in ("pipeline", "redirected_statement"):
            _note_streams(named, at, launch.place, account)
        node = above
    for one in after:
        if "".join(text_of(one).split()[:1]) not in ("", *FOR_THE_LOG, "wait", "exit"):
            account.note(Where.LOST, launch.place, _first_line(one), "it follows the training in each rank")
    text = ""
    for one, sign in reversed(chain):
        if _only_tells(one) and not (text and text_of(one).startswith("set ")):  # what fails ends a shell with set -e
            account.note(Where.TRAINJOB, launch.place, _first_line(one), "each rank is told its place, and has a log")
        elif any(text_of(two) in CONTAINERS for two in nodes_of(one, "command_name")):
            raise AdoptionError(
                f"{script.path}:{launch.place} starts containers one after another in a rank's shell, and a job's "
                "ranks are in theirs from the start",
                "start what comes before the training in lines of their own",
            )
        else:
            text = text_of(one) + (sign if sign == "\n" else f" {sign} ") + text
    if HOLE in text:
        _refuse(script, launch, whole)
    outer = launch.outer.program[1:] if launch.outer is not None else []
    ends_at_failure = any(re.fullmatch(r"-\w*e\w*", word.text) for word in takewhile(_is_option, outer))
    return f"set -e\n{text}" if text and ends_at_failure else text


def _is_option(word: Word) -> bool:
    return word.text.startswith("-")


def _first_line(node: Node) -> str:
    return text_of(node).split("\n")[0]


def _flat(node: Node, sign: str) -> list[tuple[Node, str]]:
    """Return the statements of a chain of &&, each with what stands behind it."""
    signs = [child.type for child in node.children if child.type in ("&&", "||")]
    if node.type != "list" or signs[:1] != ["&&"]:
        return [(node, sign)]
    left, right = [child for child in node.named_children if child.type != "comment"][:2]
    return [*_flat(left, "&&"), *_flat(right, sign)]


def _only_tells(node: Node) -> bool:
    """Return whether a statement of a rank's shell sets what trainjob tells each rank, or only prints."""
    own = ("command_substitution", "process_substitution")
    names = {text_of(one).partition("=")[0] for one in nodes_of(node, "variable_assignment")}
    commands = {text_of(one).split()[0] for one in nodes_of(node, "command", outside=own) if text_of(one).strip()}
    return bool(names or commands) and names <= set(PLACE_VARIABLES) and commands <= set(FOR_THE_LOG)


def _text_of_shell(launch: LaunchedProgram) -> Word | None:
    """Return the text that the shell around a launch is given; None where it is a file's."""
    assert launch.outer is not None  # noqa: S101 - as its callers know
    words = launch.outer.program
    for at, word in enumerate(words[:-1]):
        if re.fullmatch(r"-\w*c\w*", word.text):
            return words[at + 1]
    reads = launch.outer.command.reads
    return None if reads is None else Word(reads, "<<")


def _node_of(script: BatchScript, launch: LaunchedProgram, root: Node) -> Node | None:
    """Return the launch in the tree of its shell's text."""
    source = launch.command.words[0].source
    found = [
        one
        for one in nodes_of(root, "command")
        if (name := one.child_by_field_name("name")) and text_of(name) == source
    ]
    alike = [
        one
        for one in script.commands
        if one.at == launch.command.at and one.words and one.words[0].source == source and "called" in one.within
    ]
    at = next((n for n, one in enumerate(alike) if one is launch.command), 0)
    return found[min(at, len(found) - 1)] if found else None


def _shell_words(script: BatchScript, launch: LaunchedProgram, words: Sequence[Word]) -> str:
    """Return words for a shell, which expands what is known only when it runs. Raises AdoptionError."""
    texts: list[str] = []
    at = 0
    while at < len(words):
        word, following = words[at], at + 1
        is_variable = not word.quoted and HOLE not in word.source
        while is_variable and following < len(words) and words[following].source == word.source:
            following += 1  # the words of one variable
        group, every = words[at:following], [one for one in launch.command.words if one.source == word.source]
        if any(not one.value.known for one in group):
            values = [one.value for one in group]
            is_whole = [one.value for one in every] == values * (len(every) // len(group))
            if is_whole and len(group) > 1 and not all(_is_given(one.value, word.source) for one in group):
                texts.append(word.source)  # the first of its words may be known, and the others not
            else:
                texts.extend(_shell_word(one.value, word.source if is_whole else HOLE) for one in group)
        else:
            texts.extend(shlex.quote(one.text) for one in group)
        # A loop that puts words together has ended: what its variable was is gone.
        looped = names_in(texts[-1]) & set(re.findall(r"^\s*for\s+(\w+)\s+in", "\n".join(script.lines), re.MULTILINE))
        of_file = any(_is_argument(one.value) for one in group)
        is_joined = re.search(r"\[\*\]|\$\{?\*", texts[-1]) and any(one.name == "IFS" for one in script.assignments)
        if (
            HOLE in texts[-1]
            or is_joined
            or looped
            or takes_arguments(texts[-1])
            or (of_file and not group[0].value.known)
        ):
            _refuse(script, launch, word)
        at = following
    return " ".join(texts)


def _is_argument(value: Value) -> bool:
    """Return whether an argument of the file is part of a value; what a command prints may have a $1 of its own."""
    return not value.commands() and any(origin.isdigit() or origin in "@*" for origin in value.origins)


def _refuse(script: BatchScript, launch: LaunchedProgram, word: Word) -> None:
    where = f"{script.path}:{launch.place}: "
    # Inside `bash -c "…"` only the file's own lines still show what a piece was.
    texts = script.lines if HOLE in word.source else (word.source, *word.value.sources)
    read = (re.sub(r"\$\{[1-9]:?-[^}]*\}|\A\s*#.*", "", text) for text in texts)  # without those that have a default
    if _is_argument(word.value) or any(map(takes_arguments, read)):
        raise AdoptionError(
            f"{where}{word.source.replace(HOLE, '…')} is an argument of the file",
            f"give its arguments as for sbatch: trainjob adopt {script.path} -o DIR -- ARGUMENT…",
        )
    raise AdoptionError(
        f"{where}what {word.source.replace(HOLE, '…')[:60]} stands for is known only when the file runs",
        "write the program and its options on the line that starts it",
    )


def _is_given(value: Value, source: str) -> bool:
    """Return whether all is known of a word that only the file's arguments decide; the run decides its other pieces."""
    return takes_arguments(source) and all(value.sources) and not any(map(takes_arguments, value.sources))


def _shell_word(value: Value, source: str) -> str:
    if value.known:
        return shlex.quote(value.text)
    if value.comes_from(*SLURM_PLACE) and names_in(source).isdisjoint(SLURM_PLACE):
        source = HOLE  # in the prologue, a variable would be given the first task's place
    if HOLE not in source and ("$" in source or "`" in source) and not _is_given(value, source):
        return source
    if not all(value.sources):
        return HOLE
    first, *others = [shlex.quote(piece) if piece else "" for piece in value.text.split(HOLE)]
    holes = (f'"{name}"' if source[:1] == '"' and name[:1] == "$" else name for name in value.sources)
    return first + "".join(braced(hole, piece) + piece for hole, piece in zip(holes, others, strict=True))
