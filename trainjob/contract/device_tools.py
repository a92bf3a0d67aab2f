"""Reads what nvidia-smi, rocm-smi and gc-monitor print. Launchers and the command line both ask these programs."""

from __future__ import annotations

import json
from typing import Dict, Iterable, List, Optional

MIB = 1 << 20


def nvidia_query(what: str, fields: Iterable[str]) -> List[str]:
    """Return the command that lists `fields` of each of `what`: gpu, or compute-apps."""
    return ["nvidia-smi", "--query-%s=%s" % (what, ",".join(fields)), "--format=csv,noheader,nounits"]


def nvidia_rows(printed: str, fields: Iterable[str]) -> List[Dict[str, str]]:
    """Return a row of `fields` for each line that has as many."""
    names = list(fields)
    lines = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines()]
    return [dict(zip(names, cells)) for cells in lines if len(cells) == len(names)]


def rocm_cards(printed: str) -> Dict[str, Dict[str, str]]:
    """Return what rocm-smi --json says of each card, and of the `system`; nothing if it can't be read.

    Its keys differ by release ("Card series", "Card Series"), so they come in lower case.
    """
    try:
        cards = json.loads(printed[printed.index("{") :])  # warnings may come before it
    except ValueError:
        return {}
    return {
        name: {key.lower(): str(value) for key, value in card.items()}
        for name, card in cards.items()
        if isinstance(card, dict)
    }


def gc_monitor_rows(printed: str) -> List[Dict[str, str]]:
    """Return the rows of gc-monitor's tables by the headings above them, whose places differ by release.

    The first table has the boards; the second one has the attached processes, and a column PID.
    """
    heads: List[str] = []
    rows: List[Dict[str, str]] = []
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            continue
        if "ID" in cells:
            # IPU and board both have a temperature: the second one gets another name.
            heads = [head + " 2" if head in cells[:at] else head for at, head in enumerate(cells)]
        elif heads and len(cells) == len(heads):
            rows.append(dict(zip(heads, cells)))
    return rows


def number(text: str) -> Optional[float]:
    """Return a figure that one of the programs printed; None for words such as [N/A]."""
    try:
        return float(text)
    except ValueError:
        return None
