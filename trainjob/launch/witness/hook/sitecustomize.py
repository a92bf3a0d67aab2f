"""Lets the launcher ask any Python process of a rank for its stacks, and learn how far its start is and that it ended.

torch's compiler is imported when it is needed (trainjob_dynamo.py).

A rank that another launcher has started on its node leaves that launcher's log for its own.

Its folder is first on the ranks' PYTHONPATH.

Any version of Python may read this file, and nothing in it may disturb the program that comes after.
"""

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments

# What takes long to import; and where torch's ranks meet, samples are read and graphs compiled.
_FRAMEWORKS = {"torch", "torchvision", "transformers", "datasets", "accelerate", "lightning", "pytorch_lightning"}
_FRAMEWORKS |= {"deepspeed", "composer", "jax"}
_MEETING = "torch.distributed.distributed_c10d"
_LOADING = "torch.utils.data.dataloader"
_COMPILING = "torch._dynamo.callback"
_MOST_NOTES = 4


def _register(path):
    # type: (str) -> None
    import atexit
    import faulthandler
    import fcntl
    import signal

    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        # A high number, which a program that closes and reopens its files does not use.
        high = fcntl.fcntl(descriptor, getattr(fcntl, "F_DUPFD_CLOEXEC", fcntl.F_DUPFD), 900)
    finally:
        os.close(descriptor)
    faulthandler.register(signal.SIGRTMAX - 3, file=high, all_threads=True)
    # The first to register is called last, when the program's own last words are over.
    atexit.register(_note_the_end, high)
    # Where updates are recorded, launch/updates finds these modules.
    is_recorded = "TRAINJOB_RECORD_UPDATES" in os.environ
    if "RANK" in os.environ and not is_recorded and sys.version_info >= (3, 4):
        sys.meta_path.insert(0, _Finder(high))


def _note_the_end(descriptor):
    # type: (int) -> None
    """Note that the script has ended without an exception: what kills the process from now on is not its own fault."""
    if getattr(sys, "last_type", None) is None:
        try:  # noqa: SIM105 - as below
            os.write(descriptor, ("ended %d\n" % os.getpid()).encode())
        except OSError:
            pass


class _Finder:
    """Finds frameworks as everybody does, and notes when each is imported and what delays the first update."""

    def __init__(self, descriptor):
        # type: (int) -> None
        self._descriptor, self._awaited = descriptor, _FRAMEWORKS | {_MEETING, _LOADING, _COMPILING}

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name not in self._awaited:
            return None
        self._awaited.remove(name)
        others = [finder for finder in sys.meta_path if finder != self and hasattr(finder, "find_spec")]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)  # type: Any
        if spec is not None and hasattr(spec.loader, "exec_module") and hasattr(spec.loader, "__dict__"):
            load = spec.loader.exec_module

            def load_and_note(module):
                # type: (Any) -> None
                vars(spec.loader).pop("exec_module", None)
                load(module)
                try:  # noqa: SIM105 - as below
                    self._watch(name, module)
                except Exception:  # noqa: BLE001, S110 - another release, which has other names
                    pass

            vars(spec.loader)["exec_module"] = load_and_note
        return spec

    def _note(self, line):
        # type: (str) -> None
        try:  # noqa: SIM105 - as below
            os.write(self._descriptor, ("%s\n" % line).encode())
        except OSError:
            pass

    def _watch(self, name, module):
        # type: (str, Any) -> None
        if name == _MEETING:
            self._time(module, "init_process_group", "met")
        elif name == _LOADING:
            self._time(module.DataLoader, "__iter__", "read")
            self._time(module._BaseDataLoaderIter, "__next__", "read", lambda one: one._num_yielded == 0)
        elif name == _COMPILING:
            self._time_compiler(module.callback_handler)
        else:
            self._note("imported %d %.3f" % (os.getpid(), time.time()))

    def _time(self, owner, name, word, counts=lambda *_args: True):
        # type: (Any, str, str, Any) -> None
        """Have a function note its first calls that count, and be itself again: it stands in a traceback."""
        import functools

        call, left = getattr(owner, name), [_MOST_NOTES]

        @functools.wraps(call)
        def noted(*args, **kwargs):
            # type: (Any, Any) -> Any
            if not left[0] or not counts(*args):
                return call(*args, **kwargs)
            began = time.time()
            answer = call(*args, **kwargs)
            self._note("%s %d %.3f %.3f" % (word, os.getpid(), began, time.time()))
            left[0] -= 1
            if not left[0] and getattr(owner, name) is noted:
                setattr(owner, name, call)
            return answer

        setattr(owner, name, noted)

    def _time_compiler(self, handler):
        # type: (Any) -> None
        began = []  # type: list[float]
        handler.register_start_callback(lambda *_args: began.append(time.time()))

        def note(*_args):
            # type: (Any) -> None
            if began:
                self._note("compiled %d %.3f %.3f" % (os.getpid(), began.pop(), time.time()))

        handler.register_end_callback(note)


def _to_own_log(launcher_log):
    # type: (str) -> None
    """Send what this rank prints to its own log, unless the launcher or the user has sent it elsewhere."""
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    folder, name = os.path.split(launcher_log)
    # The launcher of another world, or one that numbers its nodes itself, keeps its ranks: a log has one writer.
    if local_rank == 0 or name != "rank-%04d.log" % (rank - local_rank):
        return
    log = os.stat(launcher_log)
    printing = [number for number in (1, 2) if os.path.samestat(os.fstat(number), log)]
    if printing:
        own = os.open(os.path.join(folder, "rank-%04d.log" % rank), os.O_WRONLY | os.O_APPEND)
        for number in printing:
            os.dup2(own, number)
        os.close(own)


def _next_one():
    # type: () -> None
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


if os.environ.get("TRAINJOB_STACKS") and not hasattr(sys, "_trainjob_has_stacks"):
    sys._trainjob_has_stacks = True  # type: ignore[attr-defined]
    try:  # noqa: SIM105 - contextlib would be one more module for each Python that starts
        _register(os.environ["TRAINJOB_STACKS"])
    except Exception:  # noqa: BLE001, S110 - without it the rank only has no stacks to show
        pass
    try:  # noqa: SIM105
        _to_own_log(os.environ["TRAINJOB_LAUNCHER_LOG"])
    except Exception:  # noqa: BLE001, S110 - no launcher has started it, or it prints where the launcher does
        pass
    try:
        import trainjob_dynamo  # type: ignore[import-not-found]  # beside this file, while its folder is on the path

        sys.meta_path.insert(0, trainjob_dynamo.Finder)
    except Exception:  # noqa: BLE001, S110 - without it the rank only starts later
        pass
if getattr(sys.modules.get("sitecustomize"), "__file__", None) == __file__:
    _next_one()
