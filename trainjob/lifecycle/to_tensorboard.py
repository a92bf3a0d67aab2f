"""Event files for TensorBoard: one folder a run, and in it one more file for each export that has something new."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.lifecycle.history import Exported, History, Point, plain_id
from trainjob.records.files import read_json, write_json

# What was exported already. TensorBoard reads files whose names contain "tfevents" alone.
_RECORD = "trainjob-export.json"


def export(history: History, target: str) -> Exported:
    """Add what is new of a run to TARGET/RUN, a log directory for TensorBoard. Raises UserError."""
    folder = Path(target, *plain_id(history.name, "-_.:").split(":"))
    record = read_json(folder / _RECORD)
    record = record if isinstance(record, dict) else {}
    now = {
        "lines": record.get("lines", 0),
        "attempt": record.get("attempt", 0),
        "began_at_s": record.get("began_at_s", history.began_at_s),
        "facts": [history.settings, history.places, history.state],
    }
    lines = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        events = _Events(folder, now["began_at_s"])
        for point in history.points(now["lines"]):
            events.add(point, begins_attempt=point.attempt != now["attempt"])
            now |= {"lines": point.line, "attempt": point.attempt}
            lines += 1
        if record.get("facts") != json.loads(json.dumps(now["facts"])):
            events.describe(history)
        events.close()
        write_json(folder / _RECORD, now)
    except OSError as error:
        raise UserError(
            f"--tensorboard {target}: {folder} can't be written: {error.strerror}", "choose a folder that you may write"
        ) from None
    return Exported(str(folder), lines)


class _Events:
    """One event file, which is there once something was written to it."""

    def __init__(self, folder: Path, began_at_s: float) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise UserError(
                "--tensorboard needs the package tensorboard", package.install_command("tensorboard"), "missing-package"
            ) from None
        self._events, self._summaries, self._open = event_pb2, summary_pb2, EventFileWriter
        self._folder, self._began_at_s = folder, began_at_s
        self._writer: Any = None
        self._update = 0

    def add(self, point: Point, *, begins_attempt: bool) -> None:
        """Write the figures of one line; the first of an attempt takes back what others had from its update on."""
        at_s = self._began_at_s + point.elapsed_s
        if begins_attempt:
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(self._events.Event(wall_time=at_s, step=point.update, session_log=start))
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in point.figures.items()]
        summary = self._summaries.Summary(value=values)
        self._write(self._events.Event(wall_time=at_s, step=point.update, summary=summary))
        self._update = point.update

    def describe(self, history: History) -> None:
        """Write settings and places: as a text, and as hyperparameters by which TensorBoard compares runs."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.metadata import create_summary_metadata

        rows = {"state": history.state, **history.places, **history.settings}
        table = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items())
        metadata = create_summary_metadata(display_name="run", description="")
        text = self._summaries.Summary()
        value = text.value.add(tag="run", metadata=metadata)
        value.tensor.dtype = 7  # DT_STRING
        value.tensor.string_val.append(f"| | |\n|---|---|\n{table}".encode())
        value.tensor.tensor_shape.dim.add(size=1)
        at_s = time.time()
        self._write(self._events.Event(wall_time=at_s, step=self._update, summary=text))
        self._write(self._events.Event(wall_time=at_s, summary=hparams_pb(dict(history.settings))))

    def _write(self, event: Any) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._folder))
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.close()


def _cell(value: object) -> str:
    """Return a value for a Markdown table: nothing in it is a mark, and TensorBoard shows no HTML."""
    return "".join(f"&#{ord(one)};" if one in "|\\`*_<>&[]\n\r" else one for one in str(value))
