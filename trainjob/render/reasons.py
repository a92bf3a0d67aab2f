"""Why an option stands in a script: the one sentence that `--explain` gives for each."""

from __future__ import annotations

import re

_OPTION = re.compile(r"(?:--?|#SBATCH )([a-z][a-z-]*)")
_REASONS = {
    # sbatch
    "job-name": "The name under which squeue lists the job.",
    "nodes": "As many nodes as the plan spreads the instances over.",
    "ntasks-per-node": "One Slurm task for each instance on a node.",
    "cpus-per-task": "An equal share of a node's CPUs for each instance.",
    "gres": "The devices that the instances on a node train on.",
    "gpus-per-node": "The devices that the instances on a node train on.",
    "ipus": "The devices that the job trains on.",
    "mem": "The memory that the job takes of each node: its share by CPUs, or all of a node of its own.",
    "propagate": "No resource limit of the login node (open files, locked memory, core files) holds on the nodes.",
    "time": "Slurm ends the job after this time.",
    "array": "The elements of the array: each is a run of its own, with this script.",
    "signal": "Slurm asks for a checkpoint this many seconds before the time limit.",
    "requeue": "Slurm may start the job again: it continues from its newest checkpoint.",
    "no-requeue": "This site does not let jobs start again: a follow-up job is submitted instead.",
    "open-mode": "Each attempt appends to the log of the last one.",
    "output": "Where the script's own output goes, below the run directory.",
    "hetjob": "The options of the next group of nodes follow.",
    "export": "Nothing of the submitting shell's environment gets into the job.",
    # launch
    "instances": "How many ranks to start.",
    "accelerator": "The kind of device that each rank is given.",
    "working-folder": "The folder in the copied project in which the command was given.",
    "port": "The port at which ranks meet.",
    "interface": "The network interface on which ranks meet.",
    "data-interface": "The network interfaces that carry the ranks' data.",
    "binding": "Ranks are not bound to the CPUs next to their GPUs.",
    "node-check": "A node with unsound GPUs, data folder, disk or clock is named, and the next attempt avoids it.",
    "usage-every-s": "How often it is recorded what the ranks use.",
    "grace-s": "How long ranks have for their checkpoint when they are told to end.",
    "environment-of-job": "Names whose values an array element takes from its own job.json.",
    "token": "Every host must see this run directory, and no other of the same path.",
    "secrets-file": "NAME=VALUE lines that the launcher reads when ranks start, and that are never copied.",
    "parent": "The ranks end with this script, however it ends.",
    # mpirun
    "np": "How many ranks mpirun starts.",
    "map-by": "How mpirun spreads them over the nodes.",
    # poprun
    "host": "The hosts that instances run on.",
    "num-instances": "How many processes train.",
    "num-replicas": "How many copies of the model there are, over all instances.",
    "ipus-per-replica": "How many IPUs one copy of the model takes.",
    "num-ilds": "How many IPU-Link domains the partition spans.",
    "vipu-server-host": "The V-IPU server of the pod.",
    "vipu-server-port": "The port of the V-IPU server.",
    "vipu-server-timeout": "How many seconds the V-IPU server may take to answer.",
    "vipu-partition": "The partition whose IPUs the job uses.",
    "vipu-allocation": "Where poprun makes the partition if it does not exist.",
    "vipu-cluster": "Where poprun makes the partition if it does not exist.",
    "update-partition": "Whether poprun changes a partition that does not fit.",
    "reset-partition": "Whether poprun resets the partition first.",
    "remove-partition": "Whether poprun removes the partition afterwards.",
    "print-topology": "poprun prints which IPUs each instance has.",
    "numa-aware": "How instances are placed on the host's NUMA nodes.",
    "process-placement": "How instances are placed on the host's NUMA nodes.",
    "executable-cache-path": "Where compiled executables are kept.",
    "offline-mode": "Compiles with no IPU attached.",
    "verbose": "poprun says more.",
    "vv": "poprun says most.",
    "mpi-global-args": "Options of mpirun for all hosts.",
    "mpi-local-args": "Options of mpirun for every rank.",
}


def of_option(words: str) -> str:
    """Return why the option in `words`, such as "#SBATCH --nodes=2", is there."""
    option = _OPTION.search(words)
    return _REASONS.get(option[1] if option else "", "The cluster file or the job asks for it.")
