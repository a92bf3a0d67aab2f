"""poptorch.Options for training and for evaluation, from the job's settings."""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple, Optional

from trainjob.contract import environment
from trainjob.contract.errors import UserError
from trainjob.contract.job import TrainSettings
from trainjob.train.engines.ipu_world import under_poprun

_CACHES = ("POPTORCH_CACHE_DIR", "POPDIST_EXECUTABLE_CACHE_PATH")


class Ipus(NamedTuple):
    """The modules of the SDK, and what is said once for all models of this instance."""

    poptorch: Any
    popdist: Optional[Any]  # None without poprun
    settings: TrainSettings
    instance: int
    compile_only: bool

    @property
    def replicas(self) -> int:
        """Replicas that this instance drives."""
        return self.settings.replicas // self.settings.instances


def open_ipus(settings: TrainSettings, instance: int) -> Ipus:
    """Return the SDK's modules. Raises UserError where they can't be imported, or poprun was told another number."""
    try:
        poptorch = importlib.import_module("poptorch")
    except ImportError as error:
        raise UserError(
            "engine ipu needs poptorch, and it can't be imported (%s): enable the SDK and name the interpreter of its "
            "virtualenv (sdk.path and sdk.venv in the cluster file), or try the job out with trainjob rehearse" % error
        ) from None
    compile_only = bool(os.environ.get(environment.COMPILE_ONLY))
    ipus = Ipus(poptorch, under_poprun(), settings, instance, compile_only)
    _refuse_other_replicas(ipus)
    return ipus


def _refuse_other_replicas(ipus: Ipus) -> None:
    if ipus.popdist is not None and ipus.popdist.getNumTotalReplicas() != ipus.settings.replicas:
        raise UserError(
            "job.json plans %d replicas and poprun was given %d: start the instances by the job script alone"
            % (ipus.settings.replicas, ipus.popdist.getNumTotalReplicas())
        )


def training_options(ipus: Ipus, reduction: Optional[str] = None) -> Any:
    """Return the options of a training: all micro batches' results come back, so that their mean can be taken."""
    poptorch, settings = ipus.poptorch, ipus.settings
    options = _options(ipus)
    options.deviceIterations(settings.device_iterations)
    options.Training.gradientAccumulation(settings.accumulation)
    kinds = {"mean": poptorch.ReductionType.Mean, "sum": poptorch.ReductionType.Sum}
    options.Training.accumulationAndReplicationReductionType(kinds[reduction or settings.reduction])
    return options


def evaluation_options(ipus: Ipus) -> Any:
    """Return the options of an evaluation: no accumulation, and device iterations enough to fill a pipeline."""
    return _options(ipus).deviceIterations(max(1, ipus.settings.ipus_per_replica))


def _options(ipus: Ipus) -> Any:
    # Under poprun replicas, processes and device are popdist's to set.
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
