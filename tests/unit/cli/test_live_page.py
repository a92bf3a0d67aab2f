"""The page of `watch --web`: what it shows, and to whom."""

from __future__ import annotations

import dataclasses
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.curves import series
from tests.unit.cli.test_live_views import RUNNING
from trainjob.observe.status import Snapshot
from trainjob.watch.page import Server, Sources

HOSTILE = "<script>alert(1)</script>"
LINES = [{"kind": "train", "attempt": 1, "update": update, "loss": 1 / update} for update in (10, 20)]


@pytest.fixture
def looks() -> list[int]:
    """How often the runs were listed."""
    return []


@pytest.fixture
def server(looks: list[int]) -> Iterator[Server]:
    hostile = dataclasses.replace(RUNNING, id="x:1", note=HOSTILE, cluster=None, scheduler={"time_left": "10:00"})

    def listed() -> list[Snapshot]:
        looks.append(1)
        return [RUNNING, hostile]

    sources = Sources(
        listed,
        lambda now: (series(LINES), [("rank 0", f"n1 {HOSTILE}")]),
        lambda now: [f"last line of {now.id} {HOSTILE}"],
    )
    with Server(sources, every_s=60.0) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(address: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_all_runs_are_rows_that_lead_to_each_run(server: Server, looks: list[int]) -> None:
    status, text = get(server.address)
    assert status == 200
    assert '<a href="run/k3xq-digits-cnn">k3xq-digits-cnn</a>' in text
    assert '<progress max="1000" value="300">' in text
    assert "300 of 1,000" in text
    assert "(limit 10:00)" in text
    assert get(server.address + "run/x%3A1")[0] == 200
    assert len(looks) == 1


def test_one_run_has_its_curves_and_the_end_of_its_log(server: Server) -> None:
    status, text = get(server.address + "run/k3xq-digits-cnn")
    assert status == 200
    assert '<progress max="1000" value="300">' in text
    assert "0.1 █▁ 0.05" in text
    assert '<th class="figure">rank 0</th>' in text
    assert "last line of k3xq-digits-cnn" in text
    assert get(server.address + "run/nobody")[0] == 404
    assert get(server.address + "k3xq-digits-cnn")[0] == 404


def test_nothing_that_a_run_says_acts_and_nothing_is_loaded(server: Server) -> None:
    for place in ("", "run/x:1"):
        text = get(server.address + place)[1]
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "<script" not in text
        assert "src=" not in text
        assert "http://" not in text


def test_the_page_is_for_who_knows_the_token_and_asks_for_this_host(server: Server, looks: list[int]) -> None:
    port = server.server_port
    for wrong in ("", "/", "/wrong/", f"/{server.token[:-1]}/", f"/{server.token}x/", "/ü/"):
        assert get(f"http://127.0.0.1:{port}{urllib.parse.quote(wrong)}")[0] == 404
    assert get(server.address, Host="evil.example.org")[0] == 421
    assert get(server.address, Host=f"evil.example.org:{port}")[0] == 421
    assert get(server.address.replace("127.0.0.1", "localhost"))[0] == 200
    assert server.server_address[0] == "127.0.0.1"
    assert len(looks) == 1
    request = urllib.request.Request(server.address, data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30)
