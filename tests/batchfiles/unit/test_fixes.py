"""Fixes: the fault is gone, nothing else is new, and to mend again changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from batchfiles.fixes.edits import SAFE, UNSAFE
from batchfiles.fixes.mending import MendedFile, mended
from batchfiles.rules.codes import CODES, Severity
from batchfiles.rules.diagnosis import diagnosis_of
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import script_of
from tests.batchfiles.unit.test_codes import CASES
from tests.support.cases import each

FILE = Path("train.sbatch")
FIRST = """\
#!/bin/bash
#SBATCH --nodes={nodes} --gpus-per-node=4 --exclusive
#SBATCH --ntasks-per-node={tasks}
#SBATCH --time=1:00:00
{more}
set -eo pipefail
export OMP_NUM_THREADS=2
"""


def codes(raw: bytes) -> Counter[str]:
    return Counter(one.code for one in diagnosis_of(script_of(FILE, raw, SiteFacts()), ()).findings if not one.path)


def errors(raw: bytes) -> set[str]:
    findings = diagnosis_of(script_of(FILE, raw, SiteFacts()), ()).findings
    return {one.code for one in findings if one.severity is Severity.ERROR}


def mend(text: str | bytes, *, unsafe: bool = True) -> MendedFile:
    raw = text.encode() if isinstance(text, str) else text
    return mended(FILE, raw, SiteFacts(), unsafe=unsafe, grammar=lambda _raw: None)


@each("code", [code for code in CASES if code in {**SAFE, **UNSAFE}])
def test_a_cure_is_no_fault(code: str) -> None:
    wrong = [text.encode() if isinstance(text, str) else text for text, _ in CASES[code]]
    cured = [(codes(raw), codes(one.after), one) for raw, one in ((raw, mend(raw)) for raw in wrong)]
    assert any(before[code] > after[code] for before, after, _ in cured)
    for before, after, one in cured:
        assert mend(one.after).after == one.after
        assert sum(after.values()) <= sum(before.values()) or one.mended[0] in (
            "directive-ignored",
            "crlf",
            "sbatch-of-a-program",
        )


@pytest.mark.parametrize(
    ("nodes", "tasks", "start", "passes_on"),
    [
        (2, 4, "srun --kill-on-bad-exit=1 python train.py", "scancel --signal=USR1"),
        (1, 1, "torchrun --nproc-per-node=4 train.py", "pkill -USR1 -P"),
        (1, 1, "python train.py", "; kill -USR1"),
        (1, 1, "numactl --localalloc python train.py", "; kill -USR1"),
        (1, 1, "time python train.py", "pkill -USR1 -P"),
        (1, 1, "uv run python train.py", "pkill -USR1 -P"),
    ],
)
@pytest.mark.parametrize("more", ["", "#SBATCH --array=0-3\n#SBATCH --output=%A-%a.log"])
def test_the_recipe_for_the_time_limit_has_no_fault(
    nodes: int, tasks: int, start: str, passes_on: str, more: str
) -> None:
    text = FIRST.format(nodes=nodes, tasks=tasks, more=more) + start + "\n"
    one = mend(text)
    assert one.mended == ("time-limit-unhandled",)
    assert passes_on in one.after.decode()
    assert codes(one.after) == Counter()


def test_each_srun_of_a_training_gets_what_it_lacks() -> None:
    text = FIRST.format(nodes=2, tasks=4, more="") + 'srun python train.py\nsrun bash -c "\n  python tune.py\n"\n'
    assert mend(text, unsafe=False).after.decode().count("srun --kill-on-bad-exit=1 ") == 2


def test_only_an_srun_that_starts_a_launcher_is_held_to_one_task() -> None:
    text = (
        FIRST.format(nodes=2, tasks=4, more="")
        + "srun --kill-on-bad-exit=1 python prepare_train.py\n"
        + "srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=4 train.py\n"
    )
    one = mend(text, unsafe=False)
    assert "tasks-times-torchrun" in one.mended
    changed = [line for line in one.after.decode().splitlines() if "--ntasks-per-node=1" in line]
    assert len(changed) == 1
    assert "torchrun" in changed[0]


@pytest.mark.parametrize(
    ("start", "after"),
    [
        ("srun -K1 python train.py --log 'rank-$SLURM_PROCID.log'", None),
        ("srun -K1 python train.py --run 'a-$SLURM_JOB_ID' --log 'rank-$SLURM_PROCID.log'", None),
        (
            "srun bash -c 'echo $SLURM_JOB_ID $SLURM_LOCALID'; srun -K1 python train.py --run '$SLURM_JOB_ID'",
            "srun bash -c 'echo $SLURM_JOB_ID $SLURM_LOCALID'; srun -K1 python train.py --run \"$SLURM_JOB_ID\"",
        ),
        (
            "srun bash -c 'echo $SLURM_JOB_ID'; srun -K1 python train.py --run '$SLURM_JOB_ID'",
            "srun bash -c 'echo $SLURM_JOB_ID'; srun -K1 python train.py --run \"$SLURM_JOB_ID\"",
        ),
    ],
)
def test_only_the_word_of_a_fault_loses_its_quotes_and_never_a_rank(start: str, after: str | None) -> None:
    text = FIRST.format(nodes=2, tasks=4, more="") + start + "\n"
    assert "variable-in-quotes" in codes(text.encode())
    assert (after or start) in mend(text, unsafe=False).after.decode().splitlines()


def test_a_rank_in_a_variable_is_left_to_the_shell_that_runs_it() -> None:
    start = 'START="python train.py \\\n  --rank $SLURM_PROCID"\nsrun --kill-on-bad-exit=1 bash -c "$START"\n# $SLURM_PROCID\n'
    one = mend(FIRST.format(nodes=2, tasks=4, more="") + start, unsafe=False)
    assert "rank-expanded-early" in one.mended
    assert one.after.decode().endswith(start.replace("--rank $", "--rank \\$"))


def test_comments_and_layout_stay() -> None:
    text = (
        FIRST.format(nodes=1, tasks=1, more="# mine")
        + "\n\ntorchrun \\\n    --nproc-per-node=4 \\\n    --master-port=29500   \\\n    train.py  # four\n"
    )
    diff = mend(text, unsafe=False).diff().splitlines()
    changed = [line for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["-    --master-port=29500   \\", "+    --master-port=$((20000 + SLURM_JOB_ID % 20000))   \\"]


def test_a_fix_that_bash_can_not_read_is_not_kept() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + "torchrun --nproc-per-node=4 --master-port=29500 train.py\n"
    one = mended(
        FILE, text.encode(), SiteFacts(), unsafe=True, grammar=lambda raw: None if raw == text.encode() else "no"
    )
    assert (one.after, one.mended, one.diff()) == (text.encode(), (), "")


def test_bytes_that_are_no_text_stay() -> None:
    raw = b"#!/bin/bash\r\n#SBATCH --time=1\xff\r\n"
    assert mend(raw).after == raw


def test_only_chosen_codes_are_mended() -> None:
    raw = b"#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --time=1:00:00\npython train.py\necho done\n"

    def given(**chosen: tuple[str, ...]) -> set[str]:
        return set(mended(FILE, raw, SiteFacts(), unsafe=True, grammar=lambda _raw: None, **chosen).mended)

    every = given()
    assert {"time-limit-unhandled"} < every
    assert given(select=("time-limit-unhandled",)) == {"time-limit-unhandled"}
    assert given(ignore=("time-limit-unhandled",)) == every - {"time-limit-unhandled"}


# Examples whose right text only their author knows: what is meant by an empty file, by another scheduler's or a
# program of Python, by a variable that only mpirun's ranks have, by CPUs for each of another accelerator.
ONLY_THE_AUTHOR = [
    ("not-a-batch-file", 0),
    ("not-a-batch-file", 1),
    ("not-a-batch-file", 2),
    ("unset-variable", 4),
    ("unset-variable", 8),
]
# Or the tasks of a step, devices and nodes, a file written too early, a directive's place, an array's list.
ONLY_THE_AUTHOR += [
    ("command-not-found", 1),
    ("unset-variable", 1),
    ("rank-expanded-early", 0),
    *(("step-waits", at) for at in range(14)),
]
ONLY_THE_AUTHOR += [
    ("directive-refused", 0),
    ("job-never-ends", 2),
    *(("nodes-disagree", at) for at in (0, 3, 6, 14, 15, 16)),
    ("time-too-short", 0),
    ("time-too-short", 1),
]


@each("code", [code for code in CASES if CODES[code].severity is Severity.ERROR])
def test_each_error_is_mended_unless_only_its_author_knows_how(code: str) -> None:
    for at, (wrong, _) in enumerate(CASES[code]):
        raw = wrong.encode() if isinstance(wrong, str) else wrong
        if (code, at) not in ONLY_THE_AUTHOR:
            assert not {code} & errors(mend(raw).after), raw.decode()


@pytest.mark.parametrize(
    ("directive", "becomes"),
    [
        ("--account=$PROJECT", "##SBATCH --account=$PROJECT\n"),
        ("--output=~/logs/%j.log", "#SBATCH --output=%j.log\n"),
        ("--chdir=$HOME/run", '##SBATCH --chdir=$HOME/run\ncd "$HOME/run"\nset -eo pipefail\n'),
        ("--time-min=$LIMIT", "#SBATCH --time-min=2:00:00\n"),
        ("--exclusive 4", "#SBATCH --exclusive\n"),
        ("-p { gpus }", "##SBATCH -p { gpus }\n"),
    ],
)  # fmt: skip
def test_a_directive_gets_a_value_that_sbatch_takes_or_is_left_to_its_command_line(
    directive: str, becomes: str
) -> None:
    text = FIRST.format(nodes=1, tasks=1, more=f"#SBATCH {directive}") + "LIMIT=2:00:00\npython train.py $LIMIT\n"
    after = mended(
        *(FILE, text.encode(), SiteFacts()),
        unsafe=True,
        select=("directive-refused", "tilde-in-output"),
        grammar=lambda _raw: None,
    ).after.decode()
    assert becomes in after


def test_a_comment_inside_a_command_moves_above_it() -> None:
    text = "srun --kill-on-bad-exit=1 python train.py \\\n  --lr 1 \\\n  # --decay 2 \\\n  --epochs 3\n"
    after = mend(FIRST.format(nodes=1, tasks=1, more="") + text, unsafe=False).after.decode()
    assert "  # --decay 2 \\\nsrun --kill-on-bad-exit=1 python train.py \\\n  --lr 1 \\\n  --epochs 3\n" in after


def test_a_command_that_ends_too_early_is_whole_before_anything_else_is_mended() -> None:
    text = "set -e\nsrun --kill-on-bad-exit=1 python train.py \\\n  # --decay 2 \\\n  --epochs 3\n"
    after = mend(FIRST.format(nodes=1, tasks=1, more="") + text).after.decode()
    assert "python train.py \\\n  --epochs 3 &\ntraining=$!" in after


def test_a_variable_with_two_values_is_not_put_into_a_directive() -> None:
    set_twice = 'LIMIT=1:00:00\n[ "$USER" = me ] && LIMIT=2:00:00\nsrun python train.py $LIMIT\n'
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --time-min=$LIMIT") + set_twice
    assert "#SBATCH --time-min=$LIMIT\n" in mend(text, unsafe=False).after.decode()


def test_a_word_in_a_line_that_continues_the_faults_is_mended() -> None:
    start = "srun --kill-on-bad-exit=1 torchrun --nnodes=2 \\\n  --nproc-per-node=4 \\\n  --rdzv_backend=c10d \\\n  train.py\n"
    one = mend(FIRST.format(nodes=2, tasks=1, more="") + start, unsafe=False)
    assert "addr-localhost" in one.mended
    assert '  --rdzv_backend=c10d --rdzv-endpoint="$(scontrol show hostnames' in one.after.decode()


def test_a_monitor_beside_the_training_is_not_what_the_recipe_waits_for() -> None:
    start = "python monitor.py --interval 5 &\nMONITOR=$!\npython train.py\nkill $MONITOR || true\necho done\n"
    after = mend(FIRST.format(nodes=1, tasks=1, more="#SBATCH --signal=B:USR1@60") + start).after
    assert "time-limit-unhandled" not in codes(after)
    assert not errors(after)
    assert b"python train.py &\ntraining=$!" in after


def test_a_backslash_at_the_end_of_the_training_gets_no_word_behind_it() -> None:
    start = "srun --kill-on-bad-exit=1 python train.py \\\n  --name one \\\n\necho done\n"
    after = mend(FIRST.format(nodes=1, tasks=4, more="") + start).after.decode()
    assert "  --name one &\ntraining=$!" in after


def test_a_command_with_quotes_inside_a_substitution_is_not_put_into_quotes() -> None:
    start = (
        "srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=4 --node_rank=$SLURM_PROCID "
        '--master_addr=$(cat "host of $SLURM_JOB_ID") --master_port=$SLURM_JOB_ID train.py\n'
    )
    assert mend(FIRST.format(nodes=2, tasks=1, more="") + start).after.decode().count('\\"host') == 0


@each(
    ("start", "is_told"),
    [
        ("uv run torchrun --nproc-per-node=4 train.py", True),
        ("A=1 time deepspeed --num_gpus 4 train.py", True),
        ("time A=1 deepspeed --num_gpus 4 train.py", False),
        ("apptainer run --nv a.sif llamafactory-cli train a.yaml", True),
        ("docker run --gpus all a torchrun --nproc-per-node=4 train.py", False),
        ("srun -K1 docker run --gpus all a python train.py", False),
        ("srun -K1 bash -c 'docker run --gpus all a torchrun --nproc-per-node=4 train.py'", False),
        ("eval torchrun --nproc-per-node=4 train.py", False),
    ],
)
def test_ranks_that_are_no_children_are_told_of_the_limit_or_are_left_to_the_author(start: str, is_told: bool) -> None:
    after = mend(FIRST.format(nodes=1, tasks=1, more="") + start + "\n").after
    first, time, program = start.rpartition("time ")
    assert (f'\n{first}{time}sh -c "$pass_on_usr1" - {program} &\n'.encode() in after) == is_told
    assert (b"trap 'asked=yes; kill -USR1 \"$training\"' USR1" in after) == is_told
    assert (b"pass_on_usr1" in after) == is_told


def test_a_signal_that_reaches_the_ranks_is_left_to_them() -> None:
    start = "srun --kill-on-bad-exit=1 python train.py\n"  # which may requeue the job itself, as Lightning does
    text = FIRST.format(nodes=2, tasks=4, more="#SBATCH --signal=SIGUSR1@90") + start
    assert mend(text).after.decode() == text


@pytest.mark.parametrize(
    ("start", "after"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 LOG=1 torchrun \\\n  --nproc-per-node=4 train.py", "LOG=1 torchrun \\\n  --nproc-per-node=4 train.py"),
        ("export CUDA_VISIBLE_DEVICES=0,1,2,3  # all", None),
        ("export RUN=1 CUDA_VISIBLE_DEVICES='0,1,2,3'", "export RUN=1 "),
        ('bash -c "\n  CUDA_VISIBLE_DEVICES=0,1,2,3 \\\n  torchrun --nproc-per-node=4 train.py"', 'bash -c "\n  torchrun --nproc-per-node=4 train.py"'),
    ],
)  # fmt: skip
def test_a_setting_is_taken_out_and_its_command_stays(start: str, after: str | None) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + start + "\n"
    chosen = ("sets-visible-devices",)
    one = mended(FILE, text.encode(), SiteFacts(), unsafe=True, select=chosen, grammar=lambda _raw: None)
    assert one.mended == ("sets-visible-devices",)
    assert one.after.decode() == FIRST.format(nodes=1, tasks=1, more="") + (after or f"# {start}") + "\n"


def test_a_fix_that_loses_what_the_file_starts_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + "CUDA_VISIBLE_DEVICES=0,1 python train.py\n"
    lost = text.replace("CUDA", "# CUDA")
    monkeypatch.setitem(UNSAFE, "sets-visible-devices", lambda _script, _one: lost)
    assert "sets-visible-devices" not in mend(text).mended


def test_cpus_are_a_figure_where_the_file_forgets_slurms() -> None:
    start = "unset SLURM_CPUS_PER_TASK\nsrun --kill-on-bad-exit=1 python train.py\n"
    after = mend(FIRST.format(nodes=1, tasks=4, more="#SBATCH --cpus-per-task=8") + start, unsafe=False).after
    assert b"srun --cpus-per-task=8 " in after


def test_a_value_without_its_equals_sign_stays_with_its_option() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --partitionA100").replace(
        "gpus-per-node=4", "gpus-per-nodea100:4"
    )
    after = mend(text + "python train.py\n", unsafe=False).after.decode()
    assert "--gpus-per-node=a100:4 " in after
    assert "--partition=A100\n" in after


def test_a_program_of_any_name_gets_a_rank_of_its_own() -> None:
    start = "export NODE_RANK=$SLURM_NODEID\nsrun --kill-on-bad-exit=1 llamafactory-cli train a.yaml\n"
    after = mend(FIRST.format(nodes=2, tasks=1, more="") + start, unsafe=False).after.decode()
    assert after.endswith('bash -c "export NODE_RANK=\\$SLURM_NODEID; exec llamafactory-cli train a.yaml"\n')


def test_a_folder_for_each_rank_is_made_of_its_own_number() -> None:
    start = "export CACHE=/tmp/$USER-${SLURM_PROCID}.d\nsrun --kill-on-bad-exit=1 python train.py\n"
    after = mend(FIRST.format(nodes=2, tasks=4, more="") + start, unsafe=False).after.decode()
    assert after.endswith('bash -c "export CACHE=/tmp/$USER-\\${SLURM_PROCID}.d; exec python train.py"\n')


@pytest.mark.parametrize("reads", ["export LOGS=$CACHE/logs", "mkdir -p ${CACHE}"])
def test_a_variable_that_the_file_still_reads_is_not_moved_away(reads: str) -> None:
    start = f"export CACHE=/tmp/$USER-${{SLURM_PROCID}}.d\n{reads}\nsrun --kill-on-bad-exit=1 python train.py\n"
    text = FIRST.format(nodes=1, tasks=4, more="") + start
    assert "export CACHE=/tmp/$USER-${SLURM_PROCID}.d\n" in mend(text).after.decode()


def test_a_launcher_that_starts_nodes_itself_is_not_put_behind_srun() -> None:
    text = FIRST.format(nodes=2, tasks=4, more="")
    assert b"srun" not in mend(text + "deepspeed train.py --deepspeed zero.json\n").after
    assert b"srun" not in mend(text + "python train.py\n").after, "whether its ranks meet can't be seen"
    text += "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n"
    assert b"srun --kill-on-bad-exit=1 python train.py" in mend(text + "python train.py\n").after


def test_nothing_waits_for_a_server_and_the_recipe_stands_around_the_training_alone() -> None:
    start = "srun --ntasks=1 trl vllm-serve --model m &\nsrun --kill-on-bad-exit=1 python train.py\n\nwait\necho done\n"
    one = mend(FIRST.format(nodes=2, tasks=4, more="") + start)
    assert "job-never-ends" in one.mended
    assert "\nwait\n" not in one.after.decode()
    assert not errors(one.after)


def test_set_e_does_not_come_between_a_training_and_a_question_for_its_code() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="").replace("set -eo pipefail\n", "cd src\n")
    asks = 'srun --kill-on-bad-exit=1 python train.py\nif [ $? = 9 ]; then scontrol requeue "$SLURM_JOB_ID"; fi\n'
    assert b"set -e" not in mend(text + asks).after
    assert b"set -e" in mend(text + asks.replace("if [ $? = 9 ]", "if [ -e again ]")).after


def test_a_port_that_stands_in_two_places_stays() -> None:
    start = "other=29500\ntorchrun --nproc-per-node=4 --master-port=29500 train.py --meet $other\n"
    text = FIRST.format(nodes=1, tasks=1, more="").replace("--exclusive", "--mem=0 --cpus-per-task=8") + start
    assert "port-fixed" not in mend(text).mended
    assert "port-fixed" in mend(text.replace("other=29500", "other=29501")).mended


@pytest.mark.parametrize(("start", "line"), [("mpirun -n 4 ", "; kill -USR1"), ("horovodrun -np 4 ", "")])
def test_ranks_of_other_nodes_get_the_signal_from_their_launcher_or_no_recipe(start: str, line: str) -> None:
    after = mend(FIRST.format(nodes=2, tasks=2, more="") + start + "python train.py\n").after.decode()
    assert line in after
    assert ("trap" in after) == bool(line)


def test_blanks_behind_an_equals_sign_go() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --mem= 150G") + "python train.py\n"
    assert "#SBATCH --mem=150G\n" in mend(text, unsafe=False).after.decode()


def test_ray_is_awaited_within_a_limit() -> None:
    start = "srun --ntasks=1 ray start --head --block &\nsleep 20\nsrun --overlap --ntasks=1 python train.py\n"
    one = mend(FIRST.format(nodes=2, tasks=1, more="") + start)
    assert "ray-sleep-ready" in one.mended
    assert "\nfor _ in {1..300}; do if ray status" in one.after.decode()


def test_a_launcher_that_hands_its_ranks_an_argument_is_kept() -> None:
    start = "python -m torch.distributed.launch --nproc_per_node=4 train.py"
    assert start in mend(FIRST.format(nodes=1, tasks=1, more="") + start + "\n").after.decode()


def test_a_hostfile_that_a_program_may_change_keeps_its_name() -> None:
    written = "srun hostname > hosts\n{}deepspeed --hostfile hosts train.py\n"
    first = FIRST.format(nodes=2, tasks=1, more="")
    assert "> hosts\n" in mend(first + written.format("python edit_hosts.py\n")).after.decode()
    assert "> hosts.$SLURM_JOB_ID\n" in mend(first + written.format("")).after.decode()


def test_set_e_stands_below_what_sets_the_environment_up() -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:1\nsource ~/.bashrc\nmodule load cuda\ncd /data\npython train.py\npython eval.py\n"
    lines = mend(text).after.decode().splitlines()
    assert lines.index("module load cuda") + 1 == lines.index("set -eo pipefail")


def test_a_training_in_a_function_goes_into_the_background_for_the_files_own_trap() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --signal=USR1@60 --requeue --open-mode=append")
    text += "trap 'scontrol requeue $SLURM_JOB_ID; exit' USR1\nrun() {\n  python train.py \"$1\"\n}\nrun 1\nrun 2\n"
    one = mend(text)
    assert "signal-never-arrives" in one.mended
    assert '  python train.py "$1" &\ntraining=$!\n' in one.after.decode()


@pytest.mark.parametrize(
    "start", ["deepspeed train.py", "deepspeed --num_nodes 2 --num_gpus 4 train.py", "horovodrun -np 8 python train.py"]
)
def test_what_starts_on_nodes_by_itself_gets_their_names(start: str) -> None:
    text = mend(FIRST.format(nodes=2, tasks=1, more="") + start + "\n").after.decode()
    assert "scontrol show hostnames" in text
    assert "no-srun" not in errors(text.encode())


@pytest.mark.parametrize(
    ("options", "is_mended"), [("-c 4 --nodes=2", True), ("--nodelist=a,b", False), ("\\\n ", False)]
)
def test_deepspeed_that_each_node_would_start_alone_starts_on_them_by_itself(options: str, is_mended: bool) -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + f"srun {options} deepspeed train.py\n"
    assert "nnodes-missing" in errors(text.encode())
    after = mend(text).after.decode()
    assert ("\ndeepspeed --hostfile=hostfile.$SLURM_JOB_ID train.py\n" in after) == is_mended


def test_steps_of_ray_get_the_cpus_of_the_job() -> None:
    start = "srun --overlap -N1 -n1 ray start --head --block &\npython train.py\n"
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --cpus-per-task=8") + start
    assert 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --overlap' in mend(text, unsafe=False).after.decode()


@pytest.mark.parametrize("asks", ["STATE=$(ps --pid 1 -o state | head -n 1)", "grep old log.txt", "rm -r old"])
def test_set_e_is_not_set_where_a_question_may_be_answered_with_no(asks: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n{asks}\necho done\n"
    after = mend(text).after.decode()
    assert "set -e" not in after
    assert after.endswith('exit "${code:-0}"\n')


def test_a_sweep_goes_on_after_a_failure_and_ends_with_its_code() -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:1\nfor lr in 1 2; do\n  python train.py \\\n    --lr=$lr;\ndone\n"
    after = mend(text).after.decode()
    assert "    --lr=$lr || failed=$?;\n" in after
    assert "set -e" not in after


def test_an_accelerate_that_counts_its_nodes_is_started_on_each_of_them() -> None:
    start = "accelerate launch --num_machines 2 --num_processes 8 --machine_rank $SLURM_PROCID --main_process_ip $A train.py\n"
    text = FIRST.format(nodes=2, tasks=4, more="") + "A=$(scontrol show hostnames | head -n1)\n" + start
    after = mend(text).after.decode()
    assert "srun --nodes=$SLURM_NNODES --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c" in after
    assert "--machine_rank \\$SLURM_PROCID" in after


@pytest.mark.parametrize(("start", "is_alone"), [("python lm.py", True), ("python lm.py --strategy ddp", False)])
def test_a_program_whose_ranks_do_not_meet_gets_one_node_and_no_copies(start: str, is_alone: bool) -> None:
    after = mend(FIRST.format(nodes=2, tasks=1, more="") + start + "\n").after.decode()
    assert ("--nodes=1" in after, "srun" in after) == (is_alone, not is_alone)


@pytest.mark.parametrize(
    "launch",
    [
        "torchrun --nproc-per-node=4 train.py",
        "apptainer exec --nv x.sif torchrun --nproc-per-node=4 train.py",
        "bash -c 'python train.py'",
    ],
)
def test_what_would_die_of_the_signal_that_its_training_handles_passes_it_on(launch: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + f"srun --kill-on-bad-exit=1 {launch}\n"
    after = mend(text).after.decode()
    assert f"""srun --kill-on-bad-exit=1 sh -c "$pass_on_usr1" - {launch} &\n""" in after


def test_a_training_that_may_look_who_handles_the_signal_is_started_as_it_was() -> None:
    after = mend(FIRST.format(nodes=1, tasks=4, more="") + "srun --kill-on-bad-exit=1 python train.py\n").after.decode()
    assert "srun --kill-on-bad-exit=1 python train.py &" in after


def test_one_of_several_ranks_gets_neither_srun_nor_the_recipe() -> None:
    body = "python train.py --rank=1 --master_addr=$HOSTNAME &\npython train.py --rank=0 --master_addr=$HOSTNAME\n"
    after = mend(FIRST.format(nodes=2, tasks=1, more="") + body).after.decode()
    assert body in after.replace("set -eo pipefail\n", "")


@each(
    ("wrong", "right"),
    [
        ("#SBATCH --mem-per-cpu=1000\npython train.py\n", None),
        ("#SBATCH --mem=64\npython train.py\n", "#SBATCH --mem=64G\n"),
        ("export CUDA_VISIBLE_DEVICES=0,1\npython train.py\n", None),
        ("#SBATCH -w gpu7\npython train.py\n", "#SBATCH --nodes=1\n"),
        ("#SBATCH -w gpu[7-9]\npython train.py\n", None),
        (
            "#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=0,1 # mine\npython train.py\n",
            "# export CUDA_VISIBLE_DEVICES=0,1 # mine\n",
        ),
        (
            '#SBATCH -N 2\n#SBATCH --gres=gpu:4\nsrun torchrun --nnodes 2 --rdzv_endpoint "$HOSTNAME:29500" train.py\n',
            '"$HOSTNAME:$((20000 + SLURM_JOB_ID % 20000))" train.py',
        ),
        (
            "#SBATCH --gres=gpu:4\nray start --head --port=6390 &\npython train.py --address=$HOSTNAME:6390\n",
            "--port=$((20000 + SLURM_JOB_ID % 20000)) &\npython train.py --address=$HOSTNAME:$((20000 + SLURM_JOB_ID % 20000))\n",
        ),
        ("#SBATCH --output=a.log\n#SBATCH --error=b.log\npython train.py\n", "a-%j.log\n#SBATCH --error=b-%j.log\n"),
        (
            "#SBATCH --cpus-per-task=9\nsrun apptainer exec --nv x.sif sh bare.sh\n",
            'srun --cpus-per-task="$SLURM_CPUS_PER_TASK" apptainer',
        ),
        ("python $(dirname $(realpath $0))/train.py\n", "python $(dirname \"$(scontrol show job"),
    ],
)  # fmt: skip
def test_an_edit_does_what_was_meant_or_nothing(wrong: str, right: str | None) -> None:
    text = "#!/bin/bash\n#SBATCH --time=1:00:00\n" + wrong
    codes = (
        *("mem-in-megabytes", "sets-visible-devices", "nodelist-pinned", "port-fixed", "output-overwritten"),
        *("srun-loses-cpus", "script-dir-is-spool"),
    )
    after = mended(
        FILE, text.encode(), SiteFacts(), unsafe=True, select=codes, grammar=lambda _raw: None
    ).after.decode()
    assert (after == text) if right is None else (right in after), after


@pytest.mark.parametrize(
    ("asked", "threads"),
    [
        ("", "$(((SLURM_CPUS_ON_NODE + 7) / 8))"),
        ("#SBATCH --cpus-per-task=9\n", "$(((SLURM_CPUS_PER_TASK + 7) / 8))"),
        ("#SBATCH --ntasks-per-node=8\n", ""),
    ],
)
def test_threads_are_never_none_and_never_fewer_than_a_task_has(asked: str, threads: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --gres=gpu:8\n{asked}torchrun --nproc-per-node=8 train.py\n"
    after = mended(
        FILE, text.encode(), SiteFacts(), unsafe=True, select=("threads-unset",), grammar=lambda _raw: None
    ).after.decode()
    assert f"OMP_NUM_THREADS={threads}\n" in after if threads else "OMP" not in after


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("if [ -f a ]; then export CUDA_VISIBLE_DEVICES=6; fi\nsrun python train.py\n", "if [ -f a ]; then : ; fi\n"),
        ("cd x && export NCCL_DEBUG=INFO && srun python train.py\n", "cd x && : && srun python train.py\n"),
        ("export NCCL_DEBUG=INFO A=1\nsrun python train.py\n", "export A=1\nsrun python train.py\n"),
        # Whoever reads the words of $RUN is no shell: it would get "$SLURM_CPUS_PER_TASK" as it is written.
        ("RUN='srun python train.py'\n$RUN\n", None),
        # One line of a function starts a preparation and the training.
        ("run() {\n  srun python $1\n}\nrun prepare.py\nrun train.py\n", None),
    ],
)  # fmt: skip
def test_an_edit_leaves_no_half_a_command(wrong: str, right: str | None) -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n#SBATCH --cpus-per-task=8\n" + wrong
    codes = ["sets-visible-devices", "device-beyond-gpus", "debug-left-on", "srun-may-fan-out"]
    codes += ["srun-loses-cpus"] if "RUN" in wrong else []
    after = mended(
        FILE, text.encode(), SiteFacts(), unsafe=True, select=codes, grammar=lambda _raw: None
    ).after.decode()
    assert (after == text) if right is None else (right in after), after


def test_launchers_of_several_nodes_are_told_where_they_meet() -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + "srun --kill-on-bad-exit=1 torchrun --nproc-per-node=4 train.py\n"
    after = mend(text, unsafe=False)
    assert (after.mended[0], errors(after.after)) == ("nnodes-missing", set())
    assert b"torchrun --nnodes=$SLURM_NNODES --rdzv-backend=c10d --rdzv-endpoint=" in after.after


@pytest.mark.parametrize(
    "body",
    [
        'OPTS="--nnodes=4 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$HOST:$PORT"\nsrun torchrun $OPTS train.py\n',
        "opts=(\n  --nnodes=4\n  --nproc-per-node=4\n  --rdzv-endpoint=$HOST:$PORT\n)\n"
        'srun torchrun --rdzv-backend=c10d "${opts[@]}" train.py\n',
        "RUN='srun torchrun --nnodes=4 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$HOST:$PORT'\n"
        'CMD="$RUN train.py"\neval "$CMD"\n',
        "if [ -f a ]; then\n  srun torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=$HOST:$PORT --nproc-per-node=4 a.py\nelse\n"
        "  srun torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=$HOST:$PORT --nproc-per-node=4 b.py\nfi\n",
    ],
)
def test_options_are_mended_where_they_are_written(body: str) -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + f"HOST=$(cat host)\nPORT=$SLURM_JOB_ID\n{body}"
    after = mend(text).after
    assert "nodes-disagree" in codes(text.encode())
    assert (b"--nnodes=4" in after, errors(after)) == (False, set())


@pytest.mark.parametrize("before", ["CUDA_DEVICE_MAX_CONNECTIONS=1 ", "cd src && time -p A='1 2' ", "! ( exec "])
def test_srun_stands_directly_before_the_program(before: str) -> None:
    behind = " )" if "(" in before else ""
    for nodes, tasks, program in (
        (1, 4, "python train.py --trainer.devices 4 --trainer.num_nodes 1"),
        (2, 1, "torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$HOST:$PORT train.py"),
    ):
        text = FIRST.format(nodes=nodes, tasks=tasks, more="") + f"HOST=$(cat host)\nPORT=$SLURM_JOB_ID\n{before}"
        assert f"{before}srun --kill-on-bad-exit=1 " in mend(f"{text}{program}{behind}\n").after.decode()
        assert "srun" not in mend(f"{text}eval {program}{behind}\n").after.decode()


def test_arguments_that_a_ranks_shell_gets_stay_several_words() -> None:
    start = 'srun accelerate launch --num_processes 8 --num_machines 2 --machine_rank $SLURM_NODEID --main_process_ip $HOST train.py "$@"'
    after = mend(FIRST.format(nodes=2, tasks=1, more="") + f"HOST=$(cat host)\n{start}\n", unsafe=False).after.decode()
    assert 'bash -c "exec accelerate launch' in after
    assert 'train.py \\"\\$@\\"" - "$@"\n' in after


@pytest.mark.parametrize(
    ("more", "start", "becomes"),
    [
        ("", "srun -N 2 -n 8 torchrun", " --ntasks-per-node=1 -N 2 torchrun"),
        ("#SBATCH --gpus-per-task=1", "srun torchrun", "#SBATCH --gpus-per-node=4\n"),
    ],
)
def test_one_launcher_a_node_has_all_of_its_gpus(more: str, start: str, becomes: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n{more or '#SBATCH --gpus-per-node=4'}\nHOST=$(cat host)\n{start}"
    text += " --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$HOST:$SLURM_JOB_ID train.py\n"
    after = mended(FILE, text.encode(), SiteFacts(), unsafe=False, grammar=lambda _raw: None).after
    assert becomes in after.decode()
    assert "tasks-times-torchrun" not in codes(after)


def test_a_second_training_still_gives_the_job_its_code() -> None:
    body = "echo one\nsrun --kill-on-bad-exit=1 python a.py\nif [ $? -eq 0 ]; then echo done; fi\nsrun --kill-on-bad-exit=1 python b.py\n"
    after = mend(FIRST.format(nodes=1, tasks=4, more="").replace("set -eo pipefail\n", "") + body).after.decode()
    assert "failed:-0" not in after


def test_a_script_that_is_not_seen_gets_no_threads() -> None:
    after = mend("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nsrun ./node_train.sh\n").after
    assert (b"trap" in after, b"OMP_NUM" in after) == (True, False)


@pytest.mark.parametrize(
    ("options", "restarts"),
    [
        ("--resume auto", 20),
        ("--resume_from False", 1),
        ("--ckpt_dir out", 1),
        ("--checkpoint-activations", 1),
        ("", 1),
    ],
)
def test_a_program_that_is_not_seen_to_resume_begins_anew_once(options: str, restarts: int) -> None:
    after = mend(
        f"{FIRST.format(nodes=1, tasks=1, more='')}# its checkpoint\npython train.py {options}\n"
    ).after.decode()
    assert f'"${{SLURM_RESTART_COUNT:-0}}" -ge {restarts} ]' in after


def test_a_handler_that_exits_is_not_made_to_run() -> None:
    handler = "save() {\n  echo saving\n  exit 99\n}\ntrap save USR1\npython train.py &\nwait $!\n"
    after = mend(FIRST.format(nodes=1, tasks=1, more="#SBATCH --signal=USR1@90") + handler).after.decode()
    assert "B:" not in after


def test_the_old_launcher_uses_all_gpus() -> None:
    after = mend(FIRST.format(nodes=1, tasks=1, more="") + "python -m torch.distributed.launch train.py\n").after
    assert b"torch.distributed.launch --nproc_per_node=$SLURM_GPUS_ON_NODE train.py" in after


def test_a_merge_conflict_hides_what_is_below_it_and_is_left_to_its_author() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=1\n<<<<<<< HEAD\n#SBATCH --mem=4G\n=======\n#SBATCH --mem=5G\n>>>>>>> x\npython a.py\n"
    assert codes(text.encode())["directive-ignored"] == 2
    assert not mend(text).mended


def test_a_loop_around_wait_keeps_the_code_of_the_training() -> None:
    body = "trap 'kill -USR1 \"$p\"' USR1\npython train.py &\np=$!\nwhile kill -0 $p; do wait $p; done\n"
    after = mend(FIRST.format(nodes=1, tasks=1, more="#SBATCH --signal=B:USR1@90") + body, unsafe=False).after.decode()
    assert after.endswith('while kill -0 $p; do wait $p && code=0 || code=$?; done\n(exit "${code:-0}")\n')


@pytest.mark.parametrize(
    ("comment", "stays"),
    [("# gpu07 has a driver of its own", True), ("#SBATCH_OLD none", False), ("##SBATCH --nodelist=gpu07", False)],
)
def test_nodes_stay_named_where_a_comment_speaks_of_them(comment: str, stays: bool) -> None:
    text = f"#!/bin/bash\n{comment}\n#SBATCH --nodelist=gpu03\n#SBATCH --gpus=1\npython train.py\n"
    assert (b"\n#SBATCH --nodelist=gpu03\n" in mend(text).after) is stays


@pytest.mark.parametrize(
    ("start", "asks"),
    [
        ("ray start --head", True),
        ("srun -N1 -n1 bash -c 'ray start --head --block' &", True),
        ("srun -N1 -n1 bash -c 'source ~/env/bin/activate && ray start --head --block' &", False),
    ],
)
def test_a_shell_without_ray_does_not_ask_it(start: str, asks: bool) -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + f"{start}\nsleep 10\npython train.py\n"
    assert "ray-sleep-ready" in codes(text.encode())
    assert (b"ray status" in mend(text).after) is asks


def test_a_process_for_each_task_is_not_counted_where_a_task_starts_several() -> None:
    text = FIRST.format(nodes=1, tasks=2, more="") + "srun -K1 horovodrun -np 4 python train.py\n"
    after = mend(text.replace("export OMP_NUM_THREADS=2\n", "")).after
    assert b"--ntasks-per-node=2\n" in after
    assert b"OMP_NUM_THREADS" not in after


def test_a_line_for_each_node_is_not_made_a_training_of_its_own() -> None:
    line = "srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank={} train.py\n"
    after = mend(FIRST.format(nodes=2, tasks=1, more="") + line.format(0) + line.format(1)).after
    assert b"c10d" not in after
    assert b"SLURM_NODEID" not in after


def test_steps_of_a_loop_over_hosts_start_on_their_host() -> None:
    loop = """for host in $(scontrol show hostnames); do
  srun -N 1 -n 1 python -m torch.distributed.run --nnodes=2 --nproc_per_node=4 --node_rank=$((R++)) --master_addr=$A t.py &
done
wait
"""
    text = FIRST.format(nodes=2, tasks=1, more="").replace("--ntasks-per-node", "--ntasks") + "A=$(cat a)\n" + loop
    after = mend(text).after.decode()
    assert "#SBATCH --ntasks-per-node=1" in after
    assert '--nodelist="$host" -N 1 -n 1 python' in after
    assert "\nwait\n" in after  # and not only for the last one
    assert mend(text.replace("host in", "part in").replace("R++", "part")).after.decode().count("--ntasks=1\n") == 1


def test_who_counts_on_a_number_of_nodes_counts_those_of_the_job() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=$N\n#SBATCH --gres=gpu:4\n# $N nodes\nsrun torchrun --nnodes=${N} --rdzv_id=$NAME train.py\n"
    after = mend(text).after.decode()
    assert "\n##SBATCH --nodes=$N\n" in after
    assert "# $N nodes\n" in after
    assert "--nnodes=$SLURM_NNODES " in after
    assert "--rdzv_id=$NAME" in after


def test_the_lesser_of_two_numbers_of_tasks_goes() -> None:
    text = FIRST.format(nodes=1, tasks=4, more="#SBATCH --ntasks=1") + "srun -K1 python train.py\n"
    assert b"--ntasks=1\n" not in mend(text).after


def test_python_leaves_the_variable_that_a_launcher_starts() -> None:
    body = 'RUN="python train.py --a 1"\ntorchrun --standalone --nproc-per-node=4 $RUN\n'
    assert b'RUN="train.py --a 1"' in mend(FIRST.format(nodes=1, tasks=1, more="") + body, unsafe=False).after


def test_gpus_of_a_task_that_were_not_asked_for_are_those_of_the_node() -> None:
    body = "torchrun --standalone --nproc-per-node=$SLURM_GPUS_PER_TASK train.py\n"
    assert b"=$SLURM_GPUS_ON_NODE train" in mend(FIRST.format(nodes=1, tasks=1, more="") + body, unsafe=False).after


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        # What is read below keeps its value.
        ("export NCCL_P2P_DISABLE=1\nexport INNER_NCCL_P2P_DISABLE=$NCCL_P2P_DISABLE\n", "\nexport NCCL_P2P_DISABLE=1\n"),
        ("# this rack has no NVLink\nexport NCCL_P2P_DISABLE=1\n", "\nexport NCCL_P2P_DISABLE=1\n"),
        ("export NCCL_P2P_DISABLE=1  # no NVLink\n", "export NCCL_P2P_DISABLE=1  # no NVLink\n"),
        ("cd /data\nexport NCCL_DEBUG=INFO\n# once more, to debug rank 3\n", "\nexport NCCL_DEBUG=INFO\n"),
        ("export NCCL_BLOCKING_WAIT=1\nexport INNER=$NCCL_BLOCKING_WAIT\n", "export INNER=$TORCH_NCCL_BLOCKING_WAIT\n"),
    ],
)  # fmt: skip
def test_an_edit_heeds_what_else_speaks_of_its_line(body: str, stays: str) -> None:
    text = FIRST.format(nodes=2, tasks=4, more="") + f"{body}srun --kill-on-bad-exit=1 python train.py\n"
    after = mend(text).after.decode()
    assert stays in after


@pytest.mark.parametrize(
    ("given", "stays"),
    [
        (
            "ip=$(srun -N1 -n1 hostname --ip-address)  # of the head\nport=$(cat port)\nhead=$ip:$port\n",
            "\nhead=$ip:$port\n",
        ),
        ('head="$(hostname -i):$SLURM_JOB_ID"\n', ':$SLURM_JOB_ID"\n'),
        ("head=`hostname -i`:$SLURM_JOB_ID\n", ":$SLURM_JOB_ID\n"),
    ],
)
def test_an_address_is_replaced_where_it_is_asked_for_and_its_port_stays(given: str, stays: str) -> None:
    start = "srun -K1 torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$head train.py\n"
    text = FIRST.format(nodes=2, tasks=1, more="") + given + start
    assert "addr-hostname-ip" in codes(text.encode())
    after = mend(text, unsafe=False).after.decode()
    assert stays in after
    assert "hostname -" not in after


@pytest.mark.parametrize(
    ("output", "becomes"), [("all.log", "all-%j.log"), ("None", "None"), ("logs/all.log", "logs/all-%j.log")]
)
def test_a_log_gets_a_name_of_its_own_and_keeps_its_folder(output: str, becomes: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more=f"#SBATCH --output={output}") + "python train.py\n"
    after = mend(text).after.decode()
    assert f"--output={becomes}\n" in after
    assert "--open-mode=append" in after


def test_a_shebang_keeps_its_options_and_has_one_line() -> None:
    body = "#SBATCH --gres=gpu:1\n[[ -d a ]] && cd a\npython train.py\n"
    assert mend(f"!/bin/bash\n{body}").after.startswith(b"#!/bin/bash\n#SBATCH")
    assert mend(f"#!/bin/sh -l\n{body}").after.startswith(b"#!/bin/bash -l\n")


@pytest.mark.parametrize(
    ("start", "line"),
    [
        ("python train.py;", "python train.py &"),
        ("wandb agent --count 1 a/b/c", 'pkill -USR1 -P "$training"'),
        ('RUN="mpirun -n 4 python train.py"\neval "$RUN"', ""),
    ],
)
def test_the_signal_goes_to_what_trains(start: str, line: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --signal=USR1@90  # in time") + start + "\n"
    after = mend(text).after.decode()
    assert (line in after, "trap" in after) == (True, bool(line))
    assert "USR1@90  # in time\n" in after


def test_ray_is_asked_behind_its_head_alone_and_without_a_password() -> None:
    head, sleep = "srun -N1 -n1 ray start --head{} --block &\n", "sleep 10\n"
    last = "python train.py\n"
    for body in (
        head.format("") + "srun -N1 -n1 ray start --address=$A --block &\n",
        head.format(" --redis-password=$P"),
    ):
        after = mend(FIRST.format(nodes=2, tasks=1, more="") + "A=$(cat a)\nP=$(cat p)\n" + body + sleep + last).after
        assert b"\nsleep 10\n" in after


def test_a_program_that_is_told_of_the_nodes_is_left_to_its_author() -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + "nodes=$(scontrol show hostnames)\npython sweep.py $nodes\n"
    after = mend(text).after
    assert b"--nodes=2" in after
    assert b"srun" not in after


def test_set_e_stands_above_what_is_told_of_the_line_below() -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:1\n# twice\nA=2\npython train.py $A\npython train.py $A\n"
    assert b"set -eo pipefail\n# twice\nA=2\n" in mend(text).after


def test_an_mpirun_in_each_task_is_started_once() -> None:
    text = FIRST.format(nodes=1, tasks=2, more="") + "srun --kill-on-bad-exit=1 horovodrun -np 4 python train.py\n"
    after = mend(text, unsafe=False).after
    assert "tasks-times-torchrun" in codes(text.encode())
    assert (b"srun --nodes=$SLURM_NNODES --ntasks-per-node=1 " in after, errors(after)) == (True, set())


def test_a_ranks_number_that_several_steps_read_is_not_moved_into_one() -> None:
    text = FIRST.format(nodes=2, tasks=4, more="") + "export RANK=$SLURM_PROCID\n"
    assert mend(f"{text}srun -K1 python train.py\n", unsafe=False).mended == ("rank-expanded-early",)
    several = f"{text}srun -K1 python first.py --epochs 1\nsrun -K1 python train.py\n"
    assert "rank-expanded-early" not in mend(several, unsafe=False).mended


@pytest.mark.parametrize(("sent", "is_told"), [("", True), ("export -f report", False), ("declare -fx report", False)])
def test_functions_that_a_step_gets_by_the_environment_keep_the_recipe_away(sent: str, is_told: bool) -> None:
    """An sh that is dash passes none on."""
    text = FIRST.format(nodes=2, tasks=1, more="") + f"report() {{ date; }}\n{sent}\n"
    after = mend(f"{text}srun -K1 torchrun --nproc-per-node=4 train.py\n").after
    assert (b"pass_on_usr1" in after) == is_told


def test_several_lists_of_arguments_stay_lists() -> None:
    lists = "a=(--x 1)\nb=(--y 2)\n"
    start = 'srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=4 --node_rank $SLURM_PROCID {} train.py "${{a[@]}}" \\\n  "${{b[@]}}"\n'
    start = start.format("--master_addr=$A --master_port=$SLURM_JOB_ID")
    text = FIRST.format(nodes=2, tasks=1, more="") + "A=$(cat a)\n" + lists + start
    assert "rank-expanded-early" in codes(text.encode())
    after = mend(text, unsafe=False).after.decode()
    assert after.endswith('train.py \\"\\$@\\"" - "${a[@]}" \\\n  "${b[@]}"\n')


@pytest.mark.parametrize(
    ("name", "array", "becomes"),
    [
        ("SLURM_TASK_ID", "#SBATCH --array=0-7", "SLURM_ARRAY_TASK_ID"),
        ("SLURM_TASK_ID", "", "SLURM_TASK_ID"),  # the number of a process, or of an element?
        ("SLURM_TASK_PDI", "", "SLURM_TASK_PID"),
    ],
)
def test_a_name_of_slurms_that_is_near_several_is_not_guessed(name: str, array: str, becomes: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more=array) + f"python train.py --seed=${name}\n"
    assert "unset-variable" in codes(text.encode())
    assert f"--seed=${becomes}\n" in mend(text, unsafe=False).after.decode()


@pytest.mark.parametrize("more", ["#SBATCH --array=0-7", "# sbatch --array=0-7: $SLURM_ARRAY_TASK_ID"])
@pytest.mark.parametrize("start", ["python train.py", "srun --kill-on-bad-exit=1 python train.py"])
def test_an_element_of_an_array_asks_for_itself_alone(more: str, start: str) -> None:
    after = mend(FIRST.format(nodes=2, tasks=4, more=more) + start + "\n").after.decode()
    own = '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"'
    assert f"scontrol requeue {own}\n" in after
    assert '"$SLURM_JOB_ID"' not in after
    assert (f"scancel --signal=USR1 {own}" in after) == start.startswith("srun")


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("mkdir out-$SLURM_JOB_ID", True),
        ("ln -s /data data", True),
        ("mkdir --parents out", False),
        ("ln -sfn /data data", False),
        ("mkdir out || true", False),
    ],
)
def test_set_e_is_no_cure_above_what_works_once(line: str, stays: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{line}\npython train.py\ndate\n"
    after = mend(text).after.decode()
    assert ("set -eo pipefail" not in after) == stays
    assert "exit-code-lost" in codes(text.encode()) - codes(after.encode())


def test_one_launcher_a_node_has_the_cpus_of_all_tasks() -> None:
    for own in ("", "--cpus-per-task=$SLURM_CPUS_PER_TASK "):
        body = f"srun -K1 {own}torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$A:$B t.py\n"
        text = FIRST.format(nodes=2, tasks=4, more="#SBATCH --cpus-per-task=6") + "A=$(cat a)\nB=$(cat b)\n" + body
        after = mend(text, unsafe=False).after.decode()
        assert "--ntasks-per-node=1 --cpus-per-task=$((4*SLURM_CPUS_PER_TASK)) -K1 torchrun " in after


def test_a_port_that_the_environment_may_give_stays_one() -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + 'export MASTER_PORT="${MASTER_PORT:-29500}"\n'
    text += "srun -K1 torchrun --nnodes=2 --nproc-per-node=4 --master-port=$MASTER_PORT t.py\n"
    assert 'MASTER_PORT="${MASTER_PORT:-$((40000' in mend(text, unsafe=False).after.decode()


def test_every_training_of_several_gives_the_job_its_code() -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:1\nls\npython train.py 1\npython train.py \\\n  2\npython train.py 3\n"
    after = mend(text).after.decode()
    assert after.count("|| failed=$?\n") == 3
    assert after.endswith('exit "${failed:-$?}"\n')


@pytest.mark.parametrize("own", ["code=data.zip\nunzip $code", "echo ${asked:-no}", "export training=1"])
def test_a_file_with_a_variable_of_the_recipes_names_gets_no_recipe(own: str) -> None:
    after = mend(f"{FIRST.format(nodes=1, tasks=1, more='')}{own}\npython train.py\n").after
    assert b"training=$!" not in after


def test_a_part_of_a_word_does_not_speak_of_resuming() -> None:
    after = mend(f"{FIRST.format(nodes=1, tasks=1, more='')}python /purestorage/train.py --presumed\n").after
    assert b"-ge 1 ]" in after


@pytest.mark.parametrize("between", ["", "\n# only then\n"])
def test_a_code_that_the_next_command_reads_is_left_to_it(between: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="").replace("set -eo pipefail\n", "")
    after = mend(text + f'time srun python train.py\n{between}echo "finished: $?"\n').after
    assert b"failed=$?" not in after


def test_the_place_to_meet_is_written_behind_the_commands_own_variables() -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + "FOO=1 srun torchrun --nnodes=2 --nproc-per-node=4 train.py\n"
    after = mend(text)
    assert b"torchrun --rdzv-backend=c10d --rdzv-endpoint=" in after.after
    assert "addr-localhost" not in codes(after.after)


def test_of_two_variables_in_a_line_only_the_faults_gets_another_value() -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + "export MASTER_ADDR=localhost MASTER_PORT=29500  # both\n"
    after = mend(text + "srun -K1 python train.py --ddp\n", unsafe=False).after.decode()
    host = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
    assert f"export MASTER_ADDR={host} MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))  # both\n" in after


def test_two_ports_of_a_file_stay_two() -> None:
    text = FIRST.format(nodes=2, tasks=1, more="") + "export URI=http://$(hostname):5000 MASTER_PORT=29500\n"
    text += "mlflow server --port 5000 &\nsrun -K1 python train.py --ddp\n"
    after = mend(text, unsafe=False).after.decode()
    assert "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))" in after
    assert after.count("$((40000 + SLURM_JOB_ID % 20000))") == 2


@pytest.mark.parametrize(
    ("start", "stays"),
    [
        ("vllm serve m --port 8000 &", True),
        ("P=8000\nvllm serve m --port $P &", True),
        ("P=8000\nvllm serve m --port $P &\ncurl localhost:$P", False),
        ("export P=8000\nvllm serve m --port $P &", False),
    ],
)
def test_a_servers_port_that_the_file_tells_nobody_is_left(start: str, stays: bool) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="").replace(" --exclusive", "") + f"{start}\npython train.py\n"
    assert (b"8000" in mend(text).after) == stays
    assert "port-fixed" in codes(text.encode())


@pytest.mark.parametrize(("own", "process"), [("code=7\n", "$pid"), ("echo $code\n", "$!"), ("training=1\n", "$!")])
def test_a_repeated_wait_stays_off_the_files_own_variables(own: str, process: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --signal=B:USR1@60").replace("set -eo", "set -o")
    text += f"{own}trap 'touch save' USR1\npython train.py &\npid=$!\nwait {process}\n"
    after = mend(text, unsafe=False).after.decode()
    assert after.count("code") == text.count("code") or "training=1" in own
    assert after.count("training=") == text.count("training=") + (process == "$!" and "code" in own)
    assert "kill -0" in after


@pytest.mark.parametrize("more", ["#SBATCh -w gpu01", "#SBATCH --gpus-per-task=1", "#SBATCH --output=a"])
def test_unsafe_fixes_add_to_the_safe_ones(more: str) -> None:
    text = FIRST.format(nodes=2, tasks=4, more=more) + "srun python prepare.py\nsrun python train.py\n"
    assert mend(mend(text, unsafe=False).after).after == mend(text).after


def test_an_option_inside_of_quotes_brings_none() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --cpus-per-task=8") + 'RUN="srun nice"\n$RUN python train.py\n'
    assert 'RUN="srun --cpus-per-task=$SLURM_CPUS_PER_TASK nice"\n' in mend(text, unsafe=False).after.decode()


def test_a_choice_of_gpus_beside_a_server_is_left() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + "vllm serve m &\nCUDA_VISIBLE_DEVICES=1,2,3 python train.py\n"
    assert b"CUDA_VISIBLE_DEVICES" in mend(text).after


def test_a_log_keeps_the_number_that_its_folder_had() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="#SBATCH --output=~/logs/%j/out") + "python train.py\n"
    assert "#SBATCH --output=%j-out\n" in mend(text).after.decode()


def test_directives_that_are_misspelt_alike_are_mended_together() -> None:
    text = "#!/bin/bash\n# SBATCH --time=1:00:00\n# SBATCH --gres=gpu:[0-7]\n#  SBATCH is read by sbatch\npython train.py\n"
    head = "#!/bin/bash\n#SBATCH --time=1:00:00\n#SBATCH --gres=gpu:8\n#  SBATCH is read"
    assert mend(text, unsafe=False).after.decode().startswith(head)


def test_blanks_are_put_on_both_sides_of_a_test() -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + 'x=1\nif [[$x == *" "*]]; then echo; fi\npython train.py\n'
    assert b'if [[ $x == *" "* ]]; then' in mend(text, unsafe=False).after


@each(
    ("more", "start"),
    [
        ("#SBATCH --signal=B:SIGTERM@120", "python train.py"),
        ("#SBATCH --no-requeue", "python train.py"),
        ("", "wandb agent --count 3 me/project/abc"),
        ("# train.py saves at SIGTERM", "python train.py"),
        ("#SBATCH --time=9:00", "python train.py"),
        ("#SBATCH --time=4:00 --signal=B:USR1@60", "python train.py"),
        ("", "python train.py --resume --overwrite_output_dir"),
        ("args='model.overwrite=true'", "python train.py $args"),
        ('rm -rf "$OUT"', "python train.py --out $OUT/run"),
        ("srun -N1 -n1 --overlap bash monitor.sh &", "srun --kill-on-bad-exit=1 --overlap python train.py"),
        ("", "python train.py --no-resume"),
    ],
)
def test_what_is_left_to_the_author_gets_no_recipe(more: str, start: str) -> None:
    assert b"trap" not in mend(FIRST.format(nodes=1, tasks=1, more=more) + start + "\n").after


@pytest.mark.parametrize(
    ("more", "start"),
    [
        ("# SIGUSR1, and not SIGTERM", "python train.py"),
        ("#SBATCH --time=9:00 --signal=B:USR1@60", "python train.py"),
        ("", "python train.py --overwrite_output_dir=false --overwrite_cache --no-overwrite"),
    ],
)
def test_what_speaks_of_nothing_else_gets_the_recipe(more: str, start: str) -> None:
    assert b"trap" in mend(FIRST.format(nodes=1, tasks=1, more=more) + start + "\n").after


@pytest.mark.parametrize(("name", "is_told"), [("SIGUSR1", True), ("SIGTERM", False)])
def test_a_script_that_handles_another_signal_gets_no_recipe(name: str, is_told: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"signal.signal(signal.{name}, save)\n")
    raw = (FIRST.format(nodes=1, tasks=1, more="") + "python train.py\n").encode()
    after = mended(tmp_path / "a.sbatch", raw, SiteFacts(), unsafe=True, grammar=lambda _raw: None).after
    assert (b"trap" in after) == is_told


@pytest.mark.parametrize(
    ("logs", "becomes"), [("&> a.log", "&>> a.log"), ("> a.log 2>&1", ">> a.log 2>&1"), ("> /dev/null", "> /dev/null")]
)
def test_a_training_that_starts_again_keeps_its_own_logs(logs: str, becomes: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + f"date > a.txt\nuv run python train.py {logs}\n"
    after = mend(text).after.decode()
    assert f"uv run python train.py {becomes} &\n" in after
    assert "date > a.txt\n" in after


@pytest.mark.parametrize(("more", "times"), [("--max-restarts=3", 1), ("--resume", 20)])
def test_a_launchers_restarts_are_no_resuming(more: str, times: int) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + f"torchrun --nproc-per-node=4 {more} train.py\n"
    assert f"-ge {times} ]".encode() in mend(text).after


@pytest.mark.parametrize("start", ["uv run python train.py", "$(realpath run.sh)", "singularity exec --nv a.sif ./go"])
def test_a_task_that_may_be_no_rank_passes_the_signal_on(start: str) -> None:
    text = FIRST.format(nodes=1, tasks=2, more="") + f"srun -K1 {start}\ndate\n"
    after = mend(text).after.decode()
    assert f'srun -K1 sh -c "$pass_on_usr1" - {start} &\n' in after
    assert "exit-code-lost" not in codes(after.encode())


def test_a_directive_with_its_signs_changed_over_is_put_right() -> None:
    assert b"#SBATCH --gres=gpu:4\n" in mend("#!/bin/bash\n#SBATCH --gres:gpu=4\npython train.py\n", unsafe=False).after


def test_one_launcher_a_node_counts_nodes() -> None:
    start = "srun -K1 torchrun --nnodes 4 --nproc-per-node 2 --rdzv-backend=c10d --rdzv-endpoint=$A:$B t.py\n"
    text = FIRST.format(nodes=2, tasks=2, more="") + "A=$(cat a)\nB=$(cat b)\n" + start
    assert "torchrun --nnodes $SLURM_NNODES --nproc-per-node 2" in mend(text, unsafe=False).after.decode()


@pytest.mark.parametrize(("more", "option"), [("module load rocm", "--rocm"), ("module load cuda", "--nv")])
def test_a_container_gets_the_makers_gpus(more: str, option: str) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + f"{more}\napptainer exec a.sif python train.py\n"
    assert f"apptainer exec {option} a.sif" in mend(text).after.decode()


def test_the_authors_own_signal_goes_to_the_steps() -> None:
    text = FIRST.format(nodes=2, tasks=4, more="#SBATCH --signal=B:TERM@60") + "srun -K1 python train.py\n"
    assert b"#SBATCH --signal=TERM@60\n" in mend(text).after
    assert "signal-kills-batch" in codes(text.encode()) - codes(mend(text).after)


@pytest.mark.parametrize(
    "start", ["bash scripts/run.sh", "srun -K1 bash run.sh # the whole", "apptainer exec --nv a.sif bash r.sh"]
)
def test_a_script_that_may_train_hears_of_the_limit(start: str) -> None:
    after = mend(FIRST.format(nodes=1, tasks=1, more="") + start + "\n").after.decode()
    srun, _, comment = start.partition("# ")
    first, _, program = srun.strip().rpartition("-K1 ")
    behind = f" & # {comment}" if comment else " &"
    assert f'\n{first}{"-K1 " if first else ""}sh -c "$pass_on_usr1" - {program}{behind}\n' in after


@pytest.mark.parametrize(
    ("line", "is_left"), [("mkdir out", True), ("git clone a b", True), ("mkdir out || true", False)]
)
def test_a_job_that_would_end_early_the_second_time_is_not_started_again(line: str, is_left: bool) -> None:
    text = FIRST.format(nodes=1, tasks=1, more="") + f"{line}\npython train.py\n"
    assert (b"scontrol requeue" not in mend(text).after) == is_left
