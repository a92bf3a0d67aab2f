from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from trainjob.cluster.faults import InvalidError
from trainjob.cluster.job import Job
from trainjob.cluster.strict import Strict, keys_of
from trainjob.contract.environment import RANK_NAMES, REDIRECTS
from trainjob.kinds.hosts import HostsCluster
from trainjob.kinds.lookup import cluster_from_text
from trainjob.kinds.pod import PodCluster
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import KINDS, cluster_of

# The two examples of the design, section 5, word for word.
POD_EXAMPLE = """\
kind: ipu-pod
ipus: 64
hosts: pod-host[1-4]              # ranges as Slurm writes them, or a list
ssh: {host: pod-host1, user: ml}  # absent: already there. Uses the system's ssh and the user's own configuration
vipu: {server: pod-ctl, partition: p64}
network: {interface: eno1}        # or a CIDR
sdk: {version: "3.3.0", path: /opt/poplar_sdk, venv: /shared/venvs/poptorch-3.3}
runs_dir: /shared/runs            # on storage that all hosts share
data_dir: /localdata
env: {POPLAR_LOG_LEVEL: WARN}
"""

SLURM_EXAMPLE = """\
kind: slurm
ssh: {host: login.hpc}
nodes: {count: 8, accelerator: gpu, accelerators: 4, type: a100, cpus: 64, memory_gb: 500}   # accelerator: gpu | ipu | cpu
limits: {max_nodes: 4, max_time: "24:00:00"}
request: gres                     # gres | gpus-per-node | ipus | none: how this site asks for accelerators
directives: {partition: gpu, account: abc123, qos: normal, exclusive: true}   # any sbatch option; true = a bare flag, false = absent
required_directives: [account]
time_limit: "04:00:00"
preemption: requeue               # requeue | cancel | user-signal: what this site does
prologue: [module load cuda/12]   # shell by definition: the one place where a cluster file holds shell
container: {runtime: apptainer, image: /shared/images/trainjob.sif}   # none | apptainer | pyxis | docker | podman
network: {interface: ib0}
python: /shared/venvs/torch/bin/python   # any interpreter with torch: venv or conda
runs_dir: /shared/runs
secrets_file: ~/.config/trainjob/secrets.env   # NAME=VALUE lines, mode 0600, parsed on the cluster when ranks start; never sourced, copied or logged
"""  # noqa: E501 - as the design writes it


def test_the_designs_pod_example_loads() -> None:
    pod = cluster_from_text(POD_EXAMPLE, "pod64.yaml")
    assert isinstance(pod, PodCluster)
    assert pod.host_names == ("pod-host1", "pod-host2", "pod-host3", "pod-host4")
    assert (pod.sdk.version, pod.vipu.partition, pod.vipu.port) == ("3.3.0", "p64", 8090)
    assert pod.env == {"POPLAR_LOG_LEVEL": "WARN"}


def test_the_designs_slurm_example_loads() -> None:
    slurm = cluster_from_text(SLURM_EXAMPLE, "hpc.yaml")
    assert isinstance(slurm, SlurmCluster)
    assert (slurm.node.count, slurm.node.accelerators, slurm.node.type) == (8, 4, "a100")
    assert slurm.directives == {"partition": "gpu", "account": "abc123", "qos": "normal", "exclusive": True}
    assert (slurm.time_limit, slurm.limits.max_time) == ("04:00:00", "24:00:00")
    assert slurm.container.runtime == "apptainer"


def _models(model: type[Strict]) -> dict[str, type[Strict]]:
    nested = [kind for key in keys_of(model).values() for kind in _kinds(key.annotation)]
    return {model.__name__: model} | {name: found for each in nested for name, found in _models(each).items()}


def _kinds(annotation: object) -> list[type[Strict]]:
    candidates = (annotation, *getattr(annotation, "__args__", ()))
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, Strict)]


ALL_MODELS = {
    name: found for kind in (*(kind.MODEL for kind in KINDS.values()), Job) for name, found in _models(kind).items()
}


def test_the_walk_over_models_finds_the_nested_ones() -> None:
    assert {"PodCluster", "Sdk", "Vipu", "Nodes", "Limits", "Network", "Container", "Ssh", "Job"} <= set(ALL_MODELS)


@each("model", ALL_MODELS.values())
def test_every_field_says_what_it_is(model: Any) -> None:
    assert [name for name, key in keys_of(model).items() if not key.what] == []


@pytest.mark.parametrize("value", ["4", True, 4.0])
@pytest.mark.parametrize("field", ["instances", "micro_batch", "epochs", "seed", "workers"])
def test_a_whole_number_is_nothing_else(field: str, value: Any) -> None:
    with pytest.raises(InvalidError):
        Job.of({field: value})


@pytest.mark.parametrize("value", ["0.1", True, float("inf"), float("nan"), 0])
def test_a_learning_rate_is_a_finite_number_above_zero(value: Any) -> None:
    with pytest.raises(InvalidError):
        Job.of({"learning_rate": value})


@pytest.mark.parametrize("value", [1e30, 2**60])
def test_a_learning_rate_may_be_absurd(value: float) -> None:
    assert Job.of({"learning_rate": value}).learning_rate == value


@pytest.mark.parametrize("value", ["yes", 1, "true"])
def test_a_switch_is_true_or_false(value: int | str) -> None:
    with pytest.raises(InvalidError):
        Job.of({"eight_bit_io": value})


def test_counts_that_make_no_sense_are_left_to_the_plan() -> None:
    job = Job.of({"instances": 0, "replicas": -1, "learning_rate": 1})
    assert (job.instances, job.replicas, job.learning_rate) == (0, -1, 1.0)


def test_the_tasks_options_keep_their_types() -> None:
    given = {"width": 100, "rate": 1.0, "deep": True, "mode": "1"}
    kept = Job.of({"set": given}).set
    assert [(value, type(value)) for value in kept.values()] == [(100, int), (1.0, float), (True, bool), ("1", str)]


@each("name", [*RANK_NAMES, *REDIRECTS, "TRAINJOB_X", "BASH_ENV", "UID", "IFS", "_", "COMP_LINE"])
def test_names_that_a_rank_cannot_have(name: Any) -> None:
    with pytest.raises(InvalidError, match=f"{name} "):
        Job.of({"env": {name: "1"}})
    with pytest.raises(InvalidError, match=f"{name} "):
        cluster_of({"kind": "local", "env": {name: "1"}})


@pytest.mark.parametrize("name", ["PATH", "OMP_NUM_THREADS", "RANKS", "UIDS", "lower", "_UNDER", "TRAINJOB"])
def test_names_that_a_rank_can_have(name: str) -> None:
    assert Job.of({"env": {name: "1"}}).env == {name: "1"}


@pytest.mark.parametrize("name", ["", "A B", "1A", "A-B", "A=B", "A\n", "É"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidError):
        Job.of({"env": {name: "1"}})


@each("value", ["", "a\nb", "$(reboot)", "-x", "'\"", "ü", "\x1b", " "])
def test_any_text_is_a_value(value: str) -> None:
    assert Job.of({"env": {"A": value}, "command": [value]}).env == {"A": value}


@pytest.mark.parametrize("value", ["a\0b", "\ud800", 4, None, True])
def test_what_no_process_can_be_given_is_no_value(value: Any) -> None:
    with pytest.raises(InvalidError):
        Job.of({"env": {"A": value}})
    with pytest.raises(InvalidError):
        Job.of({"command": [value]})


@pytest.mark.parametrize("time", ["04:00:00", "90", "90:30", "1-12", "1-12:30", "1-12:30:00", "UNLIMITED"])
def test_times_that_slurm_reads(time: str) -> None:
    nodes = {"count": 1, "cpus": 1}
    assert SlurmCluster.of(cluster_of({"kind": "slurm", "nodes": nodes, "time_limit": time})).time_limit == time


def test_another_machine_is_not_of_kind_local() -> None:
    with pytest.raises(InvalidError, match="is gpu7, and kind: local is the machine that runs trainjob"):
        cluster_of({"kind": "local", "ssh": {"host": "gpu7"}})


def test_hosts_without_a_scheduler_have_names_or_a_number() -> None:
    hosts = HostsCluster.of(cluster_of({"kind": "hosts", "hosts": "gpu-[1-3]", "nodes": {"accelerator": "cpu"}}))
    assert (hosts.host_names, hosts.number_of_hosts, hosts.nodes.cpus) == (("gpu-1", "gpu-2", "gpu-3"), 3, None)
    assert cluster_of({"kind": "hosts", "host_count": 2}).capacity.hosts == 2
    with pytest.raises(InvalidError, match=r"is missing: give hosts: pod-host"):
        cluster_of({"kind": "hosts"})
    with pytest.raises(InvalidError, match="hosts with IPUs are of kind ipu-pod"):
        cluster_of({"kind": "hosts", "hosts": "a", "nodes": {"accelerator": "ipu", "accelerators": 4}})


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_CPU_BIND", "SBATCH_PARTITION"])
def test_names_by_which_slurm_tells_a_job_where_it_runs_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} belongs to Slurm"):
        cluster_of({"kind": "slurm", "nodes": {"count": 2, "cpus": 8}, "env": {name: "7"}})


def test_of_our_own_names_a_job_sets_only_the_one_that_a_cure_names() -> None:
    values = {"kind": "slurm", "nodes": {"count": 2, "cpus": 8}}
    assert cluster_of({**values, "env": {"TRAINJOB_STANDIN_HANG_S": "600"}}).env == {"TRAINJOB_STANDIN_HANG_S": "600"}
    with pytest.raises(ValueError, match="reserved for trainjob"):
        cluster_of({**values, "env": {"TRAINJOB_STANDIN_GPUS": "8"}})


def test_a_percent_sign_in_runs_dir_which_slurm_would_expand_is_refused() -> None:
    with pytest.raises(ValueError, match="Slurm replaces % in a path by a job's id or a node's name"):
        cluster_of({"kind": "slurm", "nodes": {"count": 2, "cpus": 8}, "runs_dir": "/shared/%j/runs"})


GROUP = {"name": "a", "count": 1, "cpus": 4}


@each(
    ("nodes", "more", "words"),
    [
        ({**GROUP}, {}, "nodes: has name, and is not a list of groups"),
        ([GROUP], {}, "nodes: lists 1 group, and there are at least 2"),
        ([GROUP, GROUP], {}, "nodes: has groups called a, a"),
        ([GROUP, {"count": 1, "cpus": 4}], {}, "nodes: has groups called a, (no name)"),
        (
            [GROUP, {**GROUP, "name": "b", "accelerator": "gpu", "accelerators": 1}],
            {},
            "nodes: differ in what a rank trains on: a has accelerator: cpu and b has accelerator: gpu",
        ),
        (
            [{**GROUP, "name": name, "accelerator": "ipu", "accelerators": 4} for name in "ab"],
            {},
            "nodes: have IPUs, and poprun starts the same number of instances on each host",
        ),
        ([GROUP, {**GROUP, "name": "b"}], {"queue_follow_up": True}, "queue_follow_up: is true, and nodes is a list"),
        ([GROUP, {**GROUP, "name": "b", "cpu": 4}], {}, "nodes[1].cpu: is not a key: is cpus meant?"),
        ([GROUP, {**GROUP, "name": "b", "cpus": "4"}], {}, 'nodes[1].cpus: read "4", expected a whole number'),
        (3, {}, "nodes: read 3, expected keys with values or a list"),
    ],
)
def test_groups_of_nodes_that_no_job_can_take_are_refused(nodes: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError) as caught:
        cluster_of({"kind": "slurm", "nodes": nodes, **more})
    assert words in str(caught.value)


def test_a_group_is_a_cluster_by_itself() -> None:
    groups = [{**GROUP, "directives": {"partition": "x"}}, {**GROUP, "name": "b"}]
    found = cluster_of({"kind": "slurm", "nodes": groups, "directives": {"partition": "y", "nice": 1}})
    assert isinstance(found, SlurmCluster)
    parts = [found.of_group(group) for group in found.groups]
    assert [part.directives for part in parts] == [{"partition": "x", "nice": 1}, {"partition": "y", "nice": 1}]
    assert [part.has_groups for part in (found, *parts)] == [True, False, False]
    assert cluster_of(found.as_values(stated_only=True)) == found
