"""Edits of the shell: the file as a whole, its commands and its ends."""

from __future__ import annotations

import re

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.fixes.lines import (
    Edit,
    directive_added,
    directive_named,
    exported,
    free_name,
    inserted,
    launch_at,
    line_like,
    names_are_free,
    renamed,
    replaced,
    spliced,
    with_before,
    with_line,
    with_srun,
)
from batchfiles.fixes.worlds import with_hostfile
from batchfiles.rules.codes import Finding
from batchfiles.rules.started import is_horovod_alone
from batchfiles.rules.written import beyond_nine_at
from batchfiles.slurm.launches import LaunchedProgram, number_of
from batchfiles.slurm.script import BatchScript, nodes_of


def _line_ends(script: BatchScript, _one: Finding) -> str:
    return script.raw.decode().replace("\r\n", "\n")


def _shebang_first(script: BatchScript, _one: Finding) -> str:
    text = script.raw.decode().removeprefix("\ufeff")
    if text.startswith("#!"):
        return text
    lines = text.split("\n")
    if re.match(r"\s*#?\s*!?\s*/(?:usr/)?bin/(?:env\s+)?(?:ba)?sh\b", lines[0]):
        return "\n".join(["#!" + lines[0].lstrip(" \t#!"), *lines[1:]])
    later = next((at for at, line in enumerate(lines) if line.startswith("#!/")), None)
    first = lines.pop(later) if later is not None else "#!/bin/bash"
    return "\n".join([first, *lines])


def _shebang(script: BatchScript, _one: Finding) -> str | None:
    first = re.sub("[\u2010-\u2015\u2212]+", "-", script.lines[0])
    if not first.isascii() or not re.match(r"#!\s*/(?:usr/)?bin/(?:bash|sh|env)\b", first):
        first = "#!/bin/bash"
    return with_line(script, 1, first)


def _command(script: BatchScript, one: Finding) -> str | None:
    facts = one.facts
    if "test" in facts:
        return replaced(r"(\[\[?)(?=[\"$]|-[a-z]\b)(.*?)\s*(\]\]?)(?=\s*(?:[;#]|&&|\|\||$))", r"\1 \2 \3")(script, one)
    if "variable" in facts:
        return replaced(rf"\b{facts['variable']}\s*=\s*(?=\S)", f"{facts['variable']}=")(script, one)
    if "meant" in facts:
        return replaced(rf"\b{re.escape(facts['name'])}\b", facts["meant"])(script, one)
    if "left" in facts:
        return with_line(script, one.line, None)
    return _joined(script, one.line - 1) if "option" in facts else None


def _joined(script: BatchScript, at: int) -> str | None:
    """Return the text in which line `at`, from 0, is part of the command above it, and comments stand above that."""
    end = at
    while end > 0 and script.lines[end - 1].lstrip().startswith("#"):
        end -= 1
    start = end - 1
    while start > 0 and script.lines[start - 1].endswith("\\"):
        start -= 1
    if end == 0 or not script.lines[end - 1].strip() or script.lines[end - 1].endswith("\\\\"):
        return None
    last = re.sub(r"\s*\\?\s*$", " \\\\", script.lines[end - 1], count=1)
    lines, comments = script.lines, script.lines[end:at]
    return "\n".join([*lines[:start], *comments, *lines[start : end - 1], last, *lines[at:]])


def _variable(script: BatchScript, one: Finding) -> str | None:
    facts = one.facts
    if "meant" in facts:
        return renamed(script, rf"\$(\{{?){facts['name']}\b", rf"$\1{facts['meant']}")
    if "digits" in facts:
        start, digits = next(beyond_nine_at(script))
        return spliced(script, start, start + 1 + len(digits), f"${{{digits}}}")
    if "kept_back" in facts:
        return exported(script, facts["kept_back"])
    if "never_set" in facts:
        at = line_like(script, rf"\s*#\s*{facts['never_set']}=")
        return with_line(script, at, re.sub(r"#\s*", "", script.lines[at - 1], count=1))
    name = facts.get("of_option", "")
    if not name.startswith("SLURM_GPUS") or (name == "SLURM_GPUS" and script.request.several_nodes):
        return None
    return renamed(script, rf"\$(\{{?){name}\b", r"$\1SLURM_GPUS_ON_NODE")


def _waited(script: BatchScript, one: Finding) -> str | None:
    """Wait again until the training has ended, and leave its code in $?."""
    code = free_name(script, "code", "ended")
    loops = (each for each in nodes_of(script.root, "while_statement") if each.start_point.row < one.line)
    if (loop := next((each for each in loops if one.line <= each.end_point.row + 1), None)) is not None:
        waits = re.compile(r"\bwait\s+\S*[\w}\"](?=\s*(?:;|$))", re.MULTILINE)
        again = waits.sub(rf"\g<0> && {code}=0 || {code}=$?", text_of(loop))
        return spliced(script, loop.start_byte, loop.end_byte, f'{again}\n(exit "${{{code}:-0}}")')
    match = re.match(r"^(\s*)wait\s+\"?(\$\{?\w+\}?|\$!)\"?\s*(?:#.*)?$", script.lines[one.line - 1])
    if match is None:
        return None
    space, process = match[1], match[2]
    name = free_name(script, "training", "started")
    kept, process = (f"{space}{name}=$!\n", f'"${name}"') if process == "$!" else ("", f'"{process}"')
    return with_line(
        script,
        one.line,
        f"{kept}{space}# A trap ends wait, and not the training.\n"
        f"{space}while wait {process} && {code}=0 || {code}=$?; kill -0 {process} 2>/dev/null; do :; done\n"
        f'{space}(exit "${{{code}:-0}}")',
    )


def _beside(script: BatchScript, one: Finding) -> str | None:
    """Let what never ends run beside the rest, and wait for nothing but the training."""
    line = script.lines[one.line - 1]
    if "waited_for" not in one.facts:
        alone = re.sub(r"\s--block\b", "", line)
        return with_line(script, one.line, f"{line} &" if alone == line and not line.endswith("\\") else alone)
    others = [launch for launch in script.training if str(launch.outermost.line) != one.facts["waited_for"]]
    has_ended = not any(launch.outermost.command.background for launch in others) or any(
        len(each.words) > 1 and each.line < one.line for each in script.named("wait")
    )
    return with_line(script, one.line, None) if others and has_ended and line.strip() == "wait" else None


# Asks for the code of a command that set -e would not let fail.
_ASKS_FOR_CODE = re.compile(r"^(?!\s*#)(?!.*(?:\|\||&&)).*\$\?")


def _set_e(script: BatchScript, _one: Finding) -> str | None:
    at = script.header.first_command
    if at is None or any(_ASKS_FOR_CODE.match(line) for line in script.lines):
        return None
    at = max(at, _behind_set_up(script))
    if any(_may_fail(one) for one in script.commands if one.line >= at and not one.source):
        return None
    while re.match(r"#(?!SBATCH|!)", script.lines[at - 2]):  # what is told of the line below it
        at -= 1
    return with_before(script, at, "set -eo pipefail")


# They answer by their status, or their failure is nothing new: of a sweep, the other trainings go on.
_ANSWERS = re.compile(
    r"e?grep|ps|pgrep|pidof|pkill|killall|kill|diff|cmp|expr|let|read|which|type|hash|ls|find|lsof|curl|wget|timeout|"
    r"scancel|squeue|sacct|rm|rmdir|ray|deactivate|git|nvidia-smi|fuser|umount|fusermount|ulimit"
)


_ONCE = re.compile(r"(?:mkdir(?!.*\s(?:-\w*p|--parents))|ln(?!.*\s(?:-\w*f|--force))|mv|git clone)\s")
_GUARDED = frozenset(("condition", "or", "and", "not", "called", "handler"))


def fails_again(command: ShellCommand) -> bool:
    """Return whether a command fails the second time, as when the job is requeued, and nothing catches that."""
    return bool(_ONCE.match(command.text)) and not _GUARDED & set(command.within) and not command.source


def _may_fail(command: ShellCommand) -> bool:
    """Return whether a command may fail in a file that is right."""
    if command.name in (":", "true") or _GUARDED & set(command.within):
        return False
    return "loop" in command.within or _ANSWERS.fullmatch(command.name) is not None or fails_again(command)


_SETS_UP = re.compile(r"(?:source|\.|module|ml|conda|mamba|micromamba|spack|eval)\s")


def _behind_set_up(script: BatchScript) -> int:
    """Return the line behind what sets the environment up: its files are written for shells that go on."""
    first = min((launch.outermost.place for launch in script.training), default=0)
    ends = (
        node.end_point.row + 2
        for node in script.root.children
        if node.end_point.row + 1 < first and _SETS_UP.match(text_of(node))
    )
    return max(ends, default=0)


def _set_e_inside(script: BatchScript, one: Finding, launch: LaunchedProgram) -> str | None:
    """Let the shell that starts a training end with its code, too."""
    line = script.lines[one.line - 1]
    at = line.find(" ".join(word.source for word in launch.command.words[:2]))
    before = line[:at].rstrip()
    if at < 0 or (before and before[-1] not in "\"';"):
        return None
    return with_line(
        script, one.line, f"{line[:at]}set -eo pipefail{'; ' if before else chr(10) + line[:at]}{line[at:]}"
    )


def _exit_code(script: BatchScript, one: Finding) -> str | None:
    """Let the script end with the training's code: by set -e, or without what replaces the code."""
    around = (each.outermost for each in script.training if each.outermost.line == one.line)
    launch = launch_at(script, one) or next(around, None)
    line = script.lines[one.line - 1]
    if "inside" in one.facts:
        return None if launch is None else _set_e_inside(script, one, launch)
    if 0 < (stopped := line_like(script, r"\s*set \+(?:e|o pipefail)\s*$")) < one.line:
        return with_line(script, stopped, None)
    if (strict := re.sub(r"\s*\|\|\s*(?:true|:)\s*$", "", line)) != line:
        return with_line(script, one.line, strict)
    waits = line_like(script, r"\s*wait\s*$", one.line)
    started = [each.outermost.command for each in script.training or script.work if each.outermost.command.background]
    if waits and started and not any("loop" in each.within for each in started):
        if len(started) == 1:
            return with_line(script, waits, script.lines[waits - 1].replace("wait", 'wait "$!"'))
        return _each_waited(script, waits, started)
    tests = next((node for node in nodes_of(script.root, "if_statement") if node.start_point.row + 1 == one.line), None)
    if tests is not None and re.match(r"\s*if\s+!", line):
        end = script.lines[tests.end_point.row]
        with_exit = re.sub(r"^(\s*)fi\b", r"\1  exit 1\n\1fi", end)
        with_exit = re.sub(r";\s*fi\b", "; exit 1; fi", end, count=1) if with_exit == end else with_exit
        return with_line(script, tests.end_point.row + 1, with_exit)
    if launch is None or "e" not in launch.command.options or "pipefail" not in launch.command.options:
        return _set_e(script, one) or (None if launch is None else _kept(script, launch))
    return None


def _kept(script: BatchScript, launch: LaunchedProgram) -> str | None:
    """Keep the code of a failure, and end with it after all that follows."""
    if '(exit "${code:-0}")' in script.lines and launch.command.background:  # the recipe for the time limit has kept it
        return "\n".join([*script.lines, ""]).rstrip("\n") + '\nexit "${code:-0}"\n'
    last = script.root.children[-1:] if script.root.children else []
    places = {each.line: _behind(script, each) for each in (*script.living, launch)}
    if (
        places[launch.line] is None
        or not names_are_free(script, "failed")
        or any(text_of(one).startswith("exit") for one in last)
    ):
        return None
    kept = inserted(script, {each: " || failed=$?" for each in places.values() if each is not None})
    return None if kept is None else kept.rstrip("\n") + _WITH_FAILURE


_WITH_FAILURE = '\nexit "${failed:-$?}"\n'


def _behind(script: BatchScript, launch: LaunchedProgram) -> int | None:
    """Return the byte behind the statement that is a launch; None unless the batch shell runs it as it stands."""
    command = launch.command
    if {*command.within} - {"loop"} or command.background or launch.source or command.piped_into:
        return None
    nodes = nodes_of(script.root, "command", "redirected_statement")
    node = next((each for each in nodes if each.start_point.row + 1 == launch.line), None)
    if node is None or b"<<" in (node.text or b""):
        return None
    behind = script.raw[node.end_byte :].decode(errors="replace").split("\n")
    code = (line for line in behind[1:] if line.strip() and not line.lstrip().startswith("#"))
    reads = "$?" in behind[0] + next(code, "")  # that of the assignment
    return None if reads else node.end_byte


def _each_waited(script: BatchScript, waits: int, trainings: list[ShellCommand]) -> str | None:
    """Return the text in which a bare wait waits for each training by its number; None if others are started, too."""
    rows = sorted(one.line for one in trainings)
    others = [one for one in script.commands if one.background and not one.inside("called") and one.line not in rows]
    lines = list(script.lines)
    space = lines[waits - 1][: lines[waits - 1].index("wait")]
    lines[waits - 1] = f'{space}for each in "${{started[@]}}"; do wait "$each" || failed=$?; done'
    if others or not names_are_free(script, "started", "each", "failed"):
        return None
    for row in reversed(rows):
        ends = [node.end_point.row for node in script.root.children if node.start_point.row + 1 == row]
        if rows.count(row) > 1 or not ends or not lines[ends[0]].rstrip().endswith("&"):
            return None
        lines.insert(ends[0] + 1, 'started+=("$!")')
    if any(one.piped_into and "pipefail" not in one.options for one in trainings):
        lines.insert(rows[0] - 1, "set -o pipefail")
    return "\n".join(lines).rstrip("\n") + _WITH_FAILURE


def _own_hostfile(script: BatchScript, one: Finding) -> str | None:
    below = (each for each in script.launches if each.line > one.line and each.launcher is None)
    if any(each.is_python or each.name.endswith((".sh", ".py")) for each in below):
        return None  # a program that reads or changes it may know its name, too
    name = one.facts["path"].removeprefix("./")
    return renamed(script, rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", r"\g<0>.$SLURM_JOB_ID")


def _behind_script(script: BatchScript, one: Finding) -> str | None:
    if "option" not in one.facts:
        return replaced(r"(?<=[\s\"'])python[\d.]*\s+(?=\S+\.py\b)", "")(script, one)
    launch = launch_at(script, one)
    if launch is None:
        return None
    name, first = one.facts["option"].replace("_", "[-_]"), re.escape(launch.program[0].source)
    option, between = rf"--{name}(?:=\S+| (?!-)(?!{first})\S+)?", rf"(?: .*)? {first}(?![^\s\"'])"
    return replaced(rf" ({option})(?= )({between})", r"\2 \1")(script, one)


def _slots(script: BatchScript, one: Finding) -> str | None:
    stated, wanted = directive_named(script, "ntasks", "ntasks-per-node"), int(one.facts["wanted"])
    if stated is None:
        return directive_added(script, f"--ntasks={wanted}")
    nodes = (script.request.nodes or 1) if stated.name == "ntasks-per-node" else 1
    line = script.lines[stated.line - 1]
    return with_line(script, stated.line, line.replace(stated.value or "", str(-(-wanted // nodes)), 1))


def _unset(script: BatchScript, one: Finding) -> str | None:
    """Take a setting out: into a comment where it is a line of its own, and without the rest of a command's line."""
    name = one.facts["name"]
    setting = re.compile(rf"(?<![^\s;\"'(]){name}=(?:\"[^\"]*\"|'[^']*'|[^\s;\"']*)[ \t]*")
    only = rf"{setting.pattern}(?:;|&&|\|\|)"
    alone = re.compile(rf"\b(?:export|readonly|declare(?: -\w+)*) +(?={only}){setting.pattern}")
    for number in range(one.line, len(script.lines) + 1):
        line = script.lines[number - 1]
        rest = setting.sub("", alone.sub(": ", line, count=1), count=1)
        if rest != line:
            without_comment = rest.partition(" #")[0].strip("# \t")
            is_whole = re.fullmatch(r"(?:export|readonly|declare\s+-\w+)?;?\s*\\?", without_comment)
            in_text = any(
                node.start_point.row < number - 1 <= node.end_point.row
                for node in nodes_of(script.root, "string", "raw_string", "heredoc_redirect")
            )
            return with_line(script, number, rest if not is_whole else None if in_text or "\\" in rest else f"# {line}")
        if number >= one.line and not line.endswith("\\"):
            return None
    return None


def _unless_explained(script: BatchScript, one: Finding) -> str | None:
    """Take a setting out, if no comment beside it may say why it is there, and none speaks of debugging."""
    beside = any(
        one.line - 1 <= number <= one.line and not text.startswith("#SBATCH") for number, text in script.comments
    )
    is_told = one.code == "debug-left-on" and any("debug" in text.lower() for _, text in script.comments)
    return None if beside or is_told else _unset(script, one)


def _new_name(script: BatchScript, one: Finding) -> str:
    """Rename an old variable of NCCL's, also where the file reads it."""
    return renamed(script, rf"\b{one.facts['name']}\b", r"TORCH_\g<0>")


def _unless_not_asked(script: BatchScript, one: Finding) -> str | None:
    """Leave the choice of GPUs to Slurm, if it makes one, and the file starts nothing else that may have the others."""
    main = {launch.outermost.line for launch in script.training if not launch.is_beside}
    others = any(each.background and each.line not in main and not each.source for each in script.commands)
    return _unset(script, one) if script.asks_for_gpus and not others else None


def _with_own_hosts(script: BatchScript, one: Finding) -> str | None:
    launch, gpus, nodes = launch_at(script, one), script.request.gpus_per_node, script.request.nodes
    ranks = number_of(launch.layer("mpirun") if launch else None, "np", "n")
    if not (gpus and nodes and ranks == gpus * nodes):
        return None
    hosts = f"$(scontrol show hostnames $SLURM_JOB_NODELIST | sed 's/$/:{gpus}/' | paste -sd,)"
    return replaced(r"(\bhorovodrun)(?=\s)", rf"\1 -H {hosts}")(script, one)


# What only a program needs whose ranks meet.
_MEETS = re.compile(
    r"(?i)master_?(?:addr|port)|world_size|rank\b|nccl_|gloo_|num[-_]nodes|nnodes|strategy|ddp|fsdp|distributed|coordinator|"
    r"init[-_]method|dist[-_]url|horovod|spawn|deepspeed"
)


_IS_ONE_RANK = re.compile(r"(?i)\b(?:\w+[-_])?rank[= ][0-9]")


def _on_one_node(script: BatchScript) -> str | None:
    """Ask for the one node that is used: each of several copies of a program would do the same.

    Of a job with several tasks a node, only its author knows whether its program is one that srun starts (Lightning's).
    """
    directive = directive_named(script, "nodes")
    if directive is None or directive.value is None or (script.request.tasks_per_node or 1) > 1:
        return None
    line = script.lines[directive.line - 1]
    return with_line(script, directive.line, re.sub(r"((?:--nodes|-N)[= ]?)\S+", r"\g<1>1", line, count=1))


def _with_srun(script: BatchScript, one: Finding) -> str | None:
    launch = launch_at(script, one)
    launcher = None if launch is None else launch.launcher
    if sum(not each.command.dead for each in script.training) > 1 and any(
        each.command.background or _IS_ONE_RANK.search(each.command.text) for each in script.training
    ):
        return None  # the file starts each rank itself
    if launcher is None and re.search(r"(?i)\$\{?\w*node", script.lines[one.line - 1]):
        return None  # a program that is told of the nodes starts on them by itself
    if launcher is not None and launcher.name == "accelerate" and "num_machines" in launcher.options:
        return with_srun(script, one, "--nodes=$SLURM_NNODES --ntasks-per-node=1 --kill-on-bad-exit=1")
    if launcher is not None and launcher.name != "torchrun":
        return with_hostfile(script, one)  # behind srun, each node would start a world of its own
    if launch is not None and is_horovod_alone(launch):
        return _with_own_hosts(script, one)
    if launcher is None and not _MEETS.search(script.code):
        return _on_one_node(script)
    return with_srun(script, one)


def _ended_above(script: BatchScript, one: Finding) -> str | None:
    above = script.lines[one.line - 2]
    return with_line(script, one.line - 1, re.sub(r"\s*\\\s*$", "", above))


def _container_with_gpus(script: BatchScript, one: Finding) -> str | None:
    is_amd = any(re.search(r"(?i)rocm|mi[0-9]{3}|miopen|\bhip_", line) for line in script.lines)
    nvidia, apptainer = r"\b(?:docker|podman) run\b", r"\b(?:apptainer|singularity) (?:exec|run)\b"
    return replaced(apptainer, rf"\g<0> {'--rocm' if is_amd else '--nv'}")(script, one) or (
        None if is_amd else replaced(nvidia, r"\g<0> --gpus=all")(script, one)
    )


# The file as it was given to sbatch.
_SUBMITTED = """$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=\\([^ ]*\\).*/\\1/p')"""


def _own_folder(script: BatchScript, one: Finding) -> str | None:
    own = r"\"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?\"?"
    pattern = rf"\$\(dirname[^()]*?(?:\"?\$\((?:realpath|readlink)[^()]*?{own}\)\"?|{own})\)"
    pattern += r"|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}"
    return replaced(pattern, lambda _match: f'$(dirname "{_SUBMITTED}")')(script, one)


_UNTIL_RAY_ANSWERS = "for _ in {1..300}; do if ray status >/dev/null 2>&1; then break; fi; sleep 1; done"
_OTHER_PATH = re.compile(r"\bactivate\b|\bsource\b|(?:^|[;&\s])\. |\bmodule\b|\bPATH=")


def _until_ray_answers(script: BatchScript, one: Finding) -> str | None:
    """Ask Ray itself, if the batch shell starts it: another shell, or a container, may have it elsewhere."""
    started = [each for each in script.launches if each.program and each.program[0].text == "ray"]
    above = [each.command.text for each in started if each.line < one.line and " start" in each.command.text]
    if above and ("--head" not in above[-1] or "password" in above[-1]):
        return None  # it answers as soon as its head does, and to those who know its password
    if any(
        each.layer("container") or (each.outer is not None and _OTHER_PATH.search(each.outer.command.text))
        for each in started
    ):
        return None
    return replaced(r"^(\s*)sleep \S+", rf"\1{_UNTIL_RAY_ANSWERS}")(script, one)


_ON_EACH_NODE = r"\1srun --nodes=$SLURM_NNODES --ntasks-per-node=1 "


SAFE: dict[str, Edit] = {
    "argument-swallowed": _ended_above,
    "crlf": _line_ends,
    "shebang-not-first": _shebang_first,
    "shebang-wrong": _shebang,
    "bash-under-sh": lambda script, _one: with_line(
        script, 1, re.sub(r"\b(?:da)?sh\b", "bash", script.lines[0], count=1)
    ),
    "hostfile-name-shared": _own_hostfile,
    "option-before-script": _behind_script,
    "array-quoted": replaced(r"=\(\s*\"(\$[^\"]*(?:\"[^\"]*\"[^\"]*)*)\"\s*\)", r"=(\1)"),
    "broken-continuation": replaced(r"\\[ \t]+(?:#.*)?$", r"\\"),
    "command-not-found": _command,
    "unset-variable": _variable,
    "wait-interrupted": _waited,
    "nothing-waits": lambda script, _one: "\n".join([*script.lines, 'wait "$!"', ""]),
    "temp-dir-on-first-node-only": replaced(r"^(\s*)(?=mkdir\b)", _ON_EACH_NODE),
}
UNSAFE: dict[str, Edit] = {
    "sbatch-of-a-program": replaced(r"\bsbatch(?=\s)", "srun"),
    "nccl-old-variable": _new_name,
    "exit-code-lost": _exit_code,
    "no-set-e": _set_e,
    "mpirun-beyond-tasks": _slots,
    "sets-visible-devices": _unless_not_asked,
    "device-beyond-gpus": _unset,
    "container-without-gpus": _container_with_gpus,
    "conda-without-hook": replaced(
        r"^(\s*)(?=(?:conda|mamba|micromamba) activate\b)", r'\1eval "$(conda shell.bash hook)"\n\1'
    ),
    "nccl-slow-path": _unless_explained,
    "debug-left-on": _unless_explained,
    "workdir-on-first-node-only": replaced(
        r"^(\s*)(?=(?:cp|rsync|tar|unzip|git|mkdir|virtualenv|python\S* -m venv)\b)", _ON_EACH_NODE
    ),
    "ray-sleep-ready": _until_ray_answers,
    "no-srun": _with_srun,
    "script-dir-is-spool": _own_folder,
    "job-never-ends": _beside,
}
