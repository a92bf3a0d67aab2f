"""Runs the steps that a job takes once before its ranks: python -m trainjob.launch.once RUN_DIR."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Sequence

from trainjob.contract import environment, exits, secrets, steps
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.host import node_name
from trainjob.launch.once.run import StepPlace, run
from trainjob.records import job_facts
from trainjob.records.files import keep_others_from_writing


def main(arguments: Sequence[str]) -> int:
    """Return 0 once the steps of the job are done, else the code of the first that failed."""
    parser = argparse.ArgumentParser(prog="once", usage="once [options] RUN_DIR", allow_abbrev=False)
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--parent", type=int, default=0, help="process with which to end")
    parser.add_argument("--working-folder", default="code", help="where steps start, below RUN_DIR")
    parser.add_argument("--secrets-file", default="", help="NAME=VALUE lines for the steps' environment")
    options = parser.parse_args(arguments)
    processes.end_with_parent(parent=options.parent)
    paths = RunPaths(Path(options.run_dir).resolve())
    keep_others_from_writing(paths.whole.folder)
    try:
        found = [step for step in steps.parse(job_facts.read(paths.job).once) if step.scope == steps.JOB]
        environ = dict(os.environ)
        if options.secrets_file:
            environ.update(secrets.read(options.secrets_file))
        folder = paths.folder / options.working_folder
        return run(found, StepPlace(paths, int(environ[environment.ATTEMPT]), node_name(), folder, environ))
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return exits.USER_OR_CLUSTER_CAN_FIX


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
