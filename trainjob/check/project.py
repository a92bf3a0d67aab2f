"""Checks of the cluster file, the project and the script on this machine. They contact no other machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from trainjob.check.context import Context
from trainjob.contract.errors import Problem, UserError, of_error
from trainjob.kinds.lookup import refuse_missing_facts
from trainjob.machines import process

_BYTES_PER_WORD = 9  # beside the word itself: its final NUL and a pointer to it
_MOST_BYTES = 1_900_000  # of 2 MiB; the environment takes the rest


def missing_facts(context: Context) -> Iterator[Problem]:
    """Yield the facts about the site that the cluster file lacks."""
    try:
        refuse_missing_facts(context.request.plan.cluster, context.request.cluster, context.cluster_file)
    except UserError as error:
        yield of_error("facts", error)


def refused(context: Context) -> Iterator[Problem]:
    """Yield the reason why the job script can't be rendered, such as a directive."""
    if context.refused is not None:
        yield context.refused


def missing_script(context: Context) -> Iterator[Problem]:
    """Yield a script that does not exist: the second word of the command, if it ends in .py or .sh."""
    command, folder = context.request.job.command or (), context.project.top / context.project.start
    if len(command) > 1 and command[1].endswith((".py", ".sh")) and not os.path.exists(folder / command[1]):
        text = f"{command[1]} does not exist in {folder}"
        yield Problem("script", text, "Give its path relative to your current folder")


def environment(context: Context) -> Iterator[Problem]:
    """Yield a lock file that ranks could not be installed from."""
    stated = context.request.job.environment.get("uv")
    if stated is None:
        return
    folder = (context.project.top / context.project.start / stated).parent
    for name in ("pyproject.toml", "uv.lock"):
        relative = os.path.relpath(folder / name, context.project.top)
        if not (folder / name).is_file():
            yield Problem("environment", f"{folder / name} does not exist", f"In {folder}: uv lock")
            return
        if context.selection is not None and relative not in context.selection.files:
            yield Problem("environment", f"{relative} is not copied into the run", f"Run: git add {relative}")
    if shutil.which("uv") is None:
        return
    ended = process.run(["uv", "lock", "--check", "--project", str(folder)], check=False)
    if ended.code != 0:
        text = f"{folder / 'uv.lock'} does not fit its pyproject.toml: {ended.stderr.strip()[-200:]}"
        yield Problem("environment", text, f"In {folder}: uv lock")


def too_long(context: Context) -> Iterator[Problem]:
    """Yield a command that is too long: the kernel accepts 2 MiB of words and environment together."""
    size = sum(len(os.fsencode(word)) + _BYTES_PER_WORD for word in context.request.job.command or ())
    if size > _MOST_BYTES:
        yield Problem(
            "arguments",
            f"the command has {size:,} bytes of words, and a program can be started with at most {_MOST_BYTES:,}",
            "Write them to a file of the project, and have the program read that",
        )


def own_program(context: Context) -> Iterator[Problem]:
    """Yield a program of the project that can't be executed."""
    first = (context.request.job.command or ("",))[0]
    folder = context.project.top / context.project.start
    if "/" not in first or first.startswith(("/", "~/")):
        return
    if shutil.which(folder / first) is None:  # a folder is not a program
        yield Problem(
            "command",
            f"command {first!r} is not an executable file in {folder}",
            f"Correct the path, run chmod +x {first}, or name its interpreter, as in: -- python train.py",
        )


def left_behind(context: Context) -> Iterator[Problem]:
    """Yield existing files that the command names but that would not be copied into the run."""
    project, selection = context.project, context.selection
    copied = frozenset(selection.files if selection else ())
    reasons = dict(selection.left_out if selection else ())
    for number, word in enumerate(dict.fromkeys(context.request.job.command or ())):
        name = os.path.normpath(os.path.join(project.start, word))
        if os.path.isabs(word) or name in copied or not os.path.isfile(project.top / name):
            continue
        if name in reasons:
            cure = "Give its absolute path, or read it from TRAINJOB_DATA_DIR"
            yield Problem("left-out", f"{word} is not copied into the run: {reasons[name]}", cure)
        # Later words may name files that the command writes, such as a log of the last run.
        elif number < 2 or word.endswith((".py", ".sh")):
            cure = f"Run: git add {word}, or give --untracked"
            yield Problem("untracked", f"{word} is not copied into the run: git does not track it", cure)


def syntax(context: Context) -> Iterator[Problem]:
    """Yield syntax errors of bash: first those of the prologue, then those of the whole script."""
    prologue = context.request.cluster.prologue
    why = _syntax_error("\n".join(prologue).encode()) if prologue else None
    if why is not None:
        text = f"prologue in {context.request.cluster_origin} is not valid bash: {why}"
        yield Problem("prologue", text, "Correct it")
    elif context.script is not None and (why := _syntax_error(context.script)) is not None:
        text = f"the job script is not valid bash: {why}"
        yield Problem("syntax", text, "Correct the site's templates; trainjob render shows the script with its lines")


def _syntax_error(shell: bytes) -> str | None:
    ended = process.run(["bash", "-n"], stdin=shell, check=False)
    lines = ended.stderr.strip().splitlines() or ["bash prints no reason"]
    return None if ended.code == 0 else lines[0].removeprefix("bash: ")
