"""Kinds of batch files of which something was lost without a word, or carried over as something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchfiles.adoption.account import IN_COMMAND, Where
from batchfiles.adoption.adopt import Adoption
from batchfiles.adoption.start import AdoptionError
from tests.batchfiles.unit.test_adoption import HEAD, ONE_GPU, PER_RANK, TWO_NODES, adopted, lost, prologue
from trainjob.cluster.reading import job_from_text
from trainjob.kinds.lookup import cluster_from_text
from trainjob.kinds.slurm.model import SlurmCluster


def command(adoption: Adoption) -> list[str]:
    return job_from_text(adoption.job, "job.yaml").command or []


def container(adoption: Adoption) -> dict[str, object]:
    found = SlurmCluster.of(cluster_from_text(str(adoption.cluster), "cluster.yaml")).container
    return {"image": found.image, "mounts": found.mounts, "options": found.options}


def test_a_mount_with_two_variables_is_one_word(tmp_path: Path) -> None:
    text = "srun apptainer exec -B /scratch/$SLURM_JOB_ID/in:/mnt/$SLURM_JOB_ID/in -B /opt /i/torch.sif python train.py 3\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert command(adoption) == ["python", "train.py", "3"]
    assert container(adoption) == {"image": "/i/torch.sif", "mounts": ["/opt"], "options": []}
    assert lost(adoption) == {
        "/scratch/$SLURM_JOB_ID/in:/mnt/$SLURM_JOB_ID/in": "this mount is known only when it runs"
    }


@pytest.mark.parametrize(
    ("words", "env", "options"),
    [
        ("apptainer exec --nv --env A=1 --overlay /o/x.img:ro /i.sif", {"A": "1"}, ["--overlay", "/o/x.img:ro"]),
        ("apptainer exec --env=A=1 --home /tmp/me --fakeroot /i.sif", {"A": "1"}, ["--home", "/tmp/me", "--fakeroot"]),
        ("docker run --rm -e A=1 --shm-size 8g --user 1:1 img", {"A": "1"}, ["--shm-size", "8g"]),
    ],
)
def test_options_of_a_container_have_a_place(
    words: str, env: dict[str, str], options: list[str], tmp_path: Path
) -> None:
    adoption = adopted(f"{ONE_GPU}{words} python train.py\n", tmp_path)
    assert job_from_text(adoption.job, "job.yaml").env == env
    assert container(adoption)["options"] == options
    assert list(lost(adoption)) == (["--user 1:1"] if "docker" in words else [])


def test_an_option_of_pyxis_without_a_place_is_told(tmp_path: Path) -> None:
    for given in ("container-name=torch", "no-container-mount-home"):
        text = f"srun --container-image=/i.sqsh --{given} python train.py\n"
        assert list(lost(adopted(ONE_GPU + text, tmp_path))) == [f"srun --{given}"]


def test_what_ends_a_ranks_shell_at_a_failure_stays_in_it(tmp_path: Path) -> None:
    inner = "set -euo pipefail\npython -c 'import natten'\npython train.py\n"
    text = f'srun bash -c "{inner}"\n'
    assert command(adopted(PER_RANK + text, tmp_path))[2].split("\n")[0] == "set -euo pipefail"
    assert command(adopted(PER_RANK + 'srun bash -c "set -e; python train.py"\n', tmp_path)) == ["python", "train.py"]


def test_a_login_shell_around_the_training_stays_one(tmp_path: Path) -> None:
    for options, is_one in (("-lc", True), ("-l -c", True), ("--login -c", True), ("-c", False), ("-ec", False)):
        adoption = adopted(f"{PER_RANK}srun bash {options} 'python train.py --lr 1'\n", tmp_path)
        found = SlurmCluster.of(cluster_from_text(str(adoption.cluster), "cluster.yaml"))
        assert found.login_environment == is_one
        assert ("bash -l" in {one.text for one in adoption.account.entries}) == is_one


def test_a_look_at_the_number_of_arguments_does_not_end_the_job(tmp_path: Path) -> None:
    text = 'if [ $# -eq 0 ]; then\n  echo "a name is needed"\n  exit 1\nfi\nNAME=$1\npython train.py $NAME\n'
    adoption = adopted(ONE_GPU + text, tmp_path, "mci")
    assert command(adoption) == ["python", "train.py", "mci"]
    assert not [one for one in prologue(adoption) if "$#" in one]


def test_a_script_behind_the_training_does_not_become_it(tmp_path: Path) -> None:
    text = 'python -u train.py --out o\nif [ -d o/log ]; then\n  python - o/log <<"END"\nprint(1)\nEND\nfi\n'
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert command(adoption) == ["python", "-u", "train.py", "--out", "o"]
    assert list(lost(adoption).values()) == [
        "a job ends with its training, and its nodes' own disks are emptied: have the program do it, or another job"
    ]


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        ('LR="${LR:-}"\nif [[ -n "$LR" && "$LR" != 0 ]]; then ARGS="--lr $LR"; fi\n', "python train.py"),
        ('if [ -n "${MODEL:-}" ]; then ARGS="--model $MODEL"; fi\n', "python train.py"),
        ('[ -z "${DEBUG:-}" ] || ARGS="--debug"\n', "python train.py"),
        ('if [ ! -n "${MODEL:-}" ]; then ARGS=--small; fi\n', "python train.py --small"),
    ],
)
def test_an_option_is_taken_only_if_its_condition_holds(setup: str, words: str, tmp_path: Path) -> None:
    for line in ('srun bash -c "python train.py $ARGS"\n', "python train.py $ARGS\n"):
        assert command(adopted(ONE_GPU + "ARGS=\n" + setup + line, tmp_path)) == words.split()


@pytest.mark.parametrize(
    "condition", ["if [ -f last.pt ]; then {}; fi", "[ -f last.pt ] && {}", "if have x; then {}; fi"]
)
def test_an_option_that_only_a_run_decides_is_decided_there(condition: str, tmp_path: Path) -> None:
    setup = "ARGS=\n" + condition.format('ARGS="--resume last.pt"') + "\n"
    for line in ('srun bash -c "cd src && python train.py $ARGS"\n', "srun python train.py $ARGS\n"):
        adoption = adopted(ONE_GPU + setup + line, tmp_path)
        assert command(adoption)[2].strip().endswith("exec python train.py $ARGS")
        kept = "\n".join(prologue(adoption))
        assert condition.format('ARGS="--resume last.pt"') in kept
        assert kept.endswith("export ARGS")


def test_an_array_that_only_a_run_fills_is_filled_there(tmp_path: Path) -> None:
    text = 'ARGS=(--lr 1)\nif [ -f last.pt ]; then ARGS+=(--resume last.pt); fi\nsrun python train.py "${ARGS[@]}"\n'
    assert command(adopted(ONE_GPU + text, tmp_path))[2] == (
        'ARGS=(--lr 1)\nif [ -f last.pt ]; then ARGS+=(--resume last.pt); fi\nexec python train.py "${ARGS[@]}"\n'
    )


def test_what_a_command_finds_is_looked_for_when_the_job_runs(tmp_path: Path) -> None:
    setup = "CARD=$(ls /sys/class/net | grep -m1 ib)\nCARD=${CARD:-eth0}\nexport NCCL_SOCKET_IFNAME=$CARD\n"
    adoption = adopted(PER_RANK + setup + "srun python train.py\n", tmp_path)
    assert prologue(adoption, whole=True) == ["set +eo pipefail", *setup.splitlines(), "set -eo pipefail"]
    assert "eth0" not in adoption.job


def test_a_variable_that_a_sourced_file_sets_reaches_the_command(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + 'source ./site.sh gpu\nsrun bash -c "torchrun train.py $MORE"\n', tmp_path)
    assert prologue(adoption)[1:] == ["source ./site.sh gpu", "export MORE"]
    assert "login_environment" not in str(adoption.cluster)


def test_the_folder_of_the_submission_is_the_copy(tmp_path: Path) -> None:
    text = "HERE=`pwd`\necho {} > $HERE/a.json\nsrun python train.py --a $HERE/a.json --b $SLURM_SUBMIT_DIR/b --c ${SLURM_SUBMIT_DIR:-x}\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    copy = "$TRAINJOB_RUN_DIR/code/project"
    assert prologue(adoption)[0] == f'cd "{copy}"'
    words = command(adoption)[2].replace("\\\n", "").split()
    assert words == f"export -n HERE exec python train.py --a $HERE/a.json --b {copy}/b --c {copy}".split()


@pytest.mark.parametrize("form", ["${SLURM_SUBMIT_DIR%/}/x", "$(bash -c 'echo $SLURM_SUBMIT_DIR')"])
def test_any_form_of_the_folder_is_understood(form: str, tmp_path: Path) -> None:
    kept = prologue(adopted(ONE_GPU + f'export OUT="{form}"\npython train.py\n', tmp_path))[-1]
    assert kept == f'SLURM_SUBMIT_DIR="$TRAINJOB_RUN_DIR/code/project"\nexport OUT="{form}"\n'


def test_a_default_that_holds_a_default_stays_whole(tmp_path: Path) -> None:
    setup = "export N=${SLURM_GPUS_ON_NODE:-${GPUS:-$(nproc)}}\n"
    assert prologue(adopted(ONE_GPU.replace(":1", "") + setup + "python train.py\n", tmp_path)) in ([], [setup.strip()])


@pytest.mark.parametrize(
    ("quoted", "word"),
    [(r"$'a\tb\n'", "a\tb\n"), (r"$'\x41\u00e9\'\\'", "Aé'\\"), (r"$'\303\251'", "é"), (r"$'\q\e[0m'", "\\q\x1b[0m")],
)
def test_the_bytes_of_a_quoted_text_reach_ranks_unchanged(quoted: str, word: str, tmp_path: Path) -> None:
    assert command(adopted(ONE_GPU + f"srun python train.py {quoted}\n", tmp_path))[2:] == [word]


def test_bytes_that_are_no_text_are_left_to_the_shell(tmp_path: Path) -> None:
    words = command(adopted(ONE_GPU + "srun python train.py $'\\xff\\n'\n", tmp_path))
    assert words == ["bash", "-c", "exec python train.py $'\\xff\\n'"]


@pytest.mark.parametrize(
    ("inner", "body"),
    [
        (
            "cd lib && ./preflight && torchrun --nproc-per-node 1 train.py",
            "cd lib && ./preflight && exec torchrun train.py",
        ),
        ("export RANK=$SLURM_PROCID; ./look || exit 3; python train.py", "./look || exit 3\nexec python train.py"),
        ("export X=$(hostname); python train.py && cp o /archive", "export X=$(hostname)\nexec python train.py"),
        (
            "hostname; if [ -d o ]; then rm -r o; fi; python train.py",
            "if [ -d o ]; then rm -r o; fi\nexec python train.py",
        ),
    ],
)
def test_what_ranks_do_before_the_training_stays_as_it_is(inner: str, body: str, tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + f"srun bash -c '{inner}'\n", tmp_path)
    assert command(adoption)[2].strip() == body
    assert ("cp o /archive" in lost(adoption)) == ("cp o" in inner)


def test_a_chain_outside_of_ranks_ends_where_one_fails(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "cp a b && ./look --at b && python train.py\n", tmp_path)
    assert prologue(adoption)[1:] == ["cp a b || exit", "./look --at b || exit"]
    adoption = adopted(ONE_GPU + "set -e\ncp a b && ./look --at b && python train.py\n", tmp_path)
    assert prologue(adoption)[1:] == ["cp a b", "./look --at b"]


def test_the_words_of_an_inner_shell_are_its_own(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + 'MORE=(--lr 1)\nsrun bash -c \'python train.py "$@"\' sh "${MORE[@]}"\n', tmp_path)
    assert command(adoption)[:4] == ["python", "train.py", "--lr", "1"] or "--lr 1" in command(adoption)[2]


def test_an_argument_that_is_not_given_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(AdoptionError, match="an argument of the file"):
        adopted(ONE_GPU + 'WHAT="${1:?usage: sbatch x WHAT}"\nsrun python train.py "$WHAT"\n', tmp_path)


@pytest.mark.parametrize("starts", ["bash tools/start_ray.sh", "srun ./ray-worker.sh", "python launch_ray.py"])
def test_a_cluster_of_rays_is_refused_also_by_helpers(starts: str, tmp_path: Path) -> None:
    with pytest.raises(AdoptionError, match="starts Ray by"):
        adopted(TWO_NODES + f"{starts} &\npython train.py\n", tmp_path)


def test_an_agent_of_a_sweep_trains(tmp_path: Path) -> None:
    words = ["wandb", "agent", "--count", "1", "me/it/abc"]
    assert command(adopted(ONE_GPU + " ".join(words) + "\n", tmp_path)) == words


def test_figures_of_the_command_line_are_asked_for(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --ntasks-per-node=1\n" + HEAD
    text += (
        "srun torchrun --nnodes $SLURM_NNODES --nproc-per-node $SLURM_GPUS_PER_NODE --rdzv-endpoint $head:1 train.py\n"
    )
    assert {"--nodes", "--gpus-per-node"} <= set(lost(adopted(text, tmp_path)))
    assert "--nodes" not in lost(
        adopted(TWO_NODES + HEAD + "srun torchrun --nnodes $SLURM_NNODES train.py\n", tmp_path)
    )


@pytest.mark.parametrize(
    ("line", "left_out"),
    [
        ("python train.py 2>&1 | tee o/log", "| tee o/log"),
        ("srun python train.py > o/log 2>&1", "> o/log"),
        ("timeout 3600 srun python train.py", "timeout 3600"),
        ("python train.py < words.txt", "< words.txt"),
        ("python train.py | python -m mine.report", "| python -m mine.report"),
    ],
)
def test_what_stands_around_the_training_is_named(line: str, left_out: str, tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + line + "\n", tmp_path)
    assert left_out in [one.text for one in adoption.account.entries]


@pytest.mark.parametrize(
    ("handler", "signal", "where", "what"),
    [
        ("cp -r o /archive", "USR1", Where.LOST, "`cp -r o /archive` at USR1"),
        (
            "kill -USR1 $PID; wait $PID; scontrol requeue $SLURM_JOB_ID",
            "USR1",
            Where.TRAINJOB,
            "ranks that handle USR1",
        ),
        ("scontrol requeue $SLURM_JOB_ID", "USR1", Where.TRAINJOB, "it starts again"),
        ("rm -rf $TMP", "EXIT", Where.LOST, "`rm -rf $TMP` at EXIT"),
        ("echo bye", "EXIT", Where.TRAINJOB, "handlers of its own"),
    ],
)
def test_what_a_trap_does_is_carried_over_or_named(
    handler: str, signal: str, where: Where, what: str, tmp_path: Path
) -> None:
    for setup in (f"trap '{handler}' {signal}\n", f"ends() {{\n  {handler}\n}}\ntrap ends {signal}\n"):
        adoption = adopted(
            ONE_GPU + "#SBATCH --signal=B:USR1@60\n" + setup + "srun python train.py &\nwait\n", tmp_path
        )
        (entry,) = (one for one in adoption.account.entries if one.text.startswith("trap"))
        assert (entry.where, what in entry.what) == (where, True)


def test_a_comment_stays_whole_or_goes(tmp_path: Path) -> None:
    text = "# slurm has a log of its own,\n# and this one is for you.\npython train.py\n"
    assert "for you" not in adopted(ONE_GPU + "set -e\n\n" + text, tmp_path).job


def test_branches_of_a_condition_around_the_training_are_named(tmp_path: Path) -> None:
    text = "if [ -d /data ]; then\n  module load a\n  python train.py\nelse\n  module load b\nfi\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert prologue(adoption) == ["module load a"]
    assert len(lost(adoption)) == 2


def test_what_stands_before_the_call_of_the_training_is_before_it(tmp_path: Path) -> None:
    text = "train() {\n  python train.py\n}\nexport A=1\nmodule load cuda\ntrain\ncp o /archive\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert (job_from_text(adoption.job, "job.yaml").env, prologue(adoption)) == ({"A": "1"}, ["module load cuda"])
    assert list(lost(adoption)) == ["cp o /archive"]


def test_an_option_in_one_letter_is_carried_over(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "#SBATCH -w n7 -p gpu\npython train.py\n", tmp_path)
    assert job_from_text(adoption.job, "job.yaml").directives == {"nodelist": "n7"}
    assert not lost(adoption)


def test_an_environment_beside_the_file_is_found_from_the_copy(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "conda activate ./env\npython train.py\n", tmp_path)
    assert prologue(adoption) == ["conda activate /home/me/project/env"]


@pytest.mark.parametrize("words", ["bash run.sh --lr 1", "apptainer exec /i.sif sh run.sh"])
def test_a_script_of_the_shell_that_is_not_here_is_the_command(words: str, tmp_path: Path) -> None:
    found = command(adopted(ONE_GPU + f"srun {words}\n", tmp_path))
    assert found == words.removeprefix("apptainer exec /i.sif ").split()


def test_too_few_launchers_for_the_nodes_are_a_change(tmp_path: Path) -> None:
    text = TWO_NODES.replace("ntasks-per-node", "ntasks") + HEAD
    adoption = adopted(text + "srun torchrun --nnodes 2 --nproc-per-node 4 train.py\n", tmp_path)
    assert ["--ntasks=1 starts 1 launcher for 2 nodes" in one for one in adoption.account.changes] == [True]
    assert job_from_text(adoption.job, "job.yaml").given()["instances"] == 8


def test_a_variable_that_is_exported_later_is_exported(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "X=5\nexport X\ndeclare -A m\nm[a]=$X\nexport Y=${m[a]}\npython train.py\n", tmp_path)
    assert prologue(adoption) == ["X=5", "export X", "declare -A m", "m[a]=$X", "export Y=${m[a]}"]


@pytest.mark.parametrize(
    "statement",
    [
        "unset A",
        "unset -f which",
        "export -f f",
        "if [[ -d /data ]]; then export HERE=1; fi",
        "declare -A A",
        "export A=1",
    ],
)
def test_a_redirection_does_not_change_where_a_statement_goes(statement: str, tmp_path: Path) -> None:
    plain, redirected = (
        adopted(f"{ONE_GPU}f() {{\n  touch x\n}}\n{statement}{sign}\nsrun bash -c 'f; python train.py'\n", tmp_path)
        for sign in ("", " 2>/dev/null")
    )
    assert [one.replace(" 2>/dev/null", "") for one in prologue(redirected)] == prologue(plain)
    assert redirected.job == plain.job


def test_a_variable_that_a_condition_takes_away_is_taken_away(tmp_path: Path) -> None:
    line = "[ -d /data ] && unset LD_PRELOAD"
    assert prologue(adopted(f"{ONE_GPU}{line}\npython train.py\n", tmp_path))[1:] == [line]


def test_what_is_unset_stays_unset(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "export A=1\nunset A LD_LIBRARY_PATH\npython train.py --a ${A:-2}\n", tmp_path)
    assert prologue(adoption) == ["unset A LD_LIBRARY_PATH"]
    assert command(adoption) == ["python", "train.py", "--a", "2"]


def test_the_home_is_put_in_where_bash_does(tmp_path: Path) -> None:
    text = "export CACHE=~/cache\nDATA=~/data\npython ~/train.py --data $DATA --as '~/x' a~/b ~\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    words = [
        "export",
        "-n",
        "DATA",
        "exec",
        "python",
        '"$HOME"/train.py',
        "--data",
        "$DATA",
        "--as",
        "'~/x'",
        "'a~/b'",
        '"$HOME"',
    ]
    assert command(adoption)[2].split() == words
    assert "export CACHE=~/cache" in prologue(adoption)


def test_the_training_of_a_pipeline_is_not_what_reads_its_output(tmp_path: Path) -> None:
    for text in (
        "python train.py < in | tee x | python parse.py\n",
        "srun bash -c 'python train.py < in | python parse.py'\n",
    ):
        adoption = adopted(ONE_GPU + text, tmp_path)
        assert command(adoption) == ["python", "train.py"]
        assert {"| python parse.py", "< in"} <= lost(adoption).keys()
    assert "cat x |" in lost(adopted(ONE_GPU + "cat x | srun python train.py\n", tmp_path))


def test_a_shell_of_ranks_that_is_not_bash_is_named(tmp_path: Path) -> None:
    assert "zsh" in lost(adopted(ONE_GPU + "srun zsh -c 'source ~/.zshrc; python train.py'\n", tmp_path))


def test_a_place_that_the_prologue_reads_is_set_there(tmp_path: Path) -> None:
    text = "export WORLD_SIZE=$SLURM_NTASKS MASTER_PORT=1\nmkdir -p runs/$WORLD_SIZE\nsrun python train.py\n"
    assert "export WORLD_SIZE=$SLURM_NTASKS MASTER_PORT=1" in prologue(adopted(ONE_GPU + text, tmp_path))


def test_what_env_sets_is_no_word_of_the_command(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "time env -u X RANK=5 B=2 nice -n 5 python train.py\n", tmp_path)
    assert command(adoption) == ["env", "-u", "X", "nice", "-n", "5", "python", "train.py"]
    assert "env: {B: 2}" in adoption.job
    for clears in ("-i", "-0i", "--ignore-env"):
        adoption = adopted(ONE_GPU + f"env {clears} B=2 python train.py\n", tmp_path)
        assert command(adoption)[:3] == ["env", clears, "B=2"]


def test_a_home_behind_the_name_of_a_variable_is_put_in_where_the_job_runs(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "env A=~/a python train.py --b=~/b c=~\n", tmp_path)
    assert command(adoption)[2].splitlines()[-2:] == [
        'export A="$HOME"/a',
        "exec python train.py '--b=~/b' c=\"$HOME\"",
    ]
    assert "~" not in str(job_from_text(adoption.job, "job.yaml").env)
    start = "srun {} --env A=~/a {} python train.py\n"
    adoption = adopted(ONE_GPU + start.format("shifter --image=a", ""), tmp_path)
    assert prologue(adoption) == ['export A="$HOME"/a']
    adoption = adopted(ONE_GPU + start.format("singularity exec", "a.sif"), tmp_path)
    assert prologue(adoption) == ['export A="$HOME"/a', 'export SINGULARITYENV_A="$A"']
    assert "--env A=~/a" in lost(adopted(ONE_GPU + start.format("podman run", "a"), tmp_path))


def test_an_option_of_a_profiler_keeps_its_value(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "env X=3 nsys profile -e A=1,B=2 -o out python train.py\n", tmp_path)
    job = job_from_text(adoption.job, "job.yaml")
    assert (job.env, job.command) == (
        {"X": "3"},
        ["nsys", "profile", "-e", "A=1,B=2", "-o", "out", "python", "train.py"],
    )


@pytest.mark.parametrize(("shell", "is_told"), [("/usr/bin/zsh", True), ("/usr/bin/env -S bash -l", False)])
def test_a_shell_in_which_a_job_does_not_run_is_named(shell: str, is_told: bool, tmp_path: Path) -> None:
    text = ONE_GPU.replace("/bin/bash", shell) + "python train.py\n"
    assert (f"#!{shell}" in lost(adopted(text, tmp_path))) == is_told
    with pytest.raises(AdoptionError, match="names tcsh"):
        adopted(text.replace(shell, "/bin/tcsh -f"), tmp_path)


def test_what_ranks_print_is_named(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "srun bash -c 'nvidia-smi; python train.py'\n", tmp_path)
    assert "nvidia-smi" in [one.text for one in adoption.account.entries]


def test_where_a_run_can_not_resume_from_is_named(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "python train.py --resume out/last.pt --load-from=/data/a.pt --lr 0.1\n", tmp_path)
    assert list(lost(adoption)) == ["--resume out/last.pt"]


def test_a_role_is_named(tmp_path: Path) -> None:
    assert "--role trainer" in lost(
        adopted(ONE_GPU + "torchrun --role trainer --nproc-per-node 1 train.py\n", tmp_path)
    )


def test_a_time_of_zero_is_no_limit(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "#SBATCH --time=0-00:00:00\npython train.py\n", tmp_path)
    assert "time_limit" not in job_from_text(adoption.job, "job.yaml").given()


def test_what_is_exported_in_the_background_reaches_nobody(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "export X=5 &\nexport Y=6 && true\npython train.py\n", tmp_path)
    assert "X" not in (job_from_text(adoption.job, "job.yaml").env or {})
    assert "Y=6" in str(adoption.job) + str(adoption.cluster) or "Y: 6" in str(adoption.job)
    assert [one.where for one in adoption.account.sorted if "X=5" in one.text] == [Where.NOWHERE]


@pytest.mark.parametrize(("srun", "where"), [("", Where.LOST), ("srun ", Where.NOWHERE)])
def test_ignored_signals_reach_what_the_shell_starts_itself(srun: str, where: Where, tmp_path: Path) -> None:
    text = f"trap '' USR1\ntrap \"\" HUP INT\ntrap '' EXIT\n{srun}python train.py\n"
    found = [one.where for one in adopted(ONE_GPU + text, tmp_path).account.sorted if one.text.startswith("trap")]
    assert found == [where, where, Where.TRAINJOB]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("module load a\n", ["set +eo pipefail", "module load a", "set -eo pipefail"]),
        ("set -e\nmodule load a\n", ["module load a"]),
        (
            "./a || exit 1\n./b || true\nexport A=$(./c)\nmodule list\n",
            ["set +eo pipefail", "./a || exit 1", "./b || true", "export A=$(./c)", "set -eo pipefail"],
        ),
        (
            "./a\nset -eu\n./b\n",
            ["set +eo pipefail", "./a", "set -eu", "./b", "set -eo pipefail"],
        ),
    ],
)
def test_a_failure_ends_the_job_only_where_it_ends_the_file(text: str, lines: list[str], tmp_path: Path) -> None:
    kept = prologue(adopted(f"{ONE_GPU}{text}python train.py\n", tmp_path), whole=True)
    assert [line for line in kept if not line.startswith("cd ")] == lines


@pytest.mark.parametrize(("options", "count"), [("", 1), ("--ntasks-per-node=2 ", 0), ("-n 4 ", 0), ("-N1 ", 0)])
def test_a_step_before_the_training_has_other_tasks_in_a_job(options: str, count: int, tmp_path: Path) -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2 --time=10\n"
    text = f"{head}srun {options}hostname > hosts.txt\nsrun python train.py --hosts hosts.txt\n"
    adoption = adopted(text, tmp_path)
    assert f"srun {options}hostname > hosts.txt" in prologue(adoption)
    assert len(adoption.account.lost) == count


def test_what_a_step_starts_is_no_print_because_of_its_arguments(tmp_path: Path) -> None:
    text = "srun -n1 python make_splits.py --date 2024 --out splits\nsrun -n1 hostname\n"
    adoption = adopted(ONE_GPU + text + "srun python train.py\n", tmp_path)
    assert [line for line in prologue(adoption) if "srun" in line] == [text.splitlines()[0]]


def test_several_trainings_at_once_are_no_job(tmp_path: Path) -> None:
    text = "srun -n1 python train.py --size 1 &\nsrun -n1 python train.py --size 2 &\nwait\n"
    with pytest.raises(AdoptionError, match="several trainings at once"):
        adopted(ONE_GPU + text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "if [ -e last.pt ]; then\n  srun -n1 python train.py --resume &\nelse\n  srun -n1 python train.py &\nfi\nwait\n",
        "srun -n1 python train.py --stage 1 &\nwait $!\nsrun -n1 python train.py --stage 2 &\nwait $!\n",
    ],
)
def test_trainings_in_the_background_that_are_not_at_once_are_one_job(text: str, tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert "train.py" in command(adoption)
    assert lost(adoption) or any("--stage 1" in line for line in prologue(adoption))


def test_trainings_of_one_line_follow_each_other(tmp_path: Path) -> None:
    text = "apptainer exec /i.sif bash -c 'python train.py --part a; python train.py --part b'\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert command(adoption)[2] == "python train.py --part a\nexec python train.py --part b\n"
    assert lost(adoption) == {}


def test_an_image_by_a_pattern_is_told(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "apptainer exec /images/torch-*.sif python train.py\n", tmp_path)
    assert list(lost(adoption)) == ["/images/torch-*.sif"]


def test_tasks_that_nothing_starts_are_cpus(tmp_path: Path) -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=16\n#SBATCH --gres=gpu:1\n"
    adoption = adopted(head + "python train.py\n", tmp_path)
    assert SlurmCluster.of(cluster_from_text(str(adoption.cluster), "cluster.yaml")).nodes.cpus == 16
    assert {one.what for one in adoption.account.entries if "ntasks" in one.text} == {"nodes: cpus: 16"}


def test_devices_that_a_command_hides_stay_hidden(tmp_path: Path) -> None:
    for given, env in (("0", {}), ('""', {"CUDA_VISIBLE_DEVICES": ""}), ("-1", {"CUDA_VISIBLE_DEVICES": "-1"})):
        adoption = adopted(f"{ONE_GPU}CUDA_VISIBLE_DEVICES={given} python train.py\n", tmp_path)
        assert job_from_text(adoption.job, "job.yaml").env == env
        adoption = adopted(f"{ONE_GPU}export CUDA_VISIBLE_DEVICES={given}\npython train.py\n", tmp_path)
        assert job_from_text(adoption.job, "job.yaml").env == env


def test_an_option_without_a_comment_sign_is_told(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "--constraint=a100\n--nodelist=$N\n-p gpu\n--exclusive\npython train.py\n", tmp_path)
    told = {text: why for text, why in lost(adoption).items() if why.startswith("bash finds no such command")}
    assert list(told) == ["--constraint=a100", "--nodelist=$N", "-p gpu", "--exclusive"]
    assert prologue(adoption) == []


def test_an_option_that_a_comment_cuts_off_is_told_as_no_command(tmp_path: Path) -> None:
    cut = lost(adopted(ONE_GPU + "python train.py \\\n  --lr 1 \\\n  # --decay 2 \\\n  --epochs 3\n", tmp_path))
    assert cut == {"--epochs 3": "bash finds no such command"}


@pytest.mark.parametrize(
    ("setup", "names"),
    [
        ('args=(--x 1)\nif [[ -n "${MORE:-}" ]]; then\n  args+=(--more "$MORE")\nfi\n', "$MORE"),
        ('[[ -n "${RUN:-}" ]] || exit 1\nEPOCHS=${EPOCHS:-3}\n', "$RUN, $EPOCHS"),
        ("# ${COMMENTED:-}\nA=1\nfor b in 1 2; do echo ${A:-} ${b:-}; done\necho ${SLURM_JOB_ID:-} ${HOME:-}\n", None),
    ],
)
def test_a_variable_that_only_the_submitting_shell_may_have_is_told(
    setup: str, names: str | None, tmp_path: Path
) -> None:
    told = lost(adopted(f"{ONE_GPU}{setup}python train.py\n", tmp_path))
    assert [text for text, why in told.items() if "shell that submits" in why] == ([names] if names else [])


def test_options_of_the_file_are_read_when_the_job_runs(tmp_path: Path) -> None:
    loop = 'while getopts "s:" o; do\n  case $o in\n  s) if [[ $OPTARG =~ ^1 ]]; then S=$OPTARG; else S=no; fi; found=1 ;;\n  esac\ndone\n'
    text = f"{ONE_GPU}found=0\n{loop}if ((found == 0)); then S=no; fi\npython train.py --seed $S\n"
    adoption = adopted(text, tmp_path, "-s", "12")
    assert "exec python train.py --seed $S" in command(adoption)[2]
    assert prologue(adoption)[0] == "set -- -s 12"
    assert "login_environment" not in str(adoption.cluster)


def test_gpus_that_no_directive_asks_for_are_told(tmp_path: Path) -> None:
    text = '#!/bin/bash\n#SBATCH --nodes=1\nif [ -n "$SLURM_JOB_GPUS" ]; then D=cuda; else D=cpu; fi\npython train.py --gpu $D\n'
    assert "GPUs" in lost(adopted(text, tmp_path))


def test_a_world_of_another_size_is_told(tmp_path: Path) -> None:
    for count, is_told in ((1, True), (8, False)):
        text = f"srun accelerate launch --num_machines 2 --num_processes {count} train.py\n"
        changes = adopted(TWO_NODES + HEAD + text, tmp_path).account.changes
        assert any("processes on 2 nodes" in line for line in changes) == is_told


def test_an_unknown_program_of_a_container_behind_a_plain_one_may_be_the_training(tmp_path: Path) -> None:
    text = f"{ONE_GPU}python3 prepare.py --out c.yaml\napptainer exec a.sif learn c.yaml\n"
    with pytest.raises(AdoptionError, match="line 4: learn runs in a container"):
        adopted(text, tmp_path)
    adopted(text.replace("exec a.sif learn", "exec a.sif cp"), tmp_path)
    adopted(text.replace("python3 prepare.py", "srun python3 prepare.py"), tmp_path)


@pytest.mark.parametrize("otherwise", ["exit 1", "{ echo no; exit 1; }"])
def test_a_move_into_the_project_that_may_end_the_file_is_a_move(otherwise: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    adoption = adopted(f"{ONE_GPU}cd src || {otherwise}\npython train.py\n", tmp_path)
    assert command(adoption)[2].startswith('cd "$TRAINJOB_RUN_DIR/code/project/src"\n')
    assert not lost(adoption)


def test_a_prologue_ends_at_a_variable_that_is_not_set_where_the_file_does(tmp_path: Path) -> None:
    text = "set -euo pipefail\nmodule load a\npython train.py\n"
    assert prologue(adopted(ONE_GPU + text, tmp_path)) == ["set -euo pipefail", "module load a"]
    assert prologue(adopted(ONE_GPU + text.replace("module load a\n", ""), tmp_path)) == []


def test_a_launcher_in_a_shell_is_started_once_on_each_node(tmp_path: Path) -> None:
    text = "N=$(nvidia-smi -L | wc -l)\nsrun uv run torchrun --nnodes=2 --nproc-per-node=$N train.py --out ${SLURM_JOB_NAME#a}\n"
    adoption = adopted("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" + text, tmp_path)
    assert job_from_text(adoption.job, "job.yaml").command_per == "node"
    assert "the number of processes" in lost(adoption)


def test_a_script_that_a_rank_sources_is_its_training(tmp_path: Path) -> None:
    text = 'D=/data/fit\nsrun apptainer exec /i.sif bash -c "cd $D && source run_fit.sh 1 two"\n'
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert command(adoption) == ["bash", "-c", "cd /data/fit && source run_fit.sh 1 two"]
    assert container(adoption)["image"] == "/i.sif"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            'srun numactl --localalloc bash -c "python train.py 1"',
            ["numactl", "--localalloc", "python", "train.py", "1"],
        ),
        ('srun site-enter -x bash -c "python train.py 1"', ["site-enter", "-x", "python", "train.py", "1"]),
        ('srun env A=1 bash -c "python train.py 1"', ["python", "train.py", "1"]),
        (
            "srun site-enter bash -c 'ulimit -n 9; python train.py 1'",
            ["bash", "-c", "exec site-enter bash -c 'ulimit -n 9\nexec python train.py 1'"],
        ),
    ],
)
def test_a_program_that_starts_a_ranks_shell_stays_around_it(line: str, words: list[str], tmp_path: Path) -> None:
    assert [word.rstrip("\n") for word in command(adopted(f"{ONE_GPU}{line}\n", tmp_path))] == words


def test_a_launcher_behind_a_program_gets_its_options(tmp_path: Path) -> None:
    text = f"{TWO_NODES}{HEAD}srun site-enter bash -c 'accelerate launch --num_machines 2 --machine_rank $SLURM_NODEID train.py'\n"
    body = command(adopted(text, tmp_path))[-1]
    assert body.startswith("exec site-enter accelerate launch --multi_gpu --num_machines $NNODES")


def test_a_program_between_srun_and_the_container_is_named(tmp_path: Path) -> None:
    text = "srun numactl --localalloc apptainer exec /i.sif python train.py\n"
    assert list(lost(adopted(ONE_GPU + text, tmp_path))) == ["numactl --localalloc"]


@pytest.mark.parametrize(
    ("body", "is_lost"),
    [("rsync -a o /a; sleep 9", True), ("date > o/x; sleep 9", True), ("nvidia-smi; sleep 9", False)],
)
def test_a_loop_beside_the_training_is_named_unless_it_only_watches(body: str, is_lost: bool, tmp_path: Path) -> None:
    text = f"(while true; do {body}; done) &\nsrun python train.py\n"
    assert bool(lost(adopted(ONE_GPU + text, tmp_path))) == is_lost


def test_tensorboard_beside_the_training_is_named(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "tensorboard --logdir runs &\nsrun python train.py\n", tmp_path)
    assert lost(adoption)


def test_a_default_that_is_also_given_reaches_the_command(tmp_path: Path) -> None:
    adoption = adopted(': "${DATA:=/d/$USER}"\nsrun python train.py "$DATA"\n'.join([ONE_GPU, ""]), tmp_path)
    assert prologue(adoption) == [': "${DATA:=/d/$USER}"', "export DATA"]


@pytest.mark.parametrize(
    ("before", "goes_on"),
    [
        ("", True),
        ("set -e\n", True),  # without pipefail, only its last command can end the file
        ("set -eo pipefail\n", False),
        ("export ", False),
    ],
)
def test_a_look_that_finds_nothing_ends_the_job_only_where_it_ends_the_file(
    before: str, goes_on: bool, tmp_path: Path
) -> None:
    text = (
        f"{before}NET=$(ls /sys | grep ib)\nNET=${{NET:-eth0}}\nexport NCCL_SOCKET_IFNAME=$NET\nsrun python train.py\n"
    )
    lines = prologue(adopted(ONE_GPU + text, tmp_path), whole=True)
    assert (lines[0] == "set +eo pipefail", lines[-1] == "set -eo pipefail") == (goes_on, goes_on)
    assert any("NET=$(ls /sys | grep ib)" in line for line in lines)


def test_an_image_behind_options_with_values_is_found(tmp_path: Path) -> None:
    text = (
        "podman-hpc run --rm --group-add keep-groups --userns keep-id --gpu docker.io/me/torch:2 /bin/bash /w/run.sh\n"
    )
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert container(adoption)["image"] == "docker.io/me/torch:2"
    assert command(adoption) == ["/bin/bash", "/w/run.sh"]
    assert "podman-hpc" in lost(adoption)


@pytest.mark.parametrize("program", ["apptainer", "singularity"])
@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("-e", []),
        ("-c", ["--contain"]),
        ("--userns", ["--userns"]),
        ("-u -p", ["--userns", "--pid"]),
        ("--uts --no-mount tmp", ["--uts", "--no-mount", "tmp"]),
        ("-o /o.img", ["-o", "/o.img"]),
    ],
)
def test_a_flag_before_an_image_is_not_dockers_option_with_a_value(
    program: str, written: str, options: list[str], tmp_path: Path
) -> None:
    adoption = adopted(f"{ONE_GPU}srun {program} exec --nv {written} /i.sif python train.py\n", tmp_path)
    assert container(adoption)["image"] == "/i.sif"
    assert container(adoption).get("options", []) == options
    assert command(adoption) == ["python", "train.py"]


def test_a_resource_beside_the_gpus_is_no_type_of_them(tmp_path: Path) -> None:
    head = "#!/bin/bash\n#SBATCH --gpus-per-node=4 --ntasks-per-node=4\n#SBATCH --gres=gpumem:24G\n#SBATCH --time=10\n"
    cluster = adopted(f"{head}srun python train.py\n", tmp_path).cluster or ""
    assert "request: gpus-per-node" in cluster
    assert 'directives: {gres: "gpumem:24G"}' in cluster
    assert "type" not in cluster


def test_words_that_read_takes_are_taken_in_the_shell_of_the_command(tmp_path: Path) -> None:
    text = 'EXTRA=${EXTRA:---lr 1}\nread -r -a WORDS <<< "$EXTRA"\nsrun python train.py "${WORDS[@]}"\n'
    lines = command(adopted(ONE_GPU + text, tmp_path))[2].splitlines()
    assert lines[-2:] == ['read -r -a WORDS <<< "$EXTRA"', 'exec python train.py "${WORDS[@]}"']


def test_an_exported_variable_of_an_option_that_the_job_decides_stays_exported(tmp_path: Path) -> None:
    text = "export RUN_ID=$RANDOM\nsrun torchrun --nnodes=$SLURM_NNODES --rdzv-id=$RUN_ID train.py\n"
    assert "export RUN_ID=$RANDOM" in prologue(adopted(TWO_NODES + HEAD + text, tmp_path))


def test_a_word_may_go_on_behind_the_end_of_its_line(tmp_path: Path) -> None:
    text = "A=/a B=/b\nsrun --container-image=/i.sqsh --container-mounts=\\\n$A,\\\n$B \\\n  python train.py --data=\\\n$A/set\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert command(adoption) == ["python", "train.py", "--data=/a/set"]
    assert container(adoption)["mounts"] == ["/a", "/b"]


def test_a_variable_that_begins_a_line_of_a_quoted_command_is_known(tmp_path: Path) -> None:
    text = 'P=/code\nCMD="torchrun --nproc_per_node=4 \\\n    --nnodes=$SLURM_NNODES \\\n  $P/train.py \\\n  ${P}/a"\nsrun bash -c "$CMD"\n'
    assert command(adopted(TWO_NODES + text, tmp_path)) == ["torchrun", "/code/train.py", "/code/a"]


def test_a_shell_behind_a_script_that_only_the_cluster_has_is_read(tmp_path: Path) -> None:
    text = "srun /opt/entry.sh bash -c 'exec torchrun --nnodes 2 --nproc-per-node 4 train.py'\n"
    assert command(adopted(TWO_NODES + text, tmp_path))[2].startswith("exec /opt/entry.sh torchrun train.py")


def test_a_resource_of_the_step_beside_its_gpus_is_named(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "srun --gres=gpu:1,gpumem:20G python train.py\n", tmp_path)
    assert lost(adoption) == {"srun --gres=gpu:1,gpumem:20G": "ranks are started without gpumem:20G"}


def test_worlds_that_are_told_apart_by_their_node_are_refused(tmp_path: Path) -> None:
    text = "srun bash -c 'torchrun --standalone --nproc-per-node=4 make.py --part $SLURM_NODEID'\n"
    with pytest.raises(AdoptionError, match="a world of its own on each of 2 nodes") as refused:
        adopted(TWO_NODES + text, tmp_path)
    assert "--array=0-1" in (refused.value.cure or "")


def test_what_bash_knows_by_itself_needs_no_login_shell(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + 'if [ "$EUID" -eq 1 ]; then exit 1; fi\npython train.py\n', tmp_path)
    assert "login_environment" not in (adoption.cluster or "")


def test_a_line_of_assignments_is_no_part_of_the_command_below_it(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "A=/a N=$(nproc)\nsrun python train.py --data=$A/set --workers $N\n", tmp_path)
    assert command(adoption)[2] == "export -n N\nexec python train.py --data=/a/set --workers $N\n"
    assert prologue(adoption) == ["export N=$(nproc)"]
    assert job_from_text(adoption.job, "job.yaml").env == {}


def test_a_signal_before_the_job_begins_comes_within_its_limit(tmp_path: Path) -> None:
    head = ONE_GPU + "#SBATCH --time=00:00:40\n#SBATCH --signal=USR1@90\n"
    adoption = adopted(head + "srun python train.py\n", tmp_path)
    assert "time_limit_signal: {margin_s: 10}" in (adoption.cluster or "")
    assert lost(adoption) == {"--signal=USR1@90": "the limit is 40 s: ranks get USR1 10 s before it"}


def test_the_mounts_of_a_container_that_only_a_run_knows_are_named(tmp_path: Path) -> None:
    text = "srun --container-image=$IMAGE --container-mounts=/a:/b,/c python train.py\n"
    assert {"/a:/b", "/c"} <= lost(adopted(ONE_GPU + text, tmp_path)).keys()


def test_words_that_look_like_a_comment_and_are_none_are_named(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "srun python train.py --lr 1 \\ #other words\n", tmp_path)
    assert list(lost(adoption)) == ["#other words"]


def test_an_images_runscript_that_the_job_does_not_start_is_named(tmp_path: Path) -> None:
    for how in ("run", "exec"):
        said = lost(adopted(f"{ONE_GPU}apptainer {how} --nv /i.sif python train.py run\n", tmp_path))
        assert ("apptainer run" in said) == (how == "run")


def test_an_image_that_is_given_only_options_is_refused_and_none_stands_in_for_a_program(tmp_path: Path) -> None:
    for words in ("apptainer run --nv /i.sif --lr 1", "apptainer run /i.sif --config=/a/b"):
        with pytest.raises(AdoptionError, match="leaves it to the image"):
            adopted(f"{ONE_GPU}srun {words}\n", tmp_path)
    with pytest.raises(AdoptionError, match="nothing that trains"):
        adopted(f"{ONE_GPU}srun --\n", tmp_path)
    adoption = adopted(f"{ONE_GPU}srun -n1 -- docker run --rm -- img env RANK=1 A=1 python train.py RANK=2\n", tmp_path)
    assert command(adoption) == ["python", "train.py", "RANK=2"]
    assert "env: {A: 1}" in adoption.job
    assert container(adoption)["options"] == []


@pytest.mark.parametrize("first", ["cat > run.sh <<'X'", "cat <<'X' > ./start\n#!/bin/bash"])
def test_what_a_script_reads_that_the_file_writes_comes_from_a_login_shell(first: str, tmp_path: Path) -> None:
    name = "./start" if "start" in first else "./run.sh"
    text = f'{first}\npython train.py --data $DATA "$@"\nX\nchmod +x {name}\nsrun --mpi=none {name} --seed 3\n'
    adoption = adopted(PER_RANK + text, tmp_path)
    lines = {one.text: one.line for one in adoption.account.entries}
    last = (PER_RANK + text).count("\n")
    assert (lines["$DATA"], lines["srun --mpi=none"]) == (last, last)
    assert command(adoption) == [name, "--seed", "3"]
    data = "cat > note.txt <<'X'\n$DATA\nX\nsrun python train.py\n"
    assert "$DATA" not in {one.text for one in adopted(PER_RANK + data, tmp_path).account.entries}


def test_what_a_function_is_called_with_is_in_the_command(tmp_path: Path) -> None:
    text = (
        'ARGS=(--lr 1)\ncmd="python train.py ${ARGS[*]}"\nrun() { srun "$@"; }\nrun $cmd || { echo failed; exit 3; }\n'
    )
    told = {one.text: (one.where, one.what) for one in adopted(PER_RANK + text, tmp_path).account.entries}
    assert {told["ARGS=(--lr 1)"], told['cmd="python train.py ${ARGS[*]}"']} == {IN_COMMAND}
    assert told["{ echo failed; exit 3; }"] == (Where.TRAINJOB, "the job ends with the code of its ranks")


def test_what_runs_outside_of_the_image_that_is_around_the_file_is_named(tmp_path: Path) -> None:
    text = ONE_GPU + "#SBATCH --container-image=/i.sqsh\n"
    alone = adopted(f"{text}python train.py\n", tmp_path)
    both = adopted(f"{text}pip list >packages\npython train.py\n", tmp_path)
    assert (lost(alone), list(lost(both))) == ({}, ["--container-image, around the whole file"])


@pytest.mark.parametrize("folder", ["", "./", "$SLURM_SUBMIT_DIR/", '"${SLURM_SUBMIT_DIR}"/', "$HERE/"])
def test_a_virtualenv_below_the_submission_is_that_of_the_original(folder: str, tmp_path: Path) -> None:
    adoption = adopted(f"{ONE_GPU}HERE=$SLURM_SUBMIT_DIR\n{folder}env/bin/python train.py\n", tmp_path)
    assert command(adoption)[0] == "/home/me/project/env/bin/python"


@pytest.mark.parametrize(
    ("setup", "line", "first"),
    [
        ("", "srun bash -ec './look; python train.py'", "set -e"),
        ("", "srun bash -c './look; python train.py'", "./look"),
        ("set -e\ncd sub\n", "srun python train.py $USER", 'cd "$TRAINJOB_RUN_DIR/code/project/sub" || exit'),
        ("cd sub\n", "srun python train.py $USER", 'cd "$TRAINJOB_RUN_DIR/code/project/sub"'),
    ],
)
def test_a_failure_before_the_training_ends_a_rank_where_it_ends_the_file(
    setup: str, line: str, first: str, tmp_path: Path
) -> None:
    assert command(adopted(f"{ONE_GPU}{setup}{line}\n", tmp_path))[2].split("\n")[0] == first


def test_a_variable_is_where_the_word_is_that_it_stands_in(tmp_path: Path) -> None:
    setup = "N=4\nIMAGE=/i.sif\nLR=1\nMOUNT=/data\nif [ -f ~/.netrc ]; then MOUNT=/data,/root; fi\n"
    line = "apptainer exec -B $MOUNT $IMAGE torchrun --nproc_per_node=$N train.py --lr $LR --run $run\n"
    adoption = adopted(ONE_GPU.replace(":1", ":4") + setup + line, tmp_path)
    where = {one.text: (one.where, one.what) for one in adoption.account.entries}
    assert where["N=4"] == (Where.TRAINJOB, "in options that trainjob decides")
    assert where["IMAGE=/i.sif"] == (Where.CLUSTER, "container")
    assert where["LR=1"] == (Where.JOB, "in the words of command")
    assert lost(adoption) == {
        "$MOUNT": "this mount is known only when it runs",
        "$run": "nothing in the file sets it, and jobs get no variables of the shell that submits them",
    }


def test_a_variable_keeps_its_braces_where_its_name_would_go_on(tmp_path: Path) -> None:
    text = 'TAG=$(hostname)\nNAME="x_${TAG}_end"\nOUT="/x/$NAME"\npython train.py --out "$OUT" --log "$OUT" --name a${TAG}_b\n'
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert "TAG_" not in command(adoption)[2].replace("${TAG}_", "")


def test_an_array_of_a_branch_that_only_a_run_knows_is_filled_there(tmp_path: Path) -> None:
    text = "T=$(hostname)\ncase $T in\n  a) A=(--x 1) ;;\n  *) A=(--x 2) ;;\nesac\npython train.py ${A[@]}\n"
    assert "case $T in" in command(adopted(ONE_GPU + text, tmp_path))[2]


def test_a_name_of_places_may_be_the_programs_own(tmp_path: Path) -> None:
    assert command(adopted(ONE_GPU + "RANK=32\npython train.py --rank $RANK\n", tmp_path))[-1] == "32"
    with pytest.raises(AdoptionError, match="reads RANK of line 4"):
        adopted(ONE_GPU + "RANK=32\n[ -f x ] && RANK=64\npython train.py --rank $RANK\n", tmp_path)


def test_directives_that_add_up_are_all_there(tmp_path: Path) -> None:
    text = "#SBATCH --mail-type=END\n#SBATCH --mail-type=FAIL\n#SBATCH --qos=a\n#SBATCH --qos=b\npython train.py\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert job_from_text(adoption.job, "job.yaml").directives == {"mail-type": "END,FAIL"}
    assert [one.where for one in adoption.account.entries if one.line in (6, 7)] == [Where.NOWHERE, Where.CLUSTER]


def test_an_environment_that_the_file_makes_is_that_of_the_copy(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "python -m venv .venv\nsource .venv/bin/activate\npython train.py\n", tmp_path)
    assert prologue(adoption)[-1] == "source .venv/bin/activate"
    assert list(lost(adoption)) == ["python -m venv .venv"]


def test_what_a_job_has_in_another_way_is_told(tmp_path: Path) -> None:
    adoption = adopted(
        ONE_GPU + "ln -sf $SLURM_JOB_ID.out logs/latest.out\nsrun --gres=gpu:4 python train.py\n", tmp_path
    )
    assert "a job's log has another name" in str(lost(adoption))
    assert "srun wants 4 GPUs on each node, and the directives ask for 1" in adoption.account.changes[0]


def test_a_branch_without_a_job_is_never_reached(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + 'if [ -z "$SLURM_JOB_ID" ]; then sbatch "$0"; exit; fi\npython train.py\n', tmp_path)
    (entry,) = (one for one in adoption.account.entries if one.line == 4)
    assert (entry.where, entry.what) == (Where.NOWHERE, "never reached in this job")


def test_an_image_that_starts_its_own_program_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(AdoptionError, match="leaves it to the image what it starts"):
        adopted(ONE_GPU + "singularity run --nv /i.sif --config-name=$USER module=4\n", tmp_path)


def test_variables_reach_a_container_under_the_name_that_its_program_reads(tmp_path: Path) -> None:
    for program, prefix in (("singularity", "SINGULARITYENV"), ("apptainer", "APPTAINERENV")):
        text = f"export A=$(hostname)\nsrun {program} exec /i.sif python train.py\n"
        assert prologue(adopted(ONE_GPU + text, tmp_path))[-1] == f'export {prefix}_A="$A"'


def test_what_a_sourced_file_may_set_is_left_to_the_run(tmp_path: Path) -> None:
    text = "source ./site.sh\nN=${N:-8}\npython train.py --n $N\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert command(adoption)[-1].strip().endswith("exec python train.py --n $N")
    assert prologue(adoption)[-1] == "export N=${N:-8}"


@pytest.mark.parametrize("line", ["export PYTHONPATH=$PWD/../lib:$PYTHONPATH", "source ../lib/env.sh", "cp ../lib/x ."])
def test_what_is_outside_of_the_project_is_told(line: str, tmp_path: Path) -> None:
    told = lost(adopted(f"{ONE_GPU}{line}\npython train.py\n", tmp_path))
    assert [text.startswith("../lib") for text in told] == [True]


def test_all_of_a_container_that_only_a_run_knows_is_told(tmp_path: Path) -> None:
    text = "source ./site.sh\nsingularity exec --pwd /a -B /b $IMAGE python train.py\n"
    assert set(lost(adopted(ONE_GPU + text, tmp_path))) == {"apptainer $IMAGE", "/b", "--pwd /a"}


def test_an_argument_with_a_default_is_not_asked_for(tmp_path: Path) -> None:
    text = "C=${1:-a.conf}\nsource $C\nX=$(a)$(b)\nsrun bash -c 'python '\"$X\"' train.py'\n"
    with pytest.raises(AdoptionError, match="known only when the file runs"):
        adopted(ONE_GPU + text, tmp_path)


def test_a_training_on_the_nodes_disk_starts_nowhere_else(tmp_path: Path) -> None:
    text = "cp -r code $TMPDIR\ncd $TMPDIR/code\npython train.py $USER\n"
    assert command(adopted(ONE_GPU + text, tmp_path))[2].split("\n")[0] == 'cd "$TMPDIR/code" || exit'
