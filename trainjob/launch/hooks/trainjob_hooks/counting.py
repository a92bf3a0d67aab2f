"""Counts the weight updates of rank 0 where they happen, at `Optimizer.step`, and reports them to the launcher.

A process writes one short line, again and again, at its own place in the launcher's file (reading/counts.py reads it).
A step that a gradient scaler leaves out is none, and micro batches that are accumulated are not counted. Of optimizers
that step in turn (a GAN's two, one for each layer, DeepSpeed's groups) the one that steps most often counts; those
whose turns are long, such as of models that are trained one after the other, add up.
From where another loader is read, or a model is put in evaluation mode, until the next update, it may evaluate.
Where steps can't be seen, because they are compiled or replayed as a CUDA graph, it reports that and stops counting.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import sys
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from . import is_of_handler
from .loops import EPOCHS, loops_around
from .stacks import note

_PLACE = 256  # bytes of a process, at its number
_OPTIMIZED = 1  # CO_OPTIMIZED of inspect, which takes long to load: the code of a function
# With these a function may keep the copy of its variables, or read names that only look like ours.
_TAKES_VARIABLES = frozenset(["locals", "vars", "dir", "eval", "exec"])
# Samplers whose length costs nothing, and draws nothing.
_SAMPLERS = ("torch.utils.data.", "accelerate.", "transformers.", "lightning.", "pytorch_lightning.")
_OPTIMIZERS, _LOADERS = "torch.optim.optimizer", "torch.utils.data.dataloader"
_MODULES = "torch.nn.modules.module"
_SAVES = "torch.distributed.checkpoint.state_dict"  # makes an empty optimizer's state by a step that changes nothing
_LONGEST_TURN = 5  # of optimizers that make updates together, such as those of a GAN's critic
_MOST_FRAMES, _MOST_NAMES, _FIRST_UPDATES, _MOST_ASIDES = 40, 400, 100, 4
# What ends a training before its epochs are over, or cuts them short: a number of updates, or something else.
_CUTS = re.compile(
    r"(?:(?:max|total|num|n)_)+(?:train_|training_|optimization_)*(?:steps|iters|itrs|iterations|updates|batches)\Z"
    r"|(?:max|total)_(?:train_)?(?:step|iter|iteration|update)\Z|(?:steps|iters)_per_epoch\Z"
    r"|(?:\w*_)?stop_(?:\w+_)?(?:step|iter|update)\w*\Z|(?:\w+_)?(?:step|iter|iteration|update)s?_stop\Z",
    re.IGNORECASE,
)
_STEPS = re.compile(r"(?:max|total)_(?:train_|training_)?steps\Z", re.IGNORECASE)  # of these, all that there are


class _Count:
    """The updates that this process has counted. `why_not` is the reason why it counts no further."""

    def __init__(self) -> None:
        import fcntl

        self.pid = os.getpid()
        self.updates = self.depth = 0
        self.began: Optional[int] = None  # the updates that the optimizer's state had before the first one
        self.first_at = self.last_at = 0.0
        self.why_not = ""
        self.epochs: Optional[int] = None
        self.cuts: Set[int] = set()  # what may end the training earlier, in updates
        self.loops = 0  # around an update
        self.steps: Optional[int] = None  # that its own variables state
        self.skipped: Any = None  # on a GPU: updates that its optimizer has left out
        self.read_skipped_at = 0.0
        self._earlier = 0  # updates before those of these optimizers, which are known by their first weight
        self._optimizers: Dict[int, _Steps] = {}
        self._turn, self._turns = 0, 0  # whose it is, and how many steps it has made
        self._passes: List[_Pass] = []
        self._of_training: Optional[_Pass] = None
        self._per_pass: Optional[int] = None  # 0: it varies, or not one loader alone feeds the training
        self._is_confirmed = self._is_alone = False  # alone: no other loader has fed the first update
        # Before the first update, and while it may evaluate: the sizes of its log at begin and end; -1: unknown.
        self._is_aside = _size_of_log() >= 0
        self._asides: List[Tuple[int, int]] = [(0, -1)] if self._is_aside else []
        self._asides_before = 0  # of which only the number is kept
        descriptor = os.open(os.environ["TRAINJOB_COUNTS"], os.O_WRONLY)
        try:
            self._file = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 900)  # as in stacks.py
        finally:
            os.close(descriptor)
        note("counts %d" % self.pid)
        self.write()

    def __reduce__(self) -> Any:
        """Let a class of the script be sent to another process by value, with what was wrapped in it."""
        return _mine, ()

    def write(self) -> None:
        """Tell the launcher."""
        per_pass = self._updates_of_pass()
        cut = min((one for one in self.cuts if one != per_pass), default=-1)
        known = [-1 if one is None else one for one in (self.began, per_pass, self.epochs, self.steps)]
        line = "%d %.3f %.3f " % (self.updates, self.first_at, self.last_at)
        asides = ",".join("%d_%d" % aside for aside in self._asides)
        known += [cut, self.loops]
        line += "%s %d:%s %s" % (" ".join(map(str, known)), self._asides_before, asides, self.why_not)
        os.pwrite(self._file, line.encode().ljust(_PLACE), self.pid * _PLACE)

    def stepped(self, optimizer: Any) -> None:
        """Count a step."""
        weight = next((id(one) for group in optimizer.param_groups for one in group["params"]), 0)
        if weight not in self._optimizers:
            if all(one.optimizer() is None for one in self._optimizers.values()):
                self._earlier, self._optimizers = self.updates, {}  # another model, as the one before has gone
            self._optimizers[weight] = _Steps(optimizer)
        self._optimizers[weight].made += 1
        self._turn, self._turns = weight, self._turns + 1 if weight == self._turn else 1
        most = max((one.made for other, one in self._optimizers.items() if other != weight), default=0)
        own = self._optimizers[weight]
        if self._turns == _LONGEST_TURN + 1 and most > max(_LONGEST_TURN, own.made - self._turns):
            self._earlier += most
            self._optimizers, own.made = {weight: own}, self._turns
        self._add_up()
        self.last_at = time.time()
        if self._is_aside:
            self._asides[-1], self._is_aside = (self._asides[-1][0], _size_of_log()), False
        if not self.first_at:
            self.first_at, self.began = self.last_at, _state_step(optimizer)
            self.epochs, self.steps, self.cuts = _stated_length()
            self.loops = loops_around(sys._getframe(1))

    def _add_up(self) -> None:
        before, self.updates = self.updates, self._earlier + max(one.made for one in self._optimizers.values())
        if self.updates > before:
            self._note_loader()

    def left_out(self, steps: int = 1) -> None:
        """Take back the newest step, or so many of its optimizer, which changed nothing."""
        self._optimizers[self._turn].made -= steps
        self._add_up()

    def _note_loader(self) -> None:
        """Find the loader that feeds this update; with more than one, or none, the updates of a pass stay unknown."""
        moved = [one for one in self._passes if one.has_moved()]
        if self._of_training is None and moved:
            self._of_training = moved[-1]
            self._is_alone = len(moved) == 1
        elif self._of_training not in moved:
            self._per_pass = 0

    def begin_pass(self, loader: object, iterator: object) -> None:
        """Note that a loader begins again."""
        before = next((one for one in self._passes if one.loader == id(loader)), None)
        new = _Pass(loader, iterator, self.updates)
        self._passes = [*[one for one in self._passes if one is not before][-3:], new]
        if self._of_training is not None and before is not self._of_training:
            self.begin_aside()
        if before is not None and before is self._of_training:
            made = self.updates - before.began_at
            # After its last update, fewer batches than another one takes are left over.
            is_whole = (before.length - before.yielded) * made < before.yielded
            # Where nobody says how long a pass is, only a second one shows how the next ones will be.
            self._is_confirmed = self._per_pass == made or before.yielded == before.length
            self._per_pass = made if is_whole and self._per_pass in (None, made) else 0
            self._of_training = new
            if _stated_length()[0] not in (None, self.epochs):
                self.epochs = None  # it counts them

    def begin_aside(self) -> None:
        """Note that it may evaluate from here on."""
        if self._is_aside or not self.updates:
            return
        self._asides_before += len(self._asides[: 1 - _MOST_ASIDES])
        self._asides = [*self._asides[1 - _MOST_ASIDES :], (_size_of_log(), -1)]
        self._is_aside = True
        self.write()

    def _updates_of_pass(self) -> Optional[int]:
        """Return the updates of a pass over the loader; None if unknown."""
        now = self._of_training
        if self._per_pass is not None:
            return self._per_pass if self._per_pass and self._is_confirmed else None
        # In the first pass, if each batch has made an update so far; a loader may begin again for each batch.
        made = self.updates - now.began_at if now is not None else 0
        is_known = now is not None and now.length >= made == now.yielded > 1 and self._is_alone
        return now.length if now is not None and is_known else None


class _Steps:
    """The steps that an optimizer has made together with others."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.made = weakref.ref(optimizer), 0


class _Pass:
    """One pass over a loader."""

    def __init__(self, loader: Any, iterator: Any, began_at: int) -> None:
        # An iterator ends its worker processes when the program drops it.
        self.loader, self._iterator, self.began_at = id(loader), weakref.ref(iterator), began_at
        self.yielded = 0
        samplers = [one for one in (loader.sampler, loader.batch_sampler) if one is not None]
        is_known = all(type(one).__module__.startswith(_SAMPLERS) for one in samplers)
        # The batches of a pass; -1 where only code of the user's own knows: we don't run that.
        self.length = len(loader) if is_known and getattr(loader, "_dataset_kind", 1) == 0 else -1

    def has_moved(self) -> bool:
        """Return whether the loader has delivered a batch since the last question."""
        before, iterator = self.yielded, self._iterator()
        if iterator is not None:
            self.yielded = int(iterator._num_yielded)
        return self.yielded != before


_count: Optional[_Count] = None


def _mine() -> _Count:
    """Return the count of this process; a forked one begins its own."""
    global _count  # noqa: PLW0603 - a process has one
    if _count is None or _count.pid != os.getpid():
        _count = _Count()
    return _count


def _size_of_log() -> int:
    """Return how much has been printed; -1 where not all of it goes into one file."""
    try:
        printed = [os.fstat(number) for number in (1, 2)]
    except OSError as error:  # it has closed one of them
        if is_of_handler(error):
            raise
        return -1
    is_one_file = stat.S_ISREG(printed[0].st_mode) and os.path.samestat(*printed)
    return printed[0].st_size if is_one_file else -1


def _quietly(call: Callable[..., object], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception as error:  # the program trains on, and its updates are not known
        if is_of_handler(error):
            raise
        if _count is not None and not _count.why_not:
            _count.why_not = type(error).__name__
            _quietly(_count.write)
        return None


def act(name: str, module: Any) -> None:
    """Count in a module that has been loaded."""
    if name == _OPTIMIZERS:
        note("torch %d" % os.getpid())
        _count_optimizers(module.Optimizer)
    elif name == _LOADERS:
        # Only what trains, so that a program without an optimizer keeps its functions.
        if _count is not None:
            _watch_passes(module.DataLoader)
    else:
        note("other %d" % os.getpid())


def _count_optimizers(kind: Any) -> None:
    make = kind.__init__

    @functools.wraps(make)
    def made(self: object, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _quietly(_count_steps, type(self))

    kind.__init__ = made


def _count_steps(kind: Any) -> None:
    step = kind.step
    _mine()
    if _LOADERS in sys.modules:
        _watch_passes(sys.modules[_LOADERS].DataLoader)
    if _MODULES in sys.modules:
        _watch_evaluation(sys.modules[_MODULES].Module)
    if getattr(step, "_trainjob_counts", False):
        return
    compiler = getattr(sys.modules["torch"], "compiler", None)
    names = ("is_dynamo_compiling", "is_compiling")
    is_compiling = next((getattr(compiler, name) for name in names if hasattr(compiler, name)), lambda: False)

    @functools.wraps(step)
    def counted(self: object, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            _is_compiled()
            return step(self, *args, **kwargs)
        count = _count
        if count is None or count.depth or count.why_not:
            return step(self, *args, **kwargs)
        count.depth += 1
        try:
            answer = step(self, *args, **kwargs)
        finally:
            count.depth -= 1
        _quietly(_ended, self)
        return answer

    counted._trainjob_counts = True  # type: ignore[attr-defined] # a mark of ours
    kind.step = counted


def _is_compiled() -> bool:
    """Note that steps are compiled. The compiler calls this once, while it traces: what it compiles calls nothing."""
    if _count is not None and not _count.why_not:
        _count.why_not = "compiled"
        _quietly(_count.write)
    return True


_is_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined] # as torch.compiler.assume_constant_result does


def _ended(optimizer: object) -> None:
    count, torch = _mine(), sys.modules["torch"]
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        count.why_not = "captured"
        count.write()
        return
    frame: Any = sys._getframe(3)
    for _ in range(3):
        if frame is not None and frame.f_globals.get("__name__") == _SAVES:
            return
        frame = frame.f_back if frame is not None else None
    # A fused optimizer is called even if its gradients overflowed, and gets that as an argument.
    found = getattr(optimizer, "found_inf", None)
    count.stepped(optimizer)
    if found is not None and found.device.type == "cpu":
        if bool(found):
            count.left_out()
    elif found is not None:
        count.skipped = found.detach().clone() if count.skipped is None else count.skipped.add_(found)
        if count.updates <= _FIRST_UPDATES or count.last_at - count.read_skipped_at >= 1.0:
            # Rarely, once the scale has been found: reading waits for the GPU.
            count.left_out(int(count.skipped))
            count.skipped, count.read_skipped_at = None, count.last_at
    count.write()


def _state_step(optimizer: Any) -> Optional[int]:
    """Return how many updates the optimizer's state had seen before its newest; None if it does not say."""
    for state in optimizer.state.values():
        step = state.get("step") if hasattr(state, "get") else None
        if step is not None and getattr(getattr(step, "device", None), "type", "cpu") == "cpu":
            return int(step) - 1
    return None


def _watch_passes(kind: Any) -> None:
    iterate = kind.__iter__
    if getattr(iterate, "_trainjob_counts", False):
        return

    @functools.wraps(iterate)
    def watched(self: object) -> Any:
        iterator = iterate(self)
        if _count is not None and _count.pid == os.getpid():
            _quietly(_count.begin_pass, self, iterator)
        return iterator

    watched._trainjob_counts = True  # type: ignore[attr-defined] # a mark of ours
    kind.__iter__ = watched


def _watch_evaluation(kind: Any) -> None:
    evaluate = kind.eval
    if getattr(evaluate, "_trainjob_counts", False):
        return

    @functools.wraps(evaluate)
    def watched(self: object) -> Any:
        if _count is not None and _count.pid == os.getpid():
            _quietly(_count.begin_aside)
        return evaluate(self)

    watched._trainjob_counts = True  # type: ignore[attr-defined] # a mark of ours
    kind.eval = watched


def _stated_length() -> Tuple[Optional[int], Optional[int], Set[int]]:
    """Return the epochs and steps that the program's own variables state, and what may cut the epochs.

    None where they are not one number.

    Looked up among the variables of the functions at work, and the settings among them, outside of libraries.
    """
    frame: Any = sys._getframe(1)
    epochs: Set[int] = set()
    steps: Set[int] = set()
    cuts: Set[int] = set()
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if "-packages" not in file and os.path.dirname(__file__) not in file:
            variables = _variables(frame)
            for name, number in _numbers(variables):
                if EPOCHS.match(name):
                    # One epoch may be the first that a variable counts, rather than the last.
                    is_counter = number == 1 and variables.get(name) == 1
                    epochs.add(0 if is_counter or number != int(number) else int(number))
                elif _CUTS.match(name):
                    cuts.add(int(number))
                    steps.update([int(number)] if _STEPS.match(name) else [])
            if _is_snapshot(frame):
                variables.clear()
        frame = frame.f_back
    first, second = (one.pop() if len(one) == 1 else None for one in (epochs, steps))
    return first or None, second, cuts


def _is_snapshot(frame: Any) -> bool:
    """Return whether the variables of a frame are a copy that the frame keeps until it ends, with all that they hold.

    So it is in functions before Python 3.13 (PEP 667): batches and losses would stay in the GPU's memory.
    """
    return sys.version_info < (3, 13) and bool(frame.f_code.co_flags & _OPTIMIZED)


def _variables(frame: Any) -> Dict[str, Any]:
    """Return the variables of a frame; none where the function itself has, or may take, that same copy."""
    if _is_snapshot(frame) and not _TAKES_VARIABLES.isdisjoint(_global_names(frame.f_code)):
        return {}
    found: Dict[str, Any] = frame.f_locals
    return found


def _global_names(code: Any) -> Set[str]:
    """Return the global names that a function loads; `co_names` has attributes as well, such as `eval` of a model."""
    if _TAKES_VARIABLES.isdisjoint(code.co_names):
        return set()
    from opcode import EXTENDED_ARG, opmap

    names, argument, shift = set(), 0, sys.version_info >= (3, 11)  # since then the last bit is a flag
    for operation, low in zip(code.co_code[::2], code.co_code[1::2]):
        argument = argument << 8 | low
        if operation == opmap["LOAD_GLOBAL"]:
            names.add(code.co_names[argument >> shift])
        argument = argument if operation == EXTENDED_ARG else 0
    return names


def _numbers(variables: Any) -> Iterator[Tuple[str, float]]:
    """Yield the names and values of variables, also in dictionaries, objects and named tuples, that are above 0.

    Not in torch's own, such as a schedule of the learning rate, which has a number of steps of its own.
    """
    for name, value in list(variables.items())[:_MOST_NAMES]:
        is_searched = not isinstance(value, (type, type(sys))) and not type(value).__module__.startswith("torch")
        inner = value if isinstance(value, dict) else getattr(value, "__dict__", {}) if is_searched else {}
        if isinstance(value, tuple):
            inner = dict(zip(getattr(value, "_fields", ()), value))
        for one, number in [(name, value), *list(inner.items())[:_MOST_NAMES]]:
            if isinstance(one, str) and isinstance(number, (int, float)) and number > 0:
                yield one, number
