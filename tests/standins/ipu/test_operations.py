"""PopTorch's operations, and its execution strategies: stages and phases."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import options_of


def on_ipu(poptorch: Any, function: Callable[..., Any], *inputs: Any) -> Any:
    class Model(nn.Module):
        def forward(self, *given: Any) -> Any:
            return function(*given)

    return poptorch.inferenceModel(Model().eval(), options_of(poptorch))(*inputs)


def test_cond_chooses_a_body(poptorch: Any) -> None:
    def choose(condition: Any, values: Any) -> Any:
        return poptorch.cond(condition, lambda x: x + 1, [values], lambda x: x - 1, [values])[0]

    assert on_ipu(poptorch, choose, torch.tensor([True]), torch.zeros(1)).item() == 1
    assert on_ipu(poptorch, choose, torch.tensor([False]), torch.zeros(1)).item() == -1


def test_dynamic_slices(poptorch: Any) -> None:
    values, start = torch.arange(6.0), torch.tensor([2])
    assert on_ipu(poptorch, lambda x, s: poptorch.dynamic_slice(x, 0, s, 2, 1), values, start).tolist() == [2.0, 3.0]
    updated = on_ipu(poptorch, lambda x, s: poptorch.dynamic_update(x, torch.full((2,), 9.0), 0, s, 2), values, start)
    assert updated.tolist() == [0.0, 1.0, 9.0, 9.0, 4.0, 5.0]


def test_dynamic_slices_are_compiled_for_any_start(poptorch: Any) -> None:
    """Only the shape of the example matters: its start may lie outside. A step need not divide the size."""

    class Sliced(nn.Module):
        def forward(self, values: Any, start: Any) -> Any:
            return poptorch.dynamic_slice(values, 0, start, 4, 3)

    model = poptorch.inferenceModel(Sliced().eval(), options_of(poptorch))
    model.compile(torch.zeros(8), torch.tensor([21]))
    assert model(torch.arange(8.0), torch.tensor([1])).tolist() == [1.0, 4.0]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "start and end of a slice must be different"),
        (-2, "end less than the start"),
        (7, r"\(7\) must be a factor .* \(8\)"),
    ],
)
def test_sizes_of_slices_that_are_refused(poptorch: Any, size: int, message: str) -> None:
    with pytest.raises(poptorch.Error, match=message):
        on_ipu(poptorch, lambda x, s: poptorch.dynamic_slice(x, 0, s, size, 1), torch.zeros(8), torch.tensor([1]))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(2), r"same dimensionality. \(2\) vs \(1\)"),
        (torch.zeros(1, 2).int(), "torch.float32 vs torch.int32"),
    ],
)
def test_updates_of_another_kind_are_refused(poptorch: Any, source: Any, message: str) -> None:
    with pytest.raises(poptorch.Error, match=message):
        on_ipu(poptorch, lambda x, s: poptorch.dynamic_update(x, s, 0, torch.tensor([0]), 1), torch.zeros(3, 2), source)


class Pair:
    """A structure of a program's own."""

    def __init__(self, values: Any, label: Any) -> None:
        self.values, self.label = values, label


def test_a_structure_of_the_programs_own(poptorch: Any) -> None:
    class Parser(poptorch.ICustomArgParser):  # type: ignore[misc] # the stand-in is imported when a test asks for it
        def yieldTensors(self, struct: Any) -> Any:  # noqa: N802 - poptorch's own name
            yield struct.values
            yield struct.label

        def reconstruct(self, _original: Any, tensors: Any) -> Any:
            return Pair(next(tensors), next(tensors))

    poptorch.registerCustomArgParser(Pair, Parser())
    found = on_ipu(poptorch, lambda pair: Pair(pair.values * 2, pair.label), Pair(torch.ones(2), torch.tensor([7])))
    assert (found.values.tolist(), found.label.tolist()) == ([2.0, 2.0], [7])
    with pytest.raises(TypeError, match="ICustomArgParser"):
        poptorch.registerCustomArgParser(Pair, object())


def test_hooks_around_compiling(poptorch: Any) -> None:
    called: list[str] = []
    before = poptorch.registerPreCompileHook(lambda: called.append("before"))
    after = poptorch.registerPostCompileHook(lambda: called.append("after"))
    try:
        on_ipu(poptorch, lambda x: called.append("forward") or x, torch.ones(1))
        assert (called[:2], called[2]) == (["before", "forward"], "after")
    finally:
        before.remove()
        after.remove()
    on_ipu(poptorch, lambda x: x, torch.ones(1))
    assert called.count("before") == 1
    with pytest.raises(RuntimeError, match="Post-compile hook must be callable"):
        poptorch.registerPostCompileHook(1)


def test_a_serialized_product_is_the_product(poptorch: Any) -> None:
    one, other = torch.randn(4, 6), torch.randn(6, 2)
    mode = poptorch.MatMulSerializationMode.ReducingDim
    product = on_ipu(poptorch, lambda a, b: poptorch.serializedMatMul(a, b, mode, 3), one, other)
    assert torch.allclose(product, one @ other)
    with pytest.raises(poptorch.Error, match="6 does not divide by the factor 4"):
        on_ipu(poptorch, lambda a, b: poptorch.serializedMatMul(a, b, mode, 4), one, other)


def test_the_beam_search_finds_the_likeliest_path(poptorch: Any) -> None:
    torch.manual_seed(3)
    probs = torch.randn(4, 1, 3).log_softmax(2)
    totals: dict[tuple[int, ...], float] = {}
    for labels in itertools.product(range(3), repeat=4):
        path = tuple(label for label, _ in itertools.groupby(labels) if label)
        score = sum(probs[step, 0, label].item() for step, label in enumerate(labels))
        totals[path] = totals.get(path, 0.0) + torch.tensor(score).exp().item()
    best = sorted(totals, key=lambda path: -totals[path])[:2]
    scores, lengths, paths = poptorch.ctc_beam_search_decoder(probs, torch.tensor([4]), beam_width=50, top_paths=2)
    found = [tuple(paths[0, place, : lengths[0, place]].tolist()) for place in range(2)]
    assert found == best
    assert scores[0].exp().tolist() == pytest.approx([totals[path] for path in best], rel=1e-4)


def test_points(poptorch: Any) -> None:
    points = torch.tensor([[0.0], [1.0], [10.0], [4.0]])
    assert poptorch.fps(points, [0, 4], 0.75).tolist() == [0, 2, 3]
    assert poptorch.nearest(torch.tensor([[0.9], [9.0]]), points).tolist() == [1, 2]


def test_printing_a_tensor_prints_each_time_and_its_gradient(poptorch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    class Prints(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, values: Any) -> Any:
            return poptorch.identity_loss(poptorch.ipu_print_tensor(values * self.weight, "product").sum(), "sum")

    training = poptorch.trainingModel(Prints(), options_of(poptorch))
    capfd.readouterr()
    training(torch.ones(1))
    training(torch.ones(1))
    output = capfd.readouterr().err
    assert output.count("\nproduct:") >= 2
    assert output.count("product_gradient:") == 2


def test_what_the_compiler_alone_needs_is_taken(poptorch: Any) -> None:
    def scoped(values: Any) -> Any:
        with poptorch.NameScope("named"), poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial):
            values = poptorch.set_overlap_for_input(values, poptorch.OverlapMode.NoOverlap)
            values = poptorch.CPU(lambda x: x + 1, "plus one")(values)
        return poptorch.set_overlap_for_output(values, poptorch.OverlapMode.NoOverlap)

    assert on_ipu(poptorch, scoped, torch.zeros(1)).item() == 1
    locations = poptorch.Options().TensorLocations
    where = poptorch.TensorLocationSettings().useOnChipStorage(False).useReplicatedTensorSharding(True)
    assert locations.setOptimizerLocation(where).numIOTiles(32) is locations
    with pytest.raises(AssertionError, match="even number between 32 and 192"):
        locations.numIOTiles(33)
    poptorch.setLogLevel("ERR")
    with pytest.raises(ValueError, match="LOUD"):
        poptorch.setLogLevel("LOUD")


def overlapping(poptorch: Any, tiles: int = 0, pipelined: bool = False) -> Any:
    options = options_of(poptorch)
    if not pipelined:
        options.setExecutionStrategy(poptorch.ShardedExecution())
    if tiles:
        options.TensorLocations.numIOTiles(tiles)
    return options


@pytest.mark.skipif(not hasattr(torch.overrides, "TorchFunctionMode"), reason="torch before 2.0 shows no operations")
def test_an_overlapped_input_is_marked_before_anything_else_takes_it(poptorch: Any) -> None:
    class Used(nn.Module):
        def forward(self, first: Any, second: Any) -> Any:
            later = second + 1
            marked = poptorch.set_overlap_for_input(second, poptorch.OverlapMode.OverlapAccumulationLoop)
            return first + later, marked + 1

    with pytest.raises(
        poptorch.Error, match=r"must be the only op applied to an input.* for input second to the model"
    ):
        poptorch.inferenceModel(Used(), overlapping(poptorch, 32))(torch.ones(1), torch.ones(1))


def test_overlapped_tensors_are_inputs_and_outputs(poptorch: Any) -> None:
    loop = poptorch.OverlapMode.OverlapAccumulationLoop
    into, out = poptorch.set_overlap_for_input, poptorch.set_overlap_for_output
    wrong = {
        "set_overlap_for_input applied on a node which is not a tensor input": lambda x: into(x + 1, loop) + 1,
        "set_overlap_for_output applied on a node which is not a tensor output": lambda x: out(x + 1, loop).mean(),
        "tensor that is returned twice": lambda x: (lambda y: (y, [out(y, loop)]))(x + 1),
    }
    for message, function in wrong.items():

        class Marks(nn.Module):
            run = staticmethod(function)

            def forward(self, values: Any) -> Any:
                return self.run(values)

        for options in (overlapping(poptorch, 32), overlapping(poptorch, pipelined=True)):
            with pytest.raises(poptorch.Error, match=message):
                poptorch.inferenceModel(Marks(), options)(torch.ones(1))


def test_overlapped_io_needs_tiles_and_no_pipeline(poptorch: Any) -> None:
    class Marks(nn.Module):
        def forward(self, values: Any) -> Any:
            loop = poptorch.OverlapMode.OverlapDeviceIterationLoop
            values = poptorch.set_overlap_for_input(values, loop) + 1
            marked = poptorch.set_overlap_for_output(values, loop)
            return marked, marked + values

    with pytest.raises(
        poptorch.Error, match=r"not supported with poptorch.PipelinedExecution.*poptorch.ShardedExecution"
    ):
        poptorch.inferenceModel(Marks(), overlapping(poptorch, 32, pipelined=True))(torch.ones(1))
    with pytest.raises(poptorch.Error, match=r"No IO tiles allocated.*at least 32 IO tiles"):
        poptorch.inferenceModel(Marks(), overlapping(poptorch))(torch.ones(1))
    inference = poptorch.inferenceModel(Marks(), overlapping(poptorch, 32))
    assert [tensor.item() for tensor in inference(torch.ones(1))] == [2, 4]


def test_a_custom_op_is_refused_by_name(poptorch: Any) -> None:
    with pytest.raises(poptorch.Error, match=r"custom_op test.Cube runs C\+\+ that is compiled for the IPU"):
        poptorch.custom_op([torch.ones(1)], "Cube", "test", 1, [torch.ones(1)])


class Blocks(nn.Module):
    """Three blocks, named A, B, C, or on IPUs."""

    def __init__(self, poptorch: Any, *ipus: int) -> None:
        super().__init__()
        self.block, self.ipus = poptorch.Block, ipus
        self.layers = nn.ModuleList([nn.Linear(1, 1) for _ in "ABC"])

    def forward(self, values: Any) -> Any:
        for number, (name, layer) in enumerate(zip("ABC", self.layers, strict=True)):
            with self.block(name, ipu_id=self.ipus[number] if self.ipus else None):
                values = layer(values)
        return values


def ipus_of(poptorch: Any, strategy: Any, *ipus: int) -> int:
    options = options_of(poptorch, 4).autoRoundNumIPUs(True).setExecutionStrategy(strategy)
    model = poptorch.inferenceModel(Blocks(poptorch, *ipus).eval(), options)
    model(torch.ones(4, 1))
    return int(model._ipus)


def test_stages_are_named_and_ipus_follow(poptorch: Any) -> None:
    """PipelinedExecution: names of blocks, stages, and IPUs where they are set."""
    stage = poptorch.Stage
    assert ipus_of(poptorch, poptorch.PipelinedExecution("A", "B", "C")) == 4
    assert ipus_of(poptorch, poptorch.PipelinedExecution(stage("A", "B"), stage("C"))) == 2
    assert ipus_of(poptorch, poptorch.ShardedExecution(stage("A"), stage("B"), stage("C").ipu(0))) == 2
    with pytest.raises(AssertionError, match="Unknown Block 'C'"):
        ipus_of(poptorch, poptorch.PipelinedExecution("A", "B"))
    with pytest.raises(AssertionError, match="more than one stage"):
        poptorch.PipelinedExecution("A", "A")


def test_stages_of_a_pipeline_ascend(poptorch: Any) -> None:
    """AutoStage: blocks on IPU 0, 1 and 0 fail to compile by SameAsIpu, and compile by AutoIncrement."""
    with pytest.raises(poptorch.Error, match="AutoIncrement"):
        ipus_of(poptorch, poptorch.PipelinedExecution(), 0, 1, 0)
    assert ipus_of(poptorch, poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement), 0, 1, 0) == 2


def test_phases(poptorch: Any) -> None:
    """SerialPhasedExecution, ParallelPhasedExecution: phases of stages, on the IPUs that are set."""
    phase, stage = poptorch.Phase, poptorch.Stage
    serial = poptorch.SerialPhasedExecution([phase(stage("A"), stage("B")), phase(stage("C"))])
    serial.phase(0).ipus(0, 1)
    serial.phase(1).ipus(1)
    assert ipus_of(poptorch, serial.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwd)) == 2
    assert ipus_of(poptorch, poptorch.ParallelPhasedExecution(phase("A"), phase("B"), phase("C"))) == 1
    with pytest.raises(AssertionError, match="2 stages but you provided 1 ipus"):
        serial.phase(0).ipus(0)
    with pytest.raises(AssertionError, match="explicitly specify the phases"):
        poptorch.SerialPhasedExecution()
