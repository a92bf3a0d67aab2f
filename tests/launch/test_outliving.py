"""Ranks that live on when the work is done, and launchers of ranks that die, under the real launcher."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import LIMIT_S, until
from trainjob.contract.paths import CONTRACT, RunPaths
from trainjob.records import outlived, stacks

LINGERS = """\
import os, threading, time
def never_ends(): time.sleep(1000)
if os.environ["RANK"] == "1":
    threading.Thread(target=never_ends).start()
"""
AGENT = """\
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], env={**os.environ, "RANK": "0"})
print(worker.pid, flush=True)
time.sleep(1000)
"""


def begin(folder: Path, program: str, *flags: str, **job: object) -> subprocess.Popen[bytes]:
    (folder / "code").mkdir()
    facts = {"job": job, "cluster": {"file": {}}}
    record = {"contract": CONTRACT, "train": None, "command": ["unused"], "asked": facts}
    (folder / "job.json").write_text(json.dumps(record))
    words = [sys.executable, "-m", "trainjob.launch", "--launcher", "local", *flags, str(folder), "--"]
    return subprocess.Popen([*words, sys.executable, "-c", program], env={**os.environ})


def test_a_rank_that_outlives_the_others_is_ended_and_the_run_succeeds(tmp_path: Path) -> None:
    launcher, paths = begin(tmp_path, LINGERS, "--instances", "2", exit_grace_s=2), RunPaths(tmp_path)
    assert launcher.wait(LIMIT_S) == 0
    note = outlived.read(paths, 1)
    assert note is not None
    assert (note.rank, note.why) == (1, "all other ranks had ended")
    kept = stacks.read(paths, 1)
    assert kept is not None
    assert "in never_ends" in (kept.processes[0].stack or "")
    assert not paths.failure.exists()


def test_a_dead_agent_ends_its_node_at_once(tmp_path: Path) -> None:
    """A launcher of ranks that is started once per node, as torchrun is: its ranks would wait for ever."""
    launcher = begin(tmp_path, AGENT, "--instances", "1", "--ranks-per-node", "1")
    log = RunPaths(tmp_path).rank_log(0)
    # The log exists before its first line, which the launcher may write in parts: a number counts with its newline.
    told = until(lambda: log.exists() and re.search(r"^(\d+)\n", log.read_text(), re.M), "the agent's rank")
    worker = int(told[1])
    agent = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, 9)
    assert launcher.wait(LIMIT_S) == 137
    assert not Path(f"/proc/{worker}").exists()
