"""What a batch file does around its training: kept as prologue or environment, or done by trainjob itself."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batchfiles.adoption.account import Account, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.command import AdoptedCommand
from batchfiles.adoption.parts import Part, Parts, names_in, takes_arguments
from batchfiles.adoption.start import AdoptedStart
from batchfiles.bash.commands import Assignment, ShellCommand
from batchfiles.bash.values import Value
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript
from trainjob.cluster.common import refuse_name
from trainjob.contract.errors import RuleError
from trainjob.contract.programs.helpers import LEAVES_NOTHING, WATCHES
from trainjob.contract.programs.ranks import PLACE_VARIABLES
from trainjob.contract.programs.secret_names import holds_secret, is_secret_variable

_SITE = re.compile(
    r"module|ml|source|\.|conda|mamba|micromamba|pyenv|spack|eval|unset|ulimit|umask|shopt|nvm|guix|easybuild|alias"
)
# Set by modules too: where they stand matters.
_OF_MODULES = re.compile(r"\w*PATH|\w+_HOME|\w+_ROOT|\w+_DIR|LD_\w+|CC|CXX|\w*FLAGS")
_RENDEZVOUS = re.compile(
    r"(?i)(?:MASTER|HEAD|RDZV|RENDEZVOUS|MAIN_PROCESS|MAIN|COORDINATOR)_?(?:NODE_?)?(?:ADDR|ADDRESS|IP|HOST|HOSTNAME|PORT|NODE|ID|"
    r"BACKEND|ENDPOINT)|(?:N|NUM_|COUNT_)NODES?|NODE_?LIST|HOSTNAMES|NODES|GPUS_PER_NODE|NUM_GPUS|NUM_PROCESSES|HOSTFILE"
)
_EVERYWHERE = re.compile(
    r"SLURM\w*|HOME|USER|PATH|PWD|HOSTNAME|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|RANDOM|SECONDS|TRAINJOB_\w+|CUDA_VISIBLE_DEVICES|IFS|\w"
)
# Jobs have only what Slurm tells every job.
_OTHERS_OF_SLURM = re.compile(r"\$\{?(SLURM_(?:JOB_ACCOUNT|JOB_QOS|GPUS\w*|NTASKS_PER_\w+))\}?")
_OWN_FOLDER = re.compile(
    r'\$\(dirname\s+(?:--\s+)?"?(?:\$\((?:readlink\s+-f|realpath)\s+)?"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?"?\)?"?\)'
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
_HIDDEN = "it holds a secret: put it into a secrets_file of mode 0600"
_MAY_FAIL = re.compile(
    r"(?:srun\s(?:[^;&|]*\s)?)?(?:ulimit|ln|cp|mv|rm|rmdir|rsync|tar|unzip|touch|chmod|dcgmi|wandb|nvidia-\S+|hf|"
    r"huggingface-cli)\s"
)
_PLACE = "each rank is told its place, and where all meet"
_SIGNAL_NAMES = ("USR1", "SIGUSR1", "USR2", "SIGUSR2", "TERM", "SIGTERM", "10", "INT", "SIGINT")
_ASKED_BY_A_VERB = ("module", "ml", "conda", "mamba", "micromamba", "pip", "pip3", "spack", "uv")
_RUNS_AGAIN = re.compile(r"\bscontrol\s+requeue|\bsbatch\b.*(?:\$0|\$\{?0|BASH_SOURCE)")
_COMPOUND = ("if_statement", "for_statement", "c_style_for_statement", "while_statement", "case_statement")
_REQUEUED = "the job is requeued by itself: --max-attempts limits how often"


@dataclass(frozen=True)
class PathOrigin:
    """The folder of relative paths: `base` where the file is submitted, `copy` in the job's shell."""

    base: str
    copy: str
    of_file: str  # the folder of the batch file, in the job's shell


@dataclass
class _PrologueBuilder:
    """The statements before the training, sorted from the last to the first: what is kept needs those before it."""

    script: BatchScript
    launch: LaunchedProgram
    keys: Keys
    account: Account
    place: PathOrigin
    threads: int | None  # of a rank, where nothing sets another number; None where a launcher may set one
    needed: set[str]
    in_command: set[str]
    parts: Parts
    command: list[str]  # the words of the job's command
    prologue: list[tuple[str, str]] = field(default_factory=list)  # text, comment
    env: list[tuple[str, str, str]] = field(default_factory=list)  # name, value, comment
    consumed: set[str] = field(default_factory=set)  # the variables that the training's line is made of
    in_copy: bool = False


def place_of(path: Path, parts: Parts, folder: Path, start: str) -> PathOrigin:
    """Return the place of the file `path`, submitted in `folder`, which is `start` below the top of its project."""
    base = str(folder)
    for one in (command for part in parts.before for command in part.commands):
        if one.name == "cd" and len(one.words) > 1 and one.words[1].value.known and one.words[1].text.startswith("/"):
            base = one.words[1].text.rstrip("/")
    copy = "$TRAINJOB_RUN_DIR/code/project" + ("" if start == "." else f"/{start}")
    below = os.path.relpath(path.parent.resolve(), folder.resolve())
    return PathOrigin(base, copy, copy if below.startswith(".") else f"{copy}/{below}")


def read_setup(
    script: BatchScript,
    launch: LaunchedProgram,
    start: AdoptedStart,
    parts: Parts,
    run: AdoptedCommand,
    keys: Keys,
    account: Account,
    place: PathOrigin,
) -> None:
    """Fill in environment and prologue, and say what became of each statement around the training."""
    threads = max(1, (start.cpus or start.ranks) // start.ranks) if start.per == "rank" else None
    names = set(run.names)
    builder = _PrologueBuilder(
        *(script, launch, keys, account, place, threads, names, set(names), parts, run.words),
        consumed=_consumed(script, parts),
    )
    if run.words[:2] == ["bash", "-c"]:
        run.words[2] = _with_slurms_own(builder, run.words[2])
    modules = [part.line for part in parts.before if any(_SITE.fullmatch(one.name) for one in part.commands)]
    for part in reversed(parts.before):
        _classify(builder, part, after_modules=any(line < part.line for line in modules))
    for part in parts.after:
        _after(builder, part)
    env = keys.of_job("env") if builder.env or run.env or "env" in keys.job else {}
    for name, value, comment in reversed(builder.env):
        env[name] = value
        if comment:
            keys.comments["env", name] = comment
    env |= {name: value for name, value in run.env.items() if _passes(name)}
    lines = [*([(f'cd "{builder.place.copy}"', "")] if builder.in_copy else []), *reversed(builder.prologue)]
    if any("$?" in text for text, _ in lines):  # it looks at failures that would end a job
        lines = [("set +e", ""), *lines, ("set -e", "")]
    if lines:
        keys.cluster["prologue"] = [text for text, _ in lines]
    _log_in(builder)
    for number, (_, comment) in enumerate(lines):
        if comment:
            keys.comments["prologue", str(number)] = comment


def _log_in(builder: _PrologueBuilder) -> None:
    """Let a login shell set what the file takes from the shell that submits it: variables of the site, conda."""
    given = {one.name for one in builder.script.assignments} | set(builder.keys.of_job("env")) | set(PLACE_VARIABLES)
    given |= {word.text for one in builder.script.named("read", "mapfile") for word in one.words}
    if not builder.keys.job["env"]:
        del builder.keys.job["env"]
    text = "\n".join(text for text, _ in builder.prologue)
    given |= set(re.findall(r"\bfor\s+(\w+)\s+in\b", text))
    outside = sorted(
        name
        for name in (builder.needed & names_in(text)) | builder.in_command
        if name not in given and not _EVERYWHERE.fullmatch(name) and not re.search(rf"\$\{{{name}:?-", text)
    )
    conda = re.search(r"\b(?:conda|mamba) activate\b", text)
    own = re.search(r"(?:conda|mamba)\.sh|shell\.bash|hook|module load \S*(?:conda|mamba|forge)", text)
    for holds, line, what in (
        (re.match(r"#!.*\s-\w*l", builder.script.lines[0]), 1, builder.script.lines[0]),
        (outside, builder.launch.line, ", ".join(f"${name}" for name in outside)),
        (conda and not own, builder.launch.line, "conda activate"),
    ):
        if holds:
            builder.keys.cluster["login_environment"] = True
            builder.account.note(Where.CLUSTER, line, what, "login_environment: a login shell sets it up")


def _classify(builder: _PrologueBuilder, part: Part, *, after_modules: bool) -> None:
    if part.commands and all(one.dead for one in part.commands):
        _say(builder, part, Where.NOWHERE, "never reached in this job")
    elif part.kind == "function_definition":
        name = re.match(r"(?:function\s+)?([\w-]+)", part.text)
        if name is not None and name[1] in builder.needed:
            _keep(builder, part)
        elif any(part.line < entry.line <= part.last for entry in builder.account.entries):
            _say(builder, part, Where.NOWHERE, "its lines are listed one by one")
        else:
            _say(builder, part, Where.NOWHERE, "not called by any statement that was kept")
    elif part.assignments and (not part.commands or part.kind in _ASSIGNS):
        _assigned(builder, part, after_modules=after_modules)
    else:
        _commanded(builder, part)


def _assigned(builder: _PrologueBuilder, part: Part, *, after_modules: bool) -> None:
    """Sort variables: into the environment, into the prologue, or into the words of the command."""
    if part.kind in _COMPOUND and builder.needed.intersection(one.name for one in part.assignments):
        _keep(builder, part)
        return
    fates = [_of_variable(builder, part, one, after_modules=after_modules) for one in part.assignments]
    if any(fate is None for fate in fates):
        _keep(builder, part)
        return
    for where, what in dict.fromkeys(fate for fate in fates if fate is not None):
        _say(builder, part, where, what)


def _of_variable(
    builder: _PrologueBuilder, part: Part, one: Assignment, *, after_modules: bool
) -> tuple[Where, str] | None:
    """Return what became of a variable; None if the prologue has to keep its statement."""
    name, value = one.name, one.value
    if name in PLACE_VARIABLES:
        return Where.TRAINJOB, _PLACE
    if name in _OF_SLURM:
        return Where.TRAINJOB, _OF_SLURM[name]
    if holds_secret(one.value.text) or (is_secret_variable(name) and value.known):
        return Where.LOST, _HIDDEN
    if name == "OMP_NUM_THREADS" and value.origins and _is_own(builder, value):
        return Where.TRAINJOB, "each rank gets a thread for each of its CPUs"
    if not one.exported:
        if name in builder.needed:
            return None
        if name not in builder.consumed:
            return Where.NOWHERE, "nothing uses it"
        return (Where.TRAINJOB, _PLACE) if _is_about_places(one) else (Where.JOB, "in the words of command")
    if _RENDEZVOUS.fullmatch(name) and name not in builder.needed:
        return Where.TRAINJOB, _PLACE
    if name in builder.consumed and (not value.known or COMMAND_WORDS.search(value.text)):
        return (Where.JOB, "in the words of command") if name not in builder.needed else None
    if one.array is not None or not value.known or (after_modules and _OF_MODULES.fullmatch(name)):
        return None
    if not _passes(name) or "\0" in value.text:
        return None
    builder.env.append((name, value.text, _comment(part)))
    return Where.JOB, f"env: {name}"


def _is_own(builder: _PrologueBuilder, threads: Value) -> bool:
    """Return whether a job gives its ranks this number of threads by itself."""
    return threads.text == str(builder.threads) if threads.known else "SLURM_CPUS_PER_TASK" in threads.origins


def tells_place(name: str) -> bool:
    """Return whether a variable of this name tells ranks, or what starts them, where they are and meet."""
    return name in PLACE_VARIABLES or name in _OF_SLURM or _RENDEZVOUS.fullmatch(name) is not None


def _passes(name: str) -> bool:
    try:
        refuse_name(name)
    except RuleError:
        return False
    return True


def _consumed(script: BatchScript, parts: Parts) -> set[str]:
    """Return the variables that the training's line is made of, directly and through others."""
    names = names_in(parts.launch.text if parts.launch is not None else "")
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        for one in script.assignments:
            if one.name == name and name not in _OF_SLURM:
                further = names_in(one.text.partition("=")[2]) - names - {name}
                names |= further
                waiting.extend(further)
    return names


def _is_about_places(one: Assignment) -> bool:
    """Return whether a variable tells where ranks meet, or how many there are."""
    texts = [one.text, one.value.commands(), *(word.value.commands() for word in one.array or ())]
    return bool(_RENDEZVOUS.fullmatch(one.name)) or any(
        re.search(r"hostname|NODELIST|NNODES|NUM_NODES", text) for text in texts
    )


def _commanded(builder: _PrologueBuilder, part: Part) -> None:
    commands = [one for one in part.commands if "substitution" not in one.within]
    is_secret = any(holds_secret(word.value.text) for one in commands for word in one.words)
    fate = (Where.LOST, _HIDDEN) if is_secret else _without_prologue(builder, part, commands)
    if fate is None:
        _keep(builder, part)
    else:
        _say(builder, part, *fate, hidden=is_secret)


def _without_prologue(
    builder: _PrologueBuilder, part: Part, commands: Sequence[ShellCommand]
) -> tuple[Where, str] | None:
    """Return what becomes of a statement that a job does by itself, can't do or does without; None for any other."""
    names = {one.name for one in commands}
    if "trap" not in names and _runs_again(builder, part):
        return Where.TRAINJOB, _REQUEUED
    if _calls_training(builder, commands):
        return Where.JOB, "command"
    if names == {"set"} and re.search(r"-\w*[eu]|pipefail", part.text):
        return Where.TRAINJOB, "job scripts have set -euo pipefail"
    if names == {"trap"}:
        return _trapped(commands[0])
    if names and names <= {"cd", "pushd", "popd"}:
        return _moved(commands)
    if "sbatch" in names:
        return Where.LOST, "a job submits no other: submit it with --after this one's id"
    fills = {word.text for one in commands for word in one.words[1:]}
    readers = names - {"true", ":"}
    if readers and readers <= {"read", "mapfile", "readarray"} and not fills & builder.needed:
        return Where.NOWHERE, "nothing that is kept uses it"
    if any(one.background for one in commands) and not builder.launch.command.background:
        if WATCHES.search(part.text):
            return Where.NOWHERE, "`trainjob usage` shows what ranks use"
        return Where.LOST, "it runs beside the training"
    if builder.needed.intersection(one.name for one in part.assignments):
        return None
    if _only_prints(builder, part, commands) or names == {"set"}:
        return Where.NOWHERE, "it only prints or checks"
    return None


def _runs_again(builder: _PrologueBuilder, part: Part) -> bool:
    """Return whether a statement submits or requeues the file itself."""
    if part.commands and all(_prints(one) or one.name == "exit" for one in part.commands):
        return False  # how to call it
    own = re.compile(rf"\bsbatch\b.*\b{re.escape(builder.script.path.name)}")
    return bool(_RUNS_AGAIN.search(part.text) or own.search(part.text))


def _calls_training(builder: _PrologueBuilder, commands: Sequence[ShellCommand]) -> bool:
    """Return whether one of these is a function with the training in it, or with a call of such a function."""
    launch, lines = builder.launch, builder.parts.functions
    if "function" not in launch.command.within:
        return False
    leading: set[str] = set()
    callers = {name for name, body in lines.items() if launch.place in body}
    while callers - leading:
        leading |= callers
        calls = [one.line for one in builder.script.commands if one.name in leading]
        callers = {name for name, body in lines.items() if any(line in body for line in calls)}
    return any(one.name in leading for one in commands)


def _only_prints_or_leaves(builder: _PrologueBuilder, one: ShellCommand) -> bool:
    """Return whether a command only prints, or is a function that only prints and leaves the script."""
    body = builder.parts.functions.get(one.name)
    if body is None:
        return _prints(one)
    inside = [other for other in builder.script.commands if other.line in body and other is not one]
    return all(_prints(other) for other in inside if other.name != one.name)


def _only_prints(builder: _PrologueBuilder, part: Part, commands: Sequence[ShellCommand]) -> bool:
    if any(
        sign != "<" and path.text != "/dev/null" and not path.text.isdigit()
        for one in commands
        for sign, path in one.writes_to
    ):
        return False
    if part.assignments and part.kind not in _COMPOUND:
        return False
    return all(_only_prints_or_leaves(builder, one) for one in commands) and not any(
        one.exported for one in part.assignments
    )


def _prints(command: ShellCommand) -> bool:
    words = [word.text for word in command.words]
    if command.name in _ASKED_BY_A_VERB:
        return bool(words[1:]) and words[1] in ("list", "avail", "show", "spider", "info", "freeze", "--version")
    if command.name in ("python", "python3"):
        return len(words) > 1 and words[1] in ("-c", "--version", "-V", "-m") and "pip" not in words
    if command.name == "git":
        return words[1:2] in (["log"], ["rev-parse"], ["status"], ["describe"], ["diff"])
    if command.name == "srun":
        inner = next((word for word in words[1:] if word in LEAVES_NOTHING), None)
        return inner is not None and not re.search(r"mkdir|cp|rsync|tar|\.sh\b", command.text)
    return command.name in LEAVES_NOTHING


def _trapped(command: ShellCommand) -> tuple[Where, str]:
    signals = [word.text for word in command.words[2:]]
    if any(signal in _SIGNAL_NAMES for signal in signals):
        return Where.TRAINJOB, "USR1 goes to the ranks before the time limit, and the job is requeued"
    return Where.LOST, f"a job has no handler for {' '.join(signals) or 'this'}: do it in the program"


def _moved(commands: Sequence[ShellCommand]) -> tuple[Where, str]:
    target = commands[-1].words[1] if len(commands[-1].words) > 1 else None
    origins = target.value.origins if target is not None else frozenset()
    if (
        target is None
        or "SLURM_SUBMIT_DIR" in origins
        or re.search(r"\$\{?0|BASH_SOURCE", target.source + target.value.commands())
    ):
        return Where.TRAINJOB, "ranks start in a copy of the folder in which you submit"
    shown = target.text if target.value.known else target.source
    return Where.LOST, f"submit in {shown}: ranks start in a copy of that folder"


def _keep(builder: _PrologueBuilder, part: Part) -> None:
    """Keep a statement in the prologue, and note the variables that it needs."""
    text, after = part.text, ""
    own = dict.fromkeys(one.name for one in part.assignments if one.name in builder.in_command and not one.exported)
    if own and part.kind in _COMPOUND:
        after = f"export {' '.join(own)}"
    elif own and part.assignments[0].array is not None:
        pass  # bash exports no array
    elif own and any(one.name in own and one.array is not None for one in builder.script.assignments):
        # bash does not export array elements either, and a name once declared as an array stays one.
        name = part.assignments[0].name
        text = f"v={text.partition('=')[2]}; unset {name}; export {name}=$v"
    elif own and not text.startswith(("export", "declare -x")):
        text = f"export {text.removeprefix('readonly ')}"
    # Paths below the folder of the submission are in a job's copy of it.
    kept = re.sub(r"\$\{?SLURM_SUBMIT_DIR\b\}?", builder.place.copy, text)
    kept = _OWN_FOLDER.sub(lambda _match: builder.place.of_file, kept)
    # The copy of a project has no virtualenv.
    kept = re.sub(r"((?:source|\.)\s+)(?:\./)?([\w.][\w./-]*/activate)\b", rf"\1{builder.place.base}/\2", kept)
    kept = _with_slurms_own(builder, kept)
    if _MAY_FAIL.match(kept) and not any("e" in one.options for one in part.commands):
        kept += " || true"  # it would end the job, and has not ended the file
    if takes_arguments(kept) and len(part.assignments) == 1 and part.assignments[0].value.known:
        one = part.assignments[0]
        kept = f"{'export ' if one.exported or own else ''}{one.name}={shlex.quote(one.value.text)}"
    if takes_arguments(kept) and part.kind != "function_definition":
        _say(builder, part, Where.LOST, "it reads an argument of the file: write the value")
        return
    builder.needed |= names_in(kept)
    if own and not after and part.assignments[0].array is not None and _moves_into_command(builder, own, kept):
        _say(builder, part, Where.JOB, "in the words of command")
        return
    builder.needed |= {one.words[0].text for one in part.commands if one.words}
    builder.in_copy = builder.in_copy or _is_relative(part)
    container = builder.keys.cluster.get("container")
    runtime = container["runtime"] if isinstance(container, dict) else None
    names = dict.fromkeys(one.name for one in part.assignments if one.exported or one.name in own)
    inside = [name for name in names if not re.match(r"(?:APPTAINER|SINGULARITY)|(?:LD_LIBRARY_)?PATH$", name)]
    if runtime == "apptainer" and inside:
        # The environment is clean inside: only these names get there.
        passed = " ".join(f'APPTAINERENV_{name}="${name}"' for name in inside)
        builder.prologue.append((f"export {passed}", ""))
    elif runtime in ("docker", "podman") and names:
        _say(builder, part, Where.LOST, f"{', '.join(names)}: a container gets only what env of the job states")
    if after:
        builder.prologue.append((after, ""))
    builder.prologue.append((kept, _comment(part)))
    _say(builder, part, Where.CLUSTER, "prologue")


def _with_slurms_own(builder: _PrologueBuilder, text: str) -> str:
    """Return a text of shell with the values of variables that Slurm would set, and that a job does not have."""
    header = builder.script.header
    given = {"SLURM_JOB_ACCOUNT": header.value("account"), "SLURM_JOB_QOS": header.value("qos")}
    given |= builder.script.request.slurm_variables
    return _OTHERS_OF_SLURM.sub(lambda match: given.get(match[1]) or match[0], text)


def _moves_into_command(builder: _PrologueBuilder, own: Collection[str], kept: str) -> bool:
    """Put the statement of an array into the command's shell; return whether the prologue can do without it."""
    is_array = all(one.array is not None for one in builder.script.assignments if one.name in own)
    if not is_array or builder.command[:2] != ["bash", "-c"]:
        return False
    builder.command[2] = f"{kept}\n{builder.command[2]}"
    builder.in_command |= names_in(kept)
    return not any(names_in(text).intersection(own) for text, _ in builder.prologue)


def _is_relative(part: Part) -> bool:
    """Return whether a statement reads or writes files below the working folder."""
    for one in part.commands:
        if (
            one.name in ("module", "ml", "conda", "mamba", "eval", "unset", "ulimit", "")
            or "substitution" in one.within
        ):
            continue
        if one.name in ("source", "."):
            if len(one.words) > 1 and re.match(r"[\w.](?!.*/activate$)", one.words[1].source):
                return True
            continue
        texts = [word.text for word in one.words[1:] if not word.text.startswith("-")]
        if any(re.match(r"[\w.]", text) and ("/" in text or one.name in ("mkdir", "touch", "rm")) for text in texts):
            return True
        if any(re.match(r"[\w.]", path.text) for _, path in one.writes_to):
            return True
    return False


def _comment(part: Part) -> str:
    return "\n".join([*part.above, *([part.beside] if part.beside else [])])


def _say(builder: _PrologueBuilder, part: Part, where: Where, what: str, *, hidden: bool = False) -> None:
    text = part.text.split("\n")[0]
    if hidden or any(is_secret_variable(one.name) or holds_secret(one.value.text) for one in part.assignments):
        text = f"{text[:24].partition('=')[0]}…"
    builder.account.note(where, part.line, text, what, part.last)


def _after(builder: _PrologueBuilder, part: Part) -> None:
    """Say what became of a statement behind the training."""
    commands = [one for one in part.commands if "substitution" not in one.within]
    if part.kind == "function_definition":
        _say(builder, part, Where.NOWHERE, "not called by any statement that was kept")
    elif _runs_again(builder, part):
        _say(builder, part, Where.TRAINJOB, _REQUEUED)
    elif _calls_training(builder, commands):
        _say(builder, part, Where.JOB, "command")
    elif all(one.name in ("wait", "exit", "return", "set", "kill", "trap") for one in commands) or (
        not commands and not any(one.exported for one in part.assignments)
    ):
        _say(builder, part, Where.TRAINJOB, "the job ends with the code of its ranks")
    elif all(_prints(one) or one.name == "set" for one in commands):
        _say(builder, part, Where.NOWHERE, "it only prints")
    else:
        _say(builder, part, Where.LOST, "a job ends with its training: submit it as a job of its own, with --after")
