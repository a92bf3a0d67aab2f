"""Count the calls of the controller in a minute by commands that look at many runs: `python -m simulation.looks`."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable

from simulation import history
from simulation.ranks import TASK
from simulation.slurm import NODES
from trainjob.observe import notify
from trainjob.requests import interface
from trainjob.watch import screen


def calls_a_minute(runs: int, minutes: int) -> dict[str, dict[str, float]]:
    """Return how often each of them calls the controller, by what the controller does for so long."""
    found: dict[str, dict[str, float]] = {}
    with history.place() as where:
        one = history.History(1, where, program=TASK.name)
        one.slurm.site.trouble = 0.0
        one.slurm.states = dict.fromkeys(NODES, "down*")  # all runs wait
        config = where.folder / "home/trainjob/config.yaml"
        config.parent.mkdir(exist_ok=True)
        config.write_text("notify: {command: [/bin/true], background: false}\n")

        def count(kind: str, work: Callable[[], object]) -> float:
            command = one.start(kind, history.HOSTS[0], work)
            one.world.run(limit_s=60.0 * minutes)
            command.killed_at = command.count + 1
            one.world.run(lambda: command.is_over)
            return command.calls / minutes

        with one.clients.instead_of_the_real(), contextlib.redirect_stdout(io.StringIO()):
            one.do("submits", lambda: [one.job.submit(check=False, again=True) for _ in range(runs)])
            for what in ("nothing changes", "the controller does not answer"):
                found[what] = {
                    f"watch, {runs} runs": count("watch", lambda: screen.print_changes(3.0, None)),
                    "wait or --follow, one run": count("wait", lambda: interface.run("last").wait()),
                    f"notify, {runs} runs": count("notify", lambda: notify.look(lambda _line: None, stay=True)),
                    f"list, {runs} runs, once": count("list", one._list) * minutes,
                }
                one.slurm.down_until = float("inf")
        one.scripts.close()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m simulation.looks", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--minutes", type=int, default=10)
    asked = parser.parse_args()
    for what, by_kind in calls_a_minute(asked.runs, asked.minutes).items():
        print(f"{what}:", *(f"  {name}: {calls:.1f}" for name, calls in by_kind.items()), sep="\n")
