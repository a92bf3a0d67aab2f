"""The page that `trainjob watch --web` serves: the live view, read-only, on the loopback interface alone.

Other users of the machine, and pages of other sites in the user's browser, can reach the port: the address holds a
token, and a request for another host's name is refused.
"""

from __future__ import annotations

import hmac
import math
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from trainjob.observe.report import page
from trainjob.observe.report.series import Series
from trainjob.observe.status import Snapshot
from trainjob.watch import show, views

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    # The page has no script, and loads nothing from anywhere.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Sources:
    """The sources of what the page shows: the runs, a run's curves and ranks, and the last lines of its log."""

    listed: Callable[[], list[Snapshot]]
    records: Callable[[Snapshot], tuple[Series, Sequence[tuple[str, str]]]]
    last_lines: Callable[[Snapshot], Sequence[str]]


class Server(ThreadingHTTPServer):
    """Serves the page until it is shut down, at `address`, which includes the token."""

    daemon_threads = True

    def __init__(self, sources: Sources, every_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = secrets.token_urlsafe(24)
        self.hosts = tuple(f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost"))
        self.address = f"http://{self.hosts[0]}/{self.token}/"
        self._sources, self._every_s = sources, every_s
        self._lock = threading.Lock()
        self._listed: list[Snapshot] = []
        self._looked_at = -math.inf

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that has left before its page was ready; anything else is our bug, and shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type] # a socket and its address

    def page_at(self, path: str) -> str | None:
        """Return the page at a path below the token: all runs, or run/ID; None if there is none."""
        # However many pages are open, a login node is asked once within `every_s`.
        with self._lock:
            if time.monotonic() - self._looked_at >= self._every_s:
                self._listed, self._looked_at = self._sources.listed(), time.monotonic()
            if not path:
                return self._page("Runs", runs=[self._shown(now) for now in self._listed])
            run_id = path.removeprefix("run/")
            now = next((now for now in self._listed if now.id == run_id), None)
            return None if now is None or path == run_id else self._of_one(now)

    def _of_one(self, now: Snapshot) -> str:
        lines = [show.visible(line) for line in self._sources.last_lines(now)]
        series, ranks = self._sources.records(now)
        shown = [(name, show.visible(text)) for name, text in ranks]
        return self._page(now.id, one=self._shown(now), curves=views.curves(series), ranks=shown, lines=lines)

    def _page(self, title: str, **values: object) -> str:
        whole = {"runs": [], "one": None, "curves": [], "ranks": [], "lines": [], **values}
        return page.render("watch.html.j2", title=title, every_s=max(1, math.ceil(self._every_s)), **whole)

    def _shown(self, now: Snapshot) -> dict[str, object]:
        return {
            "id": now.id,
            "state": now.state,
            "cluster": now.cluster or "by hand",
            "done": now.update,
            "total": now.total_updates if now.update is not None else None,
            "progress": views.progress(now),
            "left": views.time_left(now),
            "facts": views.facts(now),
            "notes": views.notes(now),
        }


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10.0  # for a client that connects and sends nothing

    def do_GET(self) -> None:
        """Answer with the page if the request has the token and is for this host."""
        if self.headers.get("Host") not in self.server.hosts:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "This page is only served on 127.0.0.1.")
            return
        _, token, *path = f"{urlsplit(self.path).path}/".split("/", 2)
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.NOT_FOUND, "The address lacks the token that `trainjob watch --web` has printed.")
            return
        content = self.server.page_at(unquote(path[0].strip("/")) if path else "")
        if content is None:
            self._answer(HTTPStatus.NOT_FOUND, "There is no such run.")
        else:
            self._answer(HTTPStatus.OK, content)

    def _answer(self, status: HTTPStatus, content: str) -> None:
        body = content.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: every line would contain the token."""
