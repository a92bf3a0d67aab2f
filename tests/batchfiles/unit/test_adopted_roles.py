"""Batch files that bring up Ray or a server by hand, adopted: their roles, and what is said of each line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchfiles.adoption.account import Where
from batchfiles.adoption.adopt import Adoption, adopt
from batchfiles.adoption.start import AdoptionError
from trainjob.cluster.reading import job_from_text
from trainjob.contract import roles
from trainjob.kinds.lookup import cluster_from_text
from trainjob.planning.build import plan

FOUR_NODES = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=16\n#SBATCH --gpus-per-node=2\n"
FOUR_GPUS = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n#SBATCH --cpus-per-task=32\n"
HEAD = """\
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head_node=${nodes[0]}
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
if [[ "$head_ip" == *" "* ]]; then
  head_ip=${head_ip%% *}
fi
port=6379
ip_head=$head_ip:$port
export ip_head
srun --nodes=1 --ntasks=1 -w "$head_node" ray start --head --node-ip-address="$head_ip" --port=$port --block &
sleep 10
"""
WORKERS = """\
for ((i = 1; i < SLURM_JOB_NUM_NODES; i++)); do
  srun --nodes=1 --ntasks=1 -w "${nodes[$i]}" ray start --address "$ip_head" --block &
  sleep 5
done
"""
HAS_PORT = ["--port", "{port}"]
HTTP = "http://{host}:{port}"
SERVING = 'cd "$TRAINJOB_RUN_DIR/code/project/serving"'


def adopted(text: str, folder: Path) -> Adoption:
    path = folder / "train.sbatch"
    path.write_text(text)
    return adopt(path, Path("/home/me/project"))


def lost(adoption: Adoption) -> str:
    return "\n".join(f"{one.text}: {one.what}" for one in adoption.account.lost)


def _shell(*lines: str) -> list[str]:
    return ["bash", "-c", "\n".join(lines)]


CASES: dict[str, tuple[str, dict[str, Any], int]] = {  # the file, its roles, and the nodes of the cluster file
    "ray-head-and-workers": (
        FOUR_NODES + HEAD + WORKERS + 'python -u train.py --address "$ip_head" --lr 1e-6\nray stop\n',
        {"train": {"hosts": 4, "ray": True, "instances": 8, "command": _shell('export ip_head="$RAY_ADDRESS"', 'exec python -u train.py --address "$RAY_ADDRESS" --lr 1e-6', "")}},
        4,
    ),
    "ray-job-submit": (
        FOUR_NODES + "H=$(scontrol show hostnames | head -n1)\nexport RAY_ADDRESS=$H:6379\nsrun -N1 -n1 -w $H ray start --head --port=6379 --block &\nsrun -N3 -n3 -x $H ray start --address=$H:6379 --block &\nuntil ray status | grep -q 4; do sleep 3; done\nray job submit --runtime-env-json='{}' \\\n  -- python3 -m ppo \\\n  --lr 1e-6\n",
        {"train": {"hosts": 4, "ray": True, "instances": 8, "command": ["python3", "-m", "ppo", "--lr", "1e-6"]}},
        4,
    ),
    "ray-on-one-node": (
        FOUR_GPUS + "ray start --head --num-gpus=4\nsleep 15\npython tune.py --trials 20\n",
        {"train": {"hosts": 1, "ray": True, "instances": 4, "command": ["python", "tune.py", "--trials", "20"]}},
        1,
    ),
    "ray-with-gpus-that-no-directive-asks-for": (
        "#!/bin/bash\n#SBATCH --nodes=2\n" + HEAD.replace("--block", "--num-gpus=3 --block") + WORKERS + "python train.py\n",
        {"train": {"hosts": 2, "ray": True, "instances": 6, "command": _shell('export ip_head="$RAY_ADDRESS"', "exec python train.py", "")}},
        2,
    ),
    "server-on-one-gpu": (
        FOUR_GPUS + "PORT=8000\nCUDA_VISIBLE_DEVICES=0 vllm serve m --port $PORT > v.log 2>&1 &\nV=$!\nsleep 90\nexport URL=\"http://localhost:${PORT}/v1\"\nCUDA_VISIBLE_DEVICES=1,2,3 torchrun --nproc-per-node=3 train.py --server_port $PORT\nkill $V\n",
        {
            "server": {"gpus": 1, "command": ["vllm", "serve", "m", *HAS_PORT], "ready": f"{HTTP}/health"},
            "train": {"hosts": 1, "command_per": "node", "instances": 3, "needs": ["server"], "command": _shell('export URL="http://$TRAINJOB_ROLE_SERVER/v1"', "exec torchrun train.py --server_port ${TRAINJOB_ROLE_SERVER##*:}", "")},
        },
        1,
    ),
    "server-on-the-last-node": (
        FOUR_NODES + 'N=($(scontrol show hostnames))\nS=${N[-1]}\nsrun --nodes=1 --ntasks=1 -w "$S" python -m vllm.entrypoints.openai.api_server --model m --port 8080 &\nuntil curl -sf http://$S:8080/ping; do sleep 5; done\nsrun --nodes=3 --ntasks=3 --exclude=$S torchrun --nnodes=3 --nproc-per-node=2 train.py --url http://$S:8080/v1\n',
        {
            "server": {"hosts": 1, "command": ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", *HAS_PORT], "ready": f"{HTTP}/ping"},
            "train": {"hosts": 3, "command_per": "node", "instances": 6, "needs": ["server"], "command": _shell("exec torchrun train.py --url http://$TRAINJOB_ROLE_SERVER/v1")},
        },
        4,
    ),
    "server-on-cpus-awaited-by-a-function": (
        "#!/bin/bash\n#SBATCH --cpus-per-task=8\nup() {\n  for i in $(seq 60); do\n    curl -s http://127.0.0.1:5001/ok && return 0\n    sleep 2\n  done\n  exit 1\n}\npython reward_server.py --port 5001 --workers 4 &\nS=$!\ntrap \"kill $S\" EXIT\nup\npython train.py --reward http://127.0.0.1:5001\n",
        {
            "server": {"hosts": 1, "command": ["python", "reward_server.py", *HAS_PORT, "--workers", "4"], "ready": f"{HTTP}/ok"},
            "train": {"hosts": 1, "instances": 1, "needs": ["server"], "command": _shell("exec python train.py --reward http://$TRAINJOB_ROLE_SERVER")},
        },
        2,
    ),
    "server-in-a-folder": (
        FOUR_GPUS + "cd serving\nCUDA_VISIBLE_DEVICES=0 python serve.py --port 8000 &\nsleep 60\nCUDA_VISIBLE_DEVICES=1,2,3 torchrun --nproc-per-node=3 train.py --port 8000\n",
        {
            "server": {"gpus": 1, "command": _shell(SERVING, "exec python serve.py --port '{port}'", ""), "ready": "{host}:{port}"},
            "train": {"hosts": 1, "command_per": "node", "instances": 3, "needs": ["server"], "command": _shell(SERVING, "exec torchrun train.py --port ${TRAINJOB_ROLE_SERVER##*:}", "")},
        },
        1,
    ),
    "server-on-a-node-that-only-a-run-knows": (
        FOUR_NODES + "export P=8000\nH=$(scontrol show hostnames | head -n 1)\nsrun -N1 -n1 -w $H vllm serve m --host $H --port $P &\nwhile ! curl -s $H:$P/v1/models; do sleep 9; done\nsrun -N3 -n3 -x $H torchrun --nnodes=3 --nproc-per-node=2 train.py --url http://$H:$P\n",
        {
            "server": {"hosts": 1, "command": ["vllm", "serve", "m", "--host", "{host}", *HAS_PORT], "ready": f"{HTTP}/v1/models"},
            "train": {"hosts": 3, "command_per": "node", "instances": 6, "needs": ["server"], "command": _shell('export P="${TRAINJOB_ROLE_SERVER##*:}"', "exec torchrun train.py --url http://$TRAINJOB_ROLE_SERVER", "")},
        },
        4,
    ),
    "redis-whose-host-and-port-are-variables": (
        "#!/bin/bash\n#SBATCH --cpus-per-task=8\nredis-server --port 6379 &\nuntil redis-cli -p 6379 ping; do sleep 1; done\nexport REDIS_HOST=localhost REDIS_PORT=6379\npython train.py\nredis-cli shutdown\n",
        {
            "server": {"hosts": 1, "command": ["redis-server", *HAS_PORT], "ready": "{host}:{port}"},
            "train": {"hosts": 1, "instances": 1, "needs": ["server"], "command": _shell('export REDIS_HOST="${TRAINJOB_ROLE_SERVER%:*}"', 'export REDIS_PORT="${TRAINJOB_ROLE_SERVER##*:}"', "exec python train.py", "")},
        },
        2,
    ),
    "server-in-a-subshell-that-is-bound-to-an-address": (
        FOUR_GPUS + "(CUDA_VISIBLE_DEVICES=0 gunicorn app:serve -b localhost:8000 --workers 2) &\nsleep 9\nCUDA_VISIBLE_DEVICES=1,2,3 torchrun --nproc-per-node=3 train.py --url http://localhost:8000\n",
        {
            "server": {"gpus": 1, "command": ["gunicorn", "app:serve", "-b", "{host}:{port}", "--workers", "2"], "ready": "{host}:{port}"},
            "train": {"hosts": 1, "command_per": "node", "instances": 3, "needs": ["server"], "command": _shell("exec torchrun train.py --url http://$TRAINJOB_ROLE_SERVER")},
        },
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_file_becomes_a_job_with_roles(name: str, tmp_path: Path) -> None:
    text, expected, nodes = CASES[name]
    adoption = adopted(text, tmp_path)
    job, cluster = job_from_text(adoption.job, "job.yaml"), cluster_from_text(adoption.cluster or "", "cluster.yaml")
    main = roles.main_of(expected)
    theirs = {key: value for key, value in expected[main].items() if key not in roles.OF_JOB}
    assert job.roles == {**expected, main: theirs}
    for key in ("command", "hosts", "instances"):
        assert getattr(job, key) == expected[main][key]
    assert cluster.capacity.most_hosts == nodes
    assert plan("cluster", cluster, job).topology.replicas == expected[main]["instances"]
    accounted = {number for one in adoption.account.entries for number in range(one.line, one.last + 1)}
    told = {number for number, line in enumerate(text.split("\n"), 1) if line.strip() and not line.startswith("#!")}
    assert told <= accounted


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("vllm serve m --tensor-parallel-size 4 &\nsleep 60\npython train.py\n", "4 of 4 GPUs.*leaves none"),
        ("python serve.py --port 80 &\nsleep 60\npython train.py\n", "does not say how many of 4 GPUs"),
        ("python serve.py &\nsleep 60\npython train.py\n", "none of its words is known to be its port"),
        ("if [ $X ]; then\n  vllm serve m &\nfi\npython train.py\n", "a statement with others .if., and a role"),
        ("(cd web && python serve.py --port 80 &)\nsleep 60\npython train.py\n", "a statement with others .subshell"),
        (
            "for i in 1 2; do\n  python serve.py --port 80$i &\ndone\nuntil curl :801; do :; done\npython train.py\n",
            "others .loop.",
        ),
        ("up() {\n  vllm serve m --port 80 &\n}\nup\npython train.py\n", "a statement with others .function"),
        (
            "CUDA_VISIBLE_DEVICES=0 vllm serve m &\nCUDA_VISIBLE_DEVICES=1 vllm serve n --port 81 &\nsleep 60\npython train.py --port 81\n",
            ":6 starts a server beside that of line 5",
        ),
        ("vllm serve $(pick) &\nsleep 60\npython train.py\n", "known only when it runs"),
        ("srun --container-image=i ray start --head --block &\nsleep 9\npython train.py\n", "Ray in a container"),
        (
            "H=$(hostname)\nray start --head --node-ip-address=$H &\nsleep 9\nP=$(free $H)\nexport P\npython train.py\n",
            "reads H, and a role's address",
        ),
        (
            "CUDA_VISIBLE_DEVICES=0 vllm serve m &\nsleep 60\npython make_data.py --url http://localhost:8000/v1\nsrun python train.py\n",
            "reads an address, and a role's address.*make_data.py",
        ),
        (
            "CUDA_VISIBLE_DEVICES=0 vllm serve m &\nsleep 60\nexport A=1 URL=http://localhost:8000/v1\nsrun python train.py\n",
            "reads an address, and a role's address.*URL=http://localhost:8000",
        ),
        (
            "source a/bin/activate\nCUDA_VISIBLE_DEVICES=0 vllm serve m &\nsleep 60\nsource b/bin/activate\npython train.py\n",
            "changes the environment behind the start of a server in line 6",
        ),
        ('srun bash -c "ray start --head; python train.py"\n', "the driver in the same statement"),
    ],
)
def test_what_can_not_be_a_role_is_refused_by_name(body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AdoptionError, match=message) as refused:
        adopted(FOUR_GPUS + body, tmp_path)
    assert refused.value.cure


def test_a_port_that_the_training_does_not_name_is_said(tmp_path: Path) -> None:
    adoption = adopted(FOUR_GPUS + "vllm serve m --port 8000 &\nsleep 60\npython train.py\n", tmp_path)
    assert "port 8000: what asks the server for its port must read TRAINJOB_ROLE_SERVER" in lost(adoption)


def test_the_account_has_the_lines_as_they_stood(tmp_path: Path) -> None:
    adoption = adopted(CASES["server-on-one-gpu"][0], tmp_path)
    by_text = {one.text.split()[0]: one for one in adoption.account.entries}
    assert by_text["sleep"].what == "ready: http://{host}:{port}/health"
    assert by_text["sleep"].where is Where.TRAINJOB
    assert not [one.text for one in adoption.account.entries if "TRAINJOB_ROLE" in one.text]
    assert "server-sleep-ready" in adoption.cured


def test_a_secret_of_a_server_is_refused(tmp_path: Path) -> None:
    text = (
        FOUR_GPUS
        + "API_KEY=sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34\nvllm serve m --api-key $API_KEY &\nsleep 60\npython train.py\n"
    )
    with pytest.raises(AdoptionError, match="secret"):
        adopted(text, tmp_path)


def test_a_server_that_its_client_awaits_is_a_role(tmp_path: Path) -> None:
    text = (
        FOUR_GPUS
        + "nohup env CUDA_VISIBLE_DEVICES=3 trl vllm-serve --model m &\nCUDA_VISIBLE_DEVICES=0,1,2 torchrun train.py\n"
    )
    job = job_from_text(adopted(text, tmp_path).job, "job.yaml")
    assert job.roles["server"] == {
        "gpus": 1,
        "command": ["trl", "vllm-serve", "--model", "m", *HAS_PORT],
        "ready": f"{HTTP}/health/",
    }


def test_a_host_that_the_training_is_told_twice(tmp_path: Path) -> None:
    text = "vllm serve m &\nsleep 60\npython train.py --reward-host localhost --host localhost --port 8000\n"
    command = job_from_text(adopted(FOUR_GPUS + text, tmp_path).job, "job.yaml").command
    assert command[-1].split("train.py ")[1].split() == [
        *("--reward-host", "${TRAINJOB_ROLE_SERVER%:*}", "--host", "${TRAINJOB_ROLE_SERVER%:*}"),
        *("--port", "${TRAINJOB_ROLE_SERVER##*:}"),
    ]


def test_a_variable_of_several_words_is_told_the_address(tmp_path: Path) -> None:
    text = 'vllm serve m &\nsleep 60\nexport ARGS="--model x --url http://localhost:8000/v1"\npython train.py\n'
    command = job_from_text(adopted(FOUR_GPUS + text, tmp_path).job, "job.yaml").command
    assert 'export ARGS="--model x --url http://$TRAINJOB_ROLE_SERVER/v1"\n' in command[-1]


def test_what_runs_beside_and_is_not_awaited_is_no_role(tmp_path: Path) -> None:
    adoption = adopted(FOUR_GPUS + "nvidia-smi -l 5 &\npython watch.py &\nsrun python train.py\n", tmp_path)
    assert "roles" not in adoption.job


def test_each_statement_is_looked_at_once_for_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr("batchfiles.adoption.roles.looks_for_server", lambda _script, at, _behind: looked.append(at))
    (tmp_path / "train.sbatch").write_text(FOUR_GPUS + "srun python train.py &\nwait\n" * 5)
    adopt(tmp_path / "train.sbatch", tmp_path)
    assert len(looked) == len(set(looked)) == 9
