"""Runs on a real Slurm, handed over on its login node and over ssh: submitted once, followed, ended, fetched."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from tests.support.printed_json import reported
from tests.support.slurm_site import Ended, Site
from tests.support.waiting import until

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_stand_ins")]
# Over ssh is what differs most; what is the same on the login node, tests/backends tries there, too.
PLACES = ("far", pytest.param("here", marks=pytest.mark.full))
BOTH = ("here", "far")
LOST = 'out=$($real "$@") || exit 1\necho "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1'


def jobs(cluster: Site) -> list[str]:
    """Return the names of the jobs that wait or run."""
    return cluster.run("squeue", "--noheader", "--format=%j").out.split()


def stay(cluster: Site, place: str, *words: str) -> str:
    run = cluster.submit(place, "--instances", "2", *words, "--", "sleep", "600")
    cluster.wait(run, "RUNNING")
    return run


@pytest.mark.parametrize("place", PLACES)
def test_a_task_trains_and_its_record_is_here(cluster: Site, place: str) -> None:
    run = cluster.submit(place, "--instances", "2", "--updates", "4", "--log-every", "1")
    cluster.wait(run, "COMPLETED")
    report = cluster.json("report", run)
    assert (report["updates"], report["instances"]) == (4, 2)
    log = cluster.trainjob("logs", run, "--rank", "1").out
    assert "--- attempt 1 · rank 1 of 2 · node" in log
    weights = cluster.here / f"{run}.safetensors"
    assert cluster.trainjob("export", run, "-o", str(weights)).code == 0
    assert weights.stat().st_size > 1000
    listed = {one["id"]: one for one in cluster.json("list")}
    assert (listed[run]["state"], listed[run]["cluster"]) == ("COMPLETED", place)
    assert cluster.trainjob("prune", "--older-than-days", "0", "--yes").code == 0
    assert not (cluster.runs / run).exists()


def test_following_over_ssh_prints_all_of_it_once(cluster: Site) -> None:
    script = "for n in 1 2 3 4 5 6; do echo line $n; sleep 1; done"
    ended = cluster.trainjob(
        "submit", "--cluster", "far", "--instances", "1", "--follow", "--again", "--", "sh", "-c", script
    )
    assert ended.code == 0, ended.err
    assert re.findall(r"\[0\] (line \d)", ended.out) == [f"line {number}" for number in range(1, 7)]
    run = re.findall(r"submitted run (\S+):", ended.out)[0]
    followed = cluster.trainjob("logs", run, "--follow").out
    assert re.findall(r"\[0\] (line \d)", followed) == [f"line {number}" for number in range(1, 7)]


@pytest.mark.full
def test_a_run_that_somebody_follows_need_not_wait_two_minutes_after_a_requeue(cluster: Site) -> None:
    # With a checkpoint there is something to continue from. The job shows when it was requeued, and could start again.
    fails = "mkdir -p $TRAINJOB_RUN_DIR/checkpoints/update-00000005; echo CUDA error: uncorrectable ECC error; exit 1"
    script = f'if [ "$TRAINJOB_ATTEMPT" = 1 ]; then {fails}; fi; scontrol show job -o $SLURM_JOB_ID'
    ended = cluster.trainjob(
        "submit", "--cluster", "here", "--instances", "1", "--follow", "--again", "--", "sh", "-c", script
    )
    assert ended.code == 0, ended.err
    requeued, eligible = (
        datetime.fromisoformat(re.findall(rf" {name}=(\S+)", ended.out)[-1]) for name in ("SubmitTime", "EligibleTime")
    )
    # Slurm itself would have it wait for 121 s.
    assert (eligible - requeued).total_seconds() < 110


@pytest.mark.parametrize("place", PLACES)
def test_cancel_ends_this_run_and_its_array_and_no_other(cluster: Site, place: str) -> None:
    mine, other = stay(cluster, place, "--name", "mine"), stay(cluster, place, "--name", "other")
    again = ["sbatch", "--array=1-2", "--hold", "--job-name=follow-up", "--wrap=sleep 600", "--output=/dev/null"]
    assert cluster.run("sh", "-c", 'cd "$1" && shift && "$@"', "sh", str(cluster.runs / mine), *again).code == 0
    assert cluster.json("cancel", mine)["state"] == "CANCELLED"
    assert jobs(cluster) == [other]
    assert cluster.state(other) == "RUNNING"
    assert cluster.json("cancel", other)["state"] == "CANCELLED"
    assert jobs(cluster) == []


def test_a_run_that_waits_says_why_and_is_cancelled_without_a_word_of_its_own(cluster: Site) -> None:
    first = stay(cluster, "here", "--name", "first", "--instances", "16")
    second = cluster.submit("far", "--instances", "2", "--name", "second", "--", "true")
    # Slurm gives its reason, and works out a start, some seconds after it has taken the job.
    says = r"waits for nodes to become free \(Resources\); may start at [\d-]+ [\d:]+"
    until(lambda: re.fullmatch(says, cluster.json("status", second)["note"] or ""), "why it waits, and until when")
    assert cluster.state(second) == "PENDING"
    assert cluster.json("cancel", second)["state"] == "CANCELLED"
    cluster.json("cancel", first)


@pytest.mark.full
@pytest.mark.parametrize("place", BOTH)
def test_stop_asks_over_there(cluster: Site, place: str) -> None:
    run = cluster.submit(place, "--instances", "1", "--epochs", "1000")
    until(lambda: cluster.json("status", run)["update"], "training")
    assert cluster.trainjob("cancel", run, "--stop").code == 0
    cluster.wait(run, "STOPPED")
    assert cluster.trainjob("resume", run).code == 0
    until(lambda: cluster.json("status", run)["attempt"] == 2 and cluster.state(run) == "RUNNING", "attempt 2")
    assert cluster.json("cancel", run)["state"] in ("CANCELLED", "STOPPED")


def test_an_answer_that_is_lost_is_found_and_nothing_is_submitted_twice(cluster: Site) -> None:
    cluster.record("sbatch", LOST)
    for place in BOTH:
        run = cluster.submit(place, "--instances", "1", "--name", f"lost-{place}", "--", "sleep", "600")
        assert jobs(cluster).count(run) == 1
        cluster.json("cancel", run)
    assert len(cluster.calls("sbatch")) == 2


# sbatch has done its work, and the connection over which it would say so is gone: the parent of `timeout` is ssh's.
CUT = '$real "$@" >/dev/null || exit 1\nkill -9 $(cut -d " " -f 4 /proc/$PPID/stat)\nsleep 5'


def test_a_connection_that_is_cut_behind_sbatch_is_opened_again_and_the_job_is_found(cluster: Site) -> None:
    cluster.record("sbatch", CUT)
    run = cluster.submit("far", "--instances", "1", "--name", "cut", "--", "sleep", "600")
    assert (jobs(cluster), len(cluster.calls("sbatch"))) == ([run], 1)
    cluster.wait(run, "RUNNING")
    assert cluster.json("cancel", run)["state"] == "CANCELLED"


def test_a_network_that_is_gone_behind_sbatch_says_what_finds_the_job(cluster: Site) -> None:
    config = cluster.node.config.read_text()
    # Nobody can log in any more, either.
    cluster.record(
        "sbatch",
        f'$real "$@" >/dev/null || exit 1\nsed -i s/2222/2/ {cluster.node.config}\n'
        'kill -9 $(cut -d " " -f 4 /proc/$PPID/stat)',
    )
    try:
        asked = ("--instances", "1", "--name", "gone", "--", "sleep", "600")
        ended = cluster.trainjob("submit", "--cluster", "far", *asked)
    finally:
        cluster.node.config.write_text(config)
    assert ended.code == 1
    run = next(one["id"] for one in cluster.json("list") if one["id"].endswith("-gone"))
    says = f"Run {run} may have been submitted or not: `trainjob resume {run}` looks for it in Slurm"
    assert says in ended.err
    assert cluster.state(run) in ("PENDING", "RUNNING")
    assert (jobs(cluster), len(cluster.calls("sbatch"))) == ([run], 1)
    assert cluster.json("cancel", run)["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("changes", "message", "code"),
    [
        ({"Port": "2"}, "127.0.0.1 port 2 refuses the connection", 4),
        ({"UserKnownHostsFile": "/dev/null"}, "is not known yet, and trainjob never accepts one unseen", 1),
        ({"IdentityFile": "/dev/null"}, "login accepts none of your keys", 1),
    ],
)
def test_what_ssh_refuses_leaves_nothing(cluster: Site, changes: dict[str, str], message: str, code: int) -> None:
    config, before = cluster.node.config.read_text(), sorted(one["id"] for one in cluster.json("list"))
    cluster.run("ssh", "-O", "exit", "-o", f"ControlPath={cluster.sockets}/trainjob/%C", "login")
    cluster.node.configure(**changes)
    try:
        ended = cluster.trainjob("submit", "--cluster", "far", "--instances", "1", "--name", "refused", "--", "true")
    finally:
        cluster.node.config.write_text(config)
    assert (ended.code, message in ended.err) == (code, True), ended.err
    assert sorted(one["id"] for one in cluster.json("list")) == before
    assert (jobs(cluster), [path for path in cluster.runs.iterdir() if "refused" in path.name]) == ([], [])


def test_the_job_of_a_hand_over_that_was_cut_is_found_by_the_next_command(cluster: Site) -> None:
    run = stay(cluster, "far")
    record = cluster.folder / "data" / "trainjob" / "runs" / run / "submission.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "native": None}))
    cluster.record("sbatch")
    assert (cluster.state(run), jobs(cluster), cluster.calls("sbatch")) == ("RUNNING", [run], [])
    assert json.loads(record.read_text())["native"]["job_id"]
    assert cluster.json("cancel", run)["state"] == "CANCELLED"


def test_a_controller_that_is_down_is_tried_again_and_then_clear(cluster: Site) -> None:
    down = 'echo "squeue: error: Unable to contact slurm controller (connect failure)" >&2; exit 1'
    cluster.record("squeue", down)
    cluster.record("sbatch", down)
    before = sorted(one["id"] for one in cluster.json("list"))

    def submitted(place: str) -> Ended:
        return cluster.trainjob("submit", "--cluster", place, "--instances", "1", "--name", "down", "--", "true")

    # Most of it is the pauses between two tries.
    with ThreadPoolExecutor() as pool:
        for name, ended in zip(("this machine", "login"), pool.map(submitted, BOTH), strict=True):
            assert ended.code == 4
            assert re.search(
                rf"Slurm's controller, asked from {name}, does not answer .*connect failure.*"
                r"It was tried 5 times, and nothing was submitted",
                ended.err,
            )
    assert len(cluster.calls("squeue")) >= 10
    cluster.real("squeue")
    assert sorted(one["id"] for one in cluster.json("list")) == before
    assert not [path for path in cluster.runs.iterdir() if "down" in path.name]


def test_no_slurm_on_the_machine(cluster: Site) -> None:
    for program in ("squeue", "sbatch"):
        cluster.record(program, "exit 127")
    ended = cluster.trainjob("submit", "--cluster", "far", "--instances", "1", "--name", "none", "--", "true")
    assert ended.code == 1
    assert re.search(
        r"(squeue|sinfo|sbatch) is not on PATH of login: is that the login node of a Slurm cluster", ended.err
    )


def test_a_redirect_that_is_left_set_is_refused(cluster: Site) -> None:
    ended = cluster.trainjob("submit", "--cluster", "far", environment={"TRAINJOB_MAX_UPDATES": "5"})
    assert ended.code == 1
    assert "TRAINJOB_MAX_UPDATES=5: only a rehearsal redirects a job" in ended.err
    assert "Run: unset TRAINJOB_MAX_UPDATES" in ended.err


def test_what_the_site_says_of_a_job_that_it_takes_is_shown(cluster: Site) -> None:
    """As a job_submit plugin does by slurm.log_user."""
    cluster.record("sbatch", 'echo "sbatch: lua: moved to partition short" >&2; exec $real "$@"')
    words = ("submit", "--cluster", "far", "--instances", "1", "--again", "--", "true")
    ended = cluster.trainjob(*words)
    assert (ended.code, "the site says: sbatch: lua: moved to partition short\n" in ended.err) == (0, True), ended


def test_what_sbatch_refuses_leaves_nothing(cluster: Site) -> None:
    cluster.write_cluster("wrong", ssh=True, directives={"partition": "gpu", "qos": "nobodys", "licenses": "none:3"})
    ended = cluster.trainjob("submit", "--cluster", "wrong", "--instances", "1", "--name", "refused", "--", "true")
    assert ended.code == 1
    assert (
        "sbatch on login says: sbatch: error: Batch job submission failed: Invalid license specification" in ended.err
    )
    assert not [one for one in cluster.json("list") if "refused" in one["id"]]
    assert not [path for path in cluster.runs.iterdir() if "refused" in path.name]


@pytest.mark.parametrize("place", PLACES)
def test_a_budget_charges_what_a_job_may_cost_and_then_what_it_has_cost(cluster: Site, place: str) -> None:
    name = f"paid-{place}"
    nodes = {"count": 2, "cpus": 4, "accelerator": "gpu", "accelerators": 2}
    changes = {"nodes": nodes, "request": "none", "node_check": False, "prologue": ["sleep 20"]}
    cluster.write_cluster(name, ssh=place == "far", budget={"gpu_hours": 1}, **changes)
    words = ("--no-check", "--instances", "4", "--max-attempts", "1", "--time-limit")
    run = cluster.submit(name, *words, "00:15:00", "--", "true")
    refused = cluster.trainjob("submit", "--cluster", name, "--again", *words, "00:15:00", "--", "true")
    assert refused.code == 1
    assert "may cost 1.00 GPU-hours" in refused.err
    assert "but 0.00 of 1 GPU-hours (budget in the file of cluster" in refused.err
    cluster.wait(run, "FAILED")  # the nodes have no GPUs
    plan = cluster.json("plan", "--cluster", name, "--instances", "4", "--task", "digits-cnn")
    assert 0.0 < plan["cost"]["budgets"][0]["charged_hours"] < 0.2
    assert cluster.submit(name, *words, "00:10:00", "--", "true") != run


ECHO = 'echo "$(echo "$*" | sed "s/.*--jobs=//")|'
# What sacct does, and what status then says of a run that Slurm has forgotten while its files say RUNNING.
ACCOUNTED = [
    (f'{ECHO}TIMEOUT"', "TIMEOUT", "Slurm ended it at its time limit"),
    (f'{ECHO}CANCELLED by 0"', "CANCELLED", "cancelled in Slurm"),
    (f'{ECHO}OUT_OF_MEMORY"', "FAILED", "a node ran out of memory"),
    ("exit 1", "LOST", "Slurm has forgotten its job"),
    ("echo nonsense; echo '||'", "LOST", "Slurm has forgotten its job"),
    ("exec sleep 1000", "LOST", "Slurm has forgotten its job"),
    (None, "LOST", "Slurm has forgotten its job"),  # accounting is off: the real one errs
]


def test_sacct_is_used_where_it_works_and_never_needed(cluster: Site) -> None:
    run = stay(cluster, "far")
    cluster.record("squeue", "exit 0")
    unknown = '[ -z "${4-}" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }'
    cluster.record("scontrol", f"{unknown}; echo No jobs in the system")
    for sacct, state, note in ACCOUNTED:
        cluster.real("sacct")
        if sacct is not None:
            cluster.record("sacct", sacct)
        found = cluster.json("status", run)
        assert (found["state"], note in found["note"]) == (state, True), (sacct, found["note"])
        # What sacct has said once is kept: each answer is the first.
        (cluster.folder / "data" / "trainjob" / "runs" / run / ".settled.json").unlink(missing_ok=state == "LOST")
    cluster.real("squeue")
    cluster.json("cancel", run)


def test_a_thousand_runs_are_one_scheduler_call(cluster: Site) -> None:
    there, record = cluster.folder / "shared" / "many", cluster.folder / "many" / "trainjob"
    (record / "index").mkdir(parents=True)
    fixed = {"backend": "slurm", "cluster": "far", "argv": [], "script": "job.sbatch", "attempt": 1, "digest": ""}
    for number in range(1000):
        name, where = f"{number:04d}-many", {"host": "login", "user": None}
        for folder in (there / name, record / "runs" / name):
            folder.mkdir(parents=True)
        (there / name / "attempt").write_text("1\n")
        (there / name / "state").write_text("RUNNING\n")
        native = {"job_id": str(number), "folder": str(there / name), **where}
        remote = {"folder": str(there / name), **where}
        submission = {**fixed, "submitted_at": "2026-01-01T00:00:00+00:00", "project": {}, "native": native}
        (record / "runs" / name / "submission.json").write_text(json.dumps({**submission, "remote": remote}))
        (record / "index" / name).symlink_to(record / "runs" / name)
    fields = "N/A|RUNNING|None|N/A|0:01|1:00|0:59|n1"
    cluster.record("squeue", f'for n in $(seq 0 999); do printf "$n|$n|{fields}|{there}/%04d-many\\n" $n; done')
    listed = cluster.json("list", environment={"XDG_DATA_HOME": str(record.parent)})
    assert (len(listed), {(one["state"], one["note"]) for one in listed}) == (1000, {("RUNNING", None)})
    assert len(cluster.calls("squeue")) == 1


def test_a_cluster_that_cannot_be_reached_hides_no_run(cluster: Site) -> None:
    here, far = stay(cluster, "here"), stay(cluster, "far")
    config = cluster.node.config.read_text()
    cluster.run("ssh", "-O", "exit", "-o", f"ControlPath={cluster.sockets}/trainjob/%C", "login")
    cluster.node.config.write_text(config.replace("Port 2222", "Port 2"))
    try:
        listed = cluster.trainjob("list", "--json")
        assert "warning: state as last seen: ssh to login: 127.0.0.1 port 2 refuses the connection" in listed.err
        states = {one["id"]: (one["state"], one["is_stale"]) for one in reported(listed.out)}
        assert (states[here], states[far]) == (("RUNNING", False), ("RUNNING", True))
    finally:
        cluster.node.config.write_text(config)
    for run in (here, far):
        cluster.json("cancel", run)


def test_a_full_quota_over_there(cluster: Site) -> None:
    small = cluster.folder / "small"
    small.mkdir()
    cluster.slurm.run_as_root(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)])
    cluster.write_cluster("full", ssh=True, runs_dir=f"{small}/runs")
    ended = cluster.trainjob("submit", "--cluster", "full", "--instances", "1", "--name", "full", "--", "true")
    assert ended.code == 1
    assert "no space is left for you on login" in ended.err
    assert not [one for one in cluster.json("list") if "full" in one["id"]]


def test_a_cluster_file_is_compared_with_the_live_cluster(cluster: Site) -> None:
    ended = cluster.trainjob("cluster", "check", "far", "--ask-controller")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "the live cluster is as the file says"), ended.out
    cluster.write_cluster("old", ssh=True, limits={"max_nodes": 2, "max_time": "24:00:00"})
    found = cluster.json("cluster", "check", "old", "--ask-controller")
    assert [one["key"] for one in found["changes"]] == ["limits.max_time"]
