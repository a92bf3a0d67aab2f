"""What later attempts may ask for: shares of what the job has, and never more than a node or the site has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.render_cases import cluster, request, script
from trainjob.contract.errors import UserError

NODES = {"count": 8, "accelerator": "gpu", "accelerators": 4, "cpus": 64, "memory_gb": 100}
RETRY = {"mem": "+50%", "attempts": 3}


def site(**values: Any) -> Any:
    return cluster(kind="slurm", **{"nodes": NODES, "time_limit": "04:00:00", **values})


@pytest.mark.parametrize(
    ("directives", "asks"),
    [
        ({"mem": "40G"}, "--mem=61440M --mem=92160M --mem=102400M"),
        ({"mem": 40960}, "--mem=61440M --mem=92160M --mem=102400M"),
        ({"mem-per-gpu": "10G"}, "--mem-per-gpu=15360M --mem-per-gpu=23040M --mem-per-gpu=25600M"),
        ({"mem-per-cpu": "1G"}, "--mem-per-cpu=1536M --mem-per-cpu=1600M"),
    ],
)
def test_memory_grows_as_far_as_a_node_has_it(directives: dict[str, Any], asks: str) -> None:
    page = script(request(site(directives=directives), instances=4, hosts=1, retry=RETRY))
    assert f"retries=3 retry_mem=({asks}) retry_time=()\n" in page


def test_time_grows_as_far_as_the_site_allows() -> None:
    retry = {"time": "+50%", "attempts": 3}
    page = script(request(site(limits={"max_time": "08:00:00"}), retry=retry))
    assert "retry_mem=() retry_time=(--time=06:00:00 --time=08:00:00)\n" in page
    assert "retry_time=(--time=06:00:00 --time=09:00:00 --time=13:30:00)\n" in script(request(site(), retry=retry))


def test_a_job_that_states_none_has_no_line_for_it() -> None:
    assert "retr" not in script(request(site()))


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (site(directives={"exclusive": True}), {"mem": "+50%"}, "the job has all memory of its nodes already"),
    (site(directives={"mem": "100G"}), {"mem": "+50%"}, "the job has 100G of the 102400 MB already"),
    (
        site(nodes={name: value for name, value in NODES.items() if name != "memory_gb"}),
        {"mem": "+50%"},
        "the job states no memory: give directives.mem, or nodes.memory_gb",
    ),
    (site(limits={"max_time": "04:00:00"}), {"time": "+50%"}, "time_limit is 04:00:00, and max_time is 04:00:00"),
    (site(time_limit=None), {"time": "+50%"}, "no time limit is stated"),
    (cluster(kind="local"), {"mem": "+50%"}, "the cluster is of kind local. Leave retry out."),
]


@pytest.mark.parametrize(("place", "retry", "message"), REFUSED)
def test_what_can_not_grow_is_refused_with_both_figures(place: Any, retry: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        script(request(place, retry=retry))
    assert message in str(refused.value)


def test_nodes_of_several_groups_are_refused() -> None:
    groups = [{**NODES, "name": name} for name in ("a", "b")]
    with pytest.raises(UserError, match="nodes is a list of groups"):
        request(site(nodes=groups), retry=RETRY)
