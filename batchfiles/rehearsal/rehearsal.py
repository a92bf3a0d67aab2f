"""Rehearses a batch file: what it asks for, a private Slurm that has it, and the verdict."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchfiles.adoption.start import AdoptionError, main_launch
from batchfiles.bash.values import HOLE
from batchfiles.rehearsal import requested_cluster
from batchfiles.rehearsal.placeholders import SubmissionFolder, make_placeholders
from batchfiles.rehearsal.running import BatchRun, missing_programs, record
from batchfiles.rehearsal.verdict import BatchVerdict, judge
from batchfiles.rules.diagnosis import diagnosis_of
from batchfiles.slurm.request import SiteFacts, site_of
from batchfiles.slurm.script import BatchScript, read_script, script_of
from trainjob.backends import project as projects
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.contract.programs.helpers import helps
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.rehearse import gpus
from trainjob.rehearse.base import INSTALLED, python_of
from trainjob.rehearse.slurm import releases

STOP_AFTER_S = 10.0
# Python waits where its program is not here, so that all ranks are seen.
WAITING = {"TRAINJOB_SEEN_WAIT_S": "8"}


@dataclass(frozen=True)
class BatchOptions:
    """A user's request for the rehearsal of a batch file."""

    path: Path
    raw: bytes | None = None  # what its user has agreed to run; None: what the file holds
    arguments: tuple[str, ...] = ()
    cluster: SlurmCluster | None = None  # None: what the file's own directives ask for
    stop_after_s: float = STOP_AFTER_S
    inject: str | None = None
    maps: Mapping[str, Path] = field(default_factory=dict)
    has_gpus: bool = True
    python: str | None = None
    slurm: str = INSTALLED
    writable: tuple[Path, ...] = ()
    keep: Path | None = None
    say: Callable[[str], None] = lambda _line: None


def rehearse(options: BatchOptions) -> BatchVerdict:
    """Return the verdict on a batch file, which runs unmodified. Raises UserError where it can't be run here."""
    path = Path(os.path.abspath(options.path))
    cluster = options.cluster
    site = SiteFacts() if cluster is None else site_of(cluster)
    script = read_script(path, site) if options.raw is None else script_of(path, options.raw, site)
    if options.slurm != INSTALLED:
        releases.refuse_unknown(options.slurm)
    folder, python = Path.cwd(), options.python or python_of_file(script, cluster)
    run = BatchRun(
        script=script,
        folder=folder,
        top=top_folder(folder),
        cluster=cluster or requested_cluster.cluster_from(script),
        arguments=options.arguments,
        maps=options.maps,
        missing=missing_programs(script, python),
        python=python,
        has_gpus=options.has_gpus,
        takes_whole_nodes=cluster is None and requested_cluster.takes_whole_nodes(script),
        stop_after_s=options.stop_after_s,
        inject=options.inject,
        slurm=None if options.slurm == INSTALLED else options.slurm,
        writable=options.writable,
        keep=options.keep,
        say=options.say,
    )
    with tempfile.TemporaryDirectory(prefix="trainjob-alone-") as name:
        words = _training_of(script)
        made = None
        if words and _is_alone(words, folder, run.top or folder):
            made = make_placeholders(script, words, folder, Path(name), python, options.arguments)
        recording = record(placed(run, made, words))
    return judge(recording, diagnosis_of(script).findings, options.inject)


def _training_of(script: BatchScript) -> list[str]:
    """Return the words of the training, with its Python; none if the file has none."""
    try:
        first = main_launch(script)
    except AdoptionError:  # a file that only a person can turn into a job
        known = script.work or [one for one in script.launches if not helps(one.name)]
        works = [one for one in known if one.program and not one.command.dead and not one.command.is_call]
        if not works:
            return []
        first = works[-1]
    python = next((layer.words for layer in first.layers if layer.name == "python"), first.program)
    return [word.text for word in python]


def _is_alone(words: Sequence[str], folder: Path, top: Path) -> bool:
    """Return whether the file's project is not here. Where it is, a program that is missing is the file's mistake."""
    beside = {folder, top, *((folder / word).parent for word in words if word.endswith(".py"))}
    return not any(any(one.glob("*.py")) for one in beside)


def placed(run: BatchRun, made: SubmissionFolder | None, words: Sequence[str]) -> BatchRun:
    """Return the run with what was made for its training, whose `words` are given; itself if nothing was."""
    if made is None:
        return run
    run.say("the training program is missing here: a program that only waits replaces it")
    maps = {there: made.folder if path == run.folder.resolve() else path for there, path in run.maps.items()}
    return replace(
        run,
        folder=made.folder,
        top=made.folder,
        maps={**made.maps, **maps},
        programs=made.programs,
        stood_in_for=" ".join(words).replace(HOLE, "…")[:80],
        needs_log_folder=False,
        environment={**WAITING, **run.environment},
    )


def top_folder(folder: Path) -> Path:
    """Return the private folder in which the job may write. Raises UserError for one that holds all."""
    top = projects.find(folder).top
    if Path(tempfile.gettempdir()).resolve().is_relative_to(top):
        raise UserError(f"the project would be all of {top}", "Change into its folder")
    return top


def python_of_file(script: BatchScript, cluster: SlurmCluster | None) -> str:
    """Return the interpreter that stand-in GPUs are made for: an activated virtualenv's that is here, else PATH's."""
    for command in script.named("source", "."):
        if len(command.words) > 1 and command.words[1].text.endswith("/activate"):
            python = with_home(command.words[1].text).parent / "python"
            if os.access(python, os.X_OK):
                return os.path.abspath(python)
    if cluster is not None and cluster.interpreter:
        return python_of(cluster, ("python",))
    return gpus.of_path(sys.executable)
