"""Rehearses how a job starts on many nodes: a real daemon for each, the real page and its launchers, and no ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.planning.words import quantity
from trainjob.records import typed
from trainjob.records.files import DamagedError
from trainjob.records.roll_call import RollCall
from trainjob.rehearse.base import Clock, Launch, Rehearsal, Verdict
from trainjob.rehearse.slurm import configuration, root
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm
from trainjob.rehearse.slurm.rehearsal import NOT_THE_SAME, Stage, holds_the_same_bytes, stage, submit
from trainjob.rehearse.slurm.watching import Scene, last_words, wait_for

MOST_NODES = 256
# Measured before the plan's own number of nodes, to see what grows with it.
_FEWER_NODES = (2, 8, 64)
_POLL_S = 1.0
_LIMIT_S = 600.0
# Hundreds of daemons on one machine answer more slowly than those of a cluster.
_PATIENT = {"MessageTimeout": "100", "TCPTimeout": "20"}
_TRACING_WITHIN_S = 60.0
_WORKING_FOLDER = re.compile(r'AT_FDCWD<[^>]*>, (?="/)')
# The minimum that a Python does: it reads neither its environment nor its packages.
_NOTHING = ("-I", "-S", "-c", "pass")
_BARE = Path(__file__).with_name("bare_srun.sh")
_COUNT = Path(__file__).with_name("count_operations.sh")


def rehearse(rehearsal: Rehearsal) -> Verdict:
    """Return how the launchers of a job start on as many nodes as it has, and on fewer.

    Raises UserError for a job whose ranks srun doesn't start, and for more than MOST_NODES nodes.
    """
    cluster = _cluster(rehearsal)
    planned = len(rehearsal.request.plan.topology.hosts)
    clock = Clock()
    with stage(rehearsal, cluster) as place:
        settings = {**place.description.settings, **_PATIENT}
        description = dataclasses.replace(place.description, daemons=planned, settings=settings)
        with private_slurm(description, rehearsal.say) as slurm:
            clock.done("Slurm up")
            rehearsal.say(f"a private Slurm is up: {quantity(planned, 'node')}, each with a daemon")
            if root.where("strace") is None:
                rehearsal.say("strace is not installed: operations on the run directory are not counted")
            verdict = _of_all_sizes(_Trials(rehearsal, cluster, slurm, place, clock))
    clock.done("taken down")
    return verdict


def _cluster(rehearsal: Rehearsal) -> SlurmCluster:
    request = rehearsal.request
    hosts = len(request.plan.topology.hosts)
    if request.starter != "srun":
        raise UserError(
            "--launch-only is for Slurm jobs whose ranks srun starts, and this job's are started otherwise",
            "leave --launch-only out",
        )
    cluster = SlurmCluster.of(request.cluster)
    if cluster.has_groups:
        raise UserError(
            "--launch-only starts a job on fewer nodes as well, and a job on groups of nodes takes all of them",
            "leave --launch-only out",
        )
    if request.elements or rehearsal.inject:
        raise UserError("--launch-only works on a single job", "Leave out --array, --sweep and --inject")
    if hosts > MOST_NODES:
        raise UserError(
            f"--launch-only starts a daemon for each node: at most {MOST_NODES}, and the plan has {hosts}",
            "choose fewer --instances",
        )
    return cluster


@dataclasses.dataclass(frozen=True)
class _Trials:
    """The state that all launches of a rehearsal share."""

    rehearsal: Rehearsal
    cluster: SlurmCluster
    slurm: PrivateSlurm
    place: Stage
    clock: Clock


class _WrongError(Exception):
    """The launchers of a job failed."""

    def __init__(self, problem: str, scene: Scene) -> None:
        super().__init__(problem)
        self.scene = scene


def _of_all_sizes(trials: _Trials) -> Verdict:
    planned = len(trials.rehearsal.request.plan.topology.hosts)
    launches: list[Launch] = []
    problem = None
    state = states.COMPLETED
    for nodes in (*(fewer for fewer in _FEWER_NODES if fewer < planned), planned):
        trials.rehearsal.say(f"launching on {quantity(nodes, 'node')}")
        try:
            launches.append(_launch(trials, nodes))
        except _WrongError as error:
            problem, state = f"on {quantity(nodes, 'node')} {error}. {last_words(error.scene)}", error.scene.state
            break
        trials.clock.done(quantity(nodes, "node"))
    ranks = launches[-1].ranks if launches else 0
    return Verdict(
        passed=problem is None,
        outcome=problem or f"the launchers of {quantity(ranks, 'rank')} met on {quantity(planned, 'node')}",
        expected="every launcher checks its rank, and those of all nodes meet",
        state=state,
        attempts=1,
        update=None,
        same_bytes=problem != NOT_THE_SAME,
        seconds=trials.clock.steps,
        folder=trials.rehearsal.folder,
        launches=launches,
    )


def _launch(trials: _Trials, nodes: int) -> Launch:
    python = trials.rehearsal.redirects["TRAINJOB_PYTHON"]
    bare_s = _bare_s(trials, nodes, "true", ["true"])
    python_s = _bare_s(trials, nodes, "python", [python, *_NOTHING])
    scene = _submitted(trials, nodes, f"{nodes}-nodes")
    call = _roll_call(scene)
    first, last, on_code = _operations(trials, nodes) if root.where("strace") else (None, None, None)
    return Launch(
        nodes=nodes,
        ranks=scene.instances,
        bare_s=round(bare_s, 2),
        python_s=round(python_s, 2),
        launch_s=round(call.complete_at - scene.submitted_at, 2),
        launcher_cpu_s=round(sum(host.cpu_s for host in call.hosts) / len(call.hosts), 3),
        connections=call.connections,
        first_operations=first,
        last_operations=last,
        last_on_code=on_code,
    )


def _bare_s(trials: _Trials, nodes: int, name: str, words: Sequence[str]) -> float:
    """Return the seconds from sbatch until srun with `words` has ended, in a job with the same directives."""
    page = trials.rehearsal.rendered.files[trials.rehearsal.rendered.script].content.decode()
    directives = [line for line in page.splitlines() if line.startswith("#SBATCH")]
    folder = trials.rehearsal.folder / f"{nodes}-nodes-{name}"
    folder.mkdir(parents=True)
    script, ended = folder / "job.sbatch", folder / "ended"
    script.write_text("\n".join(["#!/usr/bin/env bash", *directives, _BARE.read_text()]))
    trials.slurm.set_job_environment({})
    options = [f"--nodes={nodes}", f"--output={folder}/output"]
    began_at = time.time()
    trials.slurm.run(["sbatch", *options, str(script), str(ended), *words], folder=folder)
    deadline = time.monotonic() + _LIMIT_S
    while not ended.exists():
        if time.monotonic() > deadline:
            raise UserError(
                f"`srun {words[0]}` on {quantity(nodes, 'node')} has not ended within {_LIMIT_S:g} s",
                "choose fewer nodes, or wait until the machine is less busy",
            )
        time.sleep(_POLL_S / 10)
    return float(ended.read_text()) - began_at


def _submitted(trials: _Trials, nodes: int, name: str) -> Scene:
    own = dataclasses.replace(trials.rehearsal, folder=trials.rehearsal.folder / name)
    scene = submit(own, trials.cluster, trials.slurm, trials.place.environment, nodes=nodes)
    if not holds_the_same_bytes(own, scene):
        raise _WrongError(NOT_THE_SAME, scene)
    return scene


def _roll_call(scene: Scene) -> RollCall:
    """Return the hosts that met, once the job has ended successfully."""
    with contextlib.suppress(UserError):  # the job has left the queue: its files tell why
        wait_for(scene, lambda: scene.state in states.ENDED, "it ended", _LIMIT_S, poll_s=_POLL_S)
    if scene.state != states.COMPLETED:
        raise _WrongError(f"the job is {scene.state}", scene)
    try:
        call = typed.load(RollCall, scene.paths.roll_call)
    except DamagedError as error:
        raise _WrongError(str(error), scene) from None
    present = sum(host.ranks for host in call.hosts) if call else 0
    if call is None or (len(call.hosts), present) != (scene.hosts, scene.instances):
        raise _WrongError(f"launchers of {present} of {scene.instances} ranks met", scene)
    return call


def _operations(trials: _Trials, nodes: int) -> tuple[int, int, int]:
    """Return the operations on the run directory by the first and the last node, and the last one's on code/.

    They are counted in an additional job of that size, because tracing takes several times as long.
    """
    output = trials.slurm.folder / f"operations-{nodes}"
    with _traced(trials.slurm, output, sorted({1, nodes})):
        scene = _submitted(trials, nodes, f"{nodes}-nodes-traced")
        _roll_call(scene)
    traces = [output.with_name(f"{output.name}.{number}") for number in (1, min(nodes, 2))]
    first, last = (_count(trace, scene.paths.folder) for trace in traces)
    return first, last, _count(traces[1], scene.paths.code)


@contextlib.contextmanager
def _traced(slurm: PrivateSlurm, output: Path, nodes: list[int]) -> Iterator[None]:
    private = slurm.folder / configuration.PRIVATE
    files = [str(private / f"slurmd-node{number}.pid") for number in nodes]
    log = output.with_name(f"{output.name}.log")
    ready = output.with_name(f"{output.name}.ready")
    with slurm.beside(_COUNT, str(output), *files, log=log) as kept:
        deadline = time.monotonic() + _TRACING_WITHIN_S
        while not ready.exists():
            if kept.has_ended or time.monotonic() > deadline:
                raise UserError(
                    f"strace can't follow a node's daemon: {log.read_text(errors='replace').strip()}",
                    "allow it (kernel.yama.ptrace_scope)",
                )
            time.sleep(_POLL_S / 10)
        yield


def _count(trace: Path, folder: Path) -> int:
    with trace.open(errors="replace") as lines:
        return sum(is_operation(line, str(folder)) for line in lines)


def is_operation(line: str, folder: str) -> bool:
    """Return whether a line of strace's is a call that names something below `folder`."""
    # A call that was interrupted has two lines; with an empty path, a call asks about a file that is open.
    if " resumed>" in line or '>, "", ' in line:
        return False
    # strace shows the working folder even where the path is absolute.
    return folder in _WORKING_FOLDER.sub("", line)
