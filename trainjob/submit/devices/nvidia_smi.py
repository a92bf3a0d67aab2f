"""Reads nvidia-smi's lists, comma-separated: GPUs, and the processes that compute on them."""

from __future__ import annotations

import csv
import io

from trainjob.submit.devices.device import Device

GPUS = ("index", "uuid", "name", "memory.used", "memory.total", "utilization.gpu")
PROCESSES = ("gpu_uuid", "pid", "process_name", "used_memory")


def query(what: str, fields: tuple[str, ...]) -> list[str]:
    """Return the command that lists `fields` of each of `what`: gpu, or compute-apps."""
    return ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]


def parse(gpus: str, processes: str) -> list[Device]:
    """Return every GPU, with the processes on it."""
    users: dict[str, list[str]] = {}
    for row in _rows(processes, PROCESSES):
        users.setdefault(row["gpu_uuid"], []).append(f"{row['pid']} {row['process_name']} ({row['used_memory']} MiB)")
    return [
        Device(
            device=f"GPU {row['index']}",
            where=row["name"],
            detail=f"{row['memory.used']} of {row['memory.total']} MiB · {row['utilization.gpu']} %",
            user="",
            process=", ".join(users.get(row["uuid"], [])),
        )
        for row in _rows(gpus, GPUS)
    ]


def _rows(text: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    lines = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [
        dict(zip(fields, (cell.strip() for cell in line), strict=True)) for line in lines if len(line) == len(fields)
    ]
