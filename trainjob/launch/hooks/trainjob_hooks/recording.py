"""Records what a script does, for `trainjob verify` and `rehearse`.

Per weight update: digests of the samples, the losses, the learning rates, and digests of weights, optimizer state and
random numbers; digests of what it saves; and when it evaluates. Samples are what a DataLoader delivers, or without one
what the outermost module's forward gets. It changes no number: it draws nothing and only reads. Where
`verify` asks for it, the process waits at a moment of its training until it is interrupted there.

records/updates.py names the files and fields.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from . import is_of_handler

_MOST_ELEMENTS = 4096  # of a tensor of weights or optimizer state; a real change touches nearly all of them
_MOST_BYTES = 1 << 20  # of one sample's tensor
_MOST_SAMPLES = 1024
_MOST_KEYS = 200  # of a saved state whose values have a digest each
_MOST_REDUCED = 64  # calls of all_reduce that are looked at
_WAIT_S = 120.0


class _Recorder:
    """What this process has done since its last update, and the file to which it goes."""

    def __init__(self, run_dir: str) -> None:
        self.folder = os.path.join(run_dir, "updates")
        self.attempt = int(os.environ.get("TRAINJOB_ATTEMPT") or 1)
        self.pid = os.getpid()
        self.update = 0
        self.batches: List[Tuple[int, int, List[str]]] = []  # since the last update: pass, place in it, samples
        self.losses: List[Any] = []
        self.divided = False  # a loss since the last update, or the gradients after the last backward
        self.watched: Any = None  # a weight, and the norm of its gradient after the last backward
        self.watched_norm: Optional[float] = None
        self.rank_at_start = os.environ.get("RANK")
        self.scale: Optional[float] = None
        self.passes = 0  # over loaders, while gradients are recorded
        self.depth = 0  # of optimizers that call others, and of saves that call others
        self.evaluated = False
        self.calls = 0  # of a model's forward, without a loader
        self.is_in_model = False
        self.is_evaluating = False  # a model has trained in evaluation mode since the last update
        self.kept = False  # gradients of the last update were there when the first loss after it went back
        self.steppers: Set[int] = set()  # the optimizers that have made a step
        self.weights = ""  # the digest that the last update left
        self.is_scaled = False  # the gradients since the last update
        self.models: List[Any] = []  # references to those in DistributedDataParallel
        self.reduced = 0  # calls of all_reduce
        self.noted: Set[str] = set()
        self.failed = False
        self.wait_at = self._wait_at()

    def _wait_at(self) -> Optional[Dict[str, Any]]:
        try:
            folder = os.environ["TRAINJOB_RECORD_UPDATES"]
            with open(os.path.join(folder, "wait-%d.json" % self.attempt)) as stream:
                asked: Dict[str, Any] = json.load(stream)
                return asked
        except (OSError, ValueError):
            return None

    @property
    def rank(self) -> int:
        return int(os.environ.get("RANK") or 0)

    def is_here(self) -> bool:
        return os.getpid() == self.pid

    def write(self, event: str, **fields: Any) -> None:
        line = {"attempt": self.attempt, "event": event, "update": self.update}
        line.update(fields)
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, "rank-%04d.jsonl" % self.rank)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (json.dumps(line, separators=(",", ":")) + "\n").encode())
        finally:
            os.close(descriptor)

    def note(self, event: str, **fields: Any) -> None:
        """Write an event that is told once."""
        if event not in self.noted:
            self.noted.add(event)
            self.write(event, **fields)

    def keep(self, path: str) -> None:
        """Keep the file that a save is about to write over: `verify` puts it back when the save has been killed."""
        import shutil

        kept = os.path.join(os.environ["TRAINJOB_RECORD_UPDATES"], "kept-%d" % self.attempt)
        had = os.path.isfile(path)
        if had:
            shutil.copy2(path, kept)
        with open(kept + ".json", "w") as stream:
            json.dump({"path": path, "kept": kept if had else None}, stream)

    def waits(self, moment: str) -> bool:
        """Return whether this is the moment at which `verify` interrupts this attempt."""
        asked = self.wait_at
        if asked is None or self.rank != 0 or not self.is_here():
            return False
        return bool(asked["moment"] == moment and self.update >= asked["after"])

    def wait(self) -> None:
        """Stay here until a signal that the script handles has arrived, or one that ends this process."""
        import select
        import signal

        self.wait_at = None
        names = ("SIGUSR1", "SIGTERM")
        handled = [name[3:] for name in names if callable(signal.getsignal(getattr(signal, name)))]
        ours = {int(getattr(signal, name)) for name in names}
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        try:
            before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        except ValueError as error:
            if is_of_handler(error):
                raise
            before = None  # in another thread, which sees no signal: the time limit ends the wait
        self.write("paused", pid=os.getpid(), handles=handled)
        try:
            deadline = time.monotonic() + _WAIT_S
            while time.monotonic() < deadline:
                if select.select([reader], [], [], 0.05)[0] and ours.intersection(os.read(reader, 512)):
                    break
        finally:
            if before is not None:
                signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)
        self.write("resumed")


_recorder: Optional[_Recorder] = None


def _quietly(method: Callable[..., None]) -> Callable[..., None]:
    """Return `method` so that no fault in it reaches the script; the first one is written down."""

    @functools.wraps(method)
    def recorded(*args: Any) -> None:
        recorder = _recorder
        if recorder is None or recorder.failed or not recorder.is_here():
            return
        try:
            method(recorder, *args)
        except Exception as error:  # whatever it is, the script has to train on
            if is_of_handler(error):
                raise
            recorder.failed = True
            try:
                recorder.write("blind", why="%s: %s" % (type(error).__name__, error))
            except Exception as second:  # a full disk, which the script will meet as well
                if is_of_handler(second):
                    raise

    return recorded


# -- digests -----------------------------------------------------------------------------------------------------------


def _values(tensor: Any, most: int) -> bytes:
    """Return the bytes of a tensor's values, of some of them if it has more than `most`."""
    import ctypes

    torch = sys.modules["torch"]
    with torch.no_grad():
        tensor = getattr(tensor, "_local_tensor", tensor).detach()
        if tensor.device.type == "meta" or tensor.layout != torch.strided:
            return repr(tuple(tensor.shape)).encode()
        tensor = tensor.reshape(-1)
        if tensor.numel() > most:
            tensor = tensor[:: tensor.numel() // most]
        tensor = tensor.cpu().contiguous()
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _parts(value: Any) -> Iterator[Any]:
    """Yield what a value is made of: tensors and plain values, and the keys of mappings."""
    if isinstance(value, dict) or hasattr(value, "items"):
        for key in value:
            yield str(key)
            yield from _parts(value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _parts(one)
    else:
        yield value


def _digest(value: Any, most: int = _MOST_BYTES) -> str:
    """Return the digest of all parts of a value, of tensors with more than `most` elements by some of them."""
    digest = hashlib.blake2b()
    for part in _parts(value):
        if _is_tensor(part):
            digest.update(_values(part, most))
        elif hasattr(part, "tobytes"):
            digest.update(part.tobytes())
        elif isinstance(part, (int, float, str, bytes, bool, type(None))):
            digest.update(repr(part).encode())
    return str(digest.hexdigest())[:12]


def _tried(read: Callable[[], Any], instead: Any) -> Any:
    """Return what `read` does, or `instead` where a value of the script's can't be read as ours are."""
    try:
        return read()
    except Exception as error:  # it may be of any class, and the rest is recorded all the same
        if is_of_handler(error):
            raise
        return instead


def _samples(batch: Any) -> List[str]:
    """Return the digest of each sample of a batch; one of all where its tensors have no first dimension in common."""
    tensors = [part for part in _parts(batch) if _is_tensor(part)]
    counts = {int(tensor.shape[0]) if tensor.dim() else -1 for tensor in tensors}
    count = counts.pop() if len(counts) == 1 else 0
    if not 0 < count <= _MOST_SAMPLES:
        return [_digest(batch)]
    return [_digest([tensor[row] for tensor in tensors]) for row in range(count)]


def _weights_of(optimizer: Any) -> List[Any]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _weights(optimizer: Any) -> str:
    return _digest(_weights_of(optimizer), _MOST_ELEMENTS)


def _gradients(optimizer: Any) -> Tuple[str, float]:
    """Return the digest of the gradients, and their norm."""
    every = [weight.grad for weight in _weights_of(optimizer) if weight.grad is not None]
    dense = [gradient for gradient in every if gradient.layout == sys.modules["torch"].strided]
    local = [getattr(gradient, "_local_tensor", gradient).detach() for gradient in dense]
    norm = sum(float(gradient.double().pow(2).sum()) for gradient in local)
    return _digest(dense, _MOST_ELEMENTS), float(norm**0.5)


def _state(optimizer: Any) -> str:
    """Return the digest of an optimizer's state; "" if it has none."""
    states = [optimizer.state.get(weight) or {} for weight in _weights_of(optimizer)]
    named = [{name: state[name] for name in sorted(state, key=str)} for state in states if state]
    return _digest(named, _MOST_ELEMENTS) if named else ""


def _random() -> str:
    """Return the digest of the states of torch's, Python's and numpy's random numbers."""
    import random

    states = [sys.modules["torch"].get_rng_state(), repr(random.getstate())]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        states.append(numpy.random.get_state()[1])
    return _digest(states)


# -- what the script does ----------------------------------------------------------------------------------------------


@_quietly
def _record_batch(recorder: _Recorder, iterator: Any, batch: Any) -> None:
    number = iterator._trainjob_batches = getattr(iterator, "_trainjob_batches", -1) + 1
    if sys.modules["torch"].is_grad_enabled():
        recorder.batches.append((getattr(iterator, "_trainjob_pass", 0), number, _samples(batch)))
    elif not recorder.evaluated:
        recorder.evaluated = True
        recorder.write("evaluates")


@_quietly
def _began_pass(recorder: _Recorder, loader: Any, iterator: Any) -> None:
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
            local_rank=int(os.environ.get("LOCAL_RANK") or 0),
            workers=getattr(loader, "num_workers", 0),
        )
    else:
        _pads(loader)


@_quietly
def _pads(recorder: _Recorder, loader: Any) -> None:
    """Note a sampler that gives ranks the same held-out samples to fill up their shares."""
    sampler = getattr(loader, "sampler", None)
    taken = getattr(sampler, "total_size", None)
    data: Any = getattr(sampler, "dataset", None)
    if isinstance(taken, int) and hasattr(data, "__len__") and taken > len(data):
        recorder.note("pads", samples=len(data), taken=taken)


@_quietly
def _ended_pass(recorder: _Recorder) -> None:
    if sys.modules["torch"].is_grad_enabled():
        recorder.write("pass-ended", number=recorder.passes)


@_quietly
def _calls_model(recorder: _Recorder, model: Any, given: Any) -> None:
    """Look at the outermost call of a module that trains."""
    if not any(weight.requires_grad for weight in model.parameters()):
        return
    if not recorder.passes:
        recorder.calls += 1
        recorder.batches.append((0, recorder.calls - 1, _tried(lambda: _samples(given), [])))
    if not model.training and any(_depends_on_mode(one) for one in model.modules()):
        recorder.is_evaluating = True


def _depends_on_mode(module: Any) -> bool:
    name = type(module).__name__
    return "BatchNorm" in name or ("Dropout" in name and getattr(module, "p", 0) > 0)


@_quietly
def _reduces(recorder: _Recorder, tensor: Any) -> None:
    recorder.reduced += 1
    if recorder.reduced > _MOST_REDUCED or not _is_tensor(tensor):
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


@_quietly
def _clips(recorder: _Recorder) -> None:
    if recorder.is_scaled:
        recorder.note("clips-scaled")


@_quietly
def _record_loss(recorder: _Recorder, loss: Any) -> None:
    if not recorder.losses and recorder.update and len(recorder.steppers) == 1:
        recorder.kept = bool(_norm_of_watched(recorder))
    if loss.numel() == 1:
        recorder.losses.append(loss.detach().clone())
        recorder.divided = recorder.divided or _is_divided(getattr(loss, "_trainjob_unscaled", loss))


def _is_divided(loss: Any) -> bool:
    """Return whether a loss, or a term of its sum, was divided or multiplied last."""
    last = [loss.grad_fn] if loss.grad_fn is not None else []
    before = [node for one in last for node, _ in one.next_functions if node is not None]
    return any(type(node).__name__.startswith(("Div", "Mul")) for node in last + before)


def _norm_of_watched(recorder: _Recorder) -> Optional[float]:
    gradient = getattr(recorder.watched, "grad", None)
    return None if gradient is None else float(gradient.detach().float().norm())


@_quietly
def _went_back(recorder: _Recorder) -> None:
    if len(recorder.losses) > 1:
        recorder.watched_norm = _norm_of_watched(recorder)


@_quietly
def _joins(recorder: _Recorder, rank: Optional[int], size: Optional[int]) -> None:
    if recorder.rank_at_start is not None:
        given = [
            os.environ.get(name) if one in (None, -1) else one for one, name in ((rank, "RANK"), (size, "WORLD_SIZE"))
        ]
        recorder.write("joins", rank=given[0], size=given[1], rank_at_start=recorder.rank_at_start)


@_quietly
def _scales(recorder: _Recorder, scaler: Any) -> None:
    scale = getattr(scaler, "_scale", None)
    recorder.scale = None if scale is None else float(scale)


@_quietly
def _begin_step(recorder: _Recorder, optimizer: Any, found: Dict[str, Any]) -> None:
    gradients, norm = _gradients(optimizer)
    norm_before, norm_now = recorder.watched_norm, _norm_of_watched(recorder)
    # A gradient scaler has made them smaller by its scale, which is no division.
    if norm_before is not None and norm_now is not None and norm_now * (recorder.scale or 1.0) < 0.99 * norm_before:
        recorder.divided = True
    weights = _weights_of(optimizer)
    recorder.steppers.add(id(optimizer))
    recorder.watched = next((weight for weight in weights if weight.grad is not None), None)
    found.update(
        gradients=gradients,
        norm=norm,
        # Flat parts of the weights are what FSDP, DeepSpeed and Megatron give each rank's optimizer.
        sharded=all(weight.dim() < 2 for weight in weights) or any(hasattr(one, "_local_tensor") for one in weights),
        weights_before=_weights(optimizer),
        state_before=_state(optimizer),
        random_before=_random(),
        rates=[float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
    )


@_quietly
def _end_step(recorder: _Recorder, optimizer: Any, found: Dict[str, Any]) -> None:
    if not recorder.losses and not any(found["rates"]):
        return  # torch.distributed.checkpoint makes an empty optimizer's state by a step that changes nothing
    recorder.update += 1
    weights = _weights(optimizer)
    backwards = len(recorder.losses)
    recorder.write(
        "update",
        # A loader may be ahead by a batch, and one that skips after a restart delivers what no loss is computed of.
        samples=recorder.batches[-backwards:] if backwards else recorder.batches,
        losses=[float(loss) for loss in recorder.losses],
        divided=recorder.divided,
        scale=recorder.scale,
        with_gradient=sum(weight.grad is not None for weight in _weights_of(optimizer)),
        kept=recorder.kept,
        evaluating=recorder.is_evaluating,
        weights=weights,
        state=_state(optimizer),
        **found,
    )
    recorder.weights = weights
    recorder.batches, recorder.losses, recorder.evaluated = [], [], False
    recorder.divided, recorder.watched_norm = False, None
    recorder.kept = recorder.is_evaluating = recorder.is_scaled = False


@_quietly
def _saves(recorder: _Recorder, path: Optional[str], content: Any) -> None:
    """Record the digests of what is about to be saved, by key; of its tensors alone beside those of the weights."""
    inside = content if isinstance(content, dict) and len(content) <= _MOST_KEYS else {"": content}
    content, tensors = _tried(lambda: _digests(inside), ({}, {}))
    recorder.write("saves", path=path, content=content, tensors=tensors, weights=recorder.weights)


def _digests(inside: Dict[Any, Any]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Return the digest of each value, and of the tensors of those that have several."""
    tensors = {str(key): [part for part in _parts(value) if _is_tensor(part)] for key, value in inside.items()}
    # Counts stay as they are: they have to grow with the updates, also where no other save is at the same one.
    return (
        {str(key): value if type(value) is int else _digest(value, _MOST_ELEMENTS) for key, value in inside.items()},
        {key: _digest(found, _MOST_ELEMENTS) for key, found in tensors.items() if len(found) > 1},
    )


@_quietly
def _saved(recorder: _Recorder, path: Optional[str]) -> None:
    recorder.write("saved", path=path)


@_quietly
def _keep(recorder: _Recorder, path: str) -> None:
    recorder.keep(path)


def _path_of(target: Any) -> Optional[str]:
    if isinstance(target, (str, bytes)) or hasattr(target, "__fspath__"):
        return os.path.abspath(os.fsdecode(target))
    name = getattr(target, "name", None)
    return os.path.abspath(name) if isinstance(name, str) else None


# -- what is wrapped, module by module ---------------------------------------------------------------------------------


class _Slow:
    """A file in which the process waits, once, when the first bytes have been written: a save that takes long."""

    def __init__(self, stream: Any, recorder: _Recorder) -> None:
        self._stream = stream
        self._recorder = recorder

    def write(self, data: Any) -> int:
        written: int = self._stream.write(data)
        if self._recorder.waits("save"):
            self._stream.flush()
            self._recorder.wait()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _record_saves(module: Any, name: str, keyword: str) -> None:
    """Record the calls of a function that saves, whose second argument is `keyword`: the file."""
    save = getattr(module, name)

    @functools.wraps(save)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        recorder = _recorder
        target = args[1] if len(args) > 1 else kwargs.get(keyword)
        if recorder is None or not recorder.is_here() or recorder.depth:
            return save(*args, **kwargs)
        path = _path_of(target)
        _saves(path, args[0] if args else None)
        if path is not None and recorder.waits("save"):
            _keep(path)
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
        _saved(path)
        return answer

    setattr(module, name, recorded)


def _note_calls(
    owner: Any, name: str, before: Callable[[Any], None], after: Callable[[], object] = lambda: None
) -> None:
    """Have `before` look at the object before each call of a method, and call `after` when it is over."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self)
        answer = method(self, *args, **kwargs)
        after()
        return answer

    setattr(owner, name, recorded)


def _in_loader(module: Any) -> None:
    iterate, following = module.DataLoader.__iter__, module._BaseDataLoaderIter.__next__

    @functools.wraps(iterate)
    def recorded_iterate(self: Any) -> Any:
        iterator = iterate(self)
        _began_pass(self, iterator)
        return iterator

    @functools.wraps(following)
    def recorded_following(self: Any) -> Any:
        try:
            batch = following(self)
        except StopIteration:
            _ended_pass()
            raise
        _record_batch(self, batch)
        recorder = _recorder
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
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = _recorder
        if recorder is None or recorder.depth or not recorder.is_here():
            return step(self, *args, **kwargs)
        found: Dict[str, Any] = {}
        _begin_step(self, found)
        recorder.depth += 1
        try:
            answer = step(self, *args, **kwargs)
        finally:
            recorder.depth -= 1
        _end_step(self, found)
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
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return call(self, *args, **kwargs)
        recorder = _recorder
        if recorder is None or recorder.is_in_model or not sys.modules["torch"].is_grad_enabled():
            return call(self, *args, **kwargs)
        _calls_model(self, [args, kwargs])
        recorder.is_in_model = True
        try:
            return call(self, *args, **kwargs)
        finally:
            recorder.is_in_model = False

    module.Module.__call__ = recorded


def _in_clipping(module: Any) -> None:
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _before(module, name, lambda *_args, **_kwargs: _clips())


def _before(owner: Any, name: str, note: Callable[..., None]) -> None:
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
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        if _recorder is not None:
            # One that is kept beyond its script's end takes threads of its group along, and the process aborts.
            _recorder.models.append(weakref.ref(self))

    module.DistributedDataParallel.__init__ = recorded


def _in_group(module: Any) -> None:
    _before(module, "all_reduce", lambda *args, **kwargs: _reduces((*args, kwargs.get("tensor"))[0]))
    begin = module.init_process_group

    @functools.wraps(begin)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        size, rank, *_ = (*args[3:5], None, None)
        _joins(kwargs.get("rank", rank), kwargs.get("world_size", size))
        return begin(*args, **kwargs)

    module.init_process_group = recorded


def _in_scaler(module: Any) -> None:
    scale = module.GradScaler.scale

    @functools.wraps(scale)
    def recorded(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if _is_tensor(scaled) and scaled is not outputs:
            scaled._trainjob_unscaled = outputs
            if _recorder is not None:
                _recorder.is_scaled = True
        return scaled

    def unscaled(_scaler: Any, *_args: Any) -> None:
        if _recorder is not None:
            _recorder.is_scaled = False

    module.GradScaler.scale = recorded
    _before(module.GradScaler, "unscale_", unscaled)
    _note_calls(module.GradScaler, "step", _scales)


def _in_torch(_module: Any) -> None:
    if _recorder is not None and _recorder.is_here():
        _recorder.write("starts", local_rank=os.environ.get("LOCAL_RANK"), node=os.environ.get("SLURM_NODEID"))
        if _recorder.waits("start"):
            _recorder.wait()


_WRAPPED: Dict[str, Callable[[Any], None]] = {
    "torch": _in_torch,
    "torch.nn.modules.module": _in_modules,
    "torch.nn.utils.clip_grad": _in_clipping,
    "torch.nn.parallel.distributed": _in_parallel,
    "torch._tensor": lambda module: _note_calls(module.Tensor, "backward", _record_loss, _went_back),
    "torch.serialization": lambda module: _record_saves(module, "save", "f"),
    "torch.utils.data.dataloader": _in_loader,
    "torch.optim.optimizer": lambda module: _note_calls(module.Optimizer, "__init__", _record_steps),
    "torch.distributed.distributed_c10d": _in_group,
    "torch.amp.grad_scaler": _in_scaler,  # torch 2.3 and later
    "torch.cuda.amp.grad_scaler": _in_scaler,
    "safetensors.torch": lambda module: _record_saves(module, "save_file", "filename"),
}


def begin(run_dir: str) -> None:
    """Record into a run directory from now on."""
    global _recorder  # noqa: PLW0603 - a process has one
    _recorder = _Recorder(run_dir)


def act(name: str, module: Any) -> None:
    """Wrap what is recorded of a module that has been loaded."""
    try:
        _WRAPPED[name](module)
    except AttributeError as error:
        if is_of_handler(error):
            raise
        if _recorder is not None:
            _recorder.write("blind", why="%s: %s" % (name, error))
