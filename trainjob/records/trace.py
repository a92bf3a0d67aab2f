"""trace/: what `verify` compares, written by a run that was asked to (`--trace`). Names and shapes of the files.

rank-0000.jsonl, by every rank: one line an update, with a digest of each sample's values by micro batch. model.json, by
rank 0: which kinds of layer there are, which names are buffers, and whether the data set is iterable. A full trace has
in each line digests of this rank's gradients and parameters as well, and by rank 0

update-00000001.safetensors, by rank 0: "gradient/NAME" as the step took it, "parameter/NAME" and "buffer/NAME" after
the step. A nudged trace is a full one of a run whose first weights were moved by their last bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records.files import RankLines, append_json_line, read_json, write_json

SAMPLES, FULL, NUDGED = "samples", "full", "nudged"  # what a run can be asked to write
GRADIENT, PARAMETER, BUFFER = "gradient/", "parameter/", "buffer/"


class TracePaths(RankLines):
    """The files of one run's trace."""

    def __init__(self, paths: RunPaths) -> None:
        super().__init__(paths.folder / "trace")
        self.model = self.folder / "model.json"

    def update(self, update: int) -> Path:
        """Return the file of weight update `update`, counted from 1."""
        return self.folder / ("update-%08d.safetensors" % update)

    def append(self, rank: int, line: Mapping[str, object]) -> None:
        """Append the line of an update of one rank."""
        append_json_line(self.rank(rank), line)

    def write_facts(self, facts: Mapping[str, object]) -> None:
        """Write model.json."""
        write_json(self.model, facts)

    def facts(self) -> Optional[Dict[str, Any]]:
        """Return what model.json says; None if it is missing or damaged."""
        facts = read_json(self.model)
        return facts if isinstance(facts, dict) else None
