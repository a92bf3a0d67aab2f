"""A script for a public machine agrees with the site's own example, or the page says why it does not."""

from __future__ import annotations

from docs.machines_page import published, rows
from tests.support.cases import each
from trainjob.kinds.lookup import sites

SITES = {site.name: site for site in sites()}
EXAMPLES = published()


def test_each_site_has_an_example_but_the_one_of_which_none_was_found() -> None:
    assert set(SITES) - set(EXAMPLES) == {"leonardo"}
    assert set(EXAMPLES) <= set(SITES)


@each("name", EXAMPLES)
def test_every_difference_has_its_reason_and_no_reason_is_left_over(name: str) -> None:
    differing = {row.option for row in rows(SITES[name], EXAMPLES[name]) if not row.agrees}
    assert differing == set(EXAMPLES[name].differ)


@each("name", EXAMPLES)
def test_nodes_tasks_and_time_are_those_of_the_example(name: str) -> None:
    values = {row.option: (row.theirs, row.ours) for row in rows(SITES[name], EXAMPLES[name])}
    for option in ("partition", "time", "nodes", "ntasks-per-node"):
        theirs, ours = values.get(option, ("", ""))
        assert theirs in ("", ours)
