"""A web server on loopback that can cut connections, know Range requests or not, and refuse."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOPBACK = "127.0.0.1"


class Behaviour:
    """What the server does, and what it was asked."""

    def __init__(self, content: bytes, cuts: list[int] | None = None, ranges: bool = True, code: int = 200) -> None:
        self.content = content
        self.cuts = list(cuts or [])  # after how many bytes the next answers end; then whole ones
        self.ranges = ranges
        self.code = code
        self.asked: list[str | None] = []  # the Range header of each request
        self.url = ""


@contextlib.contextmanager
def serving(behaviour: Behaviour) -> Iterator[Behaviour]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, behaviour)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    behaviour.url = f"http://{LOOPBACK}:{server.server_address[1]}/cifar-10-python.tar.gz"
    try:
        yield behaviour
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(handler: BaseHTTPRequestHandler, behaviour: Behaviour) -> None:
    asked = handler.headers.get("Range")
    behaviour.asked.append(asked)
    if behaviour.code != 200:
        handler.send_error(behaviour.code)
        return
    start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and behaviour.ranges else 0
    rest = behaviour.content[start:]
    handler.send_response(206 if asked and behaviour.ranges else 200)
    if asked and behaviour.ranges:
        handler.send_header("Content-Range", f"bytes {start}-{len(behaviour.content) - 1}/{len(behaviour.content)}")
    handler.send_header("Content-Length", str(len(rest)))
    handler.end_headers()
    handler.wfile.write(rest[: behaviour.cuts.pop(0)] if behaviour.cuts else rest)
