"""The builtins of bash that change what later commands see, and the scripts that a command runs."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE, Value, joined, names_calculated, unknown
from trainjob.contract.programs.helpers import CONTAINERS, GIVE_SHELL, SHELLS
from trainjob.contract.programs.ranks import SLURM_PLACE
from trainjob.contract.programs.slurm_options import read_options

if TYPE_CHECKING:
    from batchfiles.bash.shell import ShellReader

# Sourced scripts that set up a site's own programs, and never the addresses or figures of a job.
_SETS_UP_PROGRAMS = re.compile(
    r".*(?:activate|conda\.sh|mamba\.sh|bashrc|bash_profile|profile|modules?\.sh|lmod.*|"
    r"setvars\.sh|/init/\w+|setup-env\.sh|nvm\.sh)"
)


def obey(shell: ShellReader, command: ShellCommand) -> None:
    """Do what a builtin does to `shell`, and read what a shell is given to run."""
    if not command.words:
        return
    if shell.call(command.words[0].text, command.words[1:], command.line):
        command.is_call = True
        return
    if command.name in _CHANGES_FILES:
        for word in command.words[-1:] if command.name in _COPIES else command.words[1:]:
            shell.forget_written(word.value)
    builtin = _BUILTINS.get(command.name)
    if builtin is not None:
        builtin(shell, command)
    elif re.fullmatch(r"\.{0,2}/?[\w./-]+\.(?:sh|bash|slurm|sbatch)", command.words[0].text):
        _run_file(shell, command, command.words[0])


# Programs that write what their words name, or take it away.
_COPIES = frozenset(["cp", "install", "ln", "rsync"])
_CHANGES_FILES = _COPIES.union(
    ["mv", "rm", "tee", "sed", "perl", "patch", "truncate", "dd", "ed", "git", "wget", "curl", "tar", "unzip"]
)


def _change_folder(shell: ShellReader, command: ShellCommand) -> None:
    target = command.words[1].value.text if len(command.words) == 2 else HOLE
    is_known = command.name == "cd" and HOLE not in target and not target.startswith("-") and not shell.conditions
    if not is_known:
        target = f"…{command.line}"  # a folder like no other
    folder = os.path.normpath(os.path.join(shell.folder, target))
    shell.folder = "" if folder == "." else folder


def _set(shell: ShellReader, command: ShellCommand) -> None:
    words = [word.text for word in command.words[1:]]
    for at, word in enumerate(words):
        is_named = at > 0 and re.fullmatch(r"[-+][A-Za-z]*o", words[at - 1]) is not None
        if word == "--" or not (is_named or re.fullmatch(r"[-+][A-Za-z]*", word)):
            shell.variables.set_arguments(command.words[at + 1 + (word == "--") :])
            return
        if re.fullmatch(r"[-+][A-Za-z]+", word):
            letters = set(word[1:]) & set("eua")
            if word[1:].endswith("o") and at + 1 < len(words):
                letters |= {{"errexit": "e", "nounset": "u", "allexport": "a"}.get(words[at + 1], words[at + 1])}
            shell.options = shell.options | letters if word[0] == "-" else shell.options - letters


def _read(shell: ShellReader, command: ShellCommand) -> None:
    from_text = command.reads
    value = unknown(*(from_text.origins if from_text is not None else ()))
    words = command.words[1:]
    texts = [word.text for word in words]
    if from_text is not None and any(texts[at : at + 2] in (["-d", ""], ["-rd", ""]) for at in range(len(texts))):
        value = from_text.with_text(from_text.text.strip())  # the whole text
    fills_list, skips_value = command.name in ("mapfile", "readarray"), False
    for word in words:
        if skips_value:
            skips_value = False
        elif word.text.startswith("-"):
            skips_value = word.text[-1:] in ("dnOsuCc" if fills_list else "dinNptu")
        elif word.text.isidentifier():
            shell.variables.set(word.text, value)
            if fills_list or any(re.fullmatch(r"-\w*a", other.text) for other in words):
                shell.variables.set_array(word.text, [Word(value, word.source, line=command.line)])
                shell.variables.undecided.add(word.text)
            shell.note_assignment(word.text, value, command.text, command.line, shell.variables.arrays.get(word.text))


def _shift(shell: ShellReader, command: ShellCommand) -> None:
    given = shell.variables.arrays.get("@")
    if given is not None:
        count = command.words[1].text if len(command.words) > 1 else "1"
        shell.variables.set_arguments(given[int(count) if count.isdigit() and len(count) < 9 else len(given) :])


def _printf(shell: ShellReader, command: ShellCommand) -> None:
    words = [word.text for word in command.words]
    if len(words) > 2 and words[1] == "-v":
        name, subscript = words[2].partition("[")[::2]
        if name.isidentifier():
            shell.leave_open(name, command.text, command.line, is_array=bool(subscript))


def _getopts(shell: ShellReader, command: ShellCommand) -> None:
    for name in (*(word.text for word in command.words[2:3]), "OPTARG", "OPTIND"):
        shell.leave_open(name, command.text, command.line)


def _let(shell: ShellReader, command: ShellCommand) -> None:
    for name in names_calculated(" ".join(word.text for word in command.words[1:])):
        shell.leave_open(name, command.text, command.line)


def _eval(shell: ShellReader, command: ShellCommand) -> None:
    text = " ".join(word.text for word in command.words[1:])
    if HOLE in text and text.strip(f"{HOLE} ") == "":
        origins = " ".join(word.value.commands() + " ".join(word.value.origins) for word in command.words)
        if not re.search(r"conda|mamba|pyenv|module|direnv|spack", command.words[-1].source + origins):
            shell.variables.open_ended = True
        return
    value = joined((word.value for word in command.words[1:]), " ")
    shell.run_text(text, command.line, shell_of_its_own=False, holes=value.sources, ranks=_ranks(shell, value))


def _ranks(shell: ShellReader, value: Value) -> frozenset[str]:
    """Return the variables that differ between ranks, and have been expanded before there are any."""
    return frozenset() if shell.variables.in_step else value.origins & frozenset(SLURM_PLACE)


def _source(shell: ShellReader, command: ShellCommand) -> None:
    if len(command.words) < 2:
        return
    path = command.words[1].text
    found = shell.script(command.words[1].value)
    if found is not None:
        source, text = found
        shell.run_text(text.text, command.line, shell_of_its_own=False, source=source, holes=text.sources)
    elif not _SETS_UP_PROGRAMS.fullmatch(path):
        shell.not_here.setdefault(command.words[1].source, command.line)
        shell.variables.open_ended = True


def _bash(shell: ShellReader, command: ShellCommand) -> None:
    at = 1
    while at < len(command.words) and command.words[at].text.startswith(("-", "+")):
        options = command.words[at].text
        at += 1
        if options.startswith("-") and not options.startswith("--") and "c" in options:
            if at < len(command.words):
                word = command.words[at]
                own = command.words[at + 2 :]  # behind the one that is $0
                _as_rank(shell, command, word, max(word.line, command.line), own)
            return
        if options in ("-o", "-O"):
            at += 1
    if at < len(command.words):
        _run_file(shell, command, command.words[at])
    elif command.reads is not None and command.reads.text.strip():  # bash <<EOF
        _as_rank(shell, command, Word(command.reads, "<<", line=command.line + 1), command.line + 1)


def _as_rank(shell: ShellReader, command: ShellCommand, word: Word, line: int, own: Sequence[Word] = ()) -> None:
    outer, ranks = shell.variables, _ranks(shell, word.value)
    shell.variables = outer.copy()
    shell.variables.values |= command.settings
    shell.variables.exported |= set(command.settings)
    is_variable = re.fullmatch(r'"?\$\{?\w+\}?"?', word.source) is not None
    holes = word.value.sources
    shell.run_text(
        word.text, line, shell_of_its_own=True, written_there=not is_variable, holes=holes, ranks=ranks,
        arguments=list(own),
    )  # fmt: skip
    shell.variables = outer


def _run_file(shell: ShellReader, command: ShellCommand, word: Word) -> None:
    found = shell.script(word.value)
    if found is None:
        shell.not_here.setdefault(word.source, command.line)
        return
    kept = shell.variables
    shell.variables = kept.copy()
    shell.variables.values |= {str(at): argument.value for at, argument in enumerate(command.words[1:])}
    source, text = found
    ranks = text.origins & frozenset(SLURM_PLACE)  # expanded where the file was written
    shell.run_text(text.text, command.line, shell_of_its_own=True, source=source, holes=text.sources, ranks=ranks)
    shell.variables = kept


def _srun(shell: ShellReader, command: ShellCommand) -> None:
    """Read the shell that srun, or a container under srun, starts: there the variables of a rank are a rank's own."""
    words = command.words
    at = 1
    for _, _, following in read_options([word.text for word in words[1:]], "srun"):
        at = 1 + following
    kept = shell.variables
    shell.variables = kept.copy()
    for name in ("SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"):
        shell.variables.values[name] = unknown(name)
    shell.variables.in_step = True
    _inner_shell(shell, command, at)
    shell.variables = kept


def _inner_shell(shell: ShellReader, command: ShellCommand, start: int) -> None:
    words = command.words
    for at in range(start, len(words)):
        name = words[at].text.rpartition("/")[2]
        if name == "srun" or (command.name in GIVE_SHELL and re.search(r"\s", words[at].text)):
            inner = ShellCommand(words[at:], command.line, command.settings, shell.variables, command.options)
            _srun(shell, inner) if name == "srun" else _as_rank(shell, inner, words[at], words[at].line or command.line)
            return
        follows = words[at + 1].text if at + 1 < len(words) else ""
        is_script = at == start and re.fullmatch(r"\.{0,2}/?[\w./-]+\.(?:sh|bash)", words[at].text)
        if is_script or (name in SHELLS and (follows or command.reads is not None)):
            inner = ShellCommand(
                words[at:], command.line, command.settings, shell.variables, command.options, reads=command.reads
            )
            if not is_script:
                _bash(shell, inner)
                return
            _run_file(shell, inner, words[at])
            if shell.script(words[at].value) is not None:
                return  # else it may start the shell among its words


_BUILTINS: dict[str, Callable[[ShellReader, ShellCommand], None]] = {
    "set": _set,
    "read": _read,
    "mapfile": _read,
    "readarray": _read,
    **dict.fromkeys(("cd", "pushd", "popd"), _change_folder),
    "shift": _shift,
    "printf": _printf,
    "let": _let,
    "getopts": _getopts,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "srun": _srun,
    **dict.fromkeys(SHELLS, _bash),
    **dict.fromkeys(
        (*CONTAINERS, *GIVE_SHELL, "env", "exec", "time", "nohup", "timeout", "xargs", "stdbuf", "numactl", "setsid"),
        lambda shell, command: _inner_shell(shell, command, 1),
    ),
}
