"""The context of a check: the job, and the answers of its machines to one probe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainjob.backends import containers
from trainjob.check import probe
from trainjob.contract.errors import Problem
from trainjob.machines import container_engines

if TYPE_CHECKING:
    from pathlib import Path

    from trainjob.backends.project import Project, Selection
    from trainjob.check.probe import ProbeAnswer
    from trainjob.machines.machine import Machine
    from trainjob.render.request import Request


@dataclass(frozen=True)
class Depth:
    """The depth of a check. `thorough`: it reads whole data sets; `scheduler`, `hosts`: it asks these, too."""

    thorough: bool = False
    scheduler: bool = False
    hosts: bool = True


@dataclass(frozen=True)
class Context:
    """A job that is about to be submitted on `machine`.

    `script` is the job script; None if it was not rendered, or can't be rendered, as `refused` says.
    `cluster_file` is where the cluster is described; None if it is in no file.
    """

    request: Request
    project: Project
    selection: Selection | None
    machine: Machine
    script: bytes | None = None
    refused: Problem | None = None
    cluster_file: Path | None = None

    @property
    def interpreter_key(self) -> str:
        """The key of the cluster file that names the interpreter, for messages."""
        return self.request.cluster.interpreter_key

    @functools.cached_property
    def answers(self) -> tuple[ProbeAnswer, ...]:
        """The answer of each host to a probe, which runs once, on first use. Raises SshError without a connection."""
        return probe.ask_hosts(self.request, self.machine, self.project, self.selection)

    @functools.cached_property
    def interpreters(self) -> tuple[ProbeAnswer, ...]:
        """The answers of the ranks' interpreters: on the hosts, or in one container, which represents all."""
        if containers.find(self.request) is None:
            return self.answers
        if self.container_fault is not None:
            return ()
        return (probe.ask_container(self.request, self.machine, self.project, self.selection),)

    @functools.cached_property
    def container_fault(self) -> Problem | None:
        """The problem that keeps this machine's engine from running the job's image; None if there is none."""
        container = containers.find(self.request)
        if container is None:
            return None
        silence = container_engines.silence(container.runtime)
        if silence is not None:
            return silence
        if containers.has_image(container):
            return None
        kind, image = self.request.plan.topology.device.lower().replace("gpu", "cuda"), container.image
        return Problem(
            "image",
            f"{container.runtime} has no image {image}",
            f"Run: trainjob container build {kind} --name {image}, or {container.runtime} pull {image}",
        )

    def where(self, condition: Callable[[Mapping[str, str]], bool], *, interpreter: bool = False) -> str | None:
        """Return the names of the machines whose facts fulfil `condition`, for a message; None if there are none."""
        answers = self.interpreters if interpreter else self.answers
        matching = [answer for answer in answers if answer.why is None and condition(answer.facts)]
        return probe.listed(matching) if matching else None

    def by_value(self, fact: str, *, interpreter: bool = False) -> Iterator[tuple[str, str]]:
        """Yield each value of a fact, with the names of the machines that have this value."""
        answers = self.interpreters if interpreter else self.answers
        values = dict.fromkeys(answer.facts[fact] for answer in answers if fact in answer.facts)
        for value in values:
            yield value, probe.listed([answer for answer in answers if answer.facts.get(fact) == value])
