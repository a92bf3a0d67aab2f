"""Stand-in for popdist.poptorch: Options that take replicas, processes and device from poprun."""

from __future__ import annotations

from typing import Any, Optional

import poptorch
from poptorch.option_groups import DistributedOptions
from trainjob_standins.place import here

import popdist


def _blocked(name: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("Cannot call `%s` with popdist.poptorch.Options" % name)

    return refuse


class _Distributed(DistributedOptions):
    """Process and processes as poprun says them."""

    disable = _blocked("Distributed.disable")
    setEnvVarNames = _blocked("Distributed.setEnvVarNames")
    configureProcessId = _blocked("Distributed.configureProcessId")

    @property
    def processId(self) -> int:
        """Return the instance's number."""
        return here().instance

    @property
    def numProcesses(self) -> int:
        """Return the number of instances."""
        return here().instances


class Options(poptorch.Options):
    """poptorch.Options whose replicas, process and device are poprun's."""

    useIpuId = _blocked("useIpuId")
    replicationFactor = _blocked("replicationFactor")

    def __init__(self, ipus_per_replica: Optional[int] = None) -> None:
        if ipus_per_replica is not None and popdist.isPopdistEnvSet():
            _refuse_other_launch(ipus_per_replica)
        super().__init__()
        self._set("Distributed", _Distributed())
        self.replication_factor = popdist.getNumLocalReplicas()
        self.ipu_id = popdist.getDeviceId(ipus_per_replica or 0) if popdist.isPopdistEnvSet() else None
        self.reduces_over_instances = True


def _refuse_other_launch(ipus_per_replica: int) -> None:
    if not popdist.checkNumIpusPerReplica(ipus_per_replica):
        raise RuntimeError(
            "ipus_per_replica is %d and poprun was given --ipus-per-replica %d: they must be equal"
            % (ipus_per_replica, popdist.getNumIpusPerReplica())
        )
