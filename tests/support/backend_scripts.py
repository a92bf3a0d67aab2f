"""What the suite has its ranks run: small scripts."""

from __future__ import annotations

# Each rank ends with the exit code that its own argument names: `python codes.py 0 3` has rank 1 fail.
CODES = """\
import os, sys
rank = int(os.environ["RANK"])
print(f"rank {rank} of {os.environ['WORLD_SIZE']} says {sys.argv[1:]}", flush=True)
sys.exit(int(sys.argv[1 + rank]))
"""

# Stays until the file `release` appears in the run directory; later attempts end at once. Each rank has a child, a
# daemon that has left its session, and one that has lost the run's mark from its environment, too.
STAY = """\
import os, pathlib, signal, subprocess, sys, time
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
subprocess.Popen(["sleep", "301"])
subprocess.run(["bash", "-c", "setsid sleep 302 & disown"])
subprocess.run(["bash", "-c", f"env -i setsid bash -c 'exec -a left-by-{run.name} sleep 303' &"])
print("ready", flush=True)
while os.environ["TRAINJOB_ATTEMPT"] == "1" and not (run / "release").exists():
    time.sleep(0.02)
"""
