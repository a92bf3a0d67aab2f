"""Reads rocm-smi's JSON: AMD's GPUs, their memory and load, and the processes that compute on the host.

Its keys differ by release ("Card series", "Card Series"; "GPU use (%)"), so they are found by their words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.machines.devices.tools import Device

QUERY = ["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showuse", "--showpids", "--json"]
_MIB = 1 << 20
# An idle GPU still shows this much memory in use.
_IDLE_MIB = 512


def parse(output: str) -> list[Device]:
    """Return every GPU. A GPU in use names all processes of the host: the tool doesn't say which uses which."""
    start = output.find("{")  # warnings may come before it
    try:
        cards = json.loads(output[start:]) if start >= 0 else {}
    except ValueError:
        return []
    processes = ", ".join(_processes(cards.get("system", {})))
    return [_device(name, card, processes) for name, card in cards.items() if name.startswith("card")]


def _processes(system: Mapping[str, Any]) -> Iterator[str]:
    for key, value in system.items():
        if key.startswith("PID"):
            yield f"{key.removeprefix('PID')} {str(value).split(',')[0]}"


def _device(name: str, card: Mapping[str, str], processes: str) -> Device:
    facts = {key.lower(): value for key, value in card.items()}
    used, total = _mib(facts, "vram total used memory (b)"), _mib(facts, "vram total memory (b)")
    load = facts.get("gpu use (%)", "0")
    is_used = used > _IDLE_MIB or load not in ("0", "N/A")
    return Device(
        device=f"GPU {name.removeprefix('card')}",
        where=facts.get("card series") or facts.get("device name") or facts.get("card model", ""),
        detail=f"{used} of {total} MiB · {load} %",
        user="",
        process=(processes or "a process that rocm-smi does not name") if is_used else "",
    )


def _mib(facts: Mapping[str, str], key: str) -> int:
    value = str(facts.get(key, "0"))
    return int(value) // _MIB if value.isdigit() else 0
