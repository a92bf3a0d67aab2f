"""The command of the job: the words of a launch, without those that trainjob itself decides."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from batchfiles.adoption.account import Account, Where
from batchfiles.adoption.parts import names_in, takes_arguments
from batchfiles.adoption.start import AdoptedStart, AdoptionError
from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE, Value
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.layers import launcher_options
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs import launchers
from trainjob.contract.programs.helpers import FOR_THE_LOG
from trainjob.contract.programs.ranks import PLACE_VARIABLES

# What the job states, or trainjob tells a launcher through its environment and options.
_DECIDED = frozenset(launchers.option_names("nodes", "ranks", "world", "alone", "place"))
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
    script: BatchScript, launch: LaunchedProgram, start: AdoptedStart, account: Account, base: str
) -> AdoptedCommand:
    """Return the command of the job; `base` is the folder of relative paths. Raises AdoptionError."""
    called = launch
    while called.outer is not None and called.command.source:
        called = called.outer
    if called is not launch:
        launch, words, inner = called, _program_words(called), []
    else:
        words, inner = _own_words(launch), _around(script, launch, account)
    env, set_there = _settings(launch, account)
    inner = [*set_there, *inner]
    while words and _is_around(words):
        words = words[1:]
    if not words:
        raise AdoptionError(f"{script.path}:{launch.line}: no program is left of this line", "keep this file")
    words = [_undecided(word, launch) for word in words]
    words = [word for word in words if word.text or word.quoted or not word.source.startswith("$")]
    if re.fullmatch(r"[\w.][\w./-]*/bin/\w[\w.]*", words[0].text):
        # The copy of a project has no virtualenv.
        words = [Word(Value(f"{base}/{words[0].text.removeprefix('./')}"), words[0].source), *words[1:]]
    if not inner and not any(HOLE in word.text for word in words):
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
    body = "\n".join([*inner, f"exec {text}"])
    return AdoptedCommand(["bash", "-c", body], names_in(body), env)


def _is_around(words: Sequence[Word]) -> bool:
    """Return whether the first word is no program: what a shell knows, or a variable, which is among the settings."""
    first, following = words[0], words[1].text if len(words) > 1 else "-"
    is_setting = re.fullmatch(r"[A-Za-z_]\w*=.*", first.text, re.DOTALL) is not None and not first.quoted
    return is_setting or (first.text in ("exec", "command", "time") and not following.startswith("-"))


def _undecided(word: Word, launch: LaunchedProgram) -> Word:
    """Return an argument without its value, if a branch gave it that only a run may take: a shell expands it then."""
    options = [one.source for one in launch.command.words[: len(launch.command.words) - len(launch.program) + 1]]
    names = names_in(word.source) & launch.command.variables.undecided
    if not names or word.source in options:
        return word
    return Word(Value(HOLE, word.value.origins), word.source, word.quoted, word.line)


def _program_words(launch: LaunchedProgram) -> list[Word]:
    """Return the words behind srun and the container."""
    every = launch.command.words
    outer = [layer for layer in launch.layers if layer.name in ("srun", "container")]
    return every[len(every) - outer[-1].left :] if outer else list(every)


def _own_words(launch: LaunchedProgram) -> list[Word]:
    """Return the words of the launch, without the launcher's options that the job decides."""
    words = _program_words(launch)
    layer = launch.launcher
    if layer is None:
        return words
    begin, end = len(words) - len(layer.words), len(words) - len(launch.program)
    options = words[begin:end]
    kept, at = [], 0
    if options and not options[0].text.startswith("-"):  # accelerate launch, tune run
        kept, at = options[:1], 1
    rest, before = options[at:], 0
    for name, _, following in launcher_options(rest):
        if name not in _DECIDED:
            kept.extend(rest[before:following])
        before = following
    return [*words[:begin], *kept, *words[end:]]


def _settings(launch: LaunchedProgram | None, account: Account) -> tuple[dict[str, str], list[str]]:
    """Return what is set for the command alone: NAME=VALUE before it; and lines for what only a run knows."""
    found: dict[str, str] = {}
    lines: list[str] = []
    while launch is not None:
        for name, value in {**launch.command.settings, **launch.settings}.items():
            if name in PLACE_VARIABLES:
                continue
            if value.known:
                found.setdefault(name, value.text)
            elif all(value.sources) and not takes_arguments(" ".join(value.sources)):
                lines.append(f"export {name}={_shell_word(value, HOLE)}")
            else:
                account.note(Where.LOST, launch.line, f"{name}=…", f"the value of {name} is known only when it runs")
        launch = launch.outer
    return found, lines


def _around(script: BatchScript, launch: LaunchedProgram, account: Account) -> list[str]:
    """Return what the shell of a rank does before the training, and trainjob does not do by itself."""
    if launch.outer is None:
        return []
    inside = [one for one in script.commands if not one.source and "called" in one.within and one is not launch.command]
    first, last = launch.outer.line, max(launch.line, launch.outer.line)
    lines = []
    for one in inside:
        if not first <= one.line <= last + 50 or "substitution" in one.within or one.name in FOR_THE_LOG:
            continue
        if _position(script, one) > _position(script, launch.command):
            account.note(Where.LOST, one.line, one.text.replace(HOLE, "…"), "it follows the training in each rank")
        elif one.name == "wait" or (one.name == "trap" and one.words):
            continue
        else:
            lines.append(_shell_words(script, launch, one.words))
    given = [one for one in script.assignments if not one.source and "called" in one.within]
    for each in given:
        if each.name in PLACE_VARIABLES or not each.exported or not first <= each.line <= last + 50:
            continue
        lines.append(f"export {each.name}={_shell_word(each.value, each.text.partition('=')[2])}")
    return lines


def _position(script: BatchScript, command: ShellCommand) -> int:
    return next((at for at, one in enumerate(script.commands) if one is command), 0)


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
            is_whole = len(every) == len(group)
            texts.extend(
                [_shell_word(word.value, word.source)] if is_whole else [_shell_word(one.value, HOLE) for one in group]
            )
        else:
            texts.extend(shlex.quote(one.text) for one in group)
        # A loop that puts words together has ended: what its variable was is gone.
        looped = names_in(texts[-1]) & set(re.findall(r"^\s*for\s+(\w+)\s+in", "\n".join(script.lines), re.MULTILINE))
        if HOLE in texts[-1] or looped or takes_arguments(texts[-1]):
            _refuse(script, launch, word)
        at = following
    return " ".join(texts)


def _refuse(script: BatchScript, launch: LaunchedProgram, word: Word) -> None:
    where = f"{script.path}:{launch.line}: "
    # Inside `bash -c "…"` only the file's own lines still show what a piece was.
    texts = script.lines if HOLE in word.source else (word.source, *word.value.sources)
    if any(takes_arguments(text) and not text.lstrip().startswith("#") for text in texts):
        raise AdoptionError(
            f"{where}{word.source.replace(HOLE, '…')} is an argument of the file",
            f"give its arguments as for sbatch: trainjob adopt {script.path} -o DIR -- ARGUMENT…",
        )
    raise AdoptionError(
        f"{where}what {word.source.replace(HOLE, '…')[:60]} stands for is known only when the file runs",
        "write the program and its options on the line that starts it",
    )


def _shell_word(value: Value, source: str) -> str:
    if value.known:
        return shlex.quote(value.text)
    if HOLE not in source and ("$" in source or "`" in source):
        return source
    if not all(value.sources):
        return HOLE
    first, *others = [shlex.quote(piece) if piece else "" for piece in value.text.split(HOLE)]
    return first + "".join(source + piece for source, piece in zip(value.sources, others, strict=True))
