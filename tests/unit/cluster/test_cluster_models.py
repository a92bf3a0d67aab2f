import subprocess

import pytest
from pydantic import BaseModel, ValidationError

from trainjob.cluster.environment_names import why_refused
from trainjob.cluster.job import Job
from trainjob.cluster.models import CLUSTER, KINDS, LocalCluster, PodCluster, SlurmCluster
from trainjob.cluster.reading import cluster_from_text
from trainjob.contract.environment import RANK_NAMES, REDIRECTS

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


def test_the_designs_pod_example_loads():
    pod = cluster_from_text(POD_EXAMPLE, "pod64.yaml")
    assert isinstance(pod, PodCluster)
    assert pod.host_names == ("pod-host1", "pod-host2", "pod-host3", "pod-host4")
    assert (pod.sdk.version, pod.vipu.partition, pod.vipu.port) == ("3.3.0", "p64", 8090)
    assert pod.env == {"POPLAR_LOG_LEVEL": "WARN"}


def test_the_designs_slurm_example_loads():
    slurm = cluster_from_text(SLURM_EXAMPLE, "hpc.yaml")
    assert isinstance(slurm, SlurmCluster)
    assert (slurm.nodes.count, slurm.nodes.accelerators, slurm.nodes.type) == (8, 4, "a100")
    assert slurm.directives == {"partition": "gpu", "account": "abc123", "qos": "normal", "exclusive": True}
    assert (slurm.time_limit, slurm.limits.max_time) == ("04:00:00", "24:00:00")
    assert slurm.container.runtime == "apptainer"


def _models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    nested = [kind for field in model.model_fields.values() for kind in _kinds(field.annotation)]
    return {model.__name__: model} | {name: found for each in nested for name, found in _models(each).items()}


def _kinds(annotation: object) -> list[type[BaseModel]]:
    candidates = (annotation, *getattr(annotation, "__args__", ()))
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)]


ALL_MODELS = {name: found for kind in (*KINDS.values(), Job) for name, found in _models(kind).items()}


def test_the_walk_over_models_finds_the_nested_ones():
    assert {"PodCluster", "Sdk", "Vipu", "Nodes", "Limits", "Network", "Container", "Ssh", "Job"} <= set(ALL_MODELS)


@pytest.mark.parametrize("model", ALL_MODELS.values(), ids=ALL_MODELS.keys())
def test_every_field_says_what_it_is(model):
    assert [name for name, field in model.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("value", ["4", True, 4.0])
@pytest.mark.parametrize("field", ["instances", "micro_batch", "epochs", "seed", "workers"])
def test_a_whole_number_is_nothing_else(field, value):
    with pytest.raises(ValidationError):
        Job.model_validate({field: value})


@pytest.mark.parametrize("value", ["0.1", True, float("inf"), float("nan"), 0])
def test_a_learning_rate_is_a_finite_number_above_zero(value):
    with pytest.raises(ValidationError):
        Job.model_validate({"learning_rate": value})


@pytest.mark.parametrize("value", ["yes", 1, "true"])
def test_a_switch_is_true_or_false(value):
    with pytest.raises(ValidationError):
        Job.model_validate({"eight_bit_io": value})


def test_counts_that_make_no_sense_are_left_to_the_plan():
    job = Job.model_validate({"instances": 0, "replicas": -1, "learning_rate": 1})
    assert (job.instances, job.replicas, job.learning_rate) == (0, -1, 1.0)


def test_the_tasks_options_keep_their_types():
    given = {"width": 100, "rate": 1.0, "deep": True, "mode": "1"}
    kept = Job.model_validate({"set": given}).set
    assert [(value, type(value)) for value in kept.values()] == [(100, int), (1.0, float), (True, bool), ("1", str)]


def test_values_are_frozen():
    with pytest.raises(ValidationError):
        LocalCluster(kind="local").accelerators = 2


@pytest.mark.parametrize("name", [*RANK_NAMES, *REDIRECTS, "TRAINJOB_X", "BASH_ENV", "UID", "IFS", "_", "COMP_LINE"])
def test_names_that_a_rank_cannot_have(name):
    with pytest.raises(ValidationError, match=f"{name} "):
        Job.model_validate({"env": {name: "1"}})
    with pytest.raises(ValidationError, match=f"{name} "):
        CLUSTER.validate_python({"kind": "local", "env": {name: "1"}})


@pytest.mark.parametrize("name", ["PATH", "OMP_NUM_THREADS", "RANKS", "UIDS", "lower", "_UNDER", "TRAINJOB"])
def test_names_that_a_rank_can_have(name):
    assert Job.model_validate({"env": {name: "1"}}).env == {name: "1"}


@pytest.mark.parametrize("name", ["", "A B", "1A", "A-B", "A=B", "A\n", "É"])
def test_names_that_are_none(name):
    with pytest.raises(ValidationError):
        Job.model_validate({"env": {name: "1"}})


def test_what_bash_does_not_hand_on_is_refused():
    variables = subprocess.run(["bash", "-c", "compgen -v"], capture_output=True, text=True, check=True).stdout.split()
    assert "RANDOM" in variables
    accepted = [name for name in variables if why_refused(name) is None and not name.startswith("LC_")]
    assert [name for name in accepted if not _arrives(name)] == []


def _arrives(name: str) -> bool:
    script = f"set -euo pipefail; export {name}='x y'; cd /; /usr/bin/env; echo ended=well"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False)
    return {f"{name}=x y", "ended=well"} <= set(done.stdout.split("\n"))


@pytest.mark.parametrize("value", ["", "a\nb", "$(reboot)", "-x", "'\"", "ü", "\x1b", " "])
def test_any_text_is_a_value(value):
    assert Job.model_validate({"env": {"A": value}, "command": [value]}).env == {"A": value}


@pytest.mark.parametrize("value", ["a\0b", "\ud800", 4, None, True])
def test_what_no_process_can_be_given_is_no_value(value):
    with pytest.raises(ValidationError):
        Job.model_validate({"env": {"A": value}})
    with pytest.raises(ValidationError):
        Job.model_validate({"command": [value]})


@pytest.mark.parametrize("time", ["04:00:00", "90", "90:30", "1-12", "1-12:30", "1-12:30:00", "UNLIMITED"])
def test_times_that_slurm_reads(time):
    nodes = {"count": 1, "cpus": 1}
    assert CLUSTER.validate_python({"kind": "slurm", "nodes": nodes, "time_limit": time}).time_limit == time
