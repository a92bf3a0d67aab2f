"""Prints as JSON what TensorBoard, MLflow or W&B reads of an exported run: read_back.py TOOL PLACE."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Curves = dict[str, list[tuple[int, float]]]


def tensorboard(place: str) -> dict[str, Any]:
    """Read every folder of event files as TensorBoard does."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
    from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

    events = EventMultiplexer().AddRunsFromDirectory(place).Reload()
    runs = {}
    for run in events.Runs():
        of_run = events.GetAccumulator(run)
        tags = of_run.Tags()
        curves = {tag: [(one.step, one.value) for one in of_run.Scalars(tag)] for tag in tags["scalars"]}
        content = of_run.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        parameters = parse_session_start_info_plugin_data(content).hparams
        settings = {name: getattr(value, value.WhichOneof("kind")) for name, value in parameters.items()}
        texts = [text.decode() for event in of_run.Tensors("run") for text in event.tensor_proto.string_val]
        runs[run] = {"curves": curves, "settings": settings, "text": texts[-1], "texts": len(texts)}
    return runs


def mlflow(place: str) -> dict[str, Any]:
    """Read every run of every experiment in the store."""
    from mlflow import MlflowClient

    client, runs = MlflowClient(tracking_uri=place), {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            curves = {
                name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
            facts = {"status": run.info.status, "settings": run.data.params, "tags": run.data.tags}
            runs[run.info.run_name] = {"experiment": experiment.name, "curves": curves, **facts}
    return runs


def wandb(place: str) -> dict[str, Any]:
    """Read every offline run as W&B's own viewer does."""
    runs = {}
    for path in Path(place).glob("wandb/offline-run-*/run-*.wandb"):
        curves: Curves = {}
        facts: dict[str, Any] = {}
        for record in _records(path):
            content = record.get(record["type"])
            if record["type"] == "run":
                settings = content["config"]["update"]
                facts = {"name": content["display_name"], "project": content["project"], "settings": settings}
            elif record["type"] == "history":
                for name, value in content["item"].items():
                    curves.setdefault(name, []).append((content["item"]["update"], value))
            elif record["type"] == "exit":
                facts["exit_code"] = content["exit_code"]
        runs[path.stem.removeprefix("run-")] = {**facts, "curves": curves}
    return runs


def _records(path: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    printed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


if __name__ == "__main__":
    readers: dict[str, Callable[[str], dict[str, Any]]] = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}
    json.dump(readers[sys.argv[1]](sys.argv[2]), sys.stdout)
