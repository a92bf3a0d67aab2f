"""What the processes of a command note about their start, and what a launcher makes of it."""

from __future__ import annotations

from tests.support.cases import each
from trainjob.launch.witness.stacks import start_up

STARTED, UPDATED = 100.0, 200.0


@each(
    ("noted", "expected"),
    [
        ("", {}),
        ("imported 7 103.500\nimported 7 110.000\n", {"imports": 10.0}),
        ("imported 7 103.500\nmet 7 105.000 125.500\n", {"imports": 3.5, "rendezvous": 20.5}),
        # torchrun imports torch, and starts the ranks that do.
        ("imported 7 103\nimported 8 115\nmet 8 120 121\nended 8\n", {"imports": 15.0, "rendezvous": 1.0}),
        # Workers of a loader import it after the first rank has.
        ("imported 7 103\nimported 9 150\n", {"imports": 3.0}),
        # What comes after the ranks have met, or after the first update, does not hold up the start.
        ("imported 7 103\nmet 7 110 111\nimported 7 150\n", {"imports": 3.0, "rendezvous": 1.0}),
        ("imported 7 103\nimported 7 250\nmet 7 300 301\n", {"imports": 3.0}),
        (
            "imported 7 103\nread 7 120 121\nread 7 121 125\ncompiled 7 130 140\nread 7 210 211\n",
            {"imports": 3.0, "data": 5.0, "compile": 10.0, "first update": 65.0},
        ),
        # A graph that was compiled before the samples were read is no part of what came after them.
        (
            "imported 7 103\ncompiled 7 110 140\nread 7 150 151\n",
            {"imports": 3.0, "data": 1.0, "compile": 30.0, "first update": 49.0},
        ),
        ("imported 7 103\nread 9 120 121\ncompiled 9 130 140\n", {"imports": 3.0}),
        ("Thread 0x1 (most recent call first):\nimported seven\n", {}),
    ],
)
def test_one_process_tells_the_parts(noted: str, expected: dict[str, float]) -> None:
    assert start_up(noted, STARTED, UPDATED) == expected
