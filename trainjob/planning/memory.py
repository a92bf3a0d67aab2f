"""The memory of a job's devices: the bytes of each part, and changes that would make the job fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from trainjob.planning.words import number, quantity, size
from trainjob.records.measures import MemoryFigures

GB = 1_000_000_000


@dataclass(frozen=True)
class Layout:
    """A job's use of its devices, as far as memory depends on it."""

    engine: str
    instances: int
    micro_batch: int
    shard_group: int | None = None
    recompute: bool = False
    offload: bool = False

    @property
    def shards(self) -> int:
        """The number of shards of the model; each instance holds one."""
        return (self.shard_group or self.instances) if self.engine == "fsdp" else 1


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device, without those of libraries, of collectives' buffers and of fragmentation."""

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int | None

    @property
    def total(self) -> int:
        """The sum of all parts; without activations if they are not known."""
        return self.weights + self.gradients + self.optimizer + self.gathered + (self.activations or 0)


def memory(figures: MemoryFigures, measured_at: int, layout: Layout) -> MemoryEstimate:
    """Return the bytes on one device. Activations were measured with `measured_at` samples and grow in proportion."""

    def part(whole: int) -> int:
        return 0 if layout.offload else -(-whole // layout.shards)

    kept = figures.recomputed if layout.recompute else figures.activations
    return MemoryEstimate(
        weights=part(figures.weights),
        gradients=part(figures.gradients),
        optimizer=part(figures.optimizer),
        gathered=2 * figures.gathered if layout.engine == "fsdp" else 0,  # a unit's weights, and its gradients
        activations=None if kept is None else kept * layout.micro_batch // measured_at,
    )


def rows(figures: MemoryFigures, layout: Layout, device_memory_gb: float | None) -> Iterator[tuple[str, str]]:
    """Yield the plan's rows about memory: parameters, units, and each part of one device's memory in bytes."""
    held = memory(figures, layout.micro_batch, layout)
    yield "parameters", number(figures.parameters)
    if figures.units:
        shown = ", ".join(figures.units[:3]) + (f" … {figures.units[-1]}" if len(figures.units) > 3 else "")
        yield "units", f"{number(len(figures.units))}: {shown}"
    for name in ("weights", "gradients", "optimizer"):
        whole = getattr(figures, name)
        shared = f" = {size(whole)} ÷ {quantity(layout.shards, 'instance')}" if layout.shards > 1 else ""
        yield f"{name} per device", "on the host" if layout.offload else size(getattr(held, name)) + shared
    if held.gathered:
        yield "gathered per device", f"{size(held.gathered)}: a unit's weights and gradients"
    recomputed = " with recomputation" if layout.recompute else ""
    activations, least = f"not known here: {figures.why}", "at least "
    if held.activations is not None:
        activations, least = size(held.activations) + recomputed, ""
    yield "activations per device", activations
    capacity = "" if device_memory_gb is None else f" of {device_memory_gb:g} GB"
    yield "memory per device", f"{least}{size(held.total)}{capacity}"


def what_fits(figures: MemoryFigures, layout: Layout, most_instances: int, device_memory_gb: float) -> list[str]:
    """Return changes to the job, as flags. Each makes it fit by itself; the list is empty if none does."""

    def fits(changed: Layout) -> bool:
        return memory(figures, layout.micro_batch, changed).total <= device_memory_gb * GB

    offers = []
    if not layout.recompute and fits(dataclasses.replace(layout, recompute=True)):
        offers.append("--recompute")
    smaller = (layout.micro_batch >> shift for shift in range(1, layout.micro_batch.bit_length()))
    fitting_batch = next((batch for batch in smaller if fits(dataclasses.replace(layout, micro_batch=batch))), None)
    if fitting_batch is not None:
        offers.append(f"--micro-batch {fitting_batch}")
    counts = (layout.instances << shift for shift in range(max(1, most_instances).bit_length()))
    sharded = (dataclasses.replace(layout, engine="fsdp", instances=count, shard_group=None) for count in counts)
    fitting = next((changed for changed in sharded if changed.instances <= most_instances and fits(changed)), None)
    if fitting is not None and figures.units:
        offers.append(f"--engine fsdp --instances {fitting.instances}")
    both = dataclasses.replace(layout, engine="fsdp", instances=most_instances, shard_group=None, recompute=True)
    if not offers and figures.units and fits(both):
        offers.append(f"--engine fsdp --instances {most_instances} --recompute")
    return offers
