"""The files of public machines: every line has its source and a date, and what only the user knows is missing."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from tests.support.cases import each
from trainjob.kinds.lookup import draft, find, places_to_fill_in, sites
from trainjob.kinds.slurm.model import SlurmCluster

SITES = {site.name: site for site in sites()}
CITED = re.compile(r"\[([a-z]+) (\d{4}-\d{2}-\d{2})\]")
# Keys without a value of their own, and what a user adds.
WITHOUT = re.compile(r"kind: slurm|[a-z_]+:( +#.*)?|# (runs_dir|network):.*")


@each("name", SITES)
def test_every_line_has_a_source_and_a_date(name: str) -> None:
    header, _, body = SITES[name].path.read_text().partition("\nkind:")
    sources = set(re.findall(r"^# \[([a-z]+)\] +https?://\S+", header, re.MULTILINE))
    used = set()
    for line in f"kind:{body}".splitlines():
        cited = CITED.findall(line)
        assert cited or "our choice" in line or WITHOUT.fullmatch(line.strip()), line
        assert all(date.fromisoformat(day) <= date.today() for _, day in cited), line
        used |= {source for source, _ in cited}
    assert used <= sources
    assert re.search(r"^# Not (stated|read)", header, re.MULTILINE) or "was not among the stored pages" in header


@each("name", SITES)
def test_the_user_adds_account_and_path(name: str) -> None:
    cluster = SlurmCluster.of(find(name).cluster)
    keys = {key for _, key in places_to_fill_in(draft(name, name, is_site=True))}
    assert {fact.removeprefix("directives.") for fact in cluster.missing_facts} == keys
    assert keys <= {"account", "qos", "runs_dir"}


def test_a_users_own_file_of_the_same_name_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("lumi-g").origin_word == "site lumi-g"
    Path("clusters").mkdir()
    Path("clusters/lumi-g.yaml").write_text(SITES["lumi-g"].path.read_text().replace("standard-g", "small-g"))
    assert SlurmCluster.of(find("lumi-g").cluster).partition == "small-g"
