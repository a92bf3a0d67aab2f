"""A stand-in server and a trainer that needs it, for jobs of several roles."""

from __future__ import annotations

from typing import Any

# It answers after a while. The trainer's requests are counted in the run directory.
SERVER = """\
import http.server, os, sys, time
port, address = int(sys.argv[1]), os.environ["TRAINJOB_ROLE_SERVER"]
assert address.endswith(":%d" % port), address
print("serving at", address, os.environ.get("FLAVOUR", ""), flush=True)
time.sleep(float(os.environ.get("LOADS_S", "0.5")))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("", port), Handler).serve_forever()
"""
# A server that is ready, by a file, at its second start alone.
READY_AT_LAST = """\
import os, pathlib, time
folder = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"]) / "roles" / "server"
(folder / ("up" if (folder / "first").exists() else "first")).touch()
time.sleep(600)
"""
# It trains until the file `finish` is there, or it is asked to stop; then it saves, and the program ends with 0.
_TRAIN = """\
import os, pathlib, signal, sys, time
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
def train(before_saving):
    asked = []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda got, _: asked.append(got))
    saved = run / "checkpoint.pt"
    step = int(saved.read_text()) if saved.exists() else 0
    while not (run / "finish").exists():
        step += 1
        print("step", step, flush=True)
        time.sleep(0.2)
        if asked:
            before_saving()
            saved.write_text(str(step))
            break
"""
TRAINER = f"""\
{_TRAIN}
import urllib.request
print(urllib.request.urlopen("http://%s/health" % os.environ["TRAINJOB_ROLE_SERVER"]).status, flush=True)
train(lambda: time.sleep(1))
"""


def roles(**server: Any) -> dict[str, Any]:
    """Return the job of both; `server` has further keys of the server."""
    ready = "http://{host}:{port}/health"
    return {
        "server": {"command": ["python", "server.py", "{port}"], "ready": ready, **server},
        "train": {"command": ["python", "trainer.py"], "needs": ["server"]},
    }


# A driver of Ray: it has as many tasks at once as there are nodes, each on its own, and says what it found. Then it
# trains, as TRAINER does.
DRIVER = f"""\
{_TRAIN}
import ray
nodes = int(sys.argv[1])
ray.init()
alive = sum(node["Alive"] for node in ray.nodes())
print("alive", alive, "CPUs", ray.cluster_resources()["CPU"], "threads", os.environ.get("OMP_NUM_THREADS"), flush=True)
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def node():
    return ray.get_runtime_context().get_node_id()
while len(seen := set(ray.get([node.remote() for _ in range(nodes)]))) < nodes:
    pass
print("worked on", len(seen), flush=True)
train(lambda: ray.get(node.remote()))  # the cluster outlives the driver's save
"""
# Ray maps this much memory on each node.
RAY_MEMORY = {"RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "80000000"}


def ray_job(python: str, nodes: int, **train: Any) -> dict[str, Any]:
    """Return a job whose only role drives a Ray cluster of so many nodes; `train` has further keys of it."""
    command = [python, "driver.py", str(nodes)]
    return {"env": RAY_MEMORY, "roles": {"train": {"command": command, "ray": True, "ready_timeout_s": 120, **train}}}
