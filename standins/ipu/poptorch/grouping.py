"""Weights of which groups of replicas hold values of their own.

On the host, the first dimension of such a weight counts the groups; a replica holds the part of its group. Gradients
are summed over the replicas of a group, and a mean is divided by the number of all replicas, as PopART does both.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional

import torch

from poptorch.enums import CommGroupType, VariableRetrievalMode
from poptorch.errors import Error

if TYPE_CHECKING:
    from poptorch.options import Options


class Grouping(NamedTuple):
    """The arguments of replicaGrouping for one weight."""

    kind: CommGroupType
    size: int
    retrieval: VariableRetrievalMode


class GroupedWeight(NamedTuple):
    """A weight that groups of replicas hold apart, and the group of each replica."""

    weight: Any
    group_of: List[int]


class WeightOfExecutor:
    """A weight as an executor shows it: the user's own, which can be told how replicas hold it."""

    def __init__(self, weight: torch.Tensor, ask: Callable[[Any], None]) -> None:
        self._weight, self._ask = weight, ask

    def replicaGrouping(
        self, comm_group_type: CommGroupType, shards: int, variable_retrieval_mode: VariableRetrievalMode
    ) -> None:
        """Have each group of `shards` replicas hold a value of its own: one entry of the weight's first dimension."""
        self._ask((comm_group_type, shards, variable_retrieval_mode))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._weight, name)

    def __repr__(self) -> str:
        return repr(self._weight)


def grouped_weights(
    requested: Dict[str, Any], named: Mapping[str, torch.Tensor], options: Options
) -> List[GroupedWeight]:
    """Return the weights that groups of replicas hold apart. Raises Error for what can't be."""
    grouped = []
    for name, (kind, size, retrieval) in requested.items():
        if name not in named:
            raise Error("replicaGrouping: the model has no weight %s; it has %s" % (name, ", ".join(named)))
        grouping = Grouping(CommGroupType(kind), int(size), VariableRetrievalMode(retrieval))
        group_of = _group_of(name, grouping, int(options.replication_factor))
        if max(group_of) == 0:
            continue  # one group: the weight is as any other
        _refuse(name, named[name], group_of, grouping, options)
        grouped.append(GroupedWeight(named[name], group_of))
    return grouped


def _group_of(name: str, grouping: Grouping, replicas: int) -> List[int]:
    """Return the group of each replica."""
    if grouping.kind == CommGroupType.All:
        return [0] * replicas
    size = 1 if grouping.kind == CommGroupType.NoGrouping else grouping.size
    if size < 1 or replicas % size:
        raise Error("replicaGrouping of %s: %d replicas can't be divided into groups of %d" % (name, replicas, size))
    groups = replicas // size
    is_orthogonal = grouping.kind == CommGroupType.Orthogonal
    return [replica % groups if is_orthogonal else replica // size for replica in range(replicas)]


def _refuse(name: str, weight: torch.Tensor, group_of: List[int], grouping: Grouping, options: Options) -> None:
    groups = max(group_of) + 1
    if weight.dim() == 0 or weight.shape[0] != groups:
        raise Error(
            "replicaGrouping of %s: its first dimension must be the number of groups, which is %d, and its shape is %s"
            % (name, groups, tuple(weight.shape))
        )
    if grouping.retrieval == VariableRetrievalMode.AllReplicas and groups < len(group_of):
        raise Error(
            "replicaGrouping of %s: the stand-in gives back one value of each group (OnePerGroup) and not one of each "
            "replica" % name
        )
    if options.reduces_over_instances and options.Distributed.numProcesses > 1:
        raise Error(
            "replicaGrouping of %s: the stand-in knows groups of the replicas of one instance, and there are %d "
            "instances" % (name, options.Distributed.numProcesses)
        )


@contextlib.contextmanager
def held_by(replica: int, grouped: List[GroupedWeight]) -> Iterator[None]:
    """While it lasts, grouped weights are the part of the replica's group; their gradients are added to the whole."""
    wholes = [(one.weight, one.weight.data, one.weight.grad) for one in grouped]
    for one in grouped:
        _put(one.weight, one.weight.data[one.group_of[replica]], None)
    try:
        yield
    finally:
        for one, (weight, data, gradient) in zip(grouped, wholes):
            part = weight.grad
            if part is not None:
                whole = torch.zeros_like(data) if gradient is None else gradient
                whole[one.group_of[replica]] += part
                _put(weight, data, whole)
            else:
                _put(weight, data, gradient)


def _put(weight: torch.Tensor, data: torch.Tensor, gradient: Optional[torch.Tensor]) -> None:
    # In this order: a gradient must have the shape of its weight.
    weight.grad, weight.data = None, data
    weight.grad = gradient
