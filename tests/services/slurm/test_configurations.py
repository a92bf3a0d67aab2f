"""What sites do differently, in a private Slurm: binding, memory, accounting, a job's environment, releases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.slurm_jobs import LIMIT_S, POLL_S, is_over
from tests.support.waiting import until
from trainjob.contract.errors import UserError
from trainjob.rehearse.slurm.description import Description
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(600)

TELL = "#!/bin/sh\n#SBATCH --export=NONE\nsrun --export=ALL sh -c 'echo \"{}\"'\n"


def reported(slurm: PrivateSlurm, folder: Path, text: str, *options: str, **environment: str) -> list[str]:
    """Return the lines that the tasks of a job print, whose environment is that of a real site's."""
    script, output = folder / "job", folder / "output"
    script.write_text(TELL.format(text))
    sent = slurm.run(["sbatch", "--parsable", f"--output={output}", *options, str(script)], environment=environment)
    job = sent.text.strip()
    until(lambda: is_over(slurm, job), "the job to end", LIMIT_S, POLL_S)
    return sorted(output.read_text().splitlines())


@pytest.fixture(scope="module")
def bound(needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    needs("slurm")
    with private_slurm(Description(cpus=1, task_plugin="affinity", default_mb_per_cpu=100)) as slurm:
        yield slurm


def test_ranks_are_bound_to_cpus_of_their_own(bound: PrivateSlurm, tmp_path: Path) -> None:
    masks = reported(bound, tmp_path, "$(taskset -cp $$)", "--nodes=2", "--ntasks=2")
    assert [re.search(r"list: (\S+)", mask)[1] for mask in masks] == ["0", "0"]


def test_a_job_that_asks_for_no_memory_gets_the_sites_share(bound: PrivateSlurm, tmp_path: Path) -> None:
    assert reported(bound, tmp_path, "$SLURM_MEM_PER_CPU") == ["100"]


def test_a_job_has_what_its_site_gives_it_and_nothing_of_sbatchs_environment(
    bound: PrivateSlurm, tmp_path: Path
) -> None:
    bound.set_job_environment({"TRAINJOB_OF_SITE": "a  b ' $x"})
    words = reported(bound, tmp_path, "$TRAINJOB_OF_SITE|${OF_USER-unset}", OF_USER="no")
    bound.set_job_environment({})
    assert words == ["a  b ' $x|unset"]


def test_a_value_of_several_lines_is_refused(bound: PrivateSlurm) -> None:
    with pytest.raises(UserError, match="A has a value of several lines"):
        bound.set_job_environment({"A": "1\n2"})
