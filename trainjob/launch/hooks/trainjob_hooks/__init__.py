"""Our code in the Python processes of other people's programs: one place, switched on by environment variables.

| module | switched on by | what it does |
|---|---|---|
| `stacks` | TRAINJOB_STACKS | writes all threads' stacks when the launcher asks, and notes that the script has ended |
| `startup` | TRAINJOB_STACKS and RANK | notes when frameworks are imported, and what delays the first update |
| `counting` | TRAINJOB_COUNTS and RANK=0 | counts weight updates at `Optimizer.step` |
| `compiler` | TRAINJOB_STACKS | leaves torch's compiler on disk until something compiles |
| `recording` | TRAINJOB_RECORD_UPDATES | records updates and saves for `verify`: `events`, `digests`, `recorder` |
| `batch` | TRAINJOB_SEEN | records what each process of a rehearsed batch file sees |

What it promises:

- **The program does not change**: its arguments, results, output, exit code and exceptions are what they are without
  us, and so are sys.path and the sitecustomize that ours hides. A fault of ours is not raised in it. What its own
  signal handler raises while our code runs is: whatever of ours catches an `Exception` asks `is_of_handler` first.
- **The finder is in front of all others**, also of one that the hidden sitecustomize installs, such as the one of the
  stand-in GPUs, which asks no finder after it. It has the others find each module, so a module is loaded as without us,
  with stand-ins where there are some, and then our modules act on it, in the order of `ACTORS`. Of several wrappers of
  one function the first is innermost; those of `startup` are outermost, because they take themselves out again.
- **Each module is acted on once**, when it is imported, not when a program only looks for it.
- **A Python that imports nothing of this reads two or three small files more.** The others are imported when one of
  their modules is.
- Python 3.7 and later, the standard library, torch 1.10 and later or none. An older Python runs undisturbed.
- Several copies of this folder may be on PYTHONPATH (a rehearsal's and a run's): the first serves.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing: each Python of a rank reads this file, and most of them need none of it
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, List, Optional

_C10D = "torch.distributed.distributed_c10d"
_LOADER = "torch.utils.data.dataloader"
# Our modules in the order in which they act, and the modules of others on which they do. Each has a function `act`,
# which is called with the name and the loaded module, and may have one `prepare`, called before it is loaded.
ACTORS = {
    "recording": (
        *(
            "torch",
            "torch._tensor",
            "torch.nn.modules.module",
            "torch.nn.utils.clip_grad",
            "torch.nn.parallel.distributed",
            "torch.serialization",
            "torch.optim.optimizer",
            "safetensors.torch",
            _LOADER,
            _C10D,
        ),
        *("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"),  # the first since torch 2.3
    ),
    "batch": ("torch", _C10D, "torch.distributed.elastic.rendezvous.utils"),
    "counting": (
        *("torch.optim.optimizer", _LOADER),
        *("jax", "keras", "tensorflow", "paddle", "mxnet", "poptorch"),  # whose updates are made elsewhere
    ),
    "startup": (
        *("torch", "torchvision", "transformers", "datasets", "accelerate", "lightning", "pytorch_lightning"),
        *("deepspeed", "composer", "jax", _C10D, _LOADER, "torch._dynamo.callback"),
    ),
}
_COMPILER = "torch._dynamo"


def _module(name: str) -> Any:
    """Return one of our modules. `import_module` would load a module of the standard library more."""
    full = "%s.%s" % (__name__, name)
    __import__(full)
    return sys.modules[full]


def _is_on(name: str) -> bool:
    environ = os.environ
    if name == "recording":
        return bool(environ.get("TRAINJOB_RECORD_UPDATES") and environ.get("TRAINJOB_RUN_DIR"))
    if name == "counting":
        return "TRAINJOB_COUNTS" in environ and environ.get("RANK") == "0"
    if name == "batch":
        return os.path.isdir(environ.get("TRAINJOB_SEEN", ""))
    return bool(environ.get("TRAINJOB_STACKS")) and (name != "startup" or "RANK" in environ)


def is_of_handler(error: BaseException) -> bool:
    """Return whether a signal handler of the program has raised an error that our code has caught.

    A handler is given the frame that it interrupts, which is in the traceback before its own.
    """
    frames: List[Any] = []
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if os.path.dirname(frame.f_code.co_filename) != os.path.dirname(__file__):
            for value in frame.f_locals.values():
                # All of its arguments may have one name.
                if any(one is before for one in (value if type(value) is tuple else (value,)) for before in frames):
                    return True
        frames.append(frame)
        trace = trace.tb_next
    return False


class Finder:
    """Has the other finders find a module, and ours act on it once it has been loaded."""

    def __init__(self, actors: List[str]) -> None:
        self._awaited = {name for actor in actors for name in ACTORS[actor]}
        self._actors = actors
        self.leaves_out_compiler = _is_on("compiler")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Return the spec that others find, with our acts around its loading; None for any other module."""
        if name == _COMPILER and self.leaves_out_compiler:
            spec: Optional[ModuleSpec] = _module("compiler").spec()
            self.leaves_out_compiler = spec is None
            return spec
        if target is None and name in sys.modules and name.startswith(_COMPILER + "."):
            # Its first import came by way of a submodule, which the package has loaded meanwhile.
            loaded: ModuleSpec = _module("compiler").as_loaded(name)
            return loaded
        if name not in self._awaited:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader: Any = getattr(spec, "loader", None)
        if hasattr(loader, "exec_module") and not isinstance(loader, type) and hasattr(loader, "__dict__"):
            # The loader stays the one that it is: resources and sources are asked of it. It may have its own function.
            own = vars(loader).get("exec_module")
            vars(loader)["exec_module"] = lambda module: self._load(name, loader, own, module)
        return spec

    def _load(self, name: str, loader: Any, own: Any, module: ModuleType) -> None:
        if own is None:
            vars(loader).pop("exec_module", None)
        else:
            vars(loader)["exec_module"] = own
        actors = [actor for actor in self._actors if name in ACTORS[actor]] if name in self._awaited else []
        self._call("prepare", actors, name)
        loader.exec_module(module)
        if name in self._awaited:  # else another finder has asked us again
            self._awaited.discard(name)
            self._call("act", actors, name, module)

    @staticmethod
    def _call(function: str, actors: List[str], *arguments: Any) -> None:
        for actor in actors:
            try:
                call = getattr(_module(actor), function, None)
                if call is not None:
                    call(*arguments)
            except Exception as error:  # of another release, which has other names
                if is_of_handler(error):
                    raise


_finder: Optional[Finder] = None
_has_begun = False


def install() -> None:
    """Switch on what the environment asks for, and watch imports from now on."""
    global _finder  # noqa: PLW0603 - a process has one
    if _finder is not None:
        return
    actors = [name for name in ACTORS if _is_on(name)]
    _finder = Finder(actors)
    if actors or _finder.leaves_out_compiler:
        sys.meta_path.insert(0, _finder)
    if _is_on("stacks"):
        _module("stacks").begin(os.environ["TRAINJOB_STACKS"])
    if "recording" in actors:
        _module("recorder").begin(os.environ["TRAINJOB_RUN_DIR"])


def begin() -> None:
    """Take the place in front, now that the hidden sitecustomize has had its turn, and record from now on."""
    global _has_begun  # noqa: PLW0603 - a process begins once
    if _finder in sys.meta_path:
        sys.meta_path.sort(key=lambda finder: finder is not _finder)
    if not _has_begun and _is_on("batch"):
        _has_begun = True
        _module("batch").begin()
