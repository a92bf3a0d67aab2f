"""Rehearses a job for a Slurm cluster: a private Slurm, plain sbatch, the fault if one is injected, a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines import process
from trainjob.observe import arrays
from trainjob.planning.words import quantity
from trainjob.records import updates, usage
from trainjob.rehearse import gpus
from trainjob.rehearse.base import COMPLETED, INSTALLED, Rehearsal, RehearsalVerdict, Stopwatch
from trainjob.rehearse.slurm import faults, ipus, releases, root, step
from trainjob.rehearse.slurm.description import Description, binds, description_of
from trainjob.rehearse.slurm.faults import FAULTS
from trainjob.rehearse.slurm.job import RehearsedJob
from trainjob.rehearse.slurm.private import PrivateSlurm, new_folder, private_slurm

_AT_WORK_WITHIN_S = 600.0
# After which a command whose progress can't be seen, and that catches no signal, is asked to stop all the same.
_BEGINS_WITHIN_S = 10.0
# A job that was restarted must make this many more updates.
_ENOUGH_UPDATES = 5


def rehearse(rehearsal: Rehearsal) -> RehearsalVerdict:
    """Return how the job ended under a private Slurm, which is removed afterwards.

    Raises UserError if the machine can't run one, or if the job ends before the fault is injected.
    """
    cluster = SlurmCluster.of(rehearsal.request.cluster)
    if rehearsal.inject == "node-failure" and cluster.has_groups:
        raise UserError(
            "--inject node-failure needs a node to spare, and a job on groups of nodes takes all of them",
            "Inject another fault",
        )
    if rehearsal.inject and not cluster.has_scheduler and rehearsal.inject not in step.FAULTS:
        raise UserError(
            f"--inject {rehearsal.inject} is for a job of its own: nothing starts a run inside an allocation again",
            f"Inject {' or '.join(step.FAULTS)}, or rehearse it with --in none",
        )
    if rehearsal.inject and rehearsal.request.elements:
        raise UserError(f"--inject {rehearsal.inject} works on a single job", "Leave out --array and --sweep")
    stopwatch = Stopwatch()
    with contextlib.ExitStack() as held:
        site = held.enter_context(simulated(rehearsal, cluster))
        if rehearsal.has_gpus:
            stopwatch.done("stand-in GPUs ready")
        slurm = held.enter_context(private_slurm(site.description, rehearsal.say))
        stopwatch.done("Slurm up")
        rehearsal.say(f"a private Slurm is up: {site.description.in_words}")
        for line in _differences(rehearsal, cluster, site.description):
            rehearsal.say(line)
        job = submit(rehearsal, cluster, slurm, site.environment)
        stopwatch.done("submitted")
        how = "submitted with plain sbatch, as" if cluster.has_scheduler else "started with plain srun, as a step of"
        rehearsal.say(f"{rehearsal.rendered.script} is {how} job {job.id}")
        same_bytes = has_the_same_bytes(rehearsal, job)
        _follow(rehearsal, job, stopwatch)
        stopwatch.done("ended")
        verdict = _verdict(rehearsal, job, stopwatch, same_bytes=same_bytes)
        if site.gpus is not None:
            verdict = dataclasses.replace(verdict, gpus=gpus.Usage.read(site.gpus).lines())
    stopwatch.done("taken down")
    return verdict


@dataclass(frozen=True)
class RehearsedSite:
    """The Slurm to start, and the environment that its job needs besides the redirects."""

    description: Description
    environment: Mapping[str, str]
    gpus: Path | None = None  # where ranks with stand-in GPUs leave their summaries


@contextlib.contextmanager
def simulated(rehearsal: Rehearsal, cluster: SlurmCluster) -> Iterator[RehearsedSite]:
    """Yield what stands in for the cluster, and remove its files afterwards."""
    topology = rehearsal.request.plan.topology
    release = None if rehearsal.slurm == INSTALLED else rehearsal.slurm
    accounting = cluster.slurm.accounting and (release is not None or root.has_accounting())
    description = description_of(cluster, rehearsal.request.plan.host_count, release=release, accounting=accounting)
    python = rehearsal.redirects["TRAINJOB_PYTHON"]
    if cluster.ipu_keys is not None:
        with new_folder() as place:
            environment = ipus.environment(place, cluster, rehearsal.redirects)
            settings = {**description.settings, **ipus.settings(place, cluster, topology.devices, release)}
            yield RehearsedSite(dataclasses.replace(description, settings=settings), environment)
    elif rehearsal.has_gpus:
        torch = gpus.make_ready(python, rehearsal.say)
        with new_folder() as place:
            environment = gpus.environment(
                place, cluster.host_node.accelerators, cluster.accelerator_type, python, torch
            )
            yield RehearsedSite(description, {**environment, **ipus.LOOPBACK}, place)
    else:
        yield RehearsedSite(description, {"PATH": process.search_path(python), **ipus.LOOPBACK})


def _differences(rehearsal: Rehearsal, cluster: SlurmCluster, description: Description) -> Iterator[str]:
    """Yield a line for each way in which the rehearsal differs from the site."""
    site, accelerator = cluster.slurm, cluster.node.accelerator
    if description.release:
        yield f"it is Slurm {description.release}"
    elif site.version and (release := releases.release_of(site.version)) not in (None, root.installed_release()):
        yield f"the site has Slurm {site.version}, not the one installed here: --slurm {release} rehearses on it"
    if binds(cluster) and description.task_plugin == "none":
        yield (
            f"the site binds tasks to CPUs (task/{site.task_plugin}), and this machine has fewer than the "
            f"{max(group.cpus for group in cluster.groups)} of a node: tasks are not bound"
        )
    if site.accounting and not description.accounting:
        yield "the site has accounting, and slurmdbd or MariaDB is not installed here: accounts are not checked"
    if rehearsal.has_gpus:
        counts = dict.fromkeys(str(group.accelerators) for group in cluster.groups)
        yield f"stand-in GPUs: {' or '.join(counts)} per node; their work is done on the CPU"
    elif rehearsal.redirects.get("TRAINJOB_DEVICE") == "cpu":
        if cluster.ipu_keys is not None:
            yield "stand-ins replace poprun, vipu, poptorch and popdist: instances train on the CPU"
        elif accelerator != "cpu":
            yield f"{accelerator.upper()}s are only counted, not simulated: ranks train on the CPU over gloo"


def submit(
    rehearsal: Rehearsal, cluster: SlurmCluster, slurm: PrivateSlurm, environment: Mapping[str, str]
) -> RehearsedJob:
    """Return the job, submitted with plain sbatch from its new run directory, or as a step of a job that has nodes."""
    paths = rehearsal.create()
    if rehearsal.request.job.command:
        python_path = environment.get("PYTHONPATH") or rehearsal.request.job.env.get("PYTHONPATH")
        environment = {**environment, **updates.hooked(paths.folder, python_path)}
    # Not through sbatch's environment: the script's own --export=NONE holds, as on a cluster.
    slurm.set_job_environment({**rehearsal.redirects, **environment})
    if not cluster.has_scheduler:
        return step.start(rehearsal, slurm, paths)
    sent = slurm.run(["sbatch", "--parsable", rehearsal.rendered.script], folder=paths.folder)
    ranks, trains = rehearsal.request.plan.topology.ranks, not rehearsal.request.job.command
    job = sent.text.strip().split(";")[0]
    return RehearsedJob(slurm, job, paths, cluster, ranks, trains, is_output_shown=rehearsal.show is not None)


def has_the_same_bytes(rehearsal: Rehearsal, job: RehearsedJob) -> bool:
    """Return whether Slurm's copy of the script, and the files of the run directory, are byte for byte as rendered."""
    if not job.cluster.has_scheduler:  # srun starts the script where it is
        return rehearsal.has_rendered_files(job.paths)
    held = job.slurm.run(["scontrol", "write", "batch_script", job.id, "-"]).stdout
    script = rehearsal.rendered.files[rehearsal.rendered.script].content
    if job.cluster.has_groups:  # sbatch takes such a script apart, and drops empty lines
        held, script = (b"\n".join(filter(None, text.split(b"\n"))) for text in (held, script))
    # Some versions of Slurm add a newline.
    return held.rstrip(b"\n") == script.rstrip(b"\n") and rehearsal.has_rendered_files(job.paths)


def _elements(rehearsal: Rehearsal, job: RehearsedJob) -> list[RehearsedJob]:
    """Return the elements of an array, each as a separate job; none if the job is not an array."""
    # What elements print is not shown.
    here = dataclasses.replace(job, is_output_shown=False)
    return [dataclasses.replace(here, paths=job.paths.of_element(number)) for number in rehearsal.request.elements]


def _follow(rehearsal: Rehearsal, job: RehearsedJob, stopwatch: Stopwatch) -> None:
    """Wait until the job has ended, and inject the fault once all ranks are at work."""
    if elements := _elements(rehearsal, job):
        job.wait_for(lambda: any(one.attempt for one in elements), "an array element started", _AT_WORK_WITHIN_S)
    else:
        job.wait_for(lambda: job.attempt >= 1, "it started", _AT_WORK_WITHIN_S)
    stopwatch.done("started")
    fault = FAULTS[rehearsal.inject] if rehearsal.inject else None
    if not elements and (fault is not None or job.trains):
        job.wait_for(job.is_at_work, "all ranks were at work", _AT_WORK_WITHIN_S)
        stopwatch.done("all ranks at work")
        hosts = rehearsal.request.plan.topology.host_count
        rehearsal.say(f"{quantity(job.ranks, 'rank')} at work on {quantity(hosts, 'node')}")
        if fault is not None and fault.asks_ranks and not job.trains:
            latest = clock.monotonic() + _BEGINS_WITHIN_S
            job.wait_for(
                lambda: job.update() or faults.hear_of_faults(job.paths) or clock.monotonic() > latest,
                "it had begun to train",
                _AT_WORK_WITHIN_S,
            )
    if fault is None:
        job.follow()
        return
    rehearsal.say(f"injected: {rehearsal.inject}; expected: {fault.expected(job.cluster)}")
    fault.inject(job)
    stopwatch.done("injected")

    def stop_once_it_has_trained_enough() -> None:
        if job.attempt > 1 and job.is_at_work():
            stopwatch.done("back at work")
            has_enough = (job.update() or 0) >= job.began_at() + _ENOUGH_UPDATES
            if has_enough and job.trains and "TRAINJOB_MAX_UPDATES" not in rehearsal.redirects:
                job.paths.stop.touch()

    faults.follow_back(job, rehearsal.request.times.limit or "UNLIMITED", stop_once_it_has_trained_enough)


def _verdict(rehearsal: Rehearsal, job: RehearsedJob, stopwatch: Stopwatch, *, same_bytes: bool) -> RehearsalVerdict:
    fault = FAULTS[rehearsal.inject] if rehearsal.inject else None
    state, attempts, update = job.state, job.attempt, job.update()
    problem: str | None = None
    if elements := _elements(rehearsal, job):
        expected = "all array elements are COMPLETED"
        summary = f"COMPLETED: {quantity(len(elements), 'array element')}"
        state, attempts = arrays.overall([one.state for one in elements]), max(one.attempt for one in elements)
        wrong = next((one for one in elements if one.state != states.COMPLETED), None)
        if wrong is not None:
            problem = f"array element {wrong.paths.element} is {wrong.state}. {wrong.last_output()}"
        update = None
    else:
        expected = fault.expected(job.cluster) if fault else COMPLETED
        summary = _summary(rehearsal, job)
        if fault is not None:
            problem = fault.problem(job)
        elif state != states.COMPLETED:
            problem = f"the job is {state}"
        problem = f"{problem}. {job.last_output()}" if problem else None
    problem = problem or _other_worlds(rehearsal, job)
    if not same_bytes:
        problem = f"the files given to Slurm differ from the rendered ones. {job.last_output()}"
    return RehearsalVerdict(
        passed=problem is None,
        outcome=problem or summary,
        expected=expected,
        state=state,
        attempts=attempts,
        update=update,
        same_bytes=same_bytes,
        seconds=stopwatch.steps,
        folder=job.paths.folder,
    )


def _other_worlds(rehearsal: Rehearsal, job: RehearsedJob) -> str | None:
    """Return what is wrong if a launcher in the command has made a world of its own in every rank; else None."""
    topology = rehearsal.request.plan.topology
    seen = [[one.other_world_size for one in usage.lines(job.paths, n).new()] for n in range(topology.ranks)]
    sizes = [next((size for size in sizes if size is not None), None) for sizes in seen]
    if None in sizes:
        return None
    worlds = " and ".join(f"{count} of {quantity(size or 0, 'rank')}" for size, count in Counter(sizes).items())
    return (
        f"the ranks have formed other worlds ({worlds}) than the plan's one of {topology.replicas}: the command starts "
        "ranks by itself. Start it once per node: --command-per node"
    )


def _summary(rehearsal: Rehearsal, job: RehearsedJob) -> str:
    words = [job.state]
    if update := job.update():
        words.append(f"after {quantity(update, 'update')}")
    if job.attempt > 1:
        words.append(f"in {job.attempt} attempts")
        if job.trains:
            words.append(f"(the last began at update {job.began_at()})")
    if rehearsal.inject == "rank-death" and job.failure:
        words.append(f"and rank {job.failure.rank} is named, exit code {job.failure.exit_code}")
    if rehearsal.inject in ("cancel", "preempt") and job.attempt == 1:
        words.append(f"with a checkpoint of update {job.checkpoint()}")
    return " ".join(words)
