"""The SDK's modules: how instances meet, and poptorch's options and optimizer made from the job's settings."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any, Dict, Mapping, NamedTuple, Optional

import torch

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.contract.optimizers import optimizer_options
from trainjob.records.job import TrainSettings
from trainjob.train.engines import horovod_world
from trainjob.train.optimizers import Groups, with_betas
from trainjob.train.world import RankPlace, World

_CACHES = ("POPTORCH_CACHE_DIR", "POPDIST_EXECUTABLE_CACHE_PATH")
# A new optimizer is a new row, and a name in the row of engine ipu in planning/engines.py.
OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW", "lamb": "LAMB"}
# The lessons' factor: without it, float16 gradients of a loss near 1 underflow.
LOSS_SCALING = 1000.0
# Where poptorch.optim keeps the IPU's part of a state_dict.
_STATE_PARTS = ("ipu_state", "ipu_param")


def join(place: RankPlace, environ: Mapping[str, str], timeout_seconds: float) -> World:
    """Return the world of the instances that poprun started; without poprun, of this one alone. Raises UserError."""
    if environ.get(environment.COMPILE_ONLY):
        return World(place._replace(rank=0, local_rank=0, size=1))
    popdist = under_poprun()
    if popdist is None:
        if place.size == 1:
            return World(place)
        raise UserError(
            "%d instances of engine ipu were started without poprun, and several processes need poprun and popdist"
            % place.size,
            "start them with poprun, or drive several replicas by one process (--replicas with --instances 1)",
        )
    if hasattr(popdist, "init"):  # since SDK 3.0
        popdist.init()
    actual = (popdist.getInstanceIndex(), popdist.getNumInstances())
    if actual != (place.rank, place.size):
        raise UserError(
            "poprun takes this process for instance %d of %d and the launcher for rank %d of %d"
            % (*actual, place.rank, place.size),
            "start the instances with the job script only",
        )
    return horovod_world.join(place, environ, timeout_seconds)


def under_poprun() -> Optional[ModuleType]:
    """Return the module popdist if poprun started this process, else None."""
    if importlib.util.find_spec("popdist") is None:
        return None
    popdist = importlib.import_module("popdist")
    return popdist if popdist.isPopdistEnvSet() else None


class Ipus(NamedTuple):
    """The SDK's modules, and what all models of this instance share."""

    poptorch: ModuleType
    popdist: Optional[ModuleType]  # None without poprun
    settings: TrainSettings
    instance: int
    compile_only: bool

    @property
    def replicas(self) -> int:
        """Number of replicas that this instance drives."""
        return self.settings.replicas // self.settings.instances


def open_ipus(settings: TrainSettings, instance: int) -> Ipus:
    """Return the SDK's modules. Raises UserError if they can't be imported, or poprun started other replicas."""
    try:
        poptorch = importlib.import_module("poptorch")
    except ImportError as error:
        raise UserError(
            "engine ipu needs poptorch, which can't be imported (%s)" % error,
            "name the SDK and its virtualenv in the cluster file (sdk.path and sdk.venv), or "
            "try the job with trainjob rehearse",
        ) from None
    popdist = under_poprun()
    if popdist is not None and popdist.getNumTotalReplicas() != settings.replicas:
        raise UserError(
            "job.json plans %d replicas and poprun was given %d" % (settings.replicas, popdist.getNumTotalReplicas()),
            "start the instances with the job script only",
        )
    return Ipus(poptorch, popdist, settings, instance, bool(os.environ.get(environment.COMPILE_ONLY)))


def training_options(ipus: Ipus, reduction: Optional[str] = None) -> Any:
    """Return the options for training. The results of all micro batches are returned, so as to average them."""
    poptorch, settings = ipus.poptorch, ipus.settings
    options = _options(ipus)
    options.deviceIterations(settings.device_iterations)
    options.Training.gradientAccumulation(settings.accumulation)
    kinds = {"mean": poptorch.ReductionType.Mean, "sum": poptorch.ReductionType.Sum}
    options.Training.accumulationAndReplicationReductionType(kinds[reduction or settings.reduction])
    return options


def evaluation_options(ipus: Ipus) -> Any:
    """Return the options for evaluation: no accumulation, and enough device iterations to fill a pipeline."""
    return _options(ipus).deviceIterations(max(1, ipus.settings.ipus_per_replica))


def _options(ipus: Ipus) -> Any:
    # Under poprun, popdist sets replicas, processes and device.
    if ipus.popdist is not None:
        options = importlib.import_module("popdist.poptorch").Options(ipus_per_replica=ipus.settings.ipus_per_replica)
    else:
        options = ipus.poptorch.Options().replicationFactor(ipus.replicas)
    options.randomSeed(ipus.settings.seed)
    options.outputMode(ipus.poptorch.OutputMode.All)
    options.showCompilationProgressBar(ipus.instance == 0)
    cache = next((os.environ[name] for name in _CACHES if os.environ.get(name)), None)
    if cache is not None:
        options.enableExecutableCaching(cache)
    if ipus.compile_only:
        options.useOfflineIpuTarget()
    return options


def build_optimizer(poptorch: ModuleType, groups: Groups, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name. Raises UserError for one that PopTorch does not have."""
    name = settings.optimizer
    if name not in OPTIMIZERS:
        names = ", ".join(sorted(OPTIMIZERS))
        raise UserError("PopTorch has no optimizer %s" % name, "choose one of %s" % names)
    options = optimizer_options(name, settings.optimizer_options, settings.momentum)
    values: Dict[str, object] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.clip_norm is not None:
        values["max_grad_norm"] = settings.clip_norm
    if settings.precision.endswith(".16"):
        values.update(loss_scaling=LOSS_SCALING, accum_type=torch.float16)
        if name != "sgd":
            values["first_order_momentum_accum_type"] = torch.float16
            values["second_order_momentum_accum_type"] = torch.float32
    if name == "sgd":
        # What is given can change after compiling, which costs time on the device.
        values.update({option: value for option, value in options.items() if value})
        # With separate accumulators the reduction follows the option and is not folded into the velocity.
        values.update(momentum=settings.momentum, use_combined_accum=False)
    elif name == "lamb" or settings.optimizer_options:
        values.update(with_betas(options))
    optimizer: torch.optim.Optimizer = getattr(poptorch.optim, OPTIMIZERS[name])(groups, **values)
    return optimizer


def optimizer_state(optimizer: torch.optim.Optimizer) -> Dict[str, torch.Tensor]:
    """Return the state that poptorch reads from the device, as "ipu_state:name" → tensor.

    It is empty before SDK 2.6. A part is None until the model is compiled.
    """
    state = optimizer.state_dict()
    return {
        "%s:%s" % (part, name): torch.as_tensor(value)
        for part in _STATE_PARTS
        for name, value in (state.get(part) or {}).items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Dict[str, torch.Tensor]) -> None:
    """Give the optimizer a state that `optimizer_state` returned; poptorch writes it to the device."""
    parts: Dict[str, Dict[str, torch.Tensor]] = {part: {} for part in _STATE_PARTS}
    for key, value in tensors.items():
        part, _, name = key.partition(":")
        parts[part][name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), **parts})
