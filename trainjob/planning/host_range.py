"""A range of hosts: Slurm gives as many as it can, and the global batch is the same on any number of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch
from trainjob.planning.counts import Counts
from trainjob.planning.engines import needs_mpirun
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import number, quantity

ORDERED = "a range of hosts begins with the fewest"
BY_SRUN = "only srun starts ranks on however many hosts Slurm gives"
SEVERAL = "a task on a range of hosts has at least two instances on the fewest"
DIVIDES = "the global batch is a multiple of micro batch × replicas on every number of hosts in the range"


def check(job: Job, counts: Counts, engine: str, batch: Batch | None) -> None:
    """Raise Broken if some number of hosts in the job's range could not run the plan."""
    least, most = job.least_hosts, counts.hosts
    if least is None:
        return
    if least > most:
        refuse(ORDERED, f"{least} to {most}", Knob("least_hosts", least, (most,)), Knob("hosts", most, (least,)))
    if needs_mpirun(engine):
        refuse(BY_SRUN, f"engine {engine} is started by mpirun", otherwise="Take --engine ddp, or one number of hosts.")
    if batch is not None:
        per_host = counts.instances // counts.hosts
        if least * per_host == 1:
            refuse(SEVERAL, f"1 instance on {least} of {most} hosts", Knob("least_hosts", least, (2,)))
        _divides(range(least, most + 1), batch, per_host)


def _divides(hosts: range, batch: Batch, per_host: int) -> None:
    size, unit = batch.global_batch, batch.micro_batch * per_host
    uneven = next((count for count in hosts if size % (unit * count)), None)
    if uneven is None:
        return
    product = f"{batch.micro_batch} × {per_host} × {quantity(uneven, 'host')} = {number(unit * uneven)}"
    # A global batch that divides evenly on every number of hosts in the range.
    common = unit * math.lcm(*hosts)
    refuse(
        DIVIDES,
        f"global batch {number(size)}, {product}",
        Knob("global_batch", size, (size // common * common, -(-size // common) * common)),
        Knob("least_hosts", hosts[0]),
        otherwise="Or a smaller --micro-batch.",
    )


def facts(job: Job, counts: Counts, batch: Batch | None) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the range."""
    if job.least_hosts is None or job.least_hosts == counts.hosts:
        return
    row = f"{job.least_hosts} to {counts.hosts}, as many as Slurm gives: the numbers are those of {counts.hosts}"
    if batch is not None:
        most = batch.accumulation * counts.hosts // job.least_hosts
        row += f"; on {job.least_hosts} accumulation is {most}, the global batch stays {number(batch.global_batch)}"
    yield "range of hosts", row
