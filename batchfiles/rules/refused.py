"""What sbatch refuses: files that are none of its own, options that it does not have, values that it does not take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.values import number
from batchfiles.rules.codes import Finding, Severity
from batchfiles.slurm.directives import Directive
from batchfiles.slurm.request import GPU_NAMES
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs.slurm_options import OPTIONS, SHORT, refusal

_FOREIGN = {"#PBS": "PBS", "#BSUB": "LSF", "#$": "Grid Engine", "#COBALT": "Cobalt", "#FLUX:": "Flux", "#OAR": "OAR"}


def refused(script: BatchScript) -> Iterator[Finding]:
    """Find what makes sbatch refuse the file as it is."""
    if b"\r\n" in script.raw:
        line = next(number for number, text in enumerate(script.raw.split(b"\n"), 1) if text.endswith(b"\r"))
        yield Finding("crlf", line, "this line ends as on Windows")
    yield from _no_batch_file(script)
    first = script.raw[:200].split(b"\n")[0]
    if first.startswith(b"#!") or not script.is_batch_file:
        return
    later = next((at for at, line in enumerate(script.lines, 1) if line.startswith("#!/")), None)
    text = f"#! stands in line {later}" if later else f'the first line is "{script.lines[0][:40]}"'
    if first.startswith(b"\xef\xbb\xbf"):
        text = "a byte order mark stands before #!: editors don't show these three bytes"
    yield Finding("shebang-not-first", later or 1, text)


def _no_batch_file(script: BatchScript) -> Iterator[Finding]:
    if not script.raw.strip():
        yield Finding("not-a-batch-file", 1, "the file is empty")
    if script.is_batch_file or script.raw.startswith(b"#!/usr/bin/env python"):
        return
    for at, line in enumerate(script.lines, 1):
        other = next((name for mark, name in _FOREIGN.items() if re.match(rf"{re.escape(mark)}\s+-", line)), None)
        if other is not None:
            yield Finding("not-a-batch-file", at, f"{line.split()[0]}: the file is for {other}")
            return
    code = [line for line in script.lines if line.strip() and not line.startswith("#")]
    is_python = code and re.match(r"(?:import [\w.]+|from [\w.]+ import |def \w+\(|class \w+[:(]|\"\"\")", code[0])
    if is_python and not script.raw.startswith(b"#!"):
        yield Finding("not-a-batch-file", script.lines.index(code[0]) + 1, "the file is a program of Python")


def interpreter(script: BatchScript) -> Iterator[Finding]:
    """Find a first line that starts no shell, or another one than the file is written for."""
    first = script.lines[0]
    if not first.startswith("#!"):
        return
    if not first.isascii():
        odd = next(sign for sign in first if not sign.isascii())
        yield Finding("shebang-wrong", 1, f'"{odd}" in "{first[:40]}" is no sign of ASCII')
    elif re.match(r"#!\s*(?:usr/)?bin/|#!\s*/(?:user|usr)/(?:bash|env)\b|#!\s*/bin/(?:bsah|bahs|bashh)\b", first):
        yield Finding("shebang-wrong", 1, f'"{first[:40]}"')
    elif re.match(r"#!\s*/(?:usr/)?bin/(?:sh|dash)\b|#!/usr/bin/env sh\b", first):
        for at, line in enumerate(script.lines, 1):
            own = _OF_BASH.search(line) if not line.lstrip().startswith("#") else None
            if own is not None:
                yield Finding(
                    "bash-under-sh", at, f"{own[0].strip('&|; ')} is bash's, and line 1 says {first[2:].strip()}"
                )
                return


_OF_BASH = re.compile(
    r"(?:^|&&|\|\||;)\s*source\s|^\s*(?:\w+=\(|function\s+\w|declare\s|mapfile\s|readarray\s|shopt\s)|\[\[\s|<<<|"
    r"\bset\b.*pipefail|<\(|\$\{\w+\[|\$\{\w+//|\$\{\w+\^\^|\{[0-9]+\.\.[0-9]+\}|\(\(\w+\+\+\)\)|&>"
)
_SIGNALS = "HUP|INT|QUIT|KILL|TERM|USR1|USR2|CONT|ABRT|URG|STOP|TSTP|XCPU|TTIN|TTOU"
_MAIL = r"(?:NONE|BEGIN|END|FAIL|REQUEUE|ALL|INVALID_DEPEND|STAGE_OUT|TIME_LIMIT(?:_(?:50|80|90))?|ARRAY_TASKS)"
_FIGURE = r"[1-9][0-9]*"
_GRES = r"(?:[A-Za-z][\w/.-]*(?::(?=[\w.-]*[A-Za-z_])[\w.-]+)?(?::[0-9]+[KMGkmg]?)?(?:\(S:[\d,-]+\))?)"
_COUNT = r"(?:(?=[\w.-]*[A-Za-z_])[\w.-]+:)?[0-9]+(?:,(?:(?=[\w.-]*[A-Za-z_])[\w.-]+:)?[0-9]+)*"
_TIME = r"[0-9]+-|(?:[0-9]*-)?[0-9]+(?::[0-9]+){0,2}|(?i:infinite|unlimited)"
_MEMORY = r"[0-9]+(?:[KkMmGgTt][Bb]?)?"
# What sbatch takes, as far as its parser is strict: it was asked (Slurm 22.05).
TAKES = {
    **dict.fromkeys(
        ("ntasks", "cpus-per-task", "ntasks-per-node", "cpus-per-gpu", "ntasks-per-gpu", "mincpus"), _FIGURE
    ),
    **dict.fromkeys(("ntasks-per-socket", "ntasks-per-core", "threads-per-core", "cores-per-socket"), _FIGURE),
    **dict.fromkeys(("time", "time-min"), _TIME),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu", "tmp"), _MEMORY),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), _COUNT),
    "nodes": r"[0-9]+[kKmM]?(?:-[0-9]+[kKmM]?)?(?:,[\d,:-]+)?|[0-9,:-]+",
    "gres": rf"(?i:none)|(?:gres:)?{_GRES}(?:,{_GRES})*",
    "signal": rf"(?:[RB]{{1,2}}:)?(?:(?:SIG)?(?:{_SIGNALS})|[0-9]+)?(?:@[0-9]+)?",
    "exclusive": r"user|mcs|topo|exclusive",
    "mail-type": rf"(?i:(?:\w+,)*{_MAIL}(?:,\w+)*)",
}


def other_accelerators(script: BatchScript) -> Iterator[Finding]:
    """Find figures for each GPU in a job whose accelerators Slurm knows by another name (asked, Slurm 22.05)."""
    header = script.header
    names = {entry.partition(":")[0].lower() for entry in (header.value("gres") or "").split(",")}
    if "gpu" in names or any(header.value(name) is not None for name in ("gpus", "gpus-per-node", "gpus-per-task")):
        return
    others = names.intersection(GPU_NAMES)
    for name in ("cpus-per-gpu", "mem-per-gpu"):
        if others and header.value(name) is not None:
            text = f"--{name} counts GRES of the name gpu, and the job has {min(others)}"
            cure = f"Give --{'mem' if name.startswith('mem') else 'cpus-per-task'} instead."
            yield Finding("directive-refused", header.line(name), text, own_cure=cure)
            return


def refused_values(script: BatchScript) -> Iterator[Finding]:
    """Find values that sbatch does not take, and words that are neither options nor values."""
    parts = ("hetjob", "packjob")  # they begin the next part of a heterogeneous job
    strays = {one.line: one for one in reversed(script.header.strays) if one.value not in parts}
    for line, stray in strays.items():
        yield Finding("directive-refused", line, f'"{stray.value}" is neither an option nor the value of one')
    for one in script.header.directives:
        pattern, option = TAKES.get(one.name), OPTIONS.get(one.name)
        if one.line in strays or one.spelled.startswith("-"):
            continue
        value = one.written if one.written is not None else one.value
        if option is not None and option.takes == "flag" and value is not None and one.name != "wait":
            yield _refused(one, f"--{one.name} takes no value, and has {value}")
        elif value is None and pattern is not None and one.name != "exclusive":
            yield _refused(one, f"--{one.name} has no value")
        elif value == "" and one.name in ("output", "error"):
            why = "names no file: it is the folder then, which can't be written, and the job ends at once"
            yield _refused(one, f"--{one.name} {why}", cure=f"Leave out --{one.name}, or name a file.")
        elif value is not None and pattern is not None and not re.fullmatch(pattern, value.strip()):
            yield _refused(one, f"--{one.name}={value}")
    memory = {one.name: one for one in script.header.directives if one.name in ("mem", "mem-per-cpu", "mem-per-gpu")}
    if len(memory) > 1:
        text = f"{' and '.join(f'--{name}' for name in memory)} exclude each other"
        yield Finding("directive-refused", max(one.line for one in memory.values()), text, own_cure="Keep one of them.")


def _refused(one: Directive, text: str, lighter: Severity | None = None, cure: str = "", **facts: str) -> Finding:
    given = {"directive": one.name, **facts}
    return Finding("directive-refused", one.line, text, lighter, own_cure=cure, facts=given)


def tasks_and_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find numbers of tasks that contradict the number of nodes (asked, Slurm 22.05)."""
    header = script.header
    if script.second_part is not None:
        return
    nodes, tasks, most = (number(header.value(name)) for name in ("nodes", "ntasks", "ntasks-per-node"))
    if nodes and tasks and tasks < nodes:
        text = f"--nodes={nodes} and --ntasks={tasks}: Slurm gives {tasks} node{'s' * (tasks != 1)}"
        yield Finding("nodes-not-given", header.line("ntasks"), text)
    elif nodes and tasks and most and tasks > nodes * most:
        text = f"--ntasks={tasks} does not fit on --nodes={nodes} with --ntasks-per-node={most}"
        yield Finding("directive-refused", header.line("ntasks"), text, own_cure="Leave out --ntasks.")


_ONLY_NAMES = ("output", "error", "input", "job-name", "comment")


def equals_signs(script: BatchScript) -> Iterator[Finding]:
    """Find -N=2: with one dash, sbatch takes the = for part of the value."""
    for one in script.header.directives:
        line = script.lines[one.line - 1] if one.line else ""
        match = re.search(rf"\s-{re.escape(one.spelled)}(=\S+)", line) if len(one.spelled) == 1 else None
        if match is not None:
            lighter = Severity.WARNING if one.name in _ONLY_NAMES else None
            text = f'-{one.spelled}{match[1]} has the value "{match[1]}"'
            cure = f"-{one.spelled} {match[1][1:]}, or --{one.name}{match[1]}"
            yield _refused(one, text, lighter, cure, letter=one.spelled)


def unknown_options(script: BatchScript) -> Iterator[Finding]:
    """Find options that sbatch does not have."""
    for one in script.header.directives:
        refused = _refused_letter(one) if len(one.spelled) == 1 or one.spelled.startswith("-") else refusal(one.spelled)
        if refused is not None:
            text, better = refused
            text += f": did you mean --{better}?" if better else ""
            yield Finding("no-such-option", one.line, text, facts={"directive": one.name})


def _refused_letter(one: Directive) -> tuple[str, str] | None:
    if one.spelled.startswith("-") and len(one.spelled) > 1:
        return f"{one.spelled} has one dash: sbatch reads it as -{one.spelled[1]}", one.name
    return None if one.spelled in SHORT["sbatch"] else (f"sbatch has no option -{one.spelled}", "")
