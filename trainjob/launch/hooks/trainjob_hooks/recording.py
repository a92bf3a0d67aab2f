"""Records what a script does, for `trainjob verify` and `rehearse`.

Per weight update: digests of the samples, the losses, the learning rates, and digests of weights, optimizer state and
random numbers; digests of what it saves; and when it evaluates. Samples are what a DataLoader delivers, or without one
what the outermost module's forward gets. It changes no number: it draws nothing and only reads. Where
`verify` asks for it, the process waits at a moment of its training until it is interrupted there.

records/updates.py names the files and fields.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Dict, Optional

from . import events, is_of_handler
from .recorder import UpdateRecorder, at_work


def _path_of(target: object) -> Optional[str]:
    if isinstance(target, (str, bytes)) or hasattr(target, "__fspath__"):
        return os.path.abspath(os.fsdecode(target))
    name = getattr(target, "name", None)
    return os.path.abspath(name) if isinstance(name, str) else None


class _Slow:
    """A file in which the process waits, once, when the first bytes have been written: a save that takes long."""

    def __init__(self, stream: Any, recorder: UpdateRecorder) -> None:
        self._stream = stream
        self._recorder = recorder

    def write(self, data: object) -> int:
        written: int = self._stream.write(data)
        if self._recorder.waits("save"):
            self._stream.flush()
            self._recorder.wait()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _record_saves(module: object, name: str, keyword: str) -> None:
    """Record the calls of a function that saves, whose second argument is `keyword`: the file."""
    save = getattr(module, name)

    @functools.wraps(save)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        recorder = at_work()
        target = args[1] if len(args) > 1 else kwargs.get(keyword)
        if recorder is None or not recorder.is_here() or recorder.depth:
            return save(*args, **kwargs)
        path = _path_of(target)
        events.saves(path, args[0] if args else None)
        if path is not None and recorder.waits("save"):
            events.keep(path)
        recorder.depth += 1
        try:
            if not recorder.waits("save"):
                answer = save(*args, **kwargs)
            elif name == "save" and len(args) > 1 and isinstance(path, str) and not hasattr(target, "write"):
                # As torch does: the file is emptied first, then written piece by piece.
                with open(path, "wb") as stream:
                    answer = save(args[0], _Slow(stream, recorder), *args[2:], **kwargs)
            else:
                answer = save(*args, **kwargs)
                recorder.wait()
        finally:
            recorder.depth -= 1
        events.saved(path)
        return answer

    setattr(module, name, recorded)


def _note_calls(
    owner: object, name: str, before: Callable[[object], None], after: Callable[[], object] = lambda: None
) -> None:
    """Have `before` look at the object before each call of a method, and call `after` when it is over."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def recorded(self: object, *args: Any, **kwargs: Any) -> Any:
        before(self)
        answer = method(self, *args, **kwargs)
        after()
        return answer

    setattr(owner, name, recorded)


def _in_loader(module: Any) -> None:
    iterate, following = module.DataLoader.__iter__, module._BaseDataLoaderIter.__next__

    @functools.wraps(iterate)
    def recorded_iterate(self: object) -> Any:
        iterator = iterate(self)
        events.began_pass(self, iterator)
        return iterator

    @functools.wraps(following)
    def recorded_following(self: object) -> Any:
        try:
            batch = following(self)
        except StopIteration:
            events.ended_pass()
            raise
        events.record_batch(self, batch)
        recorder = at_work()
        if recorder is not None and recorder.evaluated and recorder.waits("evaluation"):
            recorder.wait()
        return batch

    module.DataLoader.__iter__ = recorded_iterate
    module._BaseDataLoaderIter.__next__ = recorded_following


def _record_steps(optimizer: Any) -> None:
    kind = type(optimizer)
    step = kind.step
    if getattr(step, "_trainjob_records", False):
        return

    @functools.wraps(step)
    def recorded(self: object, *args: Any, **kwargs: Any) -> Any:
        recorder = at_work()
        if recorder is None or recorder.depth or not recorder.is_here():
            return step(self, *args, **kwargs)
        found: Dict[str, Any] = {}
        events.begin_step(self, found)
        recorder.depth += 1
        try:
            answer = step(self, *args, **kwargs)
        finally:
            recorder.depth -= 1
        events.end_step(self, found)
        if recorder.waits("update"):
            recorder.wait()
        return answer

    recorded._trainjob_records = True  # type: ignore[attr-defined] # a mark of ours
    kind.step = recorded


def _in_modules(module: Any) -> None:
    call = module.Module.__call__
    # A compiler follows Python into what it calls, and has to find nothing of ours there.
    is_compiling = getattr(getattr(sys.modules["torch"], "compiler", None), "is_compiling", lambda: False)

    @functools.wraps(call)
    def recorded(self: object, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return call(self, *args, **kwargs)
        recorder = at_work()
        if recorder is None or recorder.is_in_model or not sys.modules["torch"].is_grad_enabled():
            return call(self, *args, **kwargs)
        events.calls_model(self, [args, kwargs])
        recorder.is_in_model = True
        try:
            return call(self, *args, **kwargs)
        finally:
            recorder.is_in_model = False

    module.Module.__call__ = recorded


def _in_clipping(module: object) -> None:
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _before(module, name, lambda *_args, **_kwargs: events.clips())


def _before(owner: object, name: str, note: Callable[..., None]) -> None:
    """Call `note` with the arguments of each call of a function, before it."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        note(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, recorded)


def _in_parallel(module: Any) -> None:
    begin = module.DistributedDataParallel.__init__

    @functools.wraps(begin)
    def recorded(self: object, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        events.wraps_model(self)

    module.DistributedDataParallel.__init__ = recorded


def _in_group(module: Any) -> None:
    _before(module, "all_reduce", lambda *args, **kwargs: events.reduces((*args, kwargs.get("tensor"))[0]))
    begin = module.init_process_group

    @functools.wraps(begin)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        size, rank, *_ = (*args[3:5], None, None)
        events.joins(kwargs.get("rank", rank), kwargs.get("world_size", size))
        return begin(*args, **kwargs)

    module.init_process_group = recorded


def _in_scaler(module: Any) -> None:
    scale = module.GradScaler.scale

    @functools.wraps(scale)
    def recorded(self: object, outputs: object) -> Any:
        scaled = scale(self, outputs)
        events.scaled(outputs, scaled)
        return scaled

    module.GradScaler.scale = recorded
    _before(module.GradScaler, "unscale_", lambda *_args: events.unscaled())
    _note_calls(module.GradScaler, "step", events.scales)


def _in_torch(_module: object) -> None:
    recorder = at_work()
    if recorder is not None and recorder.is_here():
        recorder.write("starts", local_rank=os.environ.get("LOCAL_RANK"), node=os.environ.get("SLURM_NODEID"))
        if recorder.waits("start"):
            recorder.wait()


_WRAPPED: Dict[str, Callable[[Any], None]] = {
    "torch": _in_torch,
    "torch.nn.modules.module": _in_modules,
    "torch.nn.utils.clip_grad": _in_clipping,
    "torch.nn.parallel.distributed": _in_parallel,
    "torch._tensor": lambda module: _note_calls(module.Tensor, "backward", events.record_loss, events.went_back),
    "torch.serialization": lambda module: _record_saves(module, "save", "f"),
    "torch.utils.data.dataloader": _in_loader,
    "torch.optim.optimizer": lambda module: _note_calls(module.Optimizer, "__init__", _record_steps),
    "torch.distributed.distributed_c10d": _in_group,
    "torch.amp.grad_scaler": _in_scaler,  # torch 2.3 and later
    "torch.cuda.amp.grad_scaler": _in_scaler,
    "safetensors.torch": lambda module: _record_saves(module, "save_file", "filename"),
}


def act(name: str, module: object) -> None:
    """Wrap what is recorded of a module that has been loaded."""
    try:
        _WRAPPED[name](module)
    except AttributeError as error:
        if is_of_handler(error):
            raise
        recorder = at_work()
        if recorder is not None:
            recorder.write("blind", why="%s: %s" % (name, error))
