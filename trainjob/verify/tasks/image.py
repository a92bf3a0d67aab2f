"""Verifies an image: two ranks train inside it, and train as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from trainjob.contract.paths import RunPaths
from trainjob.observe.report.report import report
from trainjob.requests.workbench import Workbench
from trainjob.verify.tasks import instances

INSTANCES = 2
_EPOCHS, _UPDATES = 3, 5
# One digit in ten is right by chance.
_LEAST_ACCURACY = 0.8


@dataclass(frozen=True)
class ImageCheck:
    """One check: its name, the result, and whether that is as it should be."""

    what: str
    result: str
    good: bool
    runs: Sequence[RunPaths]


@dataclass(frozen=True)
class ImageVerdict:
    """The verdict whether an image trains, and the checks that decided."""

    versions: dict[str, str]
    checks: tuple[ImageCheck, ...]

    @property
    def good(self) -> bool:
        """True if everything is as it should be."""
        return all(check.good for check in self.checks)

    @property
    def runs(self) -> list[RunPaths]:
        """The runs that the checks compared."""
        return [paths for check in self.checks for paths in check.runs]

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        checks = [{"what": one.what, "found": one.result, "ok": one.good} for one in self.checks]
        return {"ok": self.good, "versions": self.versions, "checks": checks}


def verify_image(workbench: Workbench) -> ImageVerdict:
    """Train the bench's job on two ranks, compare two ranks with one, and return the verdict.

    Raises UserError, with the end of the failing rank's log, if a rank fails.
    """
    versions = {name: metadata.version(name) for name in ("trainjob", "torch", "numpy")}
    paths = workbench.run(workbench.vary(instances=INSTANCES, epochs=_EPOCHS))
    trained = report(paths, submission=None)
    accuracy = trained.held_out_accuracy
    shown = "no accuracy" if accuracy is None else f"held-out accuracy {100 * accuracy:.1f} %"
    result = f"{trained.updates} updates, {shown} (at least {100 * _LEAST_ACCURACY:.0f} %)"
    has_learned = accuracy is not None and accuracy >= _LEAST_ACCURACY
    trains = ImageCheck(f"{INSTANCES} ranks train {trained.name}", result, has_learned, [paths])

    compared = instances.verify(workbench, instances=INSTANCES, updates=_UPDATES, dtype="float64")
    gradients = max(one.gradients for one in compared.differences)
    parameters = max(one.parameters for one in compared.differences)
    reasons = "".join(f"; {finding.code}" for finding in compared.findings)
    result = (
        f"{len(compared.differences)} updates, gradients {gradients:.1e} and parameters {parameters:.1e} apart "
        f"(at most {compared.tolerance:.0e}){reasons}"
    )
    return ImageVerdict(
        versions, (trains, ImageCheck(f"{INSTANCES} ranks train as one", result, compared.equal, compared.runs))
    )
