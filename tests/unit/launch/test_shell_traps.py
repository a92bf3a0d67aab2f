"""Which commands are shell scripts that trap USR1."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.launch.ranks.supervise import traps_usr1

TRAP = "trap 'touch stop' USR1\n"


@pytest.mark.parametrize(
    ("text", "command", "expected"),
    [
        (TRAP, ["bash", "train.sh", "--lr", "1"], True),
        (TRAP, ["/bin/sh", "-e", "train.sh"], True),
        ("if true; then trap stop SIGUSR1 TERM; fi", ["bash", "train.sh"], True),
        ("set -e; trap stop TERM USR1", ["bash", "train.sh"], True),
        ("# trap stop USR1", ["bash", "train.sh"], False),
        ("echo trap USR1", ["bash", "train.sh"], False),
        ("trap stop TERM\nkill -USR1 $1", ["bash", "train.sh"], False),
        ("#!/usr/bin/env bash\n" + TRAP, ["./train.sh"], True),
        ("#!/usr/bin/env python3\n" + TRAP, ["./train.sh"], False),
        (TRAP, ["./train.sh"], False),
        (TRAP, ["python", "train.sh"], False),
        ("", ["bash", "-lc", "trap stop USR1; sleep 5"], True),
        ("", ["bash", "-c", "python train.py"], False),
        ("", ["bash", "missing.sh"], False),
        ("", ["bash"], False),
    ],
)
def test_which_commands_trap_usr1(tmp_path: Path, text: str, command: list[str], expected: bool) -> None:
    (tmp_path / "train.sh").write_text(text)
    assert traps_usr1(command, tmp_path) == expected
