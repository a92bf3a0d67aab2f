"""Scripts that save when they are asked to stop, and end with 0, as those of others do: what their runs are called."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.local_runs import Here, Run
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records import events

# It knows nothing of trainjob but the folder in which it is to leave `done`.
SAVES = """\
import os, signal, sys, time
asked = []
kind = "SIGTERM" if "term" in sys.argv else "SIGUSR1"
signal.signal(getattr(signal, kind), lambda number, _: asked.append(number))
step = int(open("last.pt").read()) if os.path.exists("last.pt") else 0
print("from", step, flush=True)
slow = step == 0
while step < 300:
    step += 1
    if "silent" not in sys.argv:
        print(f"step {step}/300 loss 0.5", flush=True)
    time.sleep(0.1 if slow else 0.001)
    if asked and "finish" in sys.argv:
        slow = False
    elif asked:
        break
if "elsewhere.yaml" in sys.argv:
    open(open("elsewhere.yaml").read().split()[-1] + "/last.pt", "w").write(str(step))
elif "nothing" not in sys.argv:
    part = f"last.{os.getpid()}"
    open(part, "w").write(str(step))
    os.replace(part, "last.pt")
if "done" in sys.argv:
    open(os.path.join(os.environ["TRAINJOB_RUN_DIR"], "done"), "w").close()
if "reraise" in sys.argv:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    sys.exit(143)
"""
# One bar an epoch, as in a loop that says nothing of epochs; it stops at the end of one.
BAR = """\
import signal, sys, time
asked = []
signal.signal(signal.SIGUSR1, lambda number, _: asked.append(number))
for epoch in range(20):
    for step in range(1, 65):
        bar = "#" * (step // 8) + " " * (8 - step // 8)
        sys.stderr.write(f"\\r{step * 100 // 64:3d}%|{bar}| {step}/64 [00:{step // 4:02d}<00:03, 12.00it/s, loss=0.5]")
        sys.stderr.flush()
        time.sleep(0.08)
    if asked:
        open("last.pt", "w").close()
        break
"""


def asked(here: Here, *words: str) -> Run:
    """Return a run whose job script was asked to stop, as it is before a time limit, once it has ended."""
    here.write("saves.py", SAVES)
    run = here.submit("python", "saves.py", *words)
    until(lambda: "from" in run.log(0), "the rank to start")
    if "silent" not in words:
        until(lambda: "step 3/" in run.log(0), "progress")
    os.kill(run.script, signal.SIGUSR1)
    until(lambda: run.word("state") not in ("", "RUNNING"), "the end")
    return run


@pytest.mark.parametrize("words", [(), ("silent",), ("nothing",), ("reraise",)], ids=lambda words: "".join(words))
def test_what_was_asked_to_stop_and_ended_with_0_was_interrupted_and_is_resumed(
    here: Here, words: tuple[str, ...]
) -> None:
    run = asked(here, *words)
    assert run.word("state") == "STOPPED"
    why = events.why_ended(events.read(RunPaths(run.folder)), 1)
    assert why.startswith("asked to stop at ")
    assert "(USR1), ended " in why
    assert ("of 300: interrupted" in why) == ("silent" not in words)
    assert why in here.run("status", run.id).stdout
    assert (run.folder / ".saved.1").exists() == ("nothing" not in words)
    if words == ():
        here.run("resume", run.id)
        run.wait("COMPLETED")
        assert "from 0" not in run.log(0).partition("attempt 2")[2]


def test_a_save_into_a_folder_that_only_a_configuration_file_names_is_found(here: Here) -> None:
    (here.folder / "outputs" / "of-this").mkdir(parents=True)
    here.write("elsewhere.yaml", f"output_dir: {here.folder}/outputs/of-this\n")
    run = asked(here, "elsewhere.yaml")
    assert run.word("state") == "STOPPED"
    assert (run.folder / ".saved.1").exists()


def test_a_bar_that_may_be_of_one_epoch_is_no_proof_that_all_is_done(here: Here) -> None:
    here.write("bar.py", BAR)
    run = here.submit("python", "bar.py")
    until(lambda: "40/64" in run.log(0), "progress")
    os.kill(run.script, signal.SIGUSR1)
    until(lambda: run.word("state") not in ("", "RUNNING"), "the end")
    assert run.word("state") == "STOPPED", run.word("progress.json")
    assert ", at 64 of 64: interrupted" in events.why_ended(events.read(RunPaths(run.folder)), 1)


@pytest.mark.parametrize("words", [("finish",), ("silent", "done")], ids=["last update", "the file done"])
def test_what_is_known_to_be_done_is_complete(here: Here, words: tuple[str, ...]) -> None:
    run = asked(here, *words)
    assert run.word("state") == "COMPLETED", events.why_ended(events.read(RunPaths(run.folder)), 1)
    refused = here.run("resume", run.id, code=1).stderr
    assert f"trainjob resume --completed {run.id}" in refused
    here.run("resume", "--completed", run.id)
    until(lambda: run.word("attempt") == "2", "the next attempt")
    run.wait("COMPLETED")


def test_a_rank_that_handles_term_alone_is_asked_by_it(here: Here) -> None:
    run = asked(here, "term")
    assert run.word("state") == "STOPPED"
    assert "(TERM), ended with 0" in events.why_ended(events.read(RunPaths(run.folder)), 1)
