"""Digests of what a script trains with: samples, weights, gradients, optimizer state, random numbers, saved states."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Callable, Dict, Iterator, List, Tuple

from . import is_of_handler

_MOST_ELEMENTS = 4096  # of a tensor of weights or optimizer state; a real change touches nearly all of them
_MOST_BYTES = 1 << 20  # of one sample's tensor
_MOST_SAMPLES = 1024


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


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor of torch's."""
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


def _digest(value: object, most: int = _MOST_BYTES) -> str:
    """Return the digest of all parts of a value, of tensors with more than `most` elements by some of them."""
    digest = hashlib.blake2b()
    for part in _parts(value):
        if is_tensor(part):
            digest.update(_values(part, most))
        elif hasattr(part, "tobytes"):
            digest.update(part.tobytes())
        elif isinstance(part, (int, float, str, bytes, bool, type(None))):
            digest.update(repr(part).encode())
    return str(digest.hexdigest())[:12]


def tried(read: Callable[[], object], instead: object) -> Any:
    """Return what `read` does, or `instead` where a value of the script's can't be read as ours are."""
    try:
        return read()
    except Exception as error:  # it may be of any class, and the rest is recorded all the same
        if is_of_handler(error):
            raise
        return instead


def of_samples(batch: object) -> List[str]:
    """Return the digest of each sample of a batch; one of all where its tensors have no first dimension in common."""
    tensors = [part for part in _parts(batch) if is_tensor(part)]
    counts = {int(tensor.shape[0]) if tensor.dim() else -1 for tensor in tensors}
    count = counts.pop() if len(counts) == 1 else 0
    if not 0 < count <= _MOST_SAMPLES:
        return [_digest(batch)]
    return [_digest([tensor[row] for tensor in tensors]) for row in range(count)]


def weights_of(optimizer: Any) -> List[Any]:
    """Return the parameters of an optimizer, in its order."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def of_weights(optimizer: object) -> str:
    """Return the digest of an optimizer's parameters."""
    return _digest(weights_of(optimizer), _MOST_ELEMENTS)


def rounded_to(optimizer: Any) -> str:
    """Return the shorter type whose values an optimizer's matrices have, as after a save by `.half()`; or ""."""
    torch = sys.modules["torch"]
    wide = [getattr(one, "_local_tensor", one).detach() for one in weights_of(optimizer) if one.dim() > 1]
    wide = [one for one in wide if one.dtype in (torch.float32, torch.float64)]
    for name in ("bfloat16", "float16") if wide else ():  # float16 has bfloat16's values, where they are not large
        short = getattr(torch, name)
        if all(torch.equal(one, one.to(short).to(one.dtype)) for one in wide):
            return name
    return ""


def of_gradients(optimizer: object) -> Tuple[str, float]:
    """Return the digest of the gradients, and their norm."""
    every = [weight.grad for weight in weights_of(optimizer) if weight.grad is not None]
    dense = [gradient for gradient in every if gradient.layout == sys.modules["torch"].strided]
    local = [getattr(gradient, "_local_tensor", gradient).detach() for gradient in dense]
    norm = sum(float(gradient.double().pow(2).sum()) for gradient in local)
    return _digest(dense, _MOST_ELEMENTS), float(norm**0.5)


def of_state(optimizer: Any) -> str:
    """Return the digest of an optimizer's state; "" if it has none."""
    states = [optimizer.state.get(weight) or {} for weight in weights_of(optimizer)]
    named = [{name: state[name] for name in sorted(state, key=str)} for state in states if state]
    return _digest(named, _MOST_ELEMENTS) if named else ""


def of_random_numbers() -> str:
    """Return the digests of the states of torch's, Python's and numpy's random numbers, with dots between them."""
    import random

    states = [sys.modules["torch"].get_rng_state(), repr(random.getstate())]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        states.append(numpy.random.get_state())  # its words change only once in 624 draws, its place with each
    return ".".join(map(_digest, states))


def of_saved(inside: Dict[Any, Any]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Return the digest of each value, and of the tensors of those that have several."""
    tensors = {str(key): [part for part in _parts(value) if is_tensor(part)] for key, value in inside.items()}
    # Counts stay as they are: they have to grow with the updates, also where no other save is at the same one.
    return (
        {str(key): value if type(value) is int else _digest(value, _MOST_ELEMENTS) for key, value in inside.items()},
        {key: _digest(found, _MOST_ELEMENTS) for key, found in tensors.items() if len(found) > 1},
    )
