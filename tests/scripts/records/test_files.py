"""Files that survive an interruption: old or new, never a part."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT
from tests.support.contract_cases import WRITER, start
from trainjob.records import files

SIZE = 200_000


def killed_while(action: str, path: Path, times: int = 8) -> Iterator[None]:
    """Yield each time after a writer of `path` has been killed at a random moment of its work."""
    chance = random.Random(1)
    for _ in range(times):
        with start(WRITER.format(root=str(ROOT), size=SIZE, action=action), path) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "at work\n"
            time.sleep(chance.uniform(0.0, 0.02))
            writer.kill()
        yield


def test_a_kill_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path, seen = tmp_path / "f", set()
    for _ in killed_while("write_atomically(path, texts[turn % 2])", path):
        seen.add(path.read_text())
    assert seen <= {"a" * SIZE, "b" * SIZE}


def test_a_kill_tears_at_most_the_last_line_and_the_next_append_heals(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    for _ in killed_while("append_json_line(path, {'turn': turn, 'text': texts[0]})", path):
        files.append_json_line(path, {"turn": -1})
        assert list(files.read_json_lines(path))[-1] == {"turn": -1}
    lines = path.read_bytes().split(b"\n")
    whole = list(files.read_json_lines(path))
    assert len(whole) >= len(lines) - 1 - 8
    assert all(line == {"turn": -1} or len(line["text"]) == SIZE for line in whole)
