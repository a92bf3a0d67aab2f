"""What a rank prints, and what stands in a run's files, never reaches the terminal as anything but text."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess

import pytest

from tests.support.attack import Attack
from tests.support.local_runs import Here, Run
from tests.support.programs import TRAINJOB, ran

# Window title, clipboard, clear screen, the same in C1's one-character form, a question that the terminal answers, a
# backspace that hides, and text that runs from right to left.
SEQUENCES = (
    "\x1b]0;title\x07",
    "\x1b]52;c;Y2FuYXJ5\x07",
    "\x1b[2J",
    "\x9b2J",
    "\x9d0;title\x9c",
    "\x1b[c",
    "x\x08\x7f",
    "\u202etxet",
    "\x1b[1;31mred\x1b[0m",
    "\ufdd0red",
)
# The last rank prints and fails. Any other waits to be ended: one that failed first would end it before it prints.
PRINTS = f"""\
import os, sys, time
if int(os.environ["RANK"]) + 1 < int(os.environ["WORLD_SIZE"]):
    time.sleep(600)
print({"|".join(SEQUENCES)!r})
sys.exit(3)
"""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ufdd0]")
# The state of a run and the word "why" have a colour of ours on a terminal.
OURS = re.compile("\x1b\\[(?:1|32|36|1;31|1;33)m(?:[A-Z]+|why|trainjob|warning) *\x1b\\[0m")
COMMANDS = ("status RUN", "list", "logs RUN", "logs RUN --follow", "report RUN")


@pytest.fixture
def failed(here: Here) -> Run:
    here.write("prints.py", PRINTS)
    return here.follow("python", "prints.py", code=1)


def shown_on_a_terminal(here: Here, words: list[str]) -> str:
    """Return what a command prints when all its streams are a terminal."""
    mine, its = pty.openpty()
    process = subprocess.Popen(
        [TRAINJOB, *words], cwd=here.project, env=here.environ, stdin=its, stdout=its, stderr=its, close_fds=True
    )
    os.close(its)
    read = b""
    try:
        while block := os.read(mine, 65536):
            read += block
    except OSError:  # the other side is closed
        pass
    os.close(mine)
    process.wait(60)
    return read.decode().replace("\r\n", "\n")


def test_nothing_that_a_run_has_written_controls_the_terminal(attack: Attack, here: Here, failed: Run) -> None:
    written = {
        "state": "FAILED \x1b[2J\x9b2J",
        "exit_code": "3\x1b[2J",
        "logs/scheduler.out": f"no rank\n{SEQUENCES}\n" + "".join(SEQUENCES) + "\n",
    }
    with attack("terminal escapes") as trials:
        for changed in ((), tuple(written)):
            for name in changed:
                (failed.folder / name).write_text(written[name])
            for command in COMMANDS:
                words = command.replace("RUN", failed.id).split()
                with trials.trial(f"{command} with {changed}"):
                    text = shown_on_a_terminal(here, words)
                    assert not CONTROL.search(OURS.sub("", text)), text
                with trials.trial(f"{command} --json with {changed}"):
                    ended = ran([TRAINJOB, *words, "--json"], folder=here.project, environ=here.environ)
                    assert not CONTROL.search(ended.stdout + ended.stderr)
                    json.loads(ended.stdout)


def test_what_a_command_prints_is_shown_while_it_is_followed(here: Here) -> None:
    here.write("prints.py", PRINTS)
    words = ["submit", "--cluster", "local", "--instances", "1", "--follow", "--", "python", "prints.py"]
    text = shown_on_a_terminal(here, words)
    assert not CONTROL.search(OURS.sub("", text)), text
    assert text.count(r"\x1b[2J") >= 2  # as it came, and as the last line of the rank that failed
    assert OURS.search(text)


def test_the_output_of_one_rank_is_what_it_printed(here: Here, failed: Run) -> None:
    ended = subprocess.run(
        [TRAINJOB, "logs", failed.id, "--rank", "1"], cwd=here.project, env=here.environ, capture_output=True
    )
    assert "|".join(SEQUENCES).encode() in ended.stdout


def test_an_error_shows_what_was_typed(here: Here) -> None:
    ended = here.run("status", "\x1b[2J\x9b2J", code=1)
    # Where stderr is no terminal, the sequences that begin with ESC are dropped.
    assert r"\x9b2J" in ended.stderr
