"""Statements that have a place in the job, and whose effect could be lost there all the same: by order, by the shell in
which they run, by what only a run knows. Each class is carried over with its effect, or told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.batchfiles.unit.test_adoption import ONE_GPU, adopted, lost, prologue
from tests.batchfiles.unit.test_nothing_is_lost import command
from trainjob.cluster.reading import job_from_text

COPY = "$TRAINJOB_RUN_DIR/code/project"


def kept(text: str, folder: Path, training: str = "python train.py\n") -> list[str]:
    return prologue(adopted(ONE_GPU + text + training, folder))


@pytest.mark.parametrize(
    ("setup", "env", "after"),
    [
        ("export A=1\n./prepare\n", {"A": "1"}, ["./prepare"]),
        ("./prepare\nexport A=1\n", {}, ["./prepare", "export A=1"]),
        ("source site.sh\nexport A=1\n", {}, ["source site.sh", "export A=1"]),
        ("source env/bin/activate\nexport A=1\n", {"A": "1"}, ["source /home/me/project/env/bin/activate"]),
        ("export A=1\nexport B=$(date)$A\nexport A=2\n", {"A": "1"}, ["export B=$(date)$A", "export A=2"]),
        ("export B=$(date)${A:-0}\nexport A=2\n", {}, ["export B=$(date)${A:-0}", "export A=2"]),
        ("module load nccl\nexport NCCL_NET=x B=1\n", {}, ["module load nccl", "export NCCL_NET=x B=1"]),
    ],
)
def test_env_comes_before_all_so_what_is_set_later_is_set_later(
    setup: str, env: dict[str, str], after: list[str], tmp_path: Path
) -> None:
    adoption = adopted(ONE_GPU + setup + "python train.py\n", tmp_path)
    assert (job_from_text(adoption.job, "job.yaml").env, prologue(adoption)[-len(after) :]) == (env, after)


@pytest.mark.parametrize(
    "text",
    [
        "f() { export A=$1; }\nf 5\n",
        "f() ( export A=1 )\nf\n",
        "( export A=1 )\n",
        "echo 1 | while read one; do export A=$one; done\n",
        "bash -c 'export A=1'\n",
        'log() { echo "$@" >>notes.txt; }\nlog begin\n',
    ],
)
def test_a_shell_or_a_function_keeps_its_own_variables_arguments_and_files(text: str, tmp_path: Path) -> None:
    found = [line for line in kept(text, tmp_path) if not line.startswith(f'cd "{COPY}"')]
    assert found == text.splitlines()


@pytest.mark.parametrize(
    "option",
    ["set -a", "set +a", "set -f", "set -o noglob", "set -o allexport", "set -ao pipefail", "shopt -s nullglob"],
)
def test_an_option_of_the_shell_that_changes_what_follows_is_kept(option: str, tmp_path: Path) -> None:
    assert kept(option + "\n", tmp_path) == [option]


@pytest.mark.parametrize("option", ["set -x", "set +x", "set +e", "set -eux", "set -o pipefail", "set -Eeuo pipefail"])
def test_an_option_that_only_prints_or_checks_is_left_out(option: str, tmp_path: Path) -> None:
    assert kept(option + "\n", tmp_path) == []


def test_arguments_that_the_file_gives_to_itself_are_words_of_the_command(tmp_path: Path) -> None:
    text = "set -- --lr 3 'a b'\nsrun python train.py \"$@\"\n"
    assert command(adopted(ONE_GPU + text, tmp_path)) == ["python", "train.py", "--lr", "3", "a b"]
    text = "set -e -- one\nshift\nsrun python train.py $#\n"
    assert command(adopted(ONE_GPU + text, tmp_path)) == ["python", "train.py", "0"]


@pytest.mark.parametrize(
    ("moves", "folder"),
    [
        ("cd sub\n", "/sub"),
        ("cd $SLURM_SUBMIT_DIR/sub\n", "/sub"),
        ('cd "${SLURM_SUBMIT_DIR}/a/b/"\n', "/a/b"),
        ("cd a\ncd b\n", "/a/b"),
        ("cd a && cd ..\n", ""),
        ("cd a\npushd b\npopd\n", "/a"),
        ("pushd sub >/dev/null\npopd\n", ""),
        ("cd a\ncd $SLURM_SUBMIT_DIR\n", ""),
        ("D=a/b\ncd $D\n", "/a/b"),
        ("cd /home/me/project/sub\n", "/sub"),
        ("cd $SLURM_SUBMIT_DIR\n", ""),
    ],
)
def test_ranks_start_where_the_file_has_moved(moves: str, folder: str, tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + moves + "python train.py\n", tmp_path)
    words = ["bash", "-c", f'cd "{COPY}{folder}"\nexec python train.py\n'] if folder else ["python", "train.py"]
    assert (command(adoption), lost(adoption), prologue(adoption)) == (words, {}, [])


def test_what_follows_a_move_works_there_and_what_is_before_it_does_not(tmp_path: Path) -> None:
    found = kept("mkdir one\ncd sub\nmkdir two\ncd ..\n", tmp_path)
    assert found == [f'cd "{COPY}"', "mkdir one", f'cd "{COPY}/sub"', "mkdir two"]


@pytest.mark.parametrize("move", ["cd /elsewhere", "cd ..", "cd ~/x", "cd $UNKNOWN/x", "[ -d a ] && cd a"])
def test_a_move_that_no_copy_has_is_told(move: str, tmp_path: Path) -> None:
    assert list(lost(adopted(f"{ONE_GPU}{move}\npython train.py\n", tmp_path)))


@pytest.mark.parametrize("name", ["NUM_GPUS", "HEAD_NODE_IP", "NODELIST", "RDZV_PORT", "HOSTFILE"])
def test_an_exported_name_that_a_job_does_not_set_is_carried_over(name: str, tmp_path: Path) -> None:
    assert job_from_text(adopted(f"{ONE_GPU}export {name}=4\npython train.py\n", tmp_path).job, "j").env == {name: "4"}
    assert kept(f"export {name}=$(hostname)\n", tmp_path) == [f"export {name}=$(hostname)"]


def test_ranks_do_not_get_what_the_file_does_not_export(tmp_path: Path) -> None:
    text = "A=$(hostname)\nexport B=$(hostname)\npython train.py $A $B\n"
    assert command(adopted(ONE_GPU + text, tmp_path))[2] == "export -n A\nexec python train.py $A $B\n"


@pytest.mark.parametrize(
    "text", ["source .env", "export $(grep -v '^#' .env | xargs)", "if [ -f .env ]; then . .env; fi"]
)
def test_a_file_that_no_copy_of_the_project_has_is_told(text: str, tmp_path: Path) -> None:
    (what,) = lost(adopted(f"{ONE_GPU}{text}\npython train.py\n", tmp_path)).values()
    assert what.startswith("no copy of the project has .env")


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("source env.sh", True),
        ("./env.sh", True),
        ("bash env.sh", True),
        ("echo env.sh is next", False),
        ("source other.sh", False),
        (f"python -c \"print('{'long' * 100}')\"", False),
    ],
)
def test_a_script_with_a_secret_is_told_where_it_is_read_or_run(text: str, is_told: bool, tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export HF_TOKEN=hf_abcdefghijABCDEFGHIJ0123\n")
    (tmp_path / "other.sh").write_text("# login credentials are in ~/.netrc\nexport A=1\n")
    told = [
        what for what in lost(adopted(f"{ONE_GPU}{text}\npython train.py\n", tmp_path)).values() if "env.sh" in what
    ]
    assert bool(told) == is_told
    if told:
        assert "take the secret out of it, and put it into a secrets_file" in told[0]


def test_variables_of_sruns_export_are_carried_over(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "srun --export=ALL,A=1,B=x python train.py\n", tmp_path)
    assert (job_from_text(adoption.job, "job.yaml").env, lost(adoption)) == ({"A": "1", "B": "x"}, {})
    for words in ("NONE,A=1", "A=1", "ALL,MASTER_PORT=1", "ALL,TRAINJOB_X=1", "ALL,HF_TOKEN=abcdefgh12345"):
        assert lost(adopted(f"{ONE_GPU}srun --export={words} python train.py\n", tmp_path))


@pytest.mark.parametrize("start", ["srun --export=ALL,A=1", "A=1 srun", "srun env A=1"])
def test_what_the_command_alone_gets_is_its_last_value_or_told(start: str, tmp_path: Path) -> None:
    adoption = adopted(f"{ONE_GPU}export A=2\n{start} python train.py\n", tmp_path)
    assert (job_from_text(adoption.job, "job.yaml").env, lost(adoption)) == ({"A": "1"}, {})
    adoption = adopted(f"{ONE_GPU}export A=$(hostname)\n{start} python train.py\n", tmp_path)
    assert list(lost(adoption)) == ["A=1"]


@pytest.mark.parametrize(
    ("words", "env", "told"),
    [
        ("NONE", None, []),
        ("NONE,A=1", {"A": "1"}, []),
        ("A=1,B=x", {"A": "1", "B": "x"}, []),
        ("ALL,A=1,MASTER_PORT=29500", {"A": "1"}, ["jobs get no variables of the submitting shell"]),
        ("HOME,A=1", {"A": "1"}, ["jobs get no variables of the submitting shell"]),
        ("ALL", None, ["jobs get no variables of the submitting shell"]),
        ("NONE,MASTER_PORT=29500", None, []),
        ("NONE,TRAINJOB_X=1,A=1", {"A": "1"}, ["env of a job may not have TRAINJOB_X"]),
    ],
)
def test_variables_of_sbatchs_export_are_carried_over(
    words: str, env: dict[str, str] | None, told: list[str], tmp_path: Path
) -> None:
    adoption = adopted(f"{ONE_GPU}#SBATCH --export={words}\npython train.py\n", tmp_path)
    assert job_from_text(adoption.job, "job.yaml").env == (env or {})
    assert [what.partition(": ")[0] for what in lost(adoption).values()] == told


def test_words_of_a_variable_of_which_only_some_are_known_are_all_given(tmp_path: Path) -> None:
    text = 'N=$(nproc)\nARGS="train.py --workers $N --lr 1"\ntorchrun --nproc-per-node 1 ${ARGS}\n'
    assert command(adopted(ONE_GPU + text, tmp_path))[2] == "export -n ARGS\nexec torchrun ${ARGS}\n"


def test_a_backslash_at_the_end_of_an_inner_script_is_no_statement(tmp_path: Path) -> None:
    assert command(adopted(ONE_GPU + "srun bash -c '\npython train.py \\\n  --bf16 \\\n'\n", tmp_path))[-1] == "--bf16"


def test_a_virtualenv_is_found_from_where_the_file_has_moved(tmp_path: Path) -> None:
    assert kept("cd src\nsource venv/bin/activate\n", tmp_path) == ["source /home/me/project/src/venv/bin/activate"]


@pytest.mark.parametrize("disk", ["$SLURM_TMPDIR", "${TMPDIR}", '"$LOCAL_SCRATCH"', "/tmp"])
def test_ranks_start_on_the_nodes_own_disk_where_the_file_does(disk: str, tmp_path: Path) -> None:
    text = f"cd {disk}\ncp -r ~/code .\ncd code\nsource venv/bin/activate\nmkdir out\npython train.py\n"
    adoption, place = adopted(ONE_GPU + text, tmp_path), re.sub('["{}]', "", disk)
    assert command(adoption) == ["bash", "-c", f'cd "{place}/code" || exit\nexec python train.py\n']
    assert prologue(adoption)[1:4] == [f'cd "{place}"', "cp -r ~/code .", f'cd "{place}/code"']
    assert "source venv/bin/activate" in prologue(adoption)
    assert lost(adoption) == {}


def test_a_shell_of_the_ranks_finds_a_virtualenv_where_the_file_has_moved(tmp_path: Path) -> None:
    text = "srun bash -c 'source venv/bin/activate; python train.py'\n"
    places = {"cd src\n": "/home/me/project/src/venv", "cd $TMPDIR\n": "venv", "": "/home/me/project/venv"}
    for move, venv in places.items():
        assert f"source {venv}/bin/activate" in command(adopted(ONE_GPU + move + text, tmp_path))[2]


def test_a_file_that_goes_back_from_the_nodes_disk_trains_in_its_project(tmp_path: Path) -> None:
    text = "W=$SLURM_TMPDIR/w\nmkdir $W\ncd $W\ntouch a\ncd /data/project\nmkdir b\npython train.py\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    moves = [line for line in prologue(adoption) if line.startswith("cd ")]
    assert moves == [f'cd "{COPY}"', 'cd "$SLURM_TMPDIR/w"', f'cd "{COPY}"']
    assert command(adoption) == ["python", "train.py"]
    assert list(lost(adoption)) == ["cd /data/project"]


def test_a_function_that_writes_works_in_the_folder_in_which_it_is_called(tmp_path: Path) -> None:
    found = kept('log() { echo "$@" >>notes.txt; }\ncd sub\nlog inside\n', tmp_path)
    assert found[-2:] == [f'cd "{COPY}/sub"', "log inside"]


def test_what_prepares_conda_reads_no_variables_of_the_job(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + 'eval "$(conda shell.bash hook)"\nexport A=1\npython train.py\n', tmp_path)
    assert job_from_text(adoption.job, "job.yaml").env == {"A": "1"}


@pytest.mark.parametrize(
    ("words", "told"),
    [("../train.py", ["../train.py"]), ("train.py --out=../o", ["../o"]), ("train.py --like a/../b", [])],
)
def test_a_path_out_of_the_project_is_told(words: str, told: list[str], tmp_path: Path) -> None:
    assert list(lost(adopted(f"{ONE_GPU}python {words}\n", tmp_path))) == told
    assert not lost(adopted(f"{ONE_GPU}cd src\npython {words}\n", tmp_path))


def test_a_container_that_hides_the_home_hides_it(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "apptainer exec --nv --contain /i.sif python train.py\n", tmp_path)
    assert "options: [--contain]" in str(adoption.cluster)
