"""The server of a live page: who is let in (S088, S089), what is sent, and what a browser gets
as the session grows.
"""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from lab.inspector_session import SampleLogs, SampleSession
from longrein.extensions.inspector.inspection import SessionInspector, inspect_session
from longrein.extensions.inspector.page_data import Inspection, Update
from longrein.extensions.inspector.page_server import VERSIONS_MAX, InspectorServer, session_page
from tests.inspector.chromium import Chromium
from tests.tables import cases, split_words
from tests.timeouts import HANG_S

GOOD = "Host: 127.0.0.1:{port}"


class Live:
    """A server with a session that grows."""

    def __init__(self) -> None:
        self.sample = SampleSession(
            window=40_000, hostile="</script><img src=x onerror=alert(1)>\x1b]0;x\x07"
        ).grow(120)
        self.logs = SampleLogs(self.sample, upto=60)
        self.inspector = SessionInspector(self.logs, lambda _: self.sample.budget)
        self.inspector.read()
        self.page = session_page(inspect_session(self.inspector))
        self.server = InspectorServer(self.page)
        self.port = self.server.server_port
        self.token = self.server.token
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def grow(self, upto: int) -> None:
        self.logs.upto = upto
        self.inspector.read()
        self.page.show(self.inspector.inspection())

    def open(
        self, target: str, *headers: str, method: str = "GET", host: str = GOOD
    ) -> socket.socket:
        """Send a request on a connection of its own. In headers and target `{token}` and
        `{port}` are filled in.
        """
        connection = socket.create_connection(("127.0.0.1", self.port), HANG_S)
        lines = [f"{method} {target} HTTP/1.1", *([host] if host else []), *headers, "", ""]
        text = "\r\n".join(lines).replace("{token}", self.token).replace("{port}", str(self.port))
        connection.sendall(text.encode("latin-1"))
        return connection

    def ask(self, *given: str, **more: str) -> tuple[int, str]:
        """Status and everything that came, to the end of the connection."""
        with self.open(*given, **more) as connection:
            data = b"".join(iter(lambda: connection.recv(65_536), b""))
        return int(data.split(b" ", 2)[1]), data.decode()


@pytest.fixture
def live() -> Iterator[Live]:
    made = Live()
    yield made
    made.page.end()
    made.server.shutdown()
    made.server.server_close()


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)
    assert found is not None
    value: dict[str, Any] = json.loads(found[1])
    return value


# --- Who is let in --------------------------------------------------------------------------------

TOKENLESS = [
    (target, method, headers)
    for target in split_words(
        "/ /events /events?after=1 /?token= /?token=wrong /?token={token}x /app.js"
    )
    for method, headers in (
        ("GET", ()),
        ("POST", ("Content-Length: 0",)),
        ("DELETE", ()),
        ("FOO", ()),
        ("HEAD", ()),
    )
] + [
    ("/", "GET", ("Authorization: Bearer {token}",)),
    ("/", "GET", ("Cookie: token={token}",)),
    ("/", "GET", ("X-Token: {token}",)),
    ("/{token}", "GET", ()),
    ("/?Token={token}", "GET", ()),
    ("/#token={token}", "GET", ()),
    ("/?token={token}&token={token}", "GET", ()),
    ("/?token=%C3%A4%00", "GET", ()),
    ("//evil.test/?token=", "GET", ()),
    ("http://127.0.0.1:{port}/?token={token}", "GET", ()),
    ("*", "OPTIONS", ()),
    ("127.0.0.1:{port}", "CONNECT", ()),
    ("/../?tok=1", "GET", ()),
    ("/events", "GET", ("Accept: text/event-stream",)),
    (
        "/",
        "GET",
        (
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: eA==",
            "Sec-WebSocket-Version: 13",
        ),
    ),
]


def test_s088_every_route_needs_the_token(live: Live) -> None:
    told = {}
    for target, method, headers in TOKENLESS:
        status, text = live.ask(target, *headers, method=method)
        told[method, target, headers] = status
        assert live.token not in text
        assert "shop" not in text
    assert {case: status for case, status in told.items() if status not in (401, 403)} == {}


def test_s088_only_this_machine_can_connect(live: Live) -> None:
    assert live.server.server_address[0] == "127.0.0.1"
    assert len(live.token) >= 32
    assert InspectorServer(live.page).token != live.token
    others = {
        str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    } - {"127.0.0.1"}
    for address in others:
        with pytest.raises(OSError):
            socket.create_connection((address, live.port), 0.5).close()


HOSTS = (
    *(
        "evil.test",
        "evil.test:{port}",
        "",
        "127.0.0.1.evil.test",
        "127.0.0.1.evil.test:{port}",
        "127.0.0.1",
    ),
    *split_words("""
        127.0.0.1:1 localhost evil@127.0.0.1:{port} [::1]:{port} 0.0.0.0:{port} 127.0.0.1:{port}:1
    """),
    *("127.0.0.1:{port}, evil.test", "localhost.:{port}", "127.1:{port}"),
)


@cases("target", "/?token={token}", "/events?token={token}&after=0", "/none?token={token}")
def test_s089_the_host_must_name_this_server(live: Live, target: str) -> None:
    told = {host: live.ask(target, host=f"Host: {host}")[0] for host in HOSTS}
    told |= {"none": live.ask(target, host="")[0], "two": live.ask(target, GOOD, host=GOOD)[0]}
    assert set(told.values()) == {403}, told


def test_s089_another_site_is_refused_and_the_page_itself_is_not(live: Live) -> None:
    origins = (
        "https://evil.test",
        "null",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:{port}",
        "",
    )
    for header in (
        *(f"Origin: {origin}" for origin in origins),
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ):
        assert live.ask("/?token={token}", header)[0] == 403, header
    for header in (
        "Origin: http://127.0.0.1:{port}",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Site: same-origin",
    ):
        assert live.ask("/?token={token}", header)[0] == 200, header
    assert live.ask("/?token={token}", host="Host: localhost:{port}")[0] == 200
    assert live.ask("/none?token={token}")[0] == 404
    assert [
        live.ask("/?token={token}", method=method)[0] for method in ("POST", "PUT", "HEAD")
    ] == [405] * 3


# --- What is sent ---------------------------------------------------------------------------------


def test_the_page_is_closed_to_scripts_of_others(live: Live) -> None:
    _, text = live.ask("/?token={token}")
    head, _, body = text.partition("\r\n\r\n")
    policy = next(
        line for line in head.split("\r\n") if line.startswith("Content-Security-Policy: ")
    )
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "unsafe-eval" not in policy
    assert "*" not in policy
    for line in (
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
    ):
        assert line in head
    assert "Access-Control" not in head
    assert "Server: longrein" in head
    empty = live.sample.hostile
    assert empty not in body
    assert "\x1b" not in body
    assert data_of(body)["live"] == f"/events?token={live.token}&after=1"


# --- Events ---------------------------------------------------------------------------------------


@contextmanager
def events(live: Live, target: str, *headers: str) -> Iterator[Iterator[tuple[str, int, Any]]]:
    """(type, id, data) of each event."""
    with live.open(target, *headers) as connection, connection.makefile("rb") as file:
        head = b"".join(iter(file.readline, b"\r\n"))
        assert b" 200 " in head
        assert b"text/event-stream" in head
        yield _events(file)


def _events(file: Any) -> Iterator[tuple[str, int, Any]]:
    kind, number = "", 0
    for line in file:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "id":
            number = int(value)
        elif name == "data":
            yield kind, number, json.loads(value)


def test_new_entries_come_as_events_and_the_end_is_told(live: Live) -> None:
    _, text = live.ask("/?token={token}")
    first = data_of(text)
    with events(live, first["live"]) as heard:
        live.grow(80)
        kind, number, data = next(heard)
        update = msgspec.convert(data, Update)
        assert (kind, number, update.session.entries) == ("update", 2, 80)
        assert {row.seq for row in update.transcript if not row.agent} <= set(range(61, 81))
        live.grow(100)
        assert next(heard)[2]["session"]["entries"] == 100
        live.page.end()
        assert next(heard)[0] == "end"
        assert list(heard) == []


def test_a_lost_connection_goes_on_where_it_was(live: Live) -> None:
    for upto in (70, 80, 90):
        live.grow(upto)
    target = "/events?token={token}&after=1"
    with events(live, target, "Last-Event-ID: 3") as heard:
        _, number, data = next(heard)
        assert number == 4
        assert {row["seq"] for row in data["transcript"] if "agent" not in row} <= set(
            range(81, 91)
        )
    with events(live, target) as heard:
        assert next(heard)[2]["session"]["entries"] == 90
    for given in (
        "Last-Event-ID: 999",
        "Last-Event-ID: x",
        "Last-Event-ID: -1",
        "Last-Event-ID: " + "9" * 5000,
    ):
        with events(live, target, given) as heard:
            assert [event[0] for event in heard] == ["reload"]


def test_old_states_of_a_page_are_dropped(live: Live) -> None:
    for _ in range(VERSIONS_MAX + 5):
        live.page.show(live.inspector.inspection())
    assert live.page.next_event(1)[1].startswith(b"event: reload")
    version, now = live.page.current()
    assert version == VERSIONS_MAX + 6
    assert isinstance(now, Inspection)


# --- In a browser ---------------------------------------------------------------------------------


def test_a_browser_shows_the_session_and_what_is_added(live: Live, browser: Chromium) -> None:
    page = browser.new_page()
    page.open(live.server.url)
    page.wait_until("document.querySelector('#live').textContent === 'live'")
    before = page.run("document.body.innerText")
    assert "Repair of the shop" in before
    for upto in (80, 120):
        live.grow(upto)
    count = len(live.inspector.inspection().requests)
    page.wait_until(f"/Requests\\s+{count}\\s/.test(document.body.innerText)")
    live.page.end()
    page.wait_until("document.querySelector('#live').textContent === 'longrein inspect has ended'")
    assert page.dialogs == []
    assert page.problems == []
    assert {urlsplit(url).netloc for url in page.requests} == {f"127.0.0.1:{live.port}"}
    page.close()
