"""kind: hosts on three real sshd hosts: they train as one process does, and are asked and ended one by one."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.attack import Attack, count_words
from tests.support.backend_places import OfHosts
from tests.support.hostile_texts import hostile
from tests.support.local_runs import command_of, every_process
from tests.support.network_hosts import INTERFACE, NetworkHosts, network_hosts
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(400)
NAMES = ("gpu-1", "gpu-2", "gpu-3")
JOB = (
    "--task",
    "digits-cnn",
    "--instances",
    "3",
    "--updates",
    "12",
    "--seed",
    "5",
    "--precision",
    "64.64",
    "--log-every",
    "4",
)
NVIDIA_SMI = """\
case $1 in
  --query-gpu=*) echo "0, GPU-$(hostname), NVIDIA A100, 10, 40960, 5" ;;
  *) if [ "$(hostname)" = gpu-2 ]; then echo "GPU-gpu-2, 77, python, 900"; fi ;;
esac
"""

# A rank writes down what it was given.
REPORTED = """\
import json, os, pathlib, sys
values = {name: value for name, value in os.environ.items() if name.startswith("VALUE_")}
path = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"]) / f"told-{os.environ['RANK']}.json"
path.write_text(json.dumps({"arguments": sys.argv[1:], "environment": values}))
"""


@pytest.fixture(scope="module")
def hosts(needs: Callable[[str], Path]) -> Iterator[NetworkHosts]:
    for service in ("ip", "mpirun", "rsync"):
        needs(service)
    with network_hosts(needs("sshd"), NAMES) as made:
        yield made


@pytest.fixture
def place(hosts: NetworkHosts, tmp_path: Path) -> OfHosts:
    return OfHosts(hosts, tmp_path, "far")


def trained(place: OfHosts, *words: str, cluster: str = "far") -> dict[str, Any]:
    answer: dict[str, Any] = place.json("submit", "--cluster", cluster, "--again", "--follow", *JOB, *words)
    return answer


def weights(folder: Path) -> Any:
    torch = pytest.importorskip("torch")
    from trainjob.train.recording import safetensors

    newest = sorted((folder / "checkpoints").glob("update-*"))[-1]
    tensors = safetensors.load(newest / "model.safetensors")
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors)])


@pytest.fixture(scope="module")
def alone(hosts: NetworkHosts, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The weights of one process over the same global batch."""
    batch = ("--instances", "1", "--accumulation", "3", "--engine", "single")
    place = OfHosts(hosts, tmp_path_factory.mktemp("alone"), "far")
    return weights(Path(trained(place, *batch, cluster="local")["folder"]))


@pytest.mark.parametrize("engine", ["ddp", pytest.param("naive", marks=pytest.mark.full)])
def test_digits_train_on_three_hosts_as_in_one_process(place: OfHosts, alone: Any, engine: str) -> None:
    run = trained(place, "--engine", engine)["id"]
    logs = [(place.runs / run / "logs" / f"rank-{rank:04d}.log").read_text() for rank in range(3)]
    assert [log.splitlines()[0].split(" · ")[2] for log in logs] == list(NAMES)
    assert float((weights(place.runs / run) - alone).abs().max()) < 1e-10


@pytest.mark.parametrize("launch", [pytest.param("beside", marks=pytest.mark.full), "gpu-1"])
def test_hosts_whose_own_names_mean_loopback_addresses_meet(place: OfHosts, hosts: NetworkHosts, launch: str) -> None:
    """Debian's default. Nobody has named an interface; the job script runs at the first host, or beside the hosts."""
    place.cluster_file("debian", network={}, **({"ssh": {"host": "gpu-1"}} if launch == "gpu-1" else {}))
    run = trained(place, "--engine", "ddp", cluster="debian")["id"]
    log = (place.runs / run / "logs" / "scheduler.out").read_text()
    for name in NAMES:
        output = f"the name {name} means 127.0.1.1 here, which no other host reaches: ranks use {INTERFACE}, over which"
        assert f"{output} {hosts.address('gpu-1')} is reached" in log


def test_digits_train_on_three_hosts_by_horovod(place: OfHosts, alone: Any, needs: Callable[[str], Path]) -> None:
    place.cluster_file("hvd", python=str(needs("horovod")), ssh={"host": "gpu-1"})
    run = trained(place, "--engine", "horovod", cluster="hvd")["id"]
    assert float((weights(place.runs / run) - alone).abs().max()) < 1e-10


def test_hostile_words_arrive_unchanged_on_every_host(attack: Attack, place: OfHosts) -> None:
    texts = hostile(250)
    values = {f"VALUE_{number}": text for number, text in enumerate(texts)}
    place.write("told.py", REPORTED)
    given = [word for name, text in values.items() for word in ("--env", f"{name}={text}")]
    words = ("--instances", "3", "--name", "'; touch canary; #", *given, "--", "python", "told.py", *texts)
    run = place.json("submit", "--cluster", "far", "--again", "--follow", *words)
    reported = [json.loads((place.runs / run["id"] / f"told-{rank}.json").read_text()) for rank in range(3)]
    assert [one["environment"] for one in reported] == [values] * 3
    assert not list(place.folder.rglob("canary*")) + list(place.runs.rglob("canary*"))
    count_words(attack, "ssh", texts, [one["arguments"] for one in reported])


def test_a_secret_and_the_environment_reach_all_hosts_and_stand_on_no_command_line(
    place: OfHosts, tmp_path: Path
) -> None:
    # Words that no other test has on a command line at the same time.
    token, plain = (f"{word}; {uuid.uuid4()}" for word in ("token", "plain"))
    secrets = tmp_path / "secrets.env"
    secrets.write_text(f"TOKEN={token}\n")
    secrets.chmod(0o600)
    place.cluster_file("secret", secrets_file=str(secrets), ssh={"host": "gpu-1"}, env={"PLAIN": plain})
    place.write(
        "tell.py",
        "import json, os, time\n"
        "print(json.dumps([os.environ[name] for name in ('TOKEN', 'PLAIN')]), flush=True)\n"
        "print('ready', flush=True)\ntime.sleep(600)\n",
    )
    asked = ("submit", "--cluster", "secret", "--again", "--instances", "3", "--", "python", "tell.py")
    run = place.at(place.json(*asked)["id"])
    until(lambda: all("ready" in run.log(rank) for rank in range(3)), "three ranks")
    reported = [json.loads(line) for rank in range(3) for line in run.log(rank).splitlines() if line.startswith("[")]
    assert reported == [[token, plain]] * 3
    lines = [" ".join(command_of(pid)) for pid in every_process()]
    assert [line for line in lines if token in line or plain in line] == []
    place.json("cancel", run.id)
    run.wait_until_nothing_is_left()


def test_logs_are_followed_while_it_runs(place: OfHosts) -> None:
    script = "for n in 1 2 3 4; do echo line $n of $RANK; sleep 0.3; done"
    output = place.trainjob(
        "submit", "--cluster", "far", "--again", "--follow", "--instances", "2", "--", "sh", "-c", script
    )
    assert [f"[{rank}] line {n} of {rank}" in output for rank in (0, 1) for n in (1, 2, 3, 4)] == [True] * 8, output


def test_devices_are_those_of_every_host(place: OfHosts) -> None:
    gpus = {"accelerator": "gpu", "accelerators": 1}
    place.cluster_file("gpus", nodes=gpus, ssh={"host": "gpu-1"})
    program = place.hosts.folder / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{NVIDIA_SMI}")
    program.chmod(0o755)
    try:
        listed = place.json("devices", "--cluster", "gpus")
    finally:
        program.unlink()
    assert [(one["device"], one["where"]) for one in listed] == [("GPU 0", f"{name} · NVIDIA A100") for name in NAMES]
    assert [bool(one["process"]) for one in listed] == [False, True, False]
    assert "has no devices" in place.call_trainjob("devices", "--cluster", "far")[2]


def test_the_inventory_has_every_host(place: OfHosts) -> None:
    place.cluster_file("made", provision={"data_sets": [{"name": "digits"}]}, data_dir="/localdata")
    made = json.loads(place.trainjob("cluster", "inventory", "made"))  # Ansible's form, not ours
    assert made["datasets"]["hosts"] == list(NAMES)


def test_what_is_wrong_on_one_host_is_found_before_anything_is_submitted(place: OfHosts) -> None:
    place.cluster_file("wrong", network={"interface": "eno7"}, ssh={"host": "gpu-1"})
    output = place.json("check", "--cluster", "wrong", "--instances", "3", code=1)["problems"]
    assert [problem["code"] for problem in output] == ["network"]
    assert "hosts gpu-1, gpu-2, gpu-3" in output[0]["text"]


def test_it_can_not_be_rehearsed_or_verified_and_says_what_can(place: OfHosts) -> None:
    assert "is of kind hosts" in place.call_trainjob("rehearse", "--cluster", "far")[2]
    assert "is of kind hosts" in place.call_trainjob("verify", "--cluster", "far")[2]


def test_a_host_that_is_down_is_named(needs: Callable[[str], Path], hosts: NetworkHosts, tmp_path: Path) -> None:
    with network_hosts(needs("sshd"), NAMES) as own:
        place = OfHosts(own, tmp_path, "far")
        own.cut("gpu-3")
        code, _, output = place.call_trainjob(
            "submit", "--cluster", "far", "--instances", "3", "--", "python", "stay.py"
        )
        assert code == 1
        assert "gpu-3 can't be reached" in output
        assert list(place.runs.iterdir()) == []


def test_cancel_names_a_host_that_it_can_not_reach(needs: Callable[[str], Path], tmp_path: Path) -> None:
    with network_hosts(needs("sshd"), NAMES) as own:
        place = OfHosts(own, tmp_path, "far")
        run = place.staying("--deaf")
        own.cut("gpu-2")
        output = place.call_trainjob("cancel", run.id, "--grace-s", "1")
        assert output[0] == 1
        assert f"run {run.id} may still have processes: gpu-2: gpu-1 can't reach it: ssh: connect to host" in output[2]
        assert run.processes() != []


def test_a_stopped_run_resumes_on_fewer_hosts_with_the_same_global_batch(place: OfHosts) -> None:
    words = ("--instances", "3", "--hosts", "3", "--accumulation", "2")
    stopped = place.submit(*place.task(slow=True), *words)
    stopped.wait_for_updates(2)
    place.trainjob("cancel", stopped.id, "--stop")
    stopped.wait("STOPPED")
    place.trainjob("resume", stopped.id, "--instances", "2", "--follow")
    status = stopped.status()
    assert [status[key] for key in ("state", "attempt", "update")] == ["COMPLETED", 2, 24], stopped.everything()
    planned = json.loads((place.runs / stopped.id / "job.json").read_text())["plan"]
    assert (planned["topology"]["instances"], planned["batch"]["accumulation"]) == (2, 3)


@pytest.mark.full
def test_provision_prepares_data_on_every_host(place: OfHosts, needs: Callable[[str], Path], tmp_path: Path) -> None:
    needs("ansible")
    wanted = {"data_sets": [{"name": "digits"}], "interpreter": sys.executable}
    place.cluster_file("bare", provision=wanted, data_dir=str(tmp_path / "localdata"))
    first = place.json("provision", "--cluster", "bare", "--tags", "datasets")
    assert sorted(first["hosts"]) == list(NAMES), first
    assert (tmp_path / "localdata/digits/manifest.json").is_file()
