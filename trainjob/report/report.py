"""What a run has done, computed from its folder alone: works on a copied folder, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.contract import attempts
from trainjob.contract import job as jobs
from trainjob.contract.files import read_json_lines, read_number, read_word
from trainjob.contract.paths import RunPaths

PHASES = ("data", "compute", "communication", "checkpoint")


@dataclass(frozen=True)
class Report:
    """Figures of one run. `samples_per_s` and `seconds` cover training alone, over all attempts."""

    id: str
    folder: str
    name: str
    state: str | None
    exit_code: int | None
    attempts: int
    instances: int
    epochs: int | None
    updates: int | None
    loss: float | None  # of the last training interval
    held_out_loss: float | None
    held_out_accuracy: float | None
    held_out_samples: int | None
    samples_per_s: float | None
    seconds: Mapping[str, float] | None

    def as_json(self) -> dict[str, Any]:
        """Return the report for `--json`."""
        return asdict(self)


def report(paths: RunPaths) -> Report:
    """Return the report of a run directory. Raises ContractError where there is no job.json."""
    record = jobs.read(paths.job)
    lines = list(read_json_lines(paths.metrics))
    training = last_of_each_update(line for line in lines if line.get("kind") == "train")
    held_out = last_of_each_update(line for line in lines if line.get("kind") == "evaluation")
    last, evaluated = (training or [{}])[-1], (held_out or [{}])[-1]
    return Report(
        id=paths.id,
        folder=str(paths.folder),
        name=record.name,
        state=read_word(paths.state),
        exit_code=read_number(paths.exit_code),
        attempts=attempts.current(paths),
        instances=record.plan["topology"]["instances"],
        epochs=_whole_epochs(evaluated, last),
        updates=last.get("update"),
        loss=last.get("loss"),
        held_out_loss=evaluated.get("loss"),
        held_out_accuracy=evaluated.get("accuracy"),
        held_out_samples=evaluated.get("samples"),
        samples_per_s=_rate(training),
        seconds=_phases(training),
    )


def last_of_each_update(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return one line an update, in order: a resumed attempt repeats some, and the later one counts."""
    by_update: dict[int, Mapping[str, Any]] = {}
    for line in lines:
        by_update[line["update"]] = line
    return [by_update[update] for update in sorted(by_update)]


def _whole_epochs(evaluated: Mapping[str, Any], last: Mapping[str, Any]) -> int | None:
    epoch: int | None = evaluated.get("epoch", last.get("epoch"))
    return epoch


def _phases(training: Iterable[Mapping[str, Any]]) -> dict[str, float] | None:
    total = dict.fromkeys(PHASES, 0.0)
    seen = False
    for line in training:
        seen = True
        for phase in PHASES:
            total[phase] += line["seconds"].get(phase, 0.0)
    return total if seen else None


def _rate(training: Iterable[Mapping[str, Any]]) -> float | None:
    seconds = samples = 0.0
    for line in training:
        took = sum(line["seconds"].values())
        seconds += took
        samples += line["samples_per_s"] * took
    return samples / seconds if seconds else None
