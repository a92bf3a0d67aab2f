"""A job's own sbatch options over the cluster file's."""

from __future__ import annotations

import pytest

from trainjob.cluster.base import with_directives
from trainjob.cluster.faults import JobError
from trainjob.cluster.job import Job
from trainjob.cluster.merging import merge_job
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import cluster_of

SLURM = cluster_of(
    {
        "kind": "slurm",
        "nodes": {"count": 2, "cpus": 8},
        "directives": {"partition": "gpu", "qos": "normal", "exclusive": True},
        "required_directives": ["account"],
        "runs_dir": "/runs",
    }
)


def test_a_jobs_directives_override_the_cluster_files() -> None:
    job = Job.of({"directives": {"qos": "long", "nodelist": "n[1-2]", "exclusive": False}})
    merged = with_directives("hpc", SLURM, job)
    assert isinstance(merged, SlurmCluster)
    assert merged.directives == {"partition": "gpu", "qos": "long", "exclusive": False, "nodelist": "n[1-2]"}


def test_a_directive_of_the_job_is_a_fact_that_the_file_need_not_have() -> None:
    assert SLURM.missing_facts == ("directives.account",)
    assert with_directives("hpc", SLURM, Job.of({"directives": {"account": "abc"}})).missing_facts == ()


def test_settings_that_are_options_of_sbatch_override_the_cluster_file() -> None:
    merged = with_directives(
        "hpc", SLURM.changed(directives={"hint": "multithread"}), Job.of({"hint": "nomultithread"})
    )
    assert isinstance(merged, SlurmCluster)
    assert merged.directives == {"hint": "nomultithread"}
    with pytest.raises(JobError, match="--time-min is an option of sbatch, and cluster here is of kind local"):
        with_directives("here", cluster_of({"kind": "local"}), Job.of({"time_min": "60"}))


def test_directives_without_slurm_are_refused() -> None:
    local = cluster_of({"kind": "local"})
    with pytest.raises(JobError, match="--directive qos is an option of sbatch, and cluster here is of kind local"):
        with_directives("here", local, Job.of({"directives": {"qos": "long"}}))


def test_a_name_that_no_option_has_is_refused_by_its_flag() -> None:
    with pytest.raises(JobError, match=r"--directive Qos: read \"Qos\""):
        merge_job(None, {"directives": {"Qos": "long"}})


def test_where_a_directive_was_given_is_kept() -> None:
    assert merge_job(None, {"directives": {"qos": "long"}}).origins == {"directives.qos": "flag --directive qos"}
