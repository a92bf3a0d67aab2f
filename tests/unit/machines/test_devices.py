"""Devices and their users, in the words of gc-monitor, nvidia-smi and rocm-smi."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gc_monitor_tables import BOARDS, PROCESSES
from trainjob.kinds.table import cluster_of
from trainjob.machines import devices
from trainjob.machines.access import ThisMachine
from trainjob.machines.devices import Device, amd_gpus, ipus, nvidia_gpus
from trainjob.machines.process import Completed


def test_ipus_are_those_of_the_boards_with_the_process_that_is_attached() -> None:
    free, used, _ = ipus(BOARDS + PROCESSES)
    assert free == Device("IPU 0", "p16 · 10.1.5.1", "", "", "", is_free=True)
    assert used == Device("IPU 1", "p16 · 10.1.5.1", "1330MHz · 92.4 W", "ml", "4242 python 3s", is_free=False)
    [alone] = ipus(PROCESSES)  # a release that prints no boards
    assert (alone.device, alone.process) == ("IPU 1", "4242 python 3s")


def test_gpus_have_the_processes_that_compute_on_them() -> None:
    listed = "0, GPU-a, NVIDIA A100-SXM4-40GB, 1024, 40960, 83\n1, GPU-b, NVIDIA A100-SXM4-40GB, 0, 40960, 0\n"
    used, free = nvidia_gpus(listed, "GPU-a, 7, python, 1000\nGPU-a, 8, /usr/bin/x, 20\n")
    assert used == Device(
        "GPU 0",
        "NVIDIA A100-SXM4-40GB",
        "1024 of 40960 MiB · 83 %",
        "",
        "7 python (1000 MiB), 8 /usr/bin/x (20 MiB)",
        is_free=False,
    )
    assert (free.process, free.is_free) == ("", True)


def test_an_amd_gpu_in_use_names_all_processes_of_the_host() -> None:
    idle = {"Card Series": "Instinct MI210", "GPU use (%)": "0", "VRAM Total Memory (B)": str(64 << 30)}
    busy = {"Device Name": "Instinct MI210", "GPU use (%)": "97", "VRAM Total Used Memory (B)": str(2 << 30)}
    first, second = amd_gpus(json.dumps({"card0": idle, "card1": busy, "system": {"PID77": "python, 1, 0"}}))
    assert first == Device("GPU 0", "Instinct MI210", "0 of 65536 MiB · 0 %", "", "", is_free=True)
    assert (second.detail, second.process) == ("2048 of 0 MiB · 97 %", "77 python")
    [unnamed] = amd_gpus(json.dumps({"card0": busy}))
    assert unnamed.process == "a process that rocm-smi does not name"


class Controller(ThisMachine):
    """Answers as a controller that hides others' jobs."""

    name = "login"

    def run(self, arguments: Any, **_: Any) -> Completed:
        sinfo = (
            "n1|gpu:a100:2|gpu:a100:2(IDX:0-1)|allocated|\nn2|gpu:a100:2|gpu:a100:1(IDX:1)|mixed|\n"
            "n3|gpu:a100:2|gpu:a100:0(IDX:N/A)|idle|\nn4|gpu:a100:2|gpu:a100:0(IDX:N/A)|down*|\n"
            "n5|gpu:a100:2|gpu:a100:0(IDX:N/A)|allocated|\n"
        )
        mine = "JobId=7 JobName=x UserId=me(1000) Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:a100:1(IDX:0)\n"
        return Completed(tuple(arguments), 0, (sinfo if "sinfo" in arguments else mine).encode(), "")


def test_gpus_that_others_hold_under_slurm_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "machine_of", lambda _cluster: Controller())
    cluster = cluster_of({"kind": "slurm", "nodes": {"count": 5, "accelerator": "gpu", "accelerators": 2, "cpus": 8}})
    listed = devices.devices("hpc", cluster)
    held = [(one.where.partition(" ")[0], one.device, one.user, one.process) for one in listed if one.process]
    assert held == [
        ("n1", "GPU 0", "me", "job 7"),
        ("n1", "GPU 1", "", "a job that you may not see"),
        ("n2", "GPU 1", "", "a job that you may not see"),
    ]
    free = [(one.where.partition(" ")[0], one.device) for one in listed if one.is_free]
    assert free == [("n2", "GPU 0"), ("n3", "GPU 0"), ("n3", "GPU 1")]
