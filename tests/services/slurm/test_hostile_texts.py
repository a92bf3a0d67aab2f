"""Any text arrives unchanged at every rank through render, sbatch and srun, or is refused before submission."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.attack import Attack, count_words
from tests.support.hostile_texts import hostile, names_for_folders
from tests.support.slurm_jobs import LIMIT_S, cluster_file, parsed, redirects
from trainjob.backends import folder as folders
from trainjob.cluster.job import Job
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.quoting import QuotingError
from trainjob.kinds.table import KINDS
from trainjob.planning.build import plan
from trainjob.rehearse.slurm.description import Description
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm
from trainjob.render.rendered import Rendered, render
from trainjob.render.request import Request

pytestmark = pytest.mark.timeout(1800)

RECORDER = """\
import json, os, sys
where = os.path.join(os.environ["TRAINJOB_RUN_DIR"], "rank-" + os.environ["RANK"] + ".json")
with open(where, "w", encoding="utf-8") as stream:
    json.dump({"arguments": sys.argv[1:], "environment": dict(os.environ)}, stream)
"""
# Linux takes 2 MB of arguments and environment together.
_TEXTS_A_JOB = 250
_FEW, _MANY = 500, 10_000


@pytest.fixture(scope="module")
def slurm(needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    needs("slurm")
    settings = {"MaxJobCount": "20000", "MinJobAge": "2"}
    with private_slurm(Description(nodes=2, cpus=8, settings=settings)) as made:
        yield made


def request(job: dict[str, Any], **values: Any) -> Request:
    cluster = parsed(cluster_file(nodes={"count": 2, "cpus": 8}, **values))
    asked = Job(**job)
    return Request(cluster, "cluster file hostile.yaml", asked, {}, plan("hostile", cluster, asked))


def rendered(job: dict[str, Any], **values: Any) -> Rendered:
    asked = request(job, **values)
    return render(asked, KINDS[asked.cluster.kind], package.companion("templates"))


def run_folder(target: Path, files: Rendered) -> RunPaths:
    paths = folders.create(target, files, None, None)
    paths.project.mkdir(parents=True)
    return paths


def finish(slurm: PrivateSlurm, paths: RunPaths) -> list[dict[str, Any]]:
    """Return what both ranks have recorded."""
    slurm.run(["sbatch", "job.sbatch"], folder=paths.folder, environment=redirects())
    deadline = time.monotonic() + LIMIT_S
    while slurm.run(["squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING"]).text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    logs = "".join(path.read_text(errors="replace") for path in sorted(paths.logs.iterdir()))
    assert paths.state.exists(), logs
    assert paths.state.read_text() == "COMPLETED\n", logs
    return [json.loads((paths.folder / f"rank-{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]


def arrived(slurm: PrivateSlurm, base: Path, texts: list[str]) -> list[tuple[list[str], list[str]]]:
    """Return what each of two ranks got that was sent `texts`: its arguments, and values of its environment."""
    values = {f"{'v' if number % 2 else 'V'}alue_{number}": text for number, text in enumerate(texts)}
    command = [sys.executable, "-c", RECORDER, *texts]
    files = rendered({"command": command, "instances": 2, "hosts": 2, "env": values})
    ranks = finish(slurm, run_folder(base, files))
    assert not list(base.rglob("canary"))
    return [(rank["arguments"], [rank["environment"].get(name) for name in values]) for rank in ranks]


@pytest.mark.parametrize("part", range(_FEW // _TEXTS_A_JOB))
def test_arguments_and_environment_values_arrive(
    attack: Attack, slurm: PrivateSlurm, tmp_path: Path, part: int
) -> None:
    texts = hostile(_FEW)[part * _TEXTS_A_JOB : (part + 1) * _TEXTS_A_JOB]
    received = arrived(slurm, tmp_path / "run", texts)
    assert [environment for _, environment in received] == [texts] * 2
    count_words(attack, "Slurm", texts, [arguments for arguments, _ in received])


@pytest.mark.full
def test_ten_thousand_arguments_and_environment_values_arrive(slurm: PrivateSlurm, tmp_path: Path) -> None:
    texts = hostile(_MANY, seed=2)
    for start in range(0, _MANY, _TEXTS_A_JOB):
        part = texts[start : start + _TEXTS_A_JOB]
        assert arrived(slurm, tmp_path / f"run-{start}", part) == [(part, part)] * 2


@pytest.mark.parametrize(("count", "seed"), [(_FEW, 1), pytest.param(_MANY, 3, marks=pytest.mark.full)])
def test_job_names_and_comments_arrive_or_are_refused(
    slurm: PrivateSlurm, tmp_path: Path, count: int, seed: int
) -> None:
    """Each text is submitted as job name and as comment, held: the controller holds it, or we have refused it."""
    carried, refused = {}, []
    for text in hostile(count, seed=seed):
        try:
            files = rendered({"command": ["true"], "name": text}, directives={"comment": text})
        except (UserError, ValueError):
            refused.append(text)
            continue
        script = tmp_path / "job.sbatch"
        script.write_bytes(files.files["job.sbatch"].content)
        sent = slurm.run(["sbatch", "--parsable", "--hold", str(script)], folder=tmp_path)
        carried[sent.text.strip()] = text
    held = _held(slurm)
    slurm.run(["scancel", *carried])
    assert held == {job: (text, text) for job, text in carried.items()}
    assert [text for text in refused if not _is_awkward(text)] == []
    assert len(carried) > count // 20


def _held(slurm: PrivateSlurm) -> dict[str, tuple[str, str]]:
    # Records are apart by a character that no directive may hold; squeue may print any other.
    lines = slurm.run(["squeue", "--noheader", "--states=PENDING", "--format=%i\x1f%j\x1f%k"]).text.split("\n")
    fields = [line.split("\x1f") for line in lines if line]
    return {job: (name, comment) for job, name, comment in fields}


def _is_awkward(text: str) -> bool:
    """Return whether a text may be refused: empty, a control character, a slash, a dash first, or too long."""
    forbidden = any(sign in text for sign in "/\u2028\u2029") or any(
        ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in text
    )
    return forbidden or not text.strip() or text.startswith("-") or len(text.encode()) > 200 or text != text.strip()


def test_a_runs_dir_that_slurm_would_misread_is_refused() -> None:
    with pytest.raises(ValueError, match="backslash"):
        parsed(cluster_file(runs_dir="/shared/a\\b"))


@pytest.mark.parametrize("text", ["a\nb", "", "\x1b[31m"])
def test_what_a_directive_cannot_carry_is_refused(text: str) -> None:
    with pytest.raises((QuotingError, UserError, ValueError)):
        rendered({"command": ["true"]}, directives={"comment": text})


def test_run_directories_of_any_name_hold_a_job(slurm: PrivateSlurm, tmp_path: Path) -> None:
    # Several jobs at once on the same two nodes.
    directives = {"cpus-per-task": 1, "mem": "1G"}
    files = rendered({"command": [sys.executable, "-c", RECORDER], "instances": 2, "hosts": 2}, directives=directives)
    # Slurm interprets a backslash in the path of a job's output, so a cluster file can't name such a runs_dir.
    texts = [text for text in hostile(_FEW, seed=4) if "\\" not in text]
    names = list(names_for_folders(texts, most=20))
    for name in names:
        paths = run_folder(tmp_path / name, files)
        slurm.run(["sbatch", "job.sbatch"], folder=paths.folder, environment=redirects())
    deadline = time.monotonic() + LIMIT_S
    while slurm.run(["squeue", "--noheader"]).text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    wrong = [name for name in names if not _both_ranks_know(tmp_path / name)]
    assert not wrong
    assert not list(tmp_path.rglob("canary"))


def _both_ranks_know(run: Path) -> bool:
    recorded = [run / f"rank-{rank}.json" for rank in (0, 1)]
    return all(
        path.exists() and json.loads(path.read_text())["environment"]["TRAINJOB_RUN_DIR"] == str(run)
        for path in recorded
    )
