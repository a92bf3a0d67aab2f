"""Golden scripts, compared whole: what a user reads in a script is what this file holds.

The shell library has tests of its own: its digest, which every script names, is a word here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import trainjob
from tests.support.programs import ran
from tests.support.render_cases import GOLDEN, golden_requests, golden_script, rendered
from trainjob.render import library

REQUESTS = golden_requests()
DIGEST = library.digest().encode()
# One record of a plain job, of a pod and of hostile words: the others would differ from these by what scripts show.
RECORDS = ("local-digits", "pod64", "slurm-hostile")
CASES = [(name, golden_script(name)) for name in REQUESTS] + [(name, GOLDEN / f"{name}.job.json") for name in RECORDS]


@pytest.mark.parametrize(("name", "golden"), CASES, ids=lambda one: getattr(one, "name", ""))
def test_renders_the_golden_bytes(name: str, golden: Path, write_golden: bool) -> None:
    made = rendered(REQUESTS[name])
    content = made.files["job.json" if golden.suffix == ".json" else made.script].content
    assert content.count(DIGEST) == 1
    content = content.replace(DIGEST, b"SHA256-OF-THE-SHELL-LIBRARY")
    if write_golden:
        golden.write_bytes(content)
    assert golden.read_bytes() == content


def test_every_golden_file_has_a_case() -> None:
    found = {*GOLDEN.glob("local-*"), *GOLDEN.glob("hosts-*"), *GOLDEN.glob("slurm-*"), *GOLDEN.glob("pod*")}
    assert found == {golden for _, golden in CASES}


@pytest.mark.parametrize("name", REQUESTS)
def test_bash_can_read_it(name: str) -> None:
    ended = ran(["bash", "-n", golden_script(name)])
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("name", REQUESTS)
def test_shellcheck_has_nothing_to_say(name: str, needs: Callable[[str], Path]) -> None:
    arguments: list[str | Path] = [needs("shellcheck"), "--severity=style", "--external-sources", golden_script(name)]
    ended = ran(arguments)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_script_is_executable_and_job_json_is_not(name: str) -> None:
    made = rendered(REQUESTS[name])
    records = {file: content.mode for file, content in made.files.items() if file != made.script}
    assert (made.files[made.script].mode, set(records.values())) == (0o755, {0o644})


@pytest.mark.parametrize("cluster", ["local", "hosts-gpu", "pod16", "slurm-gpu"])
def test_a_time_limit_is_kept_by_the_script_where_no_scheduler_does(cluster: str) -> None:
    job = trainjob.plan(cluster=cluster, task="digits-cnn", time_limit="00:03:00")
    (script,) = (file.content.decode() for name, file in job.render().files.items() if name.startswith("job.s"))
    by_itself = "time_limit_s=180 time_limit_margin_s=90" in script
    assert by_itself != ("#SBATCH --time=00:03:00" in script)
    assert by_itself == (cluster != "slurm-gpu")
