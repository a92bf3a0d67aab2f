"""The control of a comparison: one instance once more, its first weights moved by their last bit.

What comes of that is what the task makes of rounding. Where N instances differ from one by no more, nothing is shown.
"""

from __future__ import annotations

import dataclasses

from trainjob.contract.paths import RunPaths
from trainjob.contract.trace import NUDGED
from trainjob.render.request import Request
from trainjob.runs.experiment import Workbench
from trainjob.verify import traces
from trainjob.verify.compare import Difference, difference
from trainjob.verify.traces import Trace


class Control:
    """Trained when it is first asked for. `runs` is empty until then."""

    def __init__(self, workbench: Workbench, alone: Request, one: Trace) -> None:
        self._workbench = dataclasses.replace(workbench, request=alone)
        self._one = one
        self._trace: Trace | None = None
        self.runs: list[RunPaths] = []

    def difference(self, update: int) -> Difference:
        """Return how far `update` of one instance moves with the last bits. Raises UserError when the run fails."""
        if self._trace is None:
            self.runs.append(self._workbench.run(self._workbench.vary(trace=NUDGED)))
            self._trace = traces.read(self.runs[0])
        return difference(self._trace.update(update), self._one.update(update))
