"""A private gloo group of the instances: apart from torch's default group and from Horovod, which belong to the user.

Instances meet in a file that all of them see (a rehearsal is on one machine, whatever its hosts are called): the one
that TRAINJOB_STANDIN_MEETING names, new for every start, else one named after the mpirun that started them.
"""

from __future__ import annotations

import atexit
import datetime
import hashlib
import os
import socket
import tempfile
from typing import Any, Dict, Optional

import torch

MEETING = "TRAINJOB_STANDIN_MEETING"
_MPIRUNS = ("OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE")  # each different for every mpirun
_INTERFACES = ("GLOO_SOCKET_IFNAME", "TRAINJOB_INTERFACE")
# One instance may compile or load data for long while the others wait for it.
_PATIENCE = datetime.timedelta(minutes=30)
_groups: Dict[str, "Group"] = {}


class Group:
    """Collectives over all instances; each returns when it is done."""

    def __init__(self, name: str, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._work: Any = None if size == 1 else _connect(name, rank, size)

    def sum(self, tensor: torch.Tensor) -> None:
        """Replace `tensor` by its sum over all instances, equal to the last bit on each."""
        self.reduce(tensor, "SUM")

    def reduce(self, tensor: torch.Tensor, how: str) -> None:
        """Replace `tensor` by its SUM, MIN, MAX or PRODUCT over all instances."""
        if self._work is not None:
            options: Any = torch.distributed.AllreduceOptions()
            options.reduceOp = getattr(torch.distributed.ReduceOp, how)
            self._work.allreduce([tensor], options).wait()

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Give `tensor` the values that it has on instance `root`."""
        if self._work is not None:
            self._work.broadcast(tensor, root).wait()

    def gather(self, tensor: torch.Tensor) -> Any:
        """Return the tensors of all instances, equally large, in order."""
        if self._work is None:
            return [tensor.clone()]
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        self._work.allgather([found], [tensor]).wait()
        return found

    def leave(self) -> None:
        """Let go of the others; nothing can be asked of the group any more."""
        self._work = None


def group(name: str, rank: int, size: int) -> Group:
    """Return the group called `name`, which all instances must ask for; it stays until the process ends."""
    if name not in _groups:
        _groups[name] = Group(name, rank, size)
        # gloo's threads must end before the interpreter does: left to its end, they abort the process now and then.
        atexit.register(_groups[name].leave)
    return _groups[name]


def _connect(name: str, rank: int, size: int) -> Any:
    distributed: Any = torch.distributed
    gloo = distributed.ProcessGroupGloo
    # Two users of one file would count each other's arrivals.
    store = distributed.PrefixStore(name, distributed.FileStore("%s-%s" % (_file(), name), size))
    options = gloo._Options()
    options._devices = [gloo.create_device(interface=_interface())]
    options._timeout = _PATIENCE
    return gloo(store, rank, size, options)


def _file() -> str:
    named = os.environ.get(MEETING) or _of_mpirun()
    if named is None:
        raise RuntimeError(
            "several instances were started and nothing says where they meet: start them with the stand-in poprun "
            "(trainjob rehearse), or set %s to a file that is not there yet, the same for all of them" % MEETING
        )
    return named


def _of_mpirun() -> Optional[str]:
    started_by = next((os.environ[name] for name in _MPIRUNS if os.environ.get(name)), None)
    if not started_by:
        return None
    mark = hashlib.sha256(started_by.encode()).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), "trainjob-standin-%d-%s" % (os.getuid(), mark))


def _interface() -> str:
    named = next((os.environ[name] for name in _INTERFACES if os.environ.get(name)), None)
    known = [name for _, name in socket.if_nameindex()]
    return named or ("lo" if "lo" in known else known[0])
