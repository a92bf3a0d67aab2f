"""Launchers that start the ranks of their node, rehearsed: the real torchrun, under a real Slurm."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ran
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import logs
from trainjob.observe.ranks import usage_of

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist

device = "cpu"
if "accelerate" in sys.argv:
    from accelerate import Accelerator

    device = Accelerator().device
elif "deepspeed" in sys.argv:
    import deepspeed

    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(4, 1)
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    engine.backward(engine(torch.ones(2, 4)).mean())
    engine.step()
else:
    dist.init_process_group("gloo")
ones = torch.ones(1, device=device)
dist.all_reduce(ones)
print(f"rank {dist.get_rank()} sums to {ones.item():.0f}", flush=True)
# Of a first attempt on a busy machine: the fault comes before its ranks catch any signal.
if os.environ.get("LATE") and os.environ["TRAINJOB_ATTEMPT"] == "1":
    time.sleep(15)
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
marker = Path(os.environ["TRAINJOB_RUN_DIR"], "requeue")
# Long enough to be seen, and for a fault; what has been stopped once is done soon.
for _ in range(300 if os.environ.get("LONG") and os.environ["TRAINJOB_ATTEMPT"] == "1" else 60):
    stops = torch.tensor(float(bool(asked)), device=device)
    dist.all_reduce(stops)
    if stops.item():
        if dist.get_rank() == 0:
            marker.write_text("1")
        break
    time.sleep(0.1)
dist.destroy_process_group()
"""


@pytest.fixture
def rehearse(needs: Callable[[str], Path], tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    needs("slurm")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    program = Path(sys.executable).with_name("trainjob")

    def run(
        *flags: str,
        sizes: tuple[str, ...] = ("--instances", "4", "--hosts", "2", "--no-gpus"),
        command: tuple[str, ...] = ("torchrun", "train.py"),
        programs: Path = program.parent,
    ) -> tuple[int, dict[str, Any], str]:
        job = ("--cluster", "slurm-gpu", *sizes, "--keep", "--json", *flags)
        words: list[str | Path] = [program, "rehearse", *job, "--", *command]
        environ = {**os.environ, "PATH": f"{programs}:{program.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}
        ended = ran(words, folder=project, environ=environ, timeout_s=300)
        verdict = json.loads(ended.stdout)
        logs = sorted(Path(verdict["folder"], "logs").glob("rank-*.log"))
        return ended.returncode, verdict, "".join(log.read_text() for log in logs)

    return run


def test_torchrun_starts_once_per_node_and_all_ranks_form_one_world(
    rehearse: Callable[..., tuple[int, dict[str, Any], str]],
) -> None:
    code, verdict, printed = rehearse()
    assert (code, verdict["passed"]) == (0, True), verdict["outcome"]
    assert sorted(line for line in printed.splitlines() if line.startswith("rank")) == [
        f"rank {rank} sums to 4" for rank in range(4)
    ]


def test_each_rank_has_a_log_and_samples(rehearse: Callable[..., tuple[int, dict[str, Any], str]]) -> None:
    _, verdict, _ = rehearse()
    paths = RunPaths(Path(verdict["folder"]))
    for rank in range(4):
        printed = b"".join(logs.read(paths, rank)).decode().splitlines()
        assert [line for line in printed if line.startswith("rank")] == [f"rank {rank} sums to 4"]
    assert [(one.rank, one.host) for one in usage_of(paths)] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
    with pytest.raises(UserError, match=r"has no rank 4.*ranks 0 to 3"):
        logs.tails(paths, 4)


@pytest.mark.parametrize(
    ("inject", "outcome", "late"),
    [("timeout", "COMPLETED in 2 attempts", "1"), ("rank-death", "FAILED and rank 3 is named, exit code 137", "")],
)
def test_the_ranks_of_a_launcher_are_asked_and_named_as_ours_are(
    rehearse: Callable[..., tuple[int, dict[str, Any], str]], inject: str, outcome: str, late: str
) -> None:
    code, verdict, printed = rehearse("--env", "LONG=1", "--env", f"LATE={late}", "--inject", inject)
    assert (code, verdict["outcome"]) == (0, outcome), printed


@pytest.mark.full
def test_the_real_accelerate_on_stand_in_gpus(
    rehearse: Callable[..., tuple[int, dict[str, Any], str]], needs: Callable[[str], Path]
) -> None:
    programs, command = needs("launchers").parent, ("accelerate", "launch", "train.py", "accelerate")
    code, verdict, printed = rehearse(sizes=("--instances", "8"), command=command, programs=programs)
    assert (code, verdict["outcome"]) == (0, "COMPLETED"), printed
    assert sorted(line for line in printed.splitlines() if line.startswith("rank")) == [
        f"rank {rank} sums to 8" for rank in range(8)
    ]


@pytest.mark.full
def test_the_real_deepspeed_on_cpus(
    rehearse: Callable[..., tuple[int, dict[str, Any], str]], needs: Callable[[str], Path]
) -> None:
    programs, command = needs("launchers").parent, ("deepspeed", "train.py", "deepspeed")
    extensions = programs.parent / "torch_extensions"
    for lock in extensions.rglob("lock"):
        lock.unlink()  # of a compiler that was killed: all ranks would wait for it, for ever
    settings = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(extensions)}
    # Once for this virtualenv: it takes minutes beside other work, which the ranks do not have.
    compiled = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load(verbose=False)"
    path = f"{programs}:{os.environ['PATH']}"
    ran([programs / "python", "-c", compiled], environ={**os.environ, **settings, "PATH": path}, timeout_s=900, code=0)
    flags = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    code, verdict, printed = rehearse(*flags, command=command, programs=programs)
    assert (code, verdict["outcome"]) == (0, "COMPLETED after 1 update"), printed
    assert sorted(line for line in printed.splitlines() if line.startswith("rank")) == [
        f"rank {rank} sums to 4" for rank in range(4)
    ]


def test_ranks_that_form_worlds_of_their_own_fail_the_rehearsal(
    rehearse: Callable[..., tuple[int, dict[str, Any], str]],
) -> None:
    code, verdict, printed = rehearse("--command-per", "rank")
    assert printed.count("rank 0 sums to 1") == 4
    assert (code, verdict["passed"]) == (1, False)
    assert "4 of 1 rank" in verdict["outcome"]
    assert "--command-per node" in verdict["outcome"]
