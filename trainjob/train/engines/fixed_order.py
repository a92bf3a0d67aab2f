"""Gradients summed in one order for any number of instances: weights are the same to the last bit.

A sum of floats depends on its order. Here the order is a binary tree over the positions of the micro batches in the
global batch, whoever holds them: positions 0 and 1 are added, 2 and 3, then both sums, and so on. An instance adds what
it holds of the tree. The last backward pass of an update hands over its gradients bucket by bucket, as DDP does, and
the tree of a bucket is completed while the next one is computed: each instance gets one slice of all sums, completes
the tree for its slice, and gives it to the others. That is the traffic of an all-reduce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

import torch

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import Engine, EngineParts
from trainjob.train.engines.ddp import DdpEngine
from trainjob.train.engines.step import TorchEngine

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket


def build(parts: EngineParts) -> Engine:
    """Return the engine. Raises UserError for a model with sparse gradients."""
    if parts.world.device.type == "cpu":
        # Several threads split a sum by their number, which differs from host to host.
        torch.set_num_threads(1)
    return FixedOrderEngine(parts) if parts.world.size == 1 else SharedFixedOrderEngine(parts)


class SumNode(NamedTuple):
    """The sum of the gradients of `size` micro batches from position `start` on; no tensors where the shape counts."""

    start: int
    size: int
    tensors: Sequence[torch.Tensor] = ()


def add(nodes: List[SumNode], new: SumNode) -> None:
    """Add a node behind `nodes`, joining siblings of the tree for as long as there are any.

    Sums are put in the tensors of `new`; a + b has the bits of b + a.
    """
    while nodes and nodes[-1].size == new.size and nodes[-1].start % (2 * new.size) == 0:
        left = nodes.pop()
        new = SumNode(left.start, 2 * new.size, _sum(new.tensors, left.tensors))
    nodes.append(new)


def _sum(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    for tensor, other in zip(tensors, others):
        tensor.add_(other)
    return tensors


def shape(start: int, count: int) -> List[SumNode]:
    """Return the nodes, without tensors, that the micro batches from `start` to `start + count` add up to."""
    nodes: List[SumNode] = []
    for position in range(start, start + count):
        add(nodes, SumNode(position, 1))
    return nodes


def total(nodes: Sequence[SumNode]) -> Sequence[torch.Tensor]:
    """Return the sum of the nodes that are left when every micro batch is in, the smallest first."""
    tensors = nodes[-1].tensors
    for node in reversed(nodes[:-1]):
        tensors = _sum(tensors, node.tensors)
    return tensors


class FixedOrderEngine(TorchEngine):
    """One instance, which adds its micro batches as a tree."""

    def __init__(self, parts: EngineParts) -> None:
        super().__init__(parts)
        self._trained = [weight for weight in self._weights if weight.requires_grad]
        self.begin_tree()

    def loss_scale(self) -> float:
        """Return the scale of the loss: of a micro batch alone, however many of them an instance holds."""
        return 1.0 / self.parts.counts.micro_batches if self.settings.reduction == "mean" else 1.0

    def build_optimizer(self, sparse: bool) -> Any:
        """Return the optimizer. Raises UserError for sparse gradients."""
        if sparse:
            raise UserError("--sum-order fixed adds dense gradients, and this model has sparse ones", "leave it out")
        return super().build_optimizer(sparse)

    def backward(self, loss: torch.Tensor, last: bool) -> None:  # noqa: ARG002 - nothing is reduced meanwhile
        """Add the gradients of one micro batch to the tree."""
        loss.backward()
        self.keep_gradients()

    def keep_gradients(self) -> None:
        """Move the gradients of one micro batch to the tree."""
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in self._trained]
        if self.settings.allow_unused_parameters:
            for gradient in gradients:
                gradient.add_(0.0)  # makes −0 a 0, which it is where a gradient is added to zeros
        add(self._nodes, SumNode(self._position, 1, gradients))
        self._position += 1
        for weight in self._trained:
            weight.grad = None

    def reduce_gradients(self) -> None:
        """Give every weight its part of the whole tree's sum."""
        for weight, gradient in zip(self._trained, total(self._nodes)):
            weight.grad = gradient
        self.begin_tree()

    def begin_tree(self) -> None:
        """Begin the tree of an update."""
        self._nodes: List[SumNode] = []  # with a tensor for each of `_trained`
        self._position = self._first_micro_batch


class SharedFixedOrderEngine(FixedOrderEngine, DdpEngine):
    """Several instances, which complete the tree together."""

    def __init__(self, parts: EngineParts) -> None:
        self._shapes: List[List[SumNode]] = []  # of each instance; none until the first update
        self._started: List[_Bucket] = []  # of this update
        super().__init__(parts)
        self.micro_batches_of_message = parts.counts.micro_batches
        each = parts.counts.micro_batches_per_instance
        self._shapes = [shape(rank * each, each) for rank in range(self.world.size)]

    def settle_buckets(self) -> None:
        """Take over the reduction of buckets before the first one is reduced."""
        self._ddp.register_comm_hook(None, lambda _state, bucket: self._reduce(bucket))
        super().settle_buckets()

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add the gradients of one micro batch to the tree, and those of the last one bucket by bucket."""
        if last and self.settings.allow_unused_parameters:
            # DDP fails where an earlier micro batch used a parameter that the last one leaves without a gradient.
            for weight in self._trained:
                weight.grad = torch.zeros_like(weight)
        DdpEngine.backward(self, loss, last)
        if not last:
            self.keep_gradients()

    def reduce_gradients(self) -> None:
        """Do nothing more: the last backward pass has left the sums."""
        self.begin_tree()

    def _reduce(self, bucket: GradBucket) -> Any:
        """Start to complete the tree of one bucket of gradients, and return its future.

        Every instance gets its buckets in the same order, in which all collectives are therefore called.
        """
        made = _Bucket(bucket.buffer(), self._shapes, self.world.rank)
        nodes = self._of_bucket(bucket, made.buffer) if self._shapes else []
        if self._started:
            self._started[-1].complete()
        made.start(nodes)
        self._started.append(made)
        if bucket.is_last():
            made.complete()
            for one in self._started:
                one.finish()
            self._started = []
        return made.future

    def _of_bucket(self, bucket: GradBucket, buffer: torch.Tensor) -> List[torch.Tensor]:
        """Return the vectors of this instance's nodes, of which the last is `buffer`, with what it was joined with."""
        views = bucket.gradients()
        places: Dict[torch.Tensor, int] = {weight: number for number, weight in enumerate(self._trained)}
        # The message of this instance is none of the weights, and travels with the last node alone.
        held = [(view, places[one]) for view, one in zip(views, bucket.parameters()) if one in places]
        nodes = [SumNode(node.start, node.size, [node.tensors[place] for _, place in held]) for node in self._nodes]
        add(nodes, SumNode(self._position, 1, [view for view, _ in held]))
        vectors = [torch.zeros_like(buffer) for _ in nodes[:-1]]
        for vector, node in zip(vectors, nodes):
            for (view, _), tensor in zip(held, node.tensors):
                at = view.storage_offset() - buffer.storage_offset()
                vector.as_strided(view.size(), view.stride(), at).copy_(tensor)
        return [*vectors, buffer]


class _Bucket:
    """A bucket of gradients on its way over the instances: started, completed on a slice of it, finished."""

    def __init__(self, buffer: torch.Tensor, shapes: List[List[SumNode]], rank: int) -> None:
        self.buffer = buffer
        self.future: Any = torch.futures.Future(devices=[buffer.device]) if buffer.is_cuda else torch.futures.Future()
        self._shapes = shapes
        self._rank = rank
        self._works: List[Any] = []
        self._slices: List[torch.Tensor] = []
        self._received: Optional[torch.Tensor] = None

    def start(self, vectors: List[torch.Tensor]) -> None:
        """Send each instance its slice of the vectors of this instance's nodes."""
        if sum(map(len, self._shapes)) <= 2:
            # Two numbers have one sum, whichever comes first.
            self._works = [torch.distributed.all_reduce(self.buffer, async_op=True)]
            return
        self._slices = list(self.buffer.tensor_split(len(self._shapes)))
        sizes, mine = [len(one) for one in self._slices], len(self._slices[self._rank])
        # By receiver, and for each receiver by node.
        parts = zip(*(vector.split(sizes) for vector in vectors))
        sent = vectors[0] if len(vectors) == 1 else torch.cat([part for of_one in parts for part in of_one])
        lengths = [len(nodes) * mine for nodes in self._shapes]
        self._received = self.buffer.new_empty(sum(lengths))
        self._works = [
            torch.distributed.all_to_all_single(
                self._received, sent, lengths, [len(vectors) * size for size in sizes], async_op=True
            )
        ]

    def complete(self) -> None:
        """Complete the tree for this instance's slice, and give it to the others."""
        if self._received is None:
            return
        self._wait()
        mine = self._slices[self._rank]
        sent = [node for of_one in self._shapes for node in of_one]
        nodes: List[SumNode] = []
        for node, part in zip(sent, self._received.split([len(mine)] * len(sent))):
            add(nodes, SumNode(node.start, node.size, [part]))
        mine.copy_(total(nodes)[0])
        self._received = None
        self._works = [
            torch.distributed.broadcast(one, rank, async_op=True) for rank, one in enumerate(self._slices) if len(one)
        ]

    def finish(self) -> None:
        """Wait until the whole bucket is summed."""
        self._wait()
        self.future.set_result(self.buffer)

    def _wait(self) -> None:
        for work in self._works:
            work.wait()
