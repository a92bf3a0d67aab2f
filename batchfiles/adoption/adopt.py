"""A batch file, adopted: the job file and the cluster file that do the same, and the account of its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchfiles.adoption import files
from batchfiles.adoption.account import IN_BASH, Account, Entry, Where
from batchfiles.adoption.asked import Keys, read_directives
from batchfiles.adoption.command import AdoptedCommand, in_reading, note_left_out, run_of
from batchfiles.adoption.container import read_container
from batchfiles.adoption.explanations import CURED, explained
from batchfiles.adoption.hidden import take_out
from batchfiles.adoption.parts import Parts, Statement, parts_of
from batchfiles.adoption.places import PathOrigin, place_of
from batchfiles.adoption.rest import note_rest
from batchfiles.adoption.roles import roles_of
from batchfiles.adoption.setup import read_setup
from batchfiles.adoption.start import (
    AdoptedStart,
    AdoptionError,
    is_once_per_node,
    main_launch,
    note_from_outside,
    start_of,
)
from batchfiles.rules.codes import Finding, Severity
from batchfiles.rules.diagnosis import diagnosis_of
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, read_script, script_of
from trainjob.cluster.reading import job_from_text
from trainjob.contract.programs import launchers
from trainjob.kinds.lookup import cluster_from_text

_MOST_STATEMENTS = 4000
_LONE_CR = re.compile(rb"\r(?!\n)")
JOB_FILE, CLUSTER_FILE = "job.yaml", "cluster.yaml"
# For these, the job is asked before its limit and starts again; whether that saves anything is up to the script.
_UP_TO_THE_SCRIPT = frozenset(("time-limit-unhandled", "requeue-without-signal"))


@dataclass(frozen=True)
class Adoption:
    """The result: two texts, checked, and what became of each line. `cured` are doctor's codes that no longer apply."""

    job: str
    cluster: str | None  # None if a cluster file was named
    account: Account
    start: AdoptedStart
    cured: tuple[str, ...]
    explained: Mapping[str, Collection[str]]  # how ranks of both may differ, and by which faults of the file

    @property
    def cured_at_once(self) -> list[str]:
        """The codes that no longer apply, whatever the script does."""
        return [code for code in self.cured if code not in _UP_TO_THE_SCRIPT]

    @property
    def cured_with_script(self) -> list[str]:
        """The codes that no longer apply if the script saves checkpoints and goes on from them."""
        return [code for code in self.cured if code in _UP_TO_THE_SCRIPT]

    def as_json(self) -> dict[str, Any]:
        """Return the account for `--json`."""
        return {
            "lines": [
                {"line": one.line, "last": one.last, "text": one.text, "where": one.where.value, "what": one.what}
                for one in self.account.sorted
            ],
            "changes": self.account.changes,
            "cured": self.cured_at_once,
            "cured_if_the_script_resumes": self.cured_with_script,
        }


def adopt(
    path: Path,
    folder: Path,
    arguments: Sequence[str] = (),
    known: Any = None,
    below_top: str = ".",
    options: Sequence[str] = (),
) -> Adoption:
    """Return what `path` becomes, submitted in `folder` with `arguments` and `options` of sbatch.

    `known` is the cluster of --cluster, which then takes the place of a cluster file of its own. Raises AdoptionError
    if the file can't be a job, and OSError if it can't be read.
    """
    return adoption_of(read_script(path, SiteFacts(), tuple(arguments), options), folder, known, below_top)


def adoption_of(script: BatchScript, folder: Path, known: Any = None, below_top: str = ".") -> Adoption:
    """Return what a script becomes; `below_top` is `folder` relative to its project's top. Raises AdoptionError."""
    try:
        return _adopted(script, folder, known, below_top)
    except RecursionError:
        raise AdoptionError(
            f"{script.path} has statements inside of others, deeper than they can be read",
            "write the training outside of them",
        ) from None


def _adopted(script: BatchScript, folder: Path, known: Any, below_top: str) -> Adoption:
    _refuse_uncheckable(script)
    faults = diagnosis_of(script).findings
    original, found = script, roles_of(script)
    if found is not None:
        script = found.script
    account, keys = Account(), Keys()
    _note_shell(script, account)
    launch = main_launch(script)
    note_from_outside(script, launch, account)
    start = start_of(script, launch, account) if found is None else found.start_of(launch, account)
    # From here on, what only a run decides is no value of a variable, and no word of the command.
    hidden = script_of(script.path, script.raw, script.site, script.arguments, script.options, hides_undecided=True)
    parts = parts_of(hidden, launch)
    opened, shown = in_reading(hidden, script, launch)
    _refuse_loop(parts, shown, script.path)
    place = place_of(script, parts, folder, below_top)
    read_directives(script, shown, start, keys, account)
    run = run_of(opened, shown, start, account, place)
    read_container(script, shown, keys, account, place.base)
    _fill_command(script, run, start, place, keys)
    read_setup(script, shown, start, parts, run, keys, account, place)
    if parts.launch is not None:
        note_left_out(script, parts.launch, shown, account, place)
        _fill_training(parts.launch, keys, account)
    note_rest(script, shown, account)
    # A node has a slot for each CPU or GPU, or as many GPUs as the cluster file of --cluster says.
    no_slots = not start.gpus or start.gpus_beyond_ranks if known is None else known.accelerators_per_host != start.gpus
    if start.nodes > 1 and no_slots and (known is None or found is None):
        keys.job["hosts"] = start.nodes
    if found is not None:
        found.fill(start, keys, account, place)
    take_out(original, keys, account)
    cluster = None
    if known is None:
        cluster = files.cluster_text(keys, script.path.name)
        cluster_from_text(cluster, CLUSTER_FILE)
    else:
        _leave_to(known, keys, account)
    job = files.job_text(keys, script.path.name)
    job_from_text(job, JOB_FILE)
    cured = _cured(faults, launch, " ".join(run.words), keys)
    return Adoption(job, cluster, account, start, cured, explained(cured, account.changes))


_SHELL = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?([\w.-]+)")


def _note_shell(script: BatchScript, account: Account) -> None:
    """Say that a job's lines run in bash. Raises AdoptionError for a shell with another grammar."""
    shell = _SHELL.match(script.line(1))
    if shell is None or shell[1] in ("bash", "sh", "dash"):
        return
    if shell[1] in ("csh", "tcsh", "fish"):
        raise AdoptionError(
            f"{script.path}:1 names {shell[1]}, and a job's prologue and command run in bash, whose grammar is another",
            "write the file for bash",
        )
    account.note(Where.LOST, 1, script.line(1), f"{IN_BASH} {shell[1]}")


def _fill_command(script: BatchScript, run: AdoptedCommand, start: AdoptedStart, place: PathOrigin, keys: Keys) -> None:
    keys.job.setdefault("name", script.path.name)  # as sbatch names it
    keys.job["command"] = run.words
    keys.job["instances"] = start.instances
    starter = launchers.find(run.words)
    by_itself = starter is not None and (starter.launcher.starts_cpu_ranks or start.gpus > 0)
    if by_itself != (start.per == "node") and not (start.per == "node" and start.instances == 1 and start.gpus <= 1):
        keys.job["command_per"] = start.per
    if run.words[:2] == ["uv", "run"]:
        run.env.setdefault("UV_PROJECT_ENVIRONMENT", f"{place.base}/.venv")
        keys.comments["env", "UV_PROJECT_ENVIRONMENT"] = "else uv makes one in the copy of the project"


def _fill_training(training: Statement, keys: Keys, account: Account) -> None:
    account.note(Where.JOB, training.line, training.text.split("\n")[0], "command", training.last, training.span)
    # What explains how ranks start is no longer true.
    above = "\n".join(training.above)
    if above and not re.search(r"(?i)srun|bash|launch|slurm|gpu|debug|rank", above):
        keys.comments["command",] = above


def _cured(faults: Sequence[Finding], launch: LaunchedProgram, command: str, keys: Keys) -> tuple[str, ...]:
    """Return the codes that doctor finds in the file and that the job does not have."""
    cured = dict.fromkeys(one.code for one in faults if one.code in CURED and one.severity is not Severity.NOTE)
    prologue = str(keys.cluster.get("prologue"))
    if re.search(r"SLURM_(?:NODEID|PROCID|LOCALID)", prologue):
        cured.pop("rank-expanded-early", None)  # the prologue runs once, too
    if re.search(r"VISIBLE_DEVICES['\"]?(?:=|: )", f"{prologue} {command} {keys.job.get('env')}"):
        cured.pop("sets-visible-devices", None)
    if any(one.code == "port-fixed" and re.search(rf"\b{one.facts['port']}\b", command) for one in faults):
        cured.pop("port-fixed", None)  # the program's own arguments are kept
    options = launch.launcher.options.values() if launch.launcher is not None else ()
    empty = {source for value in options if value is not None for source in value.sources if source}
    if any(one.code == "unset-variable" and empty.intersection(one.text.split()) for one in faults):
        cured["unset-variable"] = None  # trainjob tells the launcher its figures
    if "gpus-per-task" in keys.of_cluster("srun"):
        cured.pop("gpus-per-task-hides-peers", None)
    return tuple(cured)


def _refuse_uncheckable(script: BatchScript) -> None:
    """Raise AdoptionError where bash and YAML would not agree on what a line is, and for more than anybody reads."""
    found = _LONE_CR.search(script.raw)
    if found is not None:
        line = script.raw.count(b"\n", 0, found.start()) + 1
        raise AdoptionError(
            f"{script.path}:{line} has a carriage return within a line, which bash takes for a part of the word there",
            "take it out, or end each line with a line feed",
        )
    if len(script.commands) + len(script.assignments) > _MOST_STATEMENTS:
        raise AdoptionError(
            f"{script.path} runs more than {_MOST_STATEMENTS:,} commands and assignments: nobody checks each of them",
            "keep what starts the training in the file, and call the rest from it",
        )


def _refuse_loop(parts: Parts, launch: LaunchedProgram, path: Path) -> None:
    if "loop" in parts.enclosing and not is_once_per_node(launch):
        raise AdoptionError(
            f"{path}:{launch.place} starts the training in a loop, and a job runs it once",
            "adopt the file with one turn of the loop, and give the others as a sweep",
        )


def _leave_to(known: Any, keys: Keys, account: Account) -> None:
    """Move directives to the job that the cluster file of --cluster does not have, and say which keys it lacks."""
    own, site = keys.of_cluster("directives"), known.directives
    others = {name: value for name, value in own.items() if site.get(name) != value}
    if others:
        keys.job["directives"] = {**others, **keys.of_job("directives")}
    container, margin_s = keys.of_cluster("container"), keys.of_cluster("time_limit_signal").get("margin_s", 120)
    stated = {
        **{f"nodes: {name}": (value, getattr(known.node, name)) for name, value in keys.under("nodes").items()},
        **{f"srun: {name}": (value, known.srun.get(name)) for name, value in keys.of_cluster("srun").items()},
        "container: options": (container.get("options"), known.container.options),
        "container": (container.get("image"), known.container.image),
        "login_environment": (True, known.login_environment),
        "USR1": (margin_s, known.time_limit_signal.margin_s),
    }

    def in_known(entry: Entry) -> Entry:
        if entry.what.startswith("directives: "):
            return entry._replace(where=Where.JOB) if entry.what.partition(": ")[2] in others else entry
        if entry.what.startswith("prologue"):
            has_it = entry.text.strip() in {text.strip().split("\n")[0] for text in known.prologue}
            return entry if has_it else entry._replace(where=Where.LOST, what="the cluster file's prologue lacks it")
        key = next((key for key in stated if f"{entry.what}:".startswith(f"{key}:")), "USR1")
        ours, theirs = (str(value).lower() if isinstance(value, bool) else value for value in stated[key])
        name = {"container": "container: image", "USR1": "time_limit_signal: margin_s"}.get(key, key)
        what = f"{name} is {'not stated' if theirs is None else theirs} in the cluster file, and {ours} here"
        return entry if ours == theirs else entry._replace(where=Where.LOST, what=what)

    account.entries = [in_known(one) if one.where is Where.CLUSTER else one for one in account.entries]
