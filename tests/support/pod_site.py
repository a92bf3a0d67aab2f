"""A pod's launch host in small: a real sshd, an SDK whose enable scripts put the stand-ins on the paths, and a user."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.local_runs import command_of, every_process, kill, marked, oldest_first, parent_of
from tests.support.login_node import LoginNode, free_port
from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB, ran
from tests.support.waiting import until
from trainjob.rehearse import pod

# Stays until the file `release` appears; says what it was told.
STAY = """\
import json, os, pathlib, time
told = {k: v for k, v in os.environ.items() if k.startswith(("POPDIST", "IPUOF", "RANK", "SITE"))}
print(json.dumps(told), flush=True)
print("ready", flush=True)
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
while not (run / "release").exists():
    time.sleep(0.05)
"""


class PodSite:
    """One pod, and one user's folders."""

    def __init__(self, folder: Path, node: LoginNode) -> None:
        self.folder = folder
        self.node = node
        self.here = folder / "here"
        self.here.mkdir()
        self.runs = folder / "shared" / "runs"
        self.runs.mkdir(parents=True)
        self.sdk = folder / "poplar sdk"
        self.venv = folder / "venv"
        own = {"XDG_DATA_HOME": str(folder / "user" / "data"), "XDG_CONFIG_HOME": str(folder / "user" / "config")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINJOB_", "OMP"))}
        self.environ = {**kept, **own, "PATH": f"{node.bin}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
        self._install()

    def _install(self) -> None:
        # poprun comes with the SDK, vipu is the site's own.
        pod.write_programs(self.folder / "standin", sys.executable)
        pod.write_programs(self.folder / "vipu-bin", sys.executable)
        (self.folder / "vipu-bin" / "poprun").unlink()
        # As the vendor's do: they read what is not set, and end with a test that fails.
        for name, body in (
            (
                "poplar-3.3.0",
                f"export PATH={shlex.quote(str(self.folder / 'standin'))}:$PATH\n"
                'if [ -n "$POPLAR_SDK_ENABLED" ]; then echo twice >&2; exit 3; fi\n'
                f'export POPLAR_SDK_ENABLED={shlex.quote(str(self.sdk / "poplar-3.3.0"))}\n[ -n "$NOT_SET" ] && true\n',
            ),
            (
                "popart-3.3.0",
                f'export SITE_POPART="$PYTHONPATH"x PYTHONPATH={shlex.quote(str(self.folder / "packages"))}\n',
            ),
        ):
            (self.sdk / name).mkdir(parents=True)
            (self.sdk / name / "enable.sh").write_text(body)
        # What the virtualenv says that it has.
        for name, version in (("torch", "2.0.1+cpu"), ("poptorch", "3.3.0+113432")):
            info = self.folder / "packages" / f"{name}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (self.venv / "bin").mkdir(parents=True)
        for name in ("python", "python3"):
            python = self.venv / "bin" / name
            python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
            python.chmod(0o755)

    def brings_poptorch(self) -> None:
        """Have enabling the SDK bring poptorch and popdist too, and a Horovod beside them."""
        folders = [*pod.python_folders(has_horovod=False), self.folder / "packages"]
        enable = self.sdk / "popart-3.3.0" / "enable.sh"
        enable.write_text(f"{enable.read_text()}export PYTHONPATH={shlex.quote(os.pathsep.join(map(str, folders)))}\n")

    def vipu_site(self, **values: Any) -> None:
        (self.folder / "vipu").mkdir(exist_ok=True)
        (self.folder / "vipu" / "site.json").write_text(json.dumps(values))

    def when_a_run_begins(self, state: dict[str, Any]) -> None:
        """Have the controller become `state` between the check and the run."""
        enable = self.sdk / "popart-3.3.0" / "enable.sh"
        change = f"echo {shlex.quote(json.dumps(state))} >{shlex.quote(str(self.folder / 'vipu' / 'site.json'))}"
        enable.write_text(f'{enable.read_text()}if [ -n "$TRAINJOB_RUN_DIR" ]; then {change}; fi\n')

    def partitions(self) -> dict[str, Any]:
        path = self.folder / "vipu" / "site.json"
        found: dict[str, Any] = json.loads(path.read_text())["partitions"] if path.exists() else {}
        return found

    def cluster(self, name: str = "pod", *, ssh: bool = True, **changes: Any) -> None:
        asked: dict[str, Any] = {
            "kind": "ipu-pod",
            "ipus": 16,
            "hosts": "pod-host1",
            "vipu": {"server": "ctl", "allocation": "default"},
            "sdk": {"version": "3.3.0", "path": str(self.sdk), "venv": str(self.venv)},
            "runs_dir": str(self.runs),
            **({"ssh": {"host": "login"}} if ssh else {}),
            **changes,
        }
        (self.here / "clusters").mkdir(exist_ok=True)
        (self.here / "clusters" / f"{name}.yaml").write_text(json.dumps(asked))

    def write(self, name: str, text: str) -> None:
        (self.here / name).write_text(text)
        if not (self.here / ".git").exists():
            subprocess.run(["git", "init", "--quiet"], cwd=self.here, env=self.environ, check=True)
        subprocess.run(["git", "add", name], cwd=self.here, env=self.environ, check=True)

    def trainjob(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return ran([TRAINJOB, *words], folder=self.here, environ=self.environ, timeout_s=240, code=code)

    def start_trainjob(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [TRAINJOB, *words],
            cwd=self.here,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def json(self, *words: str, code: int | None = 0) -> Any:
        at = words.index("--") if "--" in words else len(words)
        return reported(self.trainjob(*words[:at], "--json", *words[at:], code=code).stdout)

    def submit(self, *words: str, cluster: str = "pod") -> str:
        """Return the id of a new run of four instances."""
        asked = ("submit", "--cluster", cluster, "--again", "--instances", "4", *words)
        found: str = self.json(*asked)["id"]
        return found

    def start(self) -> None:
        """Start sshd. What every command over there has: PATH has no poprun, enabling the SDK brings it."""
        path = f"{self.folder / 'vipu-bin'}{os.pathsep}{os.environ['PATH']}"
        self.node.start({"PATH": path, "TRAINJOB_STANDIN_VIPU": str(self.folder / "vipu")})

    def break_down(self) -> None:
        """End sshd and every connection to it; what runs keeps running."""
        assert self.node.process is not None
        sessions = [pid for pid in every_process() if parent_of(pid) == self.node.process.pid]
        self.node.stop()
        kill(sessions)

    def there(self, run: str) -> Path:
        return self.runs / run

    def state(self, run: str) -> str:
        found: str = self.json("status", run)["state"]
        return found

    def wait(self, run: str, state: str) -> None:
        until(lambda: self.state(run) == state, f"{run} {state}")

    def wait_until_ready(self, run: str, ranks: int = 4) -> None:
        logs = [self.there(run) / "logs" / f"rank-{rank:04d}.log" for rank in range(ranks)]
        until(lambda: all(log.exists() and "ready" in log.read_text() for log in logs), f"{run} ready")

    def processes(self, run: str) -> list[int]:
        return [pid for pid in marked(self.there(run)) if command_of(pid)]

    def find(self, run: str, word: str) -> list[int]:
        """Return the run's processes of which one word ends so, oldest first."""
        return oldest_first(pid for pid in self.processes(run) if any(one.endswith(word) for one in command_of(pid)))

    def end_everything(self) -> None:
        kill(marked(self.folder))


@contextmanager
def pod_site(folder: Path, sshd: Path) -> Iterator[PodSite]:
    """Yield a pod; nothing of it is left afterwards."""
    node = LoginNode(folder / "node", sshd, free_port())
    node.write()
    site = PodSite(folder, node)
    site.start()
    try:
        yield site
    finally:
        site.end_everything()
        node.stop()
