"""`trainjob verify --resume -- python train.py`: interrupted, started again, and compared with itself."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import PYTHON, Here
from tests.support.verdicts import verify

PLAIN = Path(__file__).parents[3] / "bench" / "resume_scripts" / "plain.py"


def verify_plain(here: Here, *words: str, by: str, interruptions: int = 1, code: int = 0) -> Any:
    here.write("plain.py", PLAIN.read_text())
    asked = ("--resume", "--by", by, "--interruptions", str(interruptions))
    return verify(here, *asked, "--", PYTHON, "plain.py", "--epochs", "2", *words, code=code)


def test_a_script_that_resumes_is_equal(here: Here) -> None:
    verdict = verify_plain(here, by="time-limit")
    assert verdict["equal"]
    (one,) = verdict["interruptions"]
    assert one["state"] == "STOPPED"
    assert one["continued_at"] == one["after"]
    assert verdict["files"] == ["checkpoints/last.pt"]


@pytest.mark.parametrize(("fault", "by", "code"), [("rng", "time-limit", "rng"), ("torn", "kill", "torn-checkpoint")])
def test_what_a_script_loses_is_named(here: Here, fault: str, by: str, code: str) -> None:
    verdict = verify_plain(here, "--fault", fault, by=by, code=1)
    assert [one["code"] for one in verdict["findings"]] == [code]
    assert not verdict["inconclusive"]


def test_a_script_that_differs_from_itself_is_inconclusive(here: Here) -> None:
    verdict = verify_plain(here, "--right", "unseeded", by="kill", code=1)
    assert verdict["inconclusive"]
    assert "torch.manual_seed" in verdict["findings"][0]["cure"]


def test_the_hook_changes_nothing_that_the_script_prints(here: Here) -> None:
    here.write(
        "plain.py", PLAIN.read_text() + "print(sum(float(w.detach().double().sum()) for w in model.parameters()))\n"
    )
    hook = {"PYTHONPATH": str(PLAIN.parents[2] / "trainjob" / "launch" / "updates")}
    record = {**hook, "TRAINJOB_RECORD_UPDATES": str(here.folder), "TRAINJOB_RUN_DIR": str(here.folder / "run")}
    printed = []
    for number, more in enumerate(({}, record)):
        folder = here.folder / str(number)
        folder.mkdir()
        words = [PYTHON, str(here.project / "plain.py"), "--epochs", "1"]
        environ = {**here.environ, "OMP_NUM_THREADS": "1", **more}
        printed.append(subprocess.run(words, cwd=folder, env=environ, check=True, capture_output=True).stdout)
    assert printed[0] == printed[1]
    assert (here.folder / "run" / "updates" / "rank-0000.jsonl").read_text().count('"event":"update"') == 12


@pytest.mark.parametrize(
    ("words", "codes"), [((), []), (("--fault", "accumulation-not-divided"), ["accumulation-not-divided"])]
)
def test_ranks_are_compared_with_one(here: Here, words: tuple[str, ...], codes: list[str]) -> None:
    here.write("ddp.py", PLAIN.with_name("ddp.py").read_text())
    verdict = verify(here, "--alone", "--accumulate 2", "--", PYTHON, "ddp.py", *words, code=1 if codes else 0)
    assert [one["code"] for one in verdict["findings"]] == codes
    assert verdict["updates"] == 8
