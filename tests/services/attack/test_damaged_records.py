"""Whatever a run directory holds, the commands that show many runs show all others, and name what is damaged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.attack.test_damaged_checkpoints import OTHER_THINGS
from tests.support.attack import Attack
from tests.support.limits import within
from tests.support.run_folders import made, only_one_is_running
from trainjob.cli.main import main
from trainjob.contract import states
from trainjob.contract.paths import RunPaths

Damage = Callable[[RunPaths], object]
_OTHER_VALUES: tuple[Any, ...] = (None, "x", 7, [], {}, 1.5, True, -1, 10**30)
_FAILURE = {"attempt": 1, "rank": 0, "host": "n1", "exit_code": 1, "command": ["x"], "tail": ["y"], "kernel": []}
_PROGRESS = {"attempt": 1, "epoch": 1, "update": 5, "total_updates": 9, "heartbeat": 1.0, "durable_update": 0}
_METRIC = {
    "kind": "train",
    "attempt": 1,
    "epoch": 1,
    "update": 5,
    "loss": 0.5,
    "samples_per_s": 9.0,
    "seconds": {"data": 1.0},
}
_HOST = {"attempt": 1, "rank": 0, "host": "n1", "packages": {"torch": "2"}}
_FILES = (
    *("job.json", "submission.json", "attempt", "state", "exit_code", "progress.json", "failure.json"),
    *("metrics.jsonl", "requeue", "hosts/rank-0000.json", "logs/scheduler.out", "logs/rank-0000.log", "logs"),
)


def attacked(folder: Path) -> RunPaths:
    paths = made(folder, "abcd-attacked", state="FAILED")
    (paths.folder / "hosts").mkdir()
    for name, content in (
        ("failure.json", _FAILURE),
        ("progress.json", _PROGRESS),
        ("hosts/rank-0000.json", _HOST),
    ):
        (paths.folder / name).write_text(json.dumps(content))
    paths.metrics.write_text((json.dumps(_METRIC) + "\n") * 3)
    paths.exit_code.write_text("1\n")
    paths.rank_log(0).write_text("a line\n")
    paths.scheduler_log.write_text("--- attempt 1 · job.sh\na line\n")
    return paths


def put(name: str, make: Callable[[Path], object]) -> Damage:
    def damage(paths: RunPaths) -> None:
        path = paths.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        make(path)

    return damage


def cut(name: str, share: float) -> Damage:
    def damage(paths: RunPaths) -> None:
        path = paths.folder / name
        os.truncate(path, int(share * path.stat().st_size))

    return damage


def with_field(name: str, field: str, value: Any) -> Damage:
    def damage(paths: RunPaths) -> None:
        path = paths.folder / name
        content = json.loads(path.read_text().splitlines()[0] if name == "metrics.jsonl" else path.read_text())
        path.write_text(json.dumps({**content, field: value}) + "\n")

    return damage


def damages() -> Iterator[tuple[str, Damage]]:
    """Yield every trial's name, and what it does to the run directory."""
    yield from of_files()
    yield from of_fields()
    for word in ("-1", "08", "x y", "9" * 3000, "RUNNING\0", "\x1b[2J"):
        for name in ("attempt", "state", "exit_code"):
            yield f"{name} holds {word[:12]!r}", put(name, lambda path, word=word: path.write_text(word))  # type: ignore[misc]


def of_files() -> Iterator[tuple[str, Damage]]:
    for name in _FILES:
        # A log may be of any size, and is read to its end.
        is_log = name.endswith((".jsonl", ".out", ".log"))
        for what, make in OTHER_THINGS.items():
            if not (is_log and what == "8 GB of nothing"):
                yield f"{what} as {name}", put(name, make)
        if is_log:
            yield f"2 MB of zeros as {name}", put(name, lambda path: path.write_bytes(bytes(2_000_000)))
    for name in ("job.json", "submission.json", "progress.json", "failure.json", "metrics.jsonl"):
        for share in (0.1, 0.5, 0.9, 0.99):
            yield f"{name} cut to {share}", cut(name, share)


def of_fields() -> Iterator[tuple[str, Damage]]:
    for name, fields in (
        ("submission.json", ("backend", "cluster", "native", "submitted_at", "attempt", "remote", "earlier")),
        ("failure.json", ("rank", "exit_code", "tail", "memory", "one_more")),
        ("progress.json", ("update", "heartbeat", "passed_over")),
        ("metrics.jsonl", ("kind", "update", "loss", "seconds")),
        ("job.json", ("name", "plan")),
    ):
        for field in fields:
            for value in _OTHER_VALUES:
                yield f"{name}: {field} is {value!r}", with_field(name, field, value)


@pytest.fixture(autouse=True)
def _one_script_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    only_one_is_running(monkeypatch)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Return what a command prints; a bug, or text that acts on the terminal, fails the trial."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    assert ended.value.code in (0, 1), (words, ended.value.code, err[-500:])
    assert "BUG" not in err, (words, err[-500:])
    assert "Traceback" not in err + out, (words, err[-500:])
    assert "\x1b" not in err + out, words
    return out, err


def test_a_damaged_run_is_one_line_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attack: Attack
) -> None:
    whole = made(tmp_path, "efgh-whole", state="COMPLETED")
    paths = attacked(tmp_path)
    kept = tmp_path / "kept"
    shutil.copytree(paths.folder, kept)
    with attack("damaged records") as trials:
        for name, damage in damages():
            damage(paths)
            with trials.trial(name), within(20):
                held(paths, whole, capsys)
                if any(part in name for part in ("log", "metrics", "job.json", "hosts")):
                    printed(capsys, "report", paths.id)
                    printed(capsys, "logs", paths.id)
            shutil.rmtree(paths.folder)
            shutil.copytree(kept, paths.folder)
        assert trials.tried >= 370


def held(paths: RunPaths, whole: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "list")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]].count(whole.id) == 1, lines
    assert [line.split()[0] for line in lines[1:]].count(paths.id) == 1, lines
    assert all(line.split()[1] in states.ALL for line in lines[1:]), lines
    assert whole.id in printed(capsys, "prune", "--older-than-days", "0")[0]
    assert json.loads(printed(capsys, "status", paths.id, "--json")[0])["id"] == paths.id


@pytest.mark.parametrize(
    ("name", "field", "value", "line"),
    [
        ("failure.json", "exit_code", "x", 'damaged: failure.json: exit_code is "x", expected a whole number'),
        (
            "submission.json",
            "submitted_at",
            "soon",
            "damaged: submission.json: submitted_at is 'soon', expected a time",
        ),
        *(
            ("submission.json", "script", value, f"damaged: submission.json: script is {value!r}, expected job.sh")
            for value in ("../../../evil.sh", "-c", "/tmp/evil.sh", "job.sh x", "")
        ),
        (
            "submission.json",
            "remote",
            {"host": "-oProxyCommand=evil", "user": None, "folder": "/runs/x"},
            "damaged: submission.json: remote.host is '-oProxyCommand=evil', expected the name of a host",
        ),
        ("progress.json", "update", 1.5, "damaged: progress.json: update is 1.5, expected a whole number"),
    ],
)
def test_the_list_names_field_and_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, field: str, value: Any, line: str
) -> None:
    with_field(name, field, value)(attacked(tmp_path))
    assert line in printed(capsys, "list")[0]


def test_fields_of_a_later_version_are_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_field("failure.json", "one_more", 1)(attacked(tmp_path))
    out, _ = printed(capsys, "list")
    assert "damaged" not in out
    assert "rank 0 on n1 failed first" in printed(capsys, "status", "abcd")[0]
