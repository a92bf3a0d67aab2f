"""A job under Slurm, by the library alone: elements, starts, requeue decisions, signals, and where ranks meet."""

from __future__ import annotations

import hashlib
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.shell_library import LIBRARY, RUNNING, Bash, SlurmBash
from tests.support.waiting import LIMIT_S, until
from trainjob.contract import environment
from trainjob.contract.paths import RunPaths
from trainjob.records import events

JOB = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "localhost", "SLURM_JOB_NAME": "mine"}
OF_ARRAY = RUNNING.replace("JobId=7", "JobId=7 ArrayJobId=5 ArrayTaskId=3")


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    return SlurmBash(tmp_path)


def page(ranks: str, *settings: str) -> str:
    """Return the lines of a page, with settings of the library such as max_attempts=2."""
    reported = f"max_attempts=50 counted_from=update-00000000 {' '.join(settings)}"
    return f"{reported}\nbegin_run\n(\ntrap '' USR1\n{ranks}\n) &\nwait_for_ranks"


def test_a_job_that_slurm_starts_once_more_leaves_a_complete_run_alone(bash: Bash) -> None:
    """A preemption and the script may both have asked for a requeue."""
    assert bash.run(page("true"), **JOB).code == 0
    bash.program("scancel", "true")
    bash.write(".follow_up", "12\n")
    again = bash.run(page("touch ran-again"), **JOB)
    assert bash.calls("scancel") == ["--state=PENDING 12"]
    assert (again.code, bash.word("state"), bash.word("attempt")) == (0, "COMPLETED", "1")
    assert "the run is complete" in again.err
    assert not (bash.folder / "ran-again").exists()
    # Another job, submitted by hand, is somebody's wish.
    assert bash.run(page("touch ran-again"), **{**JOB, "SLURM_JOB_ID": "8"}).code == 0
    assert (bash.word("attempt"), (bash.folder / "ran-again").exists()) == ("2", True)


def test_outside_of_slurm_it_says_what_it_is_for(bash: Bash) -> None:
    output = bash.run(page("true"))
    assert (output.code, output.err) == (1, "trainjob: this script is for Slurm; in its folder: sbatch job.sbatch\n")
    assert bash.word("attempt") is None


@pytest.mark.parametrize(
    ("devices", "option"),
    [(["kfd"], "--rocm"), (["nvidiactl"], "--nv"), (["kfd", "nvidiactl"], "--nv"), ([], "--nv")],
    ids=["AMD", "NVIDIA", "both", "none"],
)
def test_apptainer_is_told_whose_gpus_the_node_has(bash: Bash, devices: list[str], option: str) -> None:
    for device in devices:
        bash.write(f"dev/{device}")
    lines = 'contain_ranks apptainer image gpu; echo "${TRAINJOB_CONTAINED[*]}"'
    folders = "TRAINJOB_SUBMITTED_IN=$PWD TRAINJOB_RUN_DIR=$PWD"
    assert f" {option} --pwd " in bash.run(f"{folders}; {lines}", TRAINJOB_DEVICES="dev").out


@pytest.mark.parametrize(
    ("image", "noted"),
    [
        ("$PWD/../train.sif", f"sha256:{hashlib.sha256(b'an image').hexdigest()}"),
        ("docker://torch@sha256:12ab", "docker://torch@sha256:12ab"),
        ("docker://torch:2", None),  # what a tag names is not known here
    ],
)
def test_the_digest_of_a_jobs_image_is_noted(bash: Bash, image: str, noted: str | None) -> None:
    bash.write("../train.sif", "an image")
    assert bash.run(page("true", "container=apptainer", f'image="{image}"'), **JOB).code == 0
    assert events.image(events.read(RunPaths(bash.folder))) == noted
    assert [event.what for event in events.read(RunPaths(bash.folder))][-1] == "ended"


def test_an_engine_is_asked_again_for_an_image_that_it_downloads(bash: Bash) -> None:
    bash.program("docker", '[[ "$1" == ps ]] && exit; [[ -e pulled ]] && echo "torch@sha256:12ab sha256:34cd"')
    ranks = "until grep -q inspect ../bin/docker.calls; do sleep 0.1; done; touch pulled"
    page_of_docker = page(ranks, "container=docker", "image=torch:2", "image_look_s=0.1")
    assert bash.run(page_of_docker, **JOB).code == 0
    assert events.image(events.read(RunPaths(bash.folder))) == "torch@sha256:12ab"
    bash.program("docker", '[[ "$1" == ps ]] || echo "34cd"')  # Podman's, of an image that is in no registry
    assert bash.run(page("true", "container=docker", "image=torch:2"), **{**JOB, "SLURM_JOB_ID": "8"}).code == 0
    assert events.image(events.read(RunPaths(bash.folder))) == "sha256:34cd"


def test_a_job_that_failed_or_is_rehearsed_without_its_container_waits_for_no_digest(bash: Bash) -> None:
    bash.program("sha256sum", "sleep 40")
    bash.write("../train.sif")
    settings = ("container=apptainer", "image=../train.sif")
    assert bash.run(page("exit 3", *settings), **JOB).code == 3
    assert bash.run(page("true", *settings), **{**JOB, "SLURM_JOB_ID": "8"}, TRAINJOB_CONTAINER="none").code == 0
    assert events.image(events.read(RunPaths(bash.folder))) is None


# --- The environment that a job finds.

HOSTILE = {
    "SLURM_MEM_PER_CPU": "1", "SLURM_EXCLUSIVE": "user", "SLURM_GRES": "gpu:9", "SLURM_DISTRIBUTION": "arbitrary",
    "SLURM_CONSTRAINT": "none", "SLURM_CPU_BIND": "quiet,mask_cpu:0x1", "SLURM_TASK_PROLOG": "/bin/false",
    "SLURMD_DEBUG": "9", "SRUN_CPUS_PER_TASK": "1", "SBATCH_ACCOUNT": "another",
}  # fmt: skip
PROFILE = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": "/mine",
    "LD_LIBRARY_PATH": "/mine",
    "BASH_ENV": "/dev/null",
    "port": "7",
}
NAMES = 'compgen -e | grep -v "^TRAINJOB_" | sort | paste -sd " "'
OF_SLURM = ["SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_JOB_NAME"]


def test_a_job_keeps_what_slurm_has_told_it_and_nothing_of_its_caller_or_a_login_shell(bash: Bash) -> None:
    for login in ({}, PROFILE):
        kept = set(bash.run(NAMES, **JOB, **HOSTILE, **login).out.split()) - {"_", "OLDPWD"}
        assert kept == {"HOME", "PATH", "PWD", "SHLVL", *OF_SLURM}


def test_a_job_with_the_login_environment_keeps_that_and_no_other_jobs_names(bash: Bash) -> None:
    bash.text = lambda lines, text=bash.text: f"login_environment=1\n{text(lines)}"  # type: ignore[method-assign, misc]
    kept = bash.run(NAMES, **JOB, **HOSTILE, **PROFILE).out.split()
    assert set(PROFILE) <= set(kept)
    assert [name for name in kept if name.startswith(("SLURM", "SRUN", "SBATCH"))] == OF_SLURM


def test_the_path_is_the_same_whatever_a_login_shell_does_and_has_slurms_own_commands(bash: Bash) -> None:
    standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    of_slurm = f"{bash.programs}:/home/me/bin:/usr/bin"
    assert bash.run('echo "$PATH"', **JOB, PATH=of_slurm).out == f"{bash.programs}:{standard}\n"
    script = "bash -c '{}'".format(bash.text('echo "$PATH"').replace("'", "'\\''"))
    without = subprocess.run(
        ["env", "-u", "PATH", "/bin/bash", "-c", script], cwd=bash.folder, env=JOB, capture_output=True
    )
    assert without.stdout.decode().strip().endswith(standard)


def test_a_rehearsal_brings_what_the_prologue_would_have(bash: Bash) -> None:
    output = bash.run(
        'echo "$PATH $PYTHONPATH"', **JOB, TRAINJOB_PROLOGUE="skip", PATH="/standins:/bin", PYTHONPATH="/torch"
    )
    assert output.out == "/standins:/bin /torch\n"


def test_gpus_are_those_that_slurm_gave(bash: Bash) -> None:
    gpus = {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert bash.run('echo "${CUDA_VISIBLE_DEVICES-}"', **JOB, **gpus, SLURM_JOB_GPUS="2,3").out == "2,3\n"
    assert bash.run('echo "${CUDA_VISIBLE_DEVICES-}"', **JOB, **gpus).out == "\n"


def test_a_job_is_an_element_or_a_restart_only_if_the_controller_says_so(bash: Bash) -> None:
    reported = {**JOB, "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_JOB_ID": "5", "SLURM_RESTART_COUNT": "4"}
    shows = 'echo "${SLURM_ARRAY_TASK_ID-none} ${SLURM_RESTART_COUNT-none}"'
    assert bash.run(shows, **reported).out == "none none\n"
    bash.program("scontrol", "echo JobId=7 ArrayJobId=5 ArrayTaskId=3 JobState=RUNNING Restarts=2 Reason=None")
    assert bash.run(shows, **reported).out == "3 2\n"
    # The element that began last has its array's own number.
    elements = [f"echo JobId={job} ArrayJobId=7 ArrayTaskId=3 Restarts={job - 6} BatchFlag=1" for job in (8, 7)]
    bash.program("scontrol", "\n".join(elements))
    assert bash.run(shows, **reported).out == "3 1\n"
    bash.program("scontrol", "echo slurm_load_jobs error >&2; exit 1")
    assert bash.run(shows, **reported).out == "3 4\n"


def test_the_prologue_finds_module_as_the_site_defines_it(bash: Bash) -> None:
    output = bash.run('module() { echo "module $*"; }; export -f module; define_module; module load cuda', **JOB)
    assert output.out == "module load cuda\n"


# --- Elements of an array.


def test_each_element_has_a_run_directory_of_its_own(bash: Bash) -> None:
    bash.write("job.json", "{}")
    bash.program("scontrol", OF_ARRAY)
    one = {**JOB, "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_JOB_ID": "5"}
    assert bash.run(page('pwd; echo "$TRAINJOB_RUN_DIR"'), **one).code == 0
    element = bash.folder / "tasks/3"
    assert (element / "logs/scheduler.out").read_text().splitlines() == [str(element)] * 2
    assert (element / "job.json").read_text() == "{}"
    assert (element / "job_id").read_text() == "5_3\n"
    assert (element / "code").samefile(bash.folder / "code")
    assert bash.word("attempt") is None


def test_a_sweep_has_nothing_for_an_element_that_was_not_planned(bash: Bash) -> None:
    bash.program("scontrol", OF_ARRAY)
    output = bash.run(page("true", "is_sweep=1"), **JOB, SLURM_ARRAY_TASK_ID="3", SLURM_ARRAY_JOB_ID="5")
    assert output.code == 1
    assert output.err == (
        f"trainjob: the sweep has nothing for array element 3: those it has are in {bash.folder}/tasks\n"
    )


# --- Starts, and their bounds.


@pytest.mark.parametrize(
    ("before", "checkpoint", "counted"),
    [
        (None, None, "1 1 update-00000000"),
        ("1 1 update-00000000", None, "2 2 update-00000000"),
        ("2 2 update-00000000", "update-00000005", "3 1 update-00000005"),
    ],
)
def test_starts_that_nobody_asked_for_are_counted(
    bash: Bash, before: str | None, checkpoint: str | None, counted: str
) -> None:
    if before:
        bash.write(".starts", before + "\n")
        bash.write("job_id", "7\n")
    if checkpoint:
        (bash.folder / "checkpoints" / checkpoint).mkdir()
    assert bash.run(page("true"), **JOB).code == 0
    assert bash.word(".starts") == counted


@pytest.mark.parametrize(
    ("update", "counted"), [("40", "3 3 40"), ("60", "3 1 60"), ("null", "3 1 ")], ids=["same", "further", "unknown"]
)
def test_starts_of_a_command_are_compared_by_the_progress_that_was_read(bash: Bash, update: str, counted: str) -> None:
    bash.write(".starts", "2 2 40\n")
    bash.write("job_id", "7\n")
    bash.write("progress.json", f'{{"attempt": 2, "epoch": 1, "update": {update}, "durable_update": 7}}\n')
    bash.run(page("true", "counted_from="), **JOB)
    assert bash.word(".starts") == counted


def test_a_start_that_was_asked_for_counts_anew(bash: Bash) -> None:
    bash.write(".starts", "49 2 update-00000000\n")
    bash.write("job_id", "6\n")
    assert bash.run(page("true"), **JOB).code == 0
    assert bash.word(".starts") == "1 1 update-00000000"


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (
            "2 2 update-00000000",
            "two attempts in a row got no further than update-00000000: not started again.",
        ),
        (
            "3 1 update-00000004",
            "this is start 4 and max_attempts is 3: not started again. To continue: trainjob resume",
        ),
    ],
)
def test_a_job_does_not_start_for_ever(bash: Bash, starts: str, message: str) -> None:
    bash.write(".starts", starts + "\n")
    bash.write("job_id", "7\n")
    output = bash.run(page("touch ran", "max_attempts=3"), **JOB)
    assert (output.code, bash.word("state"), bash.word("ran")) == (1, "FAILED", None)
    assert message in output.err


# --- What becomes of a job that left the marker.


def test_a_job_that_was_asked_for_a_checkpoint_is_requeued(bash: Bash) -> None:
    assert bash.run(page("echo 5 >requeue"), **JOB).code == 75
    assert (bash.word("state"), bash.calls("scontrol")[-1]) == ("REQUEUED", "requeue 7")


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        (["stop"], (), ""),
        ([".terminated.1"], ("preemption=cancel",), "told to end (TERM), and preempted jobs don't start"),
        ([], ("max_attempts=1",), "the last of 1 starts (max_attempts) has ended"),
    ],
)
def test_where_it_may_not_start_again_it_is_stopped(
    bash: Bash, files: list[str], settings: tuple[str, ...], message: str
) -> None:
    output = bash.run(page(f"touch requeue {' '.join(files)}", *settings), **JOB)
    assert (output.code, bash.word("state")) == (75, "STOPPED")
    assert message in output.err
    assert "requeue 7" not in bash.calls("scontrol")


@pytest.mark.parametrize(
    ("failed", "preempted", "state"),
    [(True, "None", "REQUEUED"), (True, "2026-01-01", "REQUEUED"), (False, "None", "STOPPED")],
)
def test_srun_tells_the_other_ranks_to_end_where_one_has_failed(
    bash: Bash, failed: bool, preempted: str, state: str
) -> None:
    bash.program("scontrol", f"echo 'JobId=7 JobState=RUNNING Restarts=0 Reason=None PreemptTime={preempted} '")
    failure = "echo '{}' >failure.json; " if failed else ""
    bash.run(page(f"{failure}touch requeue .terminated.1; exit 1", "preemption=cancel"), **JOB)
    assert bash.word("state") == state


def test_a_follow_up_job_that_cannot_be_dropped_for_another_continues_the_run(bash: Bash) -> None:
    # That of an earlier attempt does not exclude the node that has failed since.
    waits = "case $* in *' 8') echo 'JobId=8 JobState=PENDING ' ;; *) " + RUNNING + " ;; esac"
    bash.program("scontrol", f'[ "$1" != requeue ] || exit 1\n{waits}')
    bash.program("scancel", "exit 1")
    bash.program("sbatch", "echo 9")
    bash.program("sleep", "true")
    bash.run(page("echo 8 >.follow_up; printf 'n1\\t1\\tfailed\\n' >excluded_nodes; touch requeue"), **JOB)
    assert (bash.calls("sbatch"), bash.word("state"), bash.word("job_id")) == ([], "REQUEUED", "8")


@pytest.mark.parametrize("refuses", [False, True])
def test_a_run_is_requeued_only_once_its_start_is_certain(bash: Bash, refuses: bool) -> None:
    # Slurm may kill the script 30 s after TERM, whatever it waits for then.
    look = f'cat state exit_code 2>/dev/null | paste -sd " " >>"{bash.programs}/seen"'
    bash.program("scontrol", f'if [ "$1" = requeue ]; then {look}; exit {int(refuses)}; fi\n{RUNNING}')
    bash.program("sbatch", f"{look}; echo 8")
    bash.run(page("touch requeue"), **JOB)
    assert (bash.programs / "seen").read_text() == "RUNNING\n" * (1 + refuses)
    assert (bash.word("state"), bash.word("exit_code")) == ("REQUEUED", "0")


def test_an_end_is_recorded_where_a_full_disk_keeps_the_follow_up_job_from_being_noted(bash: Bash) -> None:
    bash.program("scontrol", f'[ "$1" != requeue ] || exit 1\n{RUNNING}')
    bash.program("sbatch", "echo 8")
    full = "ln -s /dev/full .follow_up; ln -s /dev/full ..follow_up.part"
    bash.run(page(f"{full}; touch requeue"), **JOB)
    assert (bash.word("state"), bash.word("job_id")) == ("REQUEUED", "8")


def test_a_follow_up_where_requeueing_is_not_allowed_takes_the_redirects_along(bash: Bash) -> None:
    bash.program("scontrol", f'[ "$1" != requeue ] || exit 1\n{RUNNING}')
    bash.program("sbatch", f'env >"{bash.programs}/sbatch.environ"; echo "lua: 2 partitions"; echo "8;cluster"')
    output = bash.run(
        page("touch requeue"),
        **JOB,
        TRAINJOB_DEVICE="cpu",
        TRAINJOB_PROLOGUE="skip",
        TRAINJOB_INTERFACE="",
        SLURM_RESTART_COUNT="2",
        SLURM_CONF="/etc/slurm.conf",
    )
    # A new job would count the restarts of this one for its own.
    environ = (bash.programs / "sbatch.environ").read_text().splitlines()
    assert [line for line in environ if line.startswith("SLURM_")] == ["SLURM_CONF=/etc/slurm.conf"]
    assert (bash.word("state"), bash.word("job_id")) == ("REQUEUED", "8")
    assert bash.calls("sbatch") == [
        "--parsable --dependency=afterany:7 --kill-on-invalid-dep=yes --job-name=mine "
        "--export=TRAINJOB_PROLOGUE,TRAINJOB_DEVICE job.sbatch 7"
    ]
    assert "requeueing is not allowed here: job 8 continues after this one" in output.err


@pytest.mark.parametrize("sbatch", ["exit 1", "echo 502 Bad Gateway"])
def test_where_slurm_takes_neither_it_is_stopped(bash: Bash, sbatch: str) -> None:
    bash.program("scontrol", f'[ "$1" != requeue ] || exit 1\n{RUNNING}')
    bash.program("sbatch", sbatch)
    bash.program("sleep", "true")
    assert "Slurm takes neither a requeue nor a follow-up job" in bash.run(page("touch requeue"), **JOB).err
    assert bash.word("state") == "STOPPED"


def test_a_job_that_was_cancelled_a_moment_ago_is_not_brought_back(bash: Bash) -> None:
    bash.program("scontrol", "echo 'JobId=7 JobState=CANCELLED Restarts=0 Reason=None '")
    bash.run(page("touch requeue"), **JOB)
    assert (bash.word("state"), "requeue 7" in bash.calls("scontrol")) == ("CANCELLED", False)


@pytest.mark.parametrize(
    ("shown", "marker", "state"),
    [
        ("JobState=COMPLETING Restarts=1 Reason=None ", False, "REQUEUED"),
        ("JobState=COMPLETING Restarts=0 Reason=TimeLimit ", False, "TIMEOUT"),
        ("JobState=COMPLETING Restarts=0 Reason=None PreemptTime=2026-01-01 ", True, "STOPPED"),
        ("JobState=COMPLETING Restarts=0 Reason=None PreemptTime=2026-01-01 ", False, "CANCELLED"),
        ("JobState=COMPLETING Restarts=0 Reason=None PreemptTime=None ", True, "CANCELLED"),
    ],
)
def test_only_the_controller_knows_why_term_came(bash: Bash, shown: str, marker: bool, state: str) -> None:
    bash.program("scontrol", f"echo 'JobId=7 {shown}'")
    bash.program("sleep", "exec /bin/sleep 0.02")
    leaves = "touch requeue ready" if marker else "touch ready"
    ranks = f"trap 'exit 143' TERM\n{leaves}\nwhile [ ! -e go ]; do sleep 0.05; done"
    process = bash.start(page(ranks), **JOB)
    until(lambda: bash.word("ready") is not None, "the ranks to start")
    process.send_signal(signal.SIGTERM)
    bash.write("go")
    process.wait(LIMIT_S)
    assert bash.word("state") == state


def test_a_run_is_not_complete_because_srun_returned_0_when_a_node_failed(bash: Bash) -> None:
    bash.program("scontrol", "echo 'JobId=7 JobState=NODE_FAIL Restarts=0 Reason=NodeDown PreemptTime=None'")
    output = bash.run(page("true"), **JOB)
    assert (output.code, bash.word("state")) == (75, "FAILED")
    assert "a node failed, and Slurm does not start the job again" in output.err


@pytest.mark.parametrize(
    ("marks", "state"), [(".ended/1.0000", "FAILED"), (".ended/1.0000 .ended/1.0001", "COMPLETED")]
)
def test_where_the_controller_is_silent_srun_is_believed_if_every_rank_has_ended(
    bash: Bash, marks: str, state: str
) -> None:
    bash.program("scontrol", "exit 1")
    output = bash.run(page(f"mkdir .ended; echo 0 | tee {marks}"), **NODES)
    assert bash.word("state") == state
    assert ("not every rank has recorded its end" in output.err) == (state == "FAILED")


@pytest.mark.parametrize(
    ("marks", "controller", "state"),
    [
        (".ended/1.0000", "exit 1", "FAILED"),
        (".ended/1.0000", RUNNING, "COMPLETED"),
        (".ended/1.0000 .ended/1.0001", "exit 1", "COMPLETED"),
    ],
)
def test_so_it_is_where_no_python_starts_on_the_scripts_host(
    bash: Bash, marks: str, controller: str, state: str
) -> None:
    bash.program("scontrol", controller)
    bash.program("python3", "echo 'Traceback (most recent call last):' >&2; exit 1")
    output = bash.run(page(f"mkdir .ended; echo 0 | tee {marks}"), **NODES)
    assert (bash.word("state"), "judged by its files alone" in output.err) == (state, True)
    assert "Traceback" not in output.err


def test_where_no_python_starts_a_follow_up_job_that_has_begun_continues_the_run(bash: Bash) -> None:
    bash.program("python3", "exit 1")
    bash.program("sbatch", "echo 12")
    bash.program("scontrol", "case $4 in 12) echo 'JobId=12 JobState=PENDING ' ;; *) exit 1 ;; esac")
    bash.run(page("true", "queues_follow_up=1"), **NODES)
    assert (bash.word("state"), bash.word(".follow_up")) == ("REQUEUED", "12")


def test_a_controller_that_refuses_its_answer_is_asked_once_more_how_the_job_ended(bash: Bash) -> None:
    again = "JobId=7 JobState=PENDING Restarts=1 Reason=BeginTime PreemptTime=None "
    answers = f"if [ -e refused ]; then echo '{again}'; else touch refused; exit 1; fi"
    bash.program("scontrol", f'if [ "$2" = job ]; then {answers}; fi')
    bash.run(page("touch failure.json; exit 143"), **JOB)
    assert bash.word("state") == "REQUEUED"


def test_what_the_controller_has_shown_of_a_job_that_ends_holds_while_it_does_not_answer(bash: Bash) -> None:
    # Running, then requeued by somebody, then no answer any more.
    ending = "JobId=7 JobState=COMPLETING Restarts=1 Reason=None PreemptTime=None "
    bash.program(
        "scontrol",
        f'if [ "$2" != job ]; then exit 0; fi\n'
        f"if [ -e ending ]; then exit 1; elif [ -e ran ]; then touch ending; echo '{ending}'; "
        f"else touch ran; {RUNNING}; fi",
    )
    bash.run(page("touch requeue"), **JOB)
    assert bash.word("state") == "REQUEUED"
    assert "requeue 7" not in bash.calls("scontrol")


def test_what_waits_for_a_job_to_be_complete_waits_for_the_job_that_continues_it(bash: Bash) -> None:
    takes = f'[ "$1" != update ] || sed -i "/^${{2#JobId=}}|/d" "{bash.folder}/waiting"'
    bash.program("scontrol", f'[ "$1" != requeue ] || exit 1\n{takes}\n{RUNNING}')
    bash.program("sbatch", "echo 8")
    waiting = [
        "20|afterok:7(unfulfilled)",
        "21|afterok:6(unfulfilled),afterok:7(unfulfilled)",
        "22|afterany:7(unfulfilled)",  # asks for no complete run
        "23|afterok:77(unfulfilled)",
        "24|afterok:7_*(unfulfilled)",
        "x;y|afterok:7(unfulfilled)",
        "25|(null)",
    ]
    bash.write("waiting", "\n".join(waiting) + "\n")
    bash.program("squeue", f'cat "{bash.folder}/waiting"')
    output = bash.run(page("touch requeue"), **JOB)
    assert [call for call in bash.calls("scontrol") if call.startswith("update")] == [
        "update JobId=20 Dependency=afterok:8",
        "update JobId=21 Dependency=afterok:6,afterok:8",
    ]
    assert "job 20, which waited for job 7 to be complete, waits for job 8" in output.err


def test_what_waits_for_a_whole_array_waits_for_what_continues_an_element_and_for_the_others(bash: Bash) -> None:
    for element, state, job in (
        ("1", "REQUEUED", "9_1"),
        ("2", "RUNNING", "7_2"),
        ("3", "COMPLETED", "7_3"),
        ("11", "", ""),
    ):
        bash.write(f"tasks/{element}/state", f"{state}\n")
        bash.write(f"tasks/{element}/job_id", f"{job}\n")
    bash.program("squeue", "case $* in *%F*) cat \"$TRAINJOB_SUBMITTED_IN/waiting\" ;; *) printf '2\\n5\\n' ;; esac")
    update = (
        'for one; do case $one in Dependency=*) echo "20|${one#*=}" >"$TRAINJOB_SUBMITTED_IN/waiting" ;; esac; done'
    )
    bash.program("scontrol", f'[ "$1" = update ] || exit 1\n{update}')
    bash.write("waiting", "20|afterok:6(unfulfilled),afterok:7_*(unfulfilled)\n")
    told = (
        "export TRAINJOB_SUBMITTED_IN=$PWD\npass_on_waiting 7_2 8_2\npass_on_waiting 7_1 9_1\npass_on_waiting 7_5 10_5"
    )
    bash.run(told)
    assert [call for call in bash.calls("scontrol") if call.startswith("update")] == [
        "update JobId=20 Dependency=afterok:6,afterok:8_2,afterok:9_1,afterok:7_5,afterok:7_11",
        "update JobId=20 Dependency=afterok:6,afterok:8_2,afterok:9_1,afterok:10_5,afterok:7_11",
    ]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ("exit 1", []),
        ("echo '<html>502 Bad Gateway</html>'", []),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", ["afterok:8_2,afterok:7_1"]),
    ],
    ids=["no answer", "an error page", "all have ended"],
)
def test_what_waits_for_an_array_never_waits_for_fewer_elements_because_the_controller_is_silent(
    bash: Bash, lists: str, expected: list[str]
) -> None:
    bash.write("tasks/1/state", "RUNNING\n")
    bash.program("squeue", f"case $* in *%F*) echo '20|afterok:7_*(unfulfilled)' ;; *) {lists} ;; esac")
    bash.program("sleep", "")
    bash.run("export TRAINJOB_SUBMITTED_IN=$PWD\npass_on_waiting 7_2 8_2")
    updates = {call for call in bash.calls("scontrol") if call.startswith("update")}
    assert updates == {f"update JobId=20 Dependency={one}" for one in expected}


def test_a_dependency_that_another_script_has_put_back_is_passed_on_again(bash: Bash) -> None:
    bash.write("waiting", "20|afterok:7_1(unfulfilled),afterok:7_2(unfulfilled)\n")
    bash.write("after", "20|afterok:7_1,afterok:9_2\n")  # what the other one had read before
    bash.program(
        "squeue",
        f'cd "{bash.folder}"; cat waiting; [ ! -e after ] || mv after waiting',
    )
    bash.run("pass_on_waiting 7_1 8_1")
    assert bash.calls("scontrol")[:2] == [
        "update JobId=20 Dependency=afterok:8_1,afterok:7_2",
        "update JobId=20 Dependency=afterok:8_1,afterok:9_2",
    ]


def test_a_follow_up_job_whose_script_died_before_it_told_what_waits_does_so(bash: Bash) -> None:
    bash.write("attempt", "1\n")
    bash.write("job_id", "6\n")
    bash.write("state", "RUNNING\n")
    bash.program("squeue", "echo '20|afterok:6(unfulfilled)'")
    bash.run(f"set -- 6\nfollows=6\n{page('true')}", **JOB)
    assert "update JobId=20 Dependency=afterok:7" in bash.calls("scontrol")


def test_the_code_is_that_of_the_first_rank_that_failed(bash: Bash) -> None:
    failure = '{\n "exit_code": 9,\n "rank": 1\n}'
    assert bash.run(page(f"echo '{failure}' >failure.json; exit 143"), **JOB).code == 143
    assert (bash.word("state"), bash.word("exit_code")) == ("FAILED", "9")


# --- Nodes that the next attempt avoids, and a follow-up job that waits from the beginning.

NODES = {**JOB, "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}
# sinfo of the whole partition, or with --nodes of the job's own.
STATES = "'n1 allocated' 'n2 allocated' 'n3 idle' 'n4 idle' 'n5 drained' 'n6 down*'"
SINFO = f"case $* in *--nodes=*) exit ;; esac; printf '%s\\n' {STATES}"


def requeues(bash: Bash, *settings: str, leaves: str = "") -> str:
    """Return what a job says whose ranks leave the marker, and `leaves` before it."""
    output = bash.run(page(f"{leaves or 'true'}; echo 9 >requeue; exit 75", *settings), **NODES)
    assert output.code == 75, output.err
    return output.err


def shows(job: str, hostnames: str = "") -> str:
    """Return a scontrol that shows a running job with the fields `job`, and expands any host list to `hostnames`."""
    shown = f"JobId=7 JobState=RUNNING Restarts=0 Reason=None {job} "
    return f"case $* in *hostnames*) printf '%s\\n' {hostnames} ;; *) echo '{shown}' ;; esac"


def updates(bash: Bash) -> list[str]:
    return [call for call in bash.calls("scontrol") if call.startswith(("requeue", "update"))]


@pytest.mark.parametrize("excluded", ["(null)", "n9"])
def test_a_node_that_the_launcher_blames_is_avoided_by_the_next_attempt(bash: Bash, excluded: str) -> None:
    bash.program("scontrol", shows(f"ExcNodeList={excluded}", "n9"))
    bash.program("sinfo", SINFO)
    requeues(bash, leaves="echo n2 rank 1 lost its GPU >.bad_node")
    assert bash.word("excluded_nodes") == "n2\t1\trank 1 lost its GPU"
    theirs = "" if excluded == "(null)" else "n9,"
    # Cleared first: Slurm 22.05 adds to the list that there is.
    assert updates(bash) == ["requeue 7", "update JobId=7 ExcNodeList=", f"update JobId=7 ExcNodeList={theirs}n2"]


def test_a_node_that_is_used_again_is_no_longer_excluded(bash: Bash) -> None:
    bash.program("scontrol", shows("ExcNodeList=n[1-2,9]", "n1 n2 n9"))
    bash.program("sinfo", SINFO)
    bash.write("excluded_nodes", "n1\t1\tfailed\nn2\t1\tfailed\nn3\t2\tfailed\n")
    assert "too few nodes would be left without n1" in requeues(bash)
    assert updates(bash)[-2:] == ["update JobId=7 ExcNodeList=", "update JobId=7 ExcNodeList=n9,n2,n3"]


@pytest.mark.parametrize("asked", ["ReqNodeList=n[1-2]", "Features=(a100|h100)&ib"])
def test_no_node_is_excluded_from_a_job_that_asks_for_certain_nodes(bash: Bash, asked: str) -> None:
    bash.program("scontrol", shows(f"ExcNodeList=(null) {asked}"))
    bash.program("sinfo", SINFO)
    output = requeues(bash, leaves="echo n2 rank 1 lost its GPU >.bad_node")
    assert "so none of them is excluded" in output
    assert updates(bash) == ["requeue 7", "update JobId=7 ExcNodeList="]


def test_only_nodes_with_the_features_of_the_job_are_counted_as_left(bash: Bash) -> None:
    nodes = ("n1 idle a100,ib", "n2 idle a100,ib", "n3 idle a100,ib", "n4 idle v100", "n5 idle v100,ib")
    bash.program("sinfo", "printf '%s\\n' " + " ".join(f"'{node}'" for node in nodes))
    bash.program("scontrol", shows("Features=a100&ib"))
    bash.write("excluded_nodes", "n1\t1\tfailed\nn2\t1\tfailed\n")
    assert bash.run("job=7; nodes_to_exclude", **NODES).out == "n2\n"


def test_a_fault_of_every_node_ends_the_run(bash: Bash) -> None:
    """A data folder that is missing everywhere would exclude one node after the other."""
    why = "did not pass the node check: data folder /data is missing"
    bash.program("scontrol", shows("ExcNodeList=(null)"))
    bash.program("sinfo", SINFO)
    requeues(bash, leaves=f"echo n1 node n1 {why} >.bad_node")
    assert bash.word("excluded_nodes") == f"n1\t1\t{why}"
    bash.write("excluded_nodes", f"n1\t1\t{why}\nn3\t2\t{why}\n")
    ended = bash.run(page(f"echo n2 node n2 {why} >.bad_node; echo 0 >requeue; exit 1"), **NODES)
    assert (ended.code, bash.word("state")) == (1, "FAILED")
    assert f"node n2 {why}, as 2 other nodes did before: the job is not started again" in ended.err
    assert updates(bash).count("requeue 7") == 1


def test_a_node_that_slurm_has_given_up_is_avoided(bash: Bash) -> None:
    bash.program("sinfo", f'case "$*" in *--nodes=*) echo "n1 down*"; echo "n2 allocated" ;; *) {SINFO} ;; esac')
    assert "trainjob: node n1 failed: the next attempt avoids it" in requeues(bash)
    assert bash.word("excluded_nodes") == "n1\t1\tfailed"


def test_the_attempt_after_one_that_died_with_its_first_node_names_that_node(bash: Bash) -> None:
    bash.program("sinfo", 'case "$*" in *--nodes=n\\[7-8\\]*) echo "n7 down*"; echo "n8 idle" ;; esac')
    for name, text in {"job_id": "7", "state": "RUNNING", ".nodes": "n[7-8]", "attempt": "1"}.items():
        bash.write(name, f"{text}\n")
    assert bash.run(page("true"), **NODES).code == 0
    assert bash.word("excluded_nodes") == "n7\t2\tfailed"


def test_nodes_are_used_again_where_too_few_would_be_left(bash: Bash) -> None:
    bash.program("sinfo", SINFO)
    bash.write("excluded_nodes", "n1\t1\tfailed\nn2\t1\tfailed\nn3\t2\tfailed\n")
    output = bash.run("job=7; nodes_to_exclude", **NODES)
    # Of four that work, two must be left.
    assert output.out == "n2,n3\n"
    assert output.err == "trainjob: too few nodes would be left without n1: it is used again\n"
    bash.program("sinfo", "exit 1")
    assert bash.run("job=7; nodes_to_exclude", **NODES).out == ""


def test_no_name_that_is_none_of_a_node_reaches_scontrol(bash: Bash) -> None:
    bash.program("sinfo", SINFO)
    requeues(bash, leaves="echo 'n2;reboot is bad' >.bad_node")
    assert bash.word("excluded_nodes") is None
    bash.write("excluded_nodes", "n1 x\t1\tfailed\n$(reboot)\t1\tfailed\n")
    assert bash.run("job=7; nodes_to_exclude", **NODES).out == "\n"


@pytest.mark.parametrize(
    ("refusal", "shown", "state"),
    [
        ("Job is pending execution", "JobState=PENDING Restarts=1 Reason=BeginTime", "REQUEUED"),
        ("Job/step already completing or completed", "JobState=COMPLETING Restarts=0 Reason=None", "CANCELLED"),
    ],
)
def test_a_job_that_waits_again_or_was_cancelled_gets_no_follow_up(
    bash: Bash, refusal: str, shown: str, state: str
) -> None:
    # The question before the requeue is not answered.
    answers = f"if [ -e asked ]; then echo 'JobId=7 {shown} '; fi; touch asked"
    bash.program("scontrol", f'if [ "$1" = requeue ]; then echo "{refusal}" >&2; exit 1; fi\n{answers}')
    bash.program("sbatch", "echo 8")
    bash.run(page("touch requeue"), **JOB)
    assert (bash.word("state"), bash.word("job_id"), bash.calls("sbatch")) == (state, "7", [])


def test_a_job_that_slurm_took_back_knows_the_newer_job_of_its_run(bash: Bash) -> None:
    bash.program("scontrol", RUNNING)
    bash.program("scancel", "true")
    bash.write("job_id", "12\n")
    bash.write(".follow_up", "12\n")
    bash.write("attempt", "1\n")
    bash.run(page("true"), **JOB)
    assert (bash.word("state"), bash.calls("scancel")) == ("COMPLETED", ["--state=PENDING 12"])


@pytest.mark.parametrize(
    ("state", "last_job", "output"),
    [("CANCELLED", "7", "the run was cancelled"), ("FAILED", "9", "job 9 has continued the run since")],
)
def test_a_follow_up_job_that_is_not_needed_does_nothing(bash: Bash, state: str, last_job: str, output: str) -> None:
    """The script before it was killed before it could cancel this one."""
    bash.program("sleep", "true")
    bash.before = "set -- 7"  # type: ignore[attr-defined] # what sbatch passes on to the follow-up's script
    for name, word in (("attempt", "1"), ("state", state), ("job_id", last_job), (".follow_up", "unknown")):
        bash.write(name, f"{word}\n")
    follow_up = {**JOB, "SLURM_JOB_ID": "8"}
    refused = bash.run(page("touch ran-again"), **follow_up)
    assert (refused.code, bash.word("attempt"), bash.word("state")) == (0, "1", state)
    assert output in refused.err
    bash.write("state", "FAILED\n")
    bash.write("job_id", "7\n")
    assert bash.run(page("touch ran-again"), **follow_up).code == 0
    assert (bash.word("attempt"), (bash.folder / "ran-again").exists()) == ("2", True)


def test_a_follow_up_whose_answer_was_lost_is_found_where_the_ranks_failed(bash: Bash) -> None:
    """Within a trap, a plain `return` would return the status of the ranks, and the job found would count as none."""
    bash.program("sbatch", "exit 0")
    bash.program("squeue", f"echo '8|N/A|{bash.folder}'")
    bash.program("sleep", "true")
    bash.program("scontrol", f"case $1 in requeue) exit 1 ;; *) {RUNNING} ;; esac")
    bash.run(page("echo 9 >requeue; exit 1"), **JOB)
    assert (bash.word("state"), bash.word("job_id")) == ("REQUEUED", "8")


def test_a_follow_up_that_can_not_be_cancelled_is_remembered(bash: Bash) -> None:
    bash.write(".follow_up", "12\n")
    bash.program("sleep", "true")
    bash.program("scancel", "exit 1")
    bash.program("scontrol", f"case $4 in 12) exit 1 ;; *) {RUNNING} ;; esac")
    bash.run(page("true"), **JOB)
    assert (bash.word("state"), bash.word(".follow_up")) == ("COMPLETED", "12")


def test_ranks_that_were_asked_to_stop_have_not_completed_the_run(bash: Bash) -> None:
    bash.program("scontrol", "echo 'JobId=7 JobState=PENDING Restarts=0 Reason=Priority '")
    bash.program("scancel", "true")
    leaves = "mkdir .ended; echo 0 | tee .ended/1.0000 >.ended/1.0001; touch requeue ready"
    ranks = f"{leaves}\nwhile [ ! -e go ]; do sleep 0.05; done"
    process = bash.start(page(ranks), **NODES)
    until(lambda: bash.word("ready") is not None, "the ranks to start")
    process.send_signal(signal.SIGTERM)
    bash.write("go")
    process.wait(LIMIT_S)
    assert (bash.word("state"), bash.calls("scancel")) == ("REQUEUED", [])


def test_a_follow_up_waits_from_the_beginning_and_goes_with_a_complete_run(bash: Bash) -> None:
    bash.program("sbatch", "echo 12")
    bash.program("scancel", "true")
    bash.program(
        "scontrol", "case $4 in 12) echo JobId=12 JobState=PENDING Reason=Dependency ;; *) " + RUNNING + " ;; esac"
    )
    output = bash.run(page("cat .follow_up", "queues_follow_up=1"), **NODES)
    assert (output.code, output.out) == (0, "12\n"), output.err
    assert bash.calls("sbatch") == [
        "--parsable --dependency=afternotok:7 --kill-on-invalid-dep=yes --job-name=mine --export=NONE job.sbatch 7"
    ]
    assert bash.calls("scancel") == ["--state=PENDING 12"]
    assert bash.word(".follow_up") is None


@pytest.mark.parametrize(
    ("squeue", "follow_up"),
    [("exit 1", "unknown"), ("echo '<html>502 Bad Gateway</html>'", "unknown"), ("true", "12")],
)
def test_no_second_follow_up_is_queued_where_nobody_says_whether_one_waits(
    bash: Bash, squeue: str, follow_up: str
) -> None:
    bash.program("squeue", squeue)
    bash.program("sbatch", "echo 12")
    bash.program("sleep", "true")
    bash.write("state", "RUNNING\n")
    bash.write(".follow_up", "unknown\n")
    bash.run(page("cp .follow_up seen", "queues_follow_up=1"), **JOB)
    assert bash.word("seen") == follow_up


def test_a_run_that_continues_does_so_by_the_follow_up_that_waits(bash: Bash) -> None:
    bash.program("sbatch", "echo 12")
    bash.program("scancel", "true")
    shown = "12) echo JobId=12 JobState=PENDING Reason=Dependency ;; *) " + RUNNING
    bash.program("scontrol", f'if [ "$1" = requeue ]; then exit 1; fi; case $4 in {shown} ;; esac')
    assert "job 12 continues after this one" in requeues(bash, "queues_follow_up=1")
    assert (bash.word("state"), bash.word("job_id")) == ("REQUEUED", "12")
    assert len(bash.calls("sbatch")) == 1
    assert bash.calls("scancel") == []


NODE_FAILED = "echo JobId=7 JobState=NODE_FAIL Restarts=0 Reason=NodeDown PreemptTime=None"


@pytest.mark.parametrize("follow_up", ["PENDING Reason=Dependency", "RUNNING Reason=None"])
def test_a_run_whose_node_failed_continues_by_its_follow_up_which_may_have_begun(bash: Bash, follow_up: str) -> None:
    bash.program("sbatch", "echo 12")
    bash.program("scancel", "true")
    bash.program("scontrol", f"case $4 in 12) echo JobId=12 JobState={follow_up} ;; *) {NODE_FAILED} ;; esac")
    output = bash.run(page("true", "queues_follow_up=1"), **NODES)
    assert (output.code, bash.word("state"), bash.word(".follow_up")) == (75, "REQUEUED", "12"), output.err
    assert bash.calls("scancel") == []


def test_an_attempt_whose_successor_begins_while_it_asks_how_it_ended_writes_no_more(bash: Bash) -> None:
    begins = "echo 2 >attempt; echo RUNNING >state; echo 13 >.follow_up"
    bash.program("sbatch", "echo 12")
    bash.program("scancel", "true")
    bash.program("scontrol", f"case $4 in 1?) echo JobId=$4 JobState=PENDING ;; *) {begins}; {NODE_FAILED} ;; esac")
    bash.run(page("true", "queues_follow_up=1"), **NODES)
    assert [bash.word(name) for name in ("attempt", "state", ".follow_up")] == ["2", "RUNNING", "13"]
    assert bash.calls("scancel") == []


def test_what_waits_for_the_job_starts_only_when_it_is_complete(bash: Bash) -> None:
    assert bash.run(page("touch requeue stop"), **JOB).code == 75
    assert bash.run(page("true"), **JOB).code == 0


def test_a_first_attempt_removes_nothing_and_a_second_one_what_the_first_has_left(bash: Bash) -> None:
    bash.program("rm", 'exec /bin/rm "$@"')
    assert bash.run(page("exit 7"), **JOB).code == 7
    assert not any("state" in call or "bad_node" in call for call in bash.calls("rm"))
    assert bash.run(page("[[ ! -e exit_code ]] && exit 8"), **{**JOB, "SLURM_JOB_ID": "8"}).code == 8
    assert [call for call in bash.calls("rm") if "state" in call] == ["-f state exit_code"]


# --- Signals.


def test_a_request_for_a_checkpoint_waits_at_the_input_of_srun(bash: Bash) -> None:
    lines = page('read -r word <&"$TRAINJOB_REQUESTS"; [[ "$word" == USR1 ]] && exit 75')
    process = bash.start(lines.replace("begin_run\n", "begin_run\nkill -USR1 $$\n"), **JOB)
    assert process.wait(LIMIT_S) == 75


def test_where_there_is_no_such_input_a_request_is_a_file_and_no_signal(bash: Bash) -> None:
    waits = """trap 'exit 1' USR1; until [[ "$(cat .request 2>/dev/null)" == 1 ]]; do sleep 0.05; done; exit 75"""
    none = "has_engine() { [[ ${FUNCNAME[1]} == open_requests ]]; }\nbegin_run\nkill -USR1 $$\n"
    process = bash.start(page(waits).replace("begin_run\n", none), **JOB)
    assert process.wait(LIMIT_S) == 75


# --- Where ranks meet.


def test_ranks_meet_at_the_first_nodes_name_and_a_port_of_the_jobs_own(bash: Bash) -> None:
    output = bash.run(page('echo "$MASTER_ADDR $MASTER_PORT"'), **JOB)
    assert output.out == f"localhost {20000 + 7 * 31}\n"


def test_a_port_that_is_taken_is_passed_over_or_named(bash: Bash) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        output = bash.run(page("true", f"port={port}"), **JOB)
        assert f"network.port {port} is in use on node" in output.err
        assert bash.run(f"MASTER_ADDR=localhost; is_taken {port} && echo taken", **JOB).out == "taken\n"
        wanted = f"is_taken() {{ [ $1 = {20000 + 7 * 31} ]; }}; port_of_this_job ''"
        assert bash.run(wanted, **JOB).out == f"{20000 + 7 * 31 + 1}\n"
        # Of several runs in one job each has a range of its own.
        assert bash.run(f"run_of_job=2; {wanted}", **JOB).out == f"{20000 + 7 * 31 + 2 * 101}\n"


def test_an_interface_that_is_not_there_is_named(bash: Bash) -> None:
    output = bash.run(page("true", "interface=ib7"), **JOB)
    assert output.err == "trainjob: node localhost has no IPv4 address on network interface ib7\n"
    assert bash.word("state") == "FAILED"


def test_the_redirected_interface_comes_before_the_sites(bash: Bash) -> None:
    output = bash.run(page('echo "$MASTER_ADDR"', "interface=ib7"), **JOB, TRAINJOB_INTERFACE="lo")
    assert output.out == "127.0.0.1\n"


@pytest.mark.parametrize(("nodes", "announced"), [("n1 n2", "10.1.2.3"), ("n1", "n1")])
def test_a_first_node_whose_own_name_is_a_loopback_address_announces_the_one_on_the_way_to_the_others(
    bash: Bash, nodes: str, announced: str
) -> None:
    bash.program("scontrol", f'[ "$2" = hostnames ] && printf "%s\\n" {nodes}')
    bash.program("getent", 'case $2 in n1) echo "127.0.1.1 n1.site n1" ;; n2) echo "10.1.2.4 STREAM n2" ;; esac')
    bash.program("ip", '[ "$5" = 10.1.2.4 ] && echo "10.1.2.4 dev eth0 src 10.1.2.3 uid 0"')
    named = {**JOB, "SLURMD_NODENAME": "n1", "SLURM_JOB_NODELIST": "n[1-2]"}
    assert bash.run("address_of_first_node ''", **named).out == f"{announced}\n"


def test_without_a_known_way_to_the_others_the_first_node_announces_its_name(bash: Bash) -> None:
    bash.program("scontrol", 'printf "%s\\n" n1 n2')
    bash.program("getent", '[ "$2" = n1 ] && echo "127.0.1.1 n1.site n1"')
    bash.program("ip", "exit 2")
    assert bash.run("address_of_first_node ''", **{**JOB, "SLURMD_NODENAME": "n1"}).out == "n1\n"


UNRESOLVED = {**JOB, "SLURMD_NODENAME": "node-without-a-name.invalid"}


def test_a_controller_that_restarts_is_asked_again(bash: Bash) -> None:
    # Answers from the third time on.
    bash.program(
        "scontrol",
        '[ "$2" = node ] || exit 0\n'
        f'[ "$(grep -c node "{bash.programs}/scontrol.calls")" -gt 2 ] || {{ echo "Unable to contact" >&2; exit 1; }}\n'
        "printf 'NodeName=n1\\n   NodeAddr=10.1.2.3 NodeHostName=n1\\n'",
    )
    output = bash.run("sleep() { echo \"slept $1\" >>slept; }\naddress_of_first_node ''", **UNRESOLVED)
    assert (output.code, output.out, bash.word("slept")) == (0, "10.1.2.3\n", "slept 2\nslept 2")
    assert (
        "does not give the address of node node-without-a-name.invalid (Unable to contact): asking again" in output.err
    )


def test_a_controller_that_stays_away_is_given_up_after_a_minute(bash: Bash) -> None:
    bash.program("scontrol", 'echo "Unable to contact" >&2; exit 1')
    output = bash.run("sleep() { echo \"$1\" >>slept; }\naddress_of_first_node ''", **UNRESOLVED)
    assert output.code == 1
    assert "in 30 tries the controller has not given its address: Unable to contact" in output.err
    assert sum(int(line) for line in (bash.word("slept") or "").split()) == 58


# --- What travels along is what the contract says.


def names(bash: Bash, array: str) -> set[str]:
    return set(bash.run(f'printf "%s\\n" "${{{array}[@]}}"', **JOB).out.split())


def test_the_lists_of_names_are_those_of_the_contract(bash: Bash) -> None:
    assert names(bash, "REDIRECTS") == set(environment.REDIRECTS)
    handed_in = names(bash, "TRAINJOB_ALWAYS_HANDED_IN")
    assert set(environment.LAUNCHER_NAMES["slurm"]) < handed_in
    assert {environment.MASTER_ADDR, environment.MASTER_PORT, environment.ATTEMPT, environment.RUN_DIR} < handed_in
    forwarded = names(bash, "TRAINJOB_ALWAYS_FORWARDED")
    assert {environment.MASTER_ADDR, environment.MASTER_PORT, environment.ATTEMPT} < forwarded
    # What the page itself reads ranks don't need.
    needed = set(environment.REDIRECTS) - {"TRAINJOB_PYTHON", "TRAINJOB_PROLOGUE", "TRAINJOB_CONTAINER"}
    assert needed < handed_in
    assert needed < forwarded


def test_a_container_on_this_machine_is_handed_what_a_rank_needs(tmp_path: Path) -> None:
    handed_in = names(Bash(tmp_path, "local"), "TRAINJOB_ALWAYS_HANDED_IN")
    assert {*environment.RANK_NAMES, environment.RUN_DIR, environment.ATTEMPT, environment.COMPILE_ONLY} < handed_in


# --- The program that runs on each node before anything of the run directory does.


def on_node(
    bash: Bash, command: str = "pwd; env | grep ^APPTAINERENV_ || true", name: str = "sh", **environ: str
) -> tuple[int, str, str]:
    words = ["sh", "-c", (LIBRARY / "on_each_node.sh").read_text(), name, "sh", "-c"]
    output = ran([*words, command], folder=bash.folder, environ=bash.environ(**environ))
    return output.returncode, output.stdout, output.stderr


def test_a_node_that_sees_another_folder_is_named(bash: Bash) -> None:
    bash.write(".token", "another\n")
    bash.program("sleep", "exit 0")
    where = str(bash.folder)
    code, out, err = on_node(bash, **JOB, TRAINJOB_RUN_DIR=where, TRAINJOB_TOKEN="mine")
    assert (code, out) == (1, "")
    assert err == (
        f"trainjob: node localhost does not see run directory {where}: set runs_dir to storage that all nodes share\n"
    )
    assert len(bash.calls("sleep")) == 90  # NFS shows a new file up to 60 s late


def test_the_job_script_is_told_when_rank_0_begins_and_not_when_a_server_does(bash: Bash) -> None:
    bash.write(".token", "mine\n")
    values = {"TRAINJOB_RUN_DIR": str(bash.folder), "TRAINJOB_TOKEN": "mine", "SLURM_PROCID": "0"}
    assert on_node(bash, name="server", **JOB, **values)[0] == 0
    assert bash.word(".began") is None
    assert on_node(bash, **JOB, **values)[0] == 0
    assert bash.word(".began") == "mine"


def test_a_server_whose_host_has_no_address_does_not_start(bash: Bash) -> None:
    output = bash.run("serve server '' srun; echo started")
    assert (output.code, output.out) == (1, "")
    assert "role server can't start: the address of its host is not known" in output.err


def test_apptainer_is_given_the_values_of_names_that_are_set(bash: Bash) -> None:
    bash.write(".token", "mine\n")
    values = {"TRAINJOB_RUN_DIR": str(bash.folder), "TRAINJOB_TOKEN": "mine", "A": "it's $HOME", "EMPTY": ""}
    code, out, _ = on_node(bash, **JOB, **values, TRAINJOB_FOR_APPTAINER="A EMPTY MISSING")
    assert code == 0
    inside = {"A": "it's $HOME", "EMPTY": "", "PYTHONNOUSERSITE": "1"}
    shown = [f"APPTAINERENV_{name}={value}" for name, value in inside.items()]
    assert sorted(out.splitlines()) == sorted([str(bash.folder / "code"), *shown])


OF_GROUPS = {
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST": "n1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NTASKS": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
    "SLURM_JOB_NUM_NODES_HET_GROUP_0": "1",
    "SLURM_JOB_NUM_NODES_HET_GROUP_1": "2",
    "SLURM_CPUS_PER_TASK_HET_GROUP_0": "4",
    "SLURM_CPUS_PER_TASK_HET_GROUP_1": "8",
}


def test_a_job_on_groups_of_nodes_knows_all_its_nodes_and_srun_is_not_told_those_of_the_first(tmp_path: Path) -> None:
    bash = SlurmBash(tmp_path, before="node_groups=2 job_ranks=4")
    bash.write("excluded_nodes", "n1\t1\tfailed\n")
    output = bash.run(page("env | grep ^SLURM_ | sort; nodes_to_exclude"), **JOB, **OF_GROUPS)
    assert (output.code, bash.word(".nodes")) == (0, "n1,n[2-3]")
    reported = dict(line.split("=", 1) for line in output.out.splitlines())
    assert "SLURM_NTASKS" not in reported
    assert "SLURM_JOB_NODELIST" not in reported
    assert reported["SLURM_CPUS_PER_TASK_HET_GROUP_1"] == "8"
    # A job that is none of several groups keeps nothing of another one's.
    plain = SlurmBash(tmp_path / "plain").run(page("env | grep HET_"), **JOB, **OF_GROUPS)
    assert plain.out == ""


@pytest.mark.parametrize(("node", "cpus"), [("0", "4"), ("1", "8"), ("2", "8")])
def test_a_rank_is_told_the_cpus_of_its_own_group(bash: Bash, node: str, cpus: str) -> None:
    bash.write(".token", "mine\n")
    values = {"TRAINJOB_RUN_DIR": str(bash.folder), "TRAINJOB_TOKEN": "mine", "SLURM_CPUS_PER_TASK": "8"}
    seen = {"SLURM_NODEID": node, **JOB, **OF_GROUPS, **values}
    assert on_node(bash, "echo $SLURM_CPUS_PER_TASK", **seen) == (0, f"{cpus}\n", "")
