"""Edits of what starts the ranks."""

from __future__ import annotations

import re
from dataclasses import replace

from batchfiles.bash.expansion import text_of
from batchfiles.fixes.lines import (
    SRUN,
    TORCHRUN,
    Edit,
    behind_srun,
    directive_named,
    first_changed,
    launch_at,
    replaced,
    spliced,
    stands_alone,
    with_line,
    with_srun_option,
)
from batchfiles.fixes.meeting import FIRST_HOST_IN_QUOTES, own_port
from batchfiles.rules.codes import Finding
from batchfiles.rules.started import ray_starts, starts_on_nodes
from batchfiles.slurm.launches import LaunchedProgram, number_of
from batchfiles.slurm.script import BatchScript, nodes_of

_RANK = re.compile(r"(?<!\\)\$(\{?SLURM_(?:PROCID|NODEID|LOCALID)\b)")


def _left_to_ranks(text: str) -> str:
    """Return a text of the batch shell in which only a rank's shell expands what differs between ranks."""
    return _RANK.sub(r"\\$\1", text)


def _nnodes(script: BatchScript, one: Finding) -> str | None:
    launch = launch_at(script, one)
    if launch is None or launch.launcher is None or "standalone" in launch.launcher.options:
        return None
    if launch.launcher.name == "accelerate":
        return _machines(script, one, launch)
    # Without a place to meet, each node would wait at its own.
    meets = {"rdzv_backend", "rdzv_endpoint", "master_addr"} & set(launch.launcher.options)
    place = "" if meets else f' --rdzv-backend=c10d --rdzv-endpoint="{FIRST_HOST_IN_QUOTES}:{own_port(script)}"'
    pattern, new = TORCHRUN, rf"\1 --nnodes=$SLURM_NNODES{place}"
    if "nnodes" in launch.launcher.options:
        pattern, new = r"(--nnodes[= ])\"?1\"?(?=\s|$)", r"\1$SLURM_NNODES"
    return first_changed(script, one, lambda line: re.sub(pattern, new, line, count=1))


def _machines(script: BatchScript, one: Finding, launch: LaunchedProgram) -> str | None:
    """Tell accelerate of the other nodes, if its number of processes already counts theirs."""
    stated, gpus, nodes = (
        number_of(launch.launcher, "num_processes"),
        script.request.gpus_per_node,
        script.request.nodes,
    )
    if not (stated and gpus and nodes and stated == gpus * nodes):
        return None
    options = "--num_machines=$SLURM_NNODES --rdzv_backend=c10d"
    names = {"main_process_ip": FIRST_HOST_IN_QUOTES, "main_process_port": own_port(script)}
    given = launch.launcher.options if launch.launcher else {}
    options += "".join(f" --{name}={value}" for name, value in names.items() if name not in given)
    return replaced(r"(\baccelerate launch)(?=\s)", rf"\1 {options}")(script, one)


def _with_srun_option(option: str) -> Edit:
    return lambda script, _one: with_srun_option(script, option, script.training)


def _cpus(script: BatchScript, one: Finding) -> str | None:
    is_unset = any(re.match(r"\s*unset\b.*\bSLURM_CPUS_PER_TASK\b", line) for line in script.lines)
    cpus = str(script.request.cpus_per_task) if is_unset else '"$SLURM_CPUS_PER_TASK"'
    here = [launch for launch in script.launches if launch.step.line == one.line]
    return with_srun_option(script, f"--cpus-per-task={cpus}", (*script.training, *ray_starts(script), *here))


def _for_each_rank(script: BatchScript, one: Finding) -> str | None:
    """Let the rank's own shell expand its number: escape it in bash -c "…", put around a program that has none."""
    line = script.lines[one.line - 1]
    exported = re.match(r"\s*export\s+(\w+)=\"?([\w/.:{}$-]*\$\{?SLURM_\w+\}?[\w/.-]*)\"?\s*$", line)
    if exported is not None:
        following = [each for each in script.training if each.line > one.line]
        launch = following[0] if len(following) == 1 and following[0].srun is not None else None  # others need it, too
        first = f"export {exported[1]}={_left_to_ranks(exported[2])}; "
        around = None if launch is None or launch.outer is not None else _in_own_shell(script, launch, first)
        lines = [] if around is None else around.split("\n")
        return "\n".join([*lines[: one.line - 1], *lines[one.line :]]) or None
    if not re.search(r"bash -\w*c \"", line):
        launch = launch_at(script, one)
        return None if launch is None or launch.outer is not None else _in_own_shell(script, launch, "")
    changed = first_changed(
        script, one, lambda line: line if line.lstrip().startswith("#") else _left_to_ranks(line), most_lines=30
    )
    return changed or _in_variable(script, line)


def _in_variable(script: BatchScript, line: str) -> str | None:
    """Return the text in which a variable of bash -c "$VARIABLE" leaves a rank's number to that shell."""
    for given in script.assignments:
        if re.search(rf"\$\{{?{given.name}\b", line) and _RANK.search(given.text) and '="' in given.text:
            lines, end = list(script.lines), given.line + given.text.count("\n")
            lines[given.line - 1 : end] = map(_left_to_ranks, lines[given.line - 1 : end])
            return "\n".join(lines)
    return None


def _with_values(script: BatchScript, one: Finding) -> str | None:
    """Let the batch shell expand Slurm's variable of the fault: put its word in single quotes into double ones.

    A rank's own number stays: the batch shell would give all ranks that of the first.
    """
    name = one.facts["word"]
    if _RANK.search(name):
        return None
    word = re.compile(rf"'([^'\"`$\\]*)(\\?){re.escape(name)}([^'\"`$\\]*)'")

    def in_double(match: re.Match[str]) -> str:
        is_of_shell = not match[2] and re.search(r"\s-\w*c\s+\Z", match.string[: match.start()])
        return match[0] if is_of_shell else f'"{match[1]}{name}{match[3]}"'

    return first_changed(script, one, lambda line: word.sub(in_double, line))


# "$@", "${arguments[@]}", or several of them one behind the other.
_ARGUMENTS = re.compile(r"\"\$(?:@|\{\w+\[@\]\})\"(?:[\s\\]+\"\$(?:@|\{\w+\[@\]\})\")*")


def _in_own_shell(script: BatchScript, launch: LaunchedProgram, first: str) -> str | None:
    """Return the text with bash -c around the program that srun starts."""
    behind = behind_srun(script, launch)
    if behind is None:
        return None
    node, at = behind[0], behind[1] - behind[0].start_byte
    command = text_of(node)
    given = [found[0] for found in _ARGUMENTS.finditer(command)]
    if "'" in command or not command.isascii() or len(given) > 1 or "$@" in command.replace('"$@"', ""):
        return None
    if any('"' in text_of(asked) for asked in nodes_of(node, "command_substitution")):
        return None  # behind a backslash, these quotes would be words of the command that is asked
    words = command[at:].replace(given[0], '"\\$@"') if given else command[at:]  # arguments of that shell
    inner = _left_to_ranks(words.replace('"', '\\"'))
    own = f" - {given[0]}" if given else ""
    return spliced(script, node.start_byte, node.end_byte, f'{command[:at]}bash -c "{first}exec {inner}"{own}')


def _gpus_of_node(script: BatchScript, one: Finding) -> str | None:
    if "directive" in one.facts:
        at = script.header.line(one.facts["directive"])
        return with_line(script, at, None) if stands_alone(script, at) else None
    pattern, every = r"(--nproc[-_]per[-_]node[= ])[^\s'\"]+", "$SLURM_GPUS_ON_NODE"
    if "accelerate" in (
        launch.launcher.name for launch in script.training if launch.launcher and launch.line == one.line
    ):
        pattern, every = r"(--num[-_]processes[= ])[^\s'\"]+", "$((SLURM_NNODES * SLURM_GPUS_ON_NODE))"
    changed = first_changed(script, one, lambda line: re.sub(pattern, rf"\1{every}", line, count=1))
    if changed is not None:
        return changed
    launch = launch_at(script, one)
    if (
        launch is not None
        and launch.launcher is not None
        and launch.launcher.name == "torchrun"
        and "nproc_per_node" not in launch.launcher.options
    ):
        new = re.sub(TORCHRUN, r"\1 --nproc_per_node=$SLURM_GPUS_ON_NODE", script.lines[one.line - 1], count=1)
        return with_line(script, one.line, new)
    per_node, gpus = script.request.tasks_per_node, script.request.gpus_per_node
    directive = directive_named(script, "ntasks-per-node")
    if launch is not None and launch.launcher is None and directive is not None and per_node and gpus:
        line = script.lines[directive.line - 1].replace(str(per_node), str(gpus), 1)
        if script.header.value("cpus-per-task") is None and per_node % gpus == 0:
            line += f"\n#SBATCH --cpus-per-task={per_node // gpus}"
        return with_line(script, directive.line, line)
    return None


def _once(script: BatchScript, one: Finding) -> str | None:
    if any(launch.line == one.line for launch in script.training if not launch.is_beside and launch.is_python):
        return None  # a function that starts the training as well
    return replaced(r"\bsrun\b", "srun --nodes=1 --ntasks=1")(script, one)


_CPUS_OF_TASK = re.compile(r"(?<=\s)(?:--cpus-per-task[= ]|-c ?)\"?\$\{?SLURM_CPUS_PER_TASK\}?\"?\s")


_NNODES = re.compile(r"(--(?:nnodes|num[-_]machines)[= ])\"?[0-9]+\"?(?=\s|$)")


def _one_launcher_a_node(script: BatchScript, one: Finding) -> str | None:
    """Start one task on each node; without --nodes, srun would heed the job's number of tasks."""
    launch = launch_at(script, one)
    if launch is not None and starts_on_nodes(launch):
        if launch.launcher_name == "accelerate":
            return replaced(r"(--use_deepspeed)(?=\s)", r"\1 --deepspeed_multinode_launcher=standard")(script, one)
        return replaced(r"\bsrun\b", "srun --nodes=1 --ntasks=1")(script, one)
    alone = script.request.nodes == 1  # then so is an mpirun that counts its ranks itself
    launching = [each for each in script.training if each.srun and (each.launcher or (alone and each.layer("mpirun")))]
    stated = [each for each in launching if each.srun is not None and "ntasks-per-node" in each.srun.options]
    lines, request = list(script.lines), script.request
    own = directive_named(script, "gpus-per-task")
    if own is not None and request.gpus_per_task and request.tasks_per_node:  # the one task has all of them
        gpus = f"--gpus-per-node={request.gpus_per_task * request.tasks_per_node}"
        lines[own.line - 1] = re.sub(r"--gpus-per-task[= ]\S+", gpus, lines[own.line - 1], count=1)
    option = "--nodes=$SLURM_NNODES" + ("" if stated else " --ntasks-per-node=1")
    if any(each.srun is not None and "nodes" in each.srun.options for each in launching):
        option = "--ntasks-per-node=1"
    for each in launching:
        number = re.compile(rf"({SRUN}[^|;&]*?\s)(?:--ntasks[= ]|-n ?)\S+\s")
        if each.srun is not None and "ntasks" in each.srun.options:
            lines[each.step.line - 1] = number.sub(r"\1", lines[each.step.line - 1], count=1)
        stated_nodes = number_of(each.launcher, "nnodes", "num_machines")
        if stated_nodes == request.tasks and stated_nodes != request.nodes:  # it counts launchers
            for at in range(each.line - 1, min(each.line + 11, len(lines))):
                lines[at] = _NNODES.sub(r"\1$SLURM_NNODES", lines[at])
    if request.cpus_per_task and request.tasks_per_node:  # the one task needs those of all
        option += f" --cpus-per-task=$(({request.tasks_per_node}*SLURM_CPUS_PER_TASK))"
        lines = [_CPUS_OF_TASK.sub("", line) if re.search(SRUN, line) else line for line in lines]
    return with_srun_option(replace(script, lines=lines), option, stated or launching)


SAFE: dict[str, Edit] = {
    "srun-may-fan-out": _once,
    "nnodes-missing": _nnodes,
    "no-kill-on-bad-exit": _with_srun_option("--kill-on-bad-exit=1"),
    "kill-on-bad-exit-0": replaced(r"(--kill-on-bad-exit|-K|SLURM_KILL_BAD_EXIT)(=?)0", r"\1\g<2>1"),
    "srun-loses-cpus": _cpus,
    "tasks-times-torchrun": _one_launcher_a_node,
    "rank-expanded-early": _for_each_rank,
    "variable-in-quotes": _with_values,
    "old-launcher": replaced(r"\S*python[\d.]* -m torch\.distributed\.launch --use[-_]env", "torchrun"),
}
UNSAFE: dict[str, Edit] = {
    "gpus-unused": _gpus_of_node,
    "more-processes-than-gpus": _gpus_of_node,
    "nnodes-range-on-one-node": replaced(r"--nnodes[= ]\S+", "--nnodes=1"),
}
