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
# It trains until the file `finish` is there, or it is asked to stop; then it saves, and ends with 0.
TRAINER = """\
import os, pathlib, signal, time, urllib.request
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
print(urllib.request.urlopen("http://%s/health" % os.environ["TRAINJOB_ROLE_SERVER"]).status, flush=True)
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
        time.sleep(1)
        saved.write_text(str(step))
        break
"""


def roles(**server: Any) -> dict[str, Any]:
    """Return the job of both; `server` has further keys of the server."""
    ready = "http://{host}:{port}/health"
    return {
        "server": {"command": ["python", "server.py", "{port}"], "ready": ready, **server},
        "train": {"command": ["python", "trainer.py"], "needs": ["server"]},
    }


# A driver of Ray: it has as many tasks at once as there are nodes, each on its own, and says what it found. Then it
# trains, as TRAINER does, until `finish` is there, or it is asked to save.
DRIVER = """\
import os, pathlib, signal, sys, time
import ray
run, nodes = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"]), int(sys.argv[1])
ray.init()
asked = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda got, _: asked.append(got))
alive = sum(node["Alive"] for node in ray.nodes())
print("alive", alive, "CPUs", ray.cluster_resources()["CPU"], "threads", os.environ.get("OMP_NUM_THREADS"), flush=True)
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def node():
    return ray.get_runtime_context().get_node_id()
while len(seen := set(ray.get([node.remote() for _ in range(nodes)]))) < nodes:
    pass
print("worked on", len(seen), flush=True)
saved = run / "checkpoint.pt"
step = int(saved.read_text()) if saved.exists() else 0
while not (run / "finish").exists():
    step += 1
    print("step", step, flush=True)
    time.sleep(0.2)
    if asked:
        ray.get(node.remote())  # the cluster outlives the driver's save
        saved.write_text(str(step))
        break
"""
# Ray maps this much memory on each node.
RAY_MEMORY = {"RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "80000000"}


def ray_job(python: str, nodes: int, **train: Any) -> dict[str, Any]:
    """Return a job whose only role drives a Ray cluster of so many nodes; `train` has further keys of it."""
    command = [python, "driver.py", str(nodes)]
    return {"env": RAY_MEMORY, "roles": {"train": {"command": command, "ray": True, "ready_timeout_s": 120, **train}}}
