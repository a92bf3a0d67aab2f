"""Faults of how a job ends: at its time limit, on a signal, with which exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.commands import ShellCommand
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript

_NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT", "1": "HUP", "18": "CONT"}


def time_limit(script: BatchScript) -> Iterator[Finding]:
    """Find jobs that their time limit kills."""
    header = script.header
    if not header.directives:
        return
    if header.value("requeue") is not None or _resubmits(script):
        return
    if header.value("signal") is not None:
        yield Finding("signal-without-requeue", header.line("signal"), "--signal, and nothing starts the job again")
    else:
        yield Finding("time-limit-unhandled", header.line("time"), "no --signal, no --requeue, no resubmission")


def _resubmits(script: BatchScript) -> bool:
    for command in script.commands:
        words = [word.text for word in command.words]
        if command.name == "sbatch" or (command.name == "scontrol" and "requeue" in words[1:2]):
            return True
        # trap 'sbatch $0' USR1
        if command.name == "trap" and re.search(r"\bsbatch\b|scontrol\s+requeue", " ".join(words[1:2])):
            return True
    return False


def _signal(text: str) -> str:
    name = text.upper().removeprefix("SIG")
    return _NUMBERS.get(name, name)


def _traps(script: BatchScript) -> dict[str, ShellCommand]:
    """Return the batch shell's traps by signal, those that only forget one left out."""
    traps: dict[str, ShellCommand] = {}
    for command in script.named("trap"):
        words = [word.text for word in command.words[1:]]
        if len(words) > 1 and words[0] not in ("-", "") and "called" not in command.within:
            traps |= {_signal(word): command for word in words[1:]}
    return traps


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
        yield Finding(
            "signal-kills-batch", script.header.line("signal"), f"--signal={stated}, and no trap for {handled}"
        )


def _to_steps(script: BatchScript, traps: dict[str, ShellCommand], handled: str) -> Iterator[Finding]:
    """Find traps of the batch shell for what Slurm sends to steps, if at all."""
    line = script.header.line("signal")
    if handled and script.training and not any(launch.srun for launch in script.training):
        if handled in traps:
            text = f"the trap for {handled} (line {traps[handled].line}) is in the batch shell"
            yield Finding("signal-never-arrives", line, text)
        else:
            # Whether the author counts on it can't be seen.
            yield Finding("signal-never-arrives", line, "nothing is started with srun", Severity.WARNING)
        return
    user = next((name for name in ("USR1", "USR2", handled) if name in traps), None)
    if user is not None:
        yield from _deferred(script, traps, user)


def _deferred(script: BatchScript, traps: dict[str, ShellCommand], name: str) -> Iterator[Finding]:
    last = next((launch for launch in reversed(script.training) if not launch.command.dead), None)
    if last is None or any(_outermost(launch).background for launch in script.training):
        return
    command = _outermost(last)
    if not command.text.startswith("exec "):
        text = f"the trap for {name} (line {traps[name].line}) waits for this command"
        yield found("trap-deferred", command, text)


def _outermost(launch: LaunchedProgram) -> ShellCommand:
    while launch.outer is not None:
        launch = launch.outer
    return launch.command


def exit_code(script: BatchScript) -> Iterator[Finding]:
    """Find exit codes of the training that don't become the job's."""
    living = [launch for launch in script.training if not launch.command.dead] or script.training
    if not living:
        return
    for launch in script.training:
        chain = [launch]
        while chain[-1].outer is not None:
            chain.append(chain[-1].outer)
        piped = next(
            (one.command for one in chain if one.command.piped_into and "pipefail" not in one.command.options), None
        )
        if piped is not None:
            yield found("exit-code-lost", piped, f"| {piped.piped_into}, without pipefail")
            return
    main = _outermost(living[-1])
    reason = _lost_in(script, main)
    if reason is not None:
        yield found("exit-code-lost", main, reason)


def _lost_in(script: BatchScript, main: ShellCommand) -> str | None:
    """Return how the exit code of a command gets lost; None if it does not."""
    at = next(number for number, command in enumerate(script.commands) if command is main)
    after = [command for command in script.commands[at + 1 :] if _follows(command, main)]
    if _code_is_kept(script, after):
        return None
    if main.background:
        waits = [at for at, command in enumerate(after) if command.name == "wait"]
        if not waits:
            return None
        if len(after[waits[-1]].words) > 1:
            return _loses(after, main) if after[waits[-1] + 1 :] else None
        return "wait without a process id returns 0"
    if "or" in main.within and not any(
        command.name in ("exit", "return", "false") for command in after if "after-or" in command.within
    ):
        return "|| replaces the failure by exit code 0"
    if "condition" in main.within or "not" in main.within:
        return (
            "the if replaces the failure by exit code 0"
            if not any(command.name == "exit" for command in after)
            else None
        )
    if "or" in main.within:
        return None
    if "e" in main.options and "and" not in main.within:
        return None
    return _loses(after, main)


def _loses(after: list[ShellCommand], main: ShellCommand) -> str | None:
    rest = [command for command in after if "after-and" not in command.within and command.name not in ("", "trap")]
    rest = [command for command in rest if not (main.background and command.name == "wait")]
    return f"the last command is {rest[-1].name}, without set -e" if rest else None


def _follows(command: ShellCommand, main: ShellCommand) -> bool:
    """Return whether a command runs after `main`, in the batch shell itself."""
    if {"substitution", "handler", "called"} & set(command.within):
        return False
    ways = {one.number: one.branch for one in main.conditions}
    return not command.dead and all(ways.get(one.number, one.branch) == one.branch for one in command.conditions)


def _code_is_kept(script: BatchScript, after: list[ShellCommand]) -> bool:
    """Return whether the script looks at the exit code, and ends with it or with another than 0."""
    kept = {one.name for one in script.assignments if re.search(r"=\(?\"?\$(?:\?|\{PIPESTATUS)", one.text)}
    looks = re.compile("|".join([r"\$\?|PIPESTATUS", *(rf"\b{re.escape(name)}\b" for name in sorted(kept))]))
    for command in after:
        if command.name not in ("exit", "return"):
            continue
        if any(looks.search(word.source) for word in command.words[1:]):
            return True
        if (
            len(command.words) > 1
            and command.words[1].text != "0"
            and any(looks.search(one.text) for one in command.conditions)
        ):
            return True
        if len(command.words) == 1 and after and command is after[0]:
            return True
    return False


_CLEANS_UP = ("rm", "rsync", "cp", "mv", "tar", "kill", "pkill", "rclone", "scp", "fusermount", "umount")


def cleanup(script: BatchScript) -> Iterator[Finding]:
    """Find what a failed training leaves undone."""
    main = next((_outermost(launch) for launch in reversed(script.training) if not launch.command.dead), None)
    if main is None or "e" not in main.options or main.background or {"or", "condition", "not"} & set(main.within):
        return
    if {"EXIT", "ERR", "0"} & set(_traps(script)):
        return
    at = next(number for number, command in enumerate(script.commands) if command is main)
    for command in script.commands[at + 1 :]:
        stops_ray = command.name == "ray" and "stop" in command.text
        if _follows(command, main) and (command.name in _CLEANS_UP or stops_ray) and "e" in command.options:
            yield found(
                "cleanup-skipped-by-set-e", command, f"{command.text[:60]} is skipped when line {main.line} fails"
            )
            return


_DAEMON = re.compile(
    r"ray start .*--block|tensorboard\b|vllm serve|vllm\.entrypoints|jupyter\b|http\.server|"
    r"nvidia-smi .*(?:-l\b|--loop|-lms)|nvidia-smi dmon|sleep (?:infinity|inf)\b|tail -[fF]|"
    r"redis-server|mlflow (?:ui|server)|dcgmi dmon|trl vllm-serve|sglang\.launch_server|"
    r"^watch "
)


def never_ends(script: BatchScript) -> Iterator[Finding]:
    """Find jobs that wait for what never ends, and have nothing else left to do."""
    served = [
        (number, command)
        for number, command in enumerate(script.commands)
        if not command.dead
        and "handler" not in command.within
        and (_DAEMON.search(command.text) or "endless" in command.within)
    ]
    own = [_outermost(launch) for launch in script.training]
    daemons = [command for _, command in served]
    work = [
        number
        for number, command in enumerate(script.commands)
        if any(command is one for one in own) and not any(command is one for one in daemons)
    ]
    for at, daemon in served:
        following = script.commands[at + 1 :]
        if not work:  # it serves until its time limit, as it is meant to
            return
        if not daemon.background and at < work[-1] and not {"if", "loop", "endless"} & set(daemon.within):
            yield found("job-never-ends", daemon, f"what stands below never runs: {daemon.text[:40]} …")
            return
        waits = [one for one in following if one.name == "wait" and len(one.words) == 1 and not one.within]
        ends = any(one.name in ("kill", "pkill", "killall", "scancel") or "ray stop" in one.text for one in following)
        if daemon.background and waits and not ends:
            yield found("job-never-ends", waits[-1], f"wait waits for line {daemon.line} too: {daemon.name} …")
            return


def cancels(script: BatchScript) -> Iterator[Finding]:
    """Find jobs that end by being cancelled."""
    for command in script.named("scancel"):
        if {"handler", "substitution"} & set(command.within):
            continue
        own = any(
            word.value.comes_from("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "SLURM_JOB_NAME")
            for word in command.words
        )
        if own or re.search(r"-u|--user|--me\b", command.text):
            yield found("cancels-itself", command, command.text.replace("\ufffc", "…")[:60])
            return
