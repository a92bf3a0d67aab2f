"""Runs in the interpreter that would train, and reports its facts: lines `name value` on standard output.

It is sent as text (`python -c`) and uses only syntax that the oldest interpreters of a cluster accept. It imports only
the user's own task, and torch only if that task does: finding torch takes milliseconds, importing it takes seconds.
"""

from __future__ import annotations

import glob
import importlib
import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

# Output of a user's module during its import goes to standard error, not among the facts.
_facts = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def fact(name: str, value: object) -> None:
    """Print one fact and flush it, so that it survives a crash of the interpreter."""
    _facts.write("%s %s\n" % (name, " ".join(str(value).split())))
    _facts.flush()


def version(package: str) -> Optional[str]:
    """Return the installed version of a package; None if it is not installed."""
    try:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed
    except ImportError:  # Python 3.7
        return None
    try:
        return installed(package)
    except PackageNotFoundError:
        return None


def folder_of(module: str) -> Optional[str]:
    """Return the folder of an importable package; None if it can't be imported."""
    spec = importlib.util.find_spec(module)
    return None if spec is None else os.path.dirname(spec.origin or "")


def look_at_torch() -> None:
    """Print torch's version, and the accelerators that it was built for."""
    folder, torch = folder_of("torch"), version("torch")
    if folder is None and torch is None:
        return
    fact("torch", torch or "unknown")
    try:
        with open(os.path.join(folder or "", "version.py")) as stream:
            built_for = re.findall(r"^(cuda|hip)\b[^=\n]*=\s*['\"]([^'\"]+)", stream.read(), re.MULTILINE)
    except OSError:
        return
    fact("torch-built-for", " ".join("%s-%s" % pair for pair in built_for) or "cpu")


def look_at_task(entry: str, options: Dict[str, object], shards: bool) -> None:
    """Import the task and build it with its options, as a rank would; if the job `shards`, find the model's units."""
    # Imported by name, because packages of the command line must not import the runtime.
    load = importlib.import_module("trainjob.train.tasks.loading").load
    from trainjob.contract.errors import UserError

    try:
        task = load(entry, options, Path("project"))
        if shards:
            look_at_units(task)
    except UserError as error:
        fact("task-refused", error)
    except BaseException as error:  # noqa: BLE001 - anything that the user's code raises, sys.exit included
        fact("task-error", "%s: %s" % (type(error).__name__, error))
    else:
        fact("task", "yes")


def look_at_units(task: Any) -> None:
    """Find the units that are sharded or recomputed together, in a model that takes no memory."""
    units_of = importlib.import_module("trainjob.train.engines.units").units_of
    torch = importlib.import_module("torch")
    from trainjob.contract.errors import UserError

    try:
        with torch.device("meta"):
            units_of(task, task.build_model())
    except UserError as error:
        fact("units-refused", error)
    except Exception:  # noqa: BLE001, S110 - a model that can't be built without memory is checked when it runs
        pass


def look_at_optimizer(entry: str) -> None:
    """Import the class of an optimizer as a rank would."""
    load = importlib.import_module("trainjob.train.tasks.loading").load_attribute
    from trainjob.contract.errors import UserError

    try:
        load(entry, Path("project"), "optimizer")
    except UserError as error:
        fact("optimizer-refused", error)
    except BaseException as error:  # noqa: BLE001 - anything that the user's code raises, sys.exit included
        fact("optimizer-refused", "%s: %s" % (type(error).__name__, error))


def look_at_compiler(names: List[str]) -> None:
    """Print the compiler that torch.compile would find: the variable's, or one of the usual ones."""
    variable, *usual = names
    candidates = [os.environ[variable]] if os.environ.get(variable) else usual
    fact("compiler", next((name for name in candidates if shutil.which(name.split()[0])), "no"))


def main(questions: Any) -> None:
    """Print the answer to every question."""
    fact("python", "%d.%d.%d" % sys.version_info[:3])
    fact("executable", sys.executable)
    look_at_torch()
    if version("poptorch") is not None:
        fact("poptorch", version("poptorch"))
    # Without torch at build time, pip installs Horovod without this module.
    if questions.get("horovod"):
        folder = folder_of("horovod")
        built = glob.glob(os.path.join(folder, "torch", "mpi_lib*")) if folder else []
        fact("horovod", "yes" if built else "no")
    if questions.get("compiler"):
        look_at_compiler(questions["compiler"])
    if questions.get("task"):
        look_at_task(questions["task"], questions["options"], bool(questions.get("units")))
    if questions.get("optimizer"):
        look_at_optimizer(questions["optimizer"])


main(json.loads(sys.argv[1]))
