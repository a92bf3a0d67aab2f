"""Faults of the shell that the file is written in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from batchfiles.bash.commands import Condition, ShellCommand
from batchfiles.bash.expansion import text_of, text_of_expansion
from batchfiles.bash.values import HOLE
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs.helpers import OFTEN_MISSPELT, PRINTERS, is_typing_error
from trainjob.contract.programs.slurm_options import OPTIONS, SHORT, read_options

_JOB = (
    "ACCOUNT CPUS_PER_NODE DEPENDENCY END_TIME GID GPUS GROUP ID LICENSES NAME NODELIST "
    "NUM_NODES PARTITION QOS RESERVATION START_TIME UID USER RESTART_COUNT CONSTRAINTS "
    "STDOUT STDERR STDIN SEGMENT_SIZE OVERSUBSCRIBE"
)
_OTHERS = (
    "ARRAY_JOB_ID ARRAY_TASK_COUNT ARRAY_TASK_ID ARRAY_TASK_MAX ARRAY_TASK_MIN "
    "ARRAY_TASK_STEP CLUSTER_NAME CONF CONTAINER "
    "CONTAINER_ID CPUS_ON_NODE CPUS_PER_GPU CPUS_PER_TASK CPU_BIND CPU_BIND_LIST "
    "CPU_BIND_TYPE CPU_BIND_VERBOSE CPU_FREQ_REQ DIST_PLANESIZE "
    "DISTRIBUTION EXPORT_ENV GET_USER_ENV GPU_BIND GPU_FREQ GPUS GPUS_ON_NODE GPUS_PER_NODE "
    "GPUS_PER_SOCKET GPUS_PER_TASK GTIDS "
    "HET_SIZE HINT JOBID LAUNCH_NODE_IPADDR LOCALID MEM_BIND MEM_BIND_LIST MEM_BIND_TYPE "
    "MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE "
    "NETWORK NNODES NODEID NODELIST NODE_ALIASES NPROCS NTASKS NTASKS_PER_CORE "
    "NTASKS_PER_GPU NTASKS_PER_NODE NTASKS_PER_SOCKET "
    "OOM_KILL_STEP OVERCOMMIT OVERLAP PRIO_PROCESS PROCID PROFILE RESTART_COUNT "
    "SCRIPT_CONTEXT SHARDS_ON_NODE SPANK SRUN_COMM_HOST "
    "SRUN_COMM_PORT STEPID STEP_GPUS STEP_ID STEP_LAUNCHER_PORT STEP_NODELIST STEP_NUM_NODES STEP_NUM_TASKS "
    "STEP_TASKS_PER_NODE SUBMIT_DIR SUBMIT_HOST TASKS_PER_NODE TASK_PID THREADS_PER_CORE "
    "THREAD_SPEC TMPDIR TOPOLOGY_ADDR "
    "TOPOLOGY_ADDR_PATTERN TRES_PER_TASK UMASK WORKING_CLUSTER WORKDIR KILL_BAD_EXIT EXACT "
    "DEBUG JOB_NODELIST EXIT_ERROR SLURMD VERSION SCRATCH "
    "LABELIO UNBUFFEREDIO WAIT MPI_TYPE EXCLUSIVE IMMEDIATE TIMELIMIT OPEN_MODE RESV_PORTS "
    "RLIMIT_CORE RLIMIT_NOFILE PRIVATE COMPUTE_TYPE "
    "JOB_RESERVATION JOBNAME NUM_NODES_ALIAS"
)
_SLURM_VARIABLES = frozenset(
    {f"SLURM_{name}" for name in _OTHERS.split()} | {f"SLURM_JOB_{name}" for name in _JOB.split()}
)
_OWN_FOLDER = re.compile(r"\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}")
_OWN_PATH = re.compile(r"\$0\b|\$\{0\}|BASH_SOURCE")


def spool_folder(script: BatchScript) -> Iterator[Finding]:
    """Find paths that are relative to the file, which runs from slurmd's folder."""
    if not script.is_sent:
        return
    for command in script.named("dirname"):
        source = command.words[-1].source
        from_own = _OWN_PATH.search(source) and "scontrol" not in source
        if from_own and not command.source and not _knows_of_slurm(script, command):
            yield Finding("script-dir-is-spool", command.line, f"dirname {source}")
            return
    for one in script.assignments:
        if _OWN_FOLDER.search(one.text) and not one.source and "SLURM_" not in one.text:
            yield Finding("script-dir-is-spool", one.line, one.text[:60])
            return


def _knows_of_slurm(script: BatchScript, command: ShellCommand) -> bool:
    """Return whether the author takes another folder under Slurm: ${SLURM_SUBMIT_DIR:-…}, behind a || or in an if."""
    line = script.line(command.line)
    if re.search(r"\bSLURM_(?:SUBMIT_DIR|JOB_?ID)\b", line) or any(
        _looks_at_slurm(one) or "BASH_SOURCE" in one.text for one in command.conditions
    ):
        return True
    name = re.match(r"\s*(?:export\s+|readonly\s+)?(\w+)=", line)
    if name is None:
        return False
    others = [one for one in script.assignments if one.line != command.line]
    replaced = (one.text + "".join(each.text for each in one.conditions) for one in others if one.name == name[1])
    if any(re.search(r"SLURM_|scontrol", text) for text in replaced):
        return True
    # Or it is used only where Slurm's variables are missing, or have been looked at before.
    commands = ((" ".join(word.source for word in one.words), one.conditions) for one in script.commands)
    given = ((one.text, one.conditions) for one in others)
    using = [asked for text, asked in (*commands, *given) if re.search(rf"\$\{{?{name[1]}\b", text)]
    return bool(using) and all(any(map(_looks_at_slurm, asked)) for asked in using)


_IN_A_JOB = re.compile(r"-n\s+\"?\$\{?SLURM_")


def _looks_at_slurm(one: Condition) -> bool:
    """Return whether a branch asks for Slurm's variables, and is not the one of any job."""
    return "SLURM_" in one.text and not (one.branch == 0 and _IN_A_JOB.search(one.text))


_OF_SLURM = re.compile(r"\$\{?(?:SLURM_\w+|MASTER_(?:ADDR|PORT))\b\}?")


def in_quotes(script: BatchScript) -> Iterator[Finding]:
    """Find names of Slurm's variables that a program gets in place of their values."""
    for launch in script.living:
        words = launch.program[1:] if launch.is_python or launch.launcher else []
        given = [*(word.text for word in words), *(value.text for value in launch.options.values() if value)]
        names = [name for text in given if "\n" not in text for name in _OF_SLURM.findall(text)]
        if names:
            yield found("variable-in-quotes", launch, f"the program gets the word {names[0]}", facts={"word": names[0]})
            return


_BROKEN = re.compile(r"(?<!\\)\\[ \t]+(?:#.*)?$")


def continuations(script: BatchScript) -> Iterator[Finding]:
    """Find backslashes that continue nothing, because a blank follows them."""
    broken = {at for at, line in enumerate(script.lines, 1) if _BROKEN.search(line) and not re.match(r"\s*#", line)}
    for at in sorted(broken & _of_commands(script)) if broken else ():
        yield Finding("broken-continuation", at, script.lines[at - 1].strip()[-60:])


def _of_commands(script: BatchScript) -> set[int]:
    """Return the lines of commands, and not of here-documents or quoted text."""
    commands = nodes_of(script.root, "command", outside=("string", "raw_string", "heredoc_body", "comment"))
    lines = {line for node in commands for line in range(node.start_point.row + 1, node.end_point.row + 2)}
    texts = nodes_of(script.root, "raw_string", "string")
    return lines - {line for node in texts for line in range(node.start_point.row + 1, node.end_point.row + 1)}


def joined_words(script: BatchScript) -> Iterator[Finding]:
    """Find backslashes without a blank before them, which join the last word of a command with the next command."""
    joins = [at for at, line in enumerate(script.lines, 1) if re.search(r"[^\s\\]\\$", line)]
    joins = [at for at in joins if _BEGINS.match(script.line(at + 1))]
    for at in sorted(set(joins) & _of_commands(script)) if joins else ():
        word = script.line(at + 1).split()[0]
        text = f"{script.line(at).split()[-1][:-1][-40:]} and {word} become one word"
        yield Finding("argument-swallowed", at + 1, text)


_BEGINS = re.compile(r"(?:bash|sh|python[\d.]*|srun|torchrun|mpirun|echo|source|export|cd|wait)\s")


# Set outside, or by programs that only look like commands.
_FROM_OUTSIDE = re.compile(r"\w*_proxy|ftp|prefix|debian_chroot|_")


_BEYOND_NINE = re.compile(rb"\$([1-9][0-9]+)")


def beyond_nine(script: BatchScript) -> Iterator[Finding]:
    """Find $10, which is ${1}0."""
    first = next(beyond_nine_at(script), None)
    if first is not None:
        at, digits = first
        line = (script.root.text or b"").count(b"\n", 0, at) + 1
        text = f"${digits} is ${{{digits[0]}}}{digits[1:]}"
        yield Finding("unset-variable", line, text, facts={"digits": digits})


def beyond_nine_at(script: BatchScript) -> Iterator[tuple[int, str]]:
    """Yield the byte where $10 stands, or one of more digits, and the digits."""
    raw = script.root.text or b""
    for node in nodes_of(script.root, "simple_expansion"):
        match = _BEYOND_NINE.match(raw, node.start_byte)
        if match is not None:
            yield node.start_byte, match[1].decode()


class Expansion(NamedTuple):
    """A variable that the batch shell expands, without a default."""

    name: str
    line: int
    has_subscript: bool


def _expansions(script: BatchScript) -> Iterator[Expansion]:
    """Yield the variables that commands get, each once: those that are only printed are left out."""
    reported: set[str] = set()
    for node in nodes_of(script.root, "simple_expansion", "expansion"):
        match = re.fullmatch(r"\$(?:(\w+)|\{(\w+)(\[[^\]]*\])?\})", text_of_expansion(node))
        name, line = (match[1] or match[2], node.start_point.row + 1) if match else ("", 0)
        if name and name not in reported and line <= len(script.lines) and not _PRINTS.match(script.line(line)):
            reported.add(name)
            yield Expansion(name, line, bool(match and match[3]))


_PRINTS = re.compile(r"\s*(?:echo|printf|#)")


def never_set(script: BatchScript) -> Iterator[Finding]:
    """Find variables in lower case that nothing in the file sets: those come from no environment."""
    if script.shell.not_here or script.shell.variables.open_ended or not script.is_batch_file:
        return
    given = {name for setting in _SETS.findall(script.code) for name in re.findall(r"\w+", " ".join(setting))}
    for name, line, _ in _expansions(script):
        if re.fullmatch("[a-z][a-z0-9_]*", name) and not _FROM_OUTSIDE.fullmatch(name) and name not in given:
            yield Finding("unset-variable", line, f"${name} is never set", facts={"never_set": name})


_SETS = re.compile(
    r"\b(\w+)(?:\[[^\]]*\])?\+?=|\b(?:for|select)\s+(\w+)|\b(?:read|mapfile|readarray|getopts|local|declare|typeset|export|"
    r"unset|printf\s+-v)\b([^;|&\n]*)|\(\(([^)]*)|--export(\S*)|-v\s+(\w+)"
)


# What Slurm sets only for an option that the job states.
_OF_OPTIONS = {
    **{f"SLURM_{name.upper().replace('-', '_')}": (name,) for name in ("gpus", "gpus-per-node", "gpus-per-task")},
    **{
        f"SLURM_{name.upper().replace('-', '_')}": (name,)
        for name in ("ntasks-per-node", "cpus-per-gpu", "mem-per-cpu")
    },
    "SLURM_CPUS_PER_TASK": ("cpus-per-task", "cpus-per-gpu"),
    "SLURM_MEM_PER_NODE": ("mem",),
    "SLURM_ARRAY_TASK_ID": ("array",),
}
_OF_RANKS = re.compile(r"OMPI_COMM_WORLD_\w+|PMIX?_RANK|PMI_SIZE|MPI_LOCALRANKID")
# Variables that the file sets, gives a default, or tests.
_DEALT_WITH = re.compile(r"\b(\w+)=|\$\{(\w+):?[-+=?]|-[nv] \"?\$?\{?(\w+)")


def not_given(script: BatchScript) -> Iterator[Finding]:
    """Find variables that Slurm sets for options which the file does not have, and those that only ranks have."""
    header = script.header
    if not header.directives:
        return
    comments, in_steps = " ".join(comment for _, comment in script.comments if "sbatch" in comment), _in_steps(script)
    dealt_with = {name for names in _DEALT_WITH.findall(text_of(script.root)) for name in names}
    for name, line, has_subscript in _expansions(script):
        options = _OF_OPTIONS.get(name, ())
        has_one = any(header.value(one) is not None or f"--{one}" in comments for one in options)
        if has_subscript or has_one or name in dealt_with or line in in_steps:
            continue
        if options:
            in_launch = name.startswith("SLURM_GPUS") or any(one.line == line for one in script.training)
            text = f"Slurm sets ${name} for --{options[0]} alone, which the file does not have"
            lighter = None if in_launch else Severity.WARNING
            yield Finding("unset-variable", line, text, lighter, facts={"of_option": name})
        elif _OF_RANKS.fullmatch(name):
            yield Finding("unset-variable", line, f"${name} is set for ranks of mpirun, and not in the batch shell")


_OF_STEPS = {"ntasks-per-node", "cpus-per-task", "gpus-per-task", "gpus-per-node", "gpus"}


def _in_steps(script: BatchScript) -> set[int]:
    """Return the lines that are part of what srun starts, whose options count there."""
    steps = (one for one in script.launches if one.srun is not None and _OF_STEPS & one.srun.options.keys())
    inner = {one.line for one in script.commands if "called" in one.within}
    return inner | {line for one in steps for line in range(one.line, one.line + 21)}


def arrays(script: BatchScript) -> Iterator[Finding]:
    """Find lists that became one element."""
    for one in script.assignments:
        is_quoted = re.search(r"\w=\(\s*\"\$[\w({][^\"]*\"\s*\)$", one.text.replace("\n", " "))
        if not one.array or len(one.array) != 1 or not is_quoted or "[@]" in one.text:
            continue  # "${list[@]:1}" has an element for each
        commands = one.array[0].value.commands()
        if _LISTS.search(commands) and not re.search(r"head|tail -n? ?1|wc", commands):
            yield found("array-quoted", one, one.text[:60])


_LISTS = re.compile(r"scontrol show hostname|\b(?:ls|find|seq|cat|awk|sort|nodeset|sinfo)\b")


_ELEMENT = re.compile(r"\$\{(\w+)\[([^][@*]+)\]\}")
_OWN_NUMBER = re.compile(r"SLURM_ARRAY_TASK_ID([-+][0-9]{1,6})?")
_BRANCHES = ("if_statement", "case_statement", "list", "while_statement", "for_statement")


def beyond_lists(script: BatchScript) -> Iterator[Finding]:
    """Find lists that are too short for the last element of the job's array."""
    stated = re.sub(r"[:%]\d+", "", script.header.value("array") or "")
    last = max((int(digits[:9]) for digits in re.findall(r"\d+", stated)), default=-1)
    given = {one.name: one for one in script.assignments}
    counts = Counter(one.name for one in script.assignments)
    for node in nodes_of(script.root, "expansion", outside=_BRANCHES) if last > 0 else ():
        element = _ELEMENT.fullmatch(text_of_expansion(node))
        name, index = (element[1], _plain(element[2])) if element else ("", "")
        own = _OWN_NUMBER.fullmatch(_plain(given[index].text.partition("=")[2]) if index in given else index)
        if counts[name] != 1 or given[name].within or given[name].source or own is None:
            continue
        words = given[name].array or []
        is_literal = all(word.value.fixed and not re.search(r"[*?{[]", word.text) for word in words)
        is_looked_at = re.search(rf"#{name}\[|\b(?:mapfile|readarray|read)\b.*\b{name}\b", script.code)
        beyond = last + int(own[1] or 0)
        if is_literal and 0 < len(words) <= beyond and not is_looked_at:
            text = f"${{{name}[{beyond}]}} is empty: {len(words)} elements, and --array goes to {last}"
            yield Finding("unset-variable", node.start_point.row + 1, text)
            return


def _plain(index: str) -> str:
    """Return the index of a list without quotes, blanks, and what only marks a variable or arithmetic."""
    return re.sub(r"[\s\"${}()]", "", index)


def commands(script: BatchScript) -> Iterator[Finding]:
    """Find words that bash takes for commands, and are none."""
    yield from filter(None, (_no_command(script, command) for command in script.commands))


def _no_command(script: BatchScript, command: ShellCommand) -> Finding | None:
    def is_none(why: str, facts: Mapping[str, str]) -> Finding:
        return found("command-not-found", command, why, facts=facts)

    if not command.words or command.words[0].source.startswith(("$", '"', "'", "`")) or command.dead:
        return None
    name, line = command.words[0].text, script.line(command.line)
    following = command.words[1].text if len(command.words) > 1 else ""
    if HOLE in name or not name or name in script.shell.functions or script.first_error == command.line:
        return None
    if re.match(r"--?[A-Za-z]", name):
        above = script.line(command.line - 1)
        if _BROKEN.search(above):
            return None  # broken-continuation says so
        why = "the line above does not end in a backslash, or a space or a comment follows it"
        if {name.lstrip("-")} & {*OPTIONS, *SHORT["sbatch"]} and re.match(r"\s*(?:#|$)", above):
            why = "an option without #SBATCH?"
        return is_none(f"{name} begins a line: {why}", {"option": name})
    is_variable = name not in OFTEN_MISSPELT and name.isidentifier()
    if following == "=" or (re.match(r"=[^=]", following) and is_variable and not command.words[1].quoted):
        return is_none(f"{name} {following} …: no spaces around = in bash", {"variable": name})
    is_end = name in ("null", "None", "EOF") and not following
    if is_end and not re.search(rf"<<-?\s*['\"]?{name}\b", "\n".join(script.lines)):
        return is_none(f"{name} is no program", {"left": name})
    if name == "SBATCH":
        return found("command-not-found", command, "SBATCH begins a line: a directive without its #")
    if "```" in line:
        return found("command-not-found", command, "``` is Markdown")
    is_prose = re.fullmatch(r"[A-Z][a-z]+[:,]?", name) and len(command.words) > 2
    if (name[0].isalpha() and not name[0].isascii()) or (is_prose and name not in _IN_CAPITALS):
        return found("command-not-found", command, f"{name} {following} …: a comment without its #?")
    near = next((known for known in OFTEN_MISSPELT if is_typing_error(name, known)), None)
    if near is not None and name not in OFTEN_MISSPELT and not re.fullmatch(r"python[\d.]+|\w+\.\w+|[pa]run", name):
        return is_none(f"{name}: {near}?", {"name": name, "meant": near})
    return None


_IN_CAPITALS = ("Rscript", "Xvfb", "Xorg", "Xvnc")


_BEFORE = r"(?:^|[;&|(!]|\b(?:if|elif|while|until|then|do|else)\b)\s*"
_NO_BLANK = re.compile(_BEFORE + r"(\[\[?(?=[\"$]|-[a-z]\b)[^\s\]]+)(?=\s.*\])")
_SPACED = re.compile(r"^\s*(?:export|declare|local|readonly)\s+(\w+)(?:\s+=\s*|=\s+)(?=[\w\"'$./-])(?!.*\w+=\S)")


def tests(script: BatchScript) -> Iterator[Finding]:
    """Find words that lack a blank or have one too many."""
    kinds = ("test_command", "command", "declaration_command", "ERROR")
    # What stands in a text is its output.
    commands = {node.start_point.row + 1 for node in nodes_of(script.root, *kinds, outside=("string", "heredoc_body"))}
    for at in sorted(commands):
        line = script.line(at)
        if (match := _NO_BLANK.search(line)) is not None and not _is_quoted(line, match):
            yield Finding("command-not-found", at, f"{match[1]}: no blank behind [", facts={"test": match[1]})
        elif (match := _SPACED.match(line)) is not None:
            text = f"{match[1]} = …: no spaces around = in bash"
            yield Finding("command-not-found", at, text, facts={"variable": match[1]})


def _is_quoted(line: str, match: re.Match[str]) -> bool:
    before = line[: match.start(1)]
    return bool(before.count('"') % 2 or before.count("'") % 2)


_PROGRAM = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|srun|mpirun|apptainer|singularity")


def submitted_programs(script: BatchScript) -> Iterator[Finding]:
    """Find programs that are given to sbatch in the place of a batch file."""
    for command in script.named("sbatch"):
        words = [word.text for word in command.words[1:]]
        given = words[max((following for _, _, following in read_options(words)), default=0) :]
        if given and _PROGRAM.fullmatch(given[0]) and not command.dead:
            yield found("sbatch-of-a-program", command, f"sbatch {' '.join(given[:2])[:40]}")
            return


# Each missing name is compared with each unused one, of which it may be a misspelling.
_MOST_COMPARED = 200


def variables(script: BatchScript) -> Iterator[Finding]:
    """Find variables that are empty where they are used."""
    settings = {name for command in script.commands for name in command.settings}
    assigned = {one.name for one in script.assignments} | settings
    unused = {name for name in assigned - _used("\n".join(script.lines)) if not name.startswith("_")}
    reported: set[str] = set()
    for command in script.commands:
        only_prints = command.name in ("echo", "printf", "[", "test", "trap", "cat", "", "unset")
        if command.dead or only_prints or "substitution" in command.within or command.variables.open_ended:
            continue
        for name, why, facts in _missing(command, assigned, unused):
            if name not in reported:
                reported.add(name)
                yield found("unset-variable", command, f"${name} is {why}", facts=facts)
    yield from _slurm_names(script, assigned, reported)


def _used(text: str) -> set[str]:
    """Return the names that a text expands or calculates with."""
    bodies = re.findall(r"\$\(\((.*?)\)\)", text, re.DOTALL)
    return {
        *re.findall(r"\$\{?[#!]?(\w+)", text),
        *(word for one in bodies for word in re.findall(r"[A-Za-z_]\w*", one)),
    }


def _missing(command: ShellCommand, assigned: set[str], unused: set[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    sources = "\n".join(word.source for word in command.words)
    named = set(re.findall(r"\$\{?(\w+)", sources))
    plain = set(re.findall(r"\$\{?(\w+)\b\}?(?!:?[-+=?])", sources))
    for origin in sorted({origin for word in command.words for origin in word.value.origins}):
        why, _, name = origin.rpartition(" ")
        # Only where the text of this very command names it: bash -c '… $NAME …'.
        if why == "kept back" and "called" in command.within and name in named:
            yield name, "set in the batch shell, and not exported", {"kept_back": name}
        elif why == "unset" and name not in assigned and name in plain and len(unused) <= _MOST_COMPARED:
            near = next((other for other in sorted(unused) if _means(name, other)), None)
            if near is not None:
                yield name, f"never set, and {near} is set and never used", {"name": name, "meant": near}


def _means(name: str, other: str) -> bool:
    plain, of_other = name.lower().replace("_", ""), other.lower().replace("_", "")
    return name != other and (plain == of_other or (len(plain) > 5 and is_typing_error(plain, of_other)))


def _slurm_names(script: BatchScript, assigned: set[str], reported: set[str]) -> Iterator[Finding]:
    is_array = script.header.value("array") is not None
    for number, line in enumerate(script.lines, 1):
        if line.lstrip().startswith("#") or re.match(r"\s*(?:echo|printf)\b", line):
            continue
        for name in re.findall(r"\$\{?(SLURM_\w+)(?=\b(?!:?[-+?]))", line):
            if name in _SLURM_VARIABLES or name in assigned or name in reported:
                continue
            near = [known for known in sorted(_SLURM_VARIABLES) if is_typing_error(name, known)]
            if near:
                reported.add(name)
                longer = [known for known in sorted(_SLURM_VARIABLES) if name in _without_a_word(known)]
                of_array = [known for known in longer if is_array and "_ARRAY_" in known]
                meant = of_array or [*near, *longer]
                text = f"Slurm sets no ${name}: {' or '.join(f'${known}' for known in meant)}?"
                facts = {"name": name, "meant": meant[0]} if len(meant) == 1 else {}
                yield Finding("unset-variable", number, text, facts=facts)


def _without_a_word(name: str) -> set[str]:
    words = name.split("_")
    return {"_".join([*words[:at], *words[at + 1 :]]) for at in range(1, len(words))}


_NEVER_FAIL = ("echo", "printf", "export", "set", "ulimit", "trap", "mkdir", "srun", "bash", "", ":", "unset")


def goes_on(script: BatchScript) -> Iterator[Finding]:
    """Find scripts that go on after a failed command."""
    if not script.training or any("e" in command.options for command in script.commands):
        return
    main = script.training[-1].command
    before = takewhile(lambda one: one is not main, script.commands)
    may_fail = any(one.name and one.name not in PRINTERS and one.name not in _NEVER_FAIL for one in before)
    if may_fail:
        yield Finding("no-set-e", script.header.first_command or 1, "no set -e", Severity.NOTE)
