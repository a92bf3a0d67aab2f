"""The user guide's "Grouping tensor weights across replicas": replicaGrouping of a weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import options_of

SHARDS, REPLICAS_OF_SHARD = 4, 2


class Product(nn.Module):
    """Its weight's first dimension counts groups of replicas, each of which has some columns of a matrix."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, rows: Any) -> Any:
        import poptorch

        products = rows @ self.weight
        return products, poptorch.identity_loss(products**2, reduction="mean")


def options_of_replicas(poptorch: Any, **more: Any) -> Any:
    options = options_of(poptorch, 1, SHARDS * REPLICAS_OF_SHARD, reduction="Mean", **more)
    # Replicas 0 to 3 have the first rows, and 4 to 7 the others.
    return options.inputReplicaGrouping(SHARDS, poptorch.CommGroupType.Consecutive)


def group(poptorch: Any, model: Any, kind: str = "Orthogonal", size: int = REPLICAS_OF_SHARD) -> None:
    model.weight.replicaGrouping(poptorch.CommGroupType[kind], size, poptorch.VariableRetrievalMode.OnePerGroup)


def shards_of(matrix: Any) -> Any:
    return torch.stack(matrix.chunk(SHARDS, dim=1))


def test_a_matrix_split_over_groups_of_replicas_trains_as_the_whole(poptorch: Any) -> None:
    torch.manual_seed(2)
    rows, matrix = torch.randn(24, 8), torch.randn(8, 12)
    whole = nn.Parameter(matrix.clone())
    on_cpu = torch.optim.SGD([whole], lr=0.1, momentum=0.9)
    model = Product(shards_of(matrix))
    options = options_of_replicas(poptorch).outputMode(poptorch.OutputMode.All)
    training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    group(poptorch, training)
    for _ in range(3):
        on_cpu.zero_grad()
        loss = ((rows @ whole) ** 2).mean()
        loss.backward()
        on_cpu.step()
        products, losses = training(rows)
        # Each replica has the mean over its part of the products.
        assert losses.mean().item() == pytest.approx(loss.item(), rel=1e-5)
        assert products.shape == (SHARDS * 24, 12 // SHARDS)
    torch.testing.assert_close(model.weight.detach(), shards_of(whole.detach()))


def test_an_inference_model_takes_groups_as_well(poptorch: Any, tmp_path: Path) -> None:
    rows, matrix = torch.randn(2, 8), torch.randn(8, 12)
    inference = poptorch.inferenceModel(Product(shards_of(matrix)).eval(), options_of_replicas(poptorch))
    group(poptorch, inference)
    products, _ = inference(rows)
    expected = torch.cat([part for row in rows for part in (row @ matrix).view(SHARDS, -1)])
    torch.testing.assert_close(products.flatten(), expected)
    inference.save(str(tmp_path / "model.poptorch"))
    inference.destroy()
    loaded, _ = poptorch.load(str(tmp_path / "model.poptorch"))(rows)
    assert torch.equal(loaded, products)


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        ("Consecutive", 2, [0, 0, 1, 1, 2, 2, 3, 3]),
        ("Orthogonal", 2, [0, 1, 2, 3, 0, 1, 2, 3]),
        ("NoGrouping", 0, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_which_replicas_share_a_value(poptorch: Any, kind: str, size: int, expected: list[int]) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(max(expected) + 1.0))

        def forward(self, row: Any) -> Any:
            return row + self.weight

    inference = poptorch.inferenceModel(Own().eval(), options_of(poptorch, 1, 8))
    group(poptorch, inference, kind, size)
    assert inference(torch.zeros(8, 1)).flatten().tolist() == expected


def test_groups_that_cannot_be(poptorch: Any) -> None:
    def model(shape: tuple[int, ...] = (SHARDS, 8, 3), optimizer: Any = torch.optim.SGD, **how: Any) -> Any:
        wrapped = Product(torch.zeros(shape))
        given = optimizer(wrapped.parameters(), lr=0.1, **how)
        return poptorch.trainingModel(wrapped, options_of_replicas(poptorch), given)

    def refused(training: Any, kind: str = "Orthogonal", size: int = REPLICAS_OF_SHARD) -> str:
        group(poptorch, training, kind, size)
        with pytest.raises(poptorch.Error) as error:
            training(torch.zeros(2, 8))
        return str(error.value)

    assert "8 replicas can't be divided into groups of 3" in refused(model(), size=3)
    assert "which is 4, and its shape is (5, 8, 3)" in refused(model((5, 8, 3)))
    assert "LAMB with replicaGrouping" in refused(model(optimizer=poptorch.optim.LAMB))
    other = model()
    other.per_replica_params["bias"] = (poptorch.CommGroupType.All, 0, poptorch.VariableRetrievalMode.OnePerGroup)
    assert "the model has no weight bias; it has weight" in refused(other)


def test_every_replicas_value_and_late_groups_are_refused(poptorch: Any) -> None:
    wrapped = Product(torch.zeros(SHARDS, 8, 3))
    inference = poptorch.inferenceModel(wrapped.eval(), options_of_replicas(poptorch))
    every = poptorch.VariableRetrievalMode.AllReplicas
    inference.weight.replicaGrouping(poptorch.CommGroupType.Orthogonal, REPLICAS_OF_SHARD, every)
    with pytest.raises(poptorch.Error, match="one value of each group"):
        inference(torch.zeros(2, 8))
    group(poptorch, inference)
    inference(torch.zeros(2, 8))
    with pytest.raises(poptorch.Error, match="compiled already"):
        group(poptorch, inference)
