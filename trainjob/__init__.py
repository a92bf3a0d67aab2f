"""trainjob: one training job from a laptop to a cluster, proved on the way.

>>> import trainjob
>>> job = trainjob.plan(cluster="pod64", instances=8)
>>> run = trainjob.submit(cluster="local", instances=2)

`trainjob.requests.interface` documents what there is. Every run carries this file, and its ranks import it: nothing is
loaded before it is used, and Python 3.8 reads it.
"""

__version__ = "0.1.0"

__all__ = ("PlannedJob", "Run", "UserError", "plan", "run", "runs", "submit")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("trainjob.requests.interface"), name)


def __dir__() -> "list[str]":
    return sorted([*globals(), *__all__])
