"""Count the calls of the controller by what looks again and again, with 200 runs: `python -m simulation.looks`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

from simulation import history
from simulation.slurm import NODES
from trainjob.requests import interface
from trainjob.watch import screen

RUNS = 200
MINUTES = 30


def calls_a_minute() -> dict[str, float]:
    """Return how often each of them calls the controller, of which nothing changes for half an hour."""
    with history.place() as where:
        one = history.History(1, where)
        one.slurm.site.trouble = 0.0
        one.slurm.states = dict.fromkeys(NODES, "down*")  # all runs wait
        with one.clients.instead_of_the_real():
            one.do("submits", lambda: [one.job.submit(check=False, again=True) for _ in range(RUNS)])

            def count(kind: str, work: Callable[[], object]) -> float:
                command = one.start(kind, history.HOSTS[0], work)
                one.world.run(limit_s=60.0 * MINUTES)
                return command.calls / MINUTES

            with contextlib.redirect_stdout(io.StringIO()):
                found = {
                    f"watch, {RUNS} runs": count("watch", lambda: screen.print_changes(3.0, None)),
                    "wait or --follow, one run": count("wait", lambda: interface.run("last").wait()),
                    f"list, {RUNS} runs, once": count("list", one._list) * MINUTES,
                }
        one.scripts.close()
    return found


if __name__ == "__main__":
    for name, calls in calls_a_minute().items():
        print(f"{name}: {calls:.1f}")
