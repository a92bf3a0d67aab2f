"""The recipe for the time limit: a trap that passes the signal on, a repeated wait, and a requeue at the end."""

from __future__ import annotations

import re
from typing import NamedTuple

from batchfiles.bash.expansion import text_of
from batchfiles.bash.values import HOLE, number
from batchfiles.fixes.lines import (
    behind_directives,
    behind_srun,
    directive_named,
    inserted,
    names_are_free,
    replaced,
    stands_alone,
)
from batchfiles.fixes.shell import fails_again
from batchfiles.rules.codes import Finding
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs import launchers
from trainjob.contract.programs.helpers import SHELLS

_WAITED = (
    "training=$!",
    "# A trap ends wait, and not the training.",
    'while wait "$training" && code=0 || code=$?; kill -0 "$training" 2>/dev/null; do :; done',
    '(exit "${code:-0}")',
)
# A step's task that starts the command behind it, and passes USR1 on. With control groups Slurm signals the task alone,
# else all processes of the step; launchers and shells would die. The ranks are those programs of Python that have set a
# handler: bit 9 of SigCgt, as USR1 is signal 10 wherever Slurm runs. Without /proc, or in a container without bash, the
# command starts all the same. A wait that a signal has interrupted is repeated.
_PASSES_ON = """\
# A launcher or a shell would end of USR1: this starts it, and passes USR1 (signal 10) on to those ranks that handle it.
# shellcheck disable=SC2016  # each task expands it
pass_on_usr1='
trap "" USR1  # ignored by what is started, until it sets a handler of its own
"$@" & started=$!
tell() {
  for pid in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
    case $(readlink "/proc/$pid/exe") in
      *python*) grep -q "SigCgt.*[2367abef]..$" "/proc/$pid/status" && kill -USR1 "$pid" && continue ;;
    esac
    tell "$pid"
  done
}
trap "again=yes; tell $$" USR1
trap "again=yes; kill $started" TERM
again=yes
while [ "$again" ]; do
  again=""
  wait "$started" && code=0 || code=$?
done
exit "$code"
'"""
_NAMES = ("code", "training", "asked", "pass_on_usr1")
_RESUMES = re.compile(
    r"(?im)^[^#\n]*(?<![a-z])(?<!max[_-])(?:resum|restart|restor)(?![\w-]*+[= ]\"?(?:false|none|null|0)\b)"
)  # most programs that save do not begin from it
_BEFORE_S = 120
_DIRECTIVES = {"signal": f"--signal=B:USR1@{_BEFORE_S}", "requeue": "--requeue", "open-mode": "--open-mode=append"}


def with_recipe(script: BatchScript, _one: Finding) -> str | None:
    """Return the text with the recipe around its training; None unless that is one command of the batch shell itself.

    The training saves when it gets USR1, and ends. scontrol requeue starts the job again, an element of an array alone,
    20 times at most, and once where nothing in the file speaks of resuming.
    """
    launch = _only_one(script)
    rows = None if launch is None else _rows(script, launch)
    if launch is None or rows is None or any(one.name == "trap" for one in script.commands):
        return None
    signal = script.header.value("signal") or f"USR1@{_BEFORE_S}"
    if _is_left_to_author(script, launch, signal):
        return None
    is_array = script.header.value("array") is not None or b"SLURM_ARRAY_" in script.raw
    own = _ELEMENT if is_array else '"$SLURM_JOB_ID"'
    way = _way_to_ranks(script, launch, own)
    if way is None:
        return None
    first, last = rows
    places = {} if way.deaf is None else {way.deaf: 'sh -c "$pass_on_usr1" - '}
    for node in nodes_of(script.root, "file_redirect"):  # what is started again goes on in its own logs
        sign = next(child for child in node.children if child.type != "file_descriptor")
        if sign.type in (">", "&>") and first <= sign.start_point.row + 1 <= last and "/dev/" not in text_of(node):
            places[sign.end_byte] = ">"
    text = inserted(script, places)
    if text is None:
        return None
    lines = text.split("\n")
    if lines[last - 1].rstrip().endswith("&"):
        return None
    restarts = 20 if _RESUMES.search(text) else 1  # what does not resume would begin anew for ever
    lines[first - 1 : last] = _around(way.trap, lines[first - 1 : last], restarts, own)
    if way.deaf is not None:
        lines.insert(first - 1, _PASSES_ON)
    at, added = behind_directives(script) - 1, []
    before = re.search(r"@[0-9]+$", signal)
    for name, usual in _DIRECTIVES.items():
        option = usual.replace(f"@{_BEFORE_S}", before[0]) if before is not None else usual
        stated = directive_named(script, name)
        if stated is None:
            added.append(f"#SBATCH {option}")
        elif script.header.value(name) != option.partition("=")[2] and stands_alone(script, stated.line):
            comment = re.search(r"\s+#.*", lines[stated.line - 1])
            lines[stated.line - 1] = f"#SBATCH {option}{comment[0] if comment else ''}"
    return "\n".join([*lines[:at], *added, *lines[at:]])


_SIGNALS = re.compile(r"\b(?:SIG)?(USR[12])\b|\bSIG(TERM|INT|HUP|CONT|ALRM|XCPU)\b")
_STARTS_OVER = re.compile(
    r"(?i)(?:(?<!no[-_])overwrite(?![-_]?cache)|no[-_]resume)(?:[-_]\w+)?+(?!\"?[= ]\"?(?:false|0)\b)"
)


_ERASES = re.compile(r"rm (?:-\S+ )*(?:-\w*[rR]|--recursive)(?!.*(?i:tmp|temp|cache))")


def _is_left_to_author(script: BatchScript, launch: LaunchedProgram, signal: str) -> bool:
    """Return whether the training may save for another signal, or a second start may fail, or erase the first."""
    told = "\n".join([*(text for _, text in script.comments), script.source_of(launch)])
    heard = {one[1] or one[2] for one in _SIGNALS.finditer(told)}
    if (heard and "USR1" not in heard) or not re.search(r"(?i)(?:^|:|SIG)(?:USR1|10)(?:@|$)", signal):
        return True
    if script.limit_s and script.limit_s < 5 * (number(signal.partition("@")[2]) or 60):
        return True  # little of a short job would be left: Slurm may send the signal a minute early
    before = [one for one in script.commands if one.line < launch.line]
    fails = "e" in launch.command.options and any(map(fails_again, before))
    return (
        any(_ERASES.match(one.text) for one in before)
        or fails
        or directive_named(script, "no-requeue") is not None
        or _STARTS_OVER.search(script.code) is not None
    )


_DAEMONS = ("docker", "podman", "nerdctl")
# An sh that is dash drops them.
_SENDS_FUNCTIONS = re.compile(r"(?m)^\s*(?:export -f|declare -(?:\w*f\w*x|\w*x\w*f))")


class _Way(NamedTuple):
    """How USR1 gets to the ranks: what the trap runs, and the byte where a parent begins that has to be told."""

    trap: str
    deaf: int | None


def _way_to_ranks(script: BatchScript, launch: LaunchedProgram, own: str) -> _Way | None:
    """Return how USR1 gets to the ranks of the job `own`; None if none gets it, or several programs do in turn."""
    mpi, srun, step = launch.layer("mpirun"), launch.srun, launch.step
    held = (one.layer("container") for one in script.launches if one.outermost is launch)
    is_eval = script.lines[launch.line - 1].lstrip().startswith("eval ")
    elsewhere = is_eval or (launch.launcher_name == "deepspeed" and _by_ssh(script, launch))
    # An agent starts the next run where one ends.
    in_turn = launch.name == "wandb" and not re.search(r"--count[= ]1(?![0-9])", launch.command.text)
    if in_turn or (mpi is not None and mpi.program == "horovodrun") or (srun is None and elsewhere):
        return None
    # Slurm sends a signal to all steps of a job.
    others = (one.outermost for one in script.launches if one.srun is not None and one.command.background)
    if any(one and one.program in _DAEMONS for one in held) or (
        srun is not None and any(one is not launch for one in others)
    ):
        return None
    # Of a launcher that the batch shell itself starts, the children are the ranks.
    is_told = mpi or (launch.launcher_name not in ("", "deepspeed") and not _has_parent(launch))
    is_shell = step.name in SHELLS or step.name.endswith((".sh", ".bash"))
    unknown = not step.is_python and (step.layer("container") is not None or HOLE in step.name)
    is_deaf = launch.launcher is not None or is_shell or unknown or (srun is not None and _has_parent(step))
    deaf = None
    if is_deaf and (srun is not None or not is_told):
        deaf = None if _SENDS_FUNCTIONS.search(script.code) else _start_of_deaf(script, launch)
        if deaf is None:
            return None
    if srun is not None:
        return _Way(f"scancel --signal=USR1 {own}", deaf)  # to all steps, and not to the batch shell
    passes_it_on = deaf is not None or (mpi is not None and launch.layers[0].name == "mpirun")
    if not passes_it_on and (launch.launcher is not None or _has_parent(launch) or launch.name == "wandb"):
        return _Way('pkill -USR1 -P "$training"', None)  # the launcher, or the parent, would end without saving
    return _Way('kill -USR1 "$training"', deaf)


def _start_of_deaf(script: BatchScript, launch: LaunchedProgram) -> int | None:
    """Return the byte of the file where the deaf parent begins: behind srun's options, or behind `time` and `exec`."""
    if launch.srun is not None:
        behind = behind_srun(script, launch)
        return None if behind is None else behind[1]
    for node in nodes_of(script.root, "command"):
        if node.start_point.row + 1 == launch.line:
            words = (child for child in node.named_children if child.type != "variable_assignment")
            first = next((word for word in words if text_of(word) not in ("time", "exec", "command")), None)
            return None if first is None or re.match(r"-|\w+=", text_of(first)) else first.start_byte
    return None


def _by_ssh(script: BatchScript, launch: LaunchedProgram) -> bool:
    own = launch.launcher.options if launch.launcher is not None else {}
    return script.request.several_nodes or not {"hostfile", "H", "num_nodes"}.isdisjoint(own)


def in_background(script: BatchScript, _one: Finding) -> str | None:
    """Return the text with the training in the background, where its trap runs at once; None as of with_recipe."""
    launch = _only_one(script)
    rows = None if launch is None else _rows(script, launch, "function")
    if rows is None:
        return None
    first, last = rows
    lines = list(script.lines)
    lines[first - 1 : last] = [*lines[first - 1 : last - 1], _in_background(lines[last - 1]), *_WAITED]
    return "\n".join(lines)


def to_batch_shell(script: BatchScript, one: Finding) -> str | None:
    """Return the text with --signal=B:… for a trap that the file has; with the recipe, if it has none."""
    stated = script.header.value("signal")
    if stated is None or not any(command.name == "trap" for command in script.commands):
        return with_recipe(script, one)
    if any(command.name == "exit" and "handler" in command.within for command in script.commands):
        return None  # it would end the job early, and the training without hearing of it
    at = script.header.line("signal") - 1
    lines = list(script.lines)
    lines[at] = lines[at].replace(stated, f"B:{stated}", 1)
    return "\n".join(lines)


def to_steps(script: BatchScript, one: Finding) -> str | None:
    """Return the text with the recipe; with --signal=… for the steps alone, if the author's own signal has to stay."""
    in_steps = script.living and all(launch.srun is not None for launch in script.living)
    return with_recipe(script, one) or (replaced(r"(--signal[= ])B:", r"\1")(script, one) if in_steps else None)


def _only_one(script: BatchScript) -> LaunchedProgram | None:
    """Return the training, if it is the only one, and the file itself has no variable of the recipe's names."""
    if not names_are_free(script, *_NAMES):
        return None
    every = script.living or script.work
    living = [launch for launch in every if not launch.is_beside] or every
    outermost = {(launch.outermost.source, launch.outermost.line): launch.outermost for launch in living}
    return next(iter(outermost.values())) if len(outermost) == 1 else None


def _rows(script: BatchScript, launch: LaunchedProgram, *around: str) -> tuple[int, int] | None:
    """Return the first and the last line of the statement that is the launch, if only `around` is around it."""
    within = [each for each in launch.command.within if each not in around]
    if launch.source or within or launch.command.conditions or launch.command.background:
        return None
    bodies = [body for body in nodes_of(script.root, "compound_statement") if around]
    for node in (child for body in (script.root, *bodies) for child in body.children):
        if node.start_point.row + 1 == launch.line and node.type in ("command", "redirected_statement"):
            return (
                (node.start_point.row + 1, node.end_point.row + 1)
                if not list(nodes_of(node, "heredoc_redirect"))
                else None
            )
    return None


_BECOMES_ITS_PROGRAM = ("env", "exec", "nohup", "numactl", "taskset", "nice", "ionice", "stdbuf", "setsid", "command")


def _has_parent(launch: LaunchedProgram) -> bool:
    """Return whether a program in front stays the training's parent, as `time` and `uv run` do."""
    own = ("python", "old-launcher", "srun", "mpirun", *_BECOMES_ITS_PROGRAM, *launchers.NAMES)
    in_step = ("container",) if launch.srun is not None else ()  # it passes signals on
    return any(layer.name not in (*own, *in_step) for layer in launch.layers)


def _in_background(last: str) -> str:
    """Return the last line of a command with & behind it, and before a comment, without a semicolon or a backslash."""
    return re.sub(r"[\s;]*\\?\s*(\s#[^'\"]*)?$", r" &\1", last, count=1)


# The job's id of one element is that of the whole array, and would mean all of them.
_ELEMENT = '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"'


def _around(passes_on: str, command: list[str], restarts: int, own: str) -> list[str]:
    return [
        'asked=""',
        f"trap 'asked=yes; {passes_on}' USR1",
        *command[:-1],
        _in_background(command[-1]),
        *_WAITED[:-1],
        f'[ -z "$asked" ] || [ "${{SLURM_RESTART_COUNT:-0}}" -ge {restarts} ] || scontrol requeue {own}',
        _WAITED[-1],
    ]
