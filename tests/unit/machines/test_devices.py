"""Devices and their users, in the words of gc-monitor, nvidia-smi and rocm-smi."""

from __future__ import annotations

import json

from tests.support.gc_monitor_tables import BOARDS, PROCESSES
from trainjob.machines.devices import Device, amd_gpus, ipus, nvidia_gpus


def test_ipus_are_those_of_the_boards_with_the_process_that_is_attached() -> None:
    free, used, _ = ipus(BOARDS + PROCESSES)
    assert free == Device("IPU 0", "p16 · 10.1.5.1", "", "", "")
    assert used == Device("IPU 1", "p16 · 10.1.5.1", "1330MHz · 92.4 W", "ml", "4242 python 3s")
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
    )
    assert free.process == ""


def test_an_amd_gpu_in_use_names_all_processes_of_the_host() -> None:
    idle = {"Card Series": "Instinct MI210", "GPU use (%)": "0", "VRAM Total Memory (B)": str(64 << 30)}
    busy = {"Device Name": "Instinct MI210", "GPU use (%)": "97", "VRAM Total Used Memory (B)": str(2 << 30)}
    first, second = amd_gpus(json.dumps({"card0": idle, "card1": busy, "system": {"PID77": "python, 1, 0"}}))
    assert first == Device("GPU 0", "Instinct MI210", "0 of 65536 MiB · 0 %", "", "")
    assert (second.detail, second.process) == ("2048 of 0 MiB · 97 %", "77 python")
    [unnamed] = amd_gpus(json.dumps({"card0": busy}))
    assert unnamed.process == "a process that rocm-smi does not name"
