"""Trace folders as a run leaves them, with whatever in them a test needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from trainjob.contract.paths import RunPaths
from trainjob.records.trace import TracePaths
from trainjob.train.recording import safetensors
from trainjob.verify.tasks import traces

GRADIENT = (1.0, 2.0, -3.0)
# One update's micro batches by rank.
SAMPLES = [{"0": ["a", "b"]}, {"1": ["c", "d"]}]


class Crafted:
    """A run directory with a trace."""

    def __init__(
        self, folder: Path, layers: Any = ("Linear",), *, repeatable: bool = True, reads_buffers: bool = False
    ) -> None:
        self.paths = RunPaths(folder)
        self.files = TracePaths(self.paths)
        self.files.folder.mkdir(parents=True)
        noted = {"layers": layers, "repeatable": repeatable, "reads_buffers": reads_buffers}
        self.files.model.write_text(json.dumps(noted))

    def update(
        self,
        number: int = 1,
        *,
        gradient: Any = GRADIENT,
        parameter: Any = GRADIENT,
        buffer: Any = (0.0,),
        loss: float = 0.5,
        samples: Any = SAMPLES,
        gradients: Any = ("g", "g"),
        parameters: Any = ("p", "p"),
        attempt: int = 1,
    ) -> Any:
        """Write one update of as many ranks as `samples` has, and return self."""
        for rank, rows in enumerate(samples):
            line = {"attempt": attempt, "update": number, "samples": rows}
            self.line(rank, json.dumps({**line, "gradients": gradients[rank], "parameters": parameters[rank]}))
        values = {"gradient/w": gradient, "parameter/w": parameter, "buffer/mean": buffer}
        tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        safetensors.save(self.files.update(number), tensors)
        with open(self.paths.metrics, "a") as stream:
            stream.write(json.dumps({"kind": "train", "update": number, "loss": loss}) + "\n")
        return self

    def line(self, rank: Any, text: Any) -> None:
        with open(self.files.rank(rank), "a") as stream:
            stream.write(text + "\n")

    def read(self) -> Any:
        return traces.read(self.paths)
