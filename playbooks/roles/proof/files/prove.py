"""Runs the tiny job that came with trainjob's code and prints its figures: FOLDER PYTHON DATA-DIR SDK TIMEOUT_S."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

ENABLE = 'if [ -n "$1" ]; then unset POPLAR_SDK_ENABLED; . "$1/enable" >&2 || exit 1; fi; shift; exec "$@"'


def main(folder, python, data_dir, sdk, timeout_s):
    """Run the job in a copy of its folder, which is removed."""
    place = tempfile.mkdtemp(prefix="trainjob-proof-")
    try:
        job = os.path.join(place, "job")
        shutil.copytree(folder, job)
        code = run(job, python, data_dir, sdk, float(timeout_s))
        if code != 0:
            sys.exit("the tiny job ended with %s:\n%s" % (code, last_lines(job)))
        print(json.dumps(figures(job)))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run(job, python, data_dir, sdk, timeout_s):
    """Return the exit code of the job."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINJOB_")}
    environment.update(TRAINJOB_PYTHON=python, TRAINJOB_DEVICE="cpu")
    if data_dir:
        environment["TRAINJOB_DATA_DIR"] = data_dir
    command = ["bash", "-c", ENABLE, "bash", sdk, "bash", os.path.join(job, "job.sh")]
    with open(os.path.join(job, "logs", "proof.out"), "wb") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            return process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # job.sh ends its ranks
            process.wait()
            return "no answer in %d s" % timeout_s


def last_lines(job):
    """Return the end of what the job's first failing rank, or the script, said."""
    failure = os.path.join(job, "failure.json")
    if os.path.exists(failure):
        with open(failure, encoding="utf-8") as stream:
            return json.dumps(json.load(stream), indent=1)
    with open(os.path.join(job, "logs", "proof.out"), encoding="utf-8", errors="replace") as stream:
        return "".join(stream.readlines()[-12:])


def figures(job):
    """Return what was trained."""
    with open(os.path.join(job, "metrics.jsonl"), encoding="utf-8") as stream:
        lines = [json.loads(line) for line in stream]
    trained = [line for line in lines if "loss" in line]
    return {"updates": trained[-1]["update"], "loss": trained[-1]["loss"]}


main(*sys.argv[1:])
