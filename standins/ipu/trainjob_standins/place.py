"""The place of this instance, as poprun says it in POPDIST_* (one instance with one replica where it says nothing)."""

from __future__ import annotations

import os
from typing import NamedTuple

TOTAL_REPLICAS = "POPDIST_NUM_TOTAL_REPLICAS"
LOCAL_REPLICAS = "POPDIST_NUM_LOCAL_REPLICAS"
FIRST_REPLICA = "POPDIST_REPLICA_INDEX_OFFSET"
IPUS_PER_REPLICA = "POPDIST_NUM_IPUS_PER_REPLICA"
LOCAL_INSTANCE = "POPDIST_LOCAL_INSTANCE_INDEX"
# IPUs of the partition, where a rehearsal knows them; the instances' own IPUs otherwise.
PARTITION_IPUS = "TRAINJOB_STANDIN_IPUS"


class Place(NamedTuple):
    """One instance among all. Replicas are divided evenly, so that index and number follow from them."""

    total_replicas: int
    local_replicas: int
    first_replica: int
    ipus_per_replica: int
    local_instance: int

    @property
    def instances(self) -> int:
        """Host processes that train together."""
        return self.total_replicas // self.local_replicas

    @property
    def instance(self) -> int:
        """This process's number among them."""
        return self.first_replica // self.local_replicas

    @property
    def ipus(self) -> int:
        """IPUs that this instance's replicas use."""
        return self.local_replicas * self.ipus_per_replica


def under_poprun() -> bool:
    """Return whether poprun started this process."""
    return TOTAL_REPLICAS in os.environ


def here() -> Place:
    """Return where this process stands."""
    return Place(
        total_replicas=_number(TOTAL_REPLICAS, 1),
        local_replicas=_number(LOCAL_REPLICAS, 1),
        first_replica=_number(FIRST_REPLICA, 0),
        ipus_per_replica=_number(IPUS_PER_REPLICA, 1),
        local_instance=_number(LOCAL_INSTANCE, 0),
    )


def partition_ipus() -> int:
    """Return the IPUs of the partition that this process may attach to."""
    place = here()
    used = place.total_replicas * place.ipus_per_replica
    return _number(PARTITION_IPUS, used if under_poprun() else 16)


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name) or str(otherwise)
    if not text.isdigit():
        raise ValueError("%s must be a whole number, and is %r" % (name, text))
    return int(text)
