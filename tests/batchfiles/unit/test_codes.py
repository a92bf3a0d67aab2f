"""Each fault of a batch file: a file that has it, and one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchfiles.rules.codes import CODES, Finding, Severity
from batchfiles.rules.diagnosis import diagnosis_of
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import read_script, script_of
from tests.support.cases import each
from trainjob.cluster.nodes import Nodes

HEAD = """\
#!/bin/bash
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={tasks}
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --output=train-%j.log
#SBATCH --open-mode=append
#SBATCH --signal=USR1@120
#SBATCH --requeue
{more}
set -eo pipefail
export OMP_NUM_THREADS=8
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
"""
TORCHRUN = "torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py"
RIGHT = f"srun --kill-on-bad-exit=1 {TORCHRUN}\n"


def job(body: str, more: str = "", nodes: int = 2, tasks: int = 1) -> str:
    """Return a batch file without a fault, but for its `body` and what it asks for beside."""
    return HEAD.format(nodes=nodes, tasks=tasks, more=more) + body


def without(text: str, *removed: str) -> str:
    """Return `text` without the lines that contain one of `removed`."""
    return "".join(f"{line}\n" for line in text.splitlines() if not any(word in line for word in removed))


def found(text: str | bytes, site: SiteFacts | None = None) -> list[Finding]:
    """Return the faults of a file."""
    raw = text.encode() if isinstance(text, str) else text
    return list(diagnosis_of(script_of(Path("train.sbatch"), raw, site or SiteFacts())).findings)


DEVICES = "srun -K1 python train.py trainer.devices=4"
A_STEP, TWO_STEPS = (
    "srun -K1 python train.py 1 &\n",
    "srun -K1 python train.py 1 &\nsrun -K1 python train.py 2 &\nwait\n",
)
ALONE = "torchrun --standalone --nproc-per-node=4 train.py\n"
PER_RANK = "srun --kill-on-bad-exit=1 bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS python train.py'\n"
ONE_A_TASK = "srun --kill-on-bad-exit=1 python train.py\n"
BATCH_SIGNAL = "#SBATCH --signal=B:USR1@120"
RIGHT_JOB = job(RIGHT)

# What sbatch refuses (asked, Slurm 22.05), and what it takes.
VALUES = [
    *[
        ("--time=2h", "--time=2-00"),
        ("--time=1-2:", "--time=2-"),
        ("--time=$LIMIT", "--time=100:00:00"),
        ("--mem=4GX", "--mem=4GB"),
        ("--mem=64GiB", "--mem=64g"),
    ],
    *[
        ("--mem-per-cpu=4.5G", "--mem-per-cpu=4500M"),
        ("--gpus-per-node=${GPUS:-1}", "--gpus-per-node=a100:4"),
        ("--gres=gpu:4:4", "--gres=gpu:80gb:4"),
        ("--gres=4", "--gres=gpu"),
    ],
    *[
        ("--gres=gpu:a100:4:1", "--gres=gpu:a100:4,nvme:100G"),
        ("--nodes=$N", "--nodes=2-4"),
        ("--ntasks=four", "--ntasks='2'"),
        ("--ntasks=3", "--ntasks=2"),
        ("-c=8", "-c 8"),
    ],
    *[
        ("--cpus-per-task=8;", "--cpus-per-task=8#cores"),
        ("--signal=FOO@120", "--signal=SIGUSR1@90"),
        ("--exclusive=yes", "--exclusive=user"),
    ],
    *[("--mail-type=ENDED", "--mail-type=END,FAIL"), ("--requeue=1", "--no-requeue"), ("--time=", "--time=infinite")],
]
REPEATED = """\
trap 'kill -USR1 $PID' USR1
srun -K1 python train.py &
PID=$!
while kill -0 $PID 2>/dev/null; do
  wait $PID && code=0 || code=$?
done
exit $code
"""

CASES: dict[str, list[tuple[str | bytes, str | bytes]]] = {
    "nnodes-missing": [
        (without(job("# sbatch -N 4 train.sbatch\nsrun -K1 torchrun --nproc-per-node=4 train.py\n"), "nodes=2"), without(job("# sbatch -N 1 train.sbatch\nsrun -K1 torchrun --nproc-per-node=4 train.py\n"), "nodes=2")),
        (job("if srun -K1 python -m torch.distributed.run --nproc_per_node 4 --rdzv-endpoint=$MASTER_ADDR:0 train.py; then echo; fi\n"), RIGHT_JOB),
        (job("srun -K1 torchrun --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:0 train.py\n"), RIGHT_JOB),
        (job("srun -K1 python -m torch.distributed.run --nnodes 1 --nproc_per_node 4 train.py\n"), job("export PET_NNODES=2\nsrun -K1 torchrun --nproc-per-node=4 train.py\n")),
    ],
    "rank-expanded-early": [(job("cat > r.sh <<EOF\nexport RANK=$SLURM_PROCID\npython train.py\nEOF\nsrun -K1 bash r.sh\n", tasks=4), job("cat > r.sh <<'EOF'\nexport RANK=$SLURM_PROCID\npython train.py\nEOF\nsrun -K1 bash r.sh\n", tasks=4)),
        (job("export CACHE=/tmp/cache-$SLURM_LOCALID\n" + RIGHT), job("export CACHE=/tmp/cache-$SLURM_NODEID\n" + RIGHT)),
        (job("export ERROR_FILE=errors/$SLURM_NODEID.json\n" + RIGHT), job("export ERROR_FILE=errors/$SLURM_JOB_ID.json\n" + RIGHT)),
        (job(RIGHT.replace("c10d", "static").replace("--nnodes", "--node-rank=$SLURM_NODEID --nnodes")), RIGHT_JOB),
        (job(PER_RANK.replace("'", '"'), tasks=4), job(PER_RANK, tasks=4)),
        (job("export RANK=$SLURM_PROCID\nsrun -K1 python train.py\n", tasks=4), job("echo $SLURM_PROCID\nsrun -K1 python train.py\n", tasks=4)),
    ],
    "count-with-type": [
        (job("torchrun --standalone --nproc-per-node=$SLURM_GPUS_PER_NODE train.py\n", nodes=1).replace("node=4", "node=a100:4"), job("torchrun --standalone --nproc-per-node=$SLURM_GPUS_PER_NODE train.py\n", nodes=1)),
        (job("G=$SLURM_GPUS_PER_NODE\nN=$((G * 2))\n" + RIGHT).replace("node=4\n#SBATCH --ex", "node=a100:4\n#SBATCH --ex"), job("G=${SLURM_GPUS_PER_NODE##*:}\nN=$((G * 2))\n" + RIGHT).replace("node=4\n#SBATCH --ex", "node=a100:4\n#SBATCH --ex")),
        (job("N=$(($SLURM_NNODES * $SLURM_GPUS_PER_NODE))\n" + RIGHT).replace("node=4\n#SBATCH --ex", "node=a100:4\n#SBATCH --ex"), job("G=$SLURM_GPUS_PER_NODE\nG=${G##*:}\nN=$((SLURM_NNODES * G))\n" + RIGHT).replace("node=4\n#SBATCH --ex", "node=a100:4\n#SBATCH --ex")),
    ],
    "nodes-not-given": [(job(RIGHT, "#SBATCH --ntasks=1"), job(RIGHT, "#SBATCH --ntasks=2"))],
    "nodes-disagree": [(without(job("srun -K1 python train.py trainer.devices=4\n", "#SBATCH --ntasks=4", nodes=1), "ntasks-per-node"), job("srun -K1 python train.py trainer.devices=4\n", nodes=1, tasks=4)),
        (job("python train.py trainer.devices=4\n", nodes=1, tasks=4), job("python train.py trainer.n_gpus_per_node=4\n", nodes=1, tasks=4)),
        (job("srun -K1 train --distributed-world-size 2\n", tasks=4), job("srun -K1 train --distributed-world-size 8\n", tasks=4)),
        (job("srun -K1 python train.py trainer.devices=4\n"), job("srun -K1 python train.py trainer.devices=4\n", tasks=4)),
        (job(RIGHT.replace("$SLURM_NNODES", "4")), RIGHT_JOB),
        (job(RIGHT.replace("srun", "srun --ntasks=1")), job(RIGHT.replace("srun", "srun --ntasks=1").replace(".py\n", ".py &\n") + RIGHT)),
        (job(ALONE.replace("--standalone", "--nnodes=2"), nodes=1), job(ALONE.replace("--standalone", "--nnodes=2 --master-addr=gpu01"), nodes=1)),
        (job("srun -K1 python train.py --world-size 10\n", tasks=4), without(job("srun -K1 python gridworld.py --world-size 10\n", tasks=4), "MASTER")),
        (job("srun -K1 python train.py --world-size 2\n", tasks=4), job("srun -K1 python convert.py --world-size 2\n", tasks=4)),
        (job("srun -K1 python train.py --world-size 2\n", tasks=4), job("srun -K1 python spawn.py --world-size 8\n")),
        (job("srun -K1 train --distributed-world-size 8\n", nodes=1, tasks=4), job("for n in 0 1; do srun -K1 train --distributed-world-size 8 & done\nwait\n", nodes=1, tasks=4)),
        (job(RIGHT.replace("srun", "srun -n1")), job(f"for n in 0 1; do srun -N1 -n1 {TORCHRUN} & done\nwait\n")),
        (job(RIGHT.replace("$SLURM_NNODES", "4")), job("G=$(nvidia-smi -L | wc -l)\n" + RIGHT.replace("srun", "srun --ntasks-per-node=$G").replace("$SLURM_NNODES", "4"))),
        (job("srun -K1 --ntasks-per-node=2 python train.py --trainer.devices 4\n"), job("G=$(nvidia-smi -L | wc -l)\nsrun -K1 --ntasks-per-node=$G python train.py --trainer.devices 4\n")),
        (job(f"{DEVICES}\n"), job(f"export SLURM_JOB_NAME=bash\n{DEVICES}\n")),
        (job(f"{DEVICES}\n", "#SBATCH -J fit"), job(f"{DEVICES}\n", "#SBATCH -J interactive")),
        (without(job(f"{DEVICES}\n", "#SBATCH --ntasks=4", nodes=1), "ntasks-per-node"), without(job(DEVICES.replace("srun", "srun -J bash"), "#SBATCH --ntasks=4", nodes=1), "ntasks-per-node")),
        (job("python train.py trainer.devices=4\n", nodes=1, tasks=4), job("unset SLURM_NTASKS\npython train.py trainer.devices=4\n", nodes=1, tasks=4)),
    ],
    "node-rank-same": [
        (job("srun -K1 torchrun --nnodes=2 --nproc-per-node=4 --master_addr=$MASTER_ADDR train.py\n"), RIGHT_JOB),
        (job("srun -K1 torchrun --nnodes=2 --node-rank=0 --nproc-per-node=4 --master_addr=$MASTER_ADDR train.py\n"), job("srun -K1 bash -c 'torchrun --nnodes=2 --node-rank=$SLURM_NODEID --nproc-per-node=4 --master_addr=$MASTER_ADDR train.py'\n")),
        (job("srun -K1 accelerate launch --num_machines 2 --num_processes 8 --main_process_ip $MASTER_ADDR train.py\n"), job("srun -K1 accelerate launch --config_file a.yaml --num_machines 2 --num_processes 8 --main_process_ip $MASTER_ADDR train.py\n")),
    ],
    "addr-differs": [
        (job("srun -K1 bash -c 'export MASTER_ADDR=$(hostname); python train.py'\n", tasks=4), job("export MASTER_ADDR=$(hostname)\nsrun -K1 python train.py\n", tasks=4)),
        (job("srun -K1 bash -c 'export MASTER_PORT=$((9000 + RANDOM % 99)); python train.py'\n", tasks=4), job("srun -K1 bash -c 'export MASTER_PORT=$((9000 + SLURM_JOB_ID % 99)); python train.py'\n", tasks=4)),
        (job("srun -K1 bash -c '" + TORCHRUN.replace("$MASTER_ADDR", "$(hostname)") + "'\n"), job("srun -N1 -n1 bash -c '" + TORCHRUN.replace("$MASTER_ADDR", "$(hostname)") + "'\n")),
        (job("draw() {\n  shuf -i 9000-9999 -n 1\n}\nplace() {\n  export MASTER_PORT=$(draw)\n}\nexport -f draw place\nsrun -K1 bash -c 'place; python train.py'\n", tasks=4), job("place() {\n  export MASTER_PORT=$((20000 + SLURM_JOB_ID % 999))\n}\nexport -f place\nsrun -K1 bash -c 'place; python train.py'\n", tasks=4)),
    ],
    "hosts-by-name": [(job(RIGHT.replace("$MASTER_ADDR", "$SLURM_SUBMIT_HOST")), job(RIGHT.replace("$MASTER_ADDR", "$HEAD"))),
        (job("horovodrun -np 8 -H gpu01:4,gpu02:4 python train.py\n"), job("horovodrun -np 8 -H $HOSTS python train.py\n")),
        (job(RIGHT.replace("$MASTER_ADDR", "10.0.0.7")), job(RIGHT.replace("$MASTER_ADDR", "10.0.0.7"), "#SBATCH --nodelist=gpu[1-2]")),
        (job("export MASTER_ADDR=gpu01\nsrun -K1 python train.py\n", tasks=4), job("export MASTER_ADDR=${HEAD:-gpu01}\nsrun -K1 python train.py\n", tasks=4)),
    ],
    "step-beyond-job": [
        (job(RIGHT.replace("srun", "srun --nodes=4")), job(RIGHT.replace("srun", "srun --nodes=2"))),
        (job(RIGHT.replace("srun", "srun --gres=gpu:8")), job(RIGHT.replace("srun", "srun --gres=gpu:4"))),
    ],
    "step-waits": [(job("srun -K1 bash -c 'srun python train.py'\n"), job("srun -K1 bash -c 'srun --overlap python train.py'\n")),
        (job("for s in 1 2; do srun -n1 python train.py $s & done\nwait\n", nodes=1, tasks=2), job("for s in 1 2; do srun -n1 --exact --gpus=1 python train.py $s & done\nwait\n", nodes=1, tasks=2)),
        (job("srun -n1 -c4 --gpus=1 python a.py &\nsrun -n1 -c4 --gpus=1 python b.py &\nwait\n", "#SBATCH --mem=8G", nodes=1, tasks=2), job("srun -n1 -c4 --gpus=1 python a.py &\nwait\nsrun -n1 -c4 --gpus=1 python b.py &\nwait\n", "#SBATCH --mem=8G", nodes=1, tasks=2)),
        (job(f"if [ $TWICE ]; then\n{TWO_STEPS}fi\n", nodes=1), job(f"if [ $SMALL ]; then\n{A_STEP}else\n{A_STEP}fi\nwait\n", nodes=1)),
        (job(f"case $MODE in\n  twice) {TWO_STEPS} ;;\nesac\n", nodes=1), job(f"case $MODE in\n  small) {A_STEP} ;;\n  *) {A_STEP} ;;\nesac\nwait\n", nodes=1)),
        (job(f"fit() {{\n{A_STEP}}}\nfit\ntrap 'kill $!' TERM\nfit\nwait\n", nodes=1), job(f"fit() {{\n{A_STEP}pid=$!\n}}\nfit\nwait $pid\nfit\nwait $pid\n", nodes=1)),
        (job(f"for n in 1 2; do\n{A_STEP}sleep 5\ndone\nwait\n", nodes=1), job(f"for n in 1 2; do\n{A_STEP}while kill -0 $!; do sleep 5; done\ndone\n", nodes=1)),
        (job(f"{A_STEP}sleep 9\n{A_STEP}wait\n", nodes=1), job(f"{A_STEP}until [ -f done ]; do sleep 9; done\n{A_STEP}wait\n", nodes=1)),
        (job(TWO_STEPS, nodes=1), job("export SLURM_OVERLAP=1\n" + TWO_STEPS, nodes=1)),
        (job(TWO_STEPS, nodes=1), job("export SLURM_EXACT=1\n" + TWO_STEPS, nodes=1)),
        (job(TWO_STEPS, nodes=1), job("export SRUN_CPUS_PER_TASK=1\n" + TWO_STEPS, nodes=1)),
        (job(TWO_STEPS, nodes=1), job(TWO_STEPS.replace("srun", "srun --overlap"), nodes=1)),
        (job(TWO_STEPS, nodes=1), job(TWO_STEPS.replace("srun", "srun -N1"), "#SBATCH hetjob\n#SBATCH --nodes=1")),
        (job(TWO_STEPS, nodes=1), without(job(TWO_STEPS.replace("srun", "srun -n1"), "#SBATCH --ntasks=2"), "nodes=", "ntasks-per-node")),
    ],
    "argument-swallowed": [(job("bash one_train.sh\\\nbash two_train.sh\n", nodes=1), job("bash one_train.sh \\\n  bash two_train.sh\n", nodes=1))],
    "sbatch-of-a-program": [(job("sbatch python train.py &\nwait $!\n", nodes=1), job("sbatch --wrap='python train.py'\n" + ALONE, nodes=1)), (job("sbatch -N 1 torchrun train.py\n", nodes=1), job("sbatch python.sbatch a\n" + ALONE, nodes=1))],
    "device-beyond-gpus": [(without(job("export CUDA_VISIBLE_DEVICES=4,5,6,7\n" + ALONE, nodes=1), "exclusive"), without(job("export CUDA_VISIBLE_DEVICES=0,1,2,3\n" + ALONE, nodes=1), "exclusive"))],
    "container-without-gpus": [(job("apptainer exec -B /data a.sif python train.py\n", nodes=1), job("apptainer exec --nv a.sif python train.py\n", nodes=1)), (job("docker run --rm a python train.py\n", nodes=1), job("docker run --gpus all --rm a python train.py\ndocker exec a python train.py\napptainer exec instance://a python train.py\n", nodes=1))],
    "conda-without-hook": [(job("module purge\nmodule load cuda/12.1 gcc\nconda activate a\npython train.py\n", nodes=1), job("module load ml-tools\nconda activate a\npython train.py\n", nodes=1)), (job("conda activate a\npython train.py\n", nodes=1), job('eval "$(conda shell.bash hook)"\nconda activate a\npython train.py\n', nodes=1))],
    "tasks-times-torchrun": [(job("srun -K1 deepspeed --include=localhost:0,1 train.py\n", nodes=1, tasks=2), job("srun -K1 deepspeed --include=localhost:0,1 train.py\n", nodes=1)), (job("srun -K1 accelerate launch --use_deepspeed --num_machines 2 --num_processes 8 --machine_rank $1 --main_process_ip $MASTER_ADDR train.py\n"), job("srun -K1 accelerate launch --use_deepspeed --deepspeed_multinode_launcher standard --num_machines 2 --num_processes 8 --machine_rank $1 --main_process_ip $MASTER_ADDR train.py\n")), (job("srun -K1 deepspeed --hostfile hosts train.py\n"), job("srun -K1 deepspeed --hostfile hosts --no_ssh --node_rank=$1 train.py\n")), (job(RIGHT, tasks=4), job(RIGHT)), (job(RIGHT.replace("srun", "srun --ntasks-per-node=1"), tasks=4), job(RIGHT.replace("srun", "srun --nodes=2 --ntasks-per-node=1"), tasks=4))],
    "script-dir-is-spool": [
        (
            job('HERE=$(dirname "$0")\nif [ -n "$SLURM_JOB_ID" ]; then TOP=.; fi\ncd "$HERE"\n' + RIGHT),
            job('HERE=$(dirname "$0")\nif [ -d "$SLURM_SUBMIT_DIR/src" ]; then TOP=$SLURM_SUBMIT_DIR; else TOP=$HERE/..; fi\ncd "$TOP"\n' + RIGHT),
        ),
        (job('cd "$(dirname "$0")"\n' + RIGHT), job('cd "$SLURM_SUBMIT_DIR"\n' + RIGHT)),
        (job('HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n' + RIGHT), job('HERE="${SLURM_SUBMIT_DIR:-$(dirname "$0")}"\n' + RIGHT)),
        (job("HERE=${0%/*}\n" + RIGHT), job('if [ -z "$SLURM_JOB_ID" ]; then HERE=$(dirname "$0"); fi\n' + RIGHT)),
        (job('HERE=$(dirname "$0")\nif [ -n "$SLURM_JOB_ID" ]; then python $HERE/train.py; fi\n', nodes=1), job('HERE=$(dirname "$0")\nif [ -z "$SLURM_JOB_ID" ]; then python $HERE/train.py; fi\n', nodes=1)),
        ('#!/bin/bash\n# sbatch train.sbatch\ncd "$(dirname "$0")"\npython train.py\n', '#!/bin/bash\n# sourced by run.sbatch: sbatch run.sbatch\ncd "$(dirname "$0")"\npython train.py\n'),
        ('#!/bin/bash\n[ $SLURM_JOB_ID ] || { echo "use sbatch"; exit 1; }\ncd "$(dirname "$0")"\npython train.py\n', '#!/bin/bash\n# to sbatch all\ncd "$(dirname "$0")"\nsbatch -N 2 a.sbatch\n'),
    ],
    "signal-kills-batch": [(job(RIGHT, BATCH_SIGNAL), job("trap 'kill -USR1 $!' USR1\nsrun -K1 python train.py &\nwait $!\n", BATCH_SIGNAL))],
    "signal-never-arrives": [(job("trap 'echo save' USR1\n" + ALONE, nodes=1), job("trap 'echo save' USR1\nsrun python train.py & wait $!\n", nodes=1))],
    "trap-deferred": [
        (job("trap 'echo save' USR1\n" + RIGHT, BATCH_SIGNAL), job("trap 'echo save' USR1\nsrun -K1 python train.py &\nwait $!\n", BATCH_SIGNAL))
    ],
    "more-processes-than-gpus": [(without(job("srun -K1 python train.py\n", tasks=96, nodes=1), "MASTER"), without(job("srun -K1 python train.py\n", tasks=4, nodes=1), "MASTER")), (job(ALONE.replace("4", "8"), nodes=1), job(ALONE, nodes=1)), (job("srun -K1 python train.py\n", tasks=8), job("srun -K1 python train.py\n", tasks=4))],
    "gpus-unused": [(job("CUDA_VISIBLE_DEVICES=0 vllm serve m &\n" + ALONE.replace("4", "2"), nodes=1), job("CUDA_VISIBLE_DEVICES=0 vllm serve m &\n" + ALONE.replace("4", "3"), nodes=1)), (job("srun -K1 python train.py\n", tasks=2), job("srun -K1 python train.py\n", tasks=1)), (job("srun -K1 python train.py\n", tasks=3), job("srun -K1 --gpus-per-task=1 python train.py\n", tasks=3)), (job("srun -K1 bash -c 'CUDA_VISIBLE_DEVICES=0,1 python train.py'\n", tasks=2), job("srun -K1 bash -c 'CUDA_VISIBLE_DEVICES=$((2*SLURM_LOCALID)),$((2*SLURM_LOCALID+1)) python train.py'\n", tasks=2)), (job(ALONE + ALONE.replace("4", "1"), nodes=1), job(ALONE + ALONE.replace("4", "1").replace("train.py", "evaluate.py"), nodes=1)), (job("torchrun train.py\n", nodes=1), job(ALONE, nodes=1)), (job("N=2\ntorchrun --nproc-per-node=$N train.py\n", nodes=1), job("N=${SLURM_GPUS_ON_NODE:-1}\ntorchrun --nproc-per-node=$N train.py\n", nodes=1))],
    "addr-undefined": [(job('export MASTER_ADDR=${nodes[0]}\nsrun -K1 python train.py\n', tasks=4), job('mapfile -t nodes < <(scontrol show hostnames $SLURM_JOB_NODELIST)\nexport MASTER_ADDR=${nodes[0]}\nsrun -K1 python train.py\n', tasks=4)), (job("export MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR\nsrun -K1 python train.py\n", tasks=4), job("srun -K1 bash -c 'export MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR; python train.py'\n", tasks=4)),
        (job("head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\nexport MASTER_ADDR=$HEAD\nsrun -K1 python train.py\n"), RIGHT_JOB),
        (job("srun -K1 bash -c 'meet; torchrun --nnodes=2 --nproc-per-node=4 --rdzv-endpoint=$there train.py'\n"), job("meet() { export there=node1:$SLURM_JOB_ID; }\nexport -f meet\nsrun -K1 bash -c 'meet; torchrun --nnodes=2 --nproc-per-node=4 --rdzv-endpoint=$there train.py'\n")),
        (job("there=node1\nsrun -K1 bash -c 'torchrun --nnodes=2 --nproc-per-node=4 --rdzv-endpoint=$there train.py'\n"), job("export there=node1\nsrun -K1 bash -c 'torchrun --nnodes=2 --nproc-per-node=4 --rdzv-endpoint=$there train.py'\n")),
    ],
    "addr-localhost": [
        (job(RIGHT.replace("torchrun", "docker run --gpus all -e OMP_NUM_THREADS a torchrun")), job(RIGHT.replace("torchrun", "docker run --gpus all --network host -e OMP_NUM_THREADS a torchrun"))),
        (job("export MASTER_ADDR=localhost\nsrun -K1 python train.py\n", tasks=4), job("export MASTER_ADDR=localhost\npython train.py\n", nodes=1)),
        (job(RIGHT.replace("$MASTER_ADDR", "127.0.0.1")), RIGHT_JOB),
        (job(RIGHT.replace("--rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT", "--master-addr=$MASTER_ADDR")), RIGHT_JOB),
    ],
    "no-such-option": [
        (job(RIGHT, "#SBATCH --ipu-count=4"), job(RIGHT, "#SBATCH --ipus=4")),
        (job(RIGHT, "#SBATCH --kill-on-bad-exit=1"), job(RIGHT, "#SBATCH --disable-dcgm")),
        (job(RIGHT, "#SBATCH --mpi=pmix"), job(RIGHT, "#SBATCH --tasks-per-node=1")),
        (job(RIGHT, "#SBATCH --cpu-bind=cores"), job(RIGHT, "#SBATCH --mem-bind=local")),
        (job(RIGHT, "#SBATCH --parition=x"), job(RIGHT, "#SBATCH --part=x")),
        (job(RIGHT, "#SBATCH --node=2"), job(RIGHT, "#SBATCH --mail-u=x")),
        (job(RIGHT, "#SBATCH -gres=gpu:4"), job(RIGHT, "#SBATCH -pgpu")),
        (job(RIGHT, "#SBATCH -K1"), job(RIGHT, "#SBATCH -vH")),
    ],
    "directive-ignored": [
        (RIGHT_JOB.replace("#SBATCH --exclusive", "#SBATCh --exclusive"), RIGHT_JOB),
        (RIGHT_JOB.replace("#SBATCH", "# SBATCH"), RIGHT_JOB.replace("#SBATCH --requeue", "#SBATCH --requeue\n# SBATCH --mem=4G")),
        (RIGHT_JOB.replace("#SBATCH --exclusive", "#sbatch --exclusive"), RIGHT_JOB.replace("#SBATCH --exclusive", "#   sbatch --exclusive train.sbatch\n#sbatch --nodes=4 ./train.sbatch")),
        (job("#SBATCH --mem=0\n" + RIGHT), job("cat > other <<EOF\n#SBATCH --mem=0\nEOF\n" + RIGHT)),
        (RIGHT_JOB.replace("#SBATCH --exclusive", "!#SBATCH --exclusive"), RIGHT_JOB.replace("#SBATCH --exclusive", "# SBATCH --nodes=8\n# SBATCH --mem=1G\n#SBATCH --exclusive")),
        (RIGHT_JOB.replace("#SBATCH --exclusive", "  #SBATCH --exclusive"), RIGHT_JOB.replace("#SBATCH --exclusive", "# as SBATCH --exclusive says\n#SBATCH --exclusive")),
    ],
    "shebang-not-first": [(b"\xef\xbb\xbf" + RIGHT_JOB.encode(), RIGHT_JOB), ("# by me\n" + RIGHT_JOB, RIGHT_JOB), (RIGHT_JOB.removeprefix("#!/bin/bash\n"), RIGHT_JOB)],
    "crlf": [(RIGHT_JOB.replace("\n", "\r\n"), RIGHT_JOB)],
    "array-quoted": [
        (job('list=$(scontrol show hostnames)\nnodes=("$list")\n' + RIGHT), job("list=$(scontrol show hostnames)\nnodes=($list)\n" + RIGHT)),
        (job('list=($(scontrol show hostnames))\nrest=("$(scontrol show hostnames)")\n' + RIGHT), job('list=($(scontrol show hostnames))\nrest=("${list[@]:1}")\n' + RIGHT)),
        (job('nodes=("$(scontrol show hostnames)")\n' + RIGHT), job('nodes=("$(scontrol show hostnames | head -n1)")\n' + RIGHT)),
    ],
    "job-never-ends": [(job("tensorboard --logdir $LOGS\n" + ALONE, nodes=1), job("mkdir -p $HOME/logs/tensorboard\n" + ALONE, nodes=1)),
        (job("tensorboard --logdir .\n" + RIGHT), job("pip install torch tensorboard\n" + RIGHT)),
        (job("ray start --head --block &\nray job submit --no-wait -- python train.py\nwait\n"), job("ray start --head --block &\nray job submit -- python train.py\n")),
        (job("ray start --head --block\n" + RIGHT), job("ray start --head --block &\n" + RIGHT)),
        (job("while true; do nvidia-smi; sleep 60; done &\n" + RIGHT + "wait\n"), job("while true; do nvidia-smi; sleep 60; done &\n" + RIGHT)),
        (
            job("trl vllm-serve --model m &\npython train.py &\npid=$!\nwhile kill -0 $pid; do wait $pid; done\nwait\n"),
            job("trl vllm-serve --model m &\nserver=$!\npython train.py\nkill -TERM $server\nwait\n"),
        ),
        (job("tensorboard --logdir . &\n" + RIGHT + "wait\n"), job("tensorboard --logdir . &\nboard=$!\n" + RIGHT + "kill $board\nwait\n")),
        (job("tensorboard --logdir x\n" + ALONE, nodes=1), job("docker run --rm -d img sleep infinity\n" + ALONE, nodes=1)),
    ],
    "command-not-found": [
        (job("--constraint=a100\n" + RIGHT), job(RIGHT, "#SBATCH --constraint=a100")),
        (job(RIGHT + "SBATCH --signal=USR1@90\n"), job(RIGHT + "#SBATCH --signal=USR1@90\n")),
        (job("srun -K1 torchrun \\\n  --nnodes=2 \\\n  --nproc-per-node=4 train.py\n  --lr 1\n"), RIGHT_JOB),
        (job("LR = 1\n" + RIGHT), job("LR=1\n" + RIGHT)),
        (job("modul load cuda\n" + RIGHT), job("module load cuda\n" + RIGHT)),
        (
            job(RIGHT + "EOF\n"),
            job('name=a\ncat > run.sh <<END\npython train.py \\\\\n  --name "$name" \\\\\n  --say "\\"\\$HOME\\"" \\\\\n  --lr 1\nEND\nsrun -K1 bash run.sh\n'),
        ),
    ],
    "unset-variable": [
        (without(job("torchrun --nproc-per-node=$SLURM_GPUS_PER_NODE train.py\n", "#SBATCH --gres=gpu:4", nodes=1), "gpus-per"), job("torchrun --nproc-per-node=$SLURM_GPUS_PER_NODE train.py\n", nodes=1)),
        (job("seeds=(1 2 3)\nseed=$SLURM_ARRAY_TASK_ID\nexport SEED=${seeds[$seed]}\n" + RIGHT, "#SBATCH --array=1-3%2"), job("seeds=(1 2 3)\nseed=$SLURM_ARRAY_TASK_ID\nexport SEED=${seeds[$seed]}\n" + RIGHT, "#SBATCH --array=0-2%3")),
        (job("if [ -z $SLURM_GPUS ]; then exit 1; fi\n" + ALONE, nodes=1), job('if [ -z "${SLURM_GPUS:-}" ]; then echo none; fi\n' + ALONE, nodes=1)),
        (job(ALONE + "# status=$?\nif [ $status -ne 0 ]; then exit 1; fi\n", nodes=1), job(ALONE + "status=$?\nif [ $status -ne 0 ]; then exit 1; fi\n", nodes=1)),
        (job("export RANK=$OMPI_COMM_WORLD_RANK\n" + ALONE, nodes=1), job("mpirun bash -c 'RANK=$OMPI_COMM_WORLD_RANK python train.py'\n", nodes=1)),
        (job("export BATCH_SIZE=8\n" + RIGHT.strip() + " --batch $BATCHSIZE\n"), job("export BATCH_SIZE=8\n" + RIGHT.strip() + " --batch $BATCH_SIZE\n")),
        (job(RIGHT.replace("SLURM_NNODES", "SLURM_NNODE")), RIGHT_JOB),
        (job("data=/d\nsrun -K1 bash -c 'python train.py $data'\n"), job('data=/d\nsrun -K1 bash -c "python train.py $data"\n')),
        (job("seeds=(1 2 3)\nexport SEED=${seeds[$((SLURM_ARRAY_TASK_ID - 1))]}\n" + RIGHT, "#SBATCH --array=1-4"), job("seeds=(1 2 3)\nexport SEED=${seeds[$SLURM_ARRAY_TASK_ID-1]}\n" + RIGHT, "#SBATCH --array=1-3")),
    ],
    "no-srun": [(without(job("# usage: sbatch --qos long -N 2 train.sbatch\npython train.py\n"), "nodes=2"), without(job("# usage: sbatch --nodes=1 train.sbatch\npython train.py\n"), "nodes=2")), (job("python train.py\n"), job("python train.py\n", nodes=1)), (job(TORCHRUN + "\n"), RIGHT_JOB), (job("nsys profile python train.py\n"), job("source /elsewhere/env.sh\n$START python train.py\n"))],
    "tilde-in-output": [(job(RIGHT, "#SBATCH --error=$SLURM_JOB_ID.err"), job(RIGHT, "#SBATCH --error=%j.err")), (job(RIGHT, "#SBATCH --job-name=$USER-train"), job(RIGHT, "#SBATCH --job-name=train")), (job(RIGHT, "#SBATCH --error=~/err-%j.log"), job(RIGHT, "#SBATCH --error=err-%j.log")), (job(RIGHT, "#SBATCH --chdir=$HOME/run"), job(RIGHT, "#SBATCH --comment=$5"))],
    "time-limit-unhandled": [(without(job('if [ -z "$SLURM_JOB_ID" ]; then sbatch "$0"; exit; fi\n' + RIGHT), "signal", "requeue"), without(job('if [ -z "$DONE" ]; then sbatch "$0"; fi\n' + RIGHT), "signal", "requeue")), (without(RIGHT_JOB, "signal", "requeue"), without(job(RIGHT, "#SBATCH --array=0-9%1"), "signal", "requeue")), (without(RIGHT_JOB, "signal", "requeue"), RIGHT_JOB), (without(RIGHT_JOB, "signal", "requeue"), without(RIGHT_JOB, "signal", "requeue") + "sbatch next.sbatch\n")],
    "port-fixed": [
        (job("torchrun --nproc-per-node=4 --master-port=29500 train.py\n", nodes=1), job("torchrun --standalone --nproc-per-node=4 --rdzv-endpoint=$HOSTNAME:29400 train.py\n", nodes=1)),
        (job("cat > run.sh <<EOF\nray start --head --port=6379 --block\nEOF\nsrun -N1 bash run.sh &\n" + RIGHT), job("cat > run.sh <<EOF\nray start --head --port=$MASTER_PORT --block\nEOF\nsrun -N1 bash run.sh &\n" + RIGHT)),
        (job("export MASTER_PORT=29500\n" + RIGHT), job("MASTER_PORT=29500\nwhile nc -z localhost $MASTER_PORT; do ((MASTER_PORT++)); done\n" + RIGHT)),
        (job("srun -K1 python train.py --coordinator=$MASTER_ADDR:12345\n"), job("srun -K1 python train.py --coordinator=$MASTER_ADDR:$MASTER_PORT\n")),
        (job("export JAX_COORDINATOR_ADDRESS=$MASTER_ADDR:1456\n" + RIGHT), RIGHT_JOB),
        (job("export MASTER_PORT=29500\n" + RIGHT), RIGHT_JOB),
        (job("PORT=${PORT:-29500}\n" + RIGHT.replace("$MASTER_PORT", "$PORT")), job(RIGHT.replace("$MASTER_PORT", "0"))),
        (job("export MASTER_PORT=$((29000 + 500))\n" + RIGHT), job("export MASTER_PORT=1${SLURM_JOB_ID:0-4}\n" + RIGHT)),
    ],
    "no-kill-on-bad-exit": [(without(job("srun python train.py\n", tasks=4), "nodes=2"), without(job("srun python train.py\n"), "nodes=2", "exclusive")), (job("if ! srun python train.py; then exit 1; fi\n", tasks=4), job("if ! srun python check_env.py; then exit 1; fi\n" + RIGHT)), (job("until srun python train.py; do sleep 1; done\n", tasks=4), job("srun -N1 -n1 python train.py\n")), (job(RIGHT.replace(" --kill-on-bad-exit=1", "")), RIGHT_JOB), (job(RIGHT.replace(" --kill-on-bad-exit=1", "")), job("export SLURM_KILL_BAD_EXIT=1\n" + RIGHT.replace(" --kill-on-bad-exit=1", "")))],
    "kill-on-bad-exit-0": [(job(RIGHT.replace("exit=1", "exit=0")), RIGHT_JOB)],
    "no-mem": [(without(RIGHT_JOB, "exclusive"), RIGHT_JOB), (without(RIGHT_JOB, "exclusive"), without(job(RIGHT, "#SBATCH --mem-per-cpu=4G"), "exclusive"))],
    "no-time": [(without(RIGHT_JOB, "time="), without(job(RIGHT, "#SBATCH -t 5"), "time="))],
    "no-cpus": [(without(job("deepspeed train.py\n", tasks=4, nodes=1), "exclusive"), without(job("deepspeed train.py\n", tasks=8, nodes=1), "exclusive")), (without(job("srun -K1 python train.py\n", tasks=16, nodes=1), "exclusive"), without(job("python train.py\n", tasks=16, nodes=1), "exclusive")), (without(RIGHT_JOB, "exclusive"), without(job(RIGHT, "#SBATCH -c 8"), "exclusive"))],
    "log-folder-must-exist": [(job(RIGHT, "#SBATCH --err logs/%j.err"), job(RIGHT, "#SBATCH --err=/dev/null")), (job(RIGHT, "#SBATCH --err ../logs/%j.err"), job(RIGHT, "#SBATCH --err=../../%j.err"))],
    "srun-loses-cpus": [
        (job("start=python\nif [ $SLURM_NNODES -gt 1 ]; then start=srun; fi\n$start python train.py\n", "#SBATCH -c8"), job("start=\nif [ $SLURM_NNODES -gt 1 ]; then start=srun; fi\n$start python train.py\n", "#SBATCH -c8", nodes=1)),
        (job("srun -N1 -n1 ray start --head --block &\npython train.py\n", "#SBATCH --cpus-per-task=8"), job("srun -N1 -n1 -c8 ray start --head --block &\npython train.py\n", "#SBATCH --cpus-per-task=8")),
        (job(RIGHT, "#SBATCH --cpus-per-task=8"), job(RIGHT.replace("srun", "srun -c 8"), "#SBATCH --cpus-per-task=8")),
        (job(RIGHT, "#SBATCH -c8"), job("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n" + RIGHT, "#SBATCH -c8")),
    ],
    "exit-code-lost": [(without(job("python training/preflight.py || exit 1\npython training/sft.py &\nwait $!\ncode=$?\nif [ $code -eq 0 ]; then cp a b; fi\n", nodes=1), "set -e"), without(job("python training/preflight.py || exit 1\npython training/sft.py &\nwait $!\ncode=$?\nif [ $code -eq 0 ]; then cp a b; fi\nexit $code\n", nodes=1), "set -e")), (job("for ((i = 1; i <= N; i++)); do sleep 1; done\npython train.py | tee log\n", nodes=1).replace("set -eo pipefail\n", ""), job("for ((i = 1; i <= N; i++)); do sleep 1; done\npython train.py\n", nodes=1).replace("set -eo pipefail\n", "")), (job("singularity run --nv a.sif --config=a\ndate\n", nodes=1).replace("set -eo pipefail\n", ""), job("date\nsingularity run --nv a.sif --config=a\n", nodes=1).replace("set -eo pipefail\n", "")),
        (job("srun -K1 bash -c 'python train.py; apt-get clean'\n", nodes=1), job("srun -K1 bash -c 'apt-get install -y git; python train.py'\n", nodes=1)),
        (without(job("python train.py\necho done\nexit $status\n", nodes=1), "set -e"), without(job("python train.py\nstatus=$?\necho done\nexit $status\n", nodes=1), "set -e")),
        (job("srun -K1 bash -c 'python train.py; echo done'\n", nodes=1), job("srun -K1 bash -e -c 'python train.py; echo done'\n", nodes=1)),
        (job("srun -K1 bash +e -c 'python train.py; echo done'\n", nodes=1), job("srun -K1 bash -o errexit -c 'python train.py; echo done'\n", nodes=1)),
        (job("code=0\npython train.py || echo $?\nexit $code\n", nodes=1), job("code=0\npython train.py || code=$?\nexit $code\n", nodes=1)),
        (job("bash -c 'python train.py --part a; python train.py --part b'\n", nodes=1), job("bash -c 'python train.py --part a && python train.py --part b'\n", nodes=1)),
        (without(job("julia --project=. -t 4 prepare.jl\njulia -t 4 fit.jl -e 3\n", nodes=1), "set -e"), without(job("julia --project=. -t 4 -e 'using Pkg'\nRscript --vanilla -e 'f()'\njulia fit.jl\n", nodes=1), "set -e")),
        (without(job("for i in 0 1; do\n  Rscript fit.R $i\ndone\n", nodes=1), "set -e"), job("for i in 0 1; do\n  Rscript fit.R $i\ndone\n", nodes=1)),
        (job("if ! " + RIGHT.strip() + "; then echo failed; fi\necho done\n"), job("if ! " + RIGHT.strip() + "; then echo failed; exit 1; fi\necho done\n")),
        (job("set +e\n" + RIGHT + "echo ==\nexit $?\n"), job("set +e\n" + RIGHT + "exit $?\n")),
        (job("set +e\nfor lr in 1 2; do\n  srun -K1 python train.py --lr $lr\n  [ $? -ne 0 ] && continue\ndone\necho done\n"), job("for lr in 1 2; do\n  srun -K1 python train.py --lr $lr\ndone\necho done\n")),
        (job("set +e\n" + RIGHT + RIGHT.replace("train.py", "finetune.py")), job(RIGHT + RIGHT.replace("train.py", "finetune.py"))),
        (job("set +e\nrun() {\n  local code=0\n  srun -K1 python train.py\n  date\n  return $code\n}\nrun\n"), job("set +e\nrun() {\n  srun -K1 python train.py\n  local code=$?\n  date\n  return $code\n}\nrun\n")),
        (job("set +e\n" + RIGHT.strip() + " | tee log\necho done\n"), job("set +e\n" + RIGHT.strip() + " | tee log\nexit ${PIPESTATUS[0]}\n")),
        (job("set +e\n" + RIGHT + "echo done\n"), job(RIGHT + "echo done\n")),
        (job("set +o pipefail\n" + RIGHT.strip() + " | tee log\n"), job(RIGHT.strip() + " | tee log\n")),
        (job("set +e\nsrun -K1 train.sh\necho\n"), job("set +e\nsrun -K1 config_env.sh\n" + RIGHT)),
        (job("set +e\n" + RIGHT + "exit 0\n"), job("set +e\n" + RIGHT + "code=$?\ndate\nexit $code\n")),
        (job("python train.py &\nwait\n", nodes=1), job("python train.py &\nwait $!\n", nodes=1)),
        (job(RIGHT.strip() + " || true\n"), job(RIGHT.strip() + " || exit 1\n")),
    ],
    "addr-hostname-ip": [(job("head_ip=$(hostname -i)\necho $head_ip\nhead_ip=$(hostname)\nexport head_ip\n" + RIGHT), job("head_ip=$(hostname -i)\nhead_ip=$(hostname)\nexport head_ip\n" + RIGHT)), (job("head_ip=$(hostname -i)\ntorchrun --nproc-per-node=4 --rdzv-endpoint=$head_ip:0 train.py\n", nodes=1), job("head_ip=$(hostname -i)\ntorchrun --standalone --nproc-per-node=4 --rdzv-endpoint=$head_ip:0 train.py\n", nodes=1)), (job("HEAD_IP=$(hostname -i)\n" + RIGHT.replace("MASTER_ADDR", "HEAD_IP")), job("HEAD_IP=$(hostname -i)\necho $HEAD_IP\n" + RIGHT)), (job("export MASTER_ADDR=$(hostname -I | cut -d' ' -f1)\n" + RIGHT), RIGHT_JOB), (job("head_node_ip=$(srun -N1 -n1 hostname --ip-address)\n" + RIGHT.replace("MASTER_ADDR", "head_node_ip")), RIGHT_JOB)],
    "output-overwritten": [(without(job(RIGHT, "#SBATCH -o train.log"), "append"), without(job(RIGHT, "#SBATCH -o %x.%A_%a.log"), "append"))],
    "requeue-truncates-log": [(without(RIGHT_JOB, "append"), RIGHT_JOB)],
    "requeue-without-signal": [(without(RIGHT_JOB, "signal"), RIGHT_JOB)],
    "addr-from-compressed-list": [
        (job("export MASTER_ADDR=${SLURM_JOB_NODELIST%%,*}\n" + RIGHT), RIGHT_JOB),
        (job("IFS=, read -ra names <<< $SLURM_NODELIST\nexport MASTER_ADDR=${names[0]}\n" + RIGHT), RIGHT_JOB),
    ],
    "addr-guessed-from-name": [(job("MASTER_ADDR=10.0.0.$(hostname | tr -dc 0-9)\n" + RIGHT), RIGHT_JOB)],
    "installs-in-job": [(job("srun -N2 bash <<EOF\npip install torch\nEOF\n" + RIGHT), job("cat <<EOF\npip install torch\nEOF\n" + RIGHT)), (job("pip install -q einops\n" + RIGHT), job("echo pip install einops\n" + RIGHT)), (job("uv sync\n" + RIGHT), job("uv run --no-sync python -V\n" + RIGHT))],
    "server-sleep-ready": [(job("vllm serve m --port $P &\nsleep 60\n" + RIGHT), job("vllm serve m --port $P &\nuntil curl -sf localhost:$P; do sleep 1; done\n" + RIGHT)), (job("python serve.py &\nsleep 30\n" + RIGHT), job("python watch.py &\nsleep 30\n" + RIGHT))],
    "ray-sleep-ready": [(job("srun -N1 -n1 ray start --head &\nsleep 9\n" + RIGHT), job("srun -N1 -n1 ray start --head &\nuntil srun -N1 -n1 --overlap ray status; do sleep 1; done\n" + RIGHT)), (job("ray start --head --port=0\nsleep 20\n" + RIGHT), job("ray start --head --port=0\nuntil ray status; do sleep 1; done\n" + RIGHT))],
    "sets-visible-devices": [(
        job("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model m &\nCUDA_VISIBLE_DEVICES=0 python train.py\n", nodes=1),
        job("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model m &\nCUDA_VISIBLE_DEVICES=1 python train.py\n", nodes=1),
    ), (job("export CUDA_VISIBLE_DEVICES=0,1\n" + RIGHT), job("echo $CUDA_VISIBLE_DEVICES\n" + RIGHT))],
    "secret-in-script": [
        (job("export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n" + RIGHT), job("export WANDB_API_KEY=$(cat ~/.key)\n" + RIGHT)),
        (job("export HF_TOKEN=hf_abcdefghijABCDEFGHIJ0123\n" + RIGHT), job("export HF_TOKEN=your_token_here\n" + RIGHT)),
        (job(f"{RIGHT.strip()} --token 9f3c1b7ad25e84c06b1fa2d37c5e9840ab61d3f7\n"), job(f"{RIGHT.strip()} --token $TOKEN --pad_token end --key_dim 64\n")),
    ],
    "nodelist-pinned": [(job(RIGHT, "#SBATCH -w n[1-2]"), job(RIGHT, "#SBATCH -C a100"))],
    "nodelist-longer-than-nodes": [(job(RIGHT, "#SBATCH --nodelist=n[1-3,3]"), job(RIGHT, "#SBATCH --nodelist=n[1-2,2]")), (job(RIGHT, "#SBATCH --nodelist=n[1-4]"), job(RIGHT, "#SBATCH --nodelist=n[1-2]"))],
    "nccl-slow-path": [(job("export NCCL_P2P_DISABLE=1\n" + RIGHT), job("export NCCL_P2P_DISABLE=0\n" + RIGHT)), (job("export NCCL_IB_DISABLE=1\n" + RIGHT), job("export NCCL_IB_DISABLE=1\n" + ALONE, nodes=1))],
    "world-size-fixed": [(job("export WORLD_SIZE=8\n" + ONE_A_TASK), job("WORLD_SIZE=8\n" + ONE_A_TASK)), (job("export WORLD_SIZE=8\n" + ONE_A_TASK), job("export WORLD_SIZE=$((SLURM_NNODES * 4))\n" + ONE_A_TASK)), (job("export WORLD_SIZE=8\n" + ONE_A_TASK), job("export WORLD_SIZE=8\n" + RIGHT)), (job("export WORLD_SIZE=8\n" + ONE_A_TASK), job("N=${N:-8}\nexport WORLD_SIZE=$N\n" + ONE_A_TASK))],
    "temp-dir-on-first-node-only": [(job("export CACHE=$(mktemp -d)\n" + RIGHT), job("export CACHE=$(mktemp -d)\n" + ALONE, nodes=1)), (job("mkdir -p /tmp/cache\n" + RIGHT), job("srun --ntasks-per-node=1 mkdir -p /tmp/cache\n" + RIGHT))],
    "workdir-on-first-node-only": [(job("tar xf data.tar -C $SLURM_TMPDIR\n" + RIGHT), job("tar xf data.tar -C $SLURM_TMPDIR\n" + ALONE, nodes=1)), (job("virtualenv $SLURM_TMPDIR/env\n" + RIGHT), job("virtualenv $HOME/env\n" + RIGHT)), (job("python3 -m venv /tmp/env\n" + RIGHT), job("srun python3 -m venv /tmp/env\n" + RIGHT))],
    "gpus-per-task-hides-peers": [(without(job("srun -K1 python train.py\n", "#SBATCH --ntasks=8\n#SBATCH --gpus-per-task=1"), "nodes=", "gpus-per-node", "ntasks-per-node"), without(job("srun -K1 python train.py\n", "#SBATCH --ntasks=1\n#SBATCH --gpus-per-task=1"), "nodes=", "gpus-per-node", "ntasks-per-node")), (job("srun -K1 --gpus-per-task=1 python train.py\n", tasks=4), job("srun -K1 --gpus-per-task=1 --gpu-bind=none python train.py\n", tasks=4))],
    "cancels-itself": [(job(RIGHT + "scancel $SLURM_JOB_ID\n"), job(RIGHT + "scancel 17\n"))],
    "hostfile-name-shared": [
        (job("scontrol show hostnames > hosts\ndeepspeed --hostfile hosts train.py\n"), job("scontrol show hostnames > hosts.$SLURM_JOB_ID\ndeepspeed --hostfile hosts.$SLURM_JOB_ID train.py\n")),
        (job("HOSTS=/tmp/hosts\nsrun -l bash -c hostname > $HOSTS\nmpirun -np 2 ./train.sh\n"), job("srun -l bash -c hostname > /dev/null\nhostname > here\n" + RIGHT)),
    ],
    "cleanup-skipped-by-set-e": [(job(RIGHT + "rm -rf scratch\n"), job("python monitor.py &\nmonitor=$!\n" + RIGHT + "kill $monitor\n")), (job(RIGHT + "rm -rf scratch\n"), job("trap 'rm -rf scratch' EXIT\n" + RIGHT))],
    "nnodes-range-on-one-node": [(job("torchrun --nnodes=1:4 --nproc-per-node=4 train.py\n", nodes=1), job("torchrun --nnodes=1:1 --standalone --nproc-per-node=4 train.py\n", nodes=1).replace("1:1", "1"))],
    "srun-may-fan-out": [(job("srun python prepare_data.py\n" + RIGHT), job("srun -N1 -n1 python prepare_data.py\n" + RIGHT))],
    "no-set-e": [(without(job("module load cuda\n" + RIGHT), "set -e"), without(RIGHT_JOB, "set -e")), (without(job("cd src\n" + RIGHT), "set -e"), RIGHT_JOB)],
    "threads-unset": [(without(RIGHT_JOB, "OMP"), RIGHT_JOB)],
    "signal-without-requeue": [(RIGHT_JOB, RIGHT_JOB + "scontrol requeue $SLURM_JOB_ID\n")],
    "rdzv-id-fixed": [(job(RIGHT.replace("--nnodes", "--rdzv-id=7 --nnodes")), RIGHT_JOB)],
    "rdzv-id-random": [(job(RIGHT.replace("--nnodes", "--rdzv-id=$RANDOM --nnodes")), job(RIGHT.replace("--nnodes", "--rdzv-id=$SLURM_JOB_ID --nnodes")))],
    "addr-batch-host": [(job("export MASTER_ADDR=$(hostname)\n" + RIGHT), RIGHT_JOB)],
    "nccl-old-variable": [(job("export NCCL_ASYNC_ERROR_HANDLING=1\n" + RIGHT), job("export TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n" + RIGHT))],
    "nccl-interface-pinned": [(job("export NCCL_SOCKET_IFNAME=ib0\n" + RIGHT), job("export NCCL_SOCKET_IFNAME=^lo,docker0\n" + RIGHT)), (job("export NCCL_SOCKET_IFNAME=ib0\n" + RIGHT), RIGHT_JOB)],
    "debug-left-on": [(job("export NCCL_DEBUG=INFO\n" + RIGHT), job("export NCCL_DEBUG=WARN\n" + RIGHT))],
    "tasks-unused": [(job(ALONE, nodes=1, tasks=4), job(ALONE, nodes=1)), (job("bash unseen.sh\n", nodes=1, tasks=2), job("srun -K1 bash unseen.sh\n", nodes=1, tasks=2))],
    "sources-bashrc": [(job("source ~/.bashrc\n" + RIGHT), RIGHT_JOB)],
    "source-activate": [(job("source activate torch\n" + RIGHT), job("source venv/bin/activate\n" + RIGHT))],
    "export-all": [(job(RIGHT, "#SBATCH --export=ALL"), job(RIGHT, "#SBATCH --export=NONE"))],
    "old-launcher": [(job("python -m torch.distributed.launch --use_env --nproc_per_node=4 train.py\n", nodes=1), job(ALONE, nodes=1))],
    "placeholders": [(job("IMAGE=/shared/<team>/image.sqsh\n" + RIGHT), job("IMAGE=/shared/team/image.sqsh\n" + RIGHT)), (job(RIGHT, "#SBATCH -A ACCOUNT"), job(RIGHT, "#SBATCH -A accounting")), (job(RIGHT, "#SBATCH --account=your_account"), job(RIGHT, "#SBATCH --account=abc123"))],
    "exclude-pinned": [(job(RIGHT, "#SBATCH -x n7"), RIGHT_JOB)],
    "directive-commented": [(job(RIGHT, "# SBATCH --mem=4G"), job(RIGHT, "##SBATCH --mem=4G"))],
    "unused-launcher-variables": [(job(ALONE, nodes=1), without(job(ALONE, nodes=1), "MASTER"))],
    "directive-refused": [
        (job(RIGHT, "#SBATCH --gres=dcu:4 --cpus-per-gpu=8").replace("#SBATCH --gpus-per-node=4\n", ""), job(RIGHT, "#SBATCH --gres=gpu:4 --cpus-per-gpu=8").replace("#SBATCH --gpus-per-node=4\n", "")),
        (job(RIGHT, "#SBATCH -p { partition }"), job(RIGHT, "#SBATCH -p gpu # the big one")),
        (job(RIGHT, "#SBATCH --nodelist=n1, n2"), job(RIGHT, "#SBATCH --nodelist=n1,n2")),
        (job(RIGHT, "#SBATCH --exclusive 4"), job(RIGHT, "#SBATCH --exclusive=user")),
        *[(job(RIGHT, f"#SBATCH {one}"), job(RIGHT, f"#SBATCH {other}")) for one, other in VALUES],
    ],
    "not-a-batch-file": [("\n", RIGHT_JOB), ("#!/bin/bash\n#PBS -l nodes=2\npython train.py\n", "#!/bin/bash\n#SBATCH -N 2\n#PBS -l nodes=2\npython train.py\n"), ("import torch\nprint(torch)\n", "#!/usr/bin/env python\nimport torch\n")],
    "shebang-wrong": [(RIGHT_JOB.replace("#!/bin/bash", "#!/bin/bash \u2013l"), RIGHT_JOB.replace("#!/bin/bash", "#!/bin/bash -l")), (RIGHT_JOB.replace("#!/bin/bash", "#!bin/bash"), RIGHT_JOB.replace("#!/bin/bash", "#!/usr/bin/env bash"))],
    "bash-under-sh": [(job("cd venv && source bin/activate\n" + RIGHT).replace("#!/bin/bash", "#!/bin/sh"), job("cd venv && source bin/activate\n" + RIGHT)), (job("if [[ -d out ]]; then ls; fi\n" + RIGHT).replace("#!/bin/bash", "#!/bin/sh"), without(RIGHT_JOB, "pipefail").replace("#!/bin/bash", "#!/bin/sh"))],
    "broken-continuation": [(job("srun -K1 python train.py \\ # fast\n  --lr 1\n"), job("srun -K1 python train.py \\\n  --lr 1\n")), (job("srun -K1 python train.py \\ \n  --lr 1\n"), job("cat <<EOF\na \\ \nEOF\necho 'b \\ \n'\n" + RIGHT))],
    "wait-interrupted": [
        (job("again() {\n  scontrol requeue $SLURM_JOB_ID\n}\ntrap again USR1\nsrun -K1 python train.py &\nwait $!\n", BATCH_SIGNAL), job("again() {\n  scontrol requeue $SLURM_JOB_ID\n  exit 0\n}\ntrap again USR1\nsrun -K1 python train.py &\nwait $!\n", BATCH_SIGNAL)),
        (job("trap 'kill -USR1 $PID' USR1\nsrun -K1 python train.py &\nPID=$!\nwait $PID\n", BATCH_SIGNAL), job(REPEATED, BATCH_SIGNAL)),
        (job("forward() {\n  kill -USR1 $PID\n}\ntrap forward USR1\nsrun -K1 python train.py &\nPID=$!\nwait $PID\n", BATCH_SIGNAL), job("trap 'kill -USR1 $PID; wait $PID; exit' USR1\nsrun -K1 python train.py &\nPID=$!\nwait $PID\n", BATCH_SIGNAL)),
    ],
    "nothing-waits": [(job("for n in 0 1; do srun -N1 -n1 --exact bash -c \"python train.py $n\" & done\n"), job("for n in 0 1; do srun -N1 -n1 --exact bash -c \"python train.py $n\" & done\nwait\n")), (job("ray start --head\nray job submit --no-wait -- python train.py\n"), job("ray start --head\nray job submit --no-wait -- python train.py\nwhile ray job status 1; do sleep 9; done\n")), (job("srun -K1 python train.py &\n"), job("srun -K1 python train.py &\nwait $!\n")), (job("python train.py > log 2>&1 &\n", nodes=1), job("python serve.py &\npython train.py\n", nodes=1))],
    "mpirun-beyond-tasks": [(job("mpirun -n 8 python train.py\n"), job("mpirun -n 8 python train.py\n", tasks=4)), (job("mpirun -np 4 python train.py\n"), job("mpirun -np 4 --oversubscribe python train.py\n"))],
    "variable-in-quotes": [
        (job(RIGHT.replace("train.py", "train.py --run '$SLURM_JOB_ID'")), job(RIGHT.replace("train.py", 'train.py --run "$SLURM_JOB_ID"'))),
        (job(RIGHT.replace("--nnodes", "--rdzv-id='\\$SLURM_JOB_ID' --nnodes")), job("srun -K1 bash -c 'python train.py --run $SLURM_JOB_ID'\n")),
        (job("srun -K1 bash -c 'python train.py --run \\$SLURM_JOB_ID'\n"), job('srun -K1 bash -c "python train.py --run \\$SLURM_JOB_ID"\n')),
    ],
    "option-before-script": [
        (job("torchrun --standalone --nproc-per-node=4 python train.py\n", nodes=1), job("torchrun --standalone --no-python --nproc-per-node=4 python train.py\n", nodes=1)),(job(ALONE.replace("train.py", "--epochs 3 train.py"), nodes=1), job(ALONE.replace("train.py", "--max-restarts=3 train.py --epochs 3"), nodes=1)),
        (job("deepspeed --num_gpus=4 --deepspeed_config ds.json train.py\n", nodes=1), job("deepspeed --num_gpus=4 --master_port=$MASTER_PORT train.py --deepspeed_config ds.json\n", nodes=1))],
    "no-gpus": [(without(job("deepspeed train.py\n", nodes=1), "gpus-per-node", "exclusive"), without(job("python train.py\n", nodes=1), "gpus-per-node", "exclusive")), (
        without(job("torchrun --standalone --nproc-per-node=2 train.py --gpus 2\n", nodes=1), "exclusive", "gpus-per"),
        without(job("torchrun --standalone --nproc-per-node=2 train.py --gpus 2\n", "#SBATCH --gpus-per-nodes=2", nodes=1), "exclusive", "gpus-per-node="),
    ), (without(job("N=$(nvidia-smi -L | wc -l)\ntorchrun --nproc-per-node=$N train.py\n", nodes=1), "exclusive", "gpus-per"), without(job("N=$(nvidia-smi -L | wc -l)\ntorchrun --nproc-per-node=$N train.py\n", nodes=1), "gpus-per")), (without(job("module load cuda\n" + RIGHT), "exclusive", "gpus-per"), without(job("module load cuda\n" + RIGHT, "#SBATCH --gres=gpu:4"), "exclusive", "gpus-per"))],
    "mem-in-megabytes": [(job(RIGHT, "#SBATCH --mem=500 # memory"), job(RIGHT, "#SBATCH --mem=500 # in MB")), (job(RIGHT, "#SBATCH --mem=64"), job(RIGHT, "#SBATCH --mem=64G")), (job(RIGHT, "#SBATCH --mem-per-cpu=8"), job(RIGHT, "#SBATCH --mem=0"))],
    "install-races": [(job("srun -K1 bash -c '[ $SLURM_LOCALID = 0 ] && pip install einops; python train.py'\n", tasks=4), job("srun -N2 pip install einops\nsrun -K1 bash -c 'python train.py'\n", tasks=4)), (job("srun -K1 bash -c 'if [ $SLURM_PROCID = 0 ]; then pip install x; fi; python train.py'\n", tasks=4), job("srun -K1 bash -c 'pip install x; python train.py'\n", tasks=4))],
    "exports-kept-back": [(job("export SEED=1\n" + RIGHT, "#SBATCH --export=NONE"), job("export SLURM_EXPORT_ENV=ALL SEED=1\n" + RIGHT, "#SBATCH --export=NONE")), (job("export SEED=1\n" + RIGHT, "#SBATCH --export=HOME"), job("export SEED=1\n" + RIGHT.replace("srun", "srun --export=ALL"), "#SBATCH --export=HOME"))],
    "kills-by-name": [(without(job("pkill -f serve\n" + RIGHT), "exclusive"), without(job("pkill -P $$\n" + RIGHT), "exclusive"))],
    "time-too-short": [(without(job(RIGHT, "#SBATCH -t 00:00:02"), "time="), without(job(RIGHT, "#SBATCH -t 00:02:30"), "time=")), (without(job(RIGHT, "#SBATCH -t 1"), "time="), without(job(RIGHT, "#SBATCH -t 3"), "time="))],
    "time-in-minutes": [(without(job(RIGHT, "#SBATCH -t 24:00"), "time="), without(job(RIGHT, "#SBATCH -t 24:00:00"), "time="))],
    "logs-swapped": [(without(job(RIGHT, "#SBATCH -o %j.err\n#SBATCH -e %j.out"), "output"), job(RIGHT, "#SBATCH -e %j.err"))],
    "setting-unread": [(job("export NCCL_TIMEOUT=60\n" + RIGHT), RIGHT_JOB)],
    "nodes-idle": [(job(RIGHT + "python evaluate.py\n"), job(RIGHT + "srun python evaluate.py\n"))],
    "ignore-unused": [(job("# trainjob: ignore=no-srun\n" + RIGHT), job("python train.py  # trainjob: ignore=no-srun\n"))],
    "not-bash": [(job(RIGHT + "if true; then (\n"), RIGHT_JOB)],
}  # fmt: skip


def test_every_code_has_a_case() -> None:
    assert set(CASES) == set(CODES) - {"beyond-cluster", "lightning-under-torchrun", "lightning-ranks-may-hang"}


@each("code", CASES)
def test_a_fault_is_found_where_it_is(code: str) -> None:
    missed = [wrong for wrong, _ in CASES[code] if code not in {finding.code for finding in found(wrong)}]
    accused = [right for _, right in CASES[code] if code in {finding.code for finding in found(right)}]
    assert (missed, accused) == ([], [])


_RANKS = "srun --kill-on-bad-exit=1 python train.py"


@each(
    ("body", "more"),
    [
        ('echo "rank [ $RANK=0 ] of"\necho "do [$RANK of $N]"\necho "go! | [$RANK / $N]"\n', ""),
        ("cat <<E\n[$(hostname) and others]\nE\n", ""),
        ("python train.py --lr 1 `# é: slow` \\\n  --steps 9 `# few` \\\n  --quiet\n", ""),
        ("srun -K1 --gres=gpu:4,nvme:900 python train.py\n", ""),
        (f"{_RANKS} --num_nodes 1000\n", ""),
        ("srun vllm serve m &\nPID=$!\npython eval.py\nkill $PID\nwait $PID || true\nsrun -K1 python train.py\n", ""),
        (ALONE.replace("--standalone", "--nnodes=2 --node_rank=$1 --master_addr=$2"), ""),
        ("srun -K1 ./bind.sh \\\ntorchrun --standalone --nproc-per-node=4 train.py\n", ""),
        (
            "srun -K1 --het-group=1 --nodes=4 python train.py\n",
            "#SBATCH --ntasks=1\n#SBATCH hetjob\n#SBATCH --nodes=4 --ntasks=4",
        ),
    ],
)
def test_what_only_looks_like_a_fault_is_none(body: str, more: str) -> None:
    findings = found(job(body, more, nodes=1))
    looks = {
        *("command-not-found", "step-beyond-job"),
        *("nodes-disagree", "step-waits", "argument-swallowed", "directive-refused", "nodes-not-given"),
    }
    assert [one.text for one in findings if one.code in looks] == []


def test_devices_that_are_chosen_outside_of_a_job_are_no_fault() -> None:
    text = 'if [ -z "$SLURM_JOB_ID" ]; then export CUDA_VISIBLE_DEVICES=4,5; fi\n' + ALONE
    assert "device-beyond-gpus" not in {one.code for one in found(without(job(text, nodes=1), "exclusive"))}


def test_a_file_without_a_fault_has_neither_errors_nor_warnings() -> None:
    assert [finding for finding in found(RIGHT_JOB) if finding.severity is not Severity.NOTE] == []


def test_a_finding_names_its_line() -> None:
    text = RIGHT_JOB.replace("#SBATCH --exclusive", "#SBATCh --exclusive")
    assert [finding.line for finding in found(text) if finding.code == "directive-ignored"] == [5]
    late = job("echo one\nsrun bash -c '\n  torchrun --nproc-per-node=4 train.py\n'\n")
    assert [finding.line for finding in found(late) if finding.code == "nnodes-missing"] == [len(late.splitlines()) - 1]


@pytest.mark.parametrize(
    ("script", "launch", "is_found"),
    [
        ("import lightning as L\nL.Trainer().fit(model)\n", ALONE, True),
        ("from pytorch_lightning import Trainer\nTrainer().fit(model)\n", ALONE, True),
        ("import lightning as L\nL.Trainer().fit(model)\n", "srun python train.py\n", False),
        ("import lightning as L\nL.Trainer(plugins=[SLURMEnvironment()]).fit(model)\n", ALONE, False),
        ("from lightning.fabric import Fabric\n", ALONE, False),
        ("from transformers import Trainer\nTrainer().train()\n", ALONE, False),
        (None, ALONE, False),
    ],
)
def test_lightning_is_not_asked_under_torchrun(script: str | None, launch: str, is_found: bool, tmp_path: Path) -> None:
    if script is not None:
        (tmp_path / "train.py").write_text(script)
    (tmp_path / "train.sbatch").write_text(job(launch))
    found = diagnosis_of(read_script(tmp_path / "train.sbatch", SiteFacts())).findings
    assert ("lightning-under-torchrun" in {one.code for one in found}) == is_found


@pytest.mark.parametrize(("first", "is_found"), [("", True), ('os.environ["SLURM_JOB_NAME"] = "bash"\n', False)])
def test_a_program_may_hide_the_job_from_lightning(first: str, is_found: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{first}import lightning as L\nL.Trainer().fit(model)\n")
    (tmp_path / "train.sbatch").write_text(job("python train.py\n", nodes=1, tasks=4))
    found = diagnosis_of(read_script(tmp_path / "train.sbatch", SiteFacts())).findings
    assert ("nodes-disagree" in {one.code for one in found}) == is_found


@pytest.mark.parametrize(
    ("fit", "launch", "tasks", "is_found"),
    [
        ("fit(model)", "srun python train.py\n", 4, True),
        ("fit(model)", "srun --ntasks=1 --nodes=1 python train.py\n", 4, False),
        ("fit(model)", ALONE, 4, False),
        ('fit(model, ckpt_path="last")', "srun python train.py\n", 4, False),
        ('fit(**{"ckpt_path": "last"})', "srun python train.py\n", 4, False),
        ('fit(model)  # or: ckpt_path="last"', "srun python train.py\n", 4, True),
        ("fit(model)", "srun python train.py --ckpt_path last\n", 4, False),
        ("fit(model)", "srun python train.py fit --ckpt_path=last\n", 4, False),
        ("fit(model)", "srun python train.py ckpt_path=last\n", 4, False),
    ],
)
def test_lightning_with_several_ranks_may_hang_when_it_is_asked(
    fit: str, launch: str, tasks: int, is_found: bool, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(f"import lightning as L\nL.Trainer().{fit}\n")
    (tmp_path / "train.sbatch").write_text(job(launch, tasks=tasks))
    found = diagnosis_of(read_script(tmp_path / "train.sbatch", SiteFacts())).findings
    assert ("lightning-ranks-may-hang" in {one.code for one in found}) == is_found


@pytest.mark.parametrize(
    ("comment", "severity"),
    [
        ("# For multi-node runs: sbatch --nodes=2 multi.sbatch", None),
        ("# sbatch -N 2 other/multi.sh", None),
        ("# sbatch --nodes=2 train.sbatch", Severity.WARNING),
        ("# sbatch --nodes=2 jobs/train.sbatch", Severity.WARNING),
        ("# Don't submit it with sbatch --nodes=2", Severity.WARNING),
    ],
)
@pytest.mark.parametrize(
    ("code", "body"),
    [("no-srun", "python train.py\n"), ("nnodes-missing", "srun -K1 torchrun --nproc-per-node=4 train.py\n")],
)
def test_nodes_that_only_a_comment_names_are_no_error(
    code: str, body: str, comment: str, severity: Severity | None
) -> None:
    text = without(job(f"{comment}\n{body}"), "#SBATCH --nodes")
    severities = [one.severity for one in found(text) if one.code == code]
    assert severities == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("behind", "is_found"),
    [
        ("echo done\n", True),
        ("ray stop\nexit 0\n", True),
        ("python wait_for_job.py\n", False),
        ("./follow.sh\n", False),
        ("ray job logs --follow 1\n", False),
        ("sleep infinity\n", False),
    ],
)
def test_a_program_behind_a_job_of_ray_may_wait_for_it(behind: str, is_found: bool) -> None:
    faults = found(job(f"ray start --head\nray job submit --no-wait -- python train.py\n{behind}"))
    cures = [one.cure for one in faults if one.code == "nothing-waits"]
    assert cures == (["Leave out --no-wait."] if is_found else [])


@pytest.mark.parametrize(
    ("option", "cure"),
    [("--cpus-per-gpu=8", "Give --cpus-per-task instead."), ("--mem-per-gpu=8G", "Give --mem instead.")],
)
def test_figures_for_each_gpu_have_a_cure_for_other_accelerators(option: str, cure: str) -> None:
    text = without(job(RIGHT, f"#SBATCH --gres=dcu:4 {option}"), "gpus-per-node")
    assert [(one.cure, one.as_json()["cure"]) for one in found(text) if "dcu" in one.text] == [(cure, cure)]


_RAY = "ray start --head --port=6379\n"


@each(
    ("text", "is_read"),
    [
        (f"cat > run.sh <<EOF\n{_RAY}EOF\nsrun -N1 bash run.sh\n", True),
        (f"cat > run.sh <<EOF\necho\nEOF\ncat > run.sh <<EOF\n{_RAY}EOF\nsrun -N1 bash run.sh\n", True),
        (f"mkdir d\ncat > d/run.sh <<EOF\n{_RAY}EOF\ncd d\nsrun -N1 bash run.sh\n", True),
        (f"cd $WORK\ncat > run.sh <<EOF\n{_RAY}EOF\nsrun -N1 bash run.sh\nrm run.sh\n", True),
        (f"cat > run.sh <<EOF\n{_RAY}EOF\ncp run.sh old\nsrun -N1 bash run.sh\n", True),
        (f"cat > run.sh <<EOF\n{_RAY}EOF\ncd elsewhere\nsrun -N1 bash run.sh\n", False),
        (f"cd ..\ncat > run.sh <<EOF\n{_RAY}EOF\ncd ..\nsrun -N1 bash run.sh\n", False),
        (f"cat > run.sh <<EOF\n{_RAY}EOF\ncd a\ncd ..\nsrun -N1 bash run.sh\n", True),
        (f"(cd a; cat > run.sh <<EOF\n{_RAY}EOF\n)\nsrun -N1 bash run.sh\n", False),
        (
            f"if nc -z a 1; then\ncat > run.sh <<EOF\necho\nEOF\nelse\ncat > run.sh <<EOF\n{_RAY}EOF\nfi\n"
            "srun -N1 bash run.sh\n",
            False,
        ),
        (f"cat > run.sh <<EOF\n{_RAY}EOF\nsed -i s/6379/0/ run.sh\nsrun -N1 bash run.sh\n", False),
        (f"cat > run.sh <<EOF\n{_RAY}EOF\necho >> run.sh\nsrun -N1 bash run.sh\n", False),
        (f"cat header - > run.sh <<EOF\n{_RAY}EOF\nsrun -N1 bash run.sh\n", False),
    ],
)
def test_a_written_script_is_read_where_it_is_known_what_it_holds(text: str, is_read: bool) -> None:
    assert ("port-fixed" in {one.code for one in found(job(text + RIGHT))}) == is_read


def test_options_that_only_a_run_can_tell_are_no_fault() -> None:
    text = job("source settings.sh\nsrun --kill-on-bad-exit=1 torchrun $DISTRIBUTED_ARGS train.py\n")
    assert {"nnodes-missing", "gpus-unused"} & {finding.code for finding in found(text)} == set()
    empty = text.replace("source settings.sh", 'DISTRIBUTED_ARGS="--nproc-per-node=2"')
    assert {"nnodes-missing", "gpus-unused"} <= {finding.code for finding in found(empty)}


def test_branches_that_this_job_never_takes_are_no_fault() -> None:
    branches = 'if [ "$SLURM_NNODES" -gt 1 ]; then {}else\n  torchrun --nproc-per-node=2 --rdzv-endpoint=localhost:0 train.py\nfi\n'
    text = job(branches.format(RIGHT))
    assert [finding for finding in found(text) if finding.severity is Severity.ERROR] == []
    assert "gpus-unused" in {finding.code for finding in found(job(branches.format(RIGHT), nodes=1))}


def test_an_early_rank_under_c10d_is_a_note() -> None:
    early = found(job(RIGHT.replace("--nnodes", "--node-rank=$SLURM_NODEID --nnodes")))
    assert [finding.severity for finding in early if finding.code == "rank-expanded-early"] == [Severity.NOTE]
    words = (
        "accelerate launch --num_machines 2 --num_processes 4 --main_process_ip $head_node --machine_rank $SLURM_NODEID"
    )
    for more, severity in (
        ("--rdzv_backend c10d", Severity.NOTE),
        ('--rdzv_conf "rdzv_backend=c10d,a=1"', Severity.ERROR),
        ("--rdzv_conf=rdzv_backend=c10d", Severity.ERROR),
        ('--rdzv_conf "rdzv_port=$((29500 - SLURM_JOB_ID % 9)),rdzv_backend=c10d"', Severity.ERROR),
        ('--rdzv_conf "timeout=$((900 - 1))" --rdzv_backend=c10d', Severity.NOTE),
    ):
        early = found(
            job(f"head_node=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\nsrun {words} {more} train.py\n")
        )
        assert [one.severity for one in early if one.code == "rank-expanded-early"] == [severity]


def test_a_cluster_sharpens() -> None:
    nodes = Nodes(count=2, accelerator="gpu", accelerators=2, cpus=16)
    site = SiteFacts(
        accelerators=nodes.accelerators,
        cpus=nodes.cpus,
        max_nodes=1,
        max_time_s=3600,
        release=(24, 11),
        required=("account",),
    )
    text = job(RIGHT, "#SBATCH --cpus-per-task=32")
    beyond = [finding.text for finding in found(text, site) if finding.code == "beyond-cluster"]
    assert beyond == [
        "2 nodes a job, and the cluster has 1",
        "this cluster requires --account",
        "4 GPUs a node, and the cluster has 2",
        "--time=04:00:00, and the cluster allows 60 minutes",
        "32 CPUs a node, and the cluster has 16",
    ]
    # From Slurm 24.11 on, srun takes over --cpus-per-task again.
    assert "srun-loses-cpus" not in {finding.code for finding in found(text, site)}
    assert "srun-loses-cpus" in {finding.code for finding in found(text)}


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("#SBATCH --requeue", "#SBATCH --requeue\n# trainjob: ignore=port-fixed,no-time"),
        ("PORT=1", "PORT=1 # trainjob: ignore=port-fixed"),
    ],
)
def test_a_comment_ignores_a_code(where: str, line: str) -> None:
    text = job("export MASTER_PORT=1\n" + RIGHT).replace("$((20000 + SLURM_JOB_ID % 20000))", "0")
    assert "port-fixed" in {finding.code for finding in found(text)}
    assert "port-fixed" not in {finding.code for finding in found(text.replace(where, line))}


def test_a_fault_of_a_script_that_the_file_writes_names_the_line_where_it_is_written() -> None:
    for written in ("cat > run.sh <<'EOF'", "cat <<EOF > ./run.sh", 'cat > "$SCRATCH/run.sh" <<EOF'):
        name = '"$SCRATCH/run.sh"' if "SCRATCH" in written else "run.sh"
        text = job(f"{written}\necho\nray start --head --port=6379\nEOF\nsrun -N1 bash {name}\n")
        lines = [(one.path, one.line) for one in found(text) if one.code == "port-fixed"]
        assert lines == [("", text.splitlines().index("ray start --head --port=6379") + 1)]


def test_what_srun_lacks_is_told_where_srun_stands() -> None:
    text = job("cat > run.sh <<EOF\npython train.py\nEOF\nsrun bash run.sh\n", "#SBATCH --cpus-per-task=8", tasks=4)
    lines = {one.code: one.line for one in found(text)}
    assert {lines["no-kill-on-bad-exit"], lines["srun-loses-cpus"]} == {len(text.splitlines())}


@pytest.mark.parametrize(
    ("inner", "code"),
    [("python -m torch.distributed.launch train.py", "old-launcher"), ("export DATA=/path/to/data", "placeholders")],
)
def test_a_fault_of_a_called_script_names_that_script(inner: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{inner}\n")
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --gres=gpu:1\n\n\nbash run.sh\n")
    found = diagnosis_of(read_script(tmp_path / "train.sbatch", SiteFacts())).findings
    assert [(one.path, one.line) for one in found if one.code == code] == [(str(tmp_path / "run.sh"), 2)]


@pytest.mark.parametrize(
    ("above", "line", "is_of_sbatch"),
    [
        ("", "--constraint=a100", True), ("# the queue", "-p gpu", True), ("", "--lr 1", False),
        ("srun python train.py", "--nodes=$N", False),
    ],
)  # fmt: skip
def test_an_option_that_begins_a_line_is_sbatchs_or_that_of_the_command_above(
    above: str, line: str, is_of_sbatch: bool
) -> None:
    texts = [
        one.text for one in found(f"#!/bin/bash\n{above}\n{line}\npython a.py\n") if one.code == "command-not-found"
    ]
    assert [("without #SBATCH" in text, "the line above" in text) for text in texts] == [
        (is_of_sbatch, not is_of_sbatch)
    ]


def test_what_is_missing_has_no_place_in_a_line() -> None:
    columns = {one.code: one.column for one in found("#!/bin/bash\n#SBATCH --job-name=name\nsrun python train.py\n")}
    assert {columns[code] for code in ("no-cpus", "no-mem", "no-time")} == {0}


@pytest.mark.parametrize(("tasks", "severity"), [(2, Severity.WARNING), (3, Severity.ERROR)])
def test_tasks_that_may_share_all_gpus_evenly_are_no_error(tasks: int, severity: Severity) -> None:
    findings = found(job("srun -K1 python train.py\n", tasks=tasks))
    assert [one.severity for one in findings if one.code == "gpus-unused"] == [severity]


def test_a_signal_that_never_arrives_is_told_once() -> None:
    assert [one.code for one in found(job(ALONE, nodes=1)) if "signal" in one.code] == ["signal-never-arrives"]


def test_a_script_that_the_batch_shell_runs_in_the_foreground_defers_its_traps() -> None:
    text = job("trap 'scontrol requeue $SLURM_JOB_ID' USR1\nbash ${1}\n", BATCH_SIGNAL, nodes=1)
    assert "trap-deferred" in {one.code for one in found(without(text, "=USR1"))}
    assert "trap-deferred" not in {one.code for one in found(without(text.replace("${1}", "${1} &\nwait"), "=USR1"))}


@each(
    ("wrong", "right", "code"),
    [
        ("export A = 4", "export A=4", "command-not-found"),
        ('if ["$A" = 4 ]; then echo; fi', 'if [ "$A" = 4 ]; then echo; fi', "command-not-found"),
        ("EOF", "A=$(cat <<EOF\nEOFINNER\n$B\nEOF\n)", "command-not-found"),
        ("horovodrun -np 8 python train.py", "horovodrun -np 8 -H $HOSTS python train.py", "no-srun"),
        ("srun -K1 deepspeed train.py", "srun -K1 deepspeed --hostfile hosts --no_ssh train.py", "nnodes-missing"),
        ("srun -n4 -K1 deepspeed --num_gpus=$N train.py", "srun -n4 -K1 deepspeed --num_gpus=1 train.py", "tasks-times-torchrun"),
        ("srun horovodrun -np 4 python train.py", "srun -N1 -n1 horovodrun -np 4 python train.py", "tasks-times-torchrun"),
        ("srun -K1 accelerate launch --multi_gpu train.py", "srun -K1 accelerate launch train.py", "nnodes-missing"),
        ("export CUDA_VISIBLE_DEVICES=0\n" + ALONE, "export CUDA_VISIBLE_DEVICES=0,1,2,3\n" + ALONE, "more-processes-than-gpus"),
    ],
)  # fmt: skip
def test_other_shapes_of_a_fault_are_known_too(wrong: str, right: str, code: str) -> None:
    assert code in {one.code for one in found(job(wrong + "\n"))}
    assert code not in {one.code for one in found(job(right + "\n"))}


def test_ranks_of_mpirun_and_gpus_of_all_nodes_agree() -> None:
    text = job("mpirun -n 3 --oversubscribe python train.py\n")
    assert "gpus-unused" in {one.code for one in found(text)}
    for right in ("4", "8"):  # a rank may use two
        assert "gpus-unused" not in {one.code for one in found(text.replace("-n 3", f"-n {right}"))}


def test_mpirun_without_a_number_starts_one_process_for_each_task() -> None:
    text = job("mpirun python train.py\n", tasks=16)
    assert [one.text for one in found(text) if one.code == "more-processes-than-gpus"] == [
        "16 tasks a node, and 4 GPUs"
    ]
    for right in ("mpirun -np 8", "mpirun --map-by ppr:4:node", "mpirun -npernode 4"):
        assert "more-processes-than-gpus" not in {one.code for one in found(text.replace("mpirun", right))}


def test_processes_that_each_task_starts_use_gpus_too() -> None:
    codes = {one.code for one in found(job("srun horovodrun -np 4 python train.py\n", tasks=2))}
    assert "gpus-unused" not in codes
    assert "tasks-times-torchrun" in codes


@pytest.mark.parametrize(("tasks", "is_found"), [(1, True), (2, False)])
def test_fewer_tasks_than_the_nodes_are_meant_to_have_leave_gpus_unused(tasks: int, is_found: bool) -> None:
    text = job("srun -K1 python train.py\n", f"#SBATCH --ntasks={tasks}", nodes=1, tasks=2)
    assert any("outdoes" in one.text for one in found(text)) is is_found


@pytest.mark.parametrize(
    ("wait", "is_found"), [("wait $PID", True), ("wait $PID && code=0 || code=$?", False), ("! wait $PID || :", False)]
)
def test_a_wait_in_a_loop_ends_the_script_under_set_e(wait: str, is_found: bool) -> None:
    loop = f"while kill -0 $PID 2>/dev/null; do {wait}; done\n"
    text = job(f"trap 'kill -USR1 $PID' USR1\nuv run -m pkg.train &\nPID=$!\n{loop}", BATCH_SIGNAL, nodes=1)
    text = without(text, "=USR1")
    assert ("wait-interrupted" in {one.code for one in found(text)}) is is_found
    assert "wait-interrupted" not in {one.code for one in found(without(text, "set -eo"))}


@pytest.mark.parametrize("start", ["srun -N1 -n1 -w $host bash rank.sh", "ssh $host python train.py"])
def test_a_wait_for_all_that_a_loop_has_started_loses_their_codes(start: str) -> None:
    loop = f"for host in $(scontrol show hostnames); do\n  {start} &\ndone\n"
    assert "exit-code-lost" in {one.code for one in found(job(f"{loop}wait\n"))}
    each = 'for one in $(jobs -p); do wait "$one" || failed=$?; done\nexit "${failed:-0}"\n'
    assert "exit-code-lost" not in {one.code for one in found(job(loop + each))}


def test_a_preparation_that_is_a_word_of_its_program_runs_once_a_node_too() -> None:
    text = job("srun axolotl preprocess a.yaml\nsrun axolotl train a.yaml\n").replace("--nodes=2", "--nodes=$N")
    assert [one.text for one in found(text) if one.code == "srun-may-fan-out"] == ["srun axolotl: several times"]


# A launch as people write it: it is the same fault in each.
SHAPES = {
    "a function that is called with it": 'run() {\n  "$@"\n}\nrun LAUNCH\n',
    "a branch": "if [ -f last.ckpt ]; then\n  LAUNCH --resume\nelse\n  LAUNCH\nfi\n",
    "a loop": "for seed in 1 2; do\n  LAUNCH --seed $seed\ndone\n",
    "eval of a variable": 'CMD="LAUNCH"\neval "$CMD"\n',
    "a shell that gets a variable": 'CMD="LAUNCH"\nbash -c "$CMD"\n',
    "a here-document that the batch shell expands": "bash <<EOF\nLAUNCH\nEOF\n",
    "xargs": "seq 3 | xargs -I{} -n 1 LAUNCH --seed {}\n",
    "parallel": "parallel -j 1 LAUNCH --seed ::: 1 2\n",
    "a whole command for parallel": "parallel -j 1 'LAUNCH --seed {}' ::: 1 2\n",
    "script": "script -q -c 'LAUNCH' train.log\n",
    "a time limit of its own": "timeout -k 60 3h LAUNCH\n",
}


@each("shape", SHAPES)
def test_a_fault_is_found_in_whatever_shape_it_is_started(shape: str) -> None:
    wait = "srun torchrun --nnodes=4 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py"
    rank = "srun torchrun --nnodes=2 --nproc-per-node=4 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR train.py"
    for code, launch in (("nodes-disagree", wait), ("no-kill-on-bad-exit", "srun python train.py")):
        assert code in {one.code for one in found(job(SHAPES[shape].replace("LAUNCH", launch)))}
    # In single quotes a shell in the batch shell's place expands it, which is as early.
    assert "rank-expanded-early" in {one.code for one in found(job(SHAPES[shape].replace("LAUNCH", rank)))}


def test_a_variable_of_a_step_that_a_wrapper_starts_is_a_ranks_own() -> None:
    text = job(
        f"timeout 3h srun --kill-on-bad-exit=1 bash -c '{TORCHRUN.replace('--rdzv', '--node_rank=$SLURM_NODEID --rdzv')}'\n"
    )
    assert "rank-expanded-early" not in {one.code for one in found(text)}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("uvicorn app:api --port 8020 &\nsleep 180\npython train.py &\nwait\n", "job-never-ends"),
        ("uvicorn app:api --port 8020 &\nsleep 180\npython train.py &\nwait %2\n", "server-sleep-ready"),
        ("uvicorn app:api --port 8020 &\npython train.py\n", "port-fixed"),
        ("srun --overlap ray start --address=$MASTER_ADDR:$MASTER_PORT\npython train.py\n", "nothing-waits"),
        ('srun --kill-on-bad-exit=1 python train.py --master_address="tcp://"$MASTER_ADDR":9090"\n', "port-fixed"),
        (
            "# wandb login --host http://10.0.0.1:80 local-0a1b2c3d4e5f60718293a4b5c6d7e8f901234567\\npython train.py\\n",
            "secret-in-script",
        ),
        ("# git clone https://me:a8Kz92mQpL37xTr0@example.org/x.git\npython train.py\n", "secret-in-script"),
    ],
)
def test_faults_of_what_stands_beside_a_training(body: str, code: str) -> None:
    assert code in {one.code for one in found(without(job(body), "--exclusive"))}


def test_ray_that_stays_in_its_step_is_no_fault() -> None:
    text = job("srun --overlap ray start --block --address=$MASTER_ADDR:$MASTER_PORT &\npython train.py\n")
    assert "nothing-waits" not in {one.code for one in found(text)}


def test_gpus_of_a_container_are_asked_for() -> None:
    text = without(job("srun apptainer exec --nv image.sif sh bare.sh\n"), "--gpus", "--exclusive")
    assert "no-gpus" in {one.code for one in found(text)}
    assert "no-gpus" not in {one.code for one in found(text.replace("--nv ", ""))}


def test_ranks_of_one_node_are_left_hanging_too() -> None:
    text = job("srun python train.py\n", nodes=1, tasks=4)
    assert "no-kill-on-bad-exit" in {one.code for one in found(text)}
    assert "no-kill-on-bad-exit" not in {one.code for one in found(job("srun python train.py\n", nodes=1))}


def test_a_launcher_that_is_not_told_where_ranks_meet_meets_at_its_own_node() -> None:
    launch = "torchrun --nnodes=2 --nproc-per-node=4 --node_rank=$SLURM_NODEID{} train.py"
    shell = "srun --kill-on-bad-exit=1 bash -c '{}'\n"
    text = job(shell.format(launch.format("")))  # it reads no MASTER_ADDR
    assert [(one.code, one.line) for one in found(text) if one.severity is Severity.ERROR] == [("addr-localhost", 16)]
    assert "addr-localhost" not in {
        one.code for one in found(job(shell.format(launch.format(" --master_addr=$MASTER_ADDR"))))
    }
    assert "addr-localhost" not in {
        one.code for one in found(job("export PET_MASTER_ADDR=$MASTER_ADDR\n" + shell.format(launch.format(""))))
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("for seed in 42; do\n  python train.py --seed $seed\ndone\n", "exit-code-lost"),
        ("python train.py\nNone\n", "exit-code-lost"),
        ("srun bash -c 'torchrun --nproc-per-node=4 train.py --seed $SLURM_NODEID'\n", "nnodes-missing"),
    ],
)
def test_what_only_looks_like_a_fault(body: str, code: str) -> None:
    assert code not in {one.code for one in found(without(job(body), "set -eo", "MASTER"))}
    same = body.replace("in 42", "in 42 43").replace("None", "date").replace("$SLURM_NODEID", "3")
    assert code in {one.code for one in found(without(job(same), "set -eo", "MASTER"))}


@pytest.mark.parametrize(
    ("body", "code", "right"),
    [
        ("python train.py --attack $10\n", "unset-variable", "python train.py --attack ${10} '$10'\n"),
        ("awk '{print $10}' $12 | sh\n", "unset-variable", "ls -l $1 | awk '{print $10}'\necho \"\\$10 for $1\"\n"),
        (
            "srun ray start --address=a:6379 &\npython train.py\n",
            "nothing-waits",
            "RAY=$(cat ray.args)\nsrun ray start $RAY &\npython train.py\n",
        ),
        (
            "# export HF_TOKEN=hf_abcdefghijABCDEFGHIJ0123\n",
            "secret-in-script",
            "# curl -u user:password https://host\n# run.sh --password=mypassword\n",
        ),
        ("N=2 nohup bash elsewhere.sh > a.log 2>&1 &\n", "nothing-waits", "nohup bash elsewhere.sh > a.log 2>&1\n"),
    ],
)
def test_what_bash_reads_in_another_way(body: str, code: str, right: str) -> None:
    assert code in {one.code for one in found(job(body))}
    assert code not in {one.code for one in found(job(right))}


def test_a_list_of_mail_types_is_refused_if_none_is_known() -> None:
    lists = {"START": True, "START,END": False, "END": False}
    refused = {
        text: any(one.code == "directive-refused" for one in found(job(RIGHT, f"#SBATCH --mail-type={text}")))
        for text in lists
    }
    assert refused == lists


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("srun deform_train ++trainer.devices=4\n", "no-kill-on-bad-exit"),
        ("srun bash elsewhere.sh\n", "no-kill-on-bad-exit"),
        ("srun -K1 -n16 deform_train\n", "more-processes-than-gpus"),
        ("srun -K1 singularity exec --nv a.sif python -m pip install einops\n", "installs-in-job"),
    ],
)
def test_a_fault_is_found_whatever_program_is_started(body: str, code: str) -> None:
    assert code in {one.code for one in found(without(job(body, tasks=8 if "n16" in body else 4), "signal"))}


@pytest.mark.parametrize("option", ["-o ''", "--output=", "--error="])
def test_a_log_without_a_name_is_an_error(option: str) -> None:
    assert "directive-refused" in {one.code for one in found(job(RIGHT, f"#SBATCH {option}"))}


def test_no_log_is_overwritten_by_none() -> None:
    assert "output-overwritten" not in {one.code for one in found(without(job(RIGHT, "#SBATCH -o None"), "append"))}


@pytest.mark.parametrize(("first", "is_found"), [("0", True), ("0,1,2,3", False)])
def test_a_program_that_sees_fewer_gpus_than_the_job_has_leaves_some_unused(first: str, is_found: bool) -> None:
    text = job(f"CUDA_VISIBLE_DEVICES={first} wandb agent me/sweep\n", nodes=1)
    assert ("gpus-unused" in {one.code for one in found(text)}) is is_found


def test_gpus_that_only_a_step_asks_for_are_told() -> None:
    text = job("srun -K1 --gres=gpu:4 python train.py --gpus 4\n", nodes=1)
    assert "no-gpus" in {one.code for one in found(without(text, "exclusive", "gpus-per"))}


def test_a_signal_for_steps_is_an_error_where_there_is_none() -> None:
    errors = [one.code for one in found(job("python train.py\n", nodes=1)) if one.severity is Severity.ERROR]
    assert "signal-never-arrives" in errors


def test_directives_below_a_misspelt_shebang_and_what_ignored_ones_leave_out_are_read() -> None:
    codes = [one.code for one in found(RIGHT_JOB.replace("#!/bin/bash", "!/bin/bash"))]
    assert "shebang-not-first" in codes
    assert "directive-ignored" not in codes
    assert {"no-time", "time-limit-unhandled"} <= {
        one.code for one in found("#!/bin/bash\n# SBATCH -N 1\npython train.py\n")
    }


def test_tasks_that_mpirun_does_not_start_are_cpus() -> None:
    text = without(job("mpirun -n 4 python train.py\n", nodes=1, tasks=64), "exclusive", "cpus-per-task")
    assert "no-cpus" not in {one.code for one in found(text)}


def test_torchrun_on_each_node_that_says_so_is_no_missing_option() -> None:
    text = "srun -K1 bash -c 'torchrun --nnodes=1 --nproc-per-node=4 train.py --part $SLURM_PROCID'\n"
    assert "nnodes-missing" not in {one.code for one in found(without(job(text), "MASTER_ADDR"))}


@pytest.mark.parametrize(("nodes", "is_found"), [(2, False), (8, True)])
def test_hosts_of_a_job_that_has_every_node_may_be_named(nodes: int, is_found: bool) -> None:
    text = job("export MASTER_ADDR=gpu01\nsrun -K1 python train.py\n", tasks=4)
    assert ("hosts-by-name" in {one.code for one in found(text, SiteFacts(nodes=nodes))}) is is_found


def test_a_wait_that_a_loop_repeats_before_it_looks_is_right() -> None:
    loop = "while wait $PID && code=0 || code=$?; kill -0 $PID 2>/dev/null; do :; done\nexit $code\n"
    text = job(f"trap 'kill -USR1 $PID' USR1\nsrun -K1 python train.py &\nPID=$!\n{loop}", BATCH_SIGNAL, nodes=1)
    for one_of in (text, without(text, "set -eo")):
        wrong = {"trap-deferred", "wait-interrupted", "nothing-waits", "exit-code-lost"}
        assert not wrong & {one.code for one in found(one_of)}


def test_three_dashes_are_no_option() -> None:
    text = RIGHT_JOB.replace("#SBATCH", "#SBATCH ---\n#SBATCH", 1)
    assert [one.line for one in found(text) if one.code == "no-such-option"] == [2]


def test_what_is_left_in_the_background_has_no_code_to_lose() -> None:
    said = {one.code for one in found(job("nohup bash run.sh >log 2>&1 &\n"))}
    assert "nothing-waits" in said
    assert "exit-code-lost" not in said


@pytest.mark.parametrize("read", ["mapfile -t nodes", "readarray -t nodes", "mapfile -n 2 nodes", "read -t 5 -a nodes"])
def test_an_array_that_a_builtin_reads_is_set(read: str) -> None:
    addressed = TORCHRUN.replace("$MASTER_ADDR", "${nodes[0]}")
    assert addressed != TORCHRUN
    text = job(f'{read} < <(scontrol show hostnames "$SLURM_JOB_NODELIST")\nsrun -K1 {addressed}\n', tasks=1)
    assert "addr-undefined" not in {one.code for one in found(text)}


@pytest.mark.parametrize(
    ("first", "is_lost"),
    [("#!/bin/bash", True), ("#!/bin/bash -e", False), ("#!/bin/sh -ex", False), ("#!/usr/bin/env -S bash -e", False)],
)
def test_options_of_the_first_line_are_those_of_the_shell(first: str, is_lost: bool) -> None:
    text = without(job(f"{RIGHT}echo done\n"), "set -eo").replace("#!/bin/bash", first, 1)
    assert ("exit-code-lost" in {one.code for one in found(text)}) is is_lost


@pytest.mark.parametrize(
    ("more", "is_chain"),
    [("", True), (" --seed $SLURM_ARRAY_TASK_ID", False), (" --part $SLURM_ARRAY_TASK_ID --resume a", True)],
)
def test_an_array_one_by_one_is_a_chain_unless_its_elements_are_cases(more: str, is_chain: bool) -> None:
    text = without(job(RIGHT.rstrip("\n") + f"{more}\n", "#SBATCH --array=0-3%1"), "signal", "requeue")
    assert ("time-limit-unhandled" not in {one.code for one in found(text)}) is is_chain


@pytest.mark.parametrize(
    ("more", "is_refused"), [("--mem-per-gpu=4G", True), ("--mem-per-cpu=1G", True), ("--mem=8G", False)]
)
def test_memory_is_asked_for_in_one_way(more: str, is_refused: bool) -> None:
    text = without(job(RIGHT, f"#SBATCH --mem=4G\n#SBATCH {more}"), "mem=0")
    assert ("directive-refused" in {one.code for one in found(text)}) is is_refused


def test_tasks_that_are_stated_alone_each_start_an_mpirun() -> None:
    text = without(job("srun mpirun -np 4 ./solve\n", "#SBATCH --ntasks=4"), "nodes=", "ntasks-per-node", "gpus")
    told = {one.text for one in found(text) if one.code == "tasks-times-torchrun"}
    assert told == {"4 tasks, each of which starts mpirun with 4 processes"}
    assert "tasks-times-torchrun" not in {one.code for one in found(text.replace("srun", "srun --ntasks=1"))}


def test_a_directive_with_a_dollar_is_a_command() -> None:
    findings = found("#!/bin/bash\n$SBATCH --output=a.out\nsrun ./solve\n")
    assert [(one.line, one.code) for one in findings if one.code == "directive-ignored"] == [(2, "directive-ignored")]


def test_the_folder_of_the_file_is_taken_only_outside_of_jobs() -> None:
    text = job('[ -n "$SLURM_JOB_ID" ] || cd "$(dirname "$0")"\n' + RIGHT)
    assert "script-dir-is-spool" not in {one.code for one in found(text)}
    assert "script-dir-is-spool" in {one.code for one in found(text.replace('[ -n "$SLURM_JOB_ID" ] || ', ""))}


@pytest.mark.parametrize(("then", "is_deferred"), [("", True), ("wait\n", False)])
def test_a_helper_in_the_background_lets_no_trap_run(then: str, is_deferred: bool) -> None:
    body = f"python monitor.py &\nhelper=$!\n{then}end() {{ kill $helper; }}\ntrap end USR1\nsrun -K1 python train.py\n"
    text = without(job(body, "#SBATCH --signal=B:USR1@120", nodes=1), "signal=USR1")
    assert ("trap-deferred" in {one.code for one in found(text)}) is is_deferred
