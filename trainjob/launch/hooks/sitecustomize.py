"""Python imports this file when it starts, where this folder is on PYTHONPATH: our one hook into others' programs.

trainjob_hooks/ beside it says what it does and promises. Any version of Python may read this file.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments


def _run_hidden():
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


_hooks = None  # type: Any
if sys.version_info >= (3, 7):
    try:
        import trainjob_hooks  # type: ignore[import-not-found]  # beside this file, while its folder is on the path

        _hooks = trainjob_hooks
        _hooks.install()
    except Exception:  # noqa: BLE001, S110 - the program runs, and nothing is seen of it
        pass
try:
    if getattr(sys.modules.get("sitecustomize"), "__file__", None) == __file__:
        _run_hidden()
finally:
    if _hooks is not None:
        _hooks.begin()
