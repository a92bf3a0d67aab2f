"""`--explain`: the very lines of the script, each with where its values came from."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.support.cases import each
from tests.support.examples import examples
from tests.support.pod_cases import pod_request, slurm_ipu_site
from tests.support.render_cases import HOSTILE, TEXT, cluster, explained_script, golden_requests, request, script
from trainjob.render.request import Request
from trainjob.render.sourced import CONTINUED, EVERY_JOB, beside, in_columns

REQUESTS = golden_requests()


def unfolded(shown: list[str]) -> list[str]:
    """Return the lines of the script in what is shown in columns."""
    found: list[str] = []
    for line in shown:
        if line.startswith(" " * 52 + "# "):
            continue
        if line.startswith(CONTINUED):
            found[-1] += line.removeprefix(CONTINUED)
        else:
            found.append(line)
    return found


@each("name", REQUESTS)
def test_in_columns_it_fits_the_page_and_is_still_the_script(name: str) -> None:
    shown = list(in_columns(explained_script(REQUESTS[name])))
    assert max(map(len, shown)) <= 120
    assert not any(EVERY_JOB in line for line in shown)
    script_lines = script(REQUESTS[name]).split("\n")
    assert len(unfolded(shown)) == len(script_lines)
    assert all(one.startswith(line.rstrip()) for one, line in zip(unfolded(shown), script_lines, strict=True))


def test_a_note_stands_beside_its_line_or_below_it() -> None:
    shown = list(in_columns(explained_script(REQUESTS["slurm-digits"])))
    name = next(at for at, line in enumerate(shown) if line.startswith("#SBATCH --job-name"))
    assert shown[name][52:].startswith("# default: The name")
    wide = next(at for at, line in enumerate(shown) if line.startswith("found="))
    assert shown[wide + 1].lstrip().startswith(("# ", CONTINUED))


LIMIT = 60
# Everything that a site and a job can say to a script at once.
FULLEST = pod_request(
    slurm_ipu_site(
        sdk={"version": "3.3.0", "path": "/opt/poplar_sdk", "venv": "/shared/venvs/poptorch-3.3"},
        vipu={"server": "pod-ctl", "partition": "mine_%j", "allocation": "c%j", "timeout_s": 600},
        network={"interface": "eno1", "port": 23456},
        prologue=["module load graphcore"],
        secrets_file="~/.secrets",
        poprun={"executable_cache": "~/cache", "mpi_local_args": ["-x A=1"], "mpi_global_args": ["--mca a b"]},
    ),
    hosts=2,
    compile_first=True,
    array="0-3",
    time_limit="01:00:00",
)
# Not ours to shorten.
OF_THE_USER = ("Environment of every rank.", "The site's own shell, before the ranks start.")


def origins(asked: Request) -> dict[str, str]:
    return {line: origin for line, origin, _ in beside(explained_script(asked)) if origin}


def lines(asked: Request) -> str:
    return "\n".join(line for line, _, _ in beside(explained_script(asked)))


def of_line(asked: Request, start: str) -> str:
    """Return the origin of the only line that begins so."""
    (origin,) = (origin for line, origin in origins(asked).items() if line.strip().startswith(start))
    return origin


@each("name", REQUESTS)
def test_without_its_marks_it_is_the_script(name: str) -> None:
    assert lines(REQUESTS[name]) == script(REQUESTS[name])


@each("name", REQUESTS)
def test_every_line_has_an_origin_and_says_why_it_is_there(name: str) -> None:
    bare = [line for line, origin, why in beside(explained_script(REQUESTS[name])) if line and not (origin and why)]
    sites = [line for line, origin, _ in beside(explained_script(REQUESTS[name])) if "site's template" in origin]
    assert (bare, sites) == ([], [])


@each("name", REQUESTS)
def test_every_option_of_ours_has_a_reason_of_its_own(name: str) -> None:
    users = ("--partition", "--account", "--constraint", "--exclusive", "--nice", "--sync-type")
    general = [line for line, _, why in beside(explained_script(REQUESTS[name])) if "or the job requests it" in why]
    assert [line for line in general if not any(option in line for option in users)] == []


@each("asked", [*REQUESTS.values(), FULLEST])
def test_a_script_is_one_page(asked: Request) -> None:
    ours = [line for line, _, why in beside(explained_script(asked)) if why not in OF_THE_USER]
    assert len(ours) - 1 <= LIMIT  # nothing stands after the last line break


@examples(20)
@given(TEXT, TEXT)
def test_any_text_leaves_the_script_as_it_is(value: str, argument: str) -> None:
    asked = request(cluster(env={"VALUE": value}), command=["echo", argument, "\ue000", "\ue001"])
    assert lines(asked) == script(asked)


@pytest.mark.parametrize("odd", ["a\nb", "a\rb", "\x1b[31mred"])
def test_an_origin_is_one_line_whatever_a_file_is_called(odd: str) -> None:
    asked = request(instances=2, origins={"instances": f"job file {odd}.yaml"})
    assert lines(asked) == script(asked)
    shown = f"--instances: job file {odd}.yaml".replace("\n", "?").replace("\r", "?").replace("\x1b", "?")
    assert shown in of_line(asked, "exec ")


def test_flag_job_file_cluster_file_and_default_are_distinguished() -> None:
    asked = REQUESTS["local-command"]
    assert of_line(asked, "# Job mine on full") == "job file mine.yaml"
    assert of_line(asked, "# Ranks run") == "flag -- command"
    assert of_line(asked, "export EPOCHS=3") == "flag --env EPOCHS"
    assert of_line(asked, "export GREETING=mine") == "job file mine.yaml"
    assert of_line(asked, "export OMP_NUM_THREADS=2") == "cluster file full.yaml"
    assert of_line(asked, "module load python/3.11") == "cluster file full.yaml"
    assert of_line(asked, "exec ").split(", ") == [
        "--instances: flag --instances",
        "--parent: this script",
        "--accelerator: cluster file full.yaml",
        "--working-folder: where the command was given",
        "--port: cluster file full.yaml",
        "--interface: cluster file full.yaml",
        "--secrets-file: cluster file full.yaml",
    ]


def test_what_nobody_asked_for_is_a_default() -> None:
    assert "--instances: default" in of_line(request(), "exec ")
    assert of_line(request(), "use_python") == "default"


def test_what_every_job_has_says_so() -> None:
    assert of_line(request(), "set -euo pipefail") == "every job of this kind"


def test_the_number_of_nodes_comes_from_the_instances_unless_the_job_gives_it() -> None:
    place = cluster(kind="slurm", nodes={"count": 8, "accelerator": "gpu", "accelerators": 4, "cpus": 64})
    flag = {"instances": "flag --instances", "hosts": "flag --hosts"}
    asked = request(place, flag, instances=8)
    assert of_line(asked, "#SBATCH --nodes=2") == "flag --instances, cluster file here.yaml"
    assert of_line(request(place, flag, instances=8, hosts=2), "#SBATCH --nodes=2") == "flag --hosts"


def test_a_key_that_a_file_does_not_have_is_a_default() -> None:
    nodes = {"count": 1, "cpus": 4}
    assert of_line(request(cluster(kind="slurm", nodes=nodes)), "#SBATCH --signal") == "default"
    assert of_line(request(cluster(kind="slurm", nodes=nodes)), "starter=").count("cluster file") == 0
    output = cluster(kind="slurm", nodes=nodes, time_limit_signal={"margin_s": 9}, preemption="cancel")
    assert of_line(request(output), "#SBATCH --signal") == "cluster file here.yaml"
    assert "cluster file here.yaml" in of_line(request(output), "starter=")


def test_several_origins_of_a_line_are_named_once_each() -> None:
    (directive,) = (line for line in origins(REQUESTS["slurm-command"]) if line.startswith("interface="))
    assert origins(REQUESTS["slurm-command"])[directive] == "cluster file full.yaml"


def test_hostile_words_do_not_reach_the_origins() -> None:
    asked = request(cluster(env={"VALUE": "\n".join(HOSTILE)}))
    known = {"default", "cluster file here.yaml", "the runtime", "every job of this kind", "the shell library"}
    known |= {
        "the kind of the cluster",
        "--instances: default, --parent: this script, --accelerator: cluster file here.yaml",
    }
    assert set(origins(asked).values()) <= known
