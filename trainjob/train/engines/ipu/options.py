"""poptorch.Options and poptorch's optimizer, made from the job's settings."""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.contract.optimizers import optimizer_options
from trainjob.records.job import TrainSettings
from trainjob.train.engines.ipu.world import under_poprun
from trainjob.train.optimizers import Groups, with_betas

_CACHES = ("POPTORCH_CACHE_DIR", "POPDIST_EXECUTABLE_CACHE_PATH")


class Ipus(NamedTuple):
    """The SDK's modules, and what all models of this instance share."""

    poptorch: Any
    popdist: Optional[Any]  # None without poprun
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
    compile_only = bool(os.environ.get(environment.COMPILE_ONLY))
    ipus = Ipus(poptorch, under_poprun(), settings, instance, compile_only)
    _refuse_other_replicas(ipus)
    return ipus


def _refuse_other_replicas(ipus: Ipus) -> None:
    if ipus.popdist is not None and ipus.popdist.getNumTotalReplicas() != ipus.settings.replicas:
        raise UserError(
            "job.json plans %d replicas and poprun was given %d"
            % (ipus.settings.replicas, ipus.popdist.getNumTotalReplicas()),
            "start the instances with the job script only",
        )


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


# The lessons' factor: without it, float16 gradients of a loss near 1 underflow.
LOSS_SCALING = 1000.0
# Where poptorch.optim keeps the IPU's part of a state_dict.
_STATE_PARTS = ("ipu_state", "ipu_param")


def build_optimizer(poptorch: Any, groups: Groups, settings: TrainSettings) -> Any:
    """Return the optimizer that the settings name. Raises UserError for one that PopTorch does not have."""
    make = OPTIMIZERS.get(settings.optimizer)
    if make is None:
        names = ", ".join(sorted(OPTIMIZERS))
        raise UserError("PopTorch has no optimizer %s" % settings.optimizer, "choose one of %s" % names)
    options = optimizer_options(settings.optimizer, settings.optimizer_options, settings.momentum)
    more: Dict[str, Any] = {} if settings.clip_norm is None else {"max_grad_norm": settings.clip_norm}
    if settings.precision.endswith(".16"):
        more.update(loss_scaling=LOSS_SCALING, accum_type=torch.float16)
    values = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, **more}
    return make(poptorch.optim, groups, settings, options, values)


def optimizer_state(optimizer: Any) -> Dict[str, torch.Tensor]:
    """Return the state that poptorch reads from the device, as "ipu_state:name" → tensor.

    It is empty before SDK 2.6. A part is None until the model is compiled.
    """
    state = optimizer.state_dict()
    return {
        "%s:%s" % (part, name): torch.as_tensor(value)
        for part in _STATE_PARTS
        for name, value in (state.get(part) or {}).items()
    }


def load_optimizer(optimizer: Any, tensors: Dict[str, torch.Tensor]) -> None:
    """Give the optimizer a state that `optimizer_state` returned; poptorch writes it to the device."""
    parts: Dict[str, Dict[str, torch.Tensor]] = {part: {} for part in _STATE_PARTS}
    for key, value in tensors.items():
        part, _, name = key.partition(":")
        parts[part][name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), **parts})


Values = Dict[str, Any]


def _sgd(optimizers: Any, groups: Groups, settings: TrainSettings, options: Values, values: Values) -> Any:
    # What is given can change after compiling, which costs time on the device.
    given = {name: value for name, value in options.items() if value}
    # With separate accumulators the reduction follows the option and is not folded into the velocity.
    return optimizers.SGD(groups, momentum=settings.momentum, use_combined_accum=False, **given, **values)


def _adamw(optimizers: Any, groups: Groups, settings: TrainSettings, options: Values, values: Values) -> Any:
    given = with_betas(options) if settings.optimizer_options else {}
    return optimizers.AdamW(groups, **given, **_adaptive(values))


def _lamb(optimizers: Any, groups: Groups, _settings: TrainSettings, options: Values, values: Values) -> Any:
    return optimizers.LAMB(groups, **with_betas(options), **_adaptive(values))


def _adaptive(values: Values) -> Values:
    if "accum_type" not in values:
        return values
    types = {"first_order_momentum_accum_type": torch.float16, "second_order_momentum_accum_type": torch.float32}
    return {**values, **types}


# A new optimizer is a new row, and a name in the row of engine ipu in planning/engines.py.
OPTIMIZERS: Dict[str, Callable[..., Any]] = {"sgd": _sgd, "adamw": _adamw, "lamb": _lamb}
