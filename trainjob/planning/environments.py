"""The Python environment of ranks: the one that a job brings to a disk of each node, and which others exclude it."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.planning.rules import refuse

ONE_INTERPRETER = "ranks run in one environment: the job's, a container, or the SDK's virtualenv"


def check(cluster: Cluster, job: Job) -> None:
    """Raise Broken if the cluster file already says what ranks run in."""
    runtime, words = cluster.container.runtime, " ".join(cluster.interpreter_words)
    if words and runtime != "none":
        refuse(
            "words that start an interpreter are asked on the node which one it is, and a container has its own",
            f"python is {words}, and container.runtime is {runtime}",
            otherwise="Name the image's interpreter (python: /opt/venv/bin/python), or leave it out.",
        )
    if not job.environment:
        return
    without = "Leave environment out."
    if runtime != "none":
        refuse(
            ONE_INTERPRETER,
            f"environment is given, and container.runtime is {runtime}",
            otherwise=without,
        )
    if cluster.ipu_keys is not None:
        refuse(ONE_INTERPRETER, "environment is given, and poprun starts the ranks in the SDK's", otherwise=without)


def facts(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the plan's row."""
    stated = job.environment
    if not stated:
        return
    disk = stated.get("folder", "the temporary folder")
    if "uv" in stated:
        how = f"uv.lock beside {stated['uv']}, installed once; ranks don't sync"
    else:
        how = stated.get("archive") or stated["venv"]
    yield "environment", f"{how}, on each node in {disk} before its ranks start"
