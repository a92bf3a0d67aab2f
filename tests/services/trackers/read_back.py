"""Prints as JSON what TensorBoard or MLflow reads of an exported run: read_back.py TOOL PLACE."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
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


if __name__ == "__main__":
    readers: dict[str, Callable[[str], dict[str, Any]]] = {"tensorboard": tensorboard, "mlflow": mlflow}
    json.dump(readers[sys.argv[1]](sys.argv[2]), sys.stdout)
