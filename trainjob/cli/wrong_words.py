"""Words of other tools for what has another name here: commands and options that people type first."""

from __future__ import annotations

from collections.abc import Collection

# Another tool's command -> ours.
COMMANDS = {
    **dict.fromkeys(("ps", "ls", "queue", "squeue", "history", "runs", "jobs"), "list"),
    **dict.fromkeys(("run", "start", "launch", "sbatch", "train", "exec"), "submit"),
    **dict.fromkeys(("stop", "kill", "scancel", "delete-job"), "cancel RUN"),
    **dict.fromkeys(("rm", "remove", "delete", "clean"), "prune"),
    **dict.fromkeys(("log", "tail", "output"), "logs RUN --follow"),
    **dict.fromkeys(("info", "show", "describe", "inspect", "state"), "status RUN"),
    **dict.fromkeys(("top", "stats", "htop"), "usage RUN"),
    **dict.fromkeys(("attach", "ssh", "sh", "bash", "enter"), "shell RUN"),
    **dict.fromkeys(("restart", "continue", "requeue", "retry"), "resume RUN"),
    **dict.fromkeys(("validate", "preflight"), "check"),
    **dict.fromkeys(("lint", "diagnose"), "doctor FILE"),
    **dict.fromkeys(("convert", "import", "migrate"), "adopt FILE"),
    **dict.fromkeys(("simulate", "dry-run", "dryrun", "test"), "rehearse"),
    **dict.fromkeys(("gpus", "nvidia-smi", "ipus", "gpu"), "devices"),
    **dict.fromkeys(("clusters", "init", "config"), "cluster list, or trainjob cluster init"),
    **dict.fromkeys(("use", "context"), "cluster use NAME"),
    "version": "--version",
    "help": "--help",
}
_DIRECTIVE = "--directive {0}=VALUE"
# Another tool's option -> ours.
OPTIONS = {
    **dict.fromkeys(("--nodes", "--nnodes", "--num-nodes", "--num_nodes", "-N"), "--hosts N (machines)"),
    **dict.fromkeys(
        ("--gpus", "--num-gpus", "--num_gpus", "--ngpus", "--ntasks", "--nproc", "--np", "--ranks", "--world-size"),
        "--instances N (processes that train: one a GPU)",
    ),
    **dict.fromkeys(
        ("--nproc-per-node", "--nproc_per_node", "--gpus-per-node", "--ntasks-per-node"),
        "--instances N --hosts M (N instances on M machines)",
    ),
    **dict.fromkeys(("--time", "--walltime", "--timeout"), "--time-limit HH:MM:SS"),
    **dict.fromkeys(("--lr",), "--learning-rate"),
    **dict.fromkeys(("--batch-size", "--batch_size", "--batch"), "--micro-batch, or --global-batch of all replicas"),
    **dict.fromkeys(("--steps", "--max-steps", "--max_steps", "--iterations"), "--updates"),
    **dict.fromkeys(("--job-name",), "--name"),
    **dict.fromkeys(("--gradient-accumulation-steps", "--grad-accum"), "--accumulation"),
    **{f"--{name}": _DIRECTIVE.format(name) for name in ("partition", "account", "qos", "mem", "constraint", "gres")},
}


def fits(option: str, own: Collection[str]) -> bool:
    """Return whether a command with the options `own` has what another tool's `option` stands for."""
    return OPTIONS[option].partition(" ")[0].rstrip(",") in own
