"""Programs that start ranks: launchers, which start those of their node, and programs that start processes on nodes.

A launcher's row has its words, and the options by which a user states the nodes, the ranks, and where they meet.

A job starts such a command once per node. Each launcher learns where its node stands through what it reads: variables,
else options behind its own words. What the user states wins, and is refused where it contradicts the plan. Sources: the
launchers' own code (torch 2.13, accelerate 1.15, deepspeed 0.19, composer 0.32, torchtune 0.6, JAX 0.10).
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

# A script of Lightning's Trainer, and what has it save all the same.
_LIGHTNING = re.compile(r"(?m)^\s*(?:from|import) +(?:lightning|pytorch_lightning)\b(?!\.fabric)")
_SAVES = re.compile(r"SLURMEnvironment|OnExceptionCheckpoint|\bsignal\.signal\(")
# What bounds what its ranks lose that wait for each other, or keeps them from it.
_CONTINUES = re.compile(r"""\bckpt_path(?: *=|["'] *:|["']\] *=)|reduce_boolean_decision|auto_requeue *= *False""")
_CONTINUES_BY_WORD = re.compile(r"(?:-*|\+*)(?:\w+\.)?ckpt_path(?:=.*)?")
_COMMENT = re.compile(r"(?m)(?:^|[ \t])#.*")
# The file that a launcher reads the nodes from, in the run directory.
HOST_FILE = "hostfile"


class LaunchNode(NamedTuple):
    """A node, and what a launcher on it must know of the others."""

    nodes: int
    node_rank: int
    ranks: int  # that its launcher starts
    address: str  # where the ranks of all nodes meet
    port: int
    run_id: str
    host_file: str  # a path for HOST_FILE
    logs: str  # the folder of the ranks' logs

    @property
    def world_size(self) -> int:
        """The number of ranks on all nodes."""
        return self.nodes * self.ranks


class NodeLauncher(NamedTuple):
    """A launcher: the words that start it, and how it learns about its node."""

    name: str
    starts: Tuple[Tuple[str, ...], ...]  # each a program and its sub-command, or a module of `python -m`
    nodes_options: Tuple[str, ...]  # how a user states the number of nodes
    ranks_options: Tuple[str, ...]  # the number of ranks per node
    world_options: Tuple[str, ...] = ()  # or the number of all ranks
    alone_options: Tuple[str, ...] = ()  # that its node is the only one
    place_options: Tuple[str, ...] = ()  # which node it is on, and where all meet
    starts_cpu_ranks: bool = True
    failure: str = ""  # an expression for its report of the rank that failed first, and its code; "": it has none
    options: Callable[[LaunchNode, Sequence[str]], List[str]] = lambda _node, _own: []


def _accelerate(node: LaunchNode, own: Sequence[str]) -> List[str]:
    modes = ("--multi_gpu", "--multi-gpu", "--cpu", "--use_fsdp", "--use_deepspeed", "--use_megatron_lm", "--tpu")
    has_mode = any(stated(own, option) is not None for option in (*modes, "--config_file", "--config-file"))
    return [
        *([] if has_mode or node.world_size == 1 else ["--multi_gpu"]),
        *("--num_machines", str(node.nodes), "--machine_rank", str(node.node_rank)),
        *("--num_processes", str(node.world_size)),
        *("--main_process_ip", node.address, "--main_process_port", str(node.port)),
    ]


def _deepspeed(node: LaunchNode, _own: Sequence[str]) -> List[str]:
    # It compares names with nothing under --no_ssh: each node finds itself by its number.
    return [
        *("--hostfile", node.host_file, "--no_ssh", "--node_rank", str(node.node_rank)),
        *("--master_addr", node.address, "--master_port", str(node.port)),
    ]


def _composer(node: LaunchNode, _own: Sequence[str]) -> List[str]:
    # Or else it keeps the output of all ranks but the first in files that it deletes.
    log = "%s/rank-{rank:04d}.log" % node.logs.replace("{", "{{").replace("}", "}}")
    return ["--stdout", log, "--stderr", log]


def _tune(node: LaunchNode, _own: Sequence[str]) -> List[str]:
    # Without an option of torchrun's it starts one process, and without this one it takes its node for the only one.
    return ["--rdzv_endpoint", "%s:%d" % (node.address, node.port)]


_TORCHRUN_NODES, _TORCHRUN_RANKS = ("--nnodes",), ("--nproc-per-node", "--nproc_per_node")
_ALONE = ("--standalone",)
_MASTER = ("--master_addr", "--master_port")
_TORCHRUN_PLACE = (
    *("--node_rank", "--rdzv_id", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_conf", "--local_addr", "--role"),
    *_MASTER,
)
# The first failure stands last in its report, as the root cause.
_TORCHRUN_FAILURE = r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+) \(pid: \d+\)"

LAUNCHERS = (
    NodeLauncher(
        *("torchrun", (("torchrun",), ("torch.distributed.run",), ("torch.distributed.launch",), ("torchrun_xla",))),
        *(_TORCHRUN_NODES, _TORCHRUN_RANKS, (), _ALONE, _TORCHRUN_PLACE),
        failure=_TORCHRUN_FAILURE,
    ),
    NodeLauncher(
        *("tune run", (("tune", "run"),), _TORCHRUN_NODES, _TORCHRUN_RANKS, (), _ALONE, _TORCHRUN_PLACE),
        failure=_TORCHRUN_FAILURE,
        options=_tune,
    ),
    NodeLauncher(
        "accelerate launch",
        (
            *(("accelerate", "launch"), ("accelerate-launch",), ("accelerate.commands.launch",)),
            ("accelerate.commands.accelerate_cli", "launch"),
        ),
        *(("--num_machines", "--num-machines"), (), ("--num_processes", "--num-processes"), ()),
        (
            *("--machine_rank", "--main_process_ip", "--main_process_port", "--same_network", "--multi_gpu"),
            *("--rdzv_backend", "--rdzv_conf", "--deepspeed_multinode_launcher", "--deepspeed_hostfile"),
        ),
        failure=_TORCHRUN_FAILURE,
        options=_accelerate,
        starts_cpu_ranks=False,  # except through mpirun
    ),
    NodeLauncher(
        *("deepspeed", (("deepspeed",), ("deepspeed.launcher.runner",)), ("--num_nodes",)),
        ("--num_gpus", "--num_accelerators"),
        place_options=("--node_rank", "--hostfile", "--no_ssh", "--launcher", "--include", *_MASTER),
        options=_deepspeed,
    ),
    NodeLauncher(
        *("composer", (("composer",), ("composer.cli.launcher",)), (), ("-n", "--nproc")),
        world_options=("--world_size",),
        place_options=("--node_rank", "--base_rank", *_MASTER),
        failure=r"Rank (\d+) crashed with exit code (-?\d+)",
        options=_composer,
    ),
)
# Launchers that a job does not tell about its node: their own words state all of it.
_OTHERS = (
    NodeLauncher("colossalai run", (("colossalai", "run"),), ("--host",), _TORCHRUN_RANKS, place_options=_MASTER),
    NodeLauncher(
        *("fabric run", (("fabric", "run"),), ("--num_nodes", "--num-nodes"), ("--devices",)),
        place_options=("--node_rank", "--node-rank", "--main_address", "--main_port"),
    ),
)
# All options of torchrun (2.13) and of its predecessor, with underscores.
_TORCHRUN = """
nnodes nproc_per_node standalone max_restarts monitor_interval start_method module m event_log_handler no_python
run_path log_dir redirects tee local_ranks_filter logs_specs duplicate_stdout_filters duplicate_stderr_filters
numa_binding signals_to_handle use_env help virtual_local_rank shutdown_timeout
"""
# Those of deepspeed (0.18).
_DEEPSPEED = """
hostfile include exclude num_nodes min_elastic_nodes max_elastic_nodes num_gpus num_accelerators master_port master_addr
node_rank launcher launcher_args module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid help
venv_script enable_each_rank_log autotuning comment account elastic_training bind_cores_to_rank bind_core_list ssh_port
"""
# Of these two every option is known: another one before the script is refused.
ALL_OPTIONS = {
    "torchrun": frozenset((*_TORCHRUN.split(), *(option.lstrip("-") for option in _TORCHRUN_PLACE))),
    "deepspeed": frozenset(_DEEPSPEED.split()),
}
# Options of launchers without a value; every other takes the next word.
_FLAGS = """
standalone no_python multi_gpu use_deepspeed use_fsdp cpu debug module m run_path use_env no_ssh save_pid
dynamo_use_fullgraph dynamo_use_dynamic tpu mps quiet verbose v same_network use_megatron_lm use_mps_device
oversubscribe allow_run_as_root signals_to_handle_default no_local_rank force_multi no_ssh_check q
elastic_training bind_cores_to_rank
"""
FLAGS = frozenset(_FLAGS.split())
# Programs that start a program on several nodes, and what stands for one in a batch file's words.
MPI_STARTERS = ("mpirun", "mpiexec", "mpiexec.hydra", "horovodrun")
STARTS_ON_NODES = re.compile(
    r"srun|mpirun|mpiexec\S*|horovodrun|pdsh|clush|parallel|pssh|prun|aprun|jsrun|ibrun|ssh|flux|orterun|dask\S*|"
    r"submitit\S*|sbatch|poprun"
)
# Programs that start another one, whose words follow their own options.
_WRAPPERS = ("uv", "poetry", "pixi", "conda", "mamba", "micromamba", "env", "exec", "time")


def _first_words() -> Dict[str, Tuple[str, Tuple[str, ...]]]:
    """Return the name of the launcher that each first word belongs to, with the words of which one must follow."""
    found: Dict[str, Tuple[str, Tuple[str, ...]]] = {}
    for launcher in (*LAUNCHERS, *_OTHERS):
        for first, *following in launcher.starts:
            found[first] = (launcher.name.split()[0], tuple(following))
    return found


FIRST_WORDS = _first_words()
NAMES = tuple(dict.fromkeys(name for name, _ in FIRST_WORDS.values()))


def option_names(*kinds: str, of: str = "") -> Tuple[str, ...]:
    """Return the options of these kinds (nodes, ranks, world, alone, place), without dashes and with underscores.

    `of` is the name of one launcher; empty: of all.
    """
    rows = [row for row in (*LAUNCHERS, *_OTHERS) if not of or row.name.split()[0] == of]
    options = [option for row in rows for kind in kinds for option in getattr(row, kind + "_options")]
    return tuple(dict.fromkeys(option.lstrip("-").replace("-", "_") for option in options))


class FoundLauncher(NamedTuple):
    """A launcher in a command."""

    launcher: NodeLauncher
    end: int  # where its own words end, and its options begin

    def own_options(self, command: Sequence[str]) -> List[str]:
        """Return the words behind the launcher's own, up to the script: its options are among them."""
        return list(command[self.end :])


def find(command: Sequence[str]) -> Optional[FoundLauncher]:
    """Return the launcher that a command begins with, behind `python -m` and `uv run` too; None if there is none."""
    words = [PurePath(word).name if index == 0 else word for index, word in enumerate(command)]
    for start, word in enumerate(words):
        if word == "-m":
            return _at(words, start + 1)
        found = _at(words, start)
        if found is not None:
            return found
        # Only a wrapper and its options, or a Python and its own, stand before a launcher.
        if word.endswith(".py") or not (words[0] in _WRAPPERS or words[0].startswith("python")):
            return None
    return None


def ignores_requests(launcher: str, script: str) -> bool:
    """Return whether ranks of Lightning (2.6) neither save nor requeue their job when it is asked to stop.

    They do by themselves where srun starts each rank, and not where torchrun does; `script` is the Python source.
    """
    return launcher == "torchrun" and uses_lightning(script) and _SAVES.search(script) is None


def may_hang_when_asked(script: str, words: Sequence[str] = ()) -> bool:
    """Return whether several ranks of Lightning (2.6) may wait for each other instead of saving when they are asked.

    Each saves in its handler, at whatever update it is, and meets the others there. `script` is the Python source,
    and `words` are those that it is given.
    """
    if any(_CONTINUES_BY_WORD.fullmatch(word) for word in words):
        return False
    return uses_lightning(script) and _CONTINUES.search(_COMMENT.sub("", script)) is None


def uses_lightning(script: str) -> bool:
    """Return whether a Python source trains with Lightning."""
    return _LIGHTNING.search(script) is not None and "Trainer(" in script


def _at(words: Sequence[str], start: int) -> Optional[FoundLauncher]:
    for launcher in LAUNCHERS:
        for own in launcher.starts:
            if tuple(words[start : start + len(own)]) == own:
                return FoundLauncher(launcher, start + len(own))
    return None


def stated(options: Sequence[str], option: str) -> Optional[str]:
    """Return the value of an option that is given as `--name VALUE` or `--name=VALUE`: "" for a flag, None without it.

    The search ends at the first word of the script's own, as far as that can be told: a word that ends in .py, or "--".
    """
    for index, word in enumerate(options):
        if word == "--" or word.endswith(".py"):
            return None
        if word == option:
            following = options[index + 1] if index + 1 < len(options) else ""
            return "" if following.startswith("-") or following.endswith(".py") else following
        if word.startswith(option + "="):
            return word[len(option) + 1 :]
    return None


def contradiction(command: Sequence[str], nodes: int, ranks: int) -> Optional[Tuple[str, str]]:
    """Return a contradiction between the launcher's options and the plan, and its cure; None if there is none.

    `ranks` is the number of ranks per node.
    """
    found = find(command)
    if found is None:
        return None
    launcher, own = found.launcher, found.own_options(command)
    if nodes > 1:
        for option in launcher.alone_options:
            if stated(own, option) is not None:
                return (
                    "%s says that each node trains alone, and the job has %d nodes" % (option, nodes),
                    "take %s out" % option,
                )
    for options, needed, what in (
        (launcher.nodes_options, nodes, "nodes"),
        (launcher.ranks_options, ranks, "ranks on each node"),
        (launcher.world_options, nodes * ranks, "ranks"),
    ):
        for option in options:
            value = stated(own, option)
            if value is not None and value.isdigit() and int(value) != needed:
                return (
                    "%s is %s, and the job has %d %s" % (option, value, needed, what),
                    "take %s out: the job states it" % option,
                )
    return None


def environment(node: LaunchNode) -> Dict[str, str]:
    """Return what launchers read: torchrun and tune (PET_), composer and Lightning (NODE_RANK …), JAX.

    RANK and LOCAL_RANK are not among it: a launcher gives its ranks theirs.
    """
    endpoint = "%s:%d" % (node.address, node.port)
    return {
        "NNODES": str(node.nodes),
        "NODE_RANK": str(node.node_rank),
        "NPROC_PER_NODE": str(node.ranks),
        "LOCAL_WORLD_SIZE": str(node.ranks),
        "WORLD_SIZE": str(node.world_size),
        "MASTER_ADDR": node.address,
        "MASTER_PORT": str(node.port),
        "PET_NNODES": str(node.nodes),
        "PET_NODE_RANK": str(node.node_rank),
        "PET_NPROC_PER_NODE": str(node.ranks),
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_RDZV_ID": node.run_id,
        "JAX_COORDINATOR_ADDRESS": endpoint,
        # Under Slurm JAX would take one device for each process.
        "JAX_LOCAL_DEVICE_IDS": ",".join(str(number) for number in range(node.ranks)),
    }


def on_node(command: Sequence[str], node: LaunchNode) -> List[str]:
    """Return the words of `command` on `node`: the launcher's options before those that the user states, which win."""
    found = find(command)
    if found is None:
        return list(command)
    own = found.own_options(command)
    return [*command[: found.end], *found.launcher.options(node, own), *own]


def failed_rank(command: Sequence[str], printed: str) -> Optional[Tuple[int, int]]:
    """Return the rank that a launcher reports to have failed first, and how: −n if signal n ended it.

    None if it reports none.
    """
    found = find(command)
    reports = re.findall(found.launcher.failure, printed) if found is not None and found.launcher.failure else []
    return (int(reports[-1][0]), int(reports[-1][1])) if reports else None


def host_file(nodes: int, ranks: int) -> str:
    """Return the text of HOST_FILE, for launchers that read one. The names mean nothing."""
    return "".join("node-%d slots=%d\n" % (number, ranks) for number in range(nodes))
