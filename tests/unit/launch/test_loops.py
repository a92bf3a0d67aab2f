"""In how many loops of its own a program makes an update, and whether they may end early."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trainjob.launch.hooks.trainjob_hooks.loops import MANY, loops_around

CASES = {
    "no loop": ("step()", 0),
    "one": ("for at in range(3): step()", 1),
    "epochs of batches": ("for epoch in range(2):\n    for batch in 'ab':\n        step()", 2),
    "around a function": ("def train():\n    for at in range(3): step()\nfor epoch in range(2): train()", 2),
    "beside": ("for at in range(3): pass\nstep()\nwhile False: break", 0),
    "a condition": ("at = 0\nwhile at < 3:\n    at += 1\n    step()", 1),
    "a flag": ("goes_on = True\nwhile goes_on:\n    goes_on = False\n    step()", MANY),
    "two conditions": ("at = 0\nwhile at < 3 and True:\n    at += 1\n    step()", MANY),
    "a break": ("for at in range(3):\n    step()\n    if at > 5: break", MANY),
    "the break of a loop within": ("for at in range(3):\n    step()\n    for other in 'ab': break", 1),
    "a return": ("def train():\n    for at in range(3):\n        step()\n        if at > 5: return\ntrain()", MANY),
    "the return of a function within": ("for at in range(3):\n    def one(): return 1\n    step()", 1),
    "an exit": ("import sys\nfor at in range(3):\n    step()\n    if at > 5: sys.exit()", MANY),
    "the shorter of two": ("for one, other in zip('abc', 'ab'): step()", MANY),
    "from 1 to the last": ("for epoch in range(1, 3 + 1):\n    for batch in 'ab': step()", 2),
    "from a start": ("start = 0\nfor epoch in range(start, 3):\n    for batch in 'ab': step()", 2),
    "one too few": ("epochs = 3\nfor epoch in range(1, epochs):\n    for batch in 'ab': step()", MANY),
    "a part of its epochs": (
        "warmup_epochs = 3\nfor epoch in range(warmup_epochs):\n    for batch in 'ab': step()",
        MANY,
    ),
    "a number of something else": (
        "warm_rounds = 3\nfor at in range(warm_rounds):\n    for batch in 'ab': step()",
        MANY,
    ),
    "an epoch, of settings, as a number": (
        "class args: epoch = 3\nfor at in range(int(args.epoch)):\n    for batch in 'ab': step()",
        2,
    ),
    "one too many": ("epochs = 3\nfor epoch in range(epochs + 1):\n    for batch in 'ab': step()", MANY),
    "one too few around a function": (
        "def train():\n    for batch in 'ab': step()\nepochs = 3\nfor epoch in range(1, epochs): train()",
        MANY,
    ),
    "half of them": ("epochs = 4\nfor epoch in range(epochs // 2):\n    for batch in 'ab': step()", MANY),
    "an epoch that is left out": (
        "for epoch in range(3):\n    if not epoch: continue\n    for batch in 'ab': step()",
        MANY,
    ),
    "a batch that is left out": (
        "for epoch in range(3):\n    for batch in 'ab':\n        if not batch: continue\n        step()",
        2,
    ),
    "epochs that a condition ends": ("at = 0\nwhile at < 3:\n    at += 1\n    for batch in 'ab': step()", MANY),
    "a comprehension": ("[step() for at in range(3)]", MANY),
    "a generator": ("def steps():\n    for at in range(3): yield step()\nfor one in steps(): pass", 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loops_around_an_update_are_read_from_the_source(name: str, tmp_path: Path) -> None:
    source, expected = CASES[name]
    found, file = set(), tmp_path / "program.py"
    file.write_text(source)

    def step() -> None:
        frame: Any = sys._getframe(1)
        within = []
        while frame.f_code.co_filename == str(file):
            within.append(frame)
            frame = frame.f_back
        found.add(min(MANY, loops_around(Only(within))))

    exec(compile(source, str(file), "exec"), {"step": step, "__name__": "__main__"})
    assert found == {expected}


class Only:
    """A frame without those around the program, which are the test's own."""

    def __init__(self, frames: list[Any]) -> None:
        self.f_code, self.f_lineno, self.f_globals = frames[0].f_code, frames[0].f_lineno, frames[0].f_globals
        self.f_back = Only(frames[1:]) if frames[1:] else None


def test_a_program_whose_source_is_not_there_may_end_early(tmp_path: Path) -> None:
    found: list[int] = []
    code = compile("for at in range(2): step()", str(tmp_path / "gone.py"), "exec")
    exec(code, {"step": lambda: found.append(loops_around(Only([sys._getframe(1)])))})
    assert found == [MANY, MANY]
