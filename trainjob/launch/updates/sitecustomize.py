"""Records what the script does that this Python runs: `trainjob verify` and `rehearse` put this folder on PYTHONPATH.

Per weight update: digests of the samples, the losses, the learning rates, and digests of weights, optimizer state and
random numbers; and when the script saves and evaluates. It changes no number: it draws nothing and only reads. Where
`verify` asks for it, the process waits at a moment of its training until it is interrupted there.

Python 3.8, the standard library, torch 1.10 and later. records/updates.py names the files and fields.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.abc
import importlib.util
import json
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

_MOST_ELEMENTS = 4096  # of a tensor of weights or optimizer state; a real change touches nearly all of them
_MOST_BYTES = 1 << 20  # of one sample's tensor
_MOST_SAMPLES = 1024
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
        except ValueError:
            before = None  # in another thread, which sees no signal: the time limit ends the wait
        self.write("waits", pid=os.getpid(), handles=handled)
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
        self.write("goes-on")


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
        except Exception as error:  # noqa: BLE001 - whatever it is, the script has to train on
            recorder.failed = True
            try:  # noqa: SIM105 - contextlib would be one more module
                recorder.write("blind", why="%s: %s" % (type(error).__name__, error))
            except Exception:  # noqa: BLE001, S110 - a full disk, which the script will meet as well
                pass

    return recorded


# -- digests -----------------------------------------------------------------------------------------------------------


def _values(tensor: Any, most: Optional[int] = None) -> bytes:
    """Return the bytes of a tensor's values, of some of them if it has more than `most`."""
    import ctypes

    torch = sys.modules["torch"]
    with torch.no_grad():
        tensor = getattr(tensor, "_local_tensor", tensor).detach()
        if tensor.device.type == "meta" or tensor.layout != torch.strided:
            return repr(tuple(tensor.shape)).encode()
        tensor = tensor.reshape(-1)
        if most is not None and tensor.numel() > most:
            tensor = tensor[:: tensor.numel() // most]
        tensor = tensor.cpu().contiguous()
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _feed(digest: Any, value: Any) -> None:
    if _is_tensor(value):
        digest.update(_values(value, _MOST_BYTES))
    elif isinstance(value, dict) or hasattr(value, "items"):
        for key in value:
            digest.update(str(key).encode())
            _feed(digest, value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            _feed(digest, one)
    elif hasattr(value, "tobytes"):
        digest.update(value.tobytes())
    elif isinstance(value, (int, float, str, bytes, bool, type(None))):
        digest.update(repr(value).encode())


def _hexadecimal(digest: Any) -> str:
    return str(digest.hexdigest())[:12]


def _leaves(value: Any) -> Iterator[Any]:
    if _is_tensor(value):
        yield value
    elif isinstance(value, dict) or hasattr(value, "items"):
        for key in value:
            yield from _leaves(value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)


def _samples(batch: Any) -> List[str]:
    """Return the digest of each sample of a batch; one of all where its tensors have no first dimension in common."""
    tensors = list(_leaves(batch))
    counts = {int(tensor.shape[0]) if tensor.dim() else -1 for tensor in tensors}
    count = counts.pop() if len(counts) == 1 else 0
    if not 0 < count <= _MOST_SAMPLES:
        digest = hashlib.blake2b()
        _feed(digest, batch)
        return [_hexadecimal(digest)]
    digests = [hashlib.blake2b() for _ in range(count)]
    for tensor in tensors:
        for row, digest in enumerate(digests):
            digest.update(_values(tensor[row], _MOST_BYTES))
    return [_hexadecimal(digest) for digest in digests]


def _weights(optimizer: Any) -> str:
    digest = hashlib.blake2b()
    for group in optimizer.param_groups:
        for weight in group["params"]:
            digest.update(_values(weight, _MOST_ELEMENTS))
    return _hexadecimal(digest)


def _gradients(optimizer: Any) -> Tuple[str, float]:
    digest = hashlib.blake2b()
    norm = 0.0
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None and weight.grad.layout == sys.modules["torch"].strided:
                digest.update(_values(weight.grad, _MOST_ELEMENTS))
                gradient = getattr(weight.grad, "_local_tensor", weight.grad)
                norm += float(gradient.detach().double().pow(2).sum())
    return _hexadecimal(digest), norm**0.5


def _state(optimizer: Any) -> str:
    """Return the digest of an optimizer's state; "" if it has none."""
    digest = hashlib.blake2b()
    is_empty = True
    for group in optimizer.param_groups:
        for weight in group["params"]:
            state = optimizer.state.get(weight) or {}
            for name in sorted(state, key=str):
                is_empty = False
                digest.update(str(name).encode())
                if _is_tensor(state[name]):
                    digest.update(_values(state[name], _MOST_ELEMENTS))
                else:
                    _feed(digest, state[name])
    return "" if is_empty else _hexadecimal(digest)


def _random() -> str:
    """Return the digest of the states of torch's, Python's and numpy's random numbers."""
    import random

    digest = hashlib.blake2b()
    digest.update(_values(sys.modules["torch"].get_rng_state()))
    digest.update(repr(random.getstate()).encode())
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        digest.update(numpy.random.get_state()[1].tobytes())
    return _hexadecimal(digest)


# -- what the script does ----------------------------------------------------------------------------------------------


@_quietly
def _saw_batch(recorder: _Recorder, iterator: Any, batch: Any) -> None:
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
        )


@_quietly
def _ended_pass(recorder: _Recorder) -> None:
    if sys.modules["torch"].is_grad_enabled():
        recorder.write("pass-ended", number=recorder.passes)


@_quietly
def _saw_loss(recorder: _Recorder, loss: Any) -> None:
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
def _meets(recorder: _Recorder, rank: Optional[int], size: Optional[int]) -> None:
    if recorder.rank_at_start is not None:
        given = [
            os.environ.get(name) if one in (None, -1) else one for one, name in ((rank, "RANK"), (size, "WORLD_SIZE"))
        ]
        recorder.write("meets", rank=given[0], size=given[1], rank_at_start=recorder.rank_at_start)


@_quietly
def _scales(recorder: _Recorder, scaler: Any) -> None:
    scale = getattr(scaler, "_scale", None)
    recorder.scale = None if scale is None else float(scale)


@_quietly
def _begin_step(recorder: _Recorder, optimizer: Any, found: Dict[str, Any]) -> None:
    gradients, norm = _gradients(optimizer)
    norm_before, norm_now = recorder.watched_norm, _norm_of_watched(recorder)
    if norm_before is not None and norm_now is not None and norm_now < 0.99 * norm_before:
        recorder.divided = True
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
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
    backwards = len(recorder.losses)
    recorder.write(
        "update",
        # A loader may be ahead by a batch, and one that skips after a restart delivers what no loss is computed of.
        samples=recorder.batches[-backwards:] if backwards else recorder.batches,
        losses=[float(loss) for loss in recorder.losses],
        divided=recorder.divided,
        scale=recorder.scale,
        weights=_weights(optimizer),
        state=_state(optimizer),
        **found,
    )
    recorder.batches, recorder.losses, recorder.evaluated = [], [], False
    recorder.divided, recorder.watched_norm = False, None


@_quietly
def _saves(recorder: _Recorder, event: str, path: Optional[str]) -> None:
    recorder.write(event, path=path)


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


def _recording_save(save: Any, target_of: Callable[[Any, Any], Any]) -> Any:
    @functools.wraps(save)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        recorder = _recorder
        target = target_of(args, kwargs)
        if recorder is None or not recorder.is_here() or recorder.depth:
            return save(*args, **kwargs)
        path = _path_of(target)
        _saves("saves", path)
        recorder.depth += 1
        try:
            if not recorder.waits("save"):
                answer = save(*args, **kwargs)
            elif save.__name__ == "save" and len(args) > 1 and isinstance(path, str) and not hasattr(target, "write"):
                # As torch does: the file is emptied first, then written piece by piece.
                with open(path, "wb") as stream:
                    answer = save(args[0], _Slow(stream, recorder), *args[2:], **kwargs)
            else:
                answer = save(*args, **kwargs)
                recorder.wait()
        finally:
            recorder.depth -= 1
        _saves("saved", path)
        return answer

    return recorded


def _of_torch_save(args: Any, kwargs: Any) -> Any:
    return args[1] if len(args) > 1 else kwargs.get("f")


def _of_safetensors(args: Any, kwargs: Any) -> Any:
    return args[1] if len(args) > 1 else kwargs.get("filename")


def _in_serialization(module: Any) -> None:
    module.save = _recording_save(module.save, _of_torch_save)


def _in_safetensors(module: Any) -> None:
    module.save_file = _recording_save(module.save_file, _of_safetensors)


def _in_tensor(module: Any) -> None:
    backward = module.Tensor.backward

    @functools.wraps(backward)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        _saw_loss(self)
        backward(self, *args, **kwargs)
        _went_back()

    module.Tensor.backward = recorded


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
        _saw_batch(self, batch)
        recorder = _recorder
        if recorder is not None and recorder.evaluated and recorder.waits("evaluation"):
            recorder.wait()
        return batch

    module.DataLoader.__iter__ = recorded_iterate
    module._BaseDataLoaderIter.__next__ = recorded_following


def _in_optimizer(module: Any) -> None:
    begin = module.Optimizer.__init__

    @functools.wraps(begin)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        _record_steps(type(self))
        return begin(self, *args, **kwargs)

    module.Optimizer.__init__ = recorded


def _record_steps(kind: Any) -> None:
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


def _in_group(module: Any) -> None:
    begin = module.init_process_group

    @functools.wraps(begin)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        size, rank, *_ = (*args[3:5], None, None)
        _meets(kwargs.get("rank", rank), kwargs.get("world_size", size))
        return begin(*args, **kwargs)

    module.init_process_group = recorded


def _in_scaler(module: Any) -> None:
    scale, step = module.GradScaler.scale, module.GradScaler.step

    @functools.wraps(scale)
    def recorded_scale(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if _is_tensor(scaled) and scaled is not outputs:
            scaled._trainjob_unscaled = outputs
        return scaled

    @functools.wraps(step)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        _scales(self)
        return step(self, *args, **kwargs)

    module.GradScaler.scale, module.GradScaler.step = recorded_scale, recorded


def _in_torch(_module: Any) -> None:
    if _recorder is not None and _recorder.is_here():
        _recorder.write("starts", local_rank=os.environ.get("LOCAL_RANK"), node=os.environ.get("SLURM_NODEID"))
        if _recorder.waits("start"):
            _recorder.wait()


_WRAPPED = {
    "torch": _in_torch,
    "torch._tensor": _in_tensor,
    "torch.serialization": _in_serialization,
    "torch.utils.data.dataloader": _in_loader,
    "torch.optim.optimizer": _in_optimizer,
    "torch.distributed.distributed_c10d": _in_group,
    "torch.amp.grad_scaler": _in_scaler,  # torch 2.3 and later
    "torch.cuda.amp.grad_scaler": _in_scaler,
    "safetensors.torch": _in_safetensors,
}


class _Loader(importlib.abc.Loader):
    def __init__(self, name: str, loader: Any) -> None:
        self._name = name
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        try:
            _WRAPPED[self._name](module)
        except AttributeError as error:
            if _recorder is not None:
                _recorder.write("blind", why="%s: %s" % (self._name, error))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of `_WRAPPED` as everybody does, and wraps what is recorded once they are loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _WRAPPED:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(name, spec.loader)
                return spec
        return None


def _next_one() -> None:
    """Import the sitecustomize that this one hides, as if this one were not there."""
    mine = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != mine]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        # Python reports what the hidden one could not import, as it does without this one.
        if "sitecustomize" not in str(sys.exc_info()[1]):
            raise
        sys.modules["sitecustomize"] = this


if os.environ.get("TRAINJOB_RECORD_UPDATES") and os.environ.get("TRAINJOB_RUN_DIR") and _recorder is None:
    _recorder = _Recorder(os.environ["TRAINJOB_RUN_DIR"])
    sys.meta_path.insert(0, _Finder())
if getattr(sys.modules.get("sitecustomize"), "__file__", None) == __file__:
    _next_one()
    # A finder that the next one put in front asks no others.
    sys.meta_path.sort(key=lambda finder: not isinstance(finder, _Finder))
