"""Stands in for accelerate, deepspeed, composer and tune run, where a rehearsal has none: torchrun starts their ranks.

Called with the launcher's name and its words, by the recording program. Its ranks get their numbers, and nothing else
of what the launcher would do for them. Other nodes, which deepspeed reaches over ssh, are reached by srun.
"""

import os
import re
import shutil
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

_WAITS = "import time\n\ntime.sleep(8)\n"
# Options without a value; every other takes the next word.
_FLAGS = (
    *("multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_mps_device", "same_network"),
    *("debug", "no_ssh", "no_ssh_check", "no_python", "no_local_rank", "force_multi", "enable_each_rank_log"),
    *("module", "m", "quiet", "q", "standalone", "v", "verbose", "command", "c"),
)


class LocalStart(NamedTuple):
    """The ranks to start on this node. Without `node_rank` nodes number themselves where they meet."""

    nodes: int
    ranks: int
    node_rank: Optional[int]
    address: str
    port: str


def main(name: str, words: List[str]) -> None:
    """Become torchrun, or what starts it on all nodes. Does not return."""
    options, program = taken_apart(words[1:] if name in ("accelerate", "tune") else words)
    start = _STARTS[name](options)
    if name == "deepspeed" and start.nodes > 1 and "no_ssh" not in options:
        _start_on_all_nodes(start, options, words, program)
    if name == "tune" and program and not os.path.exists(program[0]):
        # A recipe's name, which torchtune would look up.
        program = ["-c", _WAITS, *program]
        options["no_python"] = ""
        program.insert(0, sys.executable)
    meeting = ["--node-rank", str(start.node_rank), "--master-addr", start.address, "--master-port", start.port]
    if start.node_rank is None:
        meeting = [
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            start.address + ":" + start.port,
            "--rdzv-id",
            "standin",
        ]
    flags = [
        flag for flag, names in (("-m", ("module", "m")), ("--no-python", ("no_python",))) if options.keys() & {*names}
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PET_")}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(start.nodes)]
    torchrun += ["--nproc-per-node", str(start.ranks), *meeting, *flags, *program]
    os.execve(sys.executable, torchrun, environment)  # noqa: S606 - no shell is the point


# A program's own words follow: the launcher's options come before them.
_ON_NODE = 'file=$1; shift; exec "$0" -S "$file" deepspeed --no_ssh --node_rank "$SLURM_NODEID" "$@"'


def _start_on_all_nodes(start: LocalStart, options: Dict[str, str], words: List[str], program: List[str]) -> None:
    """Become srun: `--launcher slurm` starts a task for each rank, and any other deepspeed on each node."""
    own = os.path.abspath(__file__)
    outside = [folder for folder in os.environ["PATH"].split(":") if folder != os.path.dirname(own)]
    srun = [shutil.which("srun", path=":".join(outside)) or "srun", "--nodes", str(start.nodes)]
    if options.get("launcher", "").lower() == "slurm":
        srun += ["--ntasks", str(start.nodes * start.ranks), sys.executable, "-u", *program]
    else:
        address = [] if "master_addr" in options else ["--master_addr", start.address]
        srun += ["--ntasks", str(start.nodes), "sh", "-c", _ON_NODE, sys.executable, own, *address, *words]
    os.execve(srun[0], srun, dict(os.environ))  # noqa: S606 - no shell is the point


def taken_apart(words: List[str]) -> Tuple[Dict[str, str], List[str]]:
    """Return the options before the program, by their names with underscores, and the program with its arguments."""
    options = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].lstrip("-").replace("-", "_").partition("=")
        if equals:
            value = words[at].partition("=")[2]
        elif name not in _FLAGS:
            at += 1
            value = words[at] if at < len(words) else ""
        options[name] = value
        at += 1
    return options, words[at:]


def _gpus() -> int:
    return len([one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]) or 1


def _number(options: Dict[str, str], *names: str) -> Optional[int]:
    return next((int(options[name]) for name in names if options.get(name, "").isdigit()), None)


def _accelerate(options: Dict[str, str]) -> LocalStart:
    file = options.get("config_file")
    if file and os.path.exists(file):
        with open(file) as stream:
            stated = re.findall(r"^(\w+): *['\"]?([^\s'\"]+)", stream.read(), re.MULTILINE)
        options = {**{name: value for name, value in stated if value != "null"}, **options}
    if options.get("distributed_type") == "NO":
        options["num_processes"] = "1"
    nodes = _number(options, "num_machines") or 1
    ranks = (_number(options, "num_processes") or _gpus() * nodes) // nodes
    meets = options.get("rdzv_backend") == "c10d"
    rank = _number(options, "machine_rank")
    return LocalStart(
        nodes, ranks, None if meets and nodes > 1 and rank is None else rank or 0,
        options.get("main_process_ip", "127.0.0.1"), options.get("main_process_port", "29500"),
    )  # fmt: skip


def _deepspeed(options: Dict[str, str]) -> LocalStart:
    # Without a list of hosts it knows this node alone, whatever number it is told.
    nodes, slots, first = (_number(options, "num_nodes") or 1) if "no_ssh" in options else 1, 0, "127.0.0.1"
    file = options.get("hostfile") or options.get("H")
    if file and os.path.exists(file):
        with open(file) as stream:
            found = re.findall(r"^\s*(\S+)\s+slots=(\d+)", stream.read(), re.MULTILINE)
        if found:
            nodes, first, slots = len(found), found[0][0], int(found[0][1])
    chosen = [one for one in options.get("include", "").partition(":")[2].split(",") if one]
    ranks = _number(options, "num_gpus", "num_accelerators") or len(chosen) or slots or _gpus()
    return LocalStart(
        nodes, ranks, _number(options, "node_rank") or 0,
        options.get("master_addr", first), options.get("master_port", "29500"),
    )  # fmt: skip


def _composer(options: Dict[str, str]) -> LocalStart:
    names = ("world_size", "node_rank", "base_rank", "master_addr", "master_port")
    options = {**{name: os.environ[name.upper()] for name in names if os.environ.get(name.upper())}, **options}
    ranks = _number(options, "n", "nproc") or _number(dict(os.environ), "LOCAL_WORLD_SIZE") or _gpus()
    nodes = max(1, (_number(options, "world_size") or ranks) // ranks)
    base = _number(options, "base_rank")
    rank = _number(options, "node_rank")
    return LocalStart(
        nodes, ranks, rank if rank is not None else (base or 0) // ranks,
        options.get("master_addr", "127.0.0.1"), options.get("master_port", "29500"),
    )  # fmt: skip


def _tune(options: Dict[str, str]) -> LocalStart:
    own = {name[4:].lower(): value for name, value in os.environ.items() if name.startswith("PET_")}
    options = {**own, **options}
    host, _, port = options.get("rdzv_endpoint", "127.0.0.1:29500").partition(":")
    per_node = options.get("nproc_per_node", "1")
    ranks = int(per_node) if per_node.isdigit() else _gpus()
    nodes = _number(options, "nnodes") or 1
    rank = _number(options, "node_rank")
    return LocalStart(nodes, ranks, rank if rank is not None or nodes > 1 else 0, host, port or "29500")


_STARTS = {"accelerate": _accelerate, "deepspeed": _deepspeed, "composer": _composer, "tune": _tune}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
