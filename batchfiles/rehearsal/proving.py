"""Runs a batch file and what it was adopted as on the same private Slurm."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from batchfiles.adoption.start import main_launch
from batchfiles.bash.values import HOLE
from batchfiles.rehearsal import requested_cluster
from batchfiles.rehearsal.placeholders import make_placeholders
from batchfiles.rehearsal.proof import InterruptedEnd, Proof, compared, files_written, logs_of
from batchfiles.rehearsal.rehearsal import WAITING, placed, python_of_file, top_folder
from batchfiles.rehearsal.running import READ_BY_BASH, BatchRun, missing_programs, record
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, read_script, script_of
from trainjob.backends import folder
from trainjob.cluster.reading import read_job
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.table import KINDS
from trainjob.records import events
from trainjob.render.rendered import Rendered, render
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import Prepared, prepare

_PROGRAM = "train.py"


def prove(
    path: Path,
    raw: bytes,
    arguments: Sequence[str],
    job: Path,
    cluster: str,
    say: Callable[[str], None],
    *,
    options: Sequence[str] = (),
    maps: Mapping[str, Path] | None = None,
    to_the_end: bool = False,
) -> Proof:
    """Return what ranks saw of the batch file `path`, which has to hold `raw`, and of its `job` on `cluster`.

    `options` are those that sbatch is given beside the file's own; `maps` are as for a rehearsal. `to_the_end`: if both
    saw the same, both run again, are interrupted once by their time limit, and are followed to their end. Raises
    UserError.
    """
    script = script_of(path.absolute(), raw, SiteFacts(), tuple(arguments), options)
    with tempfile.TemporaryDirectory(prefix="trainjob-adopted-") as name:
        place = Path(name)
        defined = re.findall(
            r"(?m)^\s*(?:function\s+)?([\w-]+)\s*\(\)|^\s*function\s+([\w-]+)", "\n".join(script.lines)
        )
        # What bash does not find is passed over, but for these.
        given = {**WAITING, "TRAINJOB_SEEN_DEFINED": " ".join(["exit", *(one or other for one, other in defined)])}
        words = read_job(job).command or []
        if (outside := program_from_outside(script)) is not None:
            say(f"${outside}, the program, is not set in {path.name}: {_PROGRAM} replaces it")
            words = [word.replace(f"${outside}", _PROGRAM) for word in words]
            given[outside] = _PROGRAM
        run, project = _run_of_file(script, words, place, given, maps or {}, say)
        if to_the_end and project is not None:
            raise UserError(f"the program of {path.name} is missing here, and has no end", "prove it where it is")
        original, refusal, written_by_file = record(run), None, place / "written-by-file"
        taken = taken_by_sbatch(script, place / "taken", original.refused) if original.refused is not None else None
        if taken is not None:
            refusal = f"sbatch refuses {path.name}: {original.refused}. What follows is true of a copy that it takes"
            say(refusal)
            written_by_file = place / "written-by-copy"
            run = replace(run, script=taken, keep=written_by_file)
            original = record(run)
        prepared = prepare(JobOptions(cluster, job, {}, project=project, untracked=True))
        of_job = _run_of_job(run, prepared, place, given)
        adopted = record(of_job)
        written_by_job, logs = place / "written-by-job/code/project", logs_of(script)
        begun = [min((one.began_at for one in of.processes), default=0.0) for of in (original, adopted)]
        folders = {str(run.folder), str(place / "run/code/project"), *run.maps}
        elsewhere = [there for there, here in run.maps.items() if here == run.folder]
        files = (
            files_written(written_by_file, logs, begun[0], folders),
            files_written(written_by_job, logs, begun[1], folders),
        )
        bases = (str(run.folder), str(place / "run/code/project" / prepared.project.start))
        elements = [str(one / "code/project") for one in (place / "run/tasks").glob("*")]  # of an array
        found = compared(script, original, adopted, refusal, files, bases, elsewhere, elements)
        if to_the_end and found.problem is None:
            theirs = _interrupted_end(run, place / "ends-file", "", logs)
            ours = _interrupted_end(of_job, place / "ends-job", "code/project", logs)
            found = replace(found, ends=(theirs, ours))
    return found


def _interrupted_end(run: BatchRun, keep: Path, project: str, logs: str) -> InterruptedEnd:
    """Return what becomes of a run that its time limit interrupts; its files are in `project`, below its folder."""
    run.say(f"{run.script.path.name} once more, to its end, with its time limit in between")
    seen = record(replace(run, inject="timeout", to_the_end=True, keep=keep))
    jobs = sorted(seen.jobs, key=lambda one: int(one.id.partition("_")[0]))
    state, why = jobs[-1].state if jobs else "unknown", seen.stopped
    if project and state != "COMPLETED" and why is None:
        why = next((one.why for one in reversed(events.attempts(events.read(RunPaths(keep)))) if one.why), None)
    return InterruptedEnd(state, sum(one.restarts + 1 for one in jobs), why, files_written(keep / project, logs))


def _run_of_file(
    script: BatchScript,
    words: Sequence[str],
    place: Path,
    given: Mapping[str, str],
    maps: Mapping[str, Path],
    say: Callable[[str], None],
) -> tuple[BatchRun, Path | None]:
    """Return how the file runs here, and the project that `place` has for what is missing; `words` are its job's."""
    here, python, arguments = Path.cwd(), python_of_file(script, None), tuple(script.arguments or ())
    made = make_placeholders(script, words, here, place, python, arguments)
    missing = missing_programs(script, python)
    for name in missing:
        say(f"{name} is missing here, and stood in for")
    run = BatchRun(
        script=script,
        folder=here,
        top=top_folder(here) if made is None else made.folder,
        cluster=requested_cluster.cluster_from(script),
        arguments=arguments,
        maps=maps,
        missing=missing,
        python=python,
        takes_whole_nodes=requested_cluster.takes_whole_nodes(script),
        needs_log_folder=False,
        stop_after_s=1.0,
        environment=given,
        keep=place / "written-by-file",
        say=say,
    )
    return placed(run, made, words), None if made is None else made.folder


def _run_of_job(run: BatchRun, prepared: Prepared, place: Path, given: Mapping[str, str]) -> BatchRun:
    """Return how the job runs: where and as the file does."""
    rendered = _with_prologue(prepared, place / "templates")
    paths = folder.create(place / "run", rendered, prepared.project, prepared.selection)
    return replace(
        run,
        script=read_script(paths.folder / rendered.script, SiteFacts()),
        folder=paths.folder,
        top=paths.folder,
        arguments=(),
        environment={
            "TRAINJOB_PROLOGUE": "skip",
            "TRAINJOB_CONTAINER": "none",
            "TRAINJOB_PYTHON": run.python,
            **given,
        },
        keep=place / "written-by-job",
    )


def program_from_outside(script: BatchScript) -> str | None:
    """Return the variable that is the program, and that only the shell which submits the file can have set."""
    first = main_launch(script).program[0]
    name = re.fullmatch(r"\$\{?(\w+)\}?", first.value.sources[0]) if first.text == HOLE else None
    return name[1] if name is not None and f"unset {name[1]}" in first.value.origins else None


def taken_by_sbatch(script: BatchScript, place: Path, refused: str = "") -> BatchScript | None:
    """Return a copy, in `place`, without that for which sbatch `refused` the file; None if nothing of it is known."""
    lines = list(script.lines)  # without the carriage returns and the byte order mark
    for one in script.header.directives:
        if one.line and re.search(rf"--{re.escape(one.name)}\b", refused):
            lines[one.line - 1] = "#"
        elif one.written is not None:
            lines[one.line - 1] = lines[one.line - 1].replace(one.written, one.value or "")
    first = next((number for number, line in enumerate(lines) if line.startswith("#!")), 0)
    raw = "\n".join(lines[first:]).encode()
    if raw == script.raw:
        return None
    place.mkdir()
    copy = place / script.path.name
    copy.write_bytes(raw)
    return replace(script, path=copy, raw=raw)


# A job keeps our replacement programs only if its prologue is skipped; this template runs the prologue anyway.
# Its ranks pass over what is not here as the file's do.
_PAGE = """\
{% extends "trainjob/jobs/sbatch.sh.j2" %}
{% block setting %}{{ super() -}}
  export BASH_ENV={{ read_by_bash }}
  set +u
{% for line in prologue -%}
{{ line }}
{% endfor -%}
  set -u
{% endblock %}
"""


def _with_prologue(prepared: Prepared, templates: Path) -> Rendered:
    """Return the job's files; its script runs the prologue in a rehearsal, too."""
    page = templates / "jobs" / "sbatch.sh.j2"
    page.parent.mkdir(parents=True)
    page.write_text(_PAGE.replace("{{ read_by_bash }}", shlex.quote(str(READ_BY_BASH))))
    # What nodes are like here proves nothing, and looking takes longer than the ranks.
    request = replace(prepared.request, cluster=prepared.request.cluster.changed(node_check=False))
    return render(request, KINDS[request.cluster.kind], package.companion("templates"), [templates])
