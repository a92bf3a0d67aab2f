"""Edits after which ranks find each other: nodes, hosts and steps."""

from __future__ import annotations

import re

from batchfiles.fixes.lines import Edit, first_changed, launch_at, replaced, with_line, with_srun
from batchfiles.fixes.meeting import FIRST_HOST_IN_QUOTES, has_a_line_a_node, own_port
from batchfiles.rules.codes import Finding
from batchfiles.rules.meeting import PORT_NAMES
from batchfiles.slurm.launches import number_of
from batchfiles.slurm.script import BatchScript

_LAUNCHER = r"(\btorchrun\b|-m torch\.distributed\.(?:run|launch)\b|\baccelerate launch\b)(?=\s|$)"


def _node_rank(script: BatchScript, one: Finding) -> str | None:
    """State the number of the node; what follows lets a rank's own shell expand it."""
    if has_a_line_a_node(script):
        return None
    if "lacks" in one.facts:
        pattern, new = _LAUNCHER, rf"\1 {one.facts['lacks']}=$SLURM_NODEID"
    else:
        pattern, new = r"(--(?:node|machine)[-_]rank)[= ]\"?[0-9]+\"?(?=\s|$)", r"\1=$SLURM_NODEID"
    inside = script.lines[one.line - 1].count('"') % 2 == 0
    new = new if inside else new.replace("$SLURM", r"\\$SLURM")
    return first_changed(script, one, lambda line: re.sub(pattern, new, line, count=1))


def _nnodes(script: BatchScript, one: Finding) -> str | None:
    launch = launch_at(script, one)
    if launch is None or launch.srun is None:
        return None if launch is None or launch.launcher is not None else with_srun(script, one)
    if one.facts.get("told_of") == "ranks":
        return replaced(r"(--(?:distributed[-_])?world[-_]size[= ])[0-9]+", r"\1$SLURM_NTASKS")(script, one)
    if number_of(launch.srun, "ntasks") == 1:
        return replaced(
            r"(\bsrun\b.*?\s)(?:--ntasks[= ]|-n ?)1(?=\s)", r"\1--ntasks=$SLURM_NNODES --ntasks-per-node=1"
        )(script, one)
    if script.nodes_of(launch) != script.request.nodes:
        return None
    return replaced(r"(--(?:nnodes|num[-_]machines)[= ])\"?[0-9]+\"?(?=\s|$)", r"\1$SLURM_NNODES")(script, one)


def _same_for_all(script: BatchScript, one: Finding) -> str | None:
    """Let each node work out what all of them do."""
    line = script.lines[one.line - 1]
    if r"\$(" in line or '"$(' in line:
        return None
    if re.fullmatch(PORT_NAMES, one.facts.get("name", "")):
        new = re.sub(
            r"(\b\w*(?i:port)\w*)=(?:\$\(\([^)]*\)\)|\$\([^)]*\)|\S+)", rf"\1={own_port(script)}", line, count=1
        )
    else:
        new = re.sub(
            r"(?<=[= ])(?:\$\((?:/bin/)?hostname[^)]*\)|`hostname[^`]*`|\$\{?(?:HOSTNAME|SLURMD_NODENAME)\}?)",
            FIRST_HOST_IN_QUOTES,
            line,
            count=1,
        )
    return with_line(script, one.line, new)


def _own_hosts(script: BatchScript, one: Finding) -> str | None:
    listed = one.facts.get("option")
    if listed is None:
        host = re.compile(rf"(?<![\w.]){re.escape(one.facts['host'])}(?![\w.])")
        return first_changed(script, one, lambda line: host.sub(lambda _: FIRST_HOST_IN_QUOTES, line, count=1))

    def with_own(line: str) -> str:
        hosts = re.search(rf"(?<=\s){listed}[= ]([\w.:,-]+)", line)
        slots = set(re.findall(r":([0-9]+)(?:,|$)", hosts[1])) if hosts is not None else set()
        if hosts is None or len(slots) > 1:
            return line
        sed = f"sed 's/$/:{slots.pop()}/' | " if slots else ""
        own = f'$(scontrol show hostnames "$SLURM_JOB_NODELIST" | {sed}paste -sd,)'
        return line[: hosts.start(1)] + own + line[hosts.end(1) :]

    return first_changed(script, one, with_own)


_SRUN_A_NODE = (
    r"\bsrun(?: --?(?:N|n|c|K|l|u|nodes|ntasks|ntasks-per-node|cpus-per-task|kill-on-bad-exit|label|unbuffered)"
    r"(?:[= ]?[\d\"$]\S*)?)* "
)


def with_hostfile(script: BatchScript, one: Finding) -> str | None:
    """Tell deepspeed of the job's nodes, on which it starts by itself."""
    launch = launch_at(script, one)
    line = script.lines[one.line - 1]
    if launch is None or launch.launcher is None or launch.launcher.name != "deepspeed" or launch.command.within:
        return None
    stated = set(launch.launcher.options)
    if number_of(launch.launcher, "num_nodes") == script.request.nodes:
        stated.discard("num_nodes")
    if launch.srun is not None and not re.match(rf"\s*{_SRUN_A_NODE}\S*deepspeed\s", line):
        return None
    if stated & {"include", "exclude", "num_nodes", "hostfile", "H", "force_multi"} or launch.has_unknown_options:
        return None
    slots = script.request.gpus_per_node or "${SLURM_GPUS_ON_NODE:-1}"
    name = "hostfile.$SLURM_JOB_ID"
    made = f'scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/$/ slots={slots}/" > {name}'
    # Without srun, which would start it on each node.
    new = re.sub(rf"(?:{_SRUN_A_NODE})?(?<![\w/.-])((?:\S*/)?deepspeed)(?=\s)", rf"\1 --hostfile={name}", line, count=1)
    space = line[: len(line) - len(line.lstrip())]
    return None if new == line else with_line(script, one.line, f"{space}{made}\n{new}")


SAFE: dict[str, Edit] = {
    "count-with-type": replaced(r"(?<=[={(\s\"])\$?\{?(SLURM_GPUS(?:_PER_NODE)?)\}?(?=[\s*)\";]|$)", r"${\1##*:}"),
    "node-rank-same": _node_rank,
    "addr-differs": _same_for_all,
    "hosts-by-name": _own_hosts,
}
UNSAFE: dict[str, Edit] = {
    "nnodes-missing": with_hostfile,
    "nodes-disagree": _nnodes,
    "step-beyond-job": replaced(r"\s(?:--(?:nodes|gres|gpus-per-node)[= ]\S+|-N ?[0-9]+)(?=\s)", ""),
}
