"""Notes when frameworks are imported, and what delays a rank's first update: its rendezvous, samples, compiling."""

from __future__ import annotations

import functools
import os
import time
from typing import Any, Callable, List

from .stacks import note

_MOST_NOTES = 4


def act(name: str, module: Any) -> None:
    """Time what `module` does before the first update, or note that it has been imported."""
    if name == "torch.distributed.distributed_c10d":
        _time(module, "init_process_group", "met")
    elif name == "torch.utils.data.dataloader":
        _time(module.DataLoader, "__iter__", "read")
        _time(module._BaseDataLoaderIter, "__next__", "read", lambda one: one._num_yielded == 0)
    elif name == "torch._dynamo.callback":
        _time_compiler(module.callback_handler)
    else:
        note("imported %d %.3f" % (os.getpid(), time.time()))


def _time(owner: object, name: str, word: str, counts: Callable[..., bool] = lambda *_args: True) -> None:
    """Time the first calls of a function that count, then restore the original, so that it stays out of tracebacks."""
    call, left = getattr(owner, name), [_MOST_NOTES]

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        is_timed, began = left[0] and counts(*args), time.time()
        try:
            answer = call(*args, **kwargs)
        except BaseException as error:
            # From Python 3.11 on, what is raised again has this traceback: the program's own frames.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        if not is_timed:
            return answer
        note("%s %d %.3f %.3f" % (word, os.getpid(), began, time.time()))
        left[0] -= 1
        if not left[0] and getattr(owner, name) is timed:
            setattr(owner, name, call)
        return answer

    setattr(owner, name, timed)


def _time_compiler(handler: Any) -> None:
    began: List[float] = []
    handler.register_start_callback(lambda *_args: began.append(time.time()))

    def note_end(*_args: Any) -> None:
        if began:
            note("compiled %d %.3f %.3f" % (os.getpid(), began.pop(), time.time()))

    handler.register_end_callback(note_end)
