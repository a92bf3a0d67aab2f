"""What checks look at: the job, and what every machine that matters answered to one probe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from trainjob.check import probe
from trainjob.cluster.models import LocalCluster, PodCluster, SlurmCluster
from trainjob.contract.errors import Problem
from trainjob.machines import container_engines
from trainjob.submit import containers

if TYPE_CHECKING:
    from trainjob.check.probe import Answer
    from trainjob.machines.machine import Machine
    from trainjob.render.request import Request
    from trainjob.submit.project import Project, Selection

_Kind = TypeVar("_Kind", LocalCluster, PodCluster, SlurmCluster)


@dataclass(frozen=True)
class Depth:
    """How far a check goes. `thorough`: whole data sets are read; `scheduler`: the scheduler is asked, too."""

    thorough: bool = False
    scheduler: bool = False


@dataclass(frozen=True)
class Context:
    """A job that is about to be handed over on `machine`.

    `script` is what would run; None where nobody rendered it, or where `refused` says why it can't be rendered.
    """

    request: Request
    project: Project
    selection: Selection | None
    machine: Machine
    script: bytes | None = None
    refused: Problem | None = None

    @functools.cached_property
    def answers(self) -> tuple[Answer, ...]:
        """What each host answered, asked once, when a check first needs it. Raises SshError for an unreachable one."""
        return probe.ask_hosts(self.request, self.machine, self.project, self.selection)

    @functools.cached_property
    def interpreters(self) -> tuple[Answer, ...]:
        """The answers from where the ranks' interpreter is: the hosts, or the one container that stands for all."""
        if containers.find(self.request) is None:
            return self.answers
        if self.container_fault is not None:
            return ()
        return (probe.ask_container(self.request, self.machine, self.project, self.selection),)

    @functools.cached_property
    def container_fault(self) -> Problem | None:
        """What keeps this machine's engine from running the job's image; None where nothing does."""
        container = containers.find(self.request)
        if container is None:
            return None
        silence = container_engines.silence(container.runtime)
        if silence is not None:
            return silence
        if containers.has_image(container):
            return None
        kind, image = self.request.plan.topology.device_word.lower().replace("gpu", "cuda"), container.image
        return Problem(
            "image",
            f"{container.runtime} has no image {image}",
            f"Run: trainjob container build {kind} --name {image}, or {container.runtime} pull {image}",
        )

    def where(self, is_meant: Callable[[Mapping[str, str]], bool], *, interpreter: bool = False) -> str | None:
        """Return the machines whose facts are meant, as messages call them; None where there are none."""
        among = self.interpreters if interpreter else self.answers
        meant = [answer for answer in among if answer.why is None and is_meant(answer.facts)]
        return probe.listed(meant) if meant else None

    def by_value(self, fact: str, *, interpreter: bool = False) -> Iterator[tuple[str, str]]:
        """Yield each value of a fact, with the machines that have it."""
        among = self.interpreters if interpreter else self.answers
        values = dict.fromkeys(answer.facts[fact] for answer in among if fact in answer.facts)
        for value in values:
            yield value, probe.listed([answer for answer in among if answer.facts.get(fact) == value])

    def cluster(self, kind: type[_Kind]) -> _Kind:
        """Return the cluster, which the row of the check says is of this kind."""
        assert isinstance(self.request.cluster, kind)  # noqa: S101 - see the table of checks
        return self.request.cluster
