from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trainjob.cluster.faults import ClusterError
from trainjob.kinds import choice, lookup
from trainjob.kinds.local import LocalCluster
from trainjob.kinds.lookup import candidates, catalog, find, sites, user_folder

MINE = "kind: local\nmax_instances: 3\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an empty working folder; the user's configuration lies beside it."""
    working = tmp_path / "work"
    working.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(working)
    return working


def write(path: Path, text: Any = MINE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_catalog_is_found_everywhere() -> None:
    found = find("local")
    assert (found.name, found.origin_word) == ("local", "catalog local")
    assert isinstance(found.cluster, LocalCluster)
    assert (found.cluster.accelerator, LocalCluster.of(found.cluster).max_instances) == ("cpu", None)


def test_the_users_folder_comes_before_the_catalog_and_the_working_folder_before_both(folder: Path) -> None:
    write(user_folder() / "local.yaml")
    found = find("local")
    assert (found.origin_word, LocalCluster.of(found.cluster).max_instances) == ("user's cluster file local.yaml", 3)
    write(folder / "clusters" / "local.yaml", "kind: local\nmax_instances: 4\n")
    found = find("local")
    assert (found.origin_word, LocalCluster.of(found.cluster).max_instances) == ("cluster file clusters/local.yaml", 4)


def test_a_value_with_a_slash_or_ending_in_yaml_is_a_path(folder: Path) -> None:
    write(folder / "local.yaml")
    write(folder / "sites" / "mine")
    assert find("local.yaml").origin_word == "cluster file local.yaml"
    assert find("./local.yaml").name == "local"
    assert find("sites/mine").origin_word == "cluster file sites/mine"


def test_an_absolute_path_does_not_reach_what_is_rendered(folder: Path) -> None:
    write(folder / "mine.yaml")
    found = find(str(folder / "mine.yaml"))
    assert found.origin_word == "cluster file mine.yaml"
    assert LocalCluster.of(found.cluster).max_instances == 3


def test_an_unknown_name_lists_the_nearest_and_all_with_where_they_come_from(folder: Path) -> None:
    write(folder / "clusters" / "hpc.yaml")
    write(user_folder() / "big.yaml")
    with pytest.raises(ClusterError) as caught:
        find("pod46")
    assert str(caught.value) == (
        'no cluster is called "pod46": is pod4 meant? Known are hpc (cluster file clusters/hpc.yaml), '
        "big (user's cluster file big.yaml), "
        "and in the catalog hosts-gpu, local, pod4, pod16, pod64, pod128, pod256, "
        "slurm-8gpu, slurm-gh200, slurm-gpu, slurm-ipu, slurm-mi250x; "
        "`trainjob cluster list` also names public machines. "
        "A file is given as a path that ends in .yaml"
    )


@pytest.mark.parametrize("name", ["zzzzzz", "", "..", "*"])
def test_a_name_like_none_is_refused_without_a_guess(name: str) -> None:
    with pytest.raises(ClusterError, match=r"no cluster is called .*: known are hosts-gpu, local, pod4"):
        find(name)


def test_a_path_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ClusterError, match=r"^nowhere/x.yaml: there is no such file: correct the path$"):
        find("nowhere/x.yaml")
    with pytest.raises(ClusterError, match=r"no such file: is --cluster pod64 meant \(catalog pod64\)\?$"):
        find("pod64.yaml")


def test_a_broken_file_is_reported_and_not_passed_over(folder: Path) -> None:
    write(folder / "clusters" / "local.yaml", "kind: lokal")
    with pytest.raises(ClusterError, match=r"^clusters/local\.yaml:1: kind: read 'lokal'"):
        find("local")


def test_what_is_known_is_named_once_and_broken_files_do_not_hide_the_rest(folder: Path) -> None:
    write(folder / "clusters" / "local.yaml", "kind: [")
    write(folder / "clusters" / "notes.txt")
    names = [known.name for known in candidates()]
    slurm = ["slurm-8gpu", "slurm-gh200", "slurm-gpu", "slurm-ipu", "slurm-mi250x"]
    ready = ["local", "hosts-gpu", "pod4", "pod16", "pod64", "pod128", "pod256", *slurm]
    assert names == [*ready, *(site.name for site in sites())]
    assert candidates()[0].origin_word == "cluster file clusters/local.yaml"
    assert catalog()[1].origin_word == "catalog local"


def test_only_its_owner_writes_to_what_later_commands_obey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    before = os.umask(0)
    try:
        lookup.write_draft(tmp_path / "new/hpc.yaml", "kind: local\n")
        choice.use("local")
    finally:
        os.umask(before)
    made = [
        path for path in tmp_path.rglob("*") if path.name in ("new", "hpc.yaml", "config", "trainjob", "config.yaml")
    ]
    assert len(made) == 5
    assert [path.stat().st_mode & 0o022 for path in made] == [0] * 5
