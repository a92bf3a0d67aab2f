"""A run from a Python program: submitted, waited for, read, cancelled, resumed and exported."""

from __future__ import annotations

import json
from typing import Any

from tests.support.local_runs import PYTHON, Here
from tests.support.programs import ran

_TRAINED = """\
import json, trainjob
run = trainjob.submit(cluster="local", instances=2, epochs=1, env={"OMP_NUM_THREADS": "1"})
ended = run.wait(timeout_s=80)
print(json.dumps({
    "id": run.id,
    "state": ended.state,
    "kinds": sorted({line["kind"] for line in run.metrics()}),
    "log": run.logs(rank=1),
    "model": str(run.export("model.safetensors")),
    "accuracy": run.report().held_out_accuracy,
    "last": trainjob.run("last").id,
    "runs": [one.id for one in trainjob.runs()],
}))
"""
_STOPPED = """\
import json, trainjob
run = trainjob.submit(command=["python", "-c", "import time; time.sleep(600)"])
try:
    run.wait(timeout_s=0.5)
    late = None
except TimeoutError as error:
    late = str(error)
states = [run.cancel(grace_s=0).state, run.resume().status().attempt, run.cancel(grace_s=0).state]
print(json.dumps({"id": run.id, "late": late, "states": states}))
"""


def program(here: Here, text: str) -> Any:
    words = [PYTHON, "-c", text]
    ended = ran(words, folder=here.project, environ=here.environ, timeout_s=110, code=0)
    return json.loads(ended.stdout)


def test_a_run_is_submitted_waited_for_read_and_exported(here: Here) -> None:
    reported = program(here, _TRAINED)
    assert reported["state"] == "COMPLETED"
    assert {"train", "evaluation"} <= set(reported["kinds"])
    assert reported["accuracy"] > 0.3
    assert (here.project / reported["model"]).stat().st_size > 1000
    assert (reported["last"], reported["runs"]) == (reported["id"], [reported["id"]])
    assert here.json("status", reported["id"])["state"] == "COMPLETED"


def test_a_run_is_cancelled_and_resumed(here: Here) -> None:
    reported = program(here, _STOPPED)
    assert reported["late"] == f"run {reported['id']} has not ended within 0.5 s"
    assert (reported["states"][0], reported["states"][2]) == ("CANCELLED", "CANCELLED")


def test_importing_it_loads_nothing(here: Here) -> None:
    words = [PYTHON, "-c", "import sys; before = set(sys.modules); import trainjob; print(*set(sys.modules) - before)"]
    loaded = ran(words, environ=here.environ, code=0).stdout.split()
    assert [name for name in loaded if name.partition(".")[0] not in ("trainjob", "types")] == []
    assert [name for name in loaded if name.startswith("trainjob")] == ["trainjob"]
