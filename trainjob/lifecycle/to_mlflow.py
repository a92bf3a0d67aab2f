"""A run of MLflow for each run of ours, known again by a tag; each export logs the metrics that are new."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from trainjob.contract import package, states
from trainjob.contract.errors import UserError
from trainjob.lifecycle.history import Exported, History, plain_id

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

T = TypeVar("T")

_RUN, _LINES = "trainjob.run", "trainjob.lines"
# The most that one request to a tracking server takes.
_METRICS_A_REQUEST, _PARAMETERS_A_REQUEST, _LONGEST_VALUE = 1000, 100, 500
_STATUS = {
    **dict.fromkeys(states.ACTIVE, "RUNNING"),
    states.PENDING: "SCHEDULED",
    states.COMPLETED: "FINISHED",
    states.STOPPED: "FINISHED",
    states.CANCELLED: "KILLED",
}


def export(history: History, target: str) -> Exported:
    """Add what is new of a run to the tracking server or store with the address `target`. Raises UserError."""
    # A user waits: by default MLflow asks a server that does not answer for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise UserError(
            "--mlflow needs the package mlflow", package.install_command("mlflow"), "missing-package"
        ) from None
    # A new store tells about each of its tables.
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return _exported(MlflowClient(tracking_uri=target), history)
    except MlflowException as error:
        # The whole address may contain a password, and so may the error.
        why = (str(error).splitlines() or [""])[0].replace(target, _without_password(target))
        raise UserError(
            f"--mlflow: {_without_password(target)} refuses the run: {why}",
            "correct the address, or what you may write there",
        ) from None
    except ImportError as error:
        raise UserError(
            f"--mlflow {_without_password(target)} needs the package {error.name}",
            package.install_command("mlflow"),
            "missing-package",
        ) from None


def _exported(client: MlflowClient, history: History) -> Exported:
    from mlflow.entities import Metric, Param

    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or history.group
    run = _run(client, experiment, history)
    run_id, began_ms = run.info.run_id, run.info.start_time
    known = run.data.params  # MLflow keeps the first value of a parameter for good
    settings = ((plain_id(name, "-_./ "), str(value)[:_LONGEST_VALUE]) for name, value in history.settings.items())
    missing = (Param(name, value) for name, value in settings if name not in known)
    for some in _batches(missing, _PARAMETERS_A_REQUEST):
        client.log_batch(run_id, params=some)
    lines = last = int(run.data.tags.get(_LINES, "0"))
    written = 0
    metrics = (
        (point.line, Metric(plain_id(name, "-_./ "), value, began_ms + round(1000 * point.elapsed_s), point.update))
        for point in history.points(lines)
        for name, value in point.figures.items()
    )
    for some in _batches(metrics, _METRICS_A_REQUEST):
        client.log_batch(run_id, metrics=[metric for _, metric in some])
        written += len({line for line, _ in some} - {last})
        last = some[-1][0]
        # The last line may continue in the next request: logging a metric twice changes nothing.
        client.set_tag(run_id, _LINES, str(last - 1))
    client.set_tag(run_id, _LINES, str(last))
    for name, place in history.places.items():
        client.set_tag(run_id, f"trainjob.{name.replace(' ', '_')}", place)
    client.set_tag(run_id, "trainjob.state", history.state)
    status = _STATUS.get(history.state, "FAILED")
    if history.state in states.ACTIVE:
        client.update_run(run_id, status=status)
    else:
        client.set_terminated(run_id, status=status)
    return Exported(f"experiment {experiment}, run {run_id}", written)


def _run(client: MlflowClient, experiment: str, history: History) -> Run:
    """Return MLflow's run of ours; it is made by the first export."""
    known = client.get_experiment_by_name(experiment)
    experiment_id = client.create_experiment(experiment) if known is None else known.experiment_id
    name = plain_id(history.name, "-_.:")
    runs = client.search_runs([experiment_id], filter_string=f"tags.`{_RUN}` = '{name}'", max_results=1)
    if runs:
        return runs[0]
    began_ms = round(1000 * history.began_at_s)
    return client.create_run(experiment_id, start_time=began_ms, run_name=history.name, tags={_RUN: name})


def _batches(values: Iterator[T], most: int) -> Iterator[list[T]]:
    return iter(lambda: list(itertools.islice(values, most)), [])


def _without_password(address: str) -> str:
    parts = urlsplit(address)
    return address if "@" not in parts.netloc else parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
