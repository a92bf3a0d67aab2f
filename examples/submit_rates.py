# submit_rates.py
"""Submits a job for each learning rate, waits for all, and prints how they ended."""

import trainjob

runs = {
    rate: trainjob.plan(cluster="local", instances=1, task="ffnet-toy", learning_rate=rate, updates=20).submit()
    for rate in (0.001, 0.01)
}
for rate, run in runs.items():
    print(f"learning rate {rate}: {run.wait().state}")
