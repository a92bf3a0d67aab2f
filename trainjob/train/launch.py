"""Starts the ranks of one host and stays until all have ended: the one way ranks start.

    python -m trainjob.train.launch --launcher local --instances 2 RUN_DIR -- python train.py

Under `local` it starts every rank itself; under srun and mpirun it is started once per rank, and starts
that one. Standard library only, no torch: a rank starts in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from trainjob.contract import attempts, environment, exits, job, secrets
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.train import processes, ranks, shared_folder
from trainjob.train.containers import end_with_standard_input
from trainjob.train.guard import guarded
from trainjob.train.supervise import Rank, Supervisor


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of the first rank that failed, or of all ranks when none did."""
    asked = _parse(arguments)
    paths = RunPaths(Path(asked.run_dir).resolve())
    try:
        if asked.token:
            shared_folder.refuse_another(paths, asked.token)
        asked.command = asked.command or _command_of_job(paths)
        _take_from_job(asked.environment_of_job, paths)
        rankings = _rankings(asked)
        shared = _shared_environment(asked, paths)
        if shared.get(environment.COMPILE_ONLY) and rankings[0].rank != 0:
            return exits.DONE  # one instance compiles for all
        started = [_rank(asked, paths, where, shared) for where in rankings]
        if asked.launcher in ("local", "openmpi"):
            processes.end_with_parent(parent=asked.parent)
        if asked.launcher == "container":
            end_with_standard_input()
        code = guarded(Supervisor(paths, started, grace_s=asked.grace_s).run)
        return code if asked.launcher in ("local", "container") else _as_a_launcher_must_see_it(code)
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return exits.USER_OR_CLUSTER_CAN_FIX


def _as_a_launcher_must_see_it(code: int) -> int:
    # srun --kill-on-bad-exit and mpirun would end the others, and rank 0 may still be writing the marker.
    return exits.DONE if code == exits.CHECKPOINTED else code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    own, command = _at_the_first_dashes(list(arguments))
    usage = "launch [options] RUN_DIR -- COMMAND…"
    parser = argparse.ArgumentParser(prog="launch", usage=usage, description=__doc__, allow_abbrev=False)
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--launcher", choices=["local", *environment.LAUNCHER_NAMES], required=True)
    parser.add_argument("--instances", type=int, default=1, help="ranks to start (launcher local)")
    parser.add_argument("--accelerator", choices=["cpu", "gpu", "ipu"], default="cpu")
    parser.add_argument("--working-folder", default="code", help="where ranks start, below RUN_DIR")
    parser.add_argument("--port", type=int, default=0, help="rendezvous port; 0: a free one is chosen")
    parser.add_argument("--interface", default="", help="network interface that ranks meet on")
    parser.add_argument("--token", default="", help="the word that the job script has written into RUN_DIR")
    parser.add_argument("--secrets-file", default="", help="NAME=VALUE lines for the ranks' environment")
    parser.add_argument("--parent", type=int, default=0, help="process with which to end (launcher local)")
    parser.add_argument("--ranks-in-containers", action="store_true", help="ranks end when their input does")
    parser.add_argument("--grace-s", type=float, default=30.0, help="seconds between TERM and KILL")
    # mpirun would take a word ":" of a user's command for its own: job.json carries every word as it is.
    parser.add_argument("--command-of-job", action="store_true", help="run the command that job.json has")
    parser.add_argument("--environment-of-job", default="", help="names, parted by commas, whose values job.json has")
    if not command and "--command-of-job" not in own:
        parser.error("a command is expected after --")
    return parser.parse_args(own, argparse.Namespace(command=command))


def _command_of_job(paths: RunPaths) -> List[str]:
    command = job.read(paths.job).command
    if not command:
        raise UserError("%s is of a task and has no command: give one after --" % paths.job)
    return command


def _take_from_job(names: str, paths: RunPaths) -> None:
    """Set the values that a task of an array has of its own: one script stands for all tasks."""
    values = job.read(paths.job).environment if names else {}
    os.environ.update({name: values[name] for name in names.split(",") if name in values})


def _at_the_first_dashes(arguments: List[str]) -> Tuple[List[str], List[str]]:
    # Left to argparse, a second -- would be taken out of the user's own command.
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _rankings(asked: argparse.Namespace) -> List[Ranking]:
    if asked.launcher != "local":
        return [ranks.from_launcher(asked.launcher, os.environ)]
    return ranks.all_on_this_host(asked.instances)


def _rank(asked: argparse.Namespace, paths: RunPaths, where: Ranking, shared: Dict[str, str]) -> Rank:
    environ = {**shared, **ranks.variables(where), **ranks.device(asked.accelerator, where, shared)}
    environ.setdefault("OMP_NUM_THREADS", ranks.threads(where))
    return Rank(
        ranking=where,
        command=asked.command,
        environment=environ,
        folder=paths.folder / asked.working_folder,
        log=paths.rank_log(where.rank),
        # A container's log is begun outside, where it is said why a container does not start.
        begins_log=asked.launcher != "container",
        holds_input=asked.ranks_in_containers,
    )


def _shared_environment(asked: argparse.Namespace, paths: RunPaths) -> Dict[str, str]:
    environ = dict(os.environ)
    if asked.secrets_file:
        environ.update(secrets.read(asked.secrets_file))
    environ.setdefault(environment.ATTEMPT, str(attempts.current(paths) or 1))
    environ[environment.RUN_DIR] = str(paths.folder)
    interface = environment.redirect(environ, "TRAINJOB_INTERFACE") or asked.interface
    if asked.launcher == "local":
        environ.update(ranks.rendezvous_on_this_host(asked.port))
        interface = interface or "lo"
    elif asked.launcher == "slurm":
        ranks.refuse_no_rendezvous(environ)
    return ranks.on_interface(environ, interface)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
