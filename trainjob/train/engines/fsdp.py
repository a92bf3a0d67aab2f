"""torch's FSDP2: weights, gradients and optimizer state are sharded, and gathered unit by unit to compute.

Each instance holds some rows of every parameter. A unit's parameters are gathered before its forward and its backward
pass and freed after it; its gradients are reduced and scattered after every micro batch, so that none is held whole.
"""

from __future__ import annotations

from typing import Any, Callable, ContextManager, Dict, List, Sequence, Set, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainjob.contract.errors import UserError
from trainjob.contract.optimizers import is_own
from trainjob.records.software import OLDEST_FOR_FSDP, is_older
from trainjob.train.engines import precision
from trainjob.train.engines.base import Engine, EngineParts
from trainjob.train.engines.step import TorchEngine
from trainjob.train.engines.units import recompute, units_of
from trainjob.train.optimizers import build as build_optimizer
from trainjob.train.optimizers import parameter_groups
from trainjob.train.recording.state import is_sharded, local
from trainjob.train.recording.trace import TraceWriter
from trainjob.train.samples.nested import Nested


def build(parts: EngineParts) -> Engine:
    """Return the engine; all ranks must build it together. Raises UserError."""
    if is_older(torch.__version__, OLDEST_FOR_FSDP):
        raise UserError(
            "engine fsdp needs torch %s or newer, and this is torch %s" % (OLDEST_FOR_FSDP, torch.__version__),
            "Use a newer torch, or --engine ddp",
        )
    if parts.settings.offload and parts.world.device.type == "cpu":
        raise UserError("--offload keeps weights in the host's memory, where a CPU has them anyway", "Leave it out")
    if parts.world.size == 1 and not torch.distributed.is_initialized():
        backend = "nccl" if parts.world.device.type == "cuda" else "gloo"
        distributed: Any = torch.distributed  # not every torch says what it exports
        store = distributed.HashStore()
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    return FsdpEngine(parts)


class FsdpEngine(TorchEngine):
    """Instances hold parts of one model, of which no device ever holds a whole copy."""

    evaluates_together = True
    shards = True
    averages = True

    def __init__(self, parts: EngineParts) -> None:
        self._watched: Set[str] = set()  # names of parameters that note their use
        self._used: Set[str] = set()  # in this update
        self._is_proved = False  # that the optimizer's state is sharded as the weights are
        super().__init__(parts)
        self._used.clear()

    def place(self, model: nn.Module) -> nn.Module:
        """Return the model with its units, and whatever lies outside them, sharded."""
        from torch.distributed.fsdp import fully_shard

        scalars = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
        if scalars:
            raise UserError(
                "engine fsdp shards parameters by their first dimension, and %s has none" % scalars[0],
                "Give it the shape (1,), or use --engine ddp",
            )
        model = model.to(self.dtype)
        names = units_of(self.parts.task, model)
        if self.settings.recompute:
            recompute(model, names)
        mesh, modules = self._mesh(), dict(model.named_modules())
        # This moves a unit's parameters to the device one unit at a time: it may have no room for all of them.
        for module in [*(modules[name] for name in names), model]:
            fully_shard(module, mesh=mesh, reshard_after_forward=True, **self._how(module))
            self.count_waits(module)
            if self.settings.allow_unused_parameters:
                module.register_forward_pre_hook(self._watch_use)
        if self.settings.allow_unused_parameters:
            # Instances may differ in which parameters they use, and all must reduce the same ones.
            if not hasattr(model, "set_reduce_scatter_unused_params"):
                raise UserError(
                    "torch %s can't shard a model whose instances may differ in which parameters they use"
                    % torch.__version__,
                    "Leave out --allow-unused-parameters, use a newer torch, or --engine ddp",
                )
            cast(Any, model).set_reduce_scatter_unused_params(True)
        return model

    def count_waits(self, unit: nn.Module) -> None:
        """Have the collectives of a unit counted as communication on CPUs, where the rank does nothing else meanwhile.

        Older torch can't be told which collectives to call.
        """
        if self.device.type != "cpu" or not hasattr(unit, "set_custom_reduce_scatter"):
            return
        distributed: Any = torch.distributed
        sharded: Any = unit
        for names, give in (
            (("all_gather_single", "all_gather_into_tensor"), sharded.set_custom_all_gather),
            (("reduce_scatter_single", "reduce_scatter_tensor"), sharded.set_custom_reduce_scatter),
        ):
            # The first of the names is that of newer releases.
            collective = next(getattr(distributed, name) for name in names if hasattr(distributed, name))
            give(Awaited(collective, self.waiting))

    def _watch_use(self, _module: nn.Module, _inputs: object) -> None:
        """Have each parameter that is gathered for the first time note when it gets a gradient."""
        for name, parameter in self.model.named_parameters():
            if name not in self._watched and not is_sharded(parameter):
                self._watched.add(name)
                hooked: Any = parameter
                hooked.register_post_accumulate_grad_hook(lambda _parameter, name=name: self._used.add(name))

    def reduce_gradients(self) -> None:
        """Leave parameters that no instance used without a gradient, as other engines do, in place of zeros."""
        if not self.settings.allow_unused_parameters:
            return
        named = list(self.model.named_parameters())
        uses = self.world.sum([float(name in self._used) for name, _ in named])
        self._used.clear()
        for count, (_, parameter) in zip(uses, named):
            if not count:
                parameter.grad = None

    def _mesh(self) -> Any:
        """Return the instances as groups, each of which holds the whole model in parts."""
        from torch.distributed.device_mesh import init_device_mesh

        size, group = self.world.size, self.settings.shard_group or self.world.size
        if group == size:
            return init_device_mesh(self.device.type, (size,), mesh_dim_names=("shard",))
        return init_device_mesh(self.device.type, (size // group, group), mesh_dim_names=("replicate", "shard"))

    def _how(self, module: nn.Module) -> Dict[str, Any]:
        """Return in which type the parameters of `module` are gathered, and where they wait meanwhile."""
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

        kinds = precision.types(self.settings.precision)
        how: Dict[str, Any] = {}
        # BatchNorm wants its parameters in the type of its running statistics.
        if kinds.layers != kinds.weights and not any(isinstance(one, _BatchNorm) for one in module.modules()):
            how["mp_policy"] = MixedPrecisionPolicy(param_dtype=kinds.layers, reduce_dtype=kinds.weights)
        if self.settings.offload:
            how["offload_policy"] = CPUOffloadPolicy()
        return how

    def build_numerics(self) -> precision.Numerics:
        """Return torch's autocast for 16 bits, on CPUs as well: what rounds there needs whole parameters."""
        kinds = precision.types(self.settings.precision)
        halves = kinds.layers != kinds.weights
        return precision.Autocast(kinds, self.device) if halves else precision.Numerics(kinds)

    def compiled_modules(self) -> List[nn.Module]:
        """Return the innermost units: parameters are gathered between them, which is not compiled."""
        modules, names = dict(self.model.named_modules()), units_of(self.parts.task, self.model)
        return [modules[name] for name in names if not any(other.startswith(name + ".") for other in names)]

    def build_optimizer(self, sparse: bool) -> Any:
        """Return the optimizer. Raises UserError for sparse gradients."""
        if sparse:
            raise UserError("engine fsdp shards dense gradients, and this model has sparse ones", "Use --engine ddp")
        # Not fused: torch's fused SGD doesn't take sharded parameters.
        return build_optimizer(parameter_groups(self.model, self.parts.task), self.settings, fuse=False)

    def step(self) -> None:
        """Update the weights with their gradients. Raises UserError for an optimizer that can't update parts."""
        name = self.settings.optimizer
        if self._is_proved or not is_own(name):
            super().step()
            return
        try:
            super().step()
        except torch.cuda.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError) as error:
            raise _unsharded(name, "its first step failed: %s" % str(error).split("\n")[0]) from error
        refuse_unsharded_state(name, self.optimizer, self.model)
        self._is_proved = bool(self.optimizer.state)

    def evaluate(self, inputs: Nested, targets: Nested) -> List[float]:
        """Return the means of the loss and of each metric over some held-out samples."""
        values = super().evaluate(inputs, targets)
        self._free()
        return values

    def _note_model(self, trace: TraceWriter) -> None:
        super()._note_model(trace)
        self._free()

    def _free(self) -> None:
        """Free the parameters of the outermost unit, which some releases of torch keep after a forward pass."""
        root: Any = self.model
        root.reshard()

    def is_finite(self) -> bool:
        """Return whether all weights are finite, on every instance."""
        with torch.no_grad():
            mine = all(bool(torch.isfinite(local(weight).sum())) for weight in self.model.parameters())
        return self.world.sum([float(not mine)]) == [0.0]


class Awaited:
    """A collective of which the waiting is noted, as torch's fully_shard takes one."""

    def __init__(self, collective: Callable[..., Any], waiting: Callable[[], ContextManager[None]]) -> None:
        self._collective = collective
        self._waiting = waiting

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return memory for what is sent or received."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, **how: Any) -> Any:
        """Call the collective."""
        with self._waiting():
            return self._collective(output_tensor, input_tensor, **how)


def refuse_unsharded_state(name: str, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raise UserError for state that is not sharded as its parameter: no other number of instances could continue."""
    for of, parameter in model.named_parameters():
        for what, value in optimizer.state.get(parameter, {}).items():
            is_one = not isinstance(value, torch.Tensor) or value.numel() == 1
            if not is_one and not (is_sharded(value) and value.shape == parameter.shape):
                shapes = tuple(value.shape), of, tuple(parameter.shape)
                raise _unsharded(name, "it keeps %s of shape %s for weight %s of shape %s" % (what, *shapes))


def _unsharded(name: str, why: str) -> UserError:
    return UserError(
        "engine fsdp shards an optimizer's state row by row with its weights, and optimizer %s does not allow it: %s"
        % (name, why),
        "Choose one whose state has its weights' shapes, such as adamw or lamb, or take --engine ddp",
    )
