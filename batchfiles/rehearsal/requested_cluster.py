"""The cluster that a batch file asks for, as far as its directives show, if no cluster file is named."""

from __future__ import annotations

import re

from batchfiles.adoption.account import Account
from batchfiles.adoption.start import AdoptionError, main_launch, start_of
from batchfiles.bash.values import number
from batchfiles.slurm.request import accelerator_gres
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs.slurm_options import OPTIONS, refusal
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import cluster_of

_CPUS = 64
_GPUS = 8  # of a node, where the file gives only the number of all GPUs
_OPTION = re.compile(r"[a-z][a-z0-9-]+")  # of a plugin's
_WORD = re.compile(r"\w[\w.-]*", re.ASCII)


def nodes_of(script: BatchScript) -> int:
    """Return the number of nodes that the job gets."""
    request = script.request
    if request.nodes is not None:
        return request.nodes
    per_node = request.tasks_per_node
    if request.tasks and per_node:
        return -(-request.tasks // per_node)
    return max(1, -(-request.gpus_of_all_nodes // _GPUS))


def cluster_from(script: BatchScript) -> SlurmCluster:
    """Return a cluster that has what the directives ask for, and a node to spare."""
    request, header, nodes = script.request, script.header, nodes_of(script)
    gpus, per_node = request.gpus_per_node or 0, request.tasks_per_node or 1
    if request.nodes is None and (every := request.gpus_of_all_nodes):
        gpus = -(-every // nodes)
    gpus = gpus or _gpus_without_directives(script)
    stated = max(per_node * (request.cpus_per_task or 0), gpus * (number(header.value("cpus-per-gpu")) or 0))
    cpus = max(
        # Whole nodes are given with all of their CPUs: with those for which the file asks, if it does.
        stated if stated and (request.exclusive or takes_whole_nodes(script)) else _CPUS,
        stated,
        per_node,
        gpus,
        request.tasks or 1 if request.nodes is None else 1,
    )
    kind = _gpu_type(script)
    gres = (accelerator_gres(header, header.value("gres")) or "gpu").partition(":")[0]
    options = ("partition", "constraint", "licenses", "gres")
    directives = {name: value for name in options if (value := header.value(name))}
    found = cluster_of(
        {
            "kind": "slurm",
            "nodes": {
                "count": nodes + 1,
                "cpus": cpus,
                "accelerator": "gpu" if gpus else "cpu",
                "accelerators": gpus,
                **({"type": kind} if kind and gpus else {}),
                **({"gres": gres} if gpus and gres != "gpu" else {}),
            },
            "directives": directives,
        }
    )
    return SlurmCluster.of(found)


def takes_whole_nodes(script: BatchScript) -> bool:
    """Return whether the file counts on GPUs for which no directive asks, as at sites that give whole nodes."""
    asked = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
    return _gpus_without_directives(script) > 0 and all(script.header.value(name) is None for name in asked)


def _gpus_without_directives(script: BatchScript) -> int:
    """Return the GPUs of a node for which srun or the launcher asks."""
    try:
        return start_of(script, main_launch(script), Account()).gpus
    except AdoptionError:
        return 0


def site_options(script: BatchScript) -> list[str]:
    """Return the options of plugins that the file mentions, and those that only a plugin can have added.

    One with a value ends in "=".
    """
    text = "\n".join(script.lines)
    rows = [row for row in OPTIONS.values() if row.of == "plugin" and re.search(rf"--{row.name}\b", text)]
    others = [one for one in script.header.directives if one.name not in OPTIONS and _OPTION.fullmatch(one.name)]
    added = [one for one in others if (refused := refusal(one.spelled)) is not None and not refused[1]]
    return [
        *(row.name if row.takes == "flag" else f"{row.name}=" for row in rows),
        *(one.name if one.value is None else f"{one.name}=" for one in added),
    ]


def _gpu_type(script: BatchScript) -> str | None:
    """Return the type in --gres=gpu:a100:4, --gpus-per-node=a100:4 and the like."""
    for option in ("gres", "gpus-per-node", "gpus", "gpus-per-task"):
        value = script.header.value(option) or ""
        words = accelerator_gres(script.header, value).split(":")[1:] if option == "gres" else value.split(":")
        if words and not words[0].isdigit() and _WORD.fullmatch(words[0]):
            return words[0]
    return None
