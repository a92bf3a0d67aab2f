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
