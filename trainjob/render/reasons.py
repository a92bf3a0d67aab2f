"""The reason for each option in a script: the sentence that `--explain` shows beside it."""

from __future__ import annotations

import re

_OPTION = re.compile(r"(?:--?|#SBATCH )([a-z][a-z-]*)")
_REASONS = {
    # sbatch
    "job-name": "The name under which squeue lists the job.",
    "nodes": "The nodes over which the plan spreads the instances.",
    "ntasks-per-node": "One Slurm task for each instance on a node.",
    "cpus-per-task": "An equal share of a node's CPUs for each instance.",
    "gres": "The devices that the instances on a node train on.",
    "gpus-per-node": "The devices that the instances on a node train on.",
    "ipus": "The devices that the job trains on.",
    "mem": "The memory that the job takes of each node: in proportion to its CPUs, or all of an exclusive node.",
    "propagate": "The login node's resource limits (open files, locked memory, core files) do not apply on the nodes.",
    "time": "Slurm ends the job after this time.",
    "array": "The elements of the array: each is a separate run of this script.",
    "signal": "Slurm asks for a checkpoint this many seconds before the time limit.",
    "requeue": "Slurm may start the job again: it continues from its newest checkpoint.",
    "no-kill": "A node that fails does not end what runs on the others.",
    "no-requeue": "This site does not let jobs restart: a follow-up job is submitted instead.",
    "open-mode": "Each attempt appends to the log of the last one.",
    "output": "The file below the run directory that gets the script's own output.",
    "hetjob": "The options of the next group of nodes follow.",
    "export": "The job gets no variables of the submitting shell.",
    # launch
    "instances": "The number of ranks to start.",
    "ranks-per-node": "The number of ranks that the launcher in the command starts on its node.",
    "accelerator": "The kind of device that each rank is given.",
    "working-folder": "The folder in the copied project in which the command was given.",
    "port": "The port at which ranks meet.",
    "interface": "The network interface on which ranks meet.",
    "data-interface": "The network interfaces that carry the ranks' data.",
    "binding": "Ranks are not bound to the CPUs next to their GPUs.",
    "node-check": "Reports a node with a faulty GPU, data folder, disk or clock, and the next attempt avoids it.",
    "usage-every-s": "How often the ranks' use of resources is recorded.",
    "grace-s": "How long ranks may take to checkpoint when they are asked to stop.",
    "environment-of-job": "Names whose values an array element takes from its own job.json.",
    "share": "The part of each host's CPUs that a role has: as much as of its GPUs.",
    "token": "Proves that every host sees this run directory, and not another one at the same path.",
    "secrets-file": "NAME=VALUE lines that the launcher reads when ranks start. They are never copied.",
    "parent": "The ranks end when this script ends, for whatever reason.",
    # mpirun
    "np": "The number of ranks that mpirun starts.",
    "map-by": "How mpirun spreads the ranks over the nodes.",
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
    "verbose": "poprun logs more.",
    "vv": "poprun logs everything.",
    "mpi-global-args": "mpirun's global options.",
    "mpi-local-args": "mpirun's options for every rank.",
}


def of_option(words: str) -> str:
    """Return why the option in `words`, such as "#SBATCH --nodes=2", is there."""
    option = _OPTION.search(words)
    return _REASONS.get(option[1] if option else "", "The cluster file or the job requests it.")
