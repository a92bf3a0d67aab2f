"""The invocations that are published (examples, benchmarks, lessons), each from a cluster file and flags.

Each script is run for real with a poprun that writes down what it was given.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.pod_cases import pod_request
from tests.support.programs import ran
from tests.support.render_cases import rendered
from trainjob.backends import folder

RECORDER = """#!/bin/bash
printf '%s\\0' "$@" >>"$RECORD.arguments"
env -0 >"$RECORD.environment"
"""
ENGINE = '{"opt.enableMultiAccessCopies": "false", "target.hostSyncTimeout": "900"}'
USUAL = {"server": "pod-ctl", "partition": "p64"}


class Invocation(NamedTuple):
    pod: dict[str, Any]
    job: dict[str, Any]
    options: dict[str, str | None]
    forwarded: tuple[str, ...] = ()
    environment: dict[str, str] = {}  # noqa: RUF012 - a tuple's default, which nobody changes


def pod(ipus: int, hosts: int, vipu: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    poprun = {"print_topology": False, **keys.pop("poprun", {})}
    named = {"hosts": f"h[1-{hosts}]"} if hosts > 1 else {"host_count": 1}
    return {"kind": "ipu-pod", "ipus": ipus, **named, "vipu": USUAL if vipu is None else vipu, "poprun": poprun, **keys}


def names(hosts: int) -> str:
    return ",".join(f"h{number}" for number in range(1, hosts + 1))


def both(network: str) -> str:
    return f"--mca oob_tcp_if_include {network} --mca btl_tcp_if_include {network}"


def options(instances: int, replicas: int, ipus: int, hosts: int, **more: str | None) -> dict[str, str | None]:
    counts = {"num-instances": str(instances), "num-replicas": str(replicas), "ipus-per-replica": str(ipus)}
    host = {"host": names(hosts)} if hosts > 1 else {}
    given = {name.replace("_", "-"): value for name, value in more.items()}
    return {f"--{name}": value for name, value in {**host, **counts, **given}.items()}


SERVED: dict[str, str | None] = {"vipu_server_host": "pod-ctl", "vipu_partition": "p64"}
CASES = {
    "resnet50-pytorch-pod64": Invocation(
        pod(
            64,
            4,
            {**USUAL, "reset_partition": False},
            poprun={
                "verbosity": 2,
                "executable_cache": "/cache",
                "mpi_global_args": ["--mca btl_tcp_if_include eno1"],
            },
            env={"IPUOF_VIPU_API_TIMEOUT": "800", "POPLAR_ENGINE_OPTIONS": ENGINE},
        ),
        {"instances": 16, "replicas": 64},
        options(
            16,
            64,
            1,
            4,
            vv=None,
            **SERVED,
            reset_partition="no",
            executable_cache_path="/cache",
            mpi_global_args="--mca btl_tcp_if_include eno1",
        ),
        ("LD_LIBRARY_PATH", "OPAL_PREFIX", "PATH", "CPATH", "PYTHONPATH", "IPUOF_VIPU_API_TIMEOUT"),
        {"IPUOF_VIPU_API_TIMEOUT": "800", "POPLAR_ENGINE_OPTIONS": ENGINE},
    ),
    "cnns-pytorch-pod64": Invocation(
        pod(
            64,
            4,
            {
                **USUAL,
                "port": 8090,
                "allocation": "all",
                "update_partition": True,
                "remove_partition": True,
                "reset_partition": False,
            },
            poprun={"executable_cache": "/cache", "options": {"sync-type": "ST_POD_NATIVE_DEFAULT"}},
            network={"interface": "eno1"},
        ),
        {"instances": 32, "replicas": 64},
        options(
            32,
            64,
            1,
            4,
            **SERVED,
            vipu_server_port="8090",
            vipu_allocation="all",
            update_partition="yes",
            remove_partition="yes",
            reset_partition="no",
            sync_type="ST_POD_NATIVE_DEFAULT",
            executable_cache_path="/cache",
            mpi_global_args=both("eno1"),
        ),
    ),
    "cnns-pytorch-one-host": Invocation(pod(64, 1), {"instances": 8, "replicas": 64}, options(8, 64, 1, 1, **SERVED)),
    "cnns-pytorch-pod16": Invocation(pod(16, 1), {"instances": 8, "replicas": 16}, options(8, 16, 1, 1, **SERVED)),
    "vit-pod64": Invocation(
        pod(
            64,
            4,
            {**USUAL, "timeout_s": 3600},
            ilds=1,
            poprun={"mpi_global_args": ["--output-filename /logs/vit"]},
            env={"POPLAR_LOG_LEVEL": "WARN", "IPUOF_VIPU_API_TIMEOUT": "3600"},
        ),
        {"instances": 8, "replicas": 16, "ipus_per_replica": 4},
        options(
            8,
            16,
            4,
            4,
            **SERVED,
            num_ilds="1",
            vipu_server_timeout="3600",
            mpi_global_args="--output-filename /logs/vit",
        ),
        ("OPAL_PREFIX", "POPLAR_LOG_LEVEL", "POPLAR_SDK_ENABLED", "IPUOF_VIPU_API_TIMEOUT"),
    ),
    "swin-pod128": Invocation(
        pod(
            128,
            2,
            {"server": "pod-ctl", "partition": "pod128", "update_partition": True},
            ilds=2,
            network={"interface": "10.5.0.0/16"},
            poprun={"mpi_local_args": ["-x IPUOF_VIPU_API_TIMEOUT=3600", "-x POPLAR_LOG_LEVEL=WARN"]},
        ),
        {"instances": 2, "replicas": 8, "ipus_per_replica": 8},
        options(
            2,
            8,
            8,
            2,
            vipu_server_host="pod-ctl",
            vipu_partition="pod128",
            num_ilds="2",
            update_partition="yes",
            mpi_global_args=both("10.5.0.0/16"),
        ),
        ("IPUOF_VIPU_API_TIMEOUT=3600", "POPLAR_LOG_LEVEL=WARN"),
    ),
    "gpt2-pod64": Invocation(
        pod(64, 4, env={"POPLAR_TARGET_OPTIONS": '{"gatewayMode": "true"}'}),
        {"instances": 4, "replicas": 16, "ipus_per_replica": 4},
        options(4, 16, 4, 4, **SERVED),
        ("POPLAR_TARGET_OPTIONS",),
        {"POPLAR_TARGET_OPTIONS": '{"gatewayMode": "true"}'},
    ),
    "bert-pytorch-pod128": Invocation(
        pod(
            128,
            2,
            {**USUAL, "allocation": "c128"},
            ilds=2,
            sdk={"version": "2.4"},
            env={"HOROVOD_STALL_CHECK_TIME_SECONDS": "600", "IPUOF_VIPU_API_TIMEOUT": "600"},
        ),
        {"instances": 2, "replicas": 32, "ipus_per_replica": 4},
        options(2, 32, 4, 2, **SERVED, vipu_cluster="c128", num_ilds="2"),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "IPUOF_VIPU_API_TIMEOUT"),
    ),
    "resnet50-tensorflow-pod128": Invocation(
        pod(128, 8), {"instances": 64, "replicas": 128}, options(64, 128, 1, 8, **SERVED)
    ),
    "resnet50-tensorflow-pod256": Invocation(
        pod(256, 16), {"instances": 128, "replicas": 256}, options(128, 256, 1, 16, **SERVED)
    ),
    "mlperf-resnet-pod64": Invocation(
        pod(
            64,
            4,
            env={"POPLAR_RUNTIME_OPTIONS": '{"streamCallbacks.maxLookahead": "unlimited"}'},
            poprun={"forward": ["TMPDIR", "TEMP"]},
        ),
        {"instances": 32, "replicas": 64},
        options(32, 64, 1, 4, **SERVED),
        ("TMPDIR", "TEMP", "POPLAR_RUNTIME_OPTIONS"),
    ),
    "mlperf-bert-pod128": Invocation(
        pod(128, 2, ilds=2, poprun={"executable_cache": "/shared/cache"}),
        {"instances": 2, "replicas": 16, "ipus_per_replica": 8},
        options(2, 16, 8, 2, **SERVED, num_ilds="2", executable_cache_path="/shared/cache"),
    ),
    "mlperf-bert-pod256": Invocation(
        pod(256, 4, ilds=4),
        {"instances": 4, "replicas": 32, "ipus_per_replica": 8},
        options(4, 32, 8, 4, **SERVED, num_ilds="4"),
    ),
    "bert-tensorflow-pod64-offline": Invocation(
        pod(64, 4, ilds=1, env={"POPLAR_TARGET_OPTIONS": '{"ipuLinkDomainSize": "64"}'}),
        {"instances": 4, "replicas": 16, "ipus_per_replica": 4, "accumulation": 8, "compile_only": True},
        options(4, 16, 4, 4, **SERVED, num_ilds="1", executable_cache_path="{run}/executables", offline_mode="yes"),
        ("POPLAR_TARGET_OPTIONS",),
    ),
    "tutorial": Invocation(pod(4, 1, {}), {"instances": 2, "replicas": 4}, options(2, 4, 1, 1)),
    "lessons": Invocation(pod(16, 1, {}), {"instances": 4, "replicas": 8, "ipus_per_replica": 2}, options(4, 8, 2, 1)),
    "helper-scripts": Invocation(
        pod(64, 2, {**USUAL, "timeout_s": 500}, poprun={"print_topology": True}),
        {"instances": 4, "replicas": 64, "poprun": {"only-output-from-instance": 0}},
        options(
            4,
            64,
            1,
            2,
            **SERVED,
            vipu_server_timeout="500",
            print_topology="yes",
            only_output_from_instance="0",
        ),
    ),
    "third-party": Invocation(
        pod(
            16,
            2,
            {**USUAL, "update_partition": False, "timeout_s": 120},
            sdk={"version": "2.6.0"},
            poprun={"print_topology": True, "numa": "spread"},
        ),
        {"instances": 2, "replicas": 8, "ipus_per_replica": 2},
        options(
            2,
            8,
            2,
            2,
            **SERVED,
            update_partition="no",
            vipu_server_timeout="120",
            print_topology="yes",
            numa_aware="yes",
        ),
    ),
}


def recorded(base: Path, asked: Invocation) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment that poprun is given."""
    program = base / "bin" / "poprun"
    program.parent.mkdir()
    program.write_text(RECORDER)
    program.chmod(0o755)
    set_there = {name: f"/some/{name}" for name in asked.forwarded if "=" not in name and name != "PATH"}
    command = {"task": "mine:Task"} if "compile_only" in asked.job else {"command": ["train", "a b"]}
    paths = folder.create(base / "run", rendered(pod_request(asked.pod, **asked.job, **command)), None, None)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, **set_there, "PATH": path, "RECORD": str(base / "record"), "HOME": str(base)}
    ran(["bash", paths.job_script], environ=environ, code=0)
    words = (base / "record.arguments").read_text().split("\0")[:-1]
    given = (line.partition("=") for line in (base / "record.environment").read_text().split("\0") if line)
    return words, {name: value for name, _, value in given}


@pytest.mark.parametrize("name", CASES)
def test_the_invocation_can_be_said(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = CASES[name]
    # A cache of the site's is made where the script may: here below the test's own folder.
    changed = _below(asked, tmp_path)
    words, environment = recorded(tmp_path, changed)
    own = words[: words.index("python3")]
    found = {flag: value if equals else None for flag, equals, value in (word.partition("=") for word in own)}
    forwarded = (found.pop("--mpi-local-args", None) or "").split()[1::2]
    run = str(tmp_path / "run")
    assert found == {flag: value and value.replace("{run}", run) for flag, value in changed.options.items()}
    assert set(asked.forwarded) <= set(forwarded)
    assert {key: environment[key] for key in asked.environment} == asked.environment


def _below(asked: Invocation, base: Path) -> Invocation:
    cache = asked.pod["poprun"].get("executable_cache")
    if cache is None:
        return asked
    place = str(base / "the cache")
    poprun = {**asked.pod["poprun"], "executable_cache": place}
    return asked._replace(
        pod={**asked.pod, "poprun": poprun}, options={**asked.options, "--executable-cache-path": place}
    )


def test_only_names_that_are_set_are_forwarded(tmp_path: Path) -> None:
    asked = Invocation(pod(64, 2, env={"MINE": "it's"}, poprun={"forward": ["NOT_SET_HERE"]}), {"instances": 4}, {})
    words, environment = recorded(tmp_path, asked)
    local = next(word for word in words if word.startswith("--mpi-local-args="))
    assert " -x MINE" in local
    assert "NOT_SET_HERE" not in local
    assert environment["MINE"] == "it's"


def test_a_users_words_are_not_on_a_line_that_mpirun_reads(tmp_path: Path) -> None:
    words, _ = recorded(tmp_path, Invocation(pod(4, 1), {"instances": 2}, {}))
    assert words[-2:] == ["--command-of-job", str(tmp_path / "run")]
    assert "a b" not in words
