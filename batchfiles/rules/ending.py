"""Faults of how a job ends: at its time limit, on a signal, with which exit code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import dropwhile

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.bash.shell import parse
from batchfiles.bash.status import ZERO, ScriptEnd, ends
from batchfiles.bash.values import HOLE
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.rules.written import commands as not_commands
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, nodes_of
from batchfiles.slurm.servers import never_ends as runs_on
from trainjob.contract.programs.helpers import PRINTERS, helps
from trainjob.contract.programs.launchers import ignores_requests, may_hang_when_asked

_NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT", "1": "HUP", "18": "CONT"}


def time_limit(script: BatchScript) -> Iterator[Finding]:
    """Find jobs that their time limit kills."""
    header = script.header
    if not script.is_batch_file:
        return
    if _resubmits(script) or _is_chain(script):
        return
    if header.value("signal") is not None:
        if not _traps(script) and any(one.code == "signal-never-arrives" for one in signals(script)):
            return  # its cure is for both, as there is no trap yet
        text = "--signal, and nothing in the file starts the job again"
        yield Finding("signal-without-requeue", header.line("signal"), text)
    elif header.value("requeue") is None:
        yield Finding("time-limit-unhandled", header.line("time"), "no --signal, no --requeue, no resubmission")


def _is_chain(script: BatchScript) -> bool:
    """Return whether the elements of an array continue one training: one after another, and not as a sweep's cases."""
    one_by_one = re.search(r"%1\s*$", script.header.value("array") or "") is not None
    is_sweep = "SLURM_ARRAY_TASK_ID" in script.code and not re.search(
        r"(?i)resum|restart|continu|ckpt|checkp", script.code
    )
    return one_by_one and not is_sweep


_OUTSIDE_OF_JOBS = re.compile(r"-z\s+\"?\$\{?SLURM_JOB_?ID\b")  # a file that submits itself when it is called


def _resubmits(script: BatchScript) -> bool:
    for command in script.commands:
        given = command.words[1].text if len(command.words) > 1 else ""
        if any(_OUTSIDE_OF_JOBS.search(one.text) and one.branch == 0 for one in command.conditions):
            continue
        if command.name == "sbatch" or (command.name == "scontrol" and given == "requeue"):
            return True
        if command.name == "trap" and re.search(r"\bsbatch\b|scontrol\s+requeue", given):  # trap 'sbatch $0' USR1
            return True
    return False


def _signal(text: str) -> str:
    name = text.upper().removeprefix("SIG")
    return _NUMBERS.get(name, name)


def _traps(script: BatchScript) -> dict[str, ShellCommand]:
    """Return the batch shell's traps by signal, those that only forget one left out."""
    traps: dict[str, ShellCommand] = {}
    for command in script.named("trap"):
        handler, *names = [word.text for word in command.words[1:]] or [""]
        if handler not in ("-", "") and not command.inside("called"):
            traps |= {_signal(name): command for name in names}
    return traps


def unsaved(script: BatchScript) -> Iterator[Finding]:
    """Find trainings that the job asks to save, and that don't, or may hang then."""
    for launch in script.training if script.header.value("signal") is not None else ():
        source, name = script.source_of(launch), " ".join(word.text for word in launch.program[:1])
        if launch.launcher is not None and ignores_requests(launch.launcher.name, source):
            yield found("lightning-under-torchrun", launch.command, f"{name} uses Lightning, and torchrun starts it")
        ranks = (script.nodes_of(launch) or 1) * (script.tasks_per_node_of(launch) or 1)
        words = [word.text for word in launch.program[1:]]
        if launch.launcher is None and launch.srun is not None and ranks > 1 and may_hang_when_asked(source, words):
            yield found("lightning-ranks-may-hang", launch.command, f"{name} uses Lightning, with {ranks} ranks")


_SETS_UP = re.compile(r"(?i)env|setup|module|conda|activate|config|vars|path")


def signals(script: BatchScript) -> Iterator[Finding]:
    """Find signals that reach no process, or the wrong one."""
    stated = (script.header.value("signal") or "").strip()
    asked = re.fullmatch(r"(?:([BR]+):)?(\w+)(?:@\d+)?", stated)
    traps, handled = _traps(script), _signal(asked[2]) if asked else ""
    if asked is None or "B" not in (asked[1] or ""):
        yield from _to_steps(script, traps, handled)
    elif handled in traps:
        yield from _deferred(script, traps, handled)
    elif not any(command.text.startswith("exec ") for command in script.commands):
        # A file that is not here may set the trap, unless it only sets up programs.
        elsewhere = [name for name in script.shell.not_here if not _SETS_UP.search(name)]
        text = f"--signal={stated}, and no trap for {handled}"
        text += f", unless {elsewhere[0]}, which is not here, sets one" if elsewhere else ""
        lighter = Severity.WARNING if elsewhere else None
        yield Finding("signal-kills-batch", script.header.line("signal"), text, lighter)


def _to_steps(script: BatchScript, traps: dict[str, ShellCommand], handled: str) -> Iterator[Finding]:
    """Find traps of the batch shell for what Slurm sends to steps, if at all."""
    line = script.header.line("signal")
    if handled and script.training and not any(launch.srun for launch in script.training):
        trap = f"the trap for {handled} (line {traps[handled].line}) is in the batch shell" if handled in traps else ""
        yield Finding("signal-never-arrives", line, trap or "nothing is started with srun")
        return
    user = next((name for name in ("USR1", "USR2", handled) if name in traps), None)
    if user is not None:
        yield from _deferred(script, traps, user)


def _deferred(script: BatchScript, traps: dict[str, ShellCommand], name: str) -> Iterator[Finding]:
    started = script.training or [one for one in script.work if not one.command.within]
    last = next((launch for launch in reversed(started) if not launch.command.dead), None)
    beside = [launch for launch in started if launch.outermost.command.background]
    if last is None or last in beside or (beside and any(script.named("wait"))):  # else they are helpers of the last
        return
    command = last.outermost.command
    if not command.text.startswith("exec "):
        text = f"the trap for {name} (line {traps[name].line}) waits for this command"
        yield found("trap-deferred", command, text)


def exit_code(script: BatchScript) -> Iterator[Finding]:
    """Find exit codes of the training that don't become the job's."""
    elsewhere = [one for one in script.launches if _starts_elsewhere(one)]
    is_waited = any(script.named("wait"))
    others = [one for one in script.work if not one.command.within and (is_waited or not one.command.background)]
    work = script.living or script.training or elsewhere or others
    main = [launch for launch in work if not launch.is_beside] or work
    main = [launch for launch in main if not launch.outermost.command.background] or main
    unknown = {one.line for one in not_commands(script)}  # which end with 127
    for launch in main[:_MOST_FOLLOWED]:
        piped = next((one for one in _called(launch) if one.piped_into and "pipefail" not in one.options), None)
        if piped is not None:
            yield found("exit-code-lost", piped, f"| {piped.piped_into}, without pipefail")
            return
        if (lost := _lost_inside(launch)) is not None:
            yield found("exit-code-lost", launch, lost, facts={"inside": "shell"})
            return
        command = launch.outermost.command
        line, word = (command.place, "") if command.source else (command.line, command.words[0].source)
        endings = ends(script.root, [(line, word)])
        if endings and all(one.status == ZERO and one.line not in unknown for one in endings):
            yield found("exit-code-lost", command, _lost_by(min(endings, key=lambda one: (one.line, one.text)), line))
            return


_MOST_FOLLOWED = 40  # through all of the file, each


def _starts_elsewhere(launch: LaunchedProgram) -> bool:
    """Return whether a loop starts a program or a script on one host after the other."""
    command = launch.command
    starts = (launch.srun is not None or launch.name == "ssh") and re.search(r"\bpython|\.(?:py|sh)\b", command.text)
    return bool(starts) and command.background and command.inside("loop") and not launch.is_beside


_FAILS = "trainjob-fails"
_SHELL_OPTION = re.compile(r"[-+][A-Za-z]+|errexit|pipefail")


def _lost_inside(launch: LaunchedProgram) -> str | None:
    """Return what a shell that starts a training ends with when that fails; None unless it ends with 0."""
    trains = launch.is_python or launch.launcher is not None  # and is no preparation
    words = [word.text for word in launch.outer.program] if launch.outer is not None and trains else []
    if launch.command.source or "-c" not in words[1:-1] or not launch.command.words:
        return None
    at = words.index("-c")
    text = words[at + 1].replace(HOLE, "_")
    own = " ".join(word.text.replace(HOLE, "_") for word in launch.command.words[:3])
    node = next((one for one in nodes_of(parse(text), "command") if " ".join(text_of(one).split()[:3]) == own), None)
    if node is None:
        return None
    raw = text.encode()
    options = " ".join(word for word in words[1:at] if _SHELL_OPTION.fullmatch(word))
    root = parse(f"set {options}; " + (raw[: node.start_byte] + _FAILS.encode() + raw[node.end_byte :]).decode())
    endings = ends(root, [(node.start_point.row + 1, _FAILS)])
    if not endings or any(one.status != ZERO for one in endings):
        return None
    first = min(endings, key=lambda one: (one.line, one.text))
    return f"when it fails, its shell ends with 0, the code of: {first.text[:50]}"


_RAY_JOB = re.compile(r"(?:\S*/)?ray job submit\b")


def early_ends(script: BatchScript) -> Iterator[Finding]:
    """Find trainings in the background for which nothing waits: the job ends at once, and Slurm ends them."""
    yield from _ended_daemons(script)
    yield from _submitted_to_ray(script)
    own = [one for one in script.commands if not one.inside("called", "substitution", "function", "handler")]
    last = next((one for one in reversed(own) if not one.dead), None)
    if last is not None and last.background and not last.within and script.is_batch_file and not helps(last.name):
        yield found("nothing-waits", last, f"{last.name} … &, and the file ends")
        return
    started = [launch.outermost.command for launch in script.living]
    if not started or not all(one.background for one in started) or script.shell.not_here:
        return
    behind = [
        one for one in dropwhile(lambda one: one is not started[-1], script.commands) if not one.inside("called")
    ][1:]
    if not any(one.name in ("wait", "sleep", "tail", "fg", "jobs", "kill") or one.inside("loop") for one in behind):
        yield found("nothing-waits", started[-1], f"{started[-1].name} … &, and no wait behind it")


def _submitted_to_ray(script: BatchScript) -> Iterator[Finding]:
    at = _last(script, lambda one: bool(_RAY_JOB.match(one.text)) and not one.dead)
    is_left = at >= 0 and "--no-wait" in script.commands[at].text.split(" -- ")[0]
    if is_left and all(_ends_at_once(one) for one in script.commands[at + 1 :]):
        text = "ray job submit --no-wait, and nothing behind it waits"
        yield found("nothing-waits", script.commands[at], text, cure="Leave out --no-wait.")


def _ended_daemons(script: BatchScript) -> Iterator[Finding]:
    """Find steps that start Ray's daemons and end: Slurm ends with a step all that it has started."""
    for launch in script.launches:
        words = [word.text for word in launch.program]
        stays = "--block" in words or any(word.startswith(HOLE) for word in words)
        if words[:2] == ["ray", "start"] and launch.srun is not None and launch.outer is None and not stays:
            text = "ray start without --block: the step ends at once, and Ray's daemons with it"
            yield found("nothing-waits", launch, text, cure="srun … ray start … --block &")
            return


def _ends_at_once(command: ShellCommand) -> bool:
    if command.name == "ray":
        return re.search(r"\s(?:--follow|-f|--block|submit|wait)\b", command.text) is None
    prints = command.name in PRINTERS - {"sleep", "tail"} or command.name in ("echo", "printf", "exit", "true", ":")
    return prints and not command.inside("loop")


def _lost_by(end: ScriptEnd, line: int) -> str:
    text = end.text.split("\n")[0][:50].strip()
    if end.line == line:
        return f"when it fails, the job still ends with 0: {text}"
    return f"when it fails, the job ends with 0, the code of line {end.line}: {text}"


def _called(launch: LaunchedProgram) -> Iterator[ShellCommand]:
    """Yield the commands of shells inside the batch shell that lead to a launch."""
    while launch.outer is not None:
        yield launch.command
        launch = launch.outer


def _follows(command: ShellCommand, main: ShellCommand) -> bool:
    """Return whether a command runs after `main`, in the batch shell itself."""
    inside = command.inside("substitution", "handler", "called")
    return not (command.is_instead_of(main) or command.dead or inside)


def interrupted_waits(script: BatchScript) -> Iterator[Finding]:
    """Find a single wait beside a trap: the trap ends it, and the script goes on while the training saves."""
    stated = re.fullmatch(r"[BR]*B[BR]*:(\w+)(?:@\d+)?", (script.header.value("signal") or "").strip())
    traps, names = _traps(script), (_signal(stated[1]),) if stated else ("USR1", "USR2")
    trap = next((traps[name] for name in names if name in traps), None)
    if trap is None or not any(launch.outermost.command.background for launch in script.training):
        return
    handlers = [one.name for one in script.commands if one.inside("handler")]
    if re.search(r"\b(?:wait|exit)\b", trap.words[1].text) or {"wait", "exit"} & set(handlers):
        return
    waits = [one for one in script.named("wait") if not one.inside("handler", "substitution", "called")]
    ends_script = bool(waits) and "e" in waits[0].options and not waits[0].inside(*_TESTED)
    if len(waits) == 1 and (
        ends_script or not (waits[0].inside("loop", "endless") or _is_tested_again(script, waits[0]))
    ):
        then = "set -e ends the script there" if ends_script else "the script goes on"
        text = f"the trap for {_signal(trap.words[2].text)} (line {trap.line}) ends it, and {then}"
        yield found("wait-interrupted", waits[0], text)


def _is_tested_again(script: BatchScript, wait: ShellCommand) -> bool:
    """Return whether a wait is in the test of a loop: while wait …; kill -0 …; do :; done."""
    loops = nodes_of(script.root, "while_statement") if wait.inside("condition") and not wait.source else ()
    return any(loop.start_point.row < wait.line <= loop.end_point.row + 1 for loop in loops)


_TESTED = {"condition", "not", "and", "or"}
# Processes that are left end with the job.
_CLEANS_UP = ("rm", "rsync", "cp", "mv", "tar", "rclone", "scp", "fusermount", "umount")


def cleanup(script: BatchScript) -> Iterator[Finding]:
    """Find what a failed training leaves undone."""
    main = next((launch.outermost.command for launch in reversed(script.living)), None)
    if main is None or "e" not in main.options or main.background or main.inside("or", "condition", "not"):
        return
    if {"EXIT", "ERR", "0"} & _traps(script).keys():
        return
    for command in dropwhile(lambda one: one is not main, script.commands):
        cleans = command.name in _CLEANS_UP or (command.name == "ray" and "stop" in command.text)
        if (
            command is not main
            and cleans
            and not command.inside("or")
            and _follows(command, main)
            and "e" in command.options
        ):
            text = f"{command.text[:60]} is skipped when line {main.line} fails"
            yield found("cleanup-skipped-by-set-e", command, text)
            return


def never_ends(script: BatchScript) -> Iterator[Finding]:
    """Find jobs that wait for what never ends, and have nothing else left to do."""
    served = [
        (number, command)
        for number, command in enumerate(script.commands)
        if not (command.dead or command.inside("handler") or re.search(r"\binstall\b", command.text))
        and (command.inside("endless") or runs_on(command))
    ]
    own = {id(launch.outermost.command) for launch in script.training} - {id(command) for _, command in served}
    last_work = _last(script, lambda one: id(one) in own or (bool(_RAY_JOB.match(one.text)) and not runs_on(one)))
    if last_work < 0:  # it serves until its time limit, as it is meant to
        return
    last_wait = _last(script, lambda one: one.name == "wait" and len(one.words) == 1 and not one.within)
    last_end = _last(script, _ends_others)
    for at, daemon in served:
        if not daemon.background and at < last_work and not daemon.inside("if", "loop", "endless"):
            yield found("job-never-ends", daemon, f"what stands below never runs: {daemon.text[:40]} …")
            return
        if daemon.background and last_wait > at >= last_end:
            text = f"wait waits for line {daemon.line} too: {daemon.name} …"
            yield found("job-never-ends", script.commands[last_wait], text, facts={"waited_for": str(daemon.line)})
            return


def _ends_others(command: ShellCommand) -> bool:
    """Return whether a command ends processes, and does not only ask for them or pass a signal on."""
    asks = re.search(r"\s(?:-0|-(?:s |-signal[= ])?(?:SIG)?(?:USR[12]|CONT))\b", command.text)
    return (command.name in ("kill", "pkill", "killall", "scancel") and asks is None) or "ray stop" in command.text


def _last(script: BatchScript, fits: Callable[[ShellCommand], bool]) -> int:
    """Return the number of the last command that fits; -1 without one."""
    return max((number for number, command in enumerate(script.commands) if fits(command)), default=-1)


def cancels(script: BatchScript) -> Iterator[Finding]:
    """Find jobs that end by being cancelled."""
    of_job = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "SLURM_JOB_NAME")
    for command in script.named("scancel"):
        passes_on = any(re.match(r"-s|--signal|-[A-Z0-9]+$|-b", word.text) for word in command.words[1:])
        own = any(word.value.comes_from(*of_job) for word in command.words) or re.search(
            r"-u|--(?:user|me)\b", command.text
        )
        if own and not passes_on and not command.inside("handler", "substitution"):
            yield found("cancels-itself", command, command.text[:60])
            return
