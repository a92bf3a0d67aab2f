"""Kind local: this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainjob.cluster.base import Cluster
from trainjob.cluster.common import Count, Line, Number
from trainjob.cluster.nodes import Capacity
from trainjob.cluster.strict import BreachError, key, required

if TYPE_CHECKING:
    from trainjob.render.request import Request

TEMPLATE, SCRIPT = "jobs/local.sh.j2", "job.sh"


class LocalCluster(Cluster):
    """This machine."""

    kind: Literal["local"] = required("local: this machine.")
    accelerator: Literal["cpu", "gpu"] = key("cpu", "What a rank trains on.")
    accelerators: Number = key(0, "GPUs of this machine; 0 on cpu.")
    max_instances: Count | None = key(None, "Most processes that may train at once. Absent: no limit on cpu.")
    python: Line | None = key(None, "Interpreter that has torch. Absent: the one that runs trainjob.")

    draft = "local"
    is_shared = False
    trains_here = True
    accelerator_key = "accelerator"
    starter = "launcher"

    def enforce_rules(self) -> None:
        """Raise BreachError for ssh to another machine, and if the number of accelerators contradicts their kind."""
        if self.ssh is not None:
            raise BreachError(
                "ssh",
                f"is {self.ssh.host}, and kind: local is the machine that runs trainjob",
                f"for another machine, give kind: hosts and hosts: [{self.ssh.host}]",
            )
        if (self.accelerator == "cpu") != (self.accelerators == 0):
            raise BreachError(
                "accelerators",
                f"is {self.accelerators} and accelerator is {self.accelerator}",
                "cpu means 0, gpu means at least 1",
            )

    @property
    def capacity(self) -> Capacity:
        """One machine, on which CPUs set no limit."""
        limits = [limit for limit in (self.accelerators or None, self.max_instances) if limit is not None]
        return Capacity(self.accelerator.upper(), "machine", 1, 1, min(limits, default=None), 1)

    def names_of_hosts(self, count: int) -> tuple[str, ...]:
        """Return the name of this machine."""
        return ("localhost",) * count

    @property
    def accelerators_per_host(self) -> int:
        """The GPUs of this machine."""
        return self.accelerators

    @property
    def interpreter(self) -> str | None:
        """The interpreter that the file names for tasks."""
        return self.python


MODEL: type[Cluster] = LocalCluster


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind local. Raises ContainerError."""
    from trainjob.render.container import container
    from trainjob.render.context import OF_STEPS, common

    names, secrets_file = common(request, "local", "bash job.sh"), request.cluster.secrets_file
    return {
        **names,
        "container": container(request),
        "secrets_file": None if secrets_file is None else request.path("secrets_file", secrets_file),
        # The launcher outside decides where ranks meet. Secrets stay inside, where `docker inspect` can't show them.
        "options_outside": [pair for pair in names["launch_options"] if pair[0] not in OF_STEPS],
        "options_inside": [pair for pair in names["launch_options"] if pair[0] in (*OF_STEPS, "--accelerator")],
    }
