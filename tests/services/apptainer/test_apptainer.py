"""Real Apptainer, for an ordinary user: ranks in an image under a real Slurm, and an image that is built."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import apptainer_acceptance, apptainer_under_slurm, docker_engine
from tests.support import apptainer_machine as machines
from tests.support.apptainer_machine import ApptainerMachine

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def machine(needs: Callable[[str], Path]) -> ApptainerMachine:
    needs("second user")
    return machines.apptainer_machine(needs("slurm releases"))


def test_ranks_run_in_the_image_on_every_node_and_a_shell_next_to_them(machine: ApptainerMachine) -> None:
    ended = machine.run("python", apptainer_under_slurm.__file__, machine.base)
    assert ended.returncode == 0, ended.stdout
    assert "COMPLETED" in ended.stdout, ended.stdout
    for rank in range(4):
        inside = f"rank {rank}: bookworm, Python 3.11.2, node{1 + rank // 2}, [a \"b\" $(touch /tmp/injected) 'c']"
        assert f"[{rank}] {inside}" in ended.stdout, ended.stdout
    # By nsenter, in the rank's folder.
    assert f"next to {inside} in /home/somebody/runs/" in ended.stdout, ended.stdout
    assert "nothing was injected" in ended.stdout


def test_packed_elements_run_in_the_image_and_each_has_its_share_of_a_node(machine: ApptainerMachine) -> None:
    ended = machine.run("python", apptainer_under_slurm.__file__, machine.base, "packed")
    assert ended.returncode == 0, ended.stdout
    assert "COMPLETED" in ended.stdout, ended.stdout
    told = re.findall(r"element (\d): bookworm, GPU (\d) of (node\d), \d CPUs", ended.stdout)
    assert [number for number, _, _ in told] == list("01234567"), ended.stdout
    assert len({(gpu, node) for _, gpu, node in told}) == 4, told


@pytest.mark.full
def test_the_ladder_is_climbed_in_containers(machine: ApptainerMachine) -> None:
    ended = machine.run("python", apptainer_acceptance.__file__, machine.base, timeout_s=1100)
    assert ended.returncode == 0, ended.stdout
    evidence = json.loads(ended.stdout[ended.stdout.index("\n{") :])
    assert evidence["accepted"]
    # Where a rank ran is what the step `rank` judges.
    assert {one["step"]: one["state"] for one in evidence["outcomes"]} == {
        **dict.fromkeys(("site", "rank", "host", "two-hosts", "time-limit"), "passed"),
        **dict.fromkeys(("cancel", "killed-rank", "staging", "same-training"), "passed"),
        **dict.fromkeys(("device", "preemption"), "skipped"),
    }


@pytest.mark.full
def test_an_image_is_built_from_a_local_base_and_verifies_itself(
    machine: ApptainerMachine, needs_registry: None
) -> None:
    wheels = docker_engine.wheelhouse()
    program = (
        f'mkdir base && tar --extract --exclude="./dev/*" --file={machine.base} --directory=base && '
        f"trainjob container build cpu --engine apptainer --base base --wheelhouse {machine.base.parent / 'wheels'} && "
        "apptainer run trainjob-cpu.sif"
    )
    shared = machine.base.parent / "wheels"
    if not shared.exists():
        shared.mkdir()
        for wheel in wheels.iterdir():
            (shared / wheel.name).hardlink_to(wheel)
    ended = machine.run("sh", "-c", program, timeout_s=1100)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.rstrip().endswith("OK: this installation trains"), ended.stdout
