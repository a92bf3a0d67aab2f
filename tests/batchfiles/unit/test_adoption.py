"""Batch files of each shape, adopted: what the job starts, what is kept, and what is said of each line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from batchfiles.adoption.account import Where
from batchfiles.adoption.adopt import Adoption, adopt
from batchfiles.adoption.start import AdoptionError
from tests.support.render_cases import rendered
from trainjob.cluster.base import with_directives
from trainjob.cluster.reading import job_from_text
from trainjob.kinds.lookup import cluster_from_text
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import cluster_of
from trainjob.planning.build import plan
from trainjob.render.request import Request

TWO_NODES = """\
#!/bin/bash
#SBATCH --job-name=finetune
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=200G
#SBATCH --time=24:00:00
#SBATCH --partition=gpu
"""
ONE_GPU = "#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --cpus-per-task=8\n"
PER_RANK = TWO_NODES.replace("ntasks-per-node=1", "ntasks-per-node=4").replace("=32", "=8")
HEAD = "head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\n"
TORCHRUN = "srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 --rdzv-endpoint=$head:29500 train.py --lr 0.1\n"
NODES = {"count": 2, "accelerator": "gpu", "accelerators": 4, "type": "a100", "cpus": 32, "memory_gb": 200}


def prologue(adoption: Adoption, *, whole: bool = False) -> list[str]:
    """Return the prologue; if not `whole`, without what lets a file without set -e go on."""
    lines = cluster_from_text(str(adoption.cluster), "cluster.yaml").prologue
    return [line for line in lines if whole or line not in ("set +eo pipefail", "set -eo pipefail")]


def adopted(text: str, folder: Path, *arguments: str, known: Any = None) -> Adoption:
    path = folder / "train.sbatch"
    path.write_text(text)
    return adopt(path, Path("/home/me/project"), arguments, known)


@dataclass
class Shape:
    """A batch file, and what becomes of it."""

    text: str
    job: dict[str, Any]  # besides name and time_limit
    cluster: dict[str, Any] = field(default_factory=dict)  # besides kind, and nodes unless they are stated
    arguments: tuple[str, ...] = ()


SHAPES = {
    "torchrun-on-each-node": Shape(TWO_NODES + HEAD + TORCHRUN, {"command": ["torchrun", "train.py", "--lr", "0.1"], "instances": 8}, {"nodes": NODES}),
    "torchrun-without-nnodes": Shape(TWO_NODES + HEAD + TORCHRUN.replace("--nnodes=$SLURM_NNODES ", ""), {"command": ["torchrun", "train.py", "--lr", "0.1"], "instances": 8}),
    "rank-in-a-shell": Shape(
        PER_RANK + HEAD + "export MASTER_ADDR=$head MASTER_PORT=29500\nsrun bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; python -u train.py'\n",
        {"command": ["python", "-u", "train.py"], "instances": 8},
        {"nodes": NODES},
    ),
    "launcher-in-variables": Shape(
        TWO_NODES + HEAD + 'GPUS=4\nLAUNCHER="python -m torch.distributed.run --nproc_per_node $GPUS --nnodes 2 --rdzv_endpoint $head:1 --max_restarts 0"\n'
        "ARGS=\"--config c.yaml \\\n  --lr 1\"\nsrun bash -c \"$LAUNCHER --node_rank \\$SLURM_NODEID train.py $ARGS\"\n",
        {"command": ["python", "-m", "torch.distributed.run", "--max_restarts", "0", "train.py", "--config", "c.yaml", "--lr", "1"], "instances": 8},
    ),
    "accelerate": Shape(
        TWO_NODES + HEAD + "srun accelerate launch --num_processes $((SLURM_NNODES * 4)) --num_machines 2 --machine_rank $SLURM_NODEID "
        "--main_process_ip $head --main_process_port 29500 --mixed_precision fp16 train.py\n",
        {"command": ["accelerate", "launch", "--mixed_precision", "fp16", "train.py"], "instances": 8},
    ),
    "one-process-for-all-gpus": Shape(ONE_GPU.replace("gpu:1", "gpu:4") + "python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"nodes": {"count": 1, "accelerator": "gpu", "accelerators": 4, "cpus": 8}, "request": "none", "directives": {"gres": "gpu:4"}}),
    "an-argument-beside-what-only-the-run-knows": Shape(
        ONE_GPU + 'name=$2\nsrun python train.py --data "${HOME}/data of_$1" --out $SCRATCH/$name-$1\n',
        {"command": ["bash", "-c", "exec python train.py --data \"$HOME\"'/data of_a b' --out $SCRATCH/c-a b"], "instances": 1},
        {"login_environment": True},  # which has SCRATCH
        arguments=("a b", "c"),
    ),
    "a-wrapper-of-the-site": Shape(
        TWO_NODES + HEAD + "srun site_wrapper exec bash -c \"" + TORCHRUN.removeprefix("srun ").strip() + '"\n',
        {"command": ["bash", "-c", "exec site_wrapper exec torchrun train.py --lr 0.1"], "instances": 8, "command_per": "node"},
    ),
    "a-wrapper-of-the-site-without-srun": Shape(
        ONE_GPU.replace("gpu:1", "gpu:4") + "site_wrapper exec deepspeed --num_gpus 4 train.py\n",
        {"command": ["site_wrapper", "exec", "deepspeed", "train.py"], "instances": 4, "command_per": "node"},
    ),
    "gpus-by-a-variable-alone": Shape(
        "#!/bin/bash\n#SBATCH --cpus-per-task=8\nexport CUDA_VISIBLE_DEVICES=0,1\nsrun python train.py\n",
        {"command": ["python", "train.py"], "instances": 1},
        {"nodes": {"count": 1, "accelerator": "gpu", "accelerators": 2, "cpus": 8}, "request": "none"},
    ),
    "an-image-below-chdir": Shape(
        ONE_GPU + "#SBATCH --chdir=/site/code\nsrun apptainer exec --nv images/x.sif python train.py\n",
        {"command": ["python", "train.py"], "instances": 1},
        {"container": {"runtime": "apptainer", "image": "/site/code/images/x.sif"}},
    ),
    "moves-to-where-it-is": Shape(
        ONE_GPU + 'cd $PWD\ncd "$(pwd)"/\ncd $PWD/sub\nsrun python train.py\n',
        {"command": ["bash", "-c", 'cd "$TRAINJOB_RUN_DIR/code/project/sub"\nexec python train.py\n'], "instances": 1},
    ),
    "one-gpu": Shape(ONE_GPU + "srun python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"nodes": {"count": 1, "accelerator": "gpu", "accelerators": 1, "cpus": 8}}),
    "cpus": Shape("#!/bin/bash\n#SBATCH -N 2 -c 4 --ntasks-per-node=2\nsrun python train.py\n", {"command": ["python", "train.py"], "instances": 4, "hosts": 2}, {"nodes": {"count": 2, "cpus": 8}}),
    "whole-nodes-without-gres": Shape(
        "#!/bin/bash\n#SBATCH -N 2 --exclusive --ntasks-per-node=1\nmodule load cuda\nsrun torchrun --nnodes 2 --nproc-per-node 8 train.py\n",
        {"command": ["torchrun", "train.py"], "instances": 16},
        {"request": "none", "directives": {"exclusive": True}, "prologue": ["module load cuda"]},
    ),
    "arguments": Shape(ONE_GPU + 'CONFIG=$1\nshift\nLR=${2:-7}\npython train.py --config "$CONFIG" --lr $LR "$@"\n', {"command": ["python", "train.py", "--config", "a b", "--lr", "7", "-x"], "instances": 1}, arguments=("a b", "-x")),
    "known-when-it-runs": Shape(
        ONE_GPU + 'RUN=run-$SLURM_JOB_ID\nOUT="$SCRATCH/$RUN"\nLR=1\nmkdir -p "$OUT"\npython train.py --lr $LR --out "$OUT"\n',
        {"command": ["bash", "-c", 'export -n OUT\nexec python train.py --lr 1 --out "$OUT"\n'], "instances": 1},
        {"prologue": ['cd "$TRAINJOB_RUN_DIR/code/project"', "RUN=run-$SLURM_JOB_ID", 'export OUT="$SCRATCH/$RUN"', 'mkdir -p "$OUT"'], "login_environment": True},
    ),
    "setup-and-environment": Shape(
        ONE_GPU + "module load cuda\nsource venv/bin/activate\nexport WANDB_MODE=offline\nexport CUDA_HOME=/opt/cuda\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nexport CUDA_VISIBLE_DEVICES=0\nX=1 python train.py\n",
        {"command": ["python", "train.py"], "instances": 1, "env": {"WANDB_MODE": "offline", "X": "1"}},
        {"prologue": ["module load cuda", "source /home/me/project/venv/bin/activate", "export CUDA_HOME=/opt/cuda"]},
    ),
    "here-document": Shape(
        ONE_GPU + 'cat <<EOT > config.json\n{"lr": 1}\nEOT\npython train.py config.json\n',
        {"command": ["python", "train.py", "config.json"], "instances": 1},
        {"prologue": ['cd "$TRAINJOB_RUN_DIR/code/project"', 'cat <<EOT > config.json\n{"lr": 1}\nEOT\n']},
    ),
    "a text that read takes from a here-document": Shape(
        TWO_NODES + "read -r -d '' CMD <<'EOC' || true\necho hello\n" + TORCHRUN.partition("srun ")[2] + 'EOC\nsrun bash -c "$CMD"\n',
        {"command": ["torchrun", "train.py", "--lr", "0.1"], "instances": 8},
    ),
    "a text that cat takes from a here-document": Shape(
        ONE_GPU + "LR=3\nARGS=$(cat <<-EOF\n\t--lr $LR\n\t--out x\nEOF\n)\npython train.py $ARGS\n",
        {"command": ["python", "train.py", "--lr", "3", "--out", "x"], "instances": 1},
    ),
    "a program of its own that trains": Shape(ONE_GPU + "llamafactory-cli train a.yaml\n", {"command": ["llamafactory-cli", "train", "a.yaml"], "instances": 1}),
    "the other arguments": Shape(ONE_GPU + 'MORE=${@:3}\npython train.py $1 "${@:2}" $MORE\n', {"command": ["python", "train.py", "a", "b", "c d", "c", "d"], "instances": 1}, arguments=("a", "b", "c d")),
    "words that only bash knows": Shape(
        ONE_GPU + 'readonly OUT="$SCRATCH/x"\ntime PYTHONPATH=src:$PYTHONPATH python train.py --out $OUT\n',
        {"command": ["bash", "-c", "export -n OUT\nexport PYTHONPATH=src:$PYTHONPATH\nexec python train.py --out $OUT\n"], "instances": 1},
        {"prologue": ['export OUT="$SCRATCH/x"'], "login_environment": True},
    ),
    "an awk program, and the folder of the submission": Shape(
        ONE_GPU + "TAG=$(git log -1 | awk '{print $1}')\nsrun apptainer exec -B $PWD:/work,$SITE:/site,$HOME $(pwd)/a.sif python train.py --tag $TAG\n",
        {"command": ["bash", "-c", "export -n TAG\nexec python train.py --tag $TAG\n"], "instances": 1},
        {
            "container": {"runtime": "apptainer", "image": "/home/me/project/a.sif", "mounts": ["/home/me/project:/work", "~/"]},
            "prologue": ["export TAG=$(git log -1 | awk '{print $1}')", 'export APPTAINERENV_TAG="$TAG"'],
        },
    ),
    "a loop over the nodes": Shape(
        TWO_NODES + "nodes=($(scontrol show hostnames))\nfor ((i = 0; i < SLURM_NNODES; i++)); do\n  srun -N1 -n1 -w ${nodes[$i]} "
        "torchrun --nnodes 2 --nproc-per-node 4 --node-rank $i --master-addr ${nodes[0]} train.py &\ndone\nwait\n",
        {"command": ["torchrun", "train.py"], "instances": 8},
    ),
    "a variable that was an array": Shape(
        ONE_GPU + "LR=(1 2)\nLR=${LR[$SLURM_ARRAY_TASK_ID]}\npython train.py --lr $LR\n",
        {"command": ["bash", "-c", "LR=(1 2)\nLR=${LR[$SLURM_ARRAY_TASK_ID]}\nexec python train.py --lr $LR\n"], "instances": 1},
    ),
    "elements of an array": Shape(
        ONE_GPU + "RATES=(1 $SLURM_SUBMIT_DIR/2)\nNAMES=(a b)\nat=$((SLURM_ARRAY_TASK_ID % 2))\nmkdir -p ${NAMES[$at]}\npython train.py --lr ${RATES[$at]} ${NAMES[$at]}\n",
        {"command": ["bash", "-c", "export -n at\nRATES=(1 $TRAINJOB_RUN_DIR/code/project/2)\nNAMES=(a b)\nexec python train.py --lr ${RATES[$at]} ${NAMES[$at]}\n"], "instances": 1},
        {"prologue": ['cd "$TRAINJOB_RUN_DIR/code/project"', "NAMES=(a b)", "export at=$((SLURM_ARRAY_TASK_ID % 2))", "mkdir -p ${NAMES[$at]}"]},
    ),
    "a time limit shorter than the usual margin": Shape(
        ONE_GPU + "#SBATCH --time=2 --mail-user=\npython train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"time_limit_signal": {"margin_s": 30}}
    ),
    "GPUs as the file asks for them": Shape(
        ONE_GPU.replace("gres=gpu:1", "gpus-per-node=2") + "torchrun --nproc-per-node $SLURM_GPUS_PER_NODE train.py --gpus $SLURM_GPUS_PER_NODE\n",
        {"command": ["torchrun", "train.py", "--gpus", "2"], "instances": 2},
        {"nodes": {"count": 1, "accelerator": "gpu", "accelerators": 2, "cpus": 8}, "request": "gpus-per-node"},
    ),
    "apptainer": Shape(ONE_GPU + "srun singularity exec --nv -B /data /images/torch.sif python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"container": {"runtime": "apptainer", "image": "/images/torch.sif", "mounts": ["/data"]}}),
    "apptainer, folders beside the file": Shape(ONE_GPU + "srun apptainer exec -B ../data:/data,out ../torch.sif python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"container": {"runtime": "apptainer", "image": "/home/me/torch.sif", "mounts": ["/home/me/data:/data", "/home/me/project/out"]}}),
    "apptainer, the image behind -e": Shape(ONE_GPU + "srun singularity exec --nv -B /data -e /images/torch.sif python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"container": {"runtime": "apptainer", "image": "/images/torch.sif", "mounts": ["/data"]}}),
    "pyxis": Shape(ONE_GPU + "srun --container-image=/i.sqsh --container-mounts=/data:/data,/home/me:/mnt:ro python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"container": {"runtime": "pyxis", "image": "/i.sqsh", "mounts": ["/data", "/home/me:/mnt"]}}),
    "shifter": Shape(ONE_GPU + "srun shifter --image=nersc/torch:2 python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"container": {"runtime": "shifter", "image": "nersc/torch:2"}}),
    "container-engine": Shape(ONE_GPU + "srun --environment=/e/torch.toml python train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"container": {"runtime": "ce", "image": "/e/torch.toml"}}),
    "another-gres": Shape(ONE_GPU.replace("gpu:1", "dcu:2") + "#SBATCH --ntasks=2\nsrun python train.py\n", {"command": ["python", "train.py"], "instances": 2}, {"nodes": {"count": 1, "accelerator": "gpu", "accelerators": 2, "gres": "dcu", "cpus": 16}}),
    "perhaps-a-profiler": Shape(
        ONE_GPU + 'if [ "${PROFILE:-0}" = 1 ]; then PROFILER="nsys profile"; fi\nsrun bash -c "\n  $PROFILER python train.py --out $SCRATCH/x\n"\n',
        {"command": ["bash", "-c", "export -n PROFILER\nexec $PROFILER python train.py --out $SCRATCH/x\n"], "instances": 1},
        {"login_environment": True, "prologue": ['if [ "${PROFILE:-0}" = 1 ]; then PROFILER="nsys profile"; fi', "export PROFILER"]},
    ),
    "shifter-of-sbatch": Shape(
        ONE_GPU + "#SBATCH --image=a/b:1\nsrun shifter -V /data:/d bash -c 'python train.py'\n",
        {"command": ["python", "train.py"], "instances": 1}, {"container": {"runtime": "shifter", "image": "a/b:1", "mounts": ["/data:/d"]}},
    ),
    "written-wrapper": Shape(
        ONE_GPU + "cat << 'EOF' > pick\nexec \"$@\"\nEOF\nsrun ./pick python train.py\n",
        {"command": ["./pick", "python", "train.py"], "instances": 1},
        {"prologue": ['cd "$TRAINJOB_RUN_DIR/code/project"', "cat << 'EOF' > pick\nexec \"$@\"\nEOF\n"]},
    ),
    "uv-run": Shape(ONE_GPU + "uv run --with x torchrun --nproc-per-node 1 train.py\n", {"command": ["uv", "run", "--with", "x", "torchrun", "train.py"], "instances": 1, "env": {"UV_PROJECT_ENVIRONMENT": "/home/me/project/.venv"}}),
    "mamba-run": Shape(ONE_GPU + "srun mamba run -n torch python train.py\n", {"command": ["mamba", "run", "-n", "torch", "python", "train.py"], "instances": 1}),
    "requeues-itself": Shape(
        ONE_GPU + "#SBATCH --signal=B:USR1@300\ntrap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun python train.py &\nwait\n",
        {"command": ["python", "train.py"], "instances": 1},
        {"time_limit_signal": {"margin_s": 300}},
    ),
    "directives": Shape(
        ONE_GPU + "#SBATCH --account=abc --qos=long --mail-type=END --array=0-3%2 --hint=nomultithread --exclude=n7\n#SBATCH --mem-per-gpu=60G --network=job_vni\npython train.py\n",
        {"command": ["python", "train.py"], "instances": 1, "array": "0-3%2", "hint": "nomultithread", "directives": {"mail-type": "END", "exclude": "n7"}},
        {"directives": {"account": "abc", "qos": "long", "mem-per-gpu": "60G", "network": "job_vni"}},
    ),
    "options-of-a-plugin": Shape(ONE_GPU + "#SBATCH --uenv=pytorch/v2 --view=default\npython train.py\n", {"command": ["python", "train.py"], "instances": 1}, {"plugin_options": ["uenv", "view"], "directives": {"uenv": "pytorch/v2", "view": "default"}}),
    "exec-in-the-shell-of-a-rank": Shape(ONE_GPU + "srun bash -c 'export RANK=$SLURM_PROCID; exec python train.py'\n", {"command": ["python", "train.py"], "instances": 1}),
    "exec-with-what-only-a-run-knows": Shape(ONE_GPU + "srun bash -c 'exec python train.py --id $SLURM_JOB_ID'\n", {"command": ["bash", "-c", "exec python train.py --id $SLURM_JOB_ID"], "instances": 1}),
    "set-up-in-functions": Shape(
        ONE_GPU + 'die() { echo "$*" >&2; exit 1; }\nsetup() {\n  module load cuda\n  export A=1\n}\nload() {\n  module load "$1"\n}\n'
        'main() {\n  setup\n  load nccl\n  [[ -n "$HOME" ]] || die "no home"\n  python train.py "$@"\n}\nmain --lr 1\n',
        {"command": ["python", "train.py", "--lr", "1"], "instances": 1},
        {
            "prologue": [
                'die() { echo "$*" >&2; exit 1; }', "setup() {\n  module load cuda\n  export A=1\n}\n",
                *('load() {\n  module load "$1"\n}\n', "setup", "load nccl"),
                '[[ -n "$HOME" ]] || die "no home"',
            ]
        },
    ),
    "functions-that-call-each-other": Shape(
        ONE_GPU + "again() {\n  module load a\n  again\n}\ntrain() {\n  python train.py\n}\nmain() {\n  train\n}\nagain\nmain\n",
        {"command": ["python", "train.py"], "instances": 1},
        {"prologue": ["again() {\n  module load a\n  again\n}\n", "again"]},
    ),
    "in-a-function": Shape(ONE_GPU + 'train() {\n  python train.py "$@"\n}\nif [ -n "$SLURM_JOB_ID" ]; then\n  train --lr 1\nfi\n', {"command": ["python", "train.py", "--lr", "1"], "instances": 1}),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_shape_becomes_a_job_that_renders(shape: Shape, tmp_path: Path) -> None:
    adoption = adopted(shape.text, tmp_path, *shape.arguments)
    job = job_from_text(adoption.job, "job.yaml")
    stated = {name: value for name, value in job.given().items() if name not in ("name", "time_limit")}
    assert stated == shape.job
    assert adoption.cluster is not None
    cluster = with_directives("cluster", cluster_from_text(adoption.cluster, "cluster.yaml"), job)
    values = cluster_from_text(adoption.cluster, "cluster.yaml").as_values()
    stated_of_site = {name: value for name, value in values.items() if name in cluster.stated}
    wanted = {key: value for key, value in shape.cluster.items() if key != "nodes"}
    if not {"--partition"} & set(shape.text.replace("=", " ").split()):
        assert set(stated_of_site) == {"kind", "nodes", *wanted}
    for key, value in wanted.items():
        found = stated_of_site[key]
        if key == "prologue":
            found = prologue(adoption)
        if isinstance(value, dict):
            assert isinstance(found, dict)
            found = {name: one for name, one in found.items() if name in value}
        assert found == value
    if "nodes" in shape.cluster:
        assert {name: one for name, one in values["nodes"].items() if one and name != "threads_per_core"} == {
            "accelerator": "cpu",
            **shape.cluster["nodes"],
        }
    request = Request(cluster, "cluster.yaml", job, {}, plan("cluster", cluster, job))
    text = rendered(request).files["job.sbatch"].content.decode()
    assert all(line in text for line in cluster.prologue)


def test_every_line_is_accounted_for(tmp_path: Path) -> None:
    text = TWO_NODES + "set -e\n# a comment\necho begin\n" + HEAD + TORCHRUN + "echo end\ncp -r out /archive\n"
    adoption = adopted(text, tmp_path)
    lines = {number for one in adoption.account.entries for number in range(one.line, one.last + 1)}
    assert lines == {number for number, line in enumerate(text.splitlines(), 1) if number > 1 and "comment" not in line}
    assert [one.text for one in adoption.account.lost] == ["cp -r out /archive"]


def test_a_wait_that_a_trap_ends_is_the_jobs_own(tmp_path: Path) -> None:
    waits = "trap 'kill -USR1 $PID' USR1\nsrun python train.py &\nPID=$!\nwait $PID\n"
    adoption = adopted("#!/bin/bash\n#SBATCH --ntasks=2 --time=30 --signal=B:USR1@60\n" + waits, tmp_path)
    assert "wait-interrupted" in adoption.cured
    assert {"end", "files at the end"} <= set(adoption.explained)
    assert not re.search(r"\b(?:trap|wait)\b", adoption.job), "its prologue has neither"


def test_what_is_wrong_is_said_and_cured(tmp_path: Path) -> None:
    text = TWO_NODES + HEAD + "srun torchrun --rdzv-endpoint=$head:29500 train.py\n"
    adoption = adopted(text, tmp_path)
    assert {"nnodes-missing", "gpus-unused", "port-fixed"} <= set(adoption.cured)
    assert adoption.account.changes == ["line 11: 1 of 4 GPUs on each node would get a process; the job starts 4"]
    eight = adopted(TWO_NODES.replace("ntasks-per-node=1", "ntasks-per-node=4") + HEAD + TORCHRUN, tmp_path)
    assert "srun starts 4 launchers on each node" in eight.account.changes[0]


def test_what_only_the_script_can_cure_is_not_called_cured(tmp_path: Path) -> None:
    adoption = adopted(TWO_NODES + HEAD + TORCHRUN, tmp_path)
    assert adoption.cured_with_script == ["time-limit-unhandled"]
    assert "port-fixed" in adoption.cured_at_once
    assert "time-limit-unhandled" not in adoption.cured_at_once
    shown = adoption.as_json()
    assert (shown["cured"], shown["cured_if_the_script_resumes"]) == (adoption.cured_at_once, ["time-limit-unhandled"])


def test_a_secret_is_neither_kept_nor_shown(tmp_path: Path) -> None:
    key = "hf_" + "a1" * 20
    adoption = adopted(
        ONE_GPU + f"export HF_TOKEN={key}\nhuggingface-cli login --token {key}\npython train.py\n", tmp_path
    )
    assert key not in adoption.job + str(adoption.cluster) + str(adoption.as_json())
    assert [one.line for one in adoption.account.lost] == [4, 5]


def test_comments_stay_with_what_they_explain(tmp_path: Path) -> None:
    text = "# ---- setup ----\n# the driver of this site needs it\nmodule load cuda\n# module load old\nexport X=1  # for the loader\npython train.py\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert "  # the driver of this site needs it\n  - module load cuda\n" in str(adoption.cluster)
    assert "X: 1  # for the loader" in adoption.job
    assert "load old" not in adoption.job + str(adoption.cluster)


def test_a_named_cluster_takes_the_place_of_a_file(tmp_path: Path) -> None:
    nodes = {"count": 8, "accelerator": "gpu", "accelerators": 4, "cpus": 64}
    known = cluster_of(
        {"kind": "slurm", "nodes": nodes, "directives": {"partition": "gpu"}, "prologue": ["module load cuda"]}
    )
    adoption = adopted(
        TWO_NODES + "#SBATCH --qos=long\nmodule load cuda\nmodule load nccl\n" + HEAD + TORCHRUN, tmp_path, known=known
    )
    assert adoption.cluster is None
    job = job_from_text(adoption.job, "job.yaml")
    assert (job.directives, job.instances) == ({"qos": "long"}, 8)
    assert "module load nccl" in lost(adoption)
    assert "module load cuda" not in lost(adoption)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO_NODES + "up() {\n  ray start --head\n}\nup\npython train.py\n", "starts Ray by hand"),
        (TWO_NODES + "echo hello\n", "starts nothing that trains"),
        (ONE_GPU + "for lr in 1 2; do\n  srun python train.py --lr $lr\ndone\n", "in a loop"),
        (TWO_NODES + "mpirun -np 8 python train.py\n", "by mpirun"),
        (TWO_NODES + "accelerate launch --num_machines 2 --mpirun_hostfile h train.py\n", "by --mpirun_hostfile"),
        (TWO_NODES + "srun -n 4 --multi-prog roles.conf\n", "other programs in other tasks"),
        (ONE_GPU + "#SBATCH hetjob\n#SBATCH --nodes=2\nsrun python train.py\n", "another part of a heterogeneous job"),
        (TWO_NODES + "srun --het-group=0 python a.py : --het-group=1 python b.py\n", "parts of a heterogeneous job"),
        (TWO_NODES + "for n in a b; do\n  ssh $n torchrun train.py &\ndone\nwait\n", "trains by ssh"),
        (ONE_GPU + 'torchrun --standalone "$@"\n', "starts torchrun without a program.* -- ARGUMENT"),
        (ONE_GPU + "python train.py $1\n", "an argument of the file"),
        (ONE_GPU + 'CONFIG=$1\nsrun bash -c "python train.py $CONFIG"\n', "an argument of the file"),
    ],
)
def test_what_is_no_job_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AdoptionError, match=message):
        adopted(text, tmp_path)


@pytest.mark.parametrize("before", ["", "AT=$SLURM_LOCALID\n", "AT=${SLURM_LOCALID}\nNAME=r$AT\n"])
def test_a_place_that_the_batch_shell_would_expand_is_each_ranks_own(before: str, tmp_path: Path) -> None:
    word = "$NAME" if "NAME" in before else "$AT" if before else "$SLURM_LOCALID"
    found = adopted(f"{PER_RANK}{before}srun python train.py --local_rank {word}\n", tmp_path)
    own = "r$SLURM_LOCALID" if "NAME" in before else "$SLURM_LOCALID"
    assert job_from_text(found.job, "job.yaml").command == ["bash", "-c", f"exec python train.py --local_rank {own}"]
    assert not prologue(found)
    assert ("rank-expanded-early" in found.cured) == (own[0] == "$")  # doctor knows figures of ranks


def test_a_place_that_the_prologue_exports_is_said_to_be_the_same_for_all(tmp_path: Path) -> None:
    found = adopted(PER_RANK + "export LOG=log/$SLURM_PROCID\nsrun python train.py\n", tmp_path)
    assert "the same for every rank" in lost(found)["export LOG=log/$SLURM_PROCID"]
    assert prologue(found)[-1] == "export LOG=log/$SLURM_PROCID"
    assert "rank-expanded-early" not in found.cured


def test_devices_that_the_command_chooses_are_not_called_cured(tmp_path: Path) -> None:
    command = 'srun bash -c "export CUDA_VISIBLE_DEVICES=\\$((3-SLURM_LOCALID)); python train.py"\n'
    assert "sets-visible-devices" not in adopted(PER_RANK + command, tmp_path).cured
    before = "export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nsrun python train.py\n"
    assert "sets-visible-devices" in adopted(PER_RANK + before, tmp_path).cured


def test_what_hangs_on_a_helper_goes_with_it(tmp_path: Path) -> None:
    looks = "echo $M > out/m.pid\nif ! ps -p $M >/dev/null; then\n  exit 1\nfi\n"
    found = adopted(f"{ONE_GPU}set -u\npython monitor.py &\nM=$!\nmkdir out\n{looks}python train.py\n", tmp_path)
    assert [line for line in prologue(found) if not line.startswith(("cd ", "set "))] == ["mkdir out"]
    assert {"python monitor.py", "echo $M > out/m.pid", "if ! ps -p $M >/dev/null; then"} <= set(lost(found))


def test_a_resubmission_is_a_requeue(tmp_path: Path) -> None:
    adoption = adopted(
        ONE_GPU + "python train.py\nsbatch --dependency=afterany:$SLURM_JOB_ID $0\nsbatch next.sbatch\n", tmp_path
    )
    where = {one.line: one.where for one in adoption.account.entries}
    assert (where[5], where[6]) == (Where.TRAINJOB, Where.LOST)


def test_how_to_call_a_file_is_no_resubmission(tmp_path: Path) -> None:
    text = 'if [ -z "$1" ]; then\n  echo "usage: sbatch train.sbatch CONFIG"\n  exit 1\nfi\npython train.py $1\n'
    adoption = adopted(ONE_GPU + text, tmp_path, "a.yaml")
    assert {one.line: one.where for one in adoption.account.entries}[4] is Where.NOWHERE


def test_what_slurm_tells_some_jobs_alone_is_written_out(tmp_path: Path) -> None:
    adoption = adopted(
        ONE_GPU + '#SBATCH -A abc\nexport CACHE="/scratch/${SLURM_JOB_ACCOUNT}/$USER"\npython train.py\n', tmp_path
    )
    assert '  - export CACHE="/scratch/abc/$USER"\n' in str(adoption.cluster)


def test_a_file_that_looks_at_a_failure_goes_on_after_it(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "source a.sh\nif [ $? -ne 0 ]; then source b.sh; fi\npython train.py\n", tmp_path)
    lines = prologue(adoption, whole=True)
    assert (lines[0], lines[-1]) == ("set +eo pipefail", "set -eo pipefail")


def test_a_secret_that_a_file_of_its_own_holds_is_read_as_before(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "export HF_TOKEN=$(cat ~/.hf)\npython train.py\n", tmp_path)
    assert "  - export HF_TOKEN=$(cat ~/.hf)\n" in str(adoption.cluster)
    assert not adoption.account.lost


def lost(adoption: Adoption) -> dict[str, str]:
    return {one.text: one.what for one in adoption.account.lost}


def test_what_a_named_cluster_lacks_is_said(tmp_path: Path) -> None:
    nodes = {"count": 8, "accelerator": "gpu", "accelerators": 8, "cpus": 64}
    text = (
        PER_RANK + "#SBATCH --qos=long\nsrun --cpu-bind=cores --mpi=pmix singularity exec --nv /i.sif python train.py\n"
    )
    known = cluster_of({"kind": "slurm", "nodes": nodes, "srun": {"mpi": "pmix"}})
    assert lost(adopted(text, tmp_path, known=known)) == {
        "#SBATCH --gres=gpu:a100:4": "nodes: accelerators is 8 in the cluster file, and 4 here",
        "#SBATCH --cpus-per-task=8": "nodes: cpus is 64 in the cluster file, and 32 here",
        "#SBATCH --mem=200G": "nodes: memory_gb is not stated in the cluster file, and 200 here",
        "srun --cpu-bind=cores": "srun: cpu-bind is not stated in the cluster file, and cores here",
        "apptainer /i.sif": "container: image is not stated in the cluster file, and /i.sif here",
    }


def test_options_of_srun_are_kept_or_named(tmp_path: Path) -> None:
    adoption = adopted(
        PER_RANK + "srun -l --cpu-bind=v --distribution=block --propagate=STACK python train.py\n", tmp_path
    )
    assert lost(adoption) == {"srun --propagate=STACK": "ranks are started without it"}
    assert SlurmCluster.of(cluster_from_text(adoption.cluster or "", "c.yaml")).srun == {"distribution": "block"}


@pytest.mark.parametrize(
    ("setup", "command", "lines"),
    [
        (
            'if [[ "$(nvidia-smi)" == *A100* ]]; then\n  FLAG=--bf16\nelse\n  FLAG=--fp16\nfi\n',
            "python train.py $FLAG",
            [
                'cd "$TRAINJOB_RUN_DIR/code/project"',
                'if [[ "$(nvidia-smi)" == *A100* ]]; then\n  FLAG=--bf16\nelse\n  FLAG=--fp16\nfi',
                "export FLAG",
            ],
        ),
        ("if [ 1 -eq 1 ]; then FLAG=--bf16; else FLAG=--fp16; fi\n", "python train.py --bf16", None),
        ("X=${2:-no}\nif [ $X = yes ]; then FLAG=--bf16; else FLAG=--fp16; fi\n", "python train.py --fp16", None),
        (
            'if [ -z "$GPUS" ]; then\n  GPUS=$(nvidia-smi -L | wc -l)\nfi\nSTEPS=$((64 / GPUS))\n',
            "python train.py $STEPS",
            ['if [ -z "$GPUS" ]; then\n  GPUS=$(nvidia-smi -L | wc -l)\nfi', "export STEPS=$((64 / GPUS))"],
        ),
    ],
    ids=["a-flag-of-the-node", "a-switch", "another-switch", "a-figure-of-the-node"],
)
def test_what_only_a_run_decides_is_decided_when_it_runs(
    setup: str, command: str, lines: list[str] | None, tmp_path: Path
) -> None:
    adoption = adopted(
        ONE_GPU + setup + ("python train.py $FLAG\n" if "FLAG" in setup else "python train.py $STEPS\n"), tmp_path
    )
    words = job_from_text(adoption.job, "job.yaml").command or []
    name = command.partition("$")[2]
    assert words == (["bash", "-c", f"export -n {name}\nexec {command}\n"] if name else command.split())
    assert [text.strip() for text in prologue(adoption)] == (lines or [])


def test_what_prepares_and_what_evaluates_is_not_the_training(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "python data/prepare.py\npython train.py --lr 1\npython evaluate.py\n", tmp_path)
    assert job_from_text(adoption.job, "job.yaml").command == ["python", "train.py", "--lr", "1"]
    assert prologue(adoption)[-1] == "python data/prepare.py"
    assert list(lost(adoption)) == ["python evaluate.py"]


def test_a_rank_that_saw_its_own_gpu_alone_still_does(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH -N 2\nsrun --ntasks=8 --ntasks-per-node=4 --gpus-per-task=1 --gpu-bind=closest python train.py\n"
    adoption = adopted(text, tmp_path)
    assert SlurmCluster.of(cluster_from_text(adoption.cluster or "", "c.yaml")).srun == {
        "gpus-per-task": 1,
        "gpu-bind": "closest",
    }
    assert "gpus-per-task-hides-peers" not in adoption.cured


def test_the_folder_of_the_file_is_that_in_the_copy_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    path = tmp_path / "scripts" / "train.sbatch"
    path.write_text(
        ONE_GPU
        + 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\ncd "$HERE/.."\nexport PYTHONPATH=$HERE/lib:$PYTHONPATH\npython train.py\n'
    )
    adoption = adopt(path, tmp_path)
    assert prologue(adoption) == [
        'HERE="$(cd "$TRAINJOB_RUN_DIR/code/project/scripts" && pwd)"',
        "export PYTHONPATH=$HERE/lib:$PYTHONPATH",
    ]
    assert not adoption.account.lost


@pytest.mark.parametrize(
    ("value", "env"), [("$SLURM_CPUS_PER_TASK", {"OMP_NUM_THREADS": "32"}), ("8", {"OMP_NUM_THREADS": "8"})]
)
def test_threads_that_a_job_would_not_give_are_stated(value: str, env: dict[str, str], tmp_path: Path) -> None:
    adoption = adopted(TWO_NODES + f"export OMP_NUM_THREADS={value}\n" + HEAD + TORCHRUN, tmp_path)
    assert job_from_text(adoption.job, "job.yaml").env == env


@pytest.mark.parametrize("words", ["a b", "{1..3}", "*.txt", "$(ls /data)", '$NAMES "c d"'])
def test_what_a_loop_puts_together_is_put_together_by_the_shell_of_the_command(words: str, tmp_path: Path) -> None:
    loop = f'for one in {words}; do\n  ARGS+=(--data "$one")\ndone\n'
    text = f"{ONE_GPU}NAMES='x y' ARGS=()\n{loop}python train.py \"${{ARGS[@]}}\"\n"
    command = job_from_text(adopted(text, tmp_path).job, "job.yaml").command
    assert command[2].endswith(f'{loop}exec python train.py "${{ARGS[@]}}"\n')
    text = f'{ONE_GPU}ALL=\nfor one in {words}; do ALL="$ALL $one"; done\npython train.py $ALL\n'
    assert job_from_text(adopted(text, tmp_path).job, "job.yaml").command == [
        "bash",
        "-c",
        "export -n ALL\nexec python train.py $ALL\n",
    ]


def test_a_program_of_several_lines_stays_readable(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + 'python -c "\nimport mine\n\nmine.train(1)\n"\n', tmp_path)
    assert "  - |\n\n    import mine\n\n    mine.train(1)\n" in adoption.job
    assert (job_from_text(adoption.job, "job.yaml").command or [])[2] == "\nimport mine\n\nmine.train(1)\n"


def test_variables_reach_the_ranks_in_a_clean_container(tmp_path: Path) -> None:
    adoption = adopted(
        ONE_GPU + "export CACHE=/tmp/$USER\nsrun singularity exec images/a.sif python train.py\n", tmp_path
    )
    cluster = cluster_from_text(adoption.cluster or "", "c.yaml")
    assert cluster.prologue == ["export CACHE=/tmp/$USER", 'export SINGULARITYENV_CACHE="$CACHE"']
    assert cluster.container.image == "/home/me/project/images/a.sif"


def test_a_function_of_a_sourced_file_may_start_the_training(tmp_path: Path) -> None:
    (tmp_path / "lib.sh").write_text(
        'launch() {\n  local head=$(hostname)\n  srun torchrun --nnodes 2 --nproc-per-node 4 --master-addr $head "$@"\n}\n'
    )
    adoption = adopted(TWO_NODES + "LR=0.1\n. ./lib.sh\nlaunch train.py --lr $LR\n", tmp_path)
    job = job_from_text(adoption.job, "job.yaml")
    assert (job.command, job.instances) == (["torchrun", "train.py", "--lr", "0.1"], 8)
    assert prologue(adoption) == [
        'cd "$TRAINJOB_RUN_DIR/code/project"',
        ". ./lib.sh",
    ]


@pytest.mark.parametrize(("hostfile", "is_wrong"), [("--hostfile hosts", False), ("", True)])
def test_deepspeed_reaches_the_nodes_of_its_hostfile(hostfile: str, is_wrong: bool, tmp_path: Path) -> None:
    adoption = adopted(TWO_NODES + f"deepspeed {hostfile} --num_gpus 4 train.py\n", tmp_path)
    assert any("everything runs on the first" in line for line in adoption.account.changes) == is_wrong
    assert adoption.start.instances == 8


def test_options_of_a_mount_are_named(tmp_path: Path) -> None:
    mounts = "-B images.sqsh:/software:image-src=/ -B /scratch:/scratch:rw"
    adoption = adopted(ONE_GPU + f"srun apptainer exec {mounts} /images/torch.sif python train.py\n", tmp_path)
    lost = [entry.what for entry in adoption.account.sorted if entry.where is Where.LOST]
    assert lost == ["a cluster file's mounts have no options (image-src=/)"]


def test_a_rank_that_saw_all_gpus_still_does(tmp_path: Path) -> None:
    text = (
        ONE_GPU.replace("gres=gpu:1", "gpus-per-task=1")
        + "#SBATCH --ntasks-per-node=4 -N 1 --gpu-bind=none\nsrun python train.py\n"
    )
    assert SlurmCluster.of(cluster_from_text(adopted(text, tmp_path).cluster or "", "c.yaml")).srun == {}


@pytest.mark.parametrize(
    ("directive", "name"), [("#SBATCH --job-name=own\n", "own"), ("", "train.sbatch")], ids=["stated", "by-sbatch"]
)
def test_a_name_that_the_file_uses_is_the_one_that_sbatch_gives(directive: str, name: str, tmp_path: Path) -> None:
    text = ONE_GPU + directive + "python train.py --out runs/$SLURM_JOB_NAME\n"
    assert job_from_text(adopted(text, tmp_path).job, "job.yaml").given()["name"] == name


@pytest.mark.parametrize("folder", ["${TMPDIR:-/tmp}", "$SLURM_TMPDIR/work", "/tmp"])
def test_a_job_moves_to_the_same_folder_of_its_node(folder: str, tmp_path: Path) -> None:
    text = f'{ONE_GPU}cd "{folder}"\nsrun python $SLURM_SUBMIT_DIR/train.py\n'
    command = job_from_text(adopted(text, tmp_path).job, "job.yaml").command
    assert command[2].startswith(f'cd "{folder}" || exit\n')


def test_what_may_fail_in_the_file_may_fail_in_the_job(tmp_path: Path) -> None:
    text = 'RUN=${1:-a b}\nOUT=/out/$RUN-$SLURM_JOB_ID\nln -s "$OUT" last\npython train.py "$OUT"\n'
    kept = prologue(adopted(ONE_GPU + text, tmp_path))
    assert kept[1:] == ["RUN=${1:-a b}", "export OUT=/out/$RUN-$SLURM_JOB_ID", 'ln -s "$OUT" last']
    assert kept[1:] == prologue(adopted(ONE_GPU + "set -e\n" + text, tmp_path), whole=True)[1:]


def test_a_rank_gets_at_least_one_cpu(tmp_path: Path) -> None:
    adoption = adopted(TWO_NODES.replace("=32", "=2") + HEAD + TORCHRUN, tmp_path)
    assert "cpus: 4  # each rank needs one, and the file asks for 2" in (adoption.cluster or "")


@pytest.mark.parametrize(("tasks", "cpus"), [("--ntasks-per-gpu=1", 8), ("--ntasks-per-node=4", 32)])
def test_tasks_that_nothing_starts_hold_cpus_as_slurm_counts_them(tasks: str, cpus: int, tmp_path: Path) -> None:
    text = ONE_GPU.replace("--gres=gpu:1", "--gpus-per-node=4 -N 1") + f"#SBATCH {tasks}\npython train.py\n"
    cluster = SlurmCluster.of(cluster_from_text(adopted(text, tmp_path).cluster or "", "c.yaml"))
    assert cluster.node.cpus == cpus


def test_what_the_program_itself_is_told_is_not_cured(tmp_path: Path) -> None:
    kept = adopted(
        PER_RANK + "export MASTER_ADDR=$(hostname)\nsrun python train.py --init_method tcp://$MASTER_ADDR:3456\n",
        tmp_path,
    )
    assert "port-fixed" not in kept.cured
    assert "port-fixed" in adopted(TWO_NODES + HEAD + TORCHRUN, tmp_path).cured


def test_a_disk_before_the_gpus_is_none_of_them(tmp_path: Path) -> None:
    cluster = str(
        adopted(PER_RANK.replace("gpu:a100:4", "nvme:400,gpu:a100:4") + "srun python train.py\n", tmp_path).cluster
    )
    assert "accelerators: 4" in cluster
    assert "type: a100" in cluster
    assert 'gres: "nvme:400,gpu:a100:4"' in cluster


def test_the_account_is_known_to_the_command(tmp_path: Path) -> None:
    """Ranks have no SLURM_JOB_ACCOUNT."""
    text = ONE_GPU + "#SBATCH -A abc\npython train.py --out $SCRATCH/${SLURM_JOB_ACCOUNT}/$SLURM_JOB_ID\n"
    assert "exec python train.py --out $SCRATCH/abc/$SLURM_JOB_ID" in adopted(text, tmp_path).job


def test_a_loop_gives_its_own_variable(tmp_path: Path) -> None:
    text = ONE_GPU + "for one in a b; do cp $one $TMPDIR; done\npython train.py\n"
    assert "login_environment" not in str(adopted(text, tmp_path).cluster)


def test_an_argument_in_a_directive_is_put_in_and_said(tmp_path: Path) -> None:
    adoption = adopted(TWO_NODES.replace("nodes=2", "nodes=$1") + HEAD + TORCHRUN, tmp_path, "3")
    assert "instances: 12" in adoption.job
    assert adoption.account.changes == ["line 3: sbatch expands no $1; the job takes 3"]


def words_and_prologue(text: str, folder: Path, *arguments: str) -> tuple[list[str], list[str]]:
    adoption = adopted(text, folder, *arguments)
    command = job_from_text(adoption.job, "j.yaml").command or []
    return list(command), prologue(adoption)


def test_blanks_in_quotes_part_no_words_beside_what_is_expanded(tmp_path: Path) -> None:
    step = "host=$(hostname)\nsrun --ntasks=1 bash -c 'export SEEN='$host' && python -u train.py --lr 1'\n"
    words, _ = words_and_prologue(ONE_GPU + step, tmp_path)
    assert words[:2] == ["bash", "-c"]
    assert "python -u train.py --lr 1" in words[2]
    assert "export SEEN=$host" in words[2]


def test_what_a_variable_holds_only_in_a_run_is_named_where_the_batch_shell_expands_it(tmp_path: Path) -> None:
    step = 'addr=$(hostname)\nsrun bash -c "python train.py --url tcp://$addr:1"\n'
    words, prologue = words_and_prologue(ONE_GPU + step, tmp_path)
    assert "tcp://$addr:1" in words[2]
    assert "export addr=$(hostname)" in prologue
    # What it held before it was set again is not known any more.
    with pytest.raises(AdoptionError, match="known only when the file runs"):
        adopted(
            ONE_GPU + 'addr=$(hostname)\nurl=tcp://$addr:1\naddr=$(date)\nsrun bash -c "python a.py $url"\n', tmp_path
        )


def test_a_loop_over_the_arguments_stays_a_loop(tmp_path: Path) -> None:
    text = (
        ONE_GPU
        + 'small=0\nfor one in "$@"; do\n  [[ $one == --small ]] && small=1 && break\ndone\npython train.py $small\n'
    )
    for given in ((), ("a b", "--large")):
        _, prologue = words_and_prologue(text, tmp_path, *given)
        assert any(line.startswith("for one in") for line in prologue)
        assert "small=1" not in prologue
        assert [line for line in prologue if line.startswith("set --")] == (["set -- 'a b' --large"] if given else [])


def test_an_array_that_nobody_asks_for_is_none(tmp_path: Path) -> None:
    text = 'if [ -z "$SLURM_ARRAY_TASK_ID" ]; then\n  python train.py\nelse\n  python train.py --seed $SLURM_ARRAY_TASK_ID\nfi\n'
    assert words_and_prologue(ONE_GPU + text, tmp_path)[0] == ["python", "train.py"]
    assert words_and_prologue(ONE_GPU + "#SBATCH --array=0-3\n" + text, tmp_path)[0][:2] == ["bash", "-c"]


def test_what_awk_and_sed_are_given_is_used(tmp_path: Path) -> None:
    text = "N=3\nOLD=abc\nexport FIRST=$(awk -v n=$N '{print $1*n}' a)\nexport T=$(sed -e s/$OLD/x/ -e 's/b/c/' f)\n"
    prologue = words_and_prologue(ONE_GPU + text + "python train.py\n", tmp_path)[1]
    assert {"N=3", "OLD=abc"} <= set(prologue)


def test_an_argument_that_nobody_gives_is_told(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "export DATA=$1\npython train.py\n", tmp_path)
    assert [one.line for one in adoption.account.lost] == [4]


def test_what_git_would_change_is_the_projects_and_not_its_copys(tmp_path: Path) -> None:
    text = "git pull || exit 1\ngit -C . checkout -q v2\ngit log -1 > version.txt\npython train.py\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert [one.line for one in adoption.account.lost] == [4, 5]
    assert "git log -1 > version.txt" in cluster_from_text(adoption.cluster or "", "c.yaml").prologue


def test_what_a_substitution_pipes_is_not_the_output_of_ranks(tmp_path: Path) -> None:
    adoption = adopted(
        ONE_GPU + "srun python train.py $(head -n 3 runs.txt 2>/dev/null | tail -n 1) | tee log\n", tmp_path
    )
    assert [one.text for one in adoption.account.sorted if one.text[:1] in "|>2"] == ["| tee log"]


def test_the_only_script_that_is_not_here_trains(tmp_path: Path) -> None:
    assert words_and_prologue(ONE_GPU + "bash scripts/run.sh --lr 1\n", tmp_path)[0] == [
        "bash",
        "scripts/run.sh",
        "--lr",
        "1",
    ]
    nothing, elsewhere = "starts nothing that trains", "starts a.sh, which is not here"
    for text, said in (("submit_all.sh", nothing), ("setup_env.sh", nothing), ("a.sh\nbash b.sh", elsewhere)):
        with pytest.raises(AdoptionError, match=said):
            adopted(f"{ONE_GPU}bash {text}\n", tmp_path)


def test_a_program_that_an_argument_names_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(AdoptionError, match="what an argument of the file names"):
        adopted(ONE_GPU + "python3.6 $*\n", tmp_path)


def test_the_file_itself_is_its_copy_in_the_project(tmp_path: Path) -> None:
    _, prologue = words_and_prologue(ONE_GPU + "cp $0 /out/\npython train.py\n", tmp_path)
    assert prologue[-1] == "cp $TRAINJOB_RUN_DIR/code/project/train.sbatch /out/"


def test_a_container_within_the_shell_of_a_rank_that_has_one_is_refused(tmp_path: Path) -> None:
    text = "srun bash -c 'apptainer exec a.sif python get.py && apptainer exec a.sif python train.py'\n"
    with pytest.raises(AdoptionError, match="containers one after another"):
        adopted(ONE_GPU + text, tmp_path)


def test_variables_of_perl_and_awk_are_none_of_the_shells(tmp_path: Path) -> None:
    text = "perl -e 'print $slots' > hosts\nawk '{ print $value }' hosts > more\necho $SITE > here\npython train.py\n"
    adoption = adopted(ONE_GPU + text, tmp_path)
    assert [one.text for one in adoption.account.entries if "login_environment" in one.what] == ["$SITE"]


def test_a_folder_below_that_of_the_submission_is_told(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "here=$PWD\ncd $here/code\npython train.py\n", tmp_path)
    moved = [(one.where.value, one.what) for one in adoption.account.sorted if one.text == "cd $here/code"]
    assert "not carried over" in moved[0] or moved[0][1] == "command"


def test_a_move_in_a_branch_is_no_way_back_from_the_nodes_disk(tmp_path: Path) -> None:
    text = (
        "cd $SLURM_TMPDIR\npython -m venv env\nif [ -d /x ]; then\n  cd /x\nfi\ncp a b\ncd $CODE/src\npython train.py\n"
    )
    _, prologue = words_and_prologue(ONE_GPU + text, tmp_path)
    at = prologue.index("python -m venv env")
    assert prologue[at - 1] == 'cd "$SLURM_TMPDIR"'


def test_an_array_of_sbatchs_command_line_is_told(tmp_path: Path) -> None:
    for body, lost in (
        ("python train.py --seed $SLURM_ARRAY_TASK_ID\n", ["--array"]),
        ("SEED=$SLURM_ARRAY_TASK_ID\nsrun python train.py --seed $SEED\n", ["--array"]),
        ("python train.py --seed ${SLURM_ARRAY_TASK_ID:-0}\necho $SLURM_ARRAY_TASK_ID\n", []),
    ):
        assert [one.text for one in adopted(ONE_GPU + body, tmp_path).account.lost] == lost
        assert adopted(ONE_GPU + "#SBATCH --array=0-3\n" + body, tmp_path).account.lost == []


def test_a_file_that_submits_itself_as_an_array_wants_the_array(tmp_path: Path) -> None:
    first = 'if [ -z "$SLURM_ARRAY_TASK_ID" ]; then\n  sbatch --array=1-$(wc -l < runs) "$0"\n  exit\nfi\n'
    text = ONE_GPU + first + "python train.py $SLURM_ARRAY_TASK_ID\n"
    with pytest.raises(AdoptionError, match="submits the file itself as an array"):
        adopted(text, tmp_path)
    path = tmp_path / "train.sbatch"
    given = adopt(path, tmp_path, options=("--array=1-9",))
    assert job_from_text(given.job, "j.yaml").array == "1-9"


def test_a_process_for_each_gpu_counts_those_that_the_file_leaves(tmp_path: Path) -> None:
    text = (
        ONE_GPU.replace("gpu:1", "gpu:8")
        + "export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --standalone --nproc_per_node=gpu train.py\n"
    )
    adoption = adopted(text, tmp_path)
    assert adoption.account.changes == ["line 5: 2 of 8 GPUs on each node would get a process; the job starts 8"]
