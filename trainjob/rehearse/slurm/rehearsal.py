"""Rehearses a job for a Slurm cluster: a private Slurm, plain sbatch, the fault if one is injected, a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainjob.backends import folder
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines import process
from trainjob.observe import arrays
from trainjob.planning.words import quantity
from trainjob.rehearse import gpus
from trainjob.rehearse.base import INSTALLED, Clock, Rehearsal, Verdict
from trainjob.rehearse.slurm import faults, folders, ipus, releases, root
from trainjob.rehearse.slurm.description import Description, binds, twin_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm
from trainjob.rehearse.slurm.trials import TRIALS, Trial
from trainjob.rehearse.slurm.watching import Scene, last_words, wait_for

_POLL_S = 0.1
_AT_WORK_WITHIN_S = 600.0
# A job that was restarted must make this many more updates.
_ENOUGH_UPDATES = 5
NOT_THE_SAME = "the files given to Slurm differ from the rendered ones"


def rehearse(rehearsal: Rehearsal) -> Verdict:
    """Return how the job ended under a private Slurm, which is removed afterwards.

    Raises UserError if the machine can't run one, or if the job ends before the fault is injected.
    """
    cluster = SlurmCluster.of(rehearsal.request.cluster)
    if rehearsal.inject == "node-failure" and cluster.has_groups:
        raise UserError(
            "--inject node-failure needs a node to spare, and a job on groups of nodes takes all of them",
            "Inject another fault",
        )
    if rehearsal.inject and rehearsal.request.elements:
        raise UserError(f"--inject {rehearsal.inject} works on a single job", "Leave out --array and --sweep")
    clock = Clock()
    with stage(rehearsal, cluster) as place, private_slurm(place.description, rehearsal.say) as slurm:
        clock.done("Slurm up")
        rehearsal.say(f"a private Slurm is up: {place.description.in_words}")
        _say_what_differs(rehearsal, cluster, place.description)
        if rehearsal.has_gpus:
            rehearsal.say(f"stand-in GPUs: {_per_node(cluster)}; their work is done on the CPU")
        elif rehearsal.redirects.get("TRAINJOB_DEVICE") == "cpu":
            _say_what_is_simulated(rehearsal, cluster)
        scene = submit(rehearsal, cluster, slurm, place.environment)
        clock.done("submitted")
        rehearsal.say(f"job.sbatch is submitted with plain sbatch, as job {scene.job}")
        same_bytes = holds_the_same_bytes(rehearsal, scene)
        _follow(rehearsal, scene, clock)
        clock.done("ended")
        verdict = _verdict(rehearsal, scene, clock, same_bytes=same_bytes)
        if place.gpus is not None:
            verdict = dataclasses.replace(verdict, gpus=gpus.Usage.read(place.gpus).lines())
    clock.done("taken down")
    return verdict


@dataclasses.dataclass(frozen=True)
class Stage:
    """The Slurm to start, and the environment that sbatch needs besides the redirects."""

    description: Description
    environment: dict[str, str]
    gpus: Path | None = None  # where ranks with stand-in GPUs leave their summaries


@contextlib.contextmanager
def stage(rehearsal: Rehearsal, cluster: SlurmCluster) -> Iterator[Stage]:
    """Yield the Slurm to start for a rehearsal, and the environment of its job."""
    topology = rehearsal.request.plan.topology
    release = None if rehearsal.slurm == INSTALLED else rehearsal.slurm
    accounting = cluster.slurm.accounting and (release is not None or root.has_accounting())
    description = twin_of(cluster, len(topology.hosts), release=release, accounting=accounting)
    if cluster.ipu_keys is not None:
        with folders.new_folder() as place:
            environment = ipus.environment(place, cluster, rehearsal.redirects)
            settings = {**description.settings, **ipus.settings(place, cluster, topology.devices, release)}
            yield Stage(dataclasses.replace(description, settings=settings), environment)
    elif rehearsal.has_gpus:
        torch = gpus.make_ready(rehearsal.redirects["TRAINJOB_PYTHON"], rehearsal.say)
        with folders.new_folder() as place:
            python = rehearsal.redirects["TRAINJOB_PYTHON"]
            environment = gpus.environment(
                place, cluster.accelerators_per_host, cluster.accelerator_type, python, torch
            )
            yield Stage(description, {**environment, **ipus.LOOPBACK}, place)
    else:
        path = process.search_path(rehearsal.redirects["TRAINJOB_PYTHON"])
        yield Stage(description, {"PATH": path, **ipus.LOOPBACK})


def _per_node(cluster: SlurmCluster) -> str:
    counts = dict.fromkeys(group.accelerators for group in cluster.groups)
    return f"{' or '.join(map(str, counts))} per node"


def _say_what_differs(rehearsal: Rehearsal, cluster: SlurmCluster, description: Description) -> None:
    site = cluster.slurm
    if description.release:
        rehearsal.say(f"it is Slurm {description.release}")
    elif site.version and (release := releases.release_of(site.version)) not in (None, root.installed_release()):
        rehearsal.say(
            f"the site has Slurm {site.version}, not the one installed here: --slurm {release} rehearses on it"
        )
    if binds(cluster) and description.task_plugin == "none":
        rehearsal.say(
            f"the site binds tasks to CPUs (task/{site.task_plugin}), and this machine has fewer than the "
            f"{max(group.cpus for group in cluster.groups)} of a node: tasks are not bound"
        )
    if site.accounting and not description.accounting:
        rehearsal.say(
            "the site has accounting, and slurmdbd or MariaDB is not installed here: accounts are not checked"
        )


def _say_what_is_simulated(rehearsal: Rehearsal, cluster: SlurmCluster) -> None:
    if cluster.ipu_keys is not None:
        rehearsal.say("stand-ins replace poprun, vipu, poptorch and popdist: instances train on the CPU")
    elif cluster.node.accelerator != "cpu":
        rehearsal.say(f"its {cluster.node.accelerator}s are allocated by count only: ranks train on the CPU, over gloo")


def submit(
    rehearsal: Rehearsal,
    cluster: SlurmCluster,
    slurm: PrivateSlurm,
    environment: Mapping[str, str],
    *,
    nodes: int | None = None,
) -> Scene:
    """Return the job, submitted with plain sbatch from its new run directory; with `nodes`, on fewer than planned."""
    project = rehearsal.project if rehearsal.selection is not None else None
    paths = folder.create(rehearsal.folder, rehearsal.rendered, project, rehearsal.selection)
    topology = rehearsal.request.plan.topology
    # Not through sbatch's environment: the script's own --export=NONE holds, as on a cluster.
    slurm.set_job_environment({**rehearsal.redirects, **environment})
    options = [] if nodes is None else [f"--nodes={nodes}"]
    submitted_at = time.time()
    sent = slurm.run(["sbatch", "--parsable", *options, rehearsal.rendered.script], folder=paths.folder)
    hosts = len(topology.hosts)
    return Scene(
        slurm=slurm,
        paths=paths,
        job=sent.text.strip().split(";")[0],
        cluster=cluster,
        instances=topology.instances if nodes is None else topology.instances // hosts * nodes,
        hosts=nodes or hosts,
        trains=not rehearsal.request.job.command,
        submitted_at=submitted_at,
    )


def holds_the_same_bytes(rehearsal: Rehearsal, scene: Scene) -> bool:
    """Return whether Slurm's copy of the script, and the files of the run directory, are byte for byte as rendered."""
    held = scene.slurm.run(["scontrol", "write", "batch_script", scene.job, "-"]).stdout
    script = rehearsal.rendered.files[rehearsal.rendered.script].content
    if scene.cluster.has_groups:  # sbatch takes such a script apart, and drops empty lines
        held, script = (b"\n".join(filter(None, text.split(b"\n"))) for text in (held, script))
    # Some versions of Slurm add a newline.
    files = rehearsal.rendered.files.items()
    return held.rstrip(b"\n") == script.rstrip(b"\n") and all(
        (scene.paths.folder / name).read_bytes() == file.content for name, file in files
    )


def _elements(rehearsal: Rehearsal, scene: Scene) -> list[Scene]:
    """Return the elements of an array, each as a separate job; none if the job is not an array."""
    return [dataclasses.replace(scene, paths=scene.paths.of_element(number)) for number in rehearsal.request.elements]


def _follow(rehearsal: Rehearsal, scene: Scene, clock: Clock) -> None:
    elements = _elements(rehearsal, scene)
    if elements:
        wait_for(
            scene, lambda: any(element.attempt for element in elements), "an array element started", _AT_WORK_WITHIN_S
        )
        clock.done("started")
        _until_it_ends(scene)
        return
    wait_for(scene, lambda: scene.attempt >= 1, "it started", _AT_WORK_WITHIN_S)
    clock.done("started")
    trial = TRIALS[rehearsal.inject] if rehearsal.inject else None
    if trial is not None or scene.trains:
        wait_for(scene, scene.is_at_work, "all ranks were at work", _AT_WORK_WITHIN_S)
        clock.done("all ranks at work")
        rehearsal.say(f"{quantity(scene.instances, 'rank')} at work on {quantity(scene.hosts, 'node')}")
    if trial is None:
        _until_it_ends(scene)
        return
    rehearsal.say(f"injected: {rehearsal.inject}; expected: {trial.expected(scene.cluster)}")
    trial.strike(scene)
    clock.done("injected")
    _through_the_trial(rehearsal, scene, trial, clock)


def _until_it_ends(scene: Scene) -> None:
    while scene.queue():
        time.sleep(_POLL_S)


def _through_the_trial(rehearsal: Rehearsal, scene: Scene, trial: Trial, clock: Clock) -> None:
    comes_back, helped = trial.comes_back(scene.cluster), False
    while words := scene.queue():
        if comes_back and not helped and "PENDING" in words:
            _help_back(rehearsal, scene)
            helped = True
        elif helped and scene.cluster.has_groups and "PENDING" in words:
            faults.wake_backfill(scene.slurm, scene.job)
        if comes_back and scene.attempt > 1 and scene.is_at_work():
            clock.done("back at work")
            _stop_when_enough(rehearsal, scene)
        time.sleep(_POLL_S)


def _help_back(rehearsal: Rehearsal, scene: Scene) -> None:
    # Slurm holds a requeued job back for two minutes, and keeps the time limit that the trial shortened.
    if rehearsal.inject == "timeout":
        limit = rehearsal.request.job.time_limit or scene.cluster.time_limit or "UNLIMITED"
        faults.set_limit_back(scene.slurm, scene.job, limit)
    faults.start_soon(scene.slurm, scene.job)


def _stop_when_enough(rehearsal: Rehearsal, scene: Scene) -> None:
    if scene.trains and "TRAINJOB_MAX_UPDATES" not in rehearsal.redirects:
        now = scene.update()
        if now is not None and now >= scene.began_at() + _ENOUGH_UPDATES:
            scene.paths.stop.touch()


def _not_all_completed(elements: Sequence[Scene]) -> str | None:
    wrong = [element for element in elements if element.state != states.COMPLETED]
    return f"array element {wrong[0].paths.element} is {wrong[0].state}. {last_words(wrong[0])}" if wrong else None


def _verdict_of_array(scene: Scene, clock: Clock, elements: Sequence[Scene], *, same: bool) -> Verdict:
    words = [element.state for element in elements]
    problem = _not_all_completed(elements) if same else NOT_THE_SAME
    return Verdict(
        passed=problem is None,
        outcome=problem or f"COMPLETED: {quantity(len(elements), 'array element')}",
        expected="all array elements are COMPLETED",
        state=arrays.overall(words),
        attempts=max(element.attempt for element in elements),
        update=None,
        same_bytes=same,
        seconds=clock.steps,
        folder=scene.paths.folder,
    )


def _verdict(rehearsal: Rehearsal, scene: Scene, clock: Clock, *, same_bytes: bool) -> Verdict:
    elements = _elements(rehearsal, scene)
    if elements:
        return _verdict_of_array(scene, clock, elements, same=same_bytes)
    trial = TRIALS[rehearsal.inject] if rehearsal.inject else None
    problem = trial.problem(scene) if trial else _not_completed(scene)
    if not same_bytes:
        problem = NOT_THE_SAME
    outcome = f"{problem}. {last_words(scene)}" if problem else _summary(rehearsal, scene)
    return Verdict(
        passed=problem is None,
        outcome=outcome,
        expected=trial.expected(scene.cluster) if trial else "the job is COMPLETED",
        state=scene.state,
        attempts=scene.attempt,
        update=scene.update(),
        same_bytes=same_bytes,
        seconds=clock.steps,
        folder=scene.paths.folder,
    )


def _not_completed(scene: Scene) -> str | None:
    return None if scene.state == states.COMPLETED else f"the job is {scene.state}"


def _summary(rehearsal: Rehearsal, scene: Scene) -> str:
    words = [scene.state]
    if scene.update():
        words.append(f"after {scene.update()} updates")
    if scene.attempt > 1:
        words.append(f"in {scene.attempt} attempts")
        if scene.trains:
            words.append(f"(the last began at update {scene.began_at()})")
    if rehearsal.inject == "rank-death" and scene.failure:
        words.append(f"and rank {scene.failure.rank} is named, exit code {scene.failure.exit_code}")
    if rehearsal.inject in ("cancel", "preempt") and scene.attempt == 1:
        words.append(f"with a checkpoint of update {scene.checkpoint()}")
    return " ".join(words)
