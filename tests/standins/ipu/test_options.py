"""poptorch.Options and popdist against reference facts: the section of ipu.md stands in each docstring."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import Scaled, options_of

EVERY_SETTER = [
    ("deviceIterations", 4),
    ("replicationFactor", 2),
    ("randomSeed", 7),
    ("enableExecutableCaching", "/nowhere"),
    ("enableExecutableCaching", None),
    ("showCompilationProgressBar", False),
    ("useIpuModel", False),
    ("useOfflineIpuTarget", 21),
    ("useIpuId", 24),
    ("autoRoundNumIPUs", True),
    ("setAvailableMemoryProportion", {"IPU0": 0.2}),
    ("enableSyntheticData", True),
    ("enableProfiling", "profile"),
    ("logCycleCount", True),
    ("modelName", "net"),
    ("broadcastBuffers", False),
    ("enableStableNorm", True),
    ("maxRepeatLogs", 3),
    ("logDir", "."),
]


@pytest.mark.parametrize(("name", "value"), EVERY_SETTER, ids=[name for name, _ in EVERY_SETTER])
def test_setters_chain_and_are_refused_once_frozen(poptorch: Any, name: Any, value: Any) -> None:
    """4.2: all return self; options handed to a model can't be modified."""
    options = poptorch.Options()
    assert getattr(options, name)(value) is options
    model = torch.nn.Linear(1, 1)
    poptorch.inferenceModel(model.eval(), options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        getattr(options, name)(value)


def test_a_loader_freezes_options_and_a_clone_is_free(poptorch: Any) -> None:
    """4.2: options handed to a DataLoader are read-only; clone."""
    options = poptorch.Options().deviceIterations(2)
    poptorch.DataLoader(options, torch.utils.data.TensorDataset(torch.zeros(8, 1)))
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.Training.gradientAccumulation(2)
    for copied in (options.clone(), copy.deepcopy(options)):
        assert copied.deviceIterations(3).device_iterations == 3
    assert options.device_iterations == 2
    assert "device_iterations=2" in repr(options)


def test_defaults(poptorch: Any) -> None:
    """4.1."""
    options = poptorch.Options()
    assert (options.replication_factor, options.device_iterations, options.Training.gradient_accumulation) == (1, 1, 1)
    assert options.output_mode == poptorch.OutputMode.Default
    assert options.output_return_period == 1
    assert options.connection_type == poptorch.ConnectionType.Always
    assert options.is_mean()
    assert not options.is_running_mean(accumulators_are_half=False)
    assert options.is_running_mean(accumulators_are_half=True)
    assert not options.auto_round_num_ipus
    assert options.broadcast_buffers
    assert isinstance(options.execution_strategy, poptorch.PipelinedExecution)


def test_enumerations_have_their_numbers(poptorch: Any) -> None:
    """4.2: enum values."""
    assert [mode.name for mode in poptorch.OutputMode] == ["Final", "EveryN", "All", "Sum", "Default"]
    assert [int(mode) for mode in poptorch.OutputMode] == [0, 1, 2, 3, 4]
    assert [int(kind) for kind in poptorch.ReductionType] == [0, 1, 2]
    assert [mode.name for mode in poptorch.DataLoaderMode] == ["Sync", "Async", "AsyncRebatched"]
    assert [kind.name for kind in poptorch.ConnectionType] == ["Always", "OnDemand", "Never"]
    assert poptorch.SharingStrategy.ForkServer == 3
    assert poptorch.AutoStage.AutoIncrement == 1


def test_only_sum_and_mean_reduce(poptorch: Any) -> None:
    """4.2: any other value is a ValueError."""
    training = poptorch.Options().Training
    assert training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum) is training
    with pytest.raises(ValueError, match="Sum or Mean"):
        training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)


def test_precision_and_training_setters_are_recorded(poptorch: Any) -> None:
    """4.2: Precision.*, Training.*; toDict shows them."""
    options = poptorch.Options()
    options.Precision.enableStochasticRounding(True).setPartialsType(torch.half).enableFloatingPointExceptions(True)
    options.Training.setAutomaticLossScaling(True).setConvolutionDithering(True)
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running)
    shown = options.toDict()
    assert shown["Precision"]["partials_type"] is torch.half
    assert shown["Training"]["auto_loss_scaling"]
    assert options.is_running_mean(accumulators_are_half=False)


def test_random_seed_seeds_torch(poptorch: Any) -> None:
    """4.2: randomSeed also seeds torch."""
    poptorch.Options().randomSeed(2022)
    first = torch.rand(3)
    torch.manual_seed(2022)
    assert torch.equal(first, torch.rand(3))


def test_distributed_reads_open_mpi(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.3: OMPI_COMM_WORLD_*; setEnvVarNames, configureProcessId, disable."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (3, 4)
    monkeypatch.setenv("MY_SIZE", "2")
    assert distributed.setEnvVarNames("MY_SIZE", "MY_RANK").numProcesses == 2
    assert distributed.configureProcessId(1, 8).processId == 1
    assert distributed.disable().numProcesses == 1


def test_options_from_the_environment(poptorch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1.8: POPTORCH_DEFAULT_OPTIONS is JSON: "ConnectionType.OnDemand"; a list has the arguments of one call.

    POPTORCH_CACHE_DIR is a cache.
    """
    given = {
        "deviceIterations": 3,
        "Training.gradientAccumulation": 4,
        "connectionType": "ConnectionType.OnDemand",
        "_Popart.set": ["saveInitializersToFile", "f.onnx"],
        "outputMode": ["OutputMode.EveryN", 3],
        "logDir": "logs.d",
    }
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", json.dumps(given))
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))
    options = poptorch.Options()
    assert (options.device_iterations, options.Training.gradient_accumulation) == (3, 4)
    assert options.connection_type == poptorch.ConnectionType.OnDemand
    assert options._Popart.options == {"saveInitializersToFile": "f.onnx"}
    assert (options.output_mode, options.output_return_period) == (poptorch.OutputMode.EveryN, 3)
    assert (options.log_dir, options.executable_cache) == ("logs.d", str(tmp_path))
    assert options.available_memory_proportion == {}


def test_options_from_a_file(poptorch: Any, tmp_path: Path) -> None:
    """4.2: loadFromFile; poptorch.options.ConfigFileError names the line."""
    file, options = tmp_path / "my.conf", poptorch.Options()
    file.write_text(
        "# ours\ndeviceIterations(5)\nTraining.gradientAccumulation(4)\n"
        "outputMode(poptorch.OutputMode.EveryN, 2)\nPrecision.setPartialsType(torch.half)\n"
    )
    options.loadFromFile(str(file))
    assert (options.device_iterations, options.Training.gradient_accumulation) == (5, 4)
    assert options.output_return_period == 2
    file.write_text("deviceIterations(4)\noutputMode(poptorch.OutputMode.All")
    with pytest.raises(
        poptorch.options.ConfigFileError, match=r"line 2 of my\.conf: .*\n> options\.outputMode\(poptorch"
    ):
        options.loadFromFile(str(file))
    file.write_text("__import__('os').system('true')\n")
    with pytest.raises((ValueError, AttributeError)):
        options.loadFromFile(str(file))


BLOCKED = ["useIpuId", "replicationFactor", "Distributed.disable", "Distributed.setEnvVarNames"]


@pytest.mark.parametrize("name", [*BLOCKED, "Distributed.configureProcessId"])
def test_popdist_blocks_five_setters(poptorch: Any, name: Any) -> None:
    """3: RuntimeError "Cannot call `NAME` with popdist.poptorch.Options"."""
    setter = importlib.import_module("popdist.poptorch").Options()
    for part in name.split("."):
        setter = getattr(setter, part)
    with pytest.raises(RuntimeError, match=f"Cannot call `{name}` with popdist.poptorch.Options"):
        setter(1)


def test_popdist_options_outside_poprun(poptorch: Any) -> None:
    """3: processId 0, numProcesses 1; other methods work, and freeze."""
    options = importlib.import_module("popdist.poptorch").Options()
    assert isinstance(options, poptorch.Options)
    assert (options.Distributed.processId, options.Distributed.numProcesses, options.replication_factor) == (0, 1, 1)
    assert options.outputMode(poptorch.OutputMode.All).toDict()["output_mode"] == poptorch.OutputMode.All
    options._freeze()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(2)


def test_popdist_getters_outside_poprun(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.1: what is unset is 0 or 1."""
    monkeypatch.delenv("POPDIST_NUM_TOTAL_REPLICAS", raising=False)
    popdist = importlib.import_module("popdist")
    assert not popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances(), popdist.getLocalInstanceIndex()) == (0, 1, 0)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getNumIpusPerReplica()) == (1, 1, 1)
    assert popdist.checkNumIpusPerReplica(1)
    assert not popdist.checkNumIpusPerReplica(2)
    assert popdist.execute_on_instances({0}, lambda one, two: one + two, 1, two=2) == 3
    assert popdist.execute_on_instances({1}, lambda: 1) is None
    popdist.init()
    assert popdist.isBackendInitialized()


def test_the_lessons_device_ids(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.1: 8 replicas, 4 instances, 2 IPUs each: offsets 0, 2, 4, 6, 2 local replicas, device ids 24 to 27."""
    from tests.support.ipu_instances import environment

    popdist = importlib.import_module("popdist")
    seen = []
    for index in range(4):
        for name, value in environment(index, 4, 8, 2).items():
            monkeypatch.setenv(name, str(value))
        options = importlib.import_module("popdist.poptorch").Options()
        seen.append((popdist.getReplicaIndexOffset(), options.replication_factor, popdist.getDeviceId()))
    assert seen == [(0, 2, 24), (2, 2, 25), (4, 2, 26), (6, 2, 27)]
    with pytest.raises(RuntimeError, match="--ipus-per-replica 2"):
        importlib.import_module("popdist.poptorch").Options(ipus_per_replica=4)


def test_stand_ins_are_never_importable_by_accident() -> None:
    """Issue: only a rehearsal puts them on PYTHONPATH."""
    for name in ("poptorch", "popdist"):
        with pytest.raises(ImportError):
            importlib.import_module(name)


def compiled(poptorch: Any, options: Any) -> None:
    poptorch.trainingModel(WithLoss(poptorch), options).compile(torch.ones(2, 1))


class WithLoss(torch.nn.Module):
    def __init__(self, poptorch: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.loss = poptorch.identity_loss

    def forward(self, inputs: Any) -> Any:
        return self.loss(self.layer(inputs), reduction="mean")


def test_automatic_loss_scaling_needs_a_mean(poptorch: Any) -> None:
    """4.2."""
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)
    compiled(poptorch, options.clone())
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    with pytest.raises(poptorch.Error, match="automatic loss scaling needs"):
        compiled(poptorch, options)


def test_the_ipu_model_has_no_replicas(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.5, and POPTORCH_IPU_MODEL of 1.8."""
    compiled(poptorch, poptorch.Options().useIpuModel(True))
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    with pytest.raises(poptorch.Error, match="does not support replication, and there are 2"):
        compiled(poptorch, poptorch.Options().replicationFactor(2))


def test_equal_options_are_printed_alike(poptorch: Any) -> None:
    def printed(ipu: int) -> str:
        strategy = poptorch.ShardedExecution(poptorch.Stage("A", "B").ipu(ipu), "C")
        return str(poptorch.Options().setExecutionStrategy(strategy))

    assert str(poptorch.Options()) == str(poptorch.Options())
    assert printed(1) == printed(1) != printed(0)


def test_a_period_is_ignored_unless_it_is_used(poptorch: Any) -> None:
    assert poptorch.Options().outputMode(poptorch.OutputMode.All, output_return_period=5).output_return_period == 1
    assert poptorch.Options().defaultOutputMode()


def test_options_for_messages_are_kept(poptorch: Any) -> None:
    """Source code location and names of operations."""
    options = poptorch.Options().sourceLocationExcludes(["mine"]).appendToLocationExcludes("yours", "ours")
    assert options.source_location_excludes == ["mine", "yours", "ours"]
    assert options.module_namescope
    assert not options.disableModuleNamescope().module_namescope


def test_one_object_of_options_serves_training_and_inference(poptorch: Any) -> None:
    """outputMode: "Default: All for inference, Final for training"; the user's own options stay as they are."""
    options, model = options_of(poptorch), Scaled(poptorch)
    training, inference = poptorch.trainingModel(model, options), poptorch.inferenceModel(model, options)
    assert options.defaultOutputMode()
    assert training.options.output_mode == poptorch.OutputMode.Final
    assert inference.options.output_mode == poptorch.OutputMode.All


def test_the_mean_is_taken_as_the_accumulators_ask(poptorch: Any) -> None:
    """setMean…Strategy: "The default … is Running when the accum_type of the optimizer is … float16"."""

    def strategy(**how: Any) -> str:
        model = Scaled(poptorch)
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, **how)
        training = poptorch.trainingModel(model, options_of(poptorch), optimizer).options.Training
        return str(training.meanAccumulationAndReplicationReductionStrategy.name)

    assert strategy() == "Post"
    assert strategy(accum_type=torch.float16) == "Running"
    assert strategy(accum_type=torch.float16, use_combined_accum=True) == "Post"


@pytest.mark.parametrize(
    ("setter", "value"),
    [("randomSeed", "7"), ("useIpuId", "0"), ("connectionType", "Never"), ("syncPattern", 1)],
)
def test_a_value_of_another_type_is_an_assertion_error(poptorch: Any, setter: str, value: Any) -> None:
    with pytest.raises(AssertionError):
        getattr(poptorch.Options(), setter)(value)


def test_precision_takes_a_policy(poptorch: Any) -> None:
    """autocastPolicy, and model.autocast() of every module."""
    precision = poptorch.Options().Precision
    assert precision.autocastPolicy(poptorch.autocasting.Policy([nn.Conv2d])) is precision
    with pytest.raises(ValueError, match="autocastPolicy must be set"):
        precision.autocastPolicy("half")
    model: Any = nn.Sequential(nn.Linear(1, 1))
    model.autocast()
    model[0].autocast(False)
    assert poptorch.inferenceModel(model.eval(), options_of(poptorch))(torch.ones(1, 1)).shape == (1, 1)


def test_what_is_logged_of_options(poptorch: Any, capfd: Any) -> None:
    """At DEBUG, by the names and values that PopTorch hands on."""
    poptorch.setLogLevel("DEBUG")
    options = options_of(poptorch, 2).setExecutionStrategy(poptorch.ShardedExecution()).enableSyntheticData(True)
    options.Precision.setPartialsType(torch.half)
    options._Popart.set("enableOutlining", True)
    options._Popart.set("engineOptions", {"debug.allowOutOfMemory": "true"})
    options._Popart.set("dotChecks", ["FINAL"])
    poptorch.inferenceModel(nn.Linear(1, 1).eval(), options).compile(torch.ones(2, 1))
    seen = capfd.readouterr().err
    for line in (
        "set device_iterations to value 2",
        "set execution_mode to value 1",
        "set syntheticDataMode to value 2",
        "set partialsTypeMatMuls to value half",
        "set convolutionOptions[partialsType] to half",
        "set enableOutlining to value true",
        "set engineOptions[debug.allowOutOfMemory] to true",
        "added FINAL to dotChecks",
    ):
        assert f"[debug] poptorch.Options {line}\n" in seen
    poptorch.setLogLevel("WARN")


def test_options_that_popart_lacks(poptorch: Any, capfd: Any) -> None:
    validate = poptorch.poptorch_core._validateOptions
    known = poptorch.Options()
    known._Popart.set("autoRecomputation", 1)
    validate(known.toDict())
    for name, value, match in (
        ("autoRecompute", 1, "Unknown int option autoRecompute"),
        ("dotChecks", torch.ones(1), "Unknown value type .*Tensor.* for option dotChecks"),
    ):
        options = poptorch.Options()
        options._Popart.set(name, value)
        with pytest.raises(poptorch.Error, match=match):
            validate(options.toDict())
    options = poptorch.Options()
    options._Popart.set("autoRecompute", 1)
    poptorch.inferenceModel(nn.Linear(1, 1).eval(), options).compile(torch.ones(1, 1))
    assert "_Popart.set('autoRecompute'): the stand-in knows no such option" in capfd.readouterr().err


def test_a_profile_is_said_to_be_none(poptorch: Any, tmp_path: Path) -> None:
    """Scripts copy it: enableProfiling names the folder, and modelName the one in it."""
    for name, folder in ((None, "inference"), ("net", "net")):
        options = poptorch.Options()
        options.enableProfiling(str(tmp_path))
        if name:
            options.modelName(name)
        poptorch.inferenceModel(nn.Linear(1, 1).eval(), options)(torch.ones(1, 1))
        assert "no profile" in (tmp_path / folder / "profile.pop").read_text()


def test_a_group_of_options_can_be_derived_from(poptorch: Any) -> None:
    """As popdist does."""

    class Own(poptorch.options._DistributedOptions):  # type: ignore[misc] # known once poptorch is there
        pass

    options = poptorch.Options()
    options.Distributed.__class__ = Own
    assert (type(options.Distributed), options.Distributed.numProcesses) == (Own, 1)
