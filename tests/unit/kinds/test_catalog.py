from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from trainjob.cluster.faults import ClusterError
from trainjob.kinds.lookup import (
    SITES,
    catalog,
    cluster_from_text,
    draft,
    find,
    places_to_fill_in,
    refuse_missing_facts,
    write_draft,
)
from trainjob.kinds.pod import PodCluster
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import cluster_of

CATALOG = {known.name: known for known in catalog()}
POD_FACTS = ("hosts", "vipu.server", "vipu.partition", "sdk.path", "sdk.venv")
SLURM = {"kind": "slurm", "nodes": {"count": 1, "cpus": 1}, "runs_dir": "/r"}


@pytest.mark.parametrize(
    ("name", "ipus", "hosts", "ilds"),
    [("pod4", 4, 1, 1), ("pod16", 16, 1, 1), ("pod64", 64, 4, 1), ("pod128", 128, 8, 2), ("pod256", 256, 16, 4)],
)
def test_pods_are_as_the_vendor_builds_them(name: str, ipus: int, hosts: int, ilds: int) -> None:
    pod = PodCluster.of(CATALOG[name].read().cluster)
    assert (pod.ipus, pod.host_count, pod.ilds, pod.host_names) == (ipus, hosts, ilds, None)
    assert (pod.ssh, pod.runs_dir, pod.data_dir) == (None, "/shared/runs", "/localdata")


def test_the_slurm_cluster_is_the_designs_without_the_sites_facts() -> None:
    slurm = SlurmCluster.of(CATALOG["slurm-gpu"].read().cluster)
    assert (slurm.node.count, slurm.node.accelerator, slurm.node.accelerators) == (8, "gpu", 4)
    assert (slurm.directives, slurm.required_directives) == ({"exclusive": True}, ["partition", "account"])


def test_the_catalog_lacks_what_only_a_site_knows() -> None:
    lacking = {name: known.read().cluster.missing_facts for name, known in CATALOG.items()}
    pods = dict.fromkeys(("pod4", "pod16", "pod64", "pod128", "pod256"), POD_FACTS)
    slurm = {
        **dict.fromkeys(
            ("slurm-8gpu", "slurm-gh200", "slurm-gpu", "slurm-mi250x"), ("directives.partition", "directives.account")
        ),
        "slurm-ipu": ("directives.partition", "sdk.path", "sdk.venv"),
    }
    assert lacking == {**pods, **slurm, "hosts-gpu": ("hosts",), "local": ()}


@pytest.mark.parametrize(
    ("keys", "lacking"),
    [
        ({}, ("sdk.path", "sdk.venv", "sdk.version")),
        ({"sdk": {"version": "3.3.0"}, "prologue": ["module load sdk"], "python": "/v/bin/python"}, ()),
        ({"sdk": {"version": "3.3.0", "path": "/s", "venv": "/v"}, "vipu": {"allocation": "a"}}, ("vipu.server",)),
    ],
)
def test_ipus_under_slurm_need_an_sdk_and_a_server_that_makes_their_partitions(
    keys: dict[str, Any], lacking: tuple[Any, ...]
) -> None:
    nodes = {"count": 1, "accelerator": "ipu", "accelerators": 4, "cpus": 8}
    asked = {"kind": "slurm", "nodes": nodes, "directives": {"partition": "ipu"}, "runs_dir": "/r", **keys}
    assert cluster_of(asked).missing_facts == lacking


def test_a_pod_without_sdk_and_runs_dir_lacks_those_too() -> None:
    bare = cluster_of({"kind": "ipu-pod", "ipus": 4, "hosts": "a"})
    assert bare.missing_facts == ("vipu.server", "vipu.partition", "sdk.path", "sdk.venv", "runs_dir")


def test_an_allocation_stands_for_a_partition() -> None:
    asked = {"kind": "ipu-pod", "ipus": 4, "hosts": "a", "vipu": {"server": "v", "allocation": "c"}}
    assert "vipu.partition" not in cluster_of(asked).missing_facts


@pytest.mark.parametrize(
    ("directives", "required", "lacking"),
    [
        ({"partition": "p"}, [], ()),
        ({}, [], ()),
        ({"partition": "p", "account": False}, ["account"], ("directives.account",)),
        ({"partition": "p", "exclusive": True, "nice": 0}, ["exclusive", "nice"], ()),
        ({}, ["partition", "qos"], ("directives.partition", "directives.qos")),
    ],
)
def test_required_directives_are_facts(
    directives: dict[str, Any], required: list[str], lacking: tuple[Any, ...]
) -> None:
    cluster = cluster_of({**SLURM, "directives": directives, "required_directives": required})
    assert cluster.missing_facts == lacking


def test_the_refusal_names_what_is_missing_and_the_command_that_helps() -> None:
    with pytest.raises(ClusterError) as caught:
        refuse_missing_facts("slurm-gpu", CATALOG["slurm-gpu"].read().cluster)
    assert str(caught.value) == (
        "cluster slurm-gpu can be planned; to submit to it, its file lacks directives.partition, "
        "directives.account: add them, or draft a file that shows where they go: "
        "trainjob cluster init NAME --from slurm-gpu"
    )


def test_the_refusal_names_the_lines_to_fill_in(tmp_path: Path) -> None:
    path = tmp_path / "lumi-g.yaml"
    write_draft(path, draft("lumi-g", "lumi-g", is_site=True))
    with pytest.raises(ClusterError) as caught:
        refuse_missing_facts("lumi-g", find(str(path)).cluster, path)
    lines = path.read_text().splitlines()
    account, runs = (
        next(n for n, line in enumerate(lines, 1) if f"# {key}:" in line) for key in ("account", "runs_dir")
    )
    assert str(caught.value).endswith(f"fill in {path}:{account}: account, {path}:{runs}: runs_dir")
    with pytest.raises(ClusterError, match="trainjob cluster init --site lumi-g"):
        refuse_missing_facts("lumi-g", find("lumi-g").cluster, SITES / "lumi-g.yaml")


def test_nothing_is_refused_where_nothing_is_missing() -> None:
    assert refuse_missing_facts("local", CATALOG["local"].read().cluster) is None


@each("name", CATALOG)
def test_a_draft_is_the_catalogs_file_with_its_comments(name: Any) -> None:
    text = draft("mine", name)
    assert text.startswith(f"# mine: drafted from the catalog's {name}.\n")
    assert text.endswith(CATALOG[name].path.read_text())
    assert cluster_from_text(text, "mine.yaml") == CATALOG[name].read().cluster


@each("name", CATALOG)
def test_filling_in_the_marked_places_is_all_that_submitting_needs(name: Any) -> None:
    text = draft("mine", name)
    filled = re.sub(r"(?m)^( *)# (?=\S+:.*# fill in)", r"\1", text)
    assert cluster_from_text(filled, "mine.yaml").missing_facts == ()
    marked = [key for _, key in places_to_fill_in(text)]
    assert marked == [fact.split(".")[-1] for fact in CATALOG[name].read().cluster.missing_facts]


@each("name", CATALOG)
def test_the_optional_places_hold_what_can_be_read(name: Any) -> None:
    text = re.sub(r"(?m)^( *)# (?=\S+: .*# (fill in|optional))", r"\1", draft("mine", name))
    assert cluster_from_text(text, "mine.yaml").stated > CATALOG[name].read().cluster.stated


def test_a_place_to_fill_in_is_reported_with_its_line() -> None:
    text = draft("mine", "pod64")
    line, key = places_to_fill_in(text)[0]
    assert key == "hosts"
    assert text.split("\n")[line - 1].startswith("# hosts: pod-host[1-4]")


@each("name", CATALOG)
def test_every_file_of_the_catalog_names_one_to_draft_from(name: str) -> None:
    cluster = CATALOG[name].read().cluster
    drafted = cluster_from_text(draft("mine", cluster.draft), "mine.yaml")
    assert (drafted.kind, drafted.ipu_keys is None) == (cluster.kind, cluster.ipu_keys is None)


def test_unknown_words_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ClusterError, match=r'read --from "pod46", expected one of hosts-gpu, local, pod4, .*: is pod4 meant'
    ):
        draft("mine", "pod46")


@each("name", ["", "a/b", "../x", "-x", "a b", "mine.yaml", ".", "a\n"])
def test_a_name_that_would_not_be_found_again_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="can't name a cluster file: use letters, digits"):
        draft(name, "local")


def test_a_draft_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "clusters" / "mine.yaml"
    write_draft(path, "kind: local\n")
    assert path.read_text() == "kind: local\n"
    with pytest.raises(ClusterError, match=r"mine\.yaml exists already, and is not overwritten: choose another name"):
        write_draft(path, "kind: slurm\n")
    assert path.read_text() == "kind: local\n"


def test_a_draft_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "clusters").write_text("a file where the folder belongs")
    with pytest.raises(ClusterError, match=r"can't be written: File exists"):
        write_draft(tmp_path / "clusters" / "mine.yaml", "kind: local\n")
    with pytest.raises(ClusterError, match="can't be written: Not a directory"):
        write_draft(tmp_path / "clusters" / "deep" / "mine.yaml", "kind: local\n")
