"""Edits of directives."""

from __future__ import annotations

import re

from batchfiles.bash.expansion import text_of
from batchfiles.fixes.lines import (
    Edit,
    directive_added,
    directive_of,
    launch_at,
    replaced,
    stands_alone,
    with_before,
    with_line,
    with_srun_option,
)
from batchfiles.rules.codes import Finding
from batchfiles.rules.started import processes_of
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs.slurm_options import OPTIONS, refusal


def _option_name(script: BatchScript, one: Finding) -> str | None:
    directive = directive_of(script, one)
    if directive is None:
        return None
    line = script.lines[one.line - 1]
    if directive.spelled.startswith("-"):
        return with_line(script, one.line, line.replace(directive.spelled, f"-{directive.spelled}", 1))
    swapped = re.fullmatch(r"([\w-]+):([\w:-]+)", directive.spelled)
    if swapped is not None and swapped[1] in OPTIONS:
        right = line.replace(f"{directive.spelled}=", f"{swapped[1]}={swapped[2]}:", 1)
        return with_line(script, one.line, right)
    refused = refusal(directive.spelled)
    if refused is not None and refused[1]:
        value = directive.spelled.removeprefix(refused[1]) if directive.spelled.startswith(refused[1]) else ""
        meant = f"{refused[1]}={value}" if re.search(r"[A-Z0-9]", value) else refused[1]
        if directive.value is None and meant in OPTIONS and OPTIONS[meant].takes == "value":
            return None  # sbatch would refuse that, too
        return with_line(script, one.line, line.replace(f"--{directive.spelled}", f"--{meant}", 1))
    of_srun = directive.name in OPTIONS and OPTIONS[directive.name].of == "srun"
    if not of_srun or not stands_alone(script, one.line) or not any(launch.srun for launch in script.training):
        return None
    option = f"--{directive.name}" + (f"={directive.value}" if directive.value is not None else "")
    lines = [line for at, line in enumerate(script.lines, 1) if at != one.line]
    stated = {name for launch in script.training if launch.srun for name in launch.srun.options}
    if directive.name in stated:
        return "\n".join(lines)
    return "\n".join([_started_with(line, option) for line in lines])


def _started_with(line: str, option: str) -> str:
    if re.match(r"\s*#", line):
        return line
    return re.sub(r"(?<![\w$#./\"'-])srun (?!.*\bhostname\b)", f"srun {option} ", line, count=1)


_MINUTES = {"m": 1, "h": 60, "d": 1440}  # of a unit, by its first letter


def _value(script: BatchScript, one: Finding) -> str | None:
    line = script.lines[one.line - 1]
    stray = next((other.value or "" for other in script.header.strays if other.line == one.line), None)
    if stray is not None:
        listed = re.sub(r"([,=])[ \t]+(?=[\w\[])", r"\1", line)
        joined = re.sub(r"(--mem\S*[=\s]\s*[0-9]+) ([GM])B?\b", r"\1\2", listed)
        return with_line(script, one.line, joined)
    if (letter := one.facts.get("letter")) is not None:
        return with_line(script, one.line, re.sub(rf"(\s-{letter})=", r"\1 ", line, count=1))
    directive = directive_of(script, one)
    if directive is None:
        return None
    value = directive.written or directive.value or ""
    default = re.fullmatch(r"\$\{\w+:-([^}$]*)\}(\w*)", value)
    variable = re.fullmatch(r"\$\{?(\w+)\}?(\w*)", value)
    time = re.fullmatch(r"(?i)([0-9]+) ?([mhd])(?:ins?|inutes|rs?|ours?|ays)?", value)
    size = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])i?[bB]?[A-Za-z]*", value)
    new = None
    if default is not None:
        new = default[1] + default[2]
    elif variable is not None:
        set_here = {other.value for other in script.assignments if other.name == variable[1]}
        only = set_here.pop() if len(set_here) == 1 else None
        new = only.text + variable[2] if only is not None and only.known else None
    elif directive.name.startswith("time") and time is not None:
        minutes = int(time[1]) * _MINUTES[time[2].lower()]
        new = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    elif directive.name.startswith("mem") and size is not None:
        is_whole = "." not in size[1]
        new = size[1] + size[2] if is_whole else f"{int(float(size[1]) * 1024)}{'_KMG'['KMGT'.index(size[2])]}"
    elif directive.name == "gres" and (numbers := re.fullmatch(r"([\w:]+:)\[0-([0-9]{1,2})\]", value)) is not None:
        new = f"{numbers[1]}{int(numbers[2]) + 1}"
    elif directive.name == "gres" and value.isdigit():
        new = f"gpu:{value}"
    elif directive.name == "mail-type" and value.upper() in ("ENDED", "FINISH", "DONE", "ABORT", "FAILED"):
        new = "END" if value.upper() in ("ENDED", "FINISH", "DONE") else "FAIL"
    elif value.endswith((";", ",")):
        new = value[:-1]
    elif directive.name == "exclusive" or ((row := OPTIONS.get(directive.name)) is not None and row.takes == "flag"):
        return with_line(script, one.line, line.replace(f"={value}", "", 1))
    return None if new is None else with_line(script, one.line, line.replace(value, new, 1))


def _spelled(script: BatchScript, one: Finding) -> str | None:
    line, first = script.lines[one.line - 1], script.header.first_command
    wrong = re.match(r"\s*[#!$]*\s*#?\s*[A-Za-z]+(?=\s)", line)
    if wrong is None:
        return None
    if (
        first is None or one.line < first
    ):  # with all that are spelled like it: one that is right makes notes of the others
        spelled = re.compile(rf"{re.escape(wrong[0])}(?=\s+-)")
        lines = script.lines if first is None else script.lines[: first - 1]
        return "\n".join([*(spelled.sub("#SBATCH", each) for each in lines), *script.lines[len(lines) :]])
    lines = directive_added(script, line[wrong.end() :].removeprefix(" ")).split("\n")
    return "\n".join([*lines[: one.line], *lines[one.line + 1 :]])


def _in_name(script: BatchScript, one: Finding) -> str | None:
    line = script.lines[one.line - 1]
    if one.facts.get("directive") == "job-name" and (
        name := re.sub(r"\$\{?\w+\}?[-_.]?|[-_.]?%[a-zA-Z]", "", script.header.value("job-name") or "")
    ):
        return with_line(script, one.line, line.replace(script.header.value("job-name") or "", name, 1))
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
    return with_line(script, one.line, re.sub(r"\$\{?(\w+)\}?", lambda match: known.get(match[1], match[0]), line))


def _threads(script: BatchScript, one: Finding) -> str | None:
    launch = launch_at(script, one)
    if launch is None or launch.outermost.command.within or (launch.launcher is not None and not processes_of(launch)):
        return None
    if launch.launcher is None and (not launch.is_python or (launch.srun and launch.layer("mpirun"))):
        return None  # what it starts is not known, or several in each task
    each = processes_of(launch) if launch.launcher is not None else 1
    cpus = "SLURM_CPUS_PER_TASK"
    if script.header.value("cpus-per-task") is None:
        if (script.request.tasks_per_node or script.request.tasks or 1) > 1:
            return None  # a task has one CPU, or as many as its site gives
        cpus = "SLURM_CPUS_ON_NODE"
    threads = f"${cpus}" if each == 1 else f"$((({cpus} + {(each or 1) - 1}) / {each}))"
    return with_before(script, launch.outermost.line, f"export OMP_NUM_THREADS={threads}")


def _log_name(script: BatchScript, _one: Finding) -> str | None:
    name = "%A_%a" if script.header.value("array") else "%j"
    pattern = r"((?:--output|--out|-o|--error|--err|-e)[=\s]\s*\"?[^\s\"]*?)(\.\w+)?(\"?\s*(?:#.*)?)$"
    fixed = {
        each.line
        for each in script.header.directives
        if each.name in ("output", "error") and not re.search(r"(?i)%|^/dev/|^(?:none)?$", each.value or "")
    }
    return "\n".join(
        re.sub(pattern, rf"\1-{name}\2\3", line, count=1) if at in fixed else line
        for at, line in enumerate(script.lines, 1)
    )


def _swapped(script: BatchScript, _one: Finding) -> str | None:
    output, error = script.header.value("output"), script.header.value("error")
    if not output or not error:
        return None
    lines = list(script.lines)
    for name, old, new in (("output", output, error), ("error", error, output)):
        at = script.header.line(name) - 1
        lines[at] = lines[at].replace(old, new, 1)
    return "\n".join(lines)


def _off(script: BatchScript, one: Finding) -> str | None:
    """Switch a directive off whose value sbatch can't take: it is for sbatch's command line."""
    line = script.lines[one.line - 1]
    strays = [other.value or "" for other in script.header.strays if other.line == one.line]
    if strays and not re.search(r"[<>{}$]", line):
        return with_line(script, one.line, re.sub(rf"\s+{re.escape(strays[0])}\b.*$", "", line))
    if not strays and directive_of(script, one) is None:
        return None
    alone = sum(other.line == one.line for other in script.header.directives) <= 1
    text = with_line(script, one.line, f"#{line}") if alone and line.startswith("#SBATCH") else None
    count = re.search(r"(?:--nodes[= ]|-N ?)\$\{?(\w+)\b", line)
    # What waits for so many nodes waits for those that the job gets.
    if text is None or count is None:
        return text
    used = re.compile(rf"\$(?:{count[1]}\b|\{{{count[1]}\}})")
    return "\n".join([each if each.startswith("#") else used.sub("$SLURM_NNODES", each) for each in text.split("\n")])


def _from_home(script: BatchScript, one: Finding) -> str | None:
    """Write logs where sbatch is called, and change the folder in the shell, which knows ~ and variables."""
    directive = directive_of(script, one)
    if directive is None or directive.value is None:
        return None
    if directive.name in ("output", "error", "input") and "/" in directive.value:
        folder, _, name = directive.value.rpartition("/")
        if "%" not in name and (number := re.search(r"%[0-9]*[jA]", folder)) is not None:
            name = f"{number[0]}-{name}"
        line = script.lines[one.line - 1].replace(directive.value, name, 1)
        return None if re.search(r"[~$`]", name) else with_line(script, one.line, line)
    text, first = _off(script, one), script.header.first_command
    if text is None or directive.name != "chdir" or first is None:
        return text
    lines = text.split("\n")
    folder = directive.value if directive.value.startswith("~") else f'"{directive.value}"'
    return "\n".join([*lines[: first - 1], f"cd {folder}", *lines[first - 1 :]])


def _on_its_own_node(script: BatchScript, one: Finding, launch: LaunchedProgram) -> str | None:
    """Start each step of a loop on the node that it is for, and then give the job a task a node."""
    loops = [each for each in nodes_of(script.root, "for_statement") if each.start_point.row < launch.line]
    variable = loops[-1].child_by_field_name("variable") if loops else None
    if variable is None or not re.match(r"(?i)node|host", text_of(variable)):
        return None
    text = with_srun_option(script, f'--nodelist="${text_of(variable)}"', [launch])
    at, pattern = one.line - 1, r"(?:--ntasks[= ]|-n ?)[0-9]+"
    lines = text.split("\n") if text is not None else []
    return (
        "\n".join([*lines[:at], re.sub(pattern, "--ntasks-per-node=1", lines[at]), *lines[at + 1 :]]) if lines else None
    )


def _task_a_node(script: BatchScript, one: Finding) -> str | None:
    if not any(launch.srun or launch.launcher for launch in script.training):
        line = script.lines[script.header.line("nodes") - 1]  # one program, which has one node
        return with_line(script, script.header.line("nodes"), re.sub(r"((?:--nodes|-N)[= ]?)[0-9]+", r"\g<1>1", line))
    for launch in script.training:
        if launch.srun is not None and "loop" in launch.command.within and "nodelist" not in launch.srun.options:
            return _on_its_own_node(script, one, launch)
    pattern = r"(?:--ntasks[= ]|-n ?)[0-9]+"
    line = script.lines[one.line - 1]
    alone = re.sub(pattern, "", line).strip() == "#SBATCH"
    if script.header.value("ntasks-per-node") is not None:
        return with_line(script, one.line, None if alone else re.sub(rf"\s{pattern}", "", line))
    return with_line(script, one.line, re.sub(pattern, "--ntasks-per-node=1", line))


# More gigabytes than these are no likely wish.
_MOST_GIGABYTES = {"mem": 512, "mem-per-gpu": 256, "mem-per-cpu": 32}


def _gigabytes(script: BatchScript, one: Finding) -> str | None:
    if int(one.facts["megabytes"]) > _MOST_GIGABYTES[one.facts["directive"]]:
        return None
    return replaced(r"(--mem\S*[=\s]\s*[0-9]+)", r"\1G")(script, one)


def _any_node(script: BatchScript, one: Finding) -> str | None:
    """Switch a list of nodes off, and keep their number, unless a comment tells why it is these nodes."""
    named = script.header.value("nodelist") or ""
    like = re.compile(re.escape(re.split(r"[0-9\[]", named)[0]) + r"[0-9]")
    if any(like.search(text) and not re.match(r"#+\s*SBATCH", text) for _, text in script.comments):
        return None
    if script.header.value("nodes") is not None:
        return _off(script, one)
    if "[" in named or not stands_alone(script, one.line):
        return None
    return with_line(script, one.line, f"#SBATCH --nodes={named.count(',') + 1}")


SAFE: dict[str, Edit] = {
    "no-such-option": _option_name,
    "directive-refused": _value,
    "directive-ignored": _spelled,
    "tilde-in-output": _in_name,
    "output-overwritten": _log_name,
    "logs-swapped": _swapped,
    "requeue-truncates-log": lambda script, _one: directive_added(script, "--open-mode=append"),
    "mem-in-megabytes": _gigabytes,
}
UNSAFE: dict[str, Edit] = {
    "nodes-not-given": _task_a_node,
    "directive-refused": _off,
    "no-such-option": _off,
    "tilde-in-output": _from_home,
    "threads-unset": _threads,
    "nodelist-pinned": _any_node,
    "gpus-per-task-hides-peers": lambda script, _one: directive_added(script, "--gpu-bind=none"),
    "time-in-minutes": replaced(r"((?:--time|-t)[=\s]\s*[0-9]+:00)\b", r"\1:00"),
}
