"""What goes wrong on hosts, and what the user is told: a Poplar SDK that only looks like one, on Python 3.8 hosts."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import make_believe_sdk as sdk
from tests.support import small_cifar, sshd_hosts
from tests.support.programs import ran
from tests.support.provisioned import PYTHON, Administrator, plain
from tests.support.sshd_hosts import Site
from trainjob.provision.events import HostDone

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def python38(needs: Callable[[str], Path]) -> str:
    # Not a shim of pyenv: hosts have another home.
    words = [str(needs("python3.8")), "-c", "import sys; print(sys.executable)"]
    return ran(words, code=0).stdout.strip()


@pytest.fixture(scope="module")
def site(needs: Callable[[str], Path]) -> Iterator[Site]:
    for service in ("namespaces", "ansible", "python3.8"):
        needs(service)
    with sshd_hosts.site(needs("sshd"), ["pod1"]) as made:
        made.add("pod2", small="6m")
        sdk.write_wheelhouse(made.shared / "wheels")
        sdk.write_wheelhouse(made.shared / "old-wheels", torch="1.10.0")
        sdk.write_wheelhouse(made.shared / "cuda-wheels", torch="2.9.0", cuda="13.0")
        sdk.write_sdk(made.shared / "sdk")
        sdk.write_sdk(made.shared / "sdk39", tag="cp39")
        sdk.write_sdk(made.shared / "old-sdk", torch="1.13.1")
        yield made


@pytest.fixture(scope="module")
def administrator(site: Any, python38: str, tmp_path_factory: pytest.TempPathFactory) -> Administrator:
    return Administrator(tmp_path_factory.mktemp("administrator"), site, pod(site, python38))


def pod(site: Site, python38: str) -> dict[str, Any]:
    archive = f"/mnt/sdk/{sdk.ARCHIVE}"
    return {
        "kind": "ipu-pod",
        "ipus": 64,
        "hosts": "pod[1-2]",
        "ssh": {"host": "pod1", "user": "root"},
        "sdk": {"version": "3.3.0", "path": "/srv/poplar_sdk", "venv": "/srv/venvs/poptorch"},
        "provision": {
            "interpreter": python38,
            "venv": {
                "kind": "poplar",
                "python": python38,
                "archive": archive,
                "sha256": sdk.sha256_of(site.at_shared(archive)),
                "wheelhouse": "/mnt/wheels",
            },
        },
    }


# -- a pod of Python 3.8 -----------------------------------------------------------------------


# What newly lies on a host when a run is ended: while it unpacks, and while it installs.
MOMENTS = (
    "poplar_sdk.builds/*/enable",
    "venvs/poptorch.builds/*/lib/*/site-packages/poptorch",
)


@pytest.fixture(scope="module")
def cut(administrator: Any, site: Any) -> None:
    """Runs that kill -9 has ended, each at a later moment than the one before."""
    for moment in MOMENTS:
        before = found(site, moment)
        administrator.killed(lambda moment=moment, before=before: found(site, moment) - before)
        assert not found(site, "venvs/poptorch"), f"the run was not cut at {moment}, it had finished"


def found(site: Site, pattern: str) -> set[Path]:
    return {path for host in site.hosts.values() for path in host.files.glob(pattern)}


@pytest.fixture(scope="module")
def repaired(administrator: Any, cut: None) -> Any:
    return administrator.provision("--tags", "sdk", "--json").json


def test_the_run_after_a_kill_repairs_what_was_cut(repaired: Any, site: Any, python38: str) -> None:
    assert repaired["ok"], repaired["failures"]
    assert {roles["sdk_venv"] for roles in repaired["hosts"].values()} == {"changed"}
    for name, host in site.hosts.items():
        assert host.at("/srv/venvs/poptorch").is_symlink()
        assert len(list(host.at("/srv/venvs/poptorch.builds").glob("*/.trainjob-build.json"))) == 1
        use = ". /srv/poplar_sdk/enable && /srv/venvs/poptorch/bin/python -c 'import poptorch, popdist; print(1)'"
        assert site.ssh(name, use).stdout == "1\n"


# That a second run changes nothing is shown by test_site.py.
@pytest.mark.parametrize("flags", [["--check", "--limit", "pod1"], pytest.param([], marks=pytest.mark.full)])
def test_the_next_run_changes_nothing_and_a_check_says_so(flags: list[str], repaired: Any, administrator: Any) -> None:
    again = administrator.provision("--tags", "sdk", "--json", *flags).json
    assert (again["ok"], again["changed"], again["failures"]) == (True, 0, [])


def test_a_broken_virtualenv_is_built_anew_beside_and_the_old_one_goes_when_asked(
    repaired: Any, administrator: Any, site: Any
) -> None:
    host = site.hosts["pod1"]
    broken = host.at("/srv/venvs/poptorch").resolve()
    shutil.rmtree(next(broken.glob("lib/*/site-packages/poptorch")))
    ended = administrator.provision("--tags", "sdk", "--limit", "pod1", "--json").json
    assert ended["hosts"]["pod1"]["sdk_venv"] == "changed", ended
    assert host.at("/srv/venvs/poptorch").resolve() != broken
    assert broken.exists()
    assert administrator.provision("--tags", "prune", "--limit", "pod1").code == 0
    assert not broken.exists()


@pytest.mark.full
def test_horovod_on_a_pod_is_for_the_sdks_own_open_mpi(repaired: Any, administrator: Any, site: Any) -> None:
    key = f"py3.8-torch{sdk.TORCH}+cpu-mpi{sdk.MPI}-x86_64-horovod-0.28.1"
    kept = administrator.cache / "trainjob/provision" / key
    kept.mkdir(parents=True)
    sdk.write_wheel(kept, "horovod", "0.28.1", "py3-none-any", "")
    administrator.write(dict(administrator.cluster, provision=dict(administrator.cluster["provision"], horovod=True)))
    ended = administrator.provision("--tags", "horovod", "--limit", "pod1", "--json").json
    assert ended["hosts"]["pod1"]["horovod"] == "changed", ended["failures"]
    assert site.hosts["pod1"].at("/srv/venvs/poptorch/.trainjob-horovod").read_text() == f"{key}\n"
    assert site.hosts["pod1"].at("/srv/mpirun.calls").read_text().startswith("-np 2 ")


# -- what goes wrong, each on a host of its own in one run of plain ansible-playbook -----------


@pytest.fixture(scope="module")
def mistakes(repaired: Any, administrator: Any, site: Any, python38: str) -> dict[str, HostDone]:
    """What is refused before anything is built, beside a host without a mistake."""
    site.hosts["pod2"].at("/srv/theirs").mkdir()
    cases: dict[str, dict[str, Any]] = {
        "checksum": {"sdk_venv_sha256": "0" * 64},
        "full": {"sdk_venv_path": "/srv/small/venv", "ansible_host": "pod2"},
        "python": {"sdk_venv_python": "python3.99"},
        "tag": with_sdk(site, "sdk39"),
        "torch": {**with_sdk(site, "old-sdk"), "sdk_venv_torch": "2.0.1"},
        "absent": {"sdk_venv_archive": "/nowhere/sdk.tar.gz"},
        "theirs": {"sdk_venv_path": "/srv/theirs", "ansible_host": "pod2"},
        "denied": {"ansible_user": "ml", "ansible_python_interpreter": "/usr/bin/python3"},
        "untouched": {},
    }
    return failed(administrator, site, python38, cases)


@pytest.fixture(scope="module")
def built_wrongly(repaired: Any, administrator: Any, site: Any, python38: str) -> dict[str, HostDone]:
    """What shows once a virtualenv is built."""
    cases: dict[str, dict[str, Any]] = {
        "missing": with_sdk(site, "old-sdk"),
        "broken": {"sdk_venv_kind": "cpu", "sdk_venv_torch": "9.9.9"},
        "cuda": {"sdk_venv_kind": "cuda", "sdk_venv_torch": sdk.TORCH},
        "gpu": CUDA,
        "gpu-elsewhere": {**CUDA, "sdk_venv_needs_gpu": False},
    }
    return failed(administrator, site, python38, cases)


def failed(
    administrator: Administrator, site: Site, python38: str, cases: dict[str, dict[str, Any]]
) -> dict[str, HostDone]:
    """Provision a host of its own for each case in one run that fails, and return how those ended that failed."""
    good = {
        "sdk_venv_kind": "poplar",
        "sdk_venv_python": python38,
        "sdk_venv_archive": f"/mnt/sdk/{sdk.ARCHIVE}",
        "sdk_venv_sha256": sdk.sha256_of(site.at_shared(f"/mnt/sdk/{sdk.ARCHIVE}")),
        "sdk_venv_wheelhouse": "/mnt/wheels",
    }
    hosts = {
        name: {
            "ansible_host": "pod1",
            "ansible_user": "root",
            "ansible_python_interpreter": python38,
            **good,
            "sdk_venv_path": f"/srv/{name}/venv",
            "sdk_venv_sdk_path": f"/srv/{name}/poplar_sdk",
            **variables,
        }
        for name, variables in cases.items()
    }
    code, events = plain(administrator, {"sdk": {"hosts": hosts}}, "--tags", "sdk")
    assert code != 0
    return {event.host: event for event in events if event.status in ("failed", "unreachable")}


CUDA = {"sdk_venv_kind": "cuda", "sdk_venv_torch": "2.9.0", "sdk_venv_wheelhouse": "/mnt/cuda-wheels"}


def with_sdk(site: Site, folder: str) -> dict[str, str]:
    archive = f"/mnt/{folder}/{sdk.ARCHIVE}"
    return {"sdk_venv_archive": archive, "sdk_venv_sha256": sdk.sha256_of(site.at_shared(archive))}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("checksum", ["is not the expected file: its sha256 is", "expected 0000"]),
        ("full", ["MB are left at /srv/small", "make room there"]),
        ("python", ["python3.99 is not on this host", "Name an interpreter of the hosts with python:"]),
        ("tag", ["is for Python 3.9, and this interpreter", "is 3.8: set python:"]),
        ("torch", ["needs torch 1.13.1", "torch: says 2.0.1: take torch: out"]),
        ("absent", ["/nowhere/sdk.tar.gz is neither on this host nor on the machine that runs Ansible"]),
        ("theirs", ["/srv/theirs is there and was not made by these playbooks: move it away"]),
        ("denied", ["ml may not write to /srv (owner root, mode 0755)", "or run with --become"]),
    ],
)
def test_each_refusal_says_what_to_do(mistakes: dict[str, HostDone], name: str, message: list[str]) -> None:
    assert missing_of(message, mistakes[name].why) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", ["neither the index nor the wheelhouse has torch==1.13.1", "for this Python: add the wheels"]),
        ("broken", ["neither the index nor the wheelhouse has torch==9.9.9", "for this Python: add the wheels"]),
        ("cuda", ["its health check fails: this torch 2.0.1 was built without CUDA"]),
        (
            "gpu",
            ["no GPU that torch 2.9.0, built for CUDA 13.0, can use: see what nvidia-smi says", "needs_gpu: false"],
        ),
    ],
)
def test_each_failure_says_what_to_do(built_wrongly: dict[str, HostDone], name: str, message: list[str]) -> None:
    assert missing_of(message, built_wrongly[name].why) == []


def missing_of(message: list[str], why: str) -> list[str]:
    """Return what of a message a user does not get; all of it beside a traceback."""
    return [text for text in message if text not in why or "Traceback" in why]


def test_a_host_without_a_mistake_is_not_held_up(mistakes: dict[str, HostDone], site: Any) -> None:
    assert "untouched" not in mistakes
    assert site.hosts["pod1"].at("/srv/untouched/venv").is_symlink()
    assert half_made(mistakes, site) == []


@pytest.mark.full
def test_a_gpu_that_is_elsewhere_is_not_looked_for(built_wrongly: dict[str, HostDone], site: Any) -> None:
    assert "gpu-elsewhere" not in built_wrongly
    assert site.hosts["pod1"].at("/srv/gpu-elsewhere/venv").is_symlink()
    assert half_made(built_wrongly, site) == []


def half_made(failures: dict[str, HostDone], site: Site) -> list[Path]:
    """Return what lies in the places of virtualenvs that could not be made."""
    places = [host.at(f"/srv/{name}/venv") for name in failures for host in site.hosts.values()]
    return [place for place in places if place.exists() or place.is_symlink()]


def test_an_inventory_that_cannot_be_meant_stops_before_any_host_changes(administrator: Any, site: Any) -> None:
    hosts = {
        "pod1": {"sdk_venv_kind": "cpu", "sdk_venv_path": "/srv/fine/venv"},
        "pod2": {"sdk_venv_kind": "tpu", "sdk_venv_path": "/srv/fine/venv"},
    }
    code, events = plain(administrator, {"sdk": {"hosts": hosts}})
    assert code != 0
    [failed] = [event for event in events if event.status == "failed"]
    assert (failed.host, failed.role) == ("pod2", "validate")
    assert "value of sdk_venv_kind must be one of: poplar, cuda, cpu, got: tpu" in failed.why
    assert not site.hosts["pod1"].at("/srv/fine").exists()


# -- data sets ---------------------------------------------------------------------------------


@pytest.mark.full
def test_an_archive_that_one_host_has_reaches_the_others(administrator: Any, site: Any, python38: str) -> None:
    path = small_cifar.write_archive(site.hosts["pod1"].at("/srv/cifar.tar.gz"), small_cifar.make_batches())
    variables = {
        "dataset_dir": "/srv/data",
        "dataset_python": sys.executable,
        "dataset_sets": [
            {"name": "cifar10", "archive": "/srv/cifar.tar.gz", "host": "pod1", "sha256": sdk.sha256_of(path)},
            {"name": "synthetic", "samples": 64, "held_out": 16, "shape": "1x4x4"},
        ],
        "ansible_python_interpreter": python38,
        "ansible_user": "root",
    }
    inventory = {"datasets": {"hosts": {"pod1": None, "pod2": None}, "vars": variables}}
    code, events = plain(administrator, inventory, "--tags", "datasets")
    assert code == 0, [event.why for event in events if event.status == "failed"]
    texts = {site.hosts[name].at("/srv/data/cifar10/manifest.json").read_text() for name in ("pod1", "pod2")}
    assert len(texts) == 1
    code, events = plain(administrator, inventory, "--tags", "datasets")
    assert (code, [event for event in events if event.status == "changed"]) == (0, [])


# -- this machine ------------------------------------------------------------------------------


def test_this_machine_is_provisioned_without_ssh(needs: Callable[[str], Path], tmp_path: Path) -> None:
    needs("ansible")
    venv = tmp_path / "venvs/torch"
    cluster = {
        "kind": "local",
        "python": str(venv / "bin/python"),
        "provision": {
            "venv": {
                "kind": "cpu",
                "python": PYTHON,
                "torch": "2.0.1",
                "wheelhouse": str(sdk.write_wheelhouse(tmp_path / "wheels")),
                "requirements": str(pinned(tmp_path)),
            }
        },
    }
    administrator = Administrator(tmp_path, None, cluster)
    ended = administrator.provision("--tags", "sdk", "--json")
    assert ended.json["ok"], ended.output
    assert ended.json["hosts"] == {"localhost": {"validate": "ok", "sdk_venv": "changed"}}
    assert administrator.run(str(venv / "bin/python"), "-c", "import extra").code == 0
    (tmp_path / "pinned.txt").write_text("extra==1.0 --hash=sha256:" + "0" * 64)
    refused = administrator.provision("--tags", "sdk", "--json")
    assert "DO NOT MATCH THE HASHES" in refused.json["failures"][0]["why"]
    assert administrator.run(str(venv / "bin/python"), "-c", "import extra").code == 0, "the old one stays in place"


def pinned(folder: Path) -> Path:
    wheel = sdk.write_wheel(folder / "wheels", "extra", "1.0", "py3-none-any", "")
    path = folder / "pinned.txt"
    path.write_text(f"extra==1.0 --hash=sha256:{sdk.sha256_of(wheel)}\n")
    return path
