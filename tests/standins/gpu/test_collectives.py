"""NCCL's collectives on gloo: unmodified scripts of several ranks, and the mistakes that would hang or fail on GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gpu_scripts import BEGIN, environment, ranks, values
from trainjob.records import updates
from trainjob.rehearse.gpus import Usage

pytestmark = pytest.mark.timeout(400, func_only=True)

OWN_GPU = BEGIN + "torch.cuda.set_device(local)\n"

TRAINS = (
    BEGIN.replace('"nccl"', "BACKEND")
    + """
import json
device = torch.device("cuda", local) if dist.get_backend() == "nccl" else torch.device("cpu")
if device.type == "cuda": torch.cuda.set_device(device)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(device)
model = DDP(model, device_ids=[local] if device.type == "cuda" else None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(4):
    torch.manual_seed(100 * rank + step)
    loss = model(torch.randn(4, 8).to(device)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item().hex())
print(json.dumps(losses))
dist.destroy_process_group()
"""
)


def test_ddp_on_gpus_equals_ddp_on_cpus_to_the_last_digit(tmp_path: Path) -> None:
    on_gpus = [values(ended) for ended in ranks(tmp_path, TRAINS.replace("BACKEND", '"nccl"'))]
    on_cpus = [values(ended) for ended in ranks(tmp_path, TRAINS.replace("BACKEND", '"gloo"'))]
    assert on_gpus == on_cpus


EVERY_COLLECTIVE = """
import json
show = lambda tensor: tensor.tolist()
mine = torch.full((2,), float(rank + 1), device="cuda")
summed, averaged = mine.clone(), mine.clone()
dist.all_reduce(summed); dist.all_reduce(averaged, op=dist.ReduceOp.AVG)
parts = [torch.empty(2, device="cuda") for _ in range(2)]; dist.all_gather(parts, mine)
flat = torch.empty(4, device="cuda"); dist.all_gather_into_tensor(flat, mine)
own = torch.empty(2, device="cuda"); dist.reduce_scatter_tensor(own, torch.arange(4.0, device="cuda"))
swapped, given = torch.empty(2, device="cuda"), torch.tensor([0.0, 1.0], device="cuda") + 10 * rank
dist.all_to_all_single(swapped, given)
sent = mine.clone(); dist.broadcast(sent, 1)
other = torch.empty(2, device="cuda")
ops = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]
for work in dist.batch_isend_irecv(ops): work.wait()
objects = [None, None]; dist.all_gather_object(objects, rank)
counted = torch.tensor([rank + 2], device="cuda"); dist.all_reduce(counted, op=dist.ReduceOp.AVG)
dist.barrier()
print(json.dumps([show(summed), show(averaged), [show(p) for p in parts], show(flat), show(own), show(swapped),
    show(sent), show(other), objects, show(counted), dist.get_backend(), str(own.device)]))
dist.destroy_process_group()
"""


def test_every_collective_gives_what_nccl_gives(tmp_path: Path) -> None:
    both = [3.0, 3.0]
    for rank, ended in enumerate(ranks(tmp_path, OWN_GPU + EVERY_COLLECTIVE)):
        (seen,) = values(ended)
        assert seen == [
            both,
            [1.5, 1.5],
            [[1.0, 1.0], [2.0, 2.0]],
            [1.0, 1.0, 2.0, 2.0],
            [4.0 * rank, 4.0 * rank + 2.0],
            [float(rank), 10.0 + rank],
            [2.0, 2.0],
            [2.0 - rank, 2.0 - rank],
            [0, 1],
            [2],
            "nccl",
            f"cuda:{rank}",
        ]


def test_sharded_models_and_synchronised_batch_norm(tmp_path: Path) -> None:
    script = (
        OWN_GPU
        + """
import json
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
net = lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2))
inputs = torch.randn(4, 8, device="cuda")
torch.manual_seed(0); second = net().cuda(); fully_shard(second); second(inputs).sum().backward()
torch.manual_seed(0); first = FSDP(net().cuda(), device_id=local); first(inputs).sum().backward()
norm = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3))
norm = DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(norm).cuda(), device_ids=[local])
images = torch.full((2, 1, 8, 8), float(rank), device="cuda") + torch.randn(2, 1, 8, 8, device="cuda")
out = norm(images); out.square().sum().backward()
total = out.detach().sum(dim=(0, 2, 3)); dist.all_reduce(total)
print(json.dumps([bool(torch.allclose(first(inputs), second(inputs))), bool(total.abs().max() < 1e-3)]))
dist.destroy_process_group()
"""
    )
    assert [values(ended) for ended in ranks(tmp_path, script)] == [[[True, True]]] * 2


RARER = """
import json
sizes = [torch.empty(size, device="cuda") for size in (1, 3)]
dist.all_gather(sizes, torch.full((1 + 2 * rank,), float(rank), device="cuda"))
kept, got, sent = (torch.full((2,), value, device="cuda") for value in (0.0, 0.0, 7.0 + rank))
pairs = [(dist.isend, sent, rank), (dist.irecv, kept, rank), (dist.isend, sent, 1 - rank), (dist.irecv, got, 1 - rank)]
for work in dist.batch_isend_irecv([dist.P2POp(*pair) for pair in pairs]): work.wait()
with torch.profiler.profile() as profile: dist.all_reduce(sent); dist.broadcast(sent, 0)
names = sorted(event.name for event in profile.events() if event.name.startswith("nccl:"))
dist.set_debug_level(dist.DebugLevel.DETAIL)
objects = [None, None]; dist.all_gather_object(objects, {"rank": rank})
x = torch.arange(12.0, device="cuda").view(4, 3) * (rank + 1)
mean, inverse = torch.batch_norm_stats(x, 1e-5)
means, inverses = ([torch.empty(3, device="cuda") for _ in range(2)] for _ in range(2))
dist.all_gather(means, mean); dist.all_gather(inverses, inverse)
running = [torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")]
mean, inverse = torch.batch_norm_gather_stats(x, torch.stack(means), torch.stack(inverses), *running, 1.0, 1e-5, 4)
whole = torch.cat([torch.arange(12.0).view(4, 3), torch.arange(12.0).view(4, 3) * 2])
right = torch.allclose(mean.cpu(), whole.mean(0)) and torch.allclose(running[1].cpu(), whole.var(0), rtol=1e-4)
print(json.dumps([[size.tolist() for size in sizes], kept.tolist(), got.tolist(), names, objects, right]))
dist.destroy_process_group()
"""


def test_rarer_calls_that_nccl_takes(tmp_path: Path) -> None:
    for rank, ended in enumerate(ranks(tmp_path, OWN_GPU + RARER)):
        (seen,) = values(ended)
        assert seen == [
            [[0.0], [1.0, 1.0, 1.0]],
            [7.0 + rank] * 2,
            [8.0 - rank] * 2,
            ["nccl:all_reduce", "nccl:broadcast"],
            [{"rank": 0}, {"rank": 1}],
            True,
        ]


# What the last lines of rank 0 must say: the rank, the line of the script, and the cure.
MISTAKES = {
    "all ranks on one GPU": (
        BEGIN + "dist.all_reduce(torch.ones(2, device='cuda'))",
        ["Duplicate GPU detected", "rank 0 stopped at script.py:5 in <module>", "torch.cuda.set_device(LOCAL_RANK)"],
    ),
    "a tensor of the CPU in a collective": (
        OWN_GPU + "dist.all_reduce(torch.ones(2))",
        [
            "No backend type associated with device type cpu",
            "rank 0 stopped at script.py:6",
            'init_process_group("cpu:gloo,cuda:nccl")',
        ],
    ),
    "different collectives": (
        OWN_GPU
        + "x = torch.ones(2, device='cuda')\n"
        + "def average():\n"
        + "    dist.all_reduce(x)\n"
        + "if rank == 0: average()\n"
        + "else: dist.broadcast(x, 0)",
        [
            "rank 0: all_reduce SUM Float[2] at script.py:8 in average, called from script.py:9 in <module>",
            "rank 1: broadcast from rank 0 Float[2] at script.py:10",
            "rank 0 stopped at script.py:8 in average: let every rank call the same collectives, in the same order",
        ],
    ),
    "a batch left on the CPU": (
        OWN_GPU + "DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[local]).module(torch.ones(1, 2))",
        ["Expected all tensors to be on the same device", "cuda:0 and cpu", "rank 0 stopped at", "batch.to(device)"],
    ),
    "uneven batches": (
        OWN_GPU + "for _ in range(3 - rank): dist.all_reduce(torch.ones(2, device='cuda'))",
        ["rank 0 waits in all_reduce SUM Float[2] at script.py:6", "the same number of steps (drop_last=True"],
    ),
    "a rank that never calls": (
        OWN_GPU
        + "import time\n"
        + "def evaluate():\n"
        + "    while True: time.sleep(0.1)\n"
        + "if rank == 1: evaluate()\n"
        + "dist.all_reduce(torch.ones(2, device='cuda'))",
        [
            "rank 0 waits in all_reduce SUM Float[2] at script.py:10 in <module>, and not every rank calls it",
            "rank 1 is at script.py:8 in evaluate, called from script.py:9 in <module>",
            "rank 0 stopped at script.py:10 in <module>: let every rank call it, or none",
        ],
    ),
    "a model that is wrapped before it is on its GPU": (
        BEGIN + "model = DDP(torch.nn.Linear(4, 4)).cuda()",
        ["device type cpu", "rank 0 stopped at script.py:5", "before DistributedDataParallel wraps it"],
    ),
    "a device_id that is another rank's": (
        BEGIN.replace('"nccl")', '"nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))')
        + "dist.all_reduce(torch.ones(2, device=torch.device('cuda', 3)))",
        [
            "not on device passed to init_process_group",
            "rank 0 stopped at script.py:5",
            "device_id=torch.device('cuda'",
        ],
    ),
}


# Found by waiting for a rank that does not come. In any other case a rank may well be slow to come.
HANGS = ("uneven batches", "a rank that never calls")


LONGER = ("a device_id that is another rank's", "a tensor of the CPU in a collective", "uneven batches")


@pytest.mark.parametrize(
    "mistake", [pytest.param(one, marks=pytest.mark.full if one in LONGER else ()) for one in MISTAKES]
)
def test_a_mistake_is_an_error_with_its_line_and_no_hang(tmp_path: Path, mistake: str) -> None:
    script, words = MISTAKES[mistake]
    ended = ranks(tmp_path, script, TRAINJOB_STANDIN_HANG_S="6" if mistake in HANGS else "100")
    assert ended[0].code != 0
    for word in words:
        assert word in ended[0].err


def test_more_ranks_than_gpus(tmp_path: Path) -> None:
    ended = ranks(tmp_path, OWN_GPU, count=1)
    assert "invalid device ordinal" in ended[1].err
    assert "this process sees 1" in ended[1].err
    assert "rank 1 stopped at script.py:5 in <module>: start no more ranks on a node than it has GPUs" in ended[1].err


def test_what_goes_wrong_without_an_error_is_noted(tmp_path: Path) -> None:
    script = (
        OWN_GPU
        + """
from torch.utils.data import DataLoader, DistributedSampler
if rank == 0: torch.save(torch.ones(2, device="cuda"), "first.pt")
dist.barrier()
torch.load("first.pt")
loader = DataLoader(list(range(8)), sampler=DistributedSampler(list(range(8))))
for epoch in range(2):
    for batch in loader: pass
torch.save({}, "model.pt")
dist.destroy_process_group()
"""
    )
    # As in a rehearsal, which also records each update.
    hook = updates.hooked(tmp_path, environment(tmp_path)["PYTHONPATH"])
    assert [ended.code for ended in ranks(tmp_path, script, 2, 4, **hook, TRAINJOB_RUN_DIR=str(tmp_path))] == [0, 0]
    notes = Usage.read(tmp_path).notes()
    assert len(notes) == 4
    assert (
        "torch.load at script.py:10 in <module> puts tensors on cuda:0, and this is local rank 1" in notes[0] + notes[1]
    )
    assert "without set_epoch (script.py:13 in <module>)" in notes[0] + notes[1]
    assert "ranks 0, 1 put tensors on GPU 0 of" in notes[2]
    assert "model.pt was written by ranks 0, 1 (script.py:14 in <module>)" in notes[3]
    reported = "\n".join(Usage.read(tmp_path).lines())
    assert "rank 1: GPU 0, GPU 1 of" in reported
    assert "barrier of nothing: 2 calls over all ranks" in reported


def test_a_group_that_was_destroyed_takes_no_collective(tmp_path: Path) -> None:
    script = (
        OWN_GPU
        + """
import datetime, json
group = dist.group.WORLD._get_backend(torch.device("cuda"))
x = torch.ones(2, device="cuda"); group.allreduce([x]).wait()
dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=90))
print(json.dumps([x.tolist(), group.options._timeout.total_seconds()]))
dist.destroy_process_group()
try: group.allreduce([x])
except dist.DistBackendError as error: print(json.dumps(str(error).split(":")[0]))
"""
    )
    for rank, ended in enumerate(ranks(tmp_path, script)):
        assert values(ended) == [[[2.0, 2.0], 90.0], f"NCCL communicator was aborted on rank {rank}"]


def test_what_nccl_takes_and_gloo_does_not(tmp_path: Path) -> None:
    script = (
        OWN_GPU
        + """
import json
options = dist.ProcessGroupNCCL.Options()
options.config.max_ctas = 4
print(json.dumps(options.config.max_ctas))
eighths = (torch.arange(2.0, device="cuda") + rank).to(torch.float8_e4m3fn)
parts = [torch.empty_like(eighths) for _ in range(2)]
dist.all_gather(parts, eighths)
flat = torch.empty(4, device="cuda", dtype=eighths.dtype)
dist.all_gather_into_tensor(flat, eighths)
swapped = torch.empty_like(eighths)
dist.all_to_all_single(swapped, eighths)
print(json.dumps([torch.cat(parts).float().tolist(), flat.float().tolist(), swapped.float().tolist()]))
try: dist.all_reduce(eighths)
except RuntimeError as error: print(json.dumps(str(error).splitlines()[0][:6]))
x, y = torch.arange(4.0, device="cuda").view(2, 2).t() + 10 * rank, torch.empty(2, 2, device="cuda").t()
try: dist.all_to_all_single(y, x)
except ValueError as error: print(json.dumps(str(error).splitlines()[0]))
works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)])
for work in works: work.wait()
print(json.dumps(y.t().tolist()))
dist.destroy_process_group()
"""
    )
    first, second = (values(ended) for ended in ranks(tmp_path, script))
    both = [0.0, 1.0, 1.0, 2.0]
    refused = ["Float8", "Tensors must be contiguous"]
    assert first == [4, [both, both, [0.0, 1.0]], *refused, [[10.0, 11.0], [12.0, 13.0]]]
    assert second == [4, [both, both, [1.0, 2.0]], *refused, [[0.0, 1.0], [2.0, 3.0]]]


def test_names_of_split_groups_and_the_check_for_nan(tmp_path: Path) -> None:
    script = (
        BEGIN.replace('"nccl"', '"nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"]))')
        + """
import json
torch.cuda.set_device(local)
whole = dist.group.WORLD._get_backend(torch.device("cuda"))
first, second = dist.split_group(split_ranks=[[0, 1]]), dist.split_group(split_ranks=[[0], [1]], group_desc="mine")
print(json.dumps([first.group_desc, second.group_desc, whole.comm_split_count(), second.size()]))
x = torch.full((2,), float("nan") if rank == 0 else 1.0, device="cuda", dtype=torch.float32)
dist.broadcast(x, 1)  # what rank 0 has is not read
y = x.clone(); y[1] = float("nan")
try: dist.all_reduce(y)
except RuntimeError as error: print(json.dumps(str(error).splitlines()))
whole._set_enable_nan_check(False)
dist.all_reduce(y)
print(json.dumps([x.tolist(), y[0].item()]))
"""
    )
    for rank, ended in enumerate(ranks(tmp_path, script, TORCH_NCCL_NAN_CHECK="1")):
        named, refused, moved = values(ended)
        assert named == ["default_pg:split:0", "mine", 2, 1]
        assert refused == [
            "CUDA error: device-side assert triggered",
            f"(stand-in: TORCH_NCCL_NAN_CHECK is set, and rank {rank} gives NaN to all_reduce SUM)",
        ]
        assert moved == [[1.0, 1.0], 2.0]
