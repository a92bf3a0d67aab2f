"""Several instances: popdist's getters, gradients across them, Horovod's fallback, and the floor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ipu_instances import run

HELLO = """
import json, popdist
print(json.dumps([popdist.isPopdistEnvSet(), popdist.getInstanceIndex(), popdist.getNumInstances(),
    popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset(),
    popdist.getNumIpusPerReplica(), popdist.getDeviceId(),
    popdist.execute_on_instances({2}, lambda: "two")]))
"""


@pytest.mark.timeout(300)
def test_a_hello_program_prints_the_lessons_numbers() -> None:
    """2.1: 8 replicas on 4 instances, 2 IPUs each."""
    seen = [json.loads(out) for out, _ in run(HELLO, 4, 8, 2)]
    assert seen == [
        [True, index, 4, 8, 2, 2 * index, 2, 24 + index, "two" if index == 2 else None] for index in range(4)
    ]


TRAINS = """
import json, poptorch, popdist.poptorch, torch
torch.manual_seed(1)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def forward(self, x):
        return poptorch.identity_loss((self.layer(x) ** 2).sum(), "sum")
options = popdist.poptorch.Options().deviceIterations(2)
options.Training.gradientAccumulation(2)
options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.{reduction})
model = Model()
training = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
replicas, local, first = popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()
# iteration, replica, micro batch: the same numbers whoever holds which
everything = torch.arange(2 * replicas * 2 * 3, dtype=torch.float64).view(2, replicas, 2, 3).sin()
for _ in range(3):
    loss = training(everything[:, first : first + local].reshape(-1, 3))
assert not torch.distributed.is_initialized()
print(json.dumps([w for p in model.parameters() for w in p.double().flatten().tolist()]))
"""


@pytest.mark.timeout(300)
@pytest.mark.full
@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
def test_gradients_are_reduced_over_replicas_of_all_instances(reduction: str) -> None:
    """4.3, 4.9: and in a group of the stand-in's own, apart from torch's default group."""
    script = TRAINS.replace("{reduction}", reduction)
    exact: dict[str, Any] = {"TRAINJOB_STANDIN_ARITHMETIC": "float64"}
    four = [json.loads(out) for out, _ in run(script, 4, 8, **exact)]
    assert four[0] == four[1] == four[2] == four[3]
    ((one, _),) = run(script, 1, 8, **exact)
    assert four[0] == pytest.approx(json.loads(one), rel=1e-6)


HOROVOD = """
import horovod.torch as hvd, torch, popdist
hvd.init()
rank, size = hvd.rank(), hvd.size()
assert (rank, size) == (popdist.getInstanceIndex(), popdist.getNumInstances()) and hvd.local_rank() == rank
means = hvd.grouped_allreduce([torch.tensor([float(rank)]), torch.tensor(2.0 * rank)], op=hvd.Average)
assert [mean.tolist() for mean in means] == [[1.0], 2.0]
assert hvd.allreduce(torch.tensor([rank, 1]), op=hvd.Sum).tolist() == [3, 3]
assert hvd.allreduce(torch.tensor([rank]), op=hvd.Max).item() == 2
assert hvd.allreduce(torch.tensor([float(rank)]).half()).item() == 1.0
assert hvd.broadcast(torch.tensor([rank]), root_rank=2).item() == 2
model = torch.nn.Linear(1, 1)
with torch.no_grad():
    model.weight.fill_(rank)
hvd.broadcast_parameters(model.state_dict(), root_rank=1)
assert model.weight.item() == 1
assert hvd.broadcast_object({"of": rank}, root_rank=1) == {"of": 1}
assert hvd.allgather(torch.arange(rank)).tolist() == [0, 0, 1]
assert hvd.allgather_object("r%d" % rank) == ["r0", "r1", "r2"]
hvd.broadcast_optimizer_state(torch.optim.SGD(model.parameters(), lr=0.1), root_rank=0)
assert not torch.distributed.is_initialized()
try:
    hvd.DistributedOptimizer
except AttributeError as error:
    assert "Install" in str(error)
hvd.shutdown()
assert not hvd.is_initialized()
print("fine")
"""


@pytest.mark.timeout(300)
def test_the_fallback_for_horovod() -> None:
    """Issue: init, rank, size, local_rank, the collectives and the ops."""
    assert [out for out, _ in run(HOROVOD, 3, 3)] == ["fine\n"] * 3


@pytest.mark.timeout(300)
@pytest.mark.parametrize("service", ["floor", pytest.param("torch 2.0.1", marks=pytest.mark.full)])
def test_an_sdks_torch_has_all_of_it(service: str, needs: Callable[[str], Path]) -> None:
    """Python 3.8 with torch 1.10 (SDK 2.6) and 2.0.1 (SDK 3.4)."""
    floor = str(needs(service))
    assert [out for out, _ in run(HOROVOD, 3, 3, python=floor)] == ["fine\n"] * 3
    exact: dict[str, Any] = {"TRAINJOB_STANDIN_ARITHMETIC": "float64"}
    script = TRAINS.replace("{reduction}", "Mean")
    (old, _), _ = run(script, 2, 4, python=floor, **exact)
    ((new, _),) = run(script, 1, 4, **exact)
    # Other first weights by another torch would tell; SGD from the same seed is the same.
    assert json.loads(old) == pytest.approx(json.loads(new), rel=1e-6)


def test_only_the_first_instance_says_what_runs() -> None:
    """Issue: they say once, on instance 0, that they stand in for semantics and not for speed."""
    output = run("import popdist, popdist.poptorch; popdist.init(); popdist.poptorch.Options()", 2, 2)
    assert [err.count("not how fast") for _, err in output] == [1, 0]


LESSON = """
import popdist, popdist.poptorch, poptorch, torch

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 50000
    def __getitem__(self, index):
        return IMAGE, index % 10

IMAGE = torch.zeros(3, 32, 32, dtype=torch.uint8)

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 10)
    def forward(self, images, labels):
        outputs = self.layer(images.float().mean((2, 3)))
        loss = torch.nn.functional.cross_entropy(outputs, labels, reduction="sum")
        return outputs, poptorch.identity_loss(loss, reduction="sum")

if popdist.isPopdistEnvSet() and popdist.getNumInstances() > 1:
    options = popdist.poptorch.Options()
else:
    options = poptorch.Options().replicationFactor(REPLICAS)
options.randomSeed(2022).deviceIterations(4).showCompilationProgressBar(popdist.getInstanceIndex() == 0)
options.Training.gradientAccumulation(8)
options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
loader = poptorch.DataLoader(
    options, Images(), batch_size=64, shuffle=True, num_workers=WORKERS, mode=poptorch.DataLoaderMode.Async,
    async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
)
model = Small()
training = poptorch.trainingModel(model, options, poptorch.optim.AdamW(model.parameters(), lr=0.001))
steps = 0
for images, labels in loader:
    if not steps:
        training(images, labels)
    steps += 1
loader.terminate()
print(steps, len(loader), loader.combinedBatchSize, popdist.getReplicaIndexOffset())
"""

WAYS = [
    pytest.param(1, 1, 0, [(24, 2048, 0)], id="one-replica"),
    pytest.param(1, 8, 0, [(3, 16384, 0)], id="eight-replicas", marks=pytest.mark.full),
    pytest.param(1, 8, 2, [(3, 16384, 0)], id="eight-replicas-with-workers"),
    pytest.param(4, 8, 0, [(3, 4096, 0), (3, 4096, 2), (3, 4096, 4), (3, 4096, 6)], id="four-instances-of-two"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("instances", "replicas", "workers", "expected"), WAYS)
def test_the_lessons_four_ways(instances: Any, replicas: Any, workers: Any, expected: Any) -> None:
    """9.4, 4.4: 50,000 samples, batch 64, accumulation 8, 4 device iterations: 24, 3, 3 and 3 loader steps."""
    script = LESSON.replace("REPLICAS", str(replicas)).replace("WORKERS", str(workers))
    # The lessons' first three steps run without poprun.
    seen = [out.split() for out, _ in run(script, instances, replicas if instances > 1 else 0)]
    assert seen == [[str(steps), str(steps), str(size), str(first)] for steps, size, first in expected]
