"""Stand-in for popdist: what poprun's environment says, as the PopDist guide names it (no IPU, no Poplar)."""

from __future__ import annotations

from typing import Any, Callable, Iterable

from trainjob_standins.announce import say_what_this_is
from trainjob_standins.place import here, partition_ipus, under_poprun

_backend = {"initialized": False}


def isPopdistEnvSet() -> bool:
    """Return whether poprun started this process."""
    return under_poprun()


def init() -> None:
    """Initialise the backend."""
    say_what_this_is()
    _backend["initialized"] = True


def isBackendInitialized() -> bool:
    """Return whether init was called."""
    return _backend["initialized"]


def finalizeBackend() -> None:
    """End the backend."""
    _backend["initialized"] = False


def _of_place(field: str, what: str) -> Callable[[], int]:
    def get() -> int:
        return int(getattr(here(), field))

    get.__doc__ = "Return %s." % what
    return get


getInstanceIndex = _of_place("instance", "this instance's number, 0 outside poprun")
getLocalInstanceIndex = _of_place("local_instance", "this instance's number on its host, 0 outside poprun")
getNumInstances = _of_place("instances", "the number of instances")
getNumTotalReplicas = _of_place("total_replicas", "the number of replicas over all instances")
getNumLocalReplicas = _of_place("local_replicas", "the number of replicas of this instance")
getReplicaIndexOffset = _of_place("first_replica", "the number of this instance's first replica among all")
getNumIpusPerReplica = _of_place("ipus_per_replica", "the IPUs that one replica uses")


def checkNumIpusPerReplica(n: int) -> bool:
    """Return whether `n` is what poprun was given."""
    return n == here().ipus_per_replica


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """Return the id of the device that holds all of this instance's replicas.

    A reconfigurable partition counts its devices of one IPU first, then those of 2, of 4 and so on.
    """
    place = here()
    wanted, size, first = place.local_replicas * (ipusPerReplica or place.ipus_per_replica), 1, 0
    while size < wanted:
        first += partition_ipus() // size
        size *= 2
    return first + place.instance


def execute_on_instances(instances: Iterable[int], func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what `func` returns on the instances listed, and None on the others."""
    return func(*args, **kwargs) if getInstanceIndex() in set(instances) else None
