"""Prints as JSON what TensorBoard reads of an exported run: read_back.py PLACE."""

from __future__ import annotations

import json
import sys
from typing import Any


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


if __name__ == "__main__":
    json.dump(tensorboard(sys.argv[1]), sys.stdout)
