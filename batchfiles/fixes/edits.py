"""One edit a code: a function that takes the script and a fault of it, and returns the new text, or None.

SAFE edits do what the author wrote, where bash or Slurm read something else; UNSAFE ones change what a file does.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from batchfiles.bash.expansion import text_of
from batchfiles.fixes.time_limit import in_background, to_batch_shell, with_recipe
from batchfiles.rules.codes import Finding
from batchfiles.rules.started import processes_of
from batchfiles.slurm.directives import Directive
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs.slurm_options import OPTIONS, refusal

Edit = Callable[[BatchScript, Finding], str | None]
_FIRST_HOST = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
_PORT = "$((20000 + SLURM_JOB_ID % 20000))"


def _text(lines: list[str]) -> str:
    return "\n".join(lines)


def _with_line(script: BatchScript, number: int, new: str | None) -> str | None:
    """Return the text with another line `number`, or without it; None if that changes nothing."""
    if not 0 < number <= len(script.lines) or script.lines[number - 1] == new:
        return None
    lines = list(script.lines)
    lines[number - 1 : number] = [] if new is None else new.split("\n")
    return _text(lines)


def _replaced(pattern: str, new: str, flags: int = 0) -> Edit:
    """Return an edit of the first match in the fault's line."""
    return lambda script, one: _with_line(
        script, one.line, re.sub(pattern, new, script.lines[min(one.line, len(script.lines)) - 1], count=1, flags=flags)
    )


def directive_added(script: BatchScript, *options: str) -> str:
    """Return the text with more directives, behind the last one."""
    at = max((one.line for one in script.header.directives), default=1)
    return _text([*script.lines[:at], *(f"#SBATCH {option}" for option in options), *script.lines[at:]])


def _directive(script: BatchScript, one: Finding) -> Directive | None:
    """Return the directive of the fault's line that it is about."""
    here = [other for other in script.header.directives if other.line == one.line]
    return next(
        (other for other in here if f"-{other.spelled}" in one.text or other.name in one.text),
        here[0] if len(here) == 1 else None,
    )


def _in_srun(script: BatchScript, one: Finding, option: str) -> str | None:
    """Return the text with an option for the srun that starts the fault's launch."""
    launch = next((each for each in script.training if each.line == one.line and each.srun is not None), None)
    word = None if launch is None or launch.srun is None else launch.srun.words[0]
    if launch is None or word is None:
        return None
    for number in [word.line, *range(one.line, max(0, one.line - 12), -1)]:
        if 0 < number <= len(script.lines) and re.search(r"(?<![\w$#./-])srun\b(?!=)", script.lines[number - 1]):
            line = script.lines[number - 1]
            if not line.lstrip().startswith("#"):
                return _with_line(script, number, re.sub(r"(?<![\w$#./-])srun\b", f"srun {option}", line, count=1))
    return None


# -- the file as a whole -----------------------------------------------------------------------------------------------


def _line_ends(script: BatchScript, _one: Finding) -> str:
    return script.raw.decode().replace("\r\n", "\n")


def _shebang_first(script: BatchScript, _one: Finding) -> str:
    text = script.raw.decode().removeprefix("\ufeff")
    if text.startswith("#!"):
        return text
    lines = text.split("\n")
    later = next((at for at, line in enumerate(lines) if line.startswith("#!/")), None)
    first = lines.pop(later) if later is not None else "#!/bin/bash"
    return _text([first, *lines])


def _shebang(script: BatchScript, _one: Finding) -> str | None:
    first = re.sub("[\u2010-\u2015\u2212]+", "-", script.lines[0])
    if not first.isascii() or not re.match(r"#!\s*/(?:usr/)?bin/(?:bash|sh|env)\b", first):
        first = "#!/bin/bash"
    return _with_line(script, 1, first)


# -- directives --------------------------------------------------------------------------------------------------------


def _option_name(script: BatchScript, one: Finding) -> str | None:
    directive = _directive(script, one)
    if directive is None:
        return None
    line = script.lines[one.line - 1]
    if directive.spelled.startswith("-"):
        return _with_line(script, one.line, line.replace(directive.spelled, f"-{directive.spelled}", 1))
    refused = refusal(directive.spelled)
    if refused is not None and refused[1]:
        return _with_line(script, one.line, line.replace(f"--{directive.spelled}", f"--{refused[1]}", 1))
    of_srun = directive.name in OPTIONS and OPTIONS[directive.name].of == "srun"
    alone = sum(other.line == one.line for other in script.header.directives) == 1
    if not of_srun or not alone or not any(launch.srun for launch in script.training):
        return None
    option = f"--{directive.name}" + (f"={directive.value}" if directive.value is not None else "")
    lines = [line for at, line in enumerate(script.lines, 1) if at != one.line]
    stated = {name for launch in script.training if launch.srun for name in launch.srun.options}
    if directive.name in stated:
        return _text(lines)
    return _text([_started_with(line, option) for line in lines])


def _started_with(line: str, option: str) -> str:
    if re.match(r"\s*#", line):
        return line
    return re.sub(r"(?<![\w$#./\"'-])srun (?!.*\bhostname\b)", f"srun {option} ", line, count=1)


_TIME_UNITS = {
    "m": 1,
    "min": 1,
    "mins": 1,
    "minutes": 1,
    "h": 60,
    "hr": 60,
    "hrs": 60,
    "hour": 60,
    "hours": 60,
    "d": 1440,
    "days": 1440,
}


def _value(script: BatchScript, one: Finding) -> str | None:
    line = script.lines[one.line - 1]
    stray = next((other.value or "" for other in script.header.strays if other.line == one.line), None)
    if stray is not None:
        listed = re.sub(r",[ \t]+(?=[\w\[])", ",", line)
        joined = re.sub(r"(--mem\S*[=\s]\s*[0-9]+) ([GM])B?\b", r"\1\2", listed)
        return _with_line(script, one.line, joined)
    directive = _directive(script, one)
    if directive is None:
        return None
    value = directive.written or directive.value or ""
    default = re.fullmatch(r"\$\{\w+:-([^}$]*)\}(\w*)", value)
    time = re.fullmatch(r"([0-9]+) ?([A-Za-z]+)", value)
    size = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])i?[bB]?[A-Za-z]*", value)
    new = None
    if default is not None:
        new = default[1] + default[2]
    elif directive.name.startswith("time") and time is not None and time[2].lower() in _TIME_UNITS:
        minutes = int(time[1]) * _TIME_UNITS[time[2].lower()]
        new = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    elif directive.name.startswith("mem") and size is not None:
        new = (
            f"{size[1]}{size[2]}"
            if "." not in size[1]
            else f"{int(float(size[1]) * 1024)}{'KMGT'['KMGT'.index(size[2]) - 1]}"
        )
    elif directive.name == "gres" and value.isdigit():
        new = f"gpu:{value}"
    elif directive.name == "exclusive":
        return _with_line(script, one.line, line.replace(f"={value}", "", 1))
    elif directive.name == "mail-type" and value.upper() in ("ENDED", "FINISH", "DONE", "ABORT", "FAILED"):
        new = "END" if value.upper() in ("ENDED", "FINISH", "DONE") else "FAIL"
    elif value.endswith((";", ",")):
        new = value[:-1]
    elif OPTIONS.get(directive.name, None) is not None and OPTIONS[directive.name].takes == "flag":
        return _with_line(script, one.line, line.replace(f"={value}", "", 1))
    return None if new is None else _with_line(script, one.line, line.replace(value, new, 1))


def _spelled(script: BatchScript, one: Finding) -> str | None:
    line = script.lines[one.line - 1]
    right = re.sub(r"^\s*[#!]*\s*#?\s*[A-Za-z]+(?=\s)", "#SBATCH", line)
    first = script.header.first_command
    if first is None or one.line < first:
        return _with_line(script, one.line, right)
    lines = [text for at, text in enumerate(script.lines, 1) if at != one.line]
    at = max((other.line for other in script.header.directives), default=1)
    return _text([*lines[:at], right, *lines[at:]])


def _in_name(script: BatchScript, one: Finding) -> str | None:
    line = script.lines[one.line - 1]
    if "--job-name" in one.text and (
        name := re.sub(r"\$\{?\w+\}?[-_.]?|[-_.]?%[a-zA-Z]", "", script.header.value("job-name") or "")
    ):
        return _with_line(script, one.line, line.replace(script.header.value("job-name") or "", name, 1))
    if not re.search(r"--(?:output|error|out|err)|-[oe]\b", line):
        return None
    known = {
        "USER": "%u",
        "SLURM_JOB_ID": "%j",
        "SLURM_JOBID": "%j",
        "SLURM_JOB_NAME": "%x",
        "SLURM_ARRAY_TASK_ID": "%a",
        "SLURM_ARRAY_JOB_ID": "%A",
    }
    return _with_line(script, one.line, re.sub(r"\$\{?(\w+)\}?", lambda match: known.get(match[1], match[0]), line))


def _log_folder(script: BatchScript, _one: Finding) -> str:
    """Write logs where sbatch is called: that folder exists."""
    lines = {one.line for one in script.header.directives if one.name in ("output", "error")}
    folder = re.compile(r"((?:--\w+|-[oe])[=\s]\s*\"?)(?![/~$])(?:[^\s\"/]+/)+(?=[^/\s\"]+)")
    return _text([folder.sub(r"\1", line) if at in lines else line for at, line in enumerate(script.lines, 1)])


def _threads(script: BatchScript, one: Finding) -> str | None:
    launch = _launch_at(script, one)
    if launch is None or launch.command.within or (launch.launcher is not None and not processes_of(launch)):
        return None
    each = processes_of(launch) if launch.launcher is not None else 1
    threads = "${SLURM_CPUS_PER_TASK:-1}" if each == 1 else f"$((${{SLURM_CPUS_PER_TASK:-{each}}} / {each}))"
    start = one.line - 1
    return _text([*script.lines[:start], f"export OMP_NUM_THREADS={threads}", *script.lines[start:]])


def _log_name(script: BatchScript, one: Finding) -> str | None:
    name = "%A_%a" if script.header.value("array") else "%j"
    return _replaced(
        r"((?:--output|--out|-o|--error|-e)[=\s]\s*\"?[^\s\"]*?)(\.\w+)?(\"?\s*(?:#.*)?)$", rf"\1-{name}\2\3"
    )(script, one)


def _swapped(script: BatchScript, _one: Finding) -> str | None:
    output, error = script.header.value("output"), script.header.value("error")
    if not output or not error:
        return None
    lines = list(script.lines)
    for name, old, new in (("output", output, error), ("error", error, output)):
        at = script.header.line(name) - 1
        lines[at] = lines[at].replace(old, new, 1)
    return _text(lines)


def _quoted_value(script: BatchScript, one: Finding) -> str | None:
    return _replaced(r"(--[\w-]+=)([^\s'\"]+#[^\s'\"]+)", r"\1'\2'")(script, one)


# -- launches ----------------------------------------------------------------------------------------------------------


def _launch_at(script: BatchScript, one: Finding) -> LaunchedProgram | None:
    return next((launch for launch in script.training if launch.line == one.line and not launch.source), None)


def _nnodes(script: BatchScript, one: Finding) -> str | None:
    launch = _launch_at(script, one)
    if launch is None or launch.launcher is None or "standalone" in launch.launcher.options:
        return None
    for number in range(one.line, min(one.line + 12, len(script.lines)) + 1):
        line = script.lines[number - 1]
        if "nnodes" in launch.launcher.options:
            new = re.sub(r"(--nnodes[= ])\"?1\"?(?=\s|$)", r"\1$SLURM_NNODES", line, count=1)
        else:
            new = re.sub(
                r"(\btorchrun\b|-m torch\.distributed\.(?:run|launch)\b)(?=\s|$)",
                r"\1 --nnodes=$SLURM_NNODES",
                line,
                count=1,
            )
        if new != line:
            return _with_line(script, number, new)
    return None


def _kill_on_bad_exit(script: BatchScript, one: Finding) -> str | None:
    return _in_srun(script, one, "--kill-on-bad-exit=1")


def _own_cpus(script: BatchScript, one: Finding) -> str | None:
    return _in_srun(script, one, '--cpus-per-task="$SLURM_CPUS_PER_TASK"')


def _one_launcher_a_node(script: BatchScript, one: Finding) -> str | None:
    return _in_srun(script, one, "--ntasks-per-node=1")


def _for_each_rank(script: BatchScript, one: Finding) -> str | None:
    """Let the rank's own shell expand its number: escape it in bash -c "…", put around a program that has none."""
    line = script.lines[one.line - 1]
    exported = re.match(r"\s*export\s+(\w+)=\"?\$\{?(SLURM_\w+)\}?\"?\s*$", line)
    if exported is not None:
        launch = next((each for each in script.training if each.srun is not None and each.line > one.line), None)
        first = f"export {exported[1]}=\\${exported[2]}; "
        around = None if launch is None or launch.outer is not None else _in_own_shell(script, launch, first)
        return (
            None if around is None else _text([text for at, text in enumerate(around.split("\n"), 1) if at != one.line])
        )
    if not re.search(r"bash -\w*c \"", line):
        launch = _launch_at(script, one)
        return None if launch is None or launch.outer is not None else _in_own_shell(script, launch, "")
    for number in range(one.line, min(one.line + 30, len(script.lines)) + 1):
        line = script.lines[number - 1]
        new = re.sub(r"(?<!\\)\$(\{?SLURM_(?:PROCID|NODEID|LOCALID)\b)", r"\\$\1", line)
        if new != line:
            return _with_line(script, number, new)
    return None


def _in_own_shell(script: BatchScript, launch: LaunchedProgram, first: str) -> str | None:
    """Return the text with bash -c around the program that srun starts."""
    node = next((each for each in nodes_of(script.root, "command") if each.start_point.row + 1 == launch.line), None)
    text = script.root.text or b""
    program = next((layer.words[0] for layer in launch.layers if layer.name not in ("srun",) and layer.words), None)
    if node is None or "'" in text_of(node):
        return None
    command = text_of(node)
    starts = [
        match.start()
        for match in re.finditer(r"(?<![\w/.=-])(?:\S*/)?(?:torchrun|python[\d.]*|accelerate|deepspeed)(?=\s)", command)
    ]
    at = (
        command.find(program.source)
        if program is not None and program.source in command and not starts
        else (starts or [-1])[0]
    )
    if at <= 0:
        return None
    inner = re.sub(r"(?<!\\)\$(\{?SLURM_(?:PROCID|NODEID|LOCALID)\b)", r"\\$\1", command[at:].replace('"', '\\"'))
    new = f'{command[:at]}bash -c "{first}exec {inner}"'
    return (text[: node.start_byte] + new.encode() + text[node.end_byte :]).decode()


def _gpus_of_node(script: BatchScript, one: Finding) -> str | None:
    for number in range(one.line, min(one.line + 12, len(script.lines)) + 1):
        line = script.lines[number - 1]
        new = re.sub(r"(--nproc[-_]per[-_]node[= ])\S+", r"\1$SLURM_GPUS_ON_NODE", line, count=1)
        if new != line:
            return _with_line(script, number, new)
    launch = _launch_at(script, one)
    if (
        launch is not None
        and launch.launcher is not None
        and launch.launcher.name == "torchrun"
        and "nproc_per_node" not in launch.launcher.options
    ):
        return _with_line(
            script,
            one.line,
            re.sub(
                r"\btorchrun\b", "torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE", script.lines[one.line - 1], count=1
            ),
        )
    per_node, gpus = script.request.tasks_per_node, script.request.gpus_per_node
    directive = next((each for each in script.header.directives if each.name == "ntasks-per-node"), None)
    if launch is not None and launch.launcher is None and directive is not None and per_node and gpus:
        line = script.lines[directive.line - 1].replace(str(per_node), str(gpus), 1)
        if script.header.value("cpus-per-task") is None and per_node % gpus == 0:
            line += f"\n#SBATCH --cpus-per-task={per_node // gpus}"
        return _with_line(script, directive.line, line)
    return None


# -- where ranks meet --------------------------------------------------------------------------------------------------


def _first_host(script: BatchScript, one: Finding) -> str | None:
    return _replaced(r"^(\s*(?:export\s+)?\w+)=.*$", rf"\1={_FIRST_HOST}")(script, one)


def _address(script: BatchScript, one: Finding) -> str | None:
    """Set the variable that is never set, before the line that needs it."""
    match = re.search(r"comes from \$(\w+), which is (never set|not exported)", one.text)
    if match is None:
        return None
    if match[2] == "not exported":
        return _exported(script, match[1])
    at = script.header.first_command or one.line
    start = min(at, one.line) - 1
    while start > 0 and script.lines[start - 1].endswith("\\"):
        start -= 1
    return _text([*script.lines[:start], f"export {match[1]}={_FIRST_HOST}", *script.lines[start:]])


def _exported(script: BatchScript, name: str) -> str | None:
    at = next((number for number, line in enumerate(script.lines, 1) if re.match(rf"\s*{name}=", line)), None)
    return None if at is None else _replaced(rf"^(\s*)(?={name}=)", r"\1export ")(script, Finding("", at, ""))


def _port(script: BatchScript, one: Finding) -> str | None:
    match = re.search(r"always ([0-9]+)$", one.text)
    if match is None:
        return None
    line = script.lines[one.line - 1]
    if re.match(r"\s*(?:export\s+)?\w*(?i:port)\w*=\S+(?:\s*#.*)?$|.*=\$\(\(", line):
        return _with_line(script, one.line, re.sub(r"^(\s*(?:export\s+)?\w+)=.*$", rf"\1={_PORT}", line))
    for number in [*range(one.line, min(one.line + 12, len(script.lines)) + 1), *range(1, one.line)]:
        line = script.lines[number - 1]
        if line.lstrip().startswith("#"):
            continue
        default = re.sub(rf"\$\{{\w+:-{match[1]}\}}", _PORT, line, count=1)
        new = default if default != line else re.sub(rf"(?<![\w.])\"?{match[1]}\"?(?![\w.])", _PORT, line, count=1)
        if new != line:
            return _with_line(script, number, new)
    return None


# -- the shell ---------------------------------------------------------------------------------------------------------


def _elements(script: BatchScript, one: Finding) -> str | None:
    return _replaced(r"=\(\s*\"(\$[^\"]*(?:\"[^\"]*\"[^\"]*)*)\"\s*\)", r"=(\1)")(script, one)


def _continued(script: BatchScript, one: Finding) -> str | None:
    return _replaced(r"\\[ \t]+(?:#.*)?$", r"\\")(script, one)


def _command(script: BatchScript, one: Finding) -> str | None:
    spaces = re.match(r"(\w+) =? ?…?", one.text) if "no spaces around =" in one.text else None
    if spaces is not None:
        return _replaced(rf"\b{spaces[1]}\s*=\s*(?=\S)", f"{spaces[1]}=")(script, one)
    near = re.fullmatch(r"(\S+): (\S+)\?", one.text)
    if near is not None:
        return _replaced(rf"\b{re.escape(near[1])}\b", near[2])(script, one)
    if one.text.startswith("-") and "begins a line" in one.text and one.line > 1:
        above = script.lines[one.line - 2]
        if above.strip() and not above.lstrip().startswith("#") and not above.rstrip().endswith("\\"):
            return _with_line(script, one.line - 1, f"{above.rstrip()} \\")
    return None


def _variable(script: BatchScript, one: Finding) -> str | None:
    for pattern in (r"\$(\w+) is never set, and (\w+) is set", r"Slurm sets no \$(\w+): \$(\w+)\?"):
        match = re.match(pattern, one.text)
        if match is not None:
            new = re.sub(rf"\$(\{{?){match[1]}\b", rf"$\1{match[2]}", _text(script.lines))
            return None if new == _text(script.lines) else new
    if "not exported" in one.text:
        name = re.match(r"\$(\w+)", one.text)
        return None if name is None else _exported(script, name[1])
    switched_off = re.match(r"\$(\w+) is never set$", one.text)
    if switched_off is not None:
        at = next(
            (at for at, line in enumerate(script.lines, 1) if re.match(rf"\s*#\s*{switched_off[1]}=", line)), None
        )
        return None if at is None else _with_line(script, at, re.sub(r"#\s*", "", script.lines[at - 1], count=1))
    match = re.match(r"Slurm sets \$(SLURM_GPUS(?:_PER_NODE)?) for", one.text)
    one_node = match is not None and (match[1] != "SLURM_GPUS" or not script.request.several_nodes)
    if match is not None and one_node:
        return re.sub(rf"\$(\{{?){match[1]}\b", r"$\1SLURM_GPUS_ON_NODE", _text(script.lines))
    return None


def _waited(script: BatchScript, one: Finding) -> str | None:
    """Wait again until the training has ended, and leave its code in $?."""
    match = re.match(r"^(\s*)wait\s+\"?(\$\{?\w+\}?|\$!)\"?\s*(?:#.*)?$", script.lines[one.line - 1])
    if match is None:
        return None
    space, process = match[1], match[2]
    kept = f"{space}training=$!\n" if process == "$!" else ""
    process = '"$training"' if kept else f'"{process}"'
    return _with_line(
        script,
        one.line,
        f"{kept}{space}while kill -0 {process} 2>/dev/null; do  # a trap ends wait, and not the training\n"
        f'{space}  wait {process} && code=0 || code=$?\n{space}done\n{space}(exit "${{code:-0}}")',
    )


def _set_e(script: BatchScript, _one: Finding) -> str | None:
    at = script.header.first_command
    if at is None:
        return None
    lines = list(script.lines[: at - 1])
    return _text([*lines, "set -eo pipefail", *script.lines[at - 1 :]])


def _exit_code(script: BatchScript, one: Finding) -> str | None:
    """Let the script end with the training's code: by set -e, or without what replaces the code."""
    launch = _launch_at(script, one)
    line = script.lines[one.line - 1]
    stopped = next(
        (at for at, text in enumerate(script.lines, 1) if re.match(r"\s*set \+(?:e|o pipefail)\s*$", text)), None
    )
    if stopped is not None and stopped < one.line:
        return _with_line(script, stopped, None)
    if re.search(r"\|\|\s*(?:true|:)\s*$", line):
        return _with_line(script, one.line, re.sub(r"\s*\|\|\s*(?:true|:)\s*$", "", line))
    waits = next(
        (at for at, text in enumerate(script.lines, 1) if at > one.line and re.fullmatch(r"\s*wait\s*", text)), None
    )
    if (
        waits is not None
        and launch is not None
        and launch.command.background
        and sum(each.command.background for each in script.training) == 1
    ):
        return _with_line(script, waits, script.lines[waits - 1].replace("wait", 'wait "$!"'))
    tests = next((node for node in nodes_of(script.root, "if_statement") if node.start_point.row + 1 == one.line), None)
    if tests is not None and re.match(r"\s*if\s+!", line):
        last = tests.end_point.row + 1
        return _with_line(
            script,
            last,
            re.sub(
                r"^(\s*)fi\b|;\s*fi\b",
                lambda m: f"{m[1]}  exit 1\n{m[1]}fi" if m[1] is not None else "; exit 1; fi",
                script.lines[last - 1],
                count=1,
            ),
        )
    if launch is None or "e" not in launch.command.options or "pipefail" not in launch.command.options:
        return _set_e(script, one)
    return None


def _own_hostfile(script: BatchScript, one: Finding) -> str | None:
    match = re.search(r"writes (\S+)$", one.text)
    if match is None:
        return None
    name = re.escape(match[1].removeprefix("./"))
    return re.sub(rf"(?<![\w.-]){name}(?![\w.-])", f"{match[1].removeprefix('./')}.$SLURM_JOB_ID", _text(script.lines))


def _only_if_set(script: BatchScript, one: Finding) -> str | None:
    return _replaced(r"(--?[A-Za-z][\w-]*) \$\{?(\w+)\}?(?=\s|$)", r'${\2:+\1 "$\2"}')(script, one)


def _behind_script(script: BatchScript, one: Finding) -> str | None:
    match = re.match(r"--(\S+) stands before (\S+)", one.text)
    line = script.lines[one.line - 1]
    if match is None or match[2] not in line:
        return None
    name = match[1].replace("_", "[-_]")
    moved = re.search(rf" (--{name}(?:=\S+| (?!-)(?!{re.escape(match[2])})\S+)?)(?= )", line)
    if moved is None:
        return None
    rest = line.replace(moved[0], "", 1)
    return _with_line(script, one.line, rest.replace(match[2], f"{match[2]} {moved[1]}", 1))


def _slots(script: BatchScript, one: Finding) -> str | None:
    match = re.match(r"([0-9]+) processes", one.text)
    stated = next((each for each in script.header.directives if each.name in ("ntasks", "ntasks-per-node")), None)
    if match is None:
        return None
    if stated is None:
        return directive_added(script, f"--ntasks={match[1]}")
    wanted, nodes = int(match[1][:9]), (script.request.nodes or 1) if stated.name == "ntasks-per-node" else 1
    line = script.lines[stated.line - 1]
    return _with_line(script, stated.line, line.replace(stated.value or "", str(-(-wanted // nodes)), 1))


def _first_host_in_words(script: BatchScript, one: Finding) -> str | None:
    line = script.lines[one.line - 1]
    if re.match(r"\s*(?:export\s+)?\w+=", line):
        return _first_host(script, one)
    if "without --rdzv-endpoint" in one.text:
        return _with_line(
            script,
            one.line,
            re.sub(r"(--rdzv[-_]backend[= ]c10d)", rf'\1 --rdzv-endpoint="{_FIRST_HOST}:{_PORT}"', line, count=1),
        )
    return _with_line(
        script,
        one.line,
        re.sub(r"(?<=[= \"/])(?:localhost|127\.[0-9.]+|0\.0\.0\.0)(?=[:\s\"]|$)", _FIRST_HOST, line, count=1),
    )


def _switched_off(script: BatchScript, one: Finding) -> str | None:
    line = script.lines[one.line - 1]
    return _with_line(script, one.line, f"#{line}" if line.startswith("#SBATCH") else f"# {line}")


def _with_srun(script: BatchScript, one: Finding) -> str | None:
    return _replaced(r"^(\s*)(?=\S)", r"\1srun --kill-on-bad-exit=1 ")(script, one)


def _on_each_node(script: BatchScript, one: Finding) -> str | None:
    return _replaced(r"^(\s*)(?=mkdir\b)", r"\1srun --ntasks-per-node=1 ")(script, one)


SAFE: dict[str, Edit] = {
    "crlf": _line_ends,
    "shebang-not-first": _shebang_first,
    "shebang-wrong": _shebang,
    "bash-under-sh": lambda script, _one: _with_line(script, 1, "#!/bin/bash"),
    "hostfile-name-shared": _own_hostfile,
    "empty-argument": _only_if_set,
    "srun-may-fan-out": _replaced(r"\bsrun\b", "srun --nodes=1 --ntasks=1"),
    "option-before-script": _behind_script,
    "no-such-option": _option_name,
    "directive-refused": _value,
    "directive-ignored": _spelled,
    "directive-cut": _quoted_value,
    "tilde-in-output": _in_name,
    "output-overwritten": _log_name,
    "logs-swapped": _swapped,
    "requeue-truncates-log": lambda script, _one: directive_added(script, "--open-mode=append"),
    "nnodes-missing": _nnodes,
    "no-kill-on-bad-exit": _kill_on_bad_exit,
    "kill-on-bad-exit-0": _replaced(r"(--kill-on-bad-exit|-K|SLURM_KILL_BAD_EXIT)(=?)0", r"\1\g<2>1"),
    "srun-loses-cpus": _own_cpus,
    "tasks-times-torchrun": _one_launcher_a_node,
    "rank-expanded-early": _for_each_rank,
    "addr-undefined": _address,
    "addr-localhost": _first_host_in_words,
    "addr-hostname-ip": _first_host,
    "addr-from-compressed-list": _first_host,
    "addr-batch-host": _first_host,
    "addr-guessed-from-name": _first_host,
    "port-fixed": _port,
    "rdzv-id-fixed": _replaced(r"(--rdzv[-_]id[= ])\S+", r"\1$SLURM_JOB_ID"),
    "rdzv-id-random": _replaced(r"(--rdzv[-_]id[= ])\S+", r"\1$SLURM_JOB_ID"),
    "array-quoted": _elements,
    "broken-continuation": _continued,
    "command-not-found": _command,
    "unset-variable": _variable,
    "wait-interrupted": _waited,
    "nothing-waits": lambda script, _one: _text([*script.lines, 'wait "$!"', ""]),
    "temp-dir-on-first-node-only": _on_each_node,
    "nccl-old-variable": _replaced(r"\bNCCL_(?=ASYNC|BLOCKING|DESYNC)", "TORCH_NCCL_"),
    "old-option": _replaced(r"--(cpu|mem)_bind\b", r"--\1-bind"),
    "old-launcher": _replaced(r"\S*python[\d.]* -m torch\.distributed\.launch(?: --use[-_]env)?", "torchrun"),
    "mem-in-megabytes": _replaced(r"(--mem\S*[=\s]\s*[0-9]+)", r"\1G"),
}
UNSAFE: dict[str, Edit] = {
    "exit-code-lost": _exit_code,
    "no-set-e": _set_e,
    "mpirun-beyond-tasks": _slots,
    "log-folder-must-exist": _log_folder,
    "threads-unset": _threads,
    "sets-visible-devices": _switched_off,
    "nccl-slow-path": _switched_off,
    "nodelist-pinned": _switched_off,
    "debug-left-on": _switched_off,
    "workdir-on-first-node-only": _replaced(
        r"^(\s*)(?=(?:cp|rsync|tar|unzip|git|mkdir|virtualenv|python\S* -m venv)\b)", r"\1srun --ntasks-per-node=1 "
    ),
    "ray-sleep-ready": _replaced(r"^(\s*)sleep \S+", r"\1until ray status >/dev/null 2>&1; do sleep 1; done"),
    "no-srun": _with_srun,
    "gpus-unused": _gpus_of_node,
    "more-processes-than-gpus": _gpus_of_node,
    "gpus-per-task-hides-peers": lambda script, _one: directive_added(script, "--gpu-bind=none"),
    "script-dir-is-spool": _replaced(r"\$\(dirname[^)]*?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?\"?\)", "$SLURM_SUBMIT_DIR"),
    "world-size-fixed": _replaced(r"(WORLD_SIZE)=\S+", r"\1=$SLURM_NTASKS"),
    "nnodes-range-on-one-node": _replaced(r"--nnodes[= ]\S+", "--nnodes=1"),
    "time-in-minutes": _replaced(r"((?:--time|-t)[=\s]\s*[0-9]+:00)\b", r"\1:00"),
    "cpu-bind-beyond": _replaced(r"--cpu-bind=\S+", "--cpu-bind=cores"),
    "time-limit-unhandled": with_recipe,
    "signal-kills-batch": with_recipe,
    "signal-never-arrives": to_batch_shell,
    "requeue-without-signal": with_recipe,
    "signal-without-requeue": with_recipe,
    "trap-deferred": in_background,
}
