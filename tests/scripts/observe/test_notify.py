"""Who is told how a run has ended: once, by a process that outlives the submitting command."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here
from tests.support.waiting import until

SECRET = "hidden-word"
# Appends what it is told to the file that it is given, one JSON object a message.
TAKE = """\
import json, os, sys
told = {name: value for name, value in os.environ.items() if name.startswith("TRAINJOB_NOTIFY_")}
open(sys.argv[1], "a").write(json.dumps({**told, "stdin": sys.stdin.read()}) + "\\n")
"""


@pytest.fixture
def hook() -> Iterator[Any]:
    """A webhook: its `address`, and the JSON that it has got."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.address = [], f"http://127.0.0.1:{server.server_port}/{SECRET}"
    yield from _served(server)


def _served(server: Any) -> Iterator[Any]:
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def configure(here: Here, **notify: Any) -> Path:
    """Write config.yaml, and return the file to which the command that is told of runs writes."""
    taker, reported = here.folder / "take.py", here.folder / "told"
    taker.write_text(TAKE)
    command = [sys.executable, str(taker), str(reported)]
    path = here.folder / "config" / "trainjob" / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"notify": {"command": command, "every_s": 0.2, **notify}}))
    path.chmod(0o600)
    return reported


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def log_of(here: Here) -> str:
    path = here.folder / "data" / "trainjob" / "notify" / "log"
    return path.read_text() if path.exists() else ""


def is_at_rest(here: Here) -> bool:
    """Whether no run is watched any more."""
    return not list((here.folder / "data" / "trainjob" / "notify").glob("*.json"))


def test_the_end_of_a_run_is_reported_once_in_every_way_without_the_command_that_submitted_it(
    here: Here, hook: Any
) -> None:
    reported = configure(here, webhook=hook.address)
    run = here.submit("bash", "-c", "exit 3", instances=1, flags=("--name", "$(touch hostile)`x`"))
    until(lambda: is_at_rest(here), "told")
    here.run("status", run.id)
    here.run("list")
    assert "nothing" not in here.run("notify").stdout

    [by_command], [by_hook] = lines(reported), hook.got
    assert (by_command["TRAINJOB_NOTIFY_EVENT"], by_hook["event"]) == ("failed", "failed")
    assert by_command["TRAINJOB_NOTIFY_SUBJECT"] == f"{run.id} on local is FAILED"
    assert by_command["stdin"].startswith(f"{run.id} on local is FAILED\n")
    assert by_hook["text"].startswith(f"{run.id} on local is FAILED\n")
    assert f"trainjob status {run.id}" in by_command["TRAINJOB_NOTIFY_BODY"]
    assert not (here.project / "hostile").exists()
    assert f"{run.id}: failed: webhook delivered" in log_of(here)
    assert SECRET not in log_of(here)


def test_a_resumed_run_is_reported_again(here: Here) -> None:
    reported = configure(here)
    here.write("once.py", "import os, sys; sys.exit(int(os.environ['TRAINJOB_ATTEMPT']) < 2)")
    run = here.submit("python", "once.py", instances=1)
    until(lambda: is_at_rest(here), "the first attempt told")
    here.run("resume", run.id)
    until(lambda: is_at_rest(here) and len(lines(reported)) == 2, "the second attempt told")
    assert [one["TRAINJOB_NOTIFY_STATE"] for one in lines(reported)] == ["FAILED", "COMPLETED"]


def test_a_dead_webhook_is_given_up_after_three_tries_and_the_run_does_not_care(here: Here) -> None:
    reported = configure(here, webhook=f"http://127.0.0.1:9/{SECRET}")
    run = here.submit("true", instances=1)
    run.wait("COMPLETED")
    until(lambda: is_at_rest(here), "given up")
    assert len(lines(reported)) == 1
    assert log_of(here).count("webhook failed, try") == 3
    assert "try 3 of 3: 127.0.0.1 can't be reached" in log_of(here)
    assert SECRET not in log_of(here)


def test_without_the_background_only_the_command_tells(here: Here) -> None:
    reported = configure(here, background=False, on=["ended"])
    run = here.submit("true", instances=1)
    run.wait("COMPLETED")
    here.run("status", run.id)
    assert not is_at_rest(here)
    assert here.run("notify").stdout == f"{run.id}: ended: command delivered\n"
    assert is_at_rest(here)
    assert len(lines(reported)) == 1


def test_what_is_wrong_with_the_configuration_is_said_before_anything_is_submitted(here: Here) -> None:
    configure(here, webhook="https://127.0.0.1/x")
    (here.folder / "config/trainjob/config.yaml").chmod(0o644)
    refused = here.run("submit", "--cluster", "local", "--", "true", code=1).stderr
    assert "config.yaml has mode 0644" in refused
    assert "chmod 600" in refused
    configure(here, webhok="https://127.0.0.1/x")
    refused = here.run("submit", "--cluster", "local", "--", "true", code=1).stderr
    assert "config.yaml:1: notify.webhok" in refused
    assert here.json("list") == []


def test_a_test_message_goes_every_way_and_says_which_failed(here: Here) -> None:
    reported = configure(here, webhook=f"http://127.0.0.1:9/{SECRET}")
    tried = here.run("notify", "--test", code=1)
    assert tried.stdout == "command: delivered\n"
    assert "webhook: 127.0.0.1 can't be reached" in tried.stderr
    assert SECRET not in tried.stderr
    assert lines(reported)[0]["stdin"] == "trainjob notify --test\n\nThis is a test.\n"
