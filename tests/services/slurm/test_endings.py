"""What scripts of others do when they are asked to stop, and what becomes of their jobs under a real Slurm.

None of them leaves a marker. Those that save are continued, those that do not are told so, and none that has stopped
early is COMPLETED. Nor does what waits for them begin before they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run
from tests.support.slurm_jobs import ONE_RANK_NODES, POLL_S, Login, cluster_file, everything_printed, parsed
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records import events
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION, description_of
from trainjob.rehearse.slurm.private import private_slurm

pytestmark = pytest.mark.timeout(1500)
LIMIT_S = 600.0
CANCELS = "cancels"

# Two ranks that know nothing of each other, or of trainjob. One that is not asked to stop in its first attempt would
# take ten minutes.
SCRIPT = """\
import os, signal, subprocess, sys, time
words, rank = sys.argv[1:], os.environ["RANK"]
asked = []
for kind in [word for word in words if word in ("USR1", "TERM")]:
    signal.signal(getattr(signal, "SIG" + kind), lambda number, _: asked.append(number))
element = os.environ.get("SLURM_ARRAY_TASK_ID", "")  # elements work in one folder
path = f"last-{rank}{element}.pt"
step = int(open(path).read()) if os.path.exists(path) else 0
print("from", step, flush=True)
again = step > 0
while step < 3000:
    step += 1
    print(f"step {step}/3000 loss 0.5", flush=True)
    time.sleep(0.0005 if again else 0.2)
    if "periodic" in words and step % 20 == 0:
        with open(path, "w") as saved:
            saved.write(str(step))
    if asked:
        time.sleep(1.0)  # a second signal would come within the save
        print("heard", len(asked), flush=True)
        break
if "forgets" not in words:
    with open(path, "w") as saved:
        saved.write(str(step))
if asked and "requeues" in words and rank == "0":
    while not os.path.exists(f"last-1{element}.pt"):  # TERM may end the other rank before it has saved
        time.sleep(0.1)
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = os.environ["SLURM_ARRAY_JOB_ID"] + "_" + os.environ["SLURM_ARRAY_TASK_ID"]
    subprocess.run(["scontrol", "requeue", job], check=True)
    time.sleep(60)
if asked and "reraises" in words:
    sys.exit(143)
"""


@dataclass
class Job:
    login: Login
    run: Run
    id: str
    name: str
    nodes: str

    def why(self, attempt: int = 1) -> str:
        return events.why_ended(events.read(RunPaths(self.run.folder)), attempt)

    def ask(self) -> None:
        """Have Slurm ask the job as it does before its time limit."""
        self.login.slurm.run(["scancel", "--signal=USR1", "--batch", self.id])

    def preempt(self) -> None:
        urgent = [f"--partition={PREEMPTING_PARTITION}", "--exclusive", "--time=1", "--output=/dev/null"]
        self.login.slurm.run_as_root(["sbatch", f"--nodelist={self.nodes}", *urgent, "--wrap=sleep 3"])

    def wait_until_over(self) -> None:
        self._wait(lambda: self.name not in self.login.queue(), "end")

    def wait_until_started_again(self) -> None:
        self._wait(lambda: bool(self.login.queue()) and self.run.word("attempt") == "2", "start again")

    def wait_until_reason(self, waiting: str, reason: str) -> None:
        asked = ["squeue", "--noheader", f"--jobs={waiting}", "--format=%r"]
        self._wait(lambda: self.login.slurm.run(asked).text.strip() == reason, f"hold {waiting} back for {reason}")

    def wait_until_at_work(self) -> None:
        self._wait(lambda: all("step 5/" in self.run.log(rank) for rank in (0, 1)), "train")
        listed = self.login.slurm.run(["squeue", "--noheader", f"--jobs={self.id}", "--format=%N"]).text.strip()
        self.nodes = ",".join(self.login.slurm.run(["scontrol", "show", "hostnames", listed]).text.split())

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            until(holds, f"job {self.id} ({self.name}) to {what}", LIMIT_S, POLL_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{everything_printed(self.run)}") from error

    def check(self, state: str, attempts: int) -> None:
        ended = (self.run.word("state"), int(self.run.word("attempt")))
        assert ended == (state, attempts), f"{self.why()}\n{everything_printed(self.run)}"


@pytest.fixture(scope="module")
def login(needs: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    needs("slurm")
    twin = description_of(parsed(cluster_file(nodes=ONE_RANK_NODES, preemption="requeue")), nodes_needed=2)
    cancels = dataclasses.replace(twin.partitions[0], name=CANCELS, preempt_mode="CANCEL")
    groups = (dataclasses.replace(twin.groups[0], count=8),)
    with private_slurm(
        dataclasses.replace(twin, groups=groups, daemons=None, partitions=(*twin.partitions, cancels))
    ) as slurm:
        here = Here(tmp_path_factory.mktemp("user"))
        here.patience_s = LIMIT_S
        here.write("train.py", SCRIPT)
        login = Login(here, slurm, nodes=ONE_RANK_NODES)
        login.cluster(CANCELS, nodes=ONE_RANK_NODES, preemption="cancel", directives={"partition": CANCELS})
        yield login


def at_work(login: Login, name: str, *words: str, cluster: str = "hpc", options: tuple[str, ...] = ()) -> Job:
    command = ("--", "python", "train.py", *words)
    run = login.render("--instances", "2", "--hosts", "2", "--name", name, *command, cluster=cluster)
    job = Job(login, run, login.sbatch(run, *options), name, "")
    if options:
        job.run = Run(login.here, run.folder / "tasks/1")
    job.wait_until_at_work()
    return job


@pytest.mark.parametrize("words", [("USR1",), ("TERM",), ("USR1", "TERM"), ("USR1", "reraises")], ids=" ".join)
def test_one_that_saves_before_the_time_limit_is_continued(login: Login, words: tuple[str, ...]) -> None:
    job = at_work(login, "saves-" + "-".join(words), *words)
    job.ask()
    job.wait_until_over()
    job.check("COMPLETED", 2)
    assert [line for line in job.run.log(0).splitlines() if line.startswith("heard")] == ["heard 1"]
    assert "of 3,000: interrupted: continued as attempt 2" in job.why()
    assert ("(TERM)" if words == ("TERM",) else "(USR1)") in job.why()


@pytest.mark.parametrize(("cluster", "name"), [("hpc", "first"), (CANCELS, "followed")])
def test_what_comes_after_an_interrupted_run_waits_until_it_is_complete(login: Login, cluster: str, name: str) -> None:
    job = at_work(login, name, "USR1", "TERM", cluster=cluster)
    evaluation = login.render("--instances", "1", "--name", f"after-{name}", "--", "true")
    # As `trainjob submit --after` has it.
    login.sbatch(evaluation, f"--dependency=afterok:{job.id}")
    if cluster == CANCELS:  # a follow-up job continues
        job.preempt()
    else:
        job.ask()
    job.wait_until_started_again()
    assert evaluation.word("attempt") == ""
    job.wait_until_over()
    job.check("COMPLETED", 2)
    until(lambda: evaluation.word("state") == "COMPLETED", f"{name}'s evaluation to be made", LIMIT_S, POLL_S)


@pytest.mark.full
def test_what_comes_after_an_array_waits_for_all_that_continues_its_elements(login: Login) -> None:
    first = at_work(login, "elements", "periodic", options=("--array=1-2",))
    second = dataclasses.replace(first, run=Run(login.here, first.run.folder.parent / "2"))
    second.wait_until_at_work()
    evaluation = login.render("--instances", "1", "--name", "after-elements", "--", "true")
    waiting = login.sbatch(evaluation, f"--dependency=afterok:{first.id}")
    for element in (1, 2):
        faults.let_time_run_out(login.slurm, f"{first.id}_{element}")
    for one in (first, second):
        one.wait_until_started_again()
    jobs = [one.run.word("job_id") for one in (first, second)]
    assert first.id not in [job.partition("_")[0] for job in jobs], "follow-up jobs continue"
    assert evaluation.word("attempt") == ""
    for one in (first, second):
        one.wait_until_over()
        one.check("COMPLETED", 2)
    until(lambda: evaluation.word("state") == "COMPLETED", f"job {waiting} to be made", LIMIT_S, POLL_S)


def test_one_that_cannot_be_asked_is_continued_from_its_checkpoint(login: Login) -> None:
    job = at_work(login, "periodic", "periodic")
    evaluation = login.render("--instances", "1", "--name", "too-early", "--", "true")
    login.sbatch(evaluation, f"--dependency=afterok:{job.id}")
    faults.let_time_run_out(login.slurm, job.id)
    job.wait_until_started_again()
    was_too_early = evaluation.word("attempt")
    job.wait_until_over()
    job.check("COMPLETED", 2)
    assert "after a checkpoint at about update" in job.why()
    assert job.run.word("job_id") != job.id, "a follow-up job continues"
    first = next(line for line in job.run.log(0).split("attempt 2")[-1].splitlines() if line.startswith("from"))
    assert int(first.split()[1]) >= 20
    # To Slurm, the job that it waited for has failed.
    until(lambda: evaluation.word("state") == "COMPLETED", "the evaluation to be made", LIMIT_S, POLL_S)
    assert was_too_early == ""


@pytest.mark.parametrize("words", [(), ("forgets",)], ids=["saves", "forgets"])
def test_what_comes_after_a_stopped_run_never_starts(login: Login, words: tuple[str, ...]) -> None:
    job = at_work(login, "stopped" + "".join(words), "USR1", *words)
    evaluation = login.render("--instances", "1", "--name", "never", "--", "true")
    waiting = login.sbatch(evaluation, f"--dependency=afterok:{job.id}")
    if not words:
        RunPaths(job.run.folder).stop.touch()
    job.ask()
    job.wait_until_over()
    job.check("STOPPED", 1)
    job.wait_until_reason(waiting, "DependencyNeverSatisfied")
    assert evaluation.word("attempt") == ""
    login.slurm.run(["scancel", waiting])


def test_one_that_saves_nothing_is_stopped_with_the_reason(login: Login) -> None:
    job = at_work(login, "forgets", "USR1", "forgets")
    job.ask()
    job.wait_until_over()
    job.check("STOPPED", 1)
    assert "nothing was written after the request" in job.why()


@pytest.mark.parametrize("options", [(), ("--array=1-1",)], ids=["job", "element"])
def test_one_that_requeues_its_job_itself_is_requeued_once(login: Login, options: tuple[str, ...]) -> None:
    job = at_work(login, "requeues" + str(len(options)), "USR1", "requeues", options=options)
    job.ask()
    job.wait_until_over()
    job.check("COMPLETED", 2)


def test_one_that_may_not_requeue_its_job_is_continued_by_a_follow_up_job(login: Login) -> None:
    login.cluster("strict", nodes=ONE_RANK_NODES, directives={"no-requeue": True})
    job = at_work(login, "refused", "USR1", "requeues", cluster="strict")
    job.ask()
    job.wait_until_over()
    job.check("COMPLETED", 2)
    assert "ended with 1" in job.why()
    assert "failed after the request: continued as attempt 2" in job.why()
    assert job.run.word("job_id") != job.id


@pytest.mark.parametrize(("cluster", "words"), [("hpc", ("TERM",)), ("hpc", ()), (CANCELS, ("TERM",))], ids=str)
def test_one_that_is_preempted_is_continued(login: Login, cluster: str, words: tuple[str, ...]) -> None:
    job = at_work(login, f"preempted-{cluster}-{len(words)}", *words, cluster=cluster)
    job.preempt()
    job.wait_until_started_again()
    assert "preempted by Slurm" in job.why()
    if words:
        job.wait_until_over()
        job.check("COMPLETED", 2)
    else:
        login.slurm.run(["scancel", job.id])


def test_one_that_is_cancelled_stays_cancelled_though_it_has_saved(login: Login) -> None:
    job = at_work(login, "cancelled", "TERM")
    login.slurm.run(["scancel", job.id])
    job.wait_until_over()
    job.check("CANCELLED", 1)


# Slurm sends it to each process of a step here: one that does not handle it ends, as under plain srun.
@pytest.mark.parametrize(("words", "ends"), [(("USR1",), ("COMPLETED", 2)), ((), ("FAILED", 1))], ids=["saves", "deaf"])
def test_a_signal_that_goes_past_the_job_script_is_recorded(
    login: Login, words: tuple[str, ...], ends: tuple[str, int]
) -> None:
    job = at_work(login, f"bypassed-{len(words)}", *words)
    login.slurm.run(["scancel", "--signal=USR1", job.id])
    job.wait_until_over()
    job.check(*ends)
    noted = events.read(RunPaths(job.run.folder))
    assert events.SIGNAL not in [one.what for one in noted]
    (passed,) = [one.detail for one in noted if one.what == events.BYPASSED]
    assert passed.startswith("USR1 the launcher of rank ")
    assert "sent by slurmstepd (process " in passed
