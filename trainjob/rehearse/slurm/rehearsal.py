"""Rehearses a slurm cluster's job: a private Slurm, plain sbatch, the fault if one is asked for, a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence

from trainjob.cluster.models import SlurmCluster, ipu_place
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.plan.words import quantity
from trainjob.rehearse.base import Clock, Rehearsal, Verdict
from trainjob.rehearse.slurm import faults, folders, ipus, mpi
from trainjob.rehearse.slurm.description import Description, twin_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm
from trainjob.rehearse.slurm.trials import TRIALS, Trial
from trainjob.rehearse.slurm.watching import Scene, last_words, wait_for
from trainjob.runs import arrays
from trainjob.submit import folder, process

_POLL_S = 0.1
_AT_WORK_WITHIN_S = 600.0
# After a job has come back, so many more updates show that it goes on.
_ENOUGH_UPDATES = 5
_NOT_THE_SAME = "what Slurm was given is not what was rendered"


def rehearse(asked: Rehearsal) -> Verdict:
    """Return how the job ended under a private Slurm, of which nothing is left.

    Raises UserError when the machine lacks what that takes, or the job ends before the fault could strike.
    """
    cluster = asked.request.cluster
    if not isinstance(cluster, SlurmCluster):
        raise TypeError(cluster.kind)
    if asked.inject and asked.request.tasks:
        raise UserError(f"--inject {asked.inject} befalls one job: leave --array and --sweep out")
    clock = Clock()
    with _stage(asked, cluster) as (description, environment), private_slurm(description) as slurm:
        clock.done("Slurm up")
        asked.say(f"a private Slurm is up: {_nodes(description)}")
        if asked.redirects.get("TRAINJOB_DEVICE") == "cpu":
            _say_what_is_not_there(asked, cluster)
        scene = _submitted(asked, cluster, slurm, environment)
        clock.done("submitted")
        asked.say(f"job.sbatch is submitted with plain sbatch, as job {scene.job}")
        same_bytes = _holds_the_same_bytes(asked, scene)
        _follow(asked, scene, clock)
        clock.done("ended")
        verdict = _verdict(asked, scene, clock, same_bytes=same_bytes)
    clock.done("taken down")
    return verdict


@contextlib.contextmanager
def _stage(asked: Rehearsal, cluster: SlurmCluster) -> Iterator[tuple[Description, dict[str, str]]]:
    """Yield the Slurm that is needed, and what sbatch sees beside what is redirected."""
    topology = asked.request.plan.topology
    description = twin_of(cluster, len(topology.hosts))
    if ipu_place(cluster) is None:
        yield description, {"PATH": process.search_path(), **mpi.LOOPBACK}
        return
    with folders.new_folder() as place:
        environment = ipus.environment(place, cluster, asked.redirects)
        settings = {**description.settings, **ipus.settings(place, cluster, topology.devices)}
        yield dataclasses.replace(description, settings=settings), environment


def _say_what_is_not_there(asked: Rehearsal, cluster: SlurmCluster) -> None:
    if ipu_place(cluster) is not None:
        asked.say("poprun, vipu, poptorch and popdist stand in for the site's: instances train on CPU")
    elif cluster.nodes.accelerator != "cpu":
        asked.say(f"its {cluster.nodes.accelerator}s are only counted: ranks train on CPU, over gloo")


def _nodes(description: Description) -> str:
    resource = f" with {description.gres_count} {description.gres} each" if description.gres else ""
    return f"{description.nodes} nodes{resource}, {len(description.nodes_at_work)} of them with a daemon"


def _submitted(asked: Rehearsal, cluster: SlurmCluster, slurm: PrivateSlurm, environment: dict[str, str]) -> Scene:
    project = asked.project if asked.selection is not None else None
    paths = folder.create(asked.folder, asked.rendered, project, asked.selection)
    topology = asked.request.plan.topology
    sent = slurm.run(
        ["sbatch", "--parsable", asked.rendered.script],
        folder=paths.folder,
        environment=_environment(asked, environment),
    )
    return Scene(
        slurm=slurm,
        paths=paths,
        job=sent.text.strip().split(";")[0],
        cluster=cluster,
        instances=topology.instances,
        hosts=len(topology.hosts),
        trains=not asked.request.job.command,
    )


def _environment(asked: Rehearsal, environment: dict[str, str]) -> dict[str, str]:
    """Return what sbatch sees. The script says --export=NONE, and that must stay as it is.

    SBATCH_EXPORT stands above a script's own --export, and these names alone come through: sbatch's command line
    stays plain, and a follow-up that the script submits inherits the same. PATH, because on a cluster the prologue,
    which is skipped here, makes it what a user's command needs.
    """
    chosen = {**asked.redirects, **environment}
    return {**chosen, "SBATCH_EXPORT": ",".join((*chosen, "SBATCH_EXPORT"))}


def _holds_the_same_bytes(asked: Rehearsal, scene: Scene) -> bool:
    """Return whether the script that Slurm holds, and the files beside it, are what was rendered."""
    held = scene.slurm.run(["scontrol", "write", "batch_script", scene.job, "-"]).stdout
    script = asked.rendered.files[asked.rendered.script].content
    # Slurm ends what it writes with one more newline, by version.
    files = asked.rendered.files.items()
    return held.rstrip(b"\n") == script.rstrip(b"\n") and all(
        (scene.paths.folder / name).read_bytes() == file.content for name, file in files
    )


def _tasks(asked: Rehearsal, scene: Scene) -> list[Scene]:
    """Return the tasks of an array, each as a job of its own; none where the job is no array."""
    return [dataclasses.replace(scene, paths=scene.paths.of_task(number)) for number in asked.request.tasks]


def _follow(asked: Rehearsal, scene: Scene, clock: Clock) -> None:
    tasks = _tasks(asked, scene)
    if tasks:
        wait_for(scene, lambda: any(task.attempt for task in tasks), "a task started", _AT_WORK_WITHIN_S)
        clock.done("started")
        _until_it_ends(scene)
        return
    wait_for(scene, lambda: scene.attempt >= 1, "it started", _AT_WORK_WITHIN_S)
    clock.done("started")
    trial = TRIALS[asked.inject] if asked.inject else None
    if trial is not None or scene.trains:
        wait_for(scene, scene.is_at_work, "all ranks were at work", _AT_WORK_WITHIN_S)
        clock.done("all ranks at work")
        asked.say(f"{quantity(scene.instances, 'rank')} at work on {quantity(scene.hosts, 'node')}")
    if trial is None:
        _until_it_ends(scene)
        return
    asked.say(f"injected: {asked.inject}; expected: {trial.expected(scene.cluster)}")
    trial.strike(scene)
    clock.done("injected")
    _through_the_trial(asked, scene, trial, clock)


def _until_it_ends(scene: Scene) -> None:
    while scene.queue():
        time.sleep(_POLL_S)


def _through_the_trial(asked: Rehearsal, scene: Scene, trial: Trial, clock: Clock) -> None:
    comes_back, helped = trial.comes_back(scene.cluster), False
    while words := scene.queue():
        if comes_back and not helped and "PENDING" in words:
            _help_back(asked, scene)
            helped = True
        if comes_back and scene.attempt > 1 and scene.is_at_work():
            clock.done("back at work")
            _stop_when_enough(asked, scene)
        time.sleep(_POLL_S)


def _help_back(asked: Rehearsal, scene: Scene) -> None:
    # Slurm has a requeued job wait two minutes, and keeps the limit that the trial has shortened.
    if asked.inject == "timeout":
        limit = asked.request.job.time_limit or scene.cluster.time_limit or "UNLIMITED"
        faults.set_limit_back(scene.slurm, scene.job, limit)
    faults.start_soon(scene.slurm, scene.job)


def _stop_when_enough(asked: Rehearsal, scene: Scene) -> None:
    if scene.trains and "TRAINJOB_MAX_UPDATES" not in asked.redirects:
        now = scene.update()
        if now is not None and now >= scene.began_at() + _ENOUGH_UPDATES:
            scene.paths.stop.touch()


def _not_all_completed(tasks: Sequence[Scene]) -> str | None:
    wrong = [task for task in tasks if task.state != states.COMPLETED]
    return f"task {wrong[0].paths.task} is {wrong[0].state}. {last_words(wrong[0])}" if wrong else None


def _verdict_of_tasks(scene: Scene, clock: Clock, tasks: Sequence[Scene], *, same: bool) -> Verdict:
    words = [task.state for task in tasks]
    problem = _not_all_completed(tasks) if same else _NOT_THE_SAME
    return Verdict(
        passed=problem is None,
        outcome=problem or f"COMPLETED in {len(tasks)} of {len(tasks)} tasks",
        expected="all tasks are COMPLETED",
        state=arrays.overall(words),
        attempts=max(task.attempt for task in tasks),
        update=None,
        same_bytes=same,
        seconds=clock.steps,
        folder=scene.paths.folder,
    )


def _verdict(asked: Rehearsal, scene: Scene, clock: Clock, *, same_bytes: bool) -> Verdict:
    tasks = _tasks(asked, scene)
    if tasks:
        return _verdict_of_tasks(scene, clock, tasks, same=same_bytes)
    trial = TRIALS[asked.inject] if asked.inject else None
    problem = trial.problem(scene) if trial else _not_completed(scene)
    if not same_bytes:
        problem = _NOT_THE_SAME
    outcome = f"{problem}. {last_words(scene)}" if problem else _told(asked, scene)
    return Verdict(
        passed=problem is None,
        outcome=outcome,
        expected=trial.expected(scene.cluster) if trial else "it is COMPLETED",
        state=scene.state,
        attempts=scene.attempt,
        update=scene.update(),
        same_bytes=same_bytes,
        seconds=clock.steps,
        folder=scene.paths.folder,
    )


def _not_completed(scene: Scene) -> str | None:
    return None if scene.state == states.COMPLETED else f"it is {scene.state}"


def _told(asked: Rehearsal, scene: Scene) -> str:
    words = [scene.state]
    if scene.update():
        words.append(f"after {scene.update()} updates")
    if scene.attempt > 1:
        words.append(f"in {scene.attempt} attempts")
        if scene.trains:
            words.append(f"(the last began at update {scene.began_at()})")
    if asked.inject == "rank-death" and scene.failure:
        words.append(f"and rank {scene.failure.rank} is named, exit code {scene.failure.exit_code}")
    if asked.inject in ("cancel", "preempt") and scene.attempt == 1:
        words.append(f"with a checkpoint of update {scene.checkpoint()}")
    return " ".join(words)
