"""Checks of the user's own Python script, without running it: its syntax, its imports, and the words that it gets."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainjob.backends.project import DATA_FILE_MB
from trainjob.check import probe
from trainjob.check import script as scripts
from trainjob.check.context import Context
from trainjob.contract.errors import WARNING, Problem
from trainjob.contract.programs import launchers
from trainjob.records.files import DamagedError, read_first

_NO_CHECK = "--no-check submits it all the same"


def find(context: Context) -> Iterator[Problem]:
    """Yield what keeps the script from running, as its interpreter sees it, or else ours."""
    if scripts.script_of(context.request, context.project, context.selection) is None:
        return
    for answer in context.answers[:1]:
        if "script" in answer.facts:
            yield from problems(answer.facts["script"], context, answer.target.name)
            return
    # The job's interpreter is known only once its prologue has run, or its environment is there.
    if context.request.cluster.container.runtime == "none":
        yield from by(sys.executable, context, imports=False)


def requests(context: Context) -> Iterator[Problem]:
    """Yield a script that does not save when Slurm asks it to, or may hang then."""
    script = scripts.script_of(context.request, context.project, context.selection)
    if script is None:
        return
    words = context.request.job.command or ()
    found, instances = launchers.find(words), context.request.plan.topology.instances
    try:
        source = read_first(context.project.top / script.path, DATA_FILE_MB << 20).decode(errors="replace")
    except (OSError, DamagedError):  # it is refused elsewhere
        return
    if found is None and instances > 1 and launchers.may_hang_when_asked(source, words):
        text = (
            f"{script.path} uses Lightning, whose ranks save at the time limit, each at whatever update it has "
            "reached: if these differ, they hang until the limit, and may lose what they have not saved"
        )
        cure = (
            "Keep checkpoints as well: ModelCheckpoint(every_n_train_steps=N, save_last=True), and "
            'trainer.fit(…, ckpt_path="last"); or have the ranks agree, with the callback in docs/your-own-script.md'
        )
        yield Problem("lightning-ranks-may-hang", text, cure, WARNING)
    if found is not None and launchers.ignores_requests(found.launcher.name, source):
        text = (
            f"{script.path} uses Lightning, which under torchrun neither saves nor requeues its job at the time limit"
        )
        cure = f"Start one rank a process, which does both: -- python {script.path}, with its devices and num_nodes"
        yield Problem("lightning-under-torchrun", text, cure, WARNING)


def by(python: str, context: Context, *, imports: bool = True, brought: Collection[str] = ()) -> Iterator[Problem]:
    """Yield what the interpreter `python` of this machine refuses; without `imports`, as it is not the job's own.

    `brought` are modules that it does not have yet and gets when the script runs.
    """
    script = scripts.script_of(context.request, context.project, context.selection)
    if script is None:
        return
    questions = {**scripts.asked(script, python), "script-questions": script.questions(imports=imports)}
    answer = probe.ask_here(questions, context.project, context.selection)
    if "script" in answer.facts:
        otherwise = "" if imports else f", or {_NO_CHECK}"
        yield from problems(answer.facts["script"], context, "this machine", otherwise, brought)


def problems(
    report: str, context: Context, where: str, otherwise: str = "", brought: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield the problems that the report of an interpreter on `where` has."""
    found: Mapping[str, Any] = json.loads(report)
    python, executable = found["python"], found["executable"]
    folder = context.project.top / context.project.start
    for one in found["problems"]:
        path = os.path.relpath(context.project.top / one["file"], folder)
        at = path if one["line"] is None else f"{path}:{one['line']}"
        if one["kind"] == "syntax":
            yield Problem("script-syntax", f"{at}: {one['text']}, says Python {python}", f"Correct it{otherwise}")
        elif one["kind"] == "words":
            cure = f"Correct the words behind {path}{otherwise}"
            yield Problem("script-words", f"{path} refuses its words: {one['text']}", cure)
        elif one["text"] not in brought:
            yield _missing_module(context, f"{at} imports {one['text']}", one["text"], f"{executable} on {where}")


def _missing_module(context: Context, message: str, name: str, interpreter: str) -> Problem:
    folder = context.project.top / context.project.start
    for own in (f"{name}.py", f"{name}/__init__.py", f"{name}/"):
        if (folder / own).exists():
            text = f"{message}, and {own} is not copied into the run: git does not track it"
            return Problem("script-import", text, f"Run: git add {own}, or give --untracked")
    cure = (
        f"Install it there, name another interpreter ({context.interpreter_key} in the cluster file), or add {name}.py"
    )
    return Problem("script-import", f"{message}, which {interpreter} does not have", f"{cure} to the project")
