"""Runs the real commands and job scripts in a simulated cluster, where clients, nodes and Slurm fail as a seed says.

The command is `python -m simulation`, in a clone: `make simulate` runs many seeds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import time
from collections import Counter

from simulation import plan, ranks

sys.dont_write_bytecode = True  # a file that Python writes would count as a command's


def main() -> int:
    """Return 1 if a history breaks an invariant."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation",
        description=__doc__.partition("\n")[0],
        epilog="Exit code 1: a history breaks an invariant. A version gives the same history of a seed on any machine.",
    )
    about = [*(theme.name for theme in (*plan.THEMES, *plan.AIMED)), plan.OLD_BYTES]
    parser.add_argument(
        "--seed",
        type=int,
        nargs="+",
        help="print this seed's history, event by event; of several only what breaks",
    )
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="run N histories (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first of their seeds (default: 1)")
    parser.add_argument(
        "--about",
        default="",
        choices=["", *about],
        metavar="THEME",
        help=f"only histories about this: {', '.join(about)}",
    )
    names = [program.name for program in (*ranks.PROGRAMS, *ranks.NAMED_ONLY)]
    parser.add_argument(
        "--program",
        default="",
        choices=["", *names],
        metavar="NAME",
        help=f"what ranks run, drawn by each seed without it: {'; '.join(names)}",
    )
    parser.add_argument("--until-found", action="store_true", help="end at the first that breaks an invariant")
    parser.add_argument("--processes", type=int, metavar="N", help="how many run side by side (default: one a core)")
    asked = parser.parse_args()
    if sys.platform != "linux" or shutil.which("bash") is None:
        missing = "bash" if sys.platform == "linux" else "Linux"
        parser.error(f"histories run real job scripts, which needs Linux and bash, and here is no {missing}")
    if asked.seed is not None and len(asked.seed) == 1:
        world = _history(asked.seed[0], asked.about, asked.program)
        print("\n".join(map(str, world.history)))
        print(f"seed {asked.seed[0]}: " + ("; ".join(world.violations) or "every invariant holds"))
        return int(bool(world.violations))
    every = itertools.count(asked.first)
    seeds = (seed for seed in every if asked.about in ("", plan.theme_of(seed, asked.about).name))
    chosen = asked.seed or list(itertools.islice(seeds, asked.seeds))
    processes = asked.processes or len(os.sched_getaffinity(0))
    return _many(chosen, asked.about, asked.program, processes, until_found=asked.until_found)


def _history(seed: int, about: str, program: str):  # type: ignore[no-untyped-def]  # its types would be imported before bytecode is off
    from simulation import history

    with history.place() as where:
        return history.happens(seed, where, about, program)


def _some(seeds: list[int], about: str, program: str, report: int, *, until_found: bool) -> None:
    """Run histories in this process; write a line about each to the pipe `report`."""
    from simulation import history

    with history.place() as where, os.fdopen(report, "w") as stream:
        for seed in seeds:
            began = time.perf_counter()
            try:
                world = history.happens(seed, where, about, program)
                found = " | ".join(dict.fromkeys(world.violations))
            except Exception as error:  # noqa: BLE001 - a fault of the simulation itself is a finding too
                found = f"simulation: {type(error).__name__}: {error}"
            print(seed, f"{time.perf_counter() - began:.3f}", found.replace("\n", " "), file=stream, flush=True)
            if found and until_found:
                break


def _many(seeds: list[int], about: str, program: str, processes: int, *, until_found: bool) -> int:
    began, sums, failed = time.monotonic(), Counter[str](), []
    pipes = []
    for number in range(processes):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            _some(seeds[number::processes], about, program, writer, until_found=until_found)
            os._exit(0)
        os.close(writer)
        pipes.append(os.fdopen(reader))
    longest = 0.0
    for stream in pipes:
        for line in stream:
            seed, took_s, found = line.rstrip("\n").split(" ", 2)
            longest = max(longest, float(took_s))
            sums["histories"] += 1
            sums["seconds"] += int(float(took_s) * 1000)
            if found:
                failed.append(int(seed))
                print(f"seed {seed}: {found}", flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    count = sums["histories"]
    each = sums["seconds"] / 1000 / max(1, count)
    print(
        f"{count} histories in {time.monotonic() - began:.0f} s ({each:.2f} s each, at most {longest:.2f} s): "
        + (
            f"{len(failed)} break an invariant: python -m simulation --seed {failed[0]}"
            + (f" --about '{about}'" if about else "")
            + (f" --program '{program}'" if program else "")
            if failed
            else "every invariant holds"
        )
    )
    return int(bool(failed) or count < len(seeds))


if __name__ == "__main__":
    sys.exit(main())
