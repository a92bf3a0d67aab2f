"""Records a script's batches, losses, weight updates and saves. No fault in here reaches the script."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, Dict, Optional

from . import digests
from .recorder import UpdateRecorder, quietly

_MOST_KEYS = 200  # of a saved state whose values have a digest each
_MOST_REDUCED = 64  # calls of all_reduce that are looked at
# Types that hold the model they wrap under a name, which a model may use for something else.
_WRAPPERS = {
    "DataParallel": "module",
    "DeepSpeedEngine": "module",
    "DistributedDataParallel": "module",
    "Float16Module": "module",  # of Megatron
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",  # of torch.compile
    "_FabricModule": "module",
}
_MOST_WRAPPERS = 4  # around one another


@quietly
def record_batch(recorder: UpdateRecorder, iterator: Any, batch: Any) -> None:
    """Note the samples of a batch; of one that is evaluated, only that the script evaluates."""
    number = iterator._trainjob_batches = getattr(iterator, "_trainjob_batches", -1) + 1
    if sys.modules["torch"].is_grad_enabled():
        recorder.batches.append((getattr(iterator, "_trainjob_pass", 0), number, digests.of_samples(batch)))
    elif not recorder.evaluated:
        recorder.evaluated = True
        recorder.write("evaluates")


@quietly
def began_pass(recorder: UpdateRecorder, loader: Any, iterator: Any) -> None:
    """Record the begin of a pass over a loader, and how its sampler shares the samples out."""
    if sys.modules["torch"].is_grad_enabled():
        recorder.passes += 1
        iterator._trainjob_pass, iterator._trainjob_batches = recorder.passes, -1
        sampler = getattr(loader, "sampler", None)
        recorder.write(
            "pass",
            number=recorder.passes,
            sampler=type(sampler).__name__,
            sampler_rank=getattr(sampler, "rank", None),
            replicas=getattr(sampler, "num_replicas", None),
            seed=getattr(sampler, "seed", None),
            shuffles=getattr(sampler, "shuffle", None),
            epoch=getattr(sampler, "epoch", None),
            local_rank=int(os.environ.get("LOCAL_RANK") or 0),
            workers=getattr(loader, "num_workers", 0),
        )
    else:
        _pads(loader)


@quietly
def _pads(recorder: UpdateRecorder, loader: object) -> None:
    """Note a sampler that gives ranks the same held-out samples to fill up their shares."""
    sampler = getattr(loader, "sampler", None)
    taken = getattr(sampler, "total_size", None)
    data: Any = getattr(sampler, "dataset", None)
    if isinstance(taken, int) and hasattr(data, "__len__") and taken > len(data):
        recorder.note("pads", samples=len(data), taken=taken)


@quietly
def ended_pass(recorder: UpdateRecorder) -> None:
    """Record the end of a pass over a loader, while gradients are recorded."""
    if sys.modules["torch"].is_grad_enabled():
        recorder.write("pass-ended", number=recorder.passes)


@quietly
def calls_model(recorder: UpdateRecorder, model: Any, given: Any) -> None:
    """Look at the outermost call of a module that trains."""
    if not any(weight.requires_grad for weight in model.parameters()):
        return
    if not recorder.passes:
        recorder.calls += 1
        recorder.batches.append((0, recorder.calls - 1, digests.tried(lambda: digests.of_samples(given), [])))
    # A wrapper keeps a mode of its own: eval() of the model inside leaves it.
    root = _unwrapped(model)
    if root.training and "normalises" not in recorder.noted:
        is_normal = any("BatchNorm" in type(one).__name__ and one.training for one in root.modules())
        if is_normal and not any("SyncBatchNorm" in type(one).__name__ for one in root.modules()):
            recorder.note("normalises")
    # Only what depends on the mode tells that it is the wrong one.
    for module in [] if root.training else root.modules():
        name = type(module).__name__
        if "BatchNorm" in name or ("Dropout" in name and getattr(module, "p", 0) > 0):
            recorder.is_evaluating = True
            return


def _unwrapped(model: Any) -> Any:
    """Return the model inside the wrappers that are known."""
    for _ in range(_MOST_WRAPPERS):
        name = next((_WRAPPERS[one.__name__] for one in type(model).__mro__ if one.__name__ in _WRAPPERS), "")
        inside = getattr(model, name, None)
        if inside is model or not callable(getattr(inside, "modules", None)):
            break
        model = inside
    return model


@quietly
def reduces(recorder: UpdateRecorder, tensor: Any) -> None:
    """Note an all_reduce of a loss that still has its graph, or of gradients that DDP has reduced."""
    recorder.reduced += 1
    if recorder.reduced > _MOST_REDUCED or not digests.is_tensor(tensor):
        return
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        recorder.note("reduces-loss")
        return
    for model in filter(None, (known() for known in recorder.models)):
        if not getattr(model, "require_backward_grad_sync", False):
            continue
        for weight in model.parameters():
            if weight.grad is not None and weight.grad.data_ptr() == tensor.data_ptr():
                recorder.note("reduces-gradients")
                return


@quietly
def clips(recorder: UpdateRecorder) -> None:
    """Note gradients that are clipped while they are scaled."""
    if recorder.is_scaled:
        recorder.note("clips-scaled")


@quietly
def record_loss(recorder: UpdateRecorder, loss: Any) -> None:
    """Note a loss that is about to go back, and whether it was divided."""
    if not recorder.losses and recorder.update and len(recorder.steppers) == 1:
        recorder.kept = bool(_norm_of_watched(recorder))
    if loss.numel() == 1:
        loss = getattr(loss, "_trainjob_unscaled", loss)  # a gradient scaler has multiplied it
        recorder.losses.append(loss.detach().clone())
        # What was done to it last, or to a term of its sum.
        last = loss.grad_fn
        nodes = [] if last is None else [last, *(node for node, _ in last.next_functions if node is not None)]
        recorder.divided |= any(type(node).__name__.startswith(("Div", "Mul")) for node in nodes)


def _norm_of_watched(recorder: UpdateRecorder) -> Optional[float]:
    gradient = getattr(recorder.watched, "grad", None)
    return None if gradient is None else float(gradient.detach().float().norm())


@quietly
def went_back(recorder: UpdateRecorder) -> None:
    """Note the norm of a gradient that a further loss adds to."""
    if len(recorder.losses) > 1:
        recorder.watched_norm = _norm_of_watched(recorder)


@quietly
def joins(recorder: UpdateRecorder, rank: Optional[int], size: Optional[int]) -> None:
    """Record how a rank numbers itself where it joins a group."""
    if recorder.rank_at_start is not None:
        given = [
            os.environ.get(name) if one in (None, -1) else one for one, name in ((rank, "RANK"), (size, "WORLD_SIZE"))
        ]
        recorder.write("joins", rank=given[0], size=given[1], rank_at_start=recorder.rank_at_start)


@quietly
def wraps_model(recorder: UpdateRecorder, model: object) -> None:
    """Note a model in DistributedDataParallel."""
    # One that is kept beyond its script's end takes threads of its group along, and the process aborts.
    recorder.models.append(weakref.ref(model))


@quietly
def scaled(recorder: UpdateRecorder, loss: object, product: Any) -> None:
    """Note gradients that are going to be scaled, because their loss was."""
    if digests.is_tensor(product) and product is not loss:
        product._trainjob_unscaled = loss
        recorder.is_scaled = True


@quietly
def unscaled(recorder: UpdateRecorder) -> None:
    """Note gradients that are scaled no longer."""
    recorder.is_scaled = False


@quietly
def scales(recorder: UpdateRecorder, scaler: object) -> None:
    """Note the scale of a gradient scaler."""
    scale = getattr(scaler, "_scale", None)
    recorder.scale = None if scale is None else float(scale)


@quietly
def begin_step(recorder: UpdateRecorder, optimizer: Any, found: Dict[str, Any]) -> None:
    """Put into `found` what gradients, weights and random numbers are before a step of an optimizer."""
    gradients, norm = digests.of_gradients(optimizer)
    norm_before, norm_now = recorder.watched_norm, _norm_of_watched(recorder)
    # A gradient scaler has made them smaller by its scale, which is no division.
    if norm_before is not None and norm_now is not None and norm_now * (recorder.scale or 1.0) < 0.99 * norm_before:
        recorder.divided = True
    weights = digests.weights_of(optimizer)
    recorder.steppers.add(id(optimizer))
    recorder.watched = next((weight for weight in weights if weight.grad is not None), None)
    found.update(
        gradients=gradients,
        norm=norm,
        # Flat parts of the weights are what FSDP, DeepSpeed and Megatron give each rank's optimizer.
        sharded=all(weight.dim() < 2 for weight in weights) or any(hasattr(one, "_local_tensor") for one in weights),
        weights_before=digests.of_weights(optimizer),
        rounded="" if recorder.update else digests.tried(lambda: digests.rounded_to(optimizer), ""),
        state_before=digests.of_state(optimizer),
        random_before=digests.of_random_numbers(),
        rates=[float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
    )


@quietly
def end_step(recorder: UpdateRecorder, optimizer: object, found: Dict[str, Any]) -> None:
    """Record the update that a step has made."""
    if not recorder.losses and not any(found["rates"]):
        return  # torch.distributed.checkpoint makes an empty optimizer's state by a step that changes nothing
    recorder.update += 1
    weights = digests.of_weights(optimizer)
    backwards = len(recorder.losses)
    recorder.write(
        "update",
        # A loader may be ahead by a batch, and one that skips after a restart delivers what no loss is computed of.
        samples=recorder.batches[-backwards:] if backwards else recorder.batches,
        losses=[float(loss) for loss in recorder.losses],
        divided=recorder.divided,
        scale=recorder.scale,
        with_gradient=sum(weight.grad is not None for weight in digests.weights_of(optimizer)),
        kept=recorder.kept,
        evaluating=recorder.is_evaluating,
        weights=weights,
        state=digests.of_state(optimizer),
        **found,
    )
    recorder.weights = weights
    recorder.batches, recorder.losses, recorder.evaluated = [], [], False
    recorder.divided, recorder.watched_norm = False, None
    recorder.kept = recorder.is_evaluating = recorder.is_scaled = False
    recorder.record_imports()


@quietly
def saves(recorder: UpdateRecorder, path: Optional[str], content: object) -> None:
    """Record the digests of what is about to be saved, by key; of its tensors alone beside those of the weights."""
    inside = content if isinstance(content, dict) and len(content) <= _MOST_KEYS else {"": content}
    content, tensors = digests.tried(lambda: digests.of_saved(inside), ({}, {}))
    recorder.write("saves", path=path, content=content, tensors=tensors, weights=recorder.weights)


@quietly
def saved(recorder: UpdateRecorder, path: Optional[str]) -> None:
    """Record that a save is over."""
    recorder.write("saved", path=path)


keep = quietly(UpdateRecorder.keep)
