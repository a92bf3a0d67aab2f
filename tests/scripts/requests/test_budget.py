"""Budgets: what is charged before a job is submitted, what it has cost once it has ended, and what is refused."""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import trainjob
from tests.support.programs import TRAINJOB, ran
from tests.support.standin_slurm import StandinSlurm, files_say
from trainjob.backends import folder
from trainjob.backends.slurm import backend
from trainjob.cli.main import main
from trainjob.cluster.slurm_text import duration
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, home
from trainjob.lifecycle import ledger
from trainjob.lifecycle import prune as pruning
from trainjob.lifecycle import resume as resuming
from trainjob.lifecycle.cancel import cancel
from trainjob.observe import reservations
from trainjob.observe.status import status
from trainjob.records import job as jobs
from trainjob.records import submission as submissions
from trainjob.requests import budget, guardian, resumption, submission
from trainjob.requests import elsewhere as moving
from trainjob.requests import reserve as reserving
from trainjob.requests import workbench as of_workbench
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import Prepared, prepare
from trainjob.requests.workbench import workbench

GPUS = 8


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandinSlurm:
    """Return a Slurm with GPUs, whose user may have 100 GPU-hours in all."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    slurm = StandinSlurm(tmp_path / "slurm", monkeypatch)
    budget_of_user(tmp_path, "{gpu_hours: 100}")
    gives_gpus(slurm)
    return slurm


def budget_of_user(folder: Path, budget: str) -> None:
    file = folder / "config/trainjob/config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"budget: {budget}\n")


def gives_gpus(slurm: StandinSlurm, name: str = "hpc", **keys: object) -> None:
    """Write a cluster file with two nodes of four GPUs."""
    file = slurm.here / "clusters/hpc.yaml"
    cluster = {
        **json.loads(file.read_text()),
        "nodes": {"count": 2, "accelerator": "gpu", "accelerators": 4, "cpus": 8},
        **keys,
    }
    (slurm.here / "clusters" / f"{name}.yaml").write_text(json.dumps(cluster))


def submit(
    cluster: str = "hpc", hours: float | None = 2.0, instances: int = GPUS, starts: int = 1, **settings: Any
) -> trainjob.Run:
    if hours is not None:
        settings["time_limit"] = duration(round(hours * 3600))
    job = trainjob.plan(cluster, command=["true"], instances=instances, max_attempts=starts, **settings)
    return job.submit(check=False, again=True)


def reserve(instances: int, length: str) -> trainjob.Run:
    prepared = reserving.planned("hpc", length, idle_minutes=30.0, instances=instances)
    return trainjob.Run(submission.submit(prepared, check=False, again=True))


def test_a_reservation_is_taken_back_once_its_cluster_can_be_reached_again(
    slurm: StandinSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = reserve(GPUS, "1h")
    slurm.set_job("101", state="PENDING")
    slurm.break_("scancel", "down")
    pauses: list[float] = []

    def sleep(duration_s: float) -> None:
        pauses.append(duration_s)
        if pauses.count(60.0) == 2:
            slurm.mend()

    monkeypatch.setattr(clock, "sleep", sleep)
    guardian.end_named_run([str(run.folder)])
    assert pauses.count(60.0) == 2
    assert charged() == 0.0
    assert run.status().state == "CANCELLED"


@pytest.mark.parametrize("directive", [{"gpus-per-node": "4"}, {"gpus": "8"}, {"exclusive": True}])
def test_devices_beside_those_of_the_plan_are_not_had_within_a_budget(
    slurm: StandinSlurm, directive: dict[str, object]
) -> None:
    with pytest.raises(UserError, match=r"may take GPUs beside the 1 of the plan"):
        submit(instances=1, directives=directive)
    prepared = reserving.planned("hpc", "1h", idle_minutes=30.0, instances=1, directives=directive)
    with pytest.raises(UserError, match="Take it out and give --instances"):
        submission.submit(prepared, check=False, again=True)
    submission.submit(prepared, check=False, again=True, over_budget=True)
    assert charged() == 1.0
    submit(hours=1.0, directives={"exclusive": True})  # the plan has all of both nodes
    assert charged() == 1.0 + GPUS


def test_a_directive_of_a_job_with_a_server_is_of_all_its_nodes(slurm: StandinSlurm) -> None:
    roles = {
        "server": {"command": ["true"], "ready": "file:up", "hosts": 1},
        "train": {"command": ["true"], "needs": ["server"]},
    }
    job = trainjob.plan(
        "hpc", roles=roles, instances=2, max_attempts=1, time_limit="01:00:00", directives={"exclusive": True}
    )
    with pytest.raises(UserError, match="may take GPUs beside"):  # four of eight, as many as one node has
        job.submit(check=False, again=True)


def test_directives_of_a_cluster_file_that_take_whole_nodes_are_charged_as_such(slurm: StandinSlurm) -> None:
    gives_gpus(slurm, "whole", directives={"partition": "gpu", "exclusive": True})
    submit("whole", hours=1.0, instances=1)
    assert charged() == 4.0
    gives_gpus(slurm, "shared", directives={"partition": "gpu", "exclusive": False})
    submit("shared", hours=1.0, instances=1)
    assert charged() == 5.0
    gives_gpus(slurm, "disk", request="gpus-per-node", directives={"gres": "lscratch:100"})
    submit("disk", hours=1.0, instances=1)
    assert charged() == 6.0


@pytest.mark.parametrize(
    ("server", "directives", "gpus"),
    [
        ({}, {}, 2),  # a host of its own, of which Slurm gives the job as many GPUs as of the ranks'
        ({"gpus": 2}, {}, 3),
        ({"gpus": 2}, {"exclusive": True}, 4),
        ({}, {"exclusive": True}, 8),
    ],
)
def test_the_gpus_of_servers_are_charged_as_well(
    slurm: StandinSlurm, server: dict[str, object], directives: dict[str, object], gpus: int
) -> None:
    gives_gpus(slurm, directives={"partition": "gpu", **directives})
    roles = {
        "server": {"command": ["true"], "ready": "file:up", **server},
        "train": {"command": ["true"], "needs": ["server"]},
    }
    job = trainjob.plan("hpc", roles=roles, instances=1, max_attempts=1, time_limit="01:00:00")
    assert f"{gpus} GPU-hours" in job.plan.facts["device-hours"]
    run = job.submit(check=False, again=True)
    assert charged() == gpus
    ends(run, after_hours=0.5)
    assert charged() == pytest.approx(gpus / 2, abs=0.01)


def test_a_project_is_charged_for_runs_in_a_reservation_that_another_one_made(
    slurm: StandinSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slurm.here / "trainjob.yaml").write_text("budget: {gpu_hours: 50}\n")
    job = {"command": ["true"], "time_limit": "01:15:00", "instances": GPUS, "max_attempts": 1}
    request = prepare(JobOptions("hpc", None, job)).request
    payers = {"7": slurm.here, "8": tmp_path / "other"}
    monkeypatch.setattr(reservations, "jobs", lambda cluster: payers if cluster == "hpc" else {})
    own = budget.charge_of([request], slurm.here, "7")
    assert (own.devices, own.limits) == (0, [])
    other = budget.charge_of([request], slurm.here, "8")
    assert [limit.hours for limit in other.limits] == [50]
    with ledger.charged(RunPaths(tmp_path / "run"), other) as begins:
        begins()
    every = budget.limits(request.cluster, "hpc", slurm.here)
    assert {limit.hours: hours for limit, hours in ledger.used(every)} == {50: 10.0, 100: 0.0}


@pytest.mark.parametrize("directive", [{"gpus": "8"}, {"gres": "gpu:4"}, {"tres-per-task": "gres/gpu:1"}])
def test_a_plan_without_devices_does_not_hide_those_of_a_directive(
    slurm: StandinSlurm, directive: dict[str, object]
) -> None:
    gives_gpus(slurm, "cpus", nodes={"count": 2, "cpus": 8})
    harmless = {"exclusive": True, "gres": "lscratch:100"}
    submit("cpus", hours=480.0, directives=harmless)
    with pytest.raises(UserError, match=r"may take GPUs beside the 0 of the plan\. Take it out and state in the"):
        submit("cpus", hours=480.0, directives=directive)
    prepared = reserving.planned("cpus", "2d", idle_minutes=30.0, directives=directive)
    with pytest.raises(UserError, match="may take GPUs beside the 0"):
        submission.submit(prepared, check=False, again=True)
    submission.submit(prepared, check=False, again=True, over_budget=True)
    assert charged() == 0.0


@pytest.mark.parametrize(
    "site",
    [{}, {"directives": {"no-requeue": True}}, {"directives": {"requeue": True}}, {"queue_follow_up": True}],
)
def test_nothing_starts_a_reservation_again(slurm: StandinSlurm, site: dict[str, Any]) -> None:
    gives_gpus(slurm, **site)
    script = Path(reserve(GPUS, "1h").folder, "job.sbatch").read_text()
    assert "\n#SBATCH --no-requeue\n" in script
    assert "\n#SBATCH --requeue\n" not in script
    assert "queues_follow_up" not in script


def test_the_cures_for_the_length_of_a_reservation_name_an_option_of_it(slurm: StandinSlurm) -> None:
    for option, length, cure in (
        ("--for", "1m", "Take --time-limit 00:04:00"),
        ("--for", "20h", "Give --time-limit 12:30:00"),
        ("--time-limit", "20h", "Give --time-limit 12:30:00"),
    ):
        words = ["reserve", "hpc", "--instances", str(GPUS), option, length]
        refused = ran([sys.executable, "-m", "trainjob", *words], folder=slurm.here)
        assert (refused.returncode, cure in refused.stderr) == (1, True), refused.stderr


def test_a_reservation_does_not_go_on_elsewhere(slurm: StandinSlurm) -> None:
    run = reserve(GPUS, "1h")
    ends(run, after_hours=1.0, state="TIMEOUT")
    slurm.set_job("101", state="TIMEOUT")
    with pytest.raises(UserError, match="is a reservation: make another one there"):
        moving.resume(RunPaths(run.folder), "local", warn=print)


@pytest.mark.parametrize("state", ["cancelled here", "gone from the queue"])
def test_the_newest_reservation_is_one_that_is_left(slurm: StandinSlurm, state: str) -> None:
    reserve(GPUS, "1h")
    newest = reserve(GPUS, "1h")
    assert reservations.newest_job("hpc") == "102"
    if state == "cancelled here":
        newest.cancel()
    else:
        slurm.set_job("102", state="CANCELLED")
        assert newest.status().state == "CANCELLED"
    assert reservations.newest_job("hpc") == "101"


def ends(
    run: trainjob.Run, after_hours: float, ago_hours: float = 0.0, state: str = "COMPLETED", attempt: int = 1
) -> None:
    """Have a run end as its job script and Slurm tell it."""
    ended = clock.time() - ago_hours * 3600
    lines = [
        f"{ended - after_hours * 3600:.0f}\t{attempt}\tbegan\tnode1,node2",
        f"{ended:.0f}\t{attempt}\tended\t{state} 0 ",
    ]
    with RunPaths(run.folder).events.open("a") as events:
        events.writelines(f"{line}\n" for line in lines)
    files_say(run.folder, attempt=attempt, state=state, exit_code=0)


def charged() -> float:
    """Return the GPU-hours that are charged to a budget without end."""
    return ledger.used([ledger.Limit(math.inf, "GPU", None, "a test")])[0][1]


def test_a_job_is_charged_at_most_and_then_as_it_was(slurm: StandinSlurm) -> None:
    run = submit(hours=4.0, starts=3)
    assert charged() == GPUS * 4 * 3
    with pytest.raises(UserError, match=r"may cost 16\.00 GPU-hours, but 4\.00 of 100 GPU-hours .* left; 96\.00 are"):
        submit(hours=2.0)
    ends(run, after_hours=1.5)
    assert charged() == pytest.approx(GPUS * 1.5, abs=0.01)
    submit(hours=2.0)
    assert len(slurm.jobs()) == 2


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"hours": 4.0, "starts": 50}, {"hours": 4.0, "starts": 3}),
        ({"hours": 24.0, "starts": 2}, {"hours": 12.5, "starts": 1}),
    ],
)
def test_the_cure_fits(slurm: StandinSlurm, settings: dict[str, float], fits: dict[str, float]) -> None:
    with pytest.raises(UserError) as refused:
        submit(**settings)  # type: ignore[arg-type]
    words = refused.value.problem.cure.split(";")[0].replace(",", "").split()
    said = dict(zip(words[1::2], words[2::2], strict=False))
    assert said.get("--max-attempts", "50").rstrip(":") == str(fits["starts"])
    assert said.get("--time-limit", "04:00:00") == duration(round(fits["hours"] * 3600))
    assert slurm.jobs() == {}
    submit(**fits)  # type: ignore[arg-type]


def test_without_a_time_limit_nothing_holds_the_cost(slurm: StandinSlurm, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no time limit, so its 8 GPUs may cost any amount\. Give --time-limit"):
        submit(hours=None)
    gives_gpus(slurm, "endless")
    budget_of_user(tmp_path, "{ipu_hours: 1}")
    endless = submit("endless", hours=None)
    budget_of_user(tmp_path, "{gpu_hours: 100}")
    with pytest.raises(UserError, match=r"are left; a run without a time limit counts until it has ended"):
        submit(hours=0.1)
    ends(endless, after_hours=0.0)
    gives_gpus(slurm, limits={"max_time": "06:00:00"})
    submit(hours=None)
    assert charged() == GPUS * 6


def test_what_is_on_cpus_costs_nothing(slurm: StandinSlurm) -> None:
    gives_gpus(slurm, "cpus", nodes={"count": 2, "cpus": 8})
    submit("cpus", hours=1000.0, instances=2)
    assert charged() == 0.0


def test_each_element_of_an_array_and_the_longest_retry_are_charged(slurm: StandinSlurm) -> None:
    with pytest.raises(UserError, match=r"may cost 160\.00 GPU-hours"):
        submit(hours=2.0, array="0-9%1")
    submit(hours=1.0, starts=2, retry={"time": "+100%"})
    assert charged() == GPUS * 2 * 2


def test_budgets_count_the_runs_of_their_own(
    slurm: StandinSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget_of_user(tmp_path, "{gpu_hours: 1000}")
    gives_gpus(slurm, "small", budget={"gpu_hours": 20})
    (slurm.here / "trainjob.yaml").write_text("budget: {gpu_hours: 50}\n")
    submit("small")
    with pytest.raises(UserError, match=r"but 4\.00 of 20 GPU-hours \(budget in the file of cluster small\) are left"):
        submit("small")
    submit("hpc")
    with pytest.raises(UserError, match=r"but 18\.00 of 50 GPU-hours \(budget in .*/here/trainjob.yaml\) are left"):
        submit("hpc", hours=3.0)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(slurm.here / "clusters", elsewhere / "clusters")
    monkeypatch.chdir(elsewhere)
    submit("hpc", hours=3.0)


def test_a_day_forgets_what_ended_before_it_and_nothing_that_goes_on(slurm: StandinSlurm, tmp_path: Path) -> None:
    budget_of_user(tmp_path, "{gpu_hours: 40, per: day}")
    ends(submit(), after_hours=2.0, ago_hours=25.0)
    ends(submit(), after_hours=2.0, ago_hours=23.0)
    submit(hours=3.0)
    with pytest.raises(UserError, match=r"but 0\.00 of 40 GPU-hours a day .* are left; 40\.00 are already charged"):
        submit(hours=0.5)


def test_a_run_that_is_removed_has_cost_what_it_has(slurm: StandinSlurm) -> None:
    pruned, deleted = submit(), submit()
    ends(pruned, after_hours=1.0, state="FAILED")
    trainjob.run(pruned.id)  # it is in the index
    from trainjob.lifecycle.prune import remove_run

    remove_run(RunPaths(pruned.folder), None)
    shutil.rmtree(deleted.folder)
    assert charged() == pytest.approx(GPUS * 1.0 + GPUS * 2.0, abs=0.01)


def test_a_job_that_was_not_submitted_is_not_charged(slurm: StandinSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "SUBMIT_DELAYS_S", (0.05, 0.05))
    slurm.break_("sbatch", "down")
    with pytest.raises(UserError, match="Unable to contact"):
        submit()
    assert slurm.runs() == []
    assert charged() == 0.0


def test_another_attempt_is_charged_as_well(slurm: StandinSlurm) -> None:
    run = submit(hours=5.0)
    ends(run, after_hours=5.0, state="FAILED")
    slurm.set_job("101", state="FAILED")
    run.resume()
    assert charged() == pytest.approx(2 * GPUS * 5.0, abs=0.01)
    ends(run, after_hours=5.0, state="FAILED", attempt=2)
    slurm.set_job("102", state="FAILED")
    with pytest.raises(UserError, match=r"may cost 40\.00 GPU-hours, but 20\.00 of .* left; 80\.00 are already"):
        run.resume()


def test_an_attempt_is_charged_once(slurm: StandinSlurm) -> None:
    run = submit(hours=5.0)
    ends(run, after_hours=5.0, state="FAILED")
    slurm.set_job("101", state="FAILED")
    run.resume()
    ends(run, after_hours=1.0, attempt=2)
    assert charged() == pytest.approx(GPUS * (5.0 + 1.0), abs=0.01)


def test_what_is_refused_or_fails_leaves_the_run_and_its_charge_as_they_were(
    slurm: StandinSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = submit(hours=5.0)
    checkpoint = RunPaths(run.folder).checkpoints / "update-00000005"
    checkpoint.mkdir(parents=True)
    ends(run, after_hours=5.0, state="FAILED")
    slurm.set_job("101", state="FAILED")
    other = submit(hours=5.0)
    with pytest.raises(UserError, match="Wait for running jobs to end"):
        run.resume(from_scratch=True)
    assert checkpoint.is_dir()
    checkpoint.rmdir()
    ends(other, after_hours=1.0)
    monkeypatch.setattr(backend, "SUBMIT_DELAYS_S", (0.05, 0.05))
    slurm.break_("sbatch", "down")
    with pytest.raises(UserError, match="Unable to contact"):
        run.resume()
    assert charged() == pytest.approx(GPUS * (5.0 + 1.0), abs=0.01)


def test_a_run_directory_that_can_not_be_made_is_not_charged(
    slurm: StandinSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise folder.FolderError("no space left", "make room")

    monkeypatch.setattr(folder, "create", is_full)
    with pytest.raises(UserError, match="no space left"):
        submit()
    assert charged() == 0.0


def test_elements_that_run_stay_charged_when_another_begins_again(slurm: StandinSlurm) -> None:
    run = submit(hours=1.0, array="1-5")
    paths = RunPaths(run.folder)
    files_say(paths.of_element(3), attempt=1, state="FAILED", exit_code=1)
    for number in (1, 2, 4, 5):
        files_say(paths.of_element(number), attempt=1, state="RUNNING")
    assert charged() == GPUS * 5.0
    before = trainjob.run(run.id).status()
    one = next(element for element in before.elements if element.paths.element == 3)
    again = [resuming.request_of(jobs.read(one.paths.job))]
    charge = resumption.charge_of_run(one, [one], again, over_budget=True)
    assert charge is not None
    with ledger.charged(paths, charge) as begins:
        begins()
    assert charged() == GPUS * 6.0


def test_each_attempt_costs_by_its_own_devices(slurm: StandinSlurm) -> None:
    run = submit(hours=5.0)
    ends(run, after_hours=5.0, state="FAILED")
    slurm.set_job("101", state="FAILED")
    paths = RunPaths(run.folder)
    assert charged() == pytest.approx(GPUS * 5.0, abs=0.01)
    smaller = trainjob.plan("hpc", command=["true"], instances=1, time_limit="05:00:00", max_attempts=1)
    charge = resumption.charge_of_run(run.status(), [run.status()], [smaller.prepared.request], over_budget=True)
    assert charge is not None
    with ledger.charged(paths, charge) as begins:
        begins()
    record = json.loads(paths.job.read_text())
    record["plan"]["topology"]["devices"] = 1
    paths.job.write_text(json.dumps(record))
    ends(run, after_hours=5.0, state="FAILED", attempt=2)
    assert charged() == pytest.approx((GPUS + 1) * 5.0, abs=0.01)


def test_commands_at_once_share_what_is_left(slurm: StandinSlurm) -> None:
    words = ["submit", "-c", "hpc", "--instances", str(GPUS), "--time-limit", "02:00:00", "--max-attempts", "1"]
    command = [sys.executable, "-m", "trainjob", *words, "--again", "--no-check", "--", "true"]
    with ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda _: ran(command, folder=slurm.here), range(8)))
    refused = [one for one in ended if one.returncode != 0]
    assert ["100 GPU-hours" in one.stderr for one in refused] == [True, True], [one.stderr for one in refused]
    assert charged() == GPUS * 2 * 6


def test_only_a_person_at_a_terminal_exceeds_a_budget(slurm: StandinSlurm) -> None:
    words = ["submit", "-c", "hpc", "--instances", str(GPUS), "--time-limit", "24:00:00", "--no-check", "--over-budget"]
    ended = ran([sys.executable, "-m", "trainjob", *words, "--", "true"], folder=slurm.here)
    assert (ended.returncode, slurm.jobs()) == (2, {})
    assert "--over-budget needs a person at a terminal" in ended.stderr


@pytest.mark.parametrize("lines", [30, pytest.param(100, marks=pytest.mark.full)])
def test_no_command_lines_exceed_the_budget_together(slurm: StandinSlurm, lines: int) -> None:
    draw = random.Random(11)
    allowed = 0
    for _ in range(lines):
        settings: dict[str, Any] = {
            "hours": draw.choice([None, 0.1, 0.5, 2.0, 24.0, 700.0]),
            "instances": draw.choice([1, 2, 4, 8]),
            "starts": draw.choice([1, 2, 50]),
        }
        if draw.random() < 0.3:
            settings["array"] = draw.choice(["0-9", "1,2", "0-99%1"])
        try:
            if draw.random() < 0.3:
                run = reserve(settings["instances"], draw.choice(["6m", "0.5h", "2h", "29d", "UNLIMITED", "2", "-1h"]))
                settings = {"hours": 0.1}
            else:
                run = submit(**settings)
        except UserError:
            pass
        else:
            allowed += 1
            if draw.random() < 0.5 and "array" not in settings:
                ends(run, after_hours=draw.uniform(0, settings["hours"] or 1.0))
        assert charged() <= 100.0
    assert allowed > 5
    assert len(slurm.jobs()) == allowed


@pytest.mark.parametrize(
    ("verb", "hours"), [("cancel", 0.0), ("prune", 0.0), ("resume", 2.0), ("resume elsewhere", 2.0)]
)
def test_a_submission_that_was_cut_short_is_charged_no_longer_than_it_may_begin(
    slurm: StandinSlurm, monkeypatch: pytest.MonkeyPatch, verb: str, hours: float
) -> None:
    monkeypatch.setattr(moving, "refuse_problems", lambda *_, **__: None)  # they ask a Slurm that answers sinfo
    paths = RunPaths(submit().folder)
    slurm.forget("101")
    found = submissions.read(paths)
    assert found is not None
    found.replace(native=None).write(paths)
    assert charged() == GPUS * 2.0
    if verb == "cancel":
        cancel(paths, grace_s=0.0)
    elif verb == "prune":
        assert pruning.remove([pruning.PrunableRun(status(paths), 0)]) == {}
        assert not paths.folder.exists()
    elif verb == "resume":
        resumption.resume(paths, warn=print)
    else:
        moving.resume(paths, "hpc", warn=print)
    assert charged() == GPUS * hours


@pytest.mark.parametrize("verb", ["cancel", "cancel twice", "prune", "resume"])
def test_what_has_run_stays_charged_though_its_submission_was_never_recorded(slurm: StandinSlurm, verb: str) -> None:
    paths = RunPaths(submit(hours=4.0).folder)
    slurm.forget("101")
    found = submissions.read(paths)
    assert found is not None
    found.replace(native=None).write(paths)
    with paths.events.open("a") as events:
        events.write(f"{clock.time() - 1.5 * 3600:.0f}\t1\tbegan\tnode1,node2\n")
    files_say(paths.folder, attempt=1, state="RUNNING")
    assert status(paths).state == "LOST"
    if verb == "prune":
        assert pruning.remove([pruning.PrunableRun(status(paths), 0)]) == {}
    elif verb == "resume":
        resumption.resume(paths, warn=print)
    else:
        for _ in verb.split():
            cancel(paths, grace_s=0.0)
    assert charged() == pytest.approx(GPUS * (1.5 + 4.0 * (verb == "resume")), abs=0.01)


@pytest.mark.parametrize(
    "line",
    [
        '{"run": "abcd-x", "most": 9',
        "[1]",
        '{"run": "abcd-x", "most": "9"}',
        '{"most": NaN}',
        "[" * 100_000,  # deeper than Python's stack
        f'{{"run": "abcd-x", "device": "GPU", "most": {10**400}}}',  # more than a float holds
        f'{{"run": "abcd-x", "device": "GPU", "most": 1, "spent": {10**400}, "ended_at": 1}}',
        '{"run": "abcd-x", "device": "GPU", "most": Infinity}',
    ],
)
def test_a_line_that_is_cut_or_no_row_is_passed_over(slurm: StandinSlurm, line: str) -> None:
    submit()
    file = home() / "ledger.jsonl"
    file.write_text(file.read_text() + line)
    submit()
    assert charged() == 2 * GPUS * 2.0


def on_hpc(**settings: Any) -> Prepared:
    return prepare(
        JobOptions("hpc", None, {"command": ["true"], "instances": GPUS, "time_limit": "02:00:00", **settings})
    )


def test_the_jobs_of_a_comparison_are_charged_and_settled_before_their_folders_go(slurm: StandinSlurm) -> None:
    with workbench(on_hpc(max_attempts=3), print, is_on_cluster=True) as bench:
        bench.begin(bench.vary(max_attempts=1))
        assert charged() == GPUS * 2
        with pytest.raises(
            UserError, match=r"may cost 96\.00 GPU-hours in 6 starts of 16\.00, but 84\.00 of .* are left"
        ):
            bench.begin(bench.vary(max_attempts=6))
    assert slurm.alive() == []
    assert not bench.folder.exists()
    assert charged() == 0.0


def test_a_comparison_on_cpus_is_not_charged(slurm: StandinSlurm) -> None:
    gives_gpus(slurm, nodes={"count": 2, "cpus": 8})
    with workbench(on_hpc(instances=2), print, is_on_cluster=True) as bench:
        bench.begin(bench.request)
    assert not (home() / "ledger.jsonl").exists()


def test_the_record_of_a_job_that_could_not_be_cancelled_stays(slurm: StandinSlurm) -> None:
    said: list[str] = []
    with workbench(on_hpc(max_attempts=1), said.append, is_on_cluster=True) as bench:
        paths = bench.begin(bench.request)
        slurm.break_("scancel", "down")
    assert len(slurm.alive()) == 1
    assert paths.submission.exists()
    assert said[-1].endswith(f"is kept, because its job may go on. End it: trainjob cancel {paths.folder}")
    slurm.mend()
    ran([TRAINJOB, "cancel", str(paths.folder)], code=0)
    assert slurm.alive() == []


def test_a_comparison_without_a_time_limit_is_refused(slurm: StandinSlurm) -> None:
    words = ("--cluster", "hpc", "--time-limit", "UNLIMITED", "--", "true")
    ended = ran([TRAINJOB, "verify", "--resume", *words], code=1)
    assert "the time limit is UNLIMITED, so its jobs may cost any amount" in ended.stderr
    assert "--time-limit 00:10:00" in ended.stderr
    assert slurm.jobs() == {}


def test_a_comparison_is_judged_by_one_start_of_each_job(
    slurm: StandinSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    words = ("verify", "--resume", "--cluster", "hpc", "--time-limit", "02:00:00")
    monkeypatch.setattr(of_workbench, "refuse_unready", lambda one: judged.append(one.request.job.max_attempts))
    with pytest.raises(SystemExit):
        main([*words, "--instances", str(GPUS), "--budget", "0gpu-hours", "--", "true"])
    assert judged == [1]
    assert slurm.jobs() == {}


def test_a_submission_that_was_cut_short_is_taken_back(slurm: StandinSlurm) -> None:
    submit(hours=1.0)
    cut_short = submit(hours=4.0)
    ledger.take_back(RunPaths(cut_short.folder))
    assert charged() == GPUS * 1
    submit(hours=10.0)
