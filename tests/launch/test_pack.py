"""Elements packed into one job: drawn histories of what starts them. Their scripts only say how an element ended."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths

# What the supervisor sees of an element's script: attempt, state, excluded nodes, and what signals do. `plan` has a
# line for each attempt of the element: seconds, and COMPLETED, FAILED, REQUEUED or `killed`. A node dies by a file.
SCRIPT = r"""
n=$TRAINJOB_ELEMENT node=$TRAINJOB_ELEMENT_NODE share=$TRAINJOB_ELEMENT_SHARE own=tasks/$TRAINJOB_ELEMENT
attempt=0
if [[ -e $own/attempt ]]; then read -r attempt <$own/attempt; fi
attempt=$((attempt + 1))
ends() { echo "end $n ${node:--} $1" >>journal; echo "$1" >$own/state; exit "$2"; }
told() { if [[ -e want/$n ]]; then ends CANCELLED 143; else ends REQUEUED 143; fi; }
trap told TERM
trap 'ends REQUEUED 0' USR1
rm -f $own/state
if [[ -z $node ]]; then echo $attempt >$own/attempt; ends CANCELLED 143; fi
echo "begin $n $node $share" >>journal
echo RUNNING >$own/state
echo $attempt >$own/attempt
mapfile -t plan <$own/plan
read -r seconds outcome <<<"${plan[attempt - 1]:-0 COMPLETED}"
sleep "$seconds" &
wait $!
if [[ -e dead/$node ]]; then
  printf '%s\t%s\tfailed\n' "$node" $attempt >>$own/excluded_nodes
  echo "lost $n $node -" >>journal
  ends REQUEUED 1
fi
if [[ $outcome == killed ]]; then echo "end $n $node killed" >>journal; kill -KILL $$; fi
ends "$outcome" $([[ $outcome == COMPLETED ]]; echo $?)
"""
# What starts elements, as slow as on a busy machine: it looks at a script that it has started when that has ended.
SLOW = """
import os, subprocess, sys
class Slow(subprocess.Popen):
    def __init__(self, *words, **named):
        super().__init__(*words, **named)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
subprocess.Popen = Slow
from trainjob.launch import pack
os._exit(pack.main(sys.argv[1:]))
"""
NODES = ("node1", "node2", "node3")
MOST_STARTS = 8
MOST_LINES = 500


@dataclass
class World:
    """The run directory of a packed array, and what happens: after so many lines of the journal, what, and to whom."""

    folder: Path
    elements: int
    nodes: tuple[str, ...]
    of_node: int
    at_once: int
    happenings: list[tuple[int, str, str]]
    program: tuple[str, ...] = ("-m", "trainjob.launch.pack")
    starts: int = 0
    cancelled: set[int] = field(default_factory=set)

    @property
    def journal(self) -> list[list[str]]:
        path = self.folder / "journal"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def begins(self) -> int:
        return sum(words[0] in ("begin", "end") for words in self.journal)

    def state(self, number: int) -> str:
        path = self.folder / f"tasks/{number}/state"
        return path.read_text().strip() if path.exists() else ""

    def start(self) -> None:
        """Start the job once, and let happen to it what is due."""
        self.starts += 1
        (self.folder / "requeue").unlink(missing_ok=True)
        (self.folder / "attempt").write_text(f"{self.starts}\n")
        with (self.folder / "journal").open("a") as journal:
            journal.write("job\n")
        asked = ("--of-node", str(self.of_node), "--at-once", str(self.at_once), "--nodes", ",".join(self.nodes))
        words = (*self.program, "--script", str(os.getpid()), *asked, f"0-{self.elements - 1}")
        with (self.folder / "printed").open("w") as printed:
            job = subprocess.Popen([sys.executable, *words, str(self.folder)], cwd=ROOT, stderr=printed)
        while job.poll() is None:
            if len(self.journal) > MOST_LINES:
                job.terminate()
                pytest.fail(f"elements begin without end: {self.journal[-8:]}")
            if not self.happenings or self.begins() < self.happenings[0][0]:
                try:
                    job.wait(0.02)
                except subprocess.TimeoutExpired:
                    continue
                break
            _, what, whom = self.happenings.pop(0)
            self.happens(job, what, whom)
        assert "Traceback" not in (self.folder / "printed").read_text(), (self.folder / "printed").read_text()

    def happens(self, job: subprocess.Popen[bytes], what: str, whom: str) -> None:
        if what == "node":
            (self.folder / "dead" / whom).touch()
        elif what == "cancel":
            self.cancelled.add(int(whom))
            (self.folder / "want" / whom).touch()
            (self.folder / ".cancel" / whom).touch()
        else:
            # The shell of the job's script ignores it until Python handles it.
            until(lambda: self.begins() > 0 or job.poll() is not None, "the first begin")
            job.send_signal(int(whom))


def lay_out(folder: Path, plans: list[str]) -> None:
    """Write the run directory of as many elements as there are plans."""
    for name in ("dead", "want", ".cancel"):
        (folder / name).mkdir()
    (folder / "job.sbatch").write_text(SCRIPT)
    for number, plan in enumerate(plans):
        (folder / f"tasks/{number}").mkdir(parents=True)
        (folder / f"tasks/{number}/plan").write_text(plan)


def drawn(seed: int, folder: Path) -> World:
    draw = random.Random(seed)
    elements, nodes = draw.randint(1, 14), NODES[: draw.randint(1, 3)]
    of_node = draw.randint(1, 4)
    plans = []
    for _ in range(elements):
        ways = draw.choices(("COMPLETED", "FAILED", "REQUEUED", "killed"), (12, 2, 2, 1), k=3)
        plans.append("".join(f"{draw.choice((0, 0.03, 0.15))} {way}\n" for way in ways))
    lay_out(folder, plans)
    happenings = []
    for _ in range(draw.randint(0, 4)):
        what = draw.choice(("node", "cancel", "cancel", "signal"))
        whose = {"node": nodes, "cancel": tuple(map(str, range(elements))), "signal": ("10", "15")}
        happenings.append((draw.randint(1, 2 * elements), what, draw.choice(whose[what])))
    at_once = draw.randint(1, of_node * len(nodes))
    return World(folder, elements, nodes, of_node, at_once, sorted(happenings))


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(6, 100))])
def test_each_element_ends_once_and_never_runs_twice_at_once(seed: int, tmp_path: Path) -> None:
    world = drawn(seed, tmp_path)
    while True:
        world.start()
        is_left = [one for one in range(world.elements) if world.state(one) not in ("COMPLETED", "FAILED", "CANCELLED")]
        assert RunPaths(tmp_path).requeue.exists() == bool(is_left), is_left
        if not is_left:
            break
        assert world.starts < MOST_STARTS, world.journal
        for dead in (tmp_path / "dead").iterdir():  # Slurm gives the next start nodes that work
            dead.unlink()
    running: dict[str, tuple[str, str]] = {}
    ended, after_its_end, bad = Counter[str](), Counter[str](), set[str]()
    for what, *words in world.journal:
        if what == "job":
            assert not running, "a start of the job left elements that run"
            after_its_end.clear()
            bad.clear()
            continue
        number, node, how = words
        if what == "begin":
            assert number not in running, f"element {number} runs twice at once"
            assert not ended[number], f"element {number} had ended"
            assert (node, how) not in running.values(), f"two elements have share {how} of {node}"
            assert int(how) < world.of_node
            running[number] = (node, how)
            assert len(running) <= world.at_once
            after_its_end[node] += node in bad
        elif what == "lost":
            bad.add(node)
        else:
            running.pop(number, None)
            ended[number] += how in ("COMPLETED", "FAILED", "CANCELLED")
    # What the supervisor began before it heard of a node's end is no fault.
    assert all(count <= world.of_node for count in after_its_end.values()), after_its_end
    assert ended == Counter({str(number): 1 for number in range(world.elements)})
    for one in world.cancelled:
        assert world.state(one) in ("CANCELLED", "COMPLETED", "FAILED")


@pytest.mark.parametrize("long", [0, 1])
def test_a_share_is_given_on_as_soon_as_its_element_has_ended(tmp_path: Path, long: int) -> None:
    lay_out(tmp_path, [f"{30 if number == long else 0} COMPLETED\n" for number in range(5)])
    lines = 1 + 2 * 4  # the long one's begin, and all of the others
    world = World(tmp_path, 5, NODES[:1], 2, 2, [(lines, "cancel", str(long))])
    world.start()
    ended = [words[1] for words in world.journal if words[0] == "end"]
    assert (sorted(ended), ended[-1]) == (list("01234"), str(long))


def test_an_element_that_is_killed_at_once_begins_again(tmp_path: Path) -> None:
    lay_out(tmp_path, ["0 killed\n"])
    world = World(tmp_path, 1, NODES[:1], 1, 1, [], program=("-c", SLOW))
    world.start()
    assert world.state(0) == "COMPLETED", (tmp_path / "printed").read_text()
