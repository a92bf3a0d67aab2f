# preempted.py
"""A script that continues where it was interrupted: it saves when it is asked to stop, and asks to be started again."""

import os
import signal
import time
from pathlib import Path

run = Path(os.environ["TRAINJOB_RUN_DIR"])
saved = run / "step.txt"
asked_to_stop = False


def stop(*_: object) -> None:
    global asked_to_stop
    asked_to_stop = True


# USR1 comes before the time limit, TERM when the job is preempted or cancelled.
signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGTERM, stop)

step = int(saved.read_text()) if saved.exists() else 0
print(f"attempt {os.environ['TRAINJOB_ATTEMPT']} begins at step {step}", flush=True)
while step < 60 and not asked_to_stop:
    time.sleep(0.1)
    step += 1
if os.environ["RANK"] == "0":
    saved.write_text(str(step))
    if step < 60:
        (run / "requeue").write_text(str(step))
print(f"stopped at step {step} of 60", flush=True)
