"""Faults of the shell that the file is written in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import text_of, text_of_expansion
from batchfiles.bash.values import HOLE
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs.helpers import OFTEN_MISSPELT, PRINTERS
from trainjob.contract.programs.slurm_options import OPTIONS, SHORT

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
_OWN_PATH = re.compile(r"\$0\b|\$\{0\}|BASH_SOURCE")


def spool_folder(script: BatchScript) -> Iterator[Finding]:
    """Find paths that are relative to the file, which runs from slurmd's folder."""
    if not script.is_batch_file:
        return
    for command in script.named("dirname"):
        source = command.words[-1].source
        from_own = _OWN_PATH.search(source) and "scontrol" not in source
        if from_own and not command.source and not _knows_of_slurm(script, command):
            yield Finding("script-dir-is-spool", command.line, f"dirname {command.words[-1].source}")
            return
    for one in script.assignments:
        if (
            re.search(r"\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}", one.text)
            and not one.source
            and "SLURM_" not in one.text
        ):
            yield Finding("script-dir-is-spool", one.line, one.text[:60])
            return


def _knows_of_slurm(script: BatchScript, command: ShellCommand) -> bool:
    """Return whether the author takes another folder under Slurm: ${SLURM_SUBMIT_DIR:-…}, or in an if."""
    if any(re.search("SLURM_|BASH_SOURCE", one.text) for one in command.conditions):
        return True
    line = script.lines[command.line - 1] if command.line <= len(script.lines) else ""
    if "SLURM_SUBMIT_DIR" in line:
        return True
    name = re.match(r"\s*(?:export\s+|readonly\s+)?(\w+)=", line)
    if name is not None and _is_used_outside_alone(script, name[1], command.line):
        return True
    return name is not None and any(
        one.name == name[1]
        and one.line != command.line
        and re.search(r"SLURM_|scontrol", one.text + "".join(each.text for each in one.conditions))
        for one in script.assignments
    )


def _is_used_outside_alone(script: BatchScript, name: str, line: int) -> bool:
    """Return whether a folder is used only where Slurm's variables are missing, or have been looked at before."""
    expanded = re.compile(rf"\$\{{?{name}\b")
    commands = ((" ".join(word.source for word in one.words), one.conditions) for one in script.commands)
    given = ((one.text, one.conditions) for one in script.assignments if one.line != line)
    using = [conditions for text, conditions in (*commands, *given) if expanded.search(text)]
    return bool(using) and all(any("SLURM_" in asked.text for asked in conditions) for conditions in using)


_OF_SLURM = re.compile(r"\$\{?(?:SLURM_\w+|MASTER_(?:ADDR|PORT))\b\}?")


def in_quotes(script: BatchScript) -> Iterator[Finding]:
    """Find names of Slurm's variables that a program gets in place of their values."""
    for launch in script.training:
        words = launch.program if launch.is_python or launch.launcher else []
        options = launch.launcher.options.values() if launch.launcher else ()
        given = [*(word.text for word in words[1:]), *(value.text for value in options if value is not None)]
        names = [name for text in given if "\n" not in text for name in _OF_SLURM.findall(text)]
        if names and not launch.command.dead:
            yield found("variable-in-quotes", launch, f"the program gets the word {names[0]}")
            return


_BROKEN = re.compile(r"(?<!\\)\\[ \t]+(?:#.*)?$")


def continuations(script: BatchScript) -> Iterator[Finding]:
    """Find backslashes that continue nothing, because a blank follows them."""
    broken = {at for at, line in enumerate(script.lines, 1) if _BROKEN.search(line) and not re.match(r"\s*#", line)}
    for at in sorted(broken & _of_commands(script)) if broken else ():
        yield Finding("broken-continuation", at, script.lines[at - 1].strip()[-60:])


def _of_commands(script: BatchScript) -> set[int]:
    """Return the lines of commands, and not of here-documents or quoted text."""
    lines: set[int] = set()
    waiting = [script.root]
    while waiting:
        node = waiting.pop()
        if node.type == "command":
            lines |= set(range(node.start_point.row + 1, node.end_point.row + 2))
        if node.type not in ("string", "raw_string", "heredoc_body", "comment"):
            waiting.extend(node.children)
    for node in nodes_of(script.root, "raw_string", "string"):
        lines -= set(range(node.start_point.row + 1, node.end_point.row + 1))
    return lines


# Set outside, or by programs that only look like commands.
_FROM_OUTSIDE = re.compile(r"\w*_proxy|ftp|prefix|debian_chroot|_")


_BEYOND_NINE = re.compile(rb"\$([1-9][0-9]+)")


def beyond_nine(script: BatchScript) -> Iterator[Finding]:
    """Find $10, which is ${1}0."""
    first = next(beyond_nine_at(script), None)
    if first is not None:
        at, digits = first
        line = (script.root.text or b"").count(b"\n", 0, at) + 1
        yield Finding("unset-variable", line, f"${digits} is ${{{digits[0]}}}{digits[1:]}")


def beyond_nine_at(script: BatchScript) -> Iterator[tuple[int, str]]:
    """Yield the byte where $10 stands, or one of more digits, and the digits."""
    raw = script.root.text or b""
    for node in nodes_of(script.root, "simple_expansion"):
        match = _BEYOND_NINE.match(raw, node.start_byte)
        if match is not None:
            yield node.start_byte, match[1].decode()


def never_set(script: BatchScript) -> Iterator[Finding]:
    """Find variables in lower case that nothing in the file sets: those come from no environment."""
    if script.shell.not_here or script.shell.variables.open_ended or not script.is_batch_file:
        return
    text = "\n".join(line for line in script.lines if not re.match(r"\s*#", line))
    reported: set[str] = set()
    for node in nodes_of(script.root, "simple_expansion", "expansion"):
        match = re.fullmatch(r"\$(?:([a-z][a-z0-9_]*)|\{([a-z][a-z0-9_]*)(?:\[[^\]]*\])?\})", text_of_expansion(node))
        name = (match[1] or match[2]) if match else ""
        if not name or name in reported or _FROM_OUTSIDE.fullmatch(name) or _is_set(name, text):
            continue
        line = node.start_point.row + 1
        if line > len(script.lines) or re.match(r"\s*(?:echo|printf)\b", script.lines[line - 1]):
            continue
        reported.add(name)
        yield Finding("unset-variable", line, f"${name} is never set")


def _is_set(name: str, text: str) -> bool:
    return (
        re.search(
            rf"\b{name}(?:\[[^\]]*\])?\+?=|\b(?:for|select)\s+{name}\b|\b(?:read|mapfile|readarray|getopts|local|declare|typeset|export|unset|"
            rf"printf\s+-v)\b[^;|&\n]*\b{name}\b|\(\([^)]*\b{name}\b|--export\S*\b{name}\b|-v\s+{name}\b",
            text,
        )
        is not None
    )


# What Slurm sets only for an option that the job states.
_OF_OPTIONS = {
    "SLURM_GPUS": ("gpus",),
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS_PER_TASK": ("gpus-per-task",),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
    "SLURM_CPUS_PER_TASK": ("cpus-per-task", "cpus-per-gpu"),
    "SLURM_CPUS_PER_GPU": ("cpus-per-gpu",),
    "SLURM_MEM_PER_NODE": ("mem",),
    "SLURM_MEM_PER_CPU": ("mem-per-cpu",),
    "SLURM_ARRAY_TASK_ID": ("array",),
}
_OF_RANKS = re.compile(r"OMPI_COMM_WORLD_\w+|PMIX?_RANK|PMI_SIZE|MPI_LOCALRANKID")
# Variables that the file sets, gives a default, or tests.
_DEALT_WITH = tuple(map(re.compile, (r"\b(\w+)=", r"\$\{(\w+):?[-+=?]", r"-[nv] \"?\$?\{?(\w+)")))


def not_given(script: BatchScript) -> Iterator[Finding]:
    """Find variables that Slurm sets for options which the file does not have, and those that only ranks have."""
    header = script.header
    if not header.directives:
        return
    comments = " ".join(comment for _, comment in script.comments if "sbatch" in comment)
    reported: set[str] = set()
    dealt_with = {name for pattern in _DEALT_WITH for name in pattern.findall(text_of(script.root))}
    for node in nodes_of(script.root, "simple_expansion", "expansion"):
        match = re.fullmatch(r"\$\{?(\w+)\}?", text_of_expansion(node))
        name, line = match[1] if match else "", node.start_point.row + 1
        options = _OF_OPTIONS.get(name, ())
        if not name or name in reported or name in dealt_with or line > len(script.lines):
            continue
        if options and any(header.value(one) is not None or f"--{one}" in comments for one in options):
            continue
        if not options and not _OF_RANKS.fullmatch(name):
            continue
        if re.match(r"\s*(?:echo|printf|#)", script.lines[line - 1]) or _in_step(script, line):
            continue
        reported.add(name)
        if not options:
            yield Finding("unset-variable", line, f"${name} is set for ranks of mpirun, and not in the batch shell")
        else:
            in_launch = name.startswith("SLURM_GPUS") or any(one.line == line for one in script.training)
            text = f"Slurm sets ${name} for --{options[0]} alone, which the file does not have"
            yield Finding("unset-variable", line, text, None if in_launch else Severity.WARNING)


def _in_step(script: BatchScript, line: int) -> bool:
    """Return whether a line is part of what srun starts, whose options count there."""
    return any(
        launch.srun is not None
        and launch.command.line <= line <= launch.command.line + 20
        and {"ntasks-per-node", "cpus-per-task", "gpus-per-task", "gpus-per-node", "gpus"} & set(launch.srun.options)
        for launch in script.launches
    ) or any("called" in one.within and one.line == line for one in script.commands)


def arrays(script: BatchScript) -> Iterator[Finding]:
    """Find lists that became one element."""
    for one in script.assignments:
        if (
            one.array is None
            or len(one.array) != 1
            or not re.search(r"\w=\(\s*\"\$[\w({][^\"]*\"\s*\)$", one.text.replace("\n", " "))
            or "[@]" in one.text  # "${list[@]:1}" has an element for each
        ):
            continue
        value = one.array[0].value
        if re.search(
            r"scontrol show hostname|\b(?:ls|find|seq|cat|awk|sort|nodeset|sinfo)\b", value.commands()
        ) and not re.search(r"head|tail -n? ?1|wc", value.commands()):
            yield found("array-quoted", one, one.text[:60])


def commands(script: BatchScript) -> Iterator[Finding]:
    """Find words that bash takes for commands, and are none."""
    for command in script.commands:
        why = _no_command(script, command)
        if why is not None:
            yield found("command-not-found", command, why)


def _no_command(script: BatchScript, command: ShellCommand) -> str | None:
    if not command.words or command.words[0].source.startswith(("$", '"', "'", "`")) or command.dead:
        return None
    name = command.words[0].text
    following = command.words[1].text if len(command.words) > 1 else ""
    if HOLE in name or not name or name in script.shell.functions or script.first_error == command.line:
        return None
    if re.match(r"--?[A-Za-z]", name):
        above = script.lines[command.line - 2] if 1 < command.line <= len(script.lines) else ""
        if _BROKEN.search(above):
            return None  # broken-continuation says so
        if {name.lstrip("-")} & {*OPTIONS, *SHORT["sbatch"]} and re.match(r"\s*(?:#|$)", above):
            return f"{name} begins a line: an option without #SBATCH?"
        return f"{name} begins a line: the line above does not end in a backslash, or a space or a comment follows it"
    if following == "=" or (
        re.match(r"=[^=]", following)
        and name not in OFTEN_MISSPELT
        and name.isidentifier()
        and not command.words[1].quoted
    ):
        return f"{name} {following} …: no spaces around = in bash"
    if (
        name in ("null", "None", "EOF")
        and not following
        and not re.search(rf"<<-?\s*['\"]?{name}\b", "\n".join(script.lines))
    ):
        return f"{name} is no program"
    if "```" in script.lines[min(command.line, len(script.lines)) - 1]:
        return "``` is Markdown"
    if name[0].isalpha() and not name[0].isascii():
        return f"{name} …: a comment without its #?"
    if (
        re.fullmatch(r"[A-Z][a-z]+[:,]?", name)
        and name not in ("Rscript", "Xvfb", "Xorg", "Xvnc")
        and len(command.words) > 2
    ):
        return f"{name} {following} …: a comment without its #?"
    near = next((known for known in OFTEN_MISSPELT if _differs_by_typing_error(name, known)), None)
    if near is not None and name not in OFTEN_MISSPELT and not re.fullmatch(r"python[\d.]+|\w+\.\w+|[pa]run", name):
        return f"{name}: {near}?"
    return None


# Each missing name is compared with each unused one, of which it may be a misspelling.
_MOST_COMPARED = 200


def variables(script: BatchScript) -> Iterator[Finding]:
    """Find variables that are empty where they are used."""
    text = "\n".join(script.lines)
    used = set(re.findall(r"\$\{?[#!]?(\w+)", text)) | {
        word for body in re.findall(r"\$\(\((.*?)\)\)", text, re.DOTALL) for word in re.findall(r"[A-Za-z_]\w*", body)
    }
    assigned = {one.name for one in script.assignments} | {
        name for command in script.commands for name in command.settings
    }
    unused = {name for name in assigned - used if not name.startswith("_")}
    reported: set[str] = set()
    for command in script.commands:
        if (
            command.dead
            or command.name in ("echo", "printf", "[", "test", "trap", "cat", "", "unset")
            or "substitution" in command.within
            or command.variables.open_ended
        ):
            continue
        for name, why in _missing(command, assigned, unused):
            if name not in reported:
                reported.add(name)
                yield found("unset-variable", command, f"${name} is {why}")
    yield from _slurm_names(script, assigned, reported)


def _missing(command: ShellCommand, assigned: set[str], unused: set[str]) -> Iterator[tuple[str, str]]:
    sources = "\n".join(word.source for word in command.words)
    named = set(re.findall(r"\$\{?(\w+)", sources))
    plain = set(re.findall(r"\$\{?(\w+)\b\}?(?!:?[-+=?])", sources))
    for origin in sorted(
        {
            origin
            for word in command.words
            for origin in word.value.origins
            if origin.startswith(("unset ", "kept back "))
        }
    ):
        name = origin.rpartition(" ")[2]
        if origin.startswith("kept back "):
            # Only where the text of this very command names it: bash -c '… $NAME …'.
            if "called" in command.within and name in named:
                yield name, "set in the batch shell, and not exported"
        elif name not in assigned and name in plain and len(unused) <= _MOST_COMPARED:
            near = next((other for other in sorted(unused) if _means(name, other)), None)
            if near is not None:
                yield name, f"never set, and {near} is set and never used"


def _differs_by_typing_error(word: str, known: str) -> bool:
    """Return whether one letter is missing, added or wrong, or two neighbours are swapped."""
    if word == known or abs(len(word) - len(known)) > 1 or min(len(word), len(known)) < 4:
        return False
    at = next(
        (place for place, (one, other) in enumerate(zip(word, known, strict=False)) if one != other),
        min(len(word), len(known)),
    )
    rest, of_known = word[at:], known[at:]
    return (
        rest[1:] == of_known[1:]
        or rest == of_known[1:]
        or rest[1:] == of_known
        or (rest[:2] == of_known[:2][::-1] and rest[2:] == of_known[2:])
    )


def _means(name: str, other: str) -> bool:
    plain, of_other = name.lower().replace("_", ""), other.lower().replace("_", "")
    return name != other and (plain == of_other or (len(plain) > 5 and _differs_by_typing_error(plain, of_other)))


def _slurm_names(script: BatchScript, assigned: set[str], reported: set[str]) -> Iterator[Finding]:
    for number, line in enumerate(script.lines, 1):
        if line.lstrip().startswith("#") or re.match(r"\s*(?:echo|printf)\b", line):
            continue
        for name in re.findall(r"\$\{?(SLURM_\w+)(?=\b(?!:?[-+?]))", line):
            if name in _SLURM_VARIABLES or name in assigned or name in reported:
                continue
            near = next((known for known in sorted(_SLURM_VARIABLES) if _differs_by_typing_error(name, known)), None)
            if near is not None:
                reported.add(name)
                yield Finding("unset-variable", number, f"Slurm sets no ${name}: ${near}?")


def empty_programs(script: BatchScript) -> Iterator[Finding]:
    """Find launch lines whose program is a variable that is never set, while another one is set and never used."""
    text = "\n".join(line for line in script.lines if not line.lstrip().startswith("#"))
    used = set(re.findall(r"\$\{?[#!]?(\w+)", text))
    unused = [
        one.name
        for one in script.assignments
        if one.name not in used and re.search(r"(?i)script|program|file|args", one.name)
    ]
    for launch in script.training:
        if launch.launcher is None or not launch.program or launch.command.dead or not unused:
            continue
        missing = {
            origin.removeprefix("unset ") for origin in launch.program[0].value.origins if origin.startswith("unset ")
        }
        candidates = [name for name in re.findall(r"\$\{?(\w+)", text) if name in missing]
        if launch.program[0].text.strip(HOLE) == "" and candidates:
            why, lighter = f"${candidates[0]} is never set, and {unused[0]} is set and never used", None
            if launch.command.variables.open_ended and script.shell.not_here:
                why += f", unless {next(iter(script.shell.not_here))}, which is not here, sets it"
                lighter = Severity.WARNING
            yield found("unset-variable", launch, why, lighter)


def empty_arguments(script: BatchScript) -> Iterator[Finding]:
    """Find options whose value is empty and vanishes."""
    for launch in script.training:
        words = launch.command.words
        for at, word in enumerate(words):
            variable = re.fullmatch(r"\$\{?(\w+)\}?", word.source)
            follows_option = at > 0 and re.fullmatch(r"--?[A-Za-z][\w-]*", words[at - 1].source)
            if variable and re.search(r"(?i)extra|args|opts|options|flags?$", variable[1]):
                continue
            if (
                variable
                and word.text == ""
                and word.value.known
                and not word.quoted
                and follows_option
                and not word.value.comes_from("SLURM_PROCID")
            ):
                yield found("empty-argument", launch, f"{words[at - 1].text} {word.source}, which is empty")
                return


_NEVER_FAIL = ("echo", "printf", "export", "set", "ulimit", "trap", "mkdir", "srun", "bash", "", ":", "unset")


def goes_on(script: BatchScript) -> Iterator[Finding]:
    """Find scripts that go on after a failed command."""
    if not script.training or any("e" in command.options for command in script.commands):
        return
    first = re.search(r"^#!.*\s-\w*e", script.lines[0])
    main = script.training[-1].command
    before = script.commands[: next(at for at, one in enumerate(script.commands) if one is main)]
    may_fail = [one for one in before if one.name and one.name not in PRINTERS and one.name not in _NEVER_FAIL]
    if first is None and may_fail:
        yield Finding("no-set-e", script.header.first_command or 1, "no set -e", Severity.NOTE)
