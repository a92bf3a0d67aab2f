"""Runs a batch file on a private Slurm under plain sbatch, and returns what was seen of it."""

from __future__ import annotations

import getpass
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchfiles.rehearsal import requested_cluster
from batchfiles.rehearsal.following import follow
from batchfiles.rehearsal.job import BatchJob
from batchfiles.rehearsal.recording import EndedJob, Recording, calls_in, processes_in
from batchfiles.slurm.layers import starts_program
from batchfiles.slurm.script import BatchScript
from trainjob.cluster import slurm_text
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.contract.programs import launchers
from trainjob.contract.programs.helpers import COPIES, ENVIRONMENTS
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines import process
from trainjob.rehearse import gpus
from trainjob.rehearse.slurm import accepted_options, configuration, ipus, root
from trainjob.rehearse.slurm.description import description_of
from trainjob.rehearse.slurm.private import PrivateSlurm, new_folder, private_slurm

_STANDINS = Path(__file__).with_name("programs")
READ_BY_BASH = _STANDINS / "bash_env.sh"
_HOOKS = package.folder() / "launch" / "hooks"
# Names under which the recording program stands on PATH: what is stood in for, and what it passes on to.
_PROGRAMS = (
    *ENVIRONMENTS,
    *("apptainer", "singularity", "shifter", "docker", "podman", "nsys", "ncu"),
    *COPIES,
    *("srun", "sbatch", "scancel", "mpirun", "mpiexec", "horovodrun", "hostname", "python", "python3"),
    *dict.fromkeys(row.starts[0][0] for row in launchers.LAUNCHERS),
)
_READ_ONLY = "it writes outside of its project, the home and /tmp, which a rehearsal keeps as they are (--writable)"
_RANKS = 64  # that two cores start in some minutes
_GB_PER_RANK = 0.3  # with torch
_LOGIN_WITHIN_S = 300.0  # profiles that start pyenv or conda take a minute on a busy machine


@dataclass(frozen=True)
class BatchRun:
    """A batch file to run. Jobs write into copies in memory of `folder`, of the home and of the mapped folders."""

    script: BatchScript
    folder: Path  # from which sbatch is called
    cluster: SlurmCluster
    top: Path | None = None  # of the project that `folder` is in
    arguments: tuple[str, ...] = ()  # of the batch file
    maps: Mapping[str, Path] = field(default_factory=dict)  # a folder that only the cluster has -> one that is here
    python: str = "python3"  # what stand-in GPUs are made for
    has_gpus: bool = True
    takes_whole_nodes: bool = False  # with their GPUs, for which no directive asks
    needs_log_folder: bool = True  # False: where a relative one is missing, the log goes to the working folder
    stop_after_s: float = 10.0  # of training
    inject: str | None = None  # as of base.Rehearsal
    to_the_end: bool = False  # after the fault, with the jobs that it submits
    slurm: str | None = None  # a release; None: the installed one
    environment: Mapping[str, str] = field(default_factory=dict)  # more variables for the job
    programs: Path | None = None  # a folder of programs that PATH names last
    stood_in_for: str = ""  # the training that is not here
    missing: tuple[str, ...] = ()  # programs that are not here: missing_programs()
    writable: tuple[Path, ...] = ()  # folders in which jobs write, besides those of temporary files
    keep: Path | None = None  # a folder that gets what the job wrote
    say: Callable[[str], None] = lambda _line: None


def record(run: BatchRun) -> Recording:
    """Return what was seen of the file, which ran unmodified. Raises UserError where no private Slurm can run."""
    has_gpus = run.has_gpus and run.cluster.node.accelerator == "gpu"
    torch = gpus.make_ready(run.python, run.say) if has_gpus else None
    with new_folder() as place:
        seen = place / "seen"
        seen.mkdir(mode=0o700)
        environment = {**_environment(run, place, seen, torch, has_gpus=has_gpus), **run.environment}
        description = description_of(run.cluster, requested_cluster.nodes_of(run.script), release=run.slurm)
        overlays = [*((str(here), there) for there, here in run.maps.items()), (str(run.top or run.folder),) * 2]
        settings = {**description.settings, **_settings(run, place)}
        files, folders = missing_here(run)
        overlays += [(str(run.folder), target) for target in folders]
        if run.keep is not None:
            run.keep.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            run.keep.mkdir(mode=0o700)
        writable = [str(one) for one in (*run.writable, run.keep) if one is not None]
        description = replace(
            description,
            overlays=overlays,
            writable=writable,
            empty_files=files,
            settings=settings,
            has_every_address=True,
        )
        with private_slurm(description, run.say) as slurm:
            run.say(f"a private Slurm is up: {description.in_words}")
            slurm.set_job_environment(environment)
            login = _set_by_login_shells(slurm)
            sent = submit_held(run, slurm, environment)
            if sent.code != 0:
                text = (sent.stderr.strip() or sent.text.strip()).splitlines()
                refused = "; ".join(line.removeprefix("sbatch: error: ") for line in text)
                return Recording((), (), (), (), description.gres_count, refused=refused)
            job = BatchJob(slurm, sent.text.strip().split(";")[0], seen, with_more=run.to_the_end)
            run.say(f"{run.script.path.name} is submitted with plain sbatch, as job {job.id}")
            limit = run.script.header.value("time") or "UNLIMITED"
            stopped = follow(job, run.inject, run.stop_after_s, limit, run.say, longest_sleep(run.script))
            jobs = job.ended()
            logs = slurm.logs() if is_slurms_fault(jobs) else ""
            if run.keep is not None:
                written = f"{slurm.folder}/{configuration.PRIVATE}/overlays/{len(overlays) - 1}/."
                slurm.run(["cp", "--recursive", "--preserve=timestamps", written, str(run.keep)], check=False)
        notes = [
            *(gpus.Usage.read(place).notes() if has_gpus else ()),
            *([f"a training that only waits, for {run.stood_in_for} is not here"] if run.stood_in_for else ()),
            *(f"{name} does not exist here, and was stood in for" for name in run.missing),
            *(f"{path} does not exist here; an empty file was used instead" for path in files),
            *(f"{path} does not exist here; the folder of the submission was used instead" for path in folders),
            *([_READ_ONLY] if any("Read-only file system" in job.output for job in jobs) else ()),
        ]
        return Recording(
            jobs=jobs,
            steps=list(job.steps.values()),
            processes=processes_in(seen),
            calls=calls_in(seen),
            gpus_per_node=description.gres_count if has_gpus else 0,
            stopped=stopped,
            notes=notes,
            given={**root.our_environment(), **environment},
            login=login,
            slurm_logs=logs,
        )


def longest_sleep(script: BatchScript) -> float:
    """Return the seconds of the file's longest `sleep`, up to a minute: what keeps a node busy may sleep for days."""
    words = [one.words[1].text for one in script.named("sleep") if len(one.words) > 1 and not one.dead]
    return max(
        (float(word) for word in words if re.fullmatch(r"\d+(?:\.\d+)?", word) and float(word) <= 60), default=0.0
    )


_OF_SLURM = re.compile(
    r"(?:srun|slurmstepd|sbatch): (?:error|fatal): .*"
    r"(?:[Cc]ommunication|timed out|launch\b.*failed|Unable to (?:contact|confirm|create))"
)


def is_slurms_fault(jobs: Sequence[EndedJob]) -> bool:
    """Return whether a job ended, or never began, because of Slurm's own daemons."""
    return not jobs or any(
        one.state.startswith(("NODE_FAIL", "BOOT_FAIL"))
        or "launch" in one.reason
        or _OF_SLURM.search(one.output) is not None
        for one in jobs
    )


_SHOW = r"printf '\0'; env -0"  # the first byte ends what a profile prints


def _set_by_login_shells(slurm: PrivateSlurm) -> frozenset[tuple[str, str]]:
    """Return what a login shell sets in an empty environment: Slurm's own of --export=NONE (`su -`), and `bash -l`."""
    user = root.our_user()
    who = [f"HOME={user.pw_dir}", f"USER={user.pw_name}", f"LOGNAME={user.pw_name}", f"SHELL={user.pw_shell}"]
    shown = (
        slurm.run_as_root(["su", "-", user.pw_name, "-c", _SHOW], timeout_s=_LOGIN_WITHIN_S, check=False),
        slurm.run(["env", "-i", *who, "bash", "-lc", _SHOW], timeout_s=_LOGIN_WITHIN_S, check=False),
    )
    variables = [text for one in shown for text in one.stdout.decode(errors="replace").split("\0")[1:]]
    return frozenset((name, value) for name, equals, value in (text.partition("=") for text in variables) if equals)


def missing_programs(script: BatchScript, python: str) -> tuple[str, ...]:
    """Return the programs that are not here and are stood in for by name.

    They are other versions of Python, programs that start others, as a site's own do (`site_wrapper exec python`),
    `host`, and what the file looks for in any case (`which nvcc`).
    """
    outermost = [
        next((layer.words for layer in one.layers if layer.name in ("wrapper", "container")), one.program)
        for one in script.launches
        if not one.command.is_call
    ]
    names = [words[0].text for words in outermost if any(starts_program(word) for word in words[1:])]
    words = (word.text for one in script.commands for word in one.words)
    names += [text for text in words if re.fullmatch(r"python\d+(?:\.\d+)?", text)]
    names += [one.name for one in script.named("host")]
    asked = (one for one in script.named("which") if "condition" not in one.within)
    names += [word.text for one in asked for word in one.words[1:]]
    path = process.search_path(python)
    return tuple(
        name
        for name in dict.fromkeys(names)
        if re.fullmatch(r"\w[\w.-]*", name) and name not in _PROGRAMS and shutil.which(name, path=path) is None
    )


def missing_here(run: BatchRun) -> tuple[list[str], list[str]]:
    """Return the files that shells run and sh reads, and the folders in which sbatch and sh start something, not here.

    bash passes over what it reads (BASH_ENV). sh has no such file, and ends at the first that it should read.
    """
    run_by_shells = (one for one in run.script.named("bash", "sh") if not one.source and not one.dead)
    called = [one.words[1] for one in run_by_shells if len(one.words) > 1]
    named = [("cd", run.script.header.value("chdir") or "")]
    named += [(".", str(with_home(word.text))) for word in called if word.value.known and re.match(r"~?/", word.text)]
    if re.match(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(?:da)?sh\b", run.script.lines[0]):
        named += [
            (one.name, one.words[1].text)
            for one in run.script.named(".", "cd")
            if len(one.words) > 1 and one.words[1].value.known and not one.source and not one.dead
        ]
    missing = {
        path.rstrip("/"): name
        for name, path in named
        if path.startswith("/")
        and not os.path.exists(path)
        and not any(Path(path).is_relative_to(there) for there in run.maps)
    }
    of_name = {what: [path for path, name in missing.items() if name == what] for what in (".", "cd")}
    return of_name["."], of_name["cd"]


def _environment(run: BatchRun, place: Path, seen: Path, torch: Path | None, *, has_gpus: bool) -> dict[str, str]:
    """Return the environment that sbatch hands to the job, whose programs are written to `place`."""
    found = {"PATH": process.search_path(run.python), "PYTHONPATH": ""}
    if has_gpus:
        node = run.cluster
        found = gpus.environment(place, node.host_node.accelerators, node.accelerator_type, run.python, torch)
    programs = place / "programs"
    programs.mkdir()
    for name in (*_PROGRAMS, *run.missing):
        shutil.copyfile(_STANDINS / "program.sh", programs / name)
        (programs / name).chmod(0o755)
    shutil.copyfile(_STANDINS / "launcher.py", programs / ".launcher.py")
    if run.programs is not None:
        found["PATH"] += f":{run.programs}"
    python_path = ":".join(path for path in (str(_HOOKS), found["PYTHONPATH"]) if path)
    prefix = str(Path(run.python).parent.parent)
    disk = place / "disk"
    disk.mkdir()
    return {
        # What conda, a virtualenv and modules set, which are stood in for: `set -u` ends a job without them.
        **dict.fromkeys(("CONDA_PREFIX", "VIRTUAL_ENV", "CUDA_HOME"), prefix),
        "CONDA_DEFAULT_ENV": "base",
        **dict.fromkeys(("USER", "LOGNAME"), getpass.getuser()),  # as every login shell has them
        "SLURM_TMPDIR": str(disk),  # the job's own folder on the disk of a node, at many sites
        **found,
        **ipus.LOOPBACK,
        "PATH": f"{programs}:{found['PATH']}",
        "PYTHONPATH": python_path,
        "BASH_ENV": str(READ_BY_BASH),
        "TRAINJOB_SEEN": str(seen),
        "TRAINJOB_SEEN_PATH": found["PATH"],
        "TRAINJOB_SEEN_PROGRAMS": str(programs),
        "TRAINJOB_SEEN_MISSING": " ".join(run.missing),
        "TRAINJOB_SEEN_PYTHONPATH": python_path,
    }


def _settings(run: BatchRun, place: Path) -> dict[str, str]:
    """Return the lines of slurm.conf for the file's own environment and options."""
    prolog = place / "prolog"
    # Only with --export=NONE; otherwise the file's own exports must reach its steps.
    shared = configuration.JOB_ENVIRONMENT
    lines = ["#!/bin/sh", f'[ -n "${{TRAINJOB_SEEN-}}" ] || cat "${{SLURM_CONF%/*}}/{shared}"']
    node = run.cluster.node
    if run.has_gpus and node.accelerator == "gpu" and (node.gres_name != "gpu" or run.takes_whole_nodes):
        # Slurm tells tasks which devices they have only if they ask for a GRES named gpu.
        devices = ",".join(map(str, range(node.accelerators)))
        lines.append(
            f'case ${{CUDA_VISIBLE_DEVICES-}} in "" | NoDevFiles) echo export CUDA_VISIBLE_DEVICES={devices} ;; esac'
        )
    prolog.write_text("\n".join([*lines, ""]))
    prolog.chmod(0o755)
    # As long as a site's: many files make a port of its last digits.
    # Within KillWait, 30 s at most sites, a job that its limit ends submits the one that continues.
    found = {"TaskProlog": str(prolog), "KillWait": "30" if run.to_the_end else "5", "FirstJobId": "10001"}
    found["MaxArraySize"] = str(slurm_text.LARGEST + 1)  # as large as an array of the file's can be
    if options := requested_cluster.site_options(run.script):
        otherwise = "take them out of a copy of the file"
        found |= accepted_options.settings(place, options, run.slurm, otherwise)
    return found


def submit_held(run: BatchRun, slurm: PrivateSlurm, environment: Mapping[str, str]) -> process.Completed:
    """Submit the file with plain sbatch; return what sbatch answered. Raises UserError if the file was changed.

    The job is held until Slurm has told that it got the bytes that were read.
    """
    words = ["sbatch", "--parsable"]
    if (array := run.script.header.value("array")) and (ends := _first_and_last(array)):
        run.say(f"of the array {array}, elements {ends} are rehearsed")
        words.append(f"--array={ends}")
    words += [*_fewer_nodes(run), *_names_of_here(run, slurm)]
    if run.takes_whole_nodes and run.script.header.value("exclusive") is None:
        run.say("no directive requests the GPUs that the file uses: --exclusive, as at sites that allocate whole nodes")
        words.append("--exclusive")
    logs = [Path(run.script.header.value(name) or "") for name in ("output", "error")]
    missing = [log.parent for log in logs if not (run.folder / log).parent.exists()]
    elsewhere = [one for one in missing if one.is_absolute() and not any(one.is_relative_to(to) for to in run.maps)]
    if elsewhere or (missing and not run.needs_log_folder):
        run.say(
            f"the folder of its log is missing here: {(elsewhere or missing)[0]}. The log goes to the working folder"
        )
        words += [f"--{name}={run.folder}/slurm-%j.out" for name in ("output", "error")]
    # The file can change until sbatch reads it: nothing starts before Slurm reports what it received.
    words += ["--hold", *run.script.options, str(run.script.path), *run.arguments]
    sent = slurm.run(words, folder=run.folder, environment=environment, check=False)
    if sent.code == 0:
        job = sent.text.strip().split(";")[0]
        got = slurm.run(["scontrol", "write", "batch_script", job, "-"], check=False)
        if got.stdout.rstrip(b"\n") != run.script.raw.rstrip(b"\n"):
            slurm.run(["scancel", job], check=False)
            raise UserError(f"{run.script.path} was changed while it was rehearsed", "read it again, and rehearse it")
        slurm.run(["scontrol", "release", job])
    return sent


def _fewer_nodes(run: BatchRun) -> list[str]:
    """Return the options of sbatch that let a large job run here, on some of its nodes."""
    request, nodes = run.script.request, requested_cluster.nodes_of(run.script)
    per_node = max(request.gpus_per_node or 1, request.tasks_per_node or 1)
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    fewer = max(2, min(_RANKS, int(memory_gb / _GB_PER_RANK)) // per_node)
    if nodes <= fewer or run.script.header.value("nodes") is None:
        return []
    run.say(
        f"the file asks for {nodes} nodes, and {fewer} of them are rehearsed, with {fewer * per_node} GPUs or tasks. "
        "What says the number of nodes without asking Slurm for it will miss the others"
    )
    tasks = [f"--ntasks={fewer * per_node}"] if run.script.header.value("ntasks") and request.tasks else []
    return [f"--nodes={fewer}", *tasks]


def _names_of_here(run: BatchRun, slurm: PrivateSlurm) -> list[str]:
    """Return the options of sbatch that put nodes of the private Slurm in the place of nodes named by the file.

    Its reservation is made.
    """
    header, known = run.script.header, slurm.description.node_names
    chosen = {"nodelist": known[0], "exclude": known[-1]}
    options = [f"--{name}={node}" for name, node in chosen.items() if header.value(name)]
    # Nor do their sockets.
    shapes = ("sockets-per-node", "cores-per-socket", "threads-per-core")
    options += [f"--{name}=1" for name in shapes if header.value(name)]
    if options:
        run.say(f"the nodes that the file names do not exist here: {' '.join(options)} instead")
    if reservation := header.value("reservation"):
        facts = [f"ReservationName={reservation}", "StartTime=now", "Duration=UNLIMITED", "Nodes=ALL"]
        slurm.run_as_root(["scontrol", "create", "reservation", *facts, f"Users={root.our_user().pw_name}"])
    return options


def _first_and_last(array: str) -> str | None:
    """Return the first and the last element of --array, where it has more: what fails at an end is seen."""
    numbers: list[int] = []
    for part in array.partition("%")[0].split(","):
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        numbers += range(int(first), int(last or first) + 1, int(step) if step.isdigit() and int(step) else 1)
    return f"{numbers[0]},{numbers[-1]}" if len(numbers) > 2 else None
