"""The roles of a job: which shapes are taken, and what the others are told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from trainjob.cluster.faults import InvalidError
from trainjob.cluster.job import Job
from trainjob.contract import roles

SERVER = {"command": ["python", "serve.py"], "ready": "{host}:{port}"}
TRAIN = {"command": ["python", "train.py"], "needs": ["server"]}


def test_the_role_that_needs_the_others_is_the_job_itself() -> None:
    job = Job.of({"roles": {"server": SERVER, "train": {**TRAIN, "hosts": 2, "instances": 4}}})
    assert (job.command, job.hosts, job.instances) == (TRAIN["command"], 2, 4)
    assert Job.of(job.given()) == job
    parsed = roles.parse(job.roles)
    assert (parsed.main.name, list(parsed.main.needs), [role.name for role in parsed.servers]) == (
        "train",
        ["server"],
        ["server"],
    )
    assert parsed.servers[0].ready_timeout_s == 600


def test_a_role_that_drives_ray_may_be_the_only_one_and_starts_once_per_node() -> None:
    job = Job.of({"roles": {"train": {"command": ["x"], "hosts": 4, "ray": True, "ready_timeout_s": 60}}})
    assert (job.command, job.hosts, job.command_per) == (["x"], 4, "node")
    parsed = roles.parse(job.roles)
    assert parsed == (roles.JobRole("train", ray=True, ready_timeout_s=60), [])


def test_what_the_job_states_itself_counts() -> None:
    job = Job.of({"hosts": 4, "roles": {"server": SERVER, "train": {**TRAIN, "hosts": 2}}})
    assert job.hosts == 4


def test_servers_start_after_those_that_they_need() -> None:
    parsed = roles.parse({"a": {**SERVER, "needs": ["b"]}, "b": SERVER, "train": {"needs": ["a"]}})
    assert [role.name for role in parsed.servers] == ["b", "a"]


@each(
    ("stated", "told"),
    [
        ({"train": TRAIN}, "train is the only role: add the servers that it needs"),
        ({"a": SERVER, "b": SERVER}, "a and b are needed by no other role"),
        ({"a": {**SERVER, "needs": ["b"]}, "b": {**SERVER, "needs": ["a"]}}, "every role needs another in turn: a, b"),
        (
            {"a": {**SERVER, "needs": ["b"]}, "b": {**SERVER, "needs": ["a"]}, "c": {"needs": ["a"]}},
            "roles need each other in turn: a, b",
        ),
        ({"a": SERVER, "train": {"needs": ["b"]}}, "train needs b, which is no other role: it can need a"),
        ({"server": {"ready": "{host}:{port}"}, "train": TRAIN}, "server.command is missing"),
        ({"server": {**SERVER, "command": "python serve.py"}, "train": TRAIN}, "server.command is 'python serve.py'"),
        (
            {"server": SERVER, "train": {**TRAIN, "needs": "server"}},
            "train.needs is 'server', expected names of roles: write needs: [server]",
        ),
        ({"server": {"command": ["x"]}, "train": TRAIN}, "server.ready is missing"),
        ({"server": {**SERVER, "ready": "sleep 60"}, "train": TRAIN}, "server.ready is 'sleep 60'"),
        ({"server": {**SERVER, "ready": "http://{host}:{port}/é"}, "train": TRAIN}, "server.ready is 'http:"),
        ({"server": {**SERVER, "ready": "file:../up"}, "train": TRAIN}, "server.ready is 'file:../up'"),
        ({"server": {**SERVER, "gpus": -1}, "train": TRAIN}, "server.gpus is -1, expected a whole number, at least 0"),
        ({"server": {**SERVER, "hosts": 0}, "train": TRAIN}, "server.hosts is 0"),
        ({"server": {**SERVER, "restarts": -1}, "train": TRAIN}, "server.restarts is -1"),
        ({"server": {**SERVER, "ready_timeout_s": 0}, "train": TRAIN}, "server.ready_timeout_s is 0"),
        ({"server": {**SERVER, "instances": 2}, "train": TRAIN}, "server.instances is stated"),
        ({"server": SERVER, "train": {**TRAIN, "restarts": 2}}, "train.restarts is stated"),
        (
            {"server": SERVER, "train": {**TRAIN, "env": {"A": "b"}}},
            "no other role needs train: write env beside roles",
        ),
        ({"server": SERVER, "train": {**TRAIN, "rays": 1}}, "expected command, env, gpus, hosts"),
        ({"train": {"command": ["x"], "ray": 1}}, "train.ray is 1, expected true or false"),
        ({"train": {"command": ["x"], "ray": True, "ready": "file:up"}}, "train.ready is stated"),
        ({"Server": SERVER, "train": {"needs": ["Server"]}}, "small letters"),
    ],
)
def test_other_shapes_are_refused_with_what_was_read(stated: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidError) as refused:
        Job.of({"roles": stated})
    assert told in " ".join(f"{fault.text}: {fault.cure}" for fault in refused.value.faults)


def test_a_server_s_command_gets_its_own_address() -> None:
    words = ["serve", "--port={port}", '{"a": {host}}']
    assert roles.with_address(words, "n7:8000") == ["serve", "--port=8000", '{"a": n7}']
