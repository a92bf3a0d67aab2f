"""The command lines that run an image by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.images.engines import Caller, run_command

FABRIC = ["--cap-add", "IPC_LOCK", "--ulimit", "memlock=-1:-1", "--device", "/dev/infiniband/"]
HOST = ["--network", "host", "--ipc", "host"]


@pytest.fixture
def here(tmp_path: Path) -> Caller:
    devices = tmp_path / "dev"
    (devices / "infiniband").mkdir(parents=True)
    return Caller(Path("/home/ml/my project"), 1000, 100, False, {}, tmp_path / "home", devices)


def configured(here: Caller, *names: str) -> Caller:
    folder = here.home / ".ipuof.conf.d"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return here


def test_on_cpus_a_command_runs_as_the_user_in_the_project(here: Caller) -> None:
    line = run_command("cpu", "docker", "trainjob:cpu", ["plan", "--cluster", "pod4"], here)
    user = ["--user", "1000:100", "--volume", "/home/ml/my project:/project"]
    assert line == ["docker", "run", "--rm", *user, "trainjob:cpu", "plan", "--cluster", "pod4"]


def test_to_verify_an_image_nothing_is_mounted(here: Caller) -> None:
    line = run_command("cpu", "docker", "trainjob:cpu", [], here)
    assert line == ["docker", "run", "--rm", "--user", "1000:100", "trainjob:cpu"]


def test_a_terminal_is_handed_through(here: Caller) -> None:
    at = dataclasses.replace(here, has_terminal=True)
    assert run_command("cpu", "docker", "i", [], at)[3:5] == ["--interactive", "--tty"]


def test_gpus_come_by_the_engines_own_flag(here: Caller) -> None:
    docker = run_command("cuda", "docker", "trainjob:cuda", [], here)
    assert docker[5:] == ["--ipc", "host", "--gpus", "all", "trainjob:cuda"]
    podman = run_command("cuda", "podman", "trainjob:cuda", [], here)
    assert podman[3:] == [*("--userns", "keep-id"), "--ipc", "host", "--device", "nvidia.com/gpu=all", "trainjob:cuda"]


def test_podman_keeps_a_users_id_and_root_stays_root(here: Caller) -> None:
    assert run_command("cpu", "podman", "i", [], here)[3:] == ["--userns", "keep-id", "i"]
    root = dataclasses.replace(here, user=0, group=0)
    assert run_command("cpu", "podman", "i", [], root)[3:] == ["--user", "0:0", "i"]


def test_ipus_come_by_the_fabric_and_the_v_ipu_variables(here: Caller) -> None:
    environ = {"IPUOF_VIPU_API_HOST": "pod-ctl", "IPUOF_VIPU_API_PARTITION_ID": "p16", "OTHER": "x"}
    line = run_command("ipu", "docker", "trainjob:ipu", [], dataclasses.replace(here, environ=environ))
    names = ["--env", "IPUOF_VIPU_API_HOST", "--env", "IPUOF_VIPU_API_PARTITION_ID"]
    assert line[5:] == [*HOST, *FABRIC, *names, "trainjob:ipu"]


def test_ipus_come_by_the_users_ipuof_file(here: Caller) -> None:
    at = configured(here, "p16_ipuof.conf")
    line = run_command("ipu", "podman", "trainjob:ipu", [], at)
    mount = ["--volume", f"{here.home}/.ipuof.conf.d:/ipuof:ro", "--env", "IPUOF_CONFIG_PATH=/ipuof/p16_ipuof.conf"]
    assert line[5:] == [*HOST, *FABRIC, *mount, "trainjob:ipu"]


def test_ipus_on_cards_need_no_fabric(here: Caller) -> None:
    (here.devices / "infiniband").rmdir()
    for name in ("ipu0", "ipu0_mem", "ipu0_ex", "ipu0_mailbox"):
        (here.devices / name).touch()
    line = run_command("ipu", "docker", "trainjob:ipu", [], here)
    assert line[9:13] == FABRIC[:4]
    assert line.count("--device") == 4
    assert f"{here.devices}/ipu0_mailbox" in line


def test_ipus_that_nothing_leads_to_are_an_error_with_a_cure(here: Caller) -> None:
    with pytest.raises(UserError, match=r"set IPUOF_VIPU_API_HOST and .* ~/\.ipuof\.conf\.d"):
        run_command("ipu", "docker", "trainjob:ipu", [], here)


def test_of_several_ipuof_files_one_must_be_named(here: Caller) -> None:
    at = configured(here, "a.conf", "b.conf")
    with pytest.raises(UserError, match=r"has several files \(a\.conf, b\.conf\): set IPUOF_CONFIG_PATH"):
        run_command("ipu", "docker", "trainjob:ipu", [], at)
    named = dataclasses.replace(at, environ={"IPUOF_CONFIG_PATH": f"{here.home}/.ipuof.conf.d/b.conf"})
    assert "IPUOF_CONFIG_PATH=/ipuof/b.conf" in run_command("ipu", "docker", "trainjob:ipu", [], named)


@pytest.mark.parametrize("kind", ["cpu", "cuda", "ipu"])
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_nothing_is_ever_privileged(kind: str, engine: str, here: Caller) -> None:
    at = dataclasses.replace(here, environ={"IPUOF_VIPU_API_HOST": "pod-ctl"})
    assert "--privileged" not in run_command(kind, engine, "i", ["plan"], at)
