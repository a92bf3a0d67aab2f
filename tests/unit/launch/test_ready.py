"""Whether a server is ready, whatever answers at its port."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainjob.launch.roles import ready

LIMIT_S = 60.0


@contextlib.contextmanager
def answering(said: Iterable[bytes], pause_s: float) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the port of a server that says so to the first that asks, and what that one has asked."""
    asked: list[bytes] = []

    def serve() -> None:
        link, _ = listening.accept()
        with link, contextlib.suppress(OSError):
            asked.append(link.recv(4096))
            for part in said:
                link.sendall(part)
                time.sleep(pause_s)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        listening.settimeout(LIMIT_S)
        serving = pool.submit(serve)
        yield listening.getsockname()[1], asked
        serving.result(LIMIT_S)


@pytest.mark.parametrize(
    ("said", "is_ready"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\n"], True),
        ([b"HTTP/1.0 204 \r\n\r\n"], True),
        ([b"HTTP/1.1 2", b"00 OK\r", b"\n"], True),
        ([b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"], True),
        ([b"HTTP/1.1 503 Loading\r\n\r\n"], False),
        ([b"HTTP/1.1 404 Not Found\r\n\r\n"], False),
        ([b"HTTP/1.1 2000 OK\r\n\r\n"], False),
        ([b"no HTTP 200 OK\r\n"], False),
        ([], False),
    ],
)
def test_a_server_is_ready_once_it_answers_with_success(tmp_path: Path, said: list[bytes], is_ready: bool) -> None:
    with answering(said, 0.01) as (port, asked):
        assert ready.is_ready("http://{host}:{port}/health?full=1", "127.0.0.1", port, tmp_path) == is_ready
    assert asked[0].startswith(b"GET /health?full=1 HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    ("first", "then", "pause_s"),
    [
        (b"HTTP/1.1 ", b"2", 0.2),  # a line that never ends
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01),
        (b"HTTP/1.1 200 OK\r\n", b"X", 0.2),  # success, and then nothing of use
        (b"", bytes(65536), 0.0),
    ],
)
def test_no_answer_holds_up_the_job(tmp_path: Path, first: bytes, then: bytes, pause_s: float) -> None:
    began = time.monotonic()
    with answering(itertools.chain([first], itertools.repeat(then)), pause_s) as (port, _):
        is_ready = ready.is_ready("http://{host}:{port}/", "127.0.0.1", port, tmp_path)
    assert is_ready == (b"200" in first)
    assert time.monotonic() - began < LIMIT_S / 2
