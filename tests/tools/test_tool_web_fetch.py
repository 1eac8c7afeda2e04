"""`WebFetch` against real servers on loopback: pages, redirects, limits, and addresses that are
refused.
"""

import asyncio
import gzip
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from longrein.tools import html_to_markdown
from longrein.workspace.http import NetError, parse_url
from tests.tables import split_words
from tests.timeouts import until
from tests.tools.conftest import ToolHarness

PAGE = (
    "<html><head><title>Tea</title><script>steal()</script></head><body><h1>Green</h1><p>Steep "
    "<b>2</b> min"
)
JSON = b'{"a": [1, 2]}'
BOMB = gzip.compress(b"\0" * (64 << 20), 1)
pytestmark = pytest.mark.anyio
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/": (200, {"Content-Type": "text/html; charset=utf-8"}, PAGE.encode()),
    "/latin": (200, {"Content-Type": "text/html; charset=latin-1"}, "<p>Grün".encode("latin-1")),
    "/json": (200, {"Content-Type": "application/json"}, JSON),
    "/gzip": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(b"packed"),
    ),
    "/bomb": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, BOMB),
    "/brotli": (200, {"Content-Type": "text/plain", "Content-Encoding": "br"}, b"\x0b\x02"),
    "/broken": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"not gzip"),
    "/picture": (200, {"Content-Type": "image/png"}, b"\x89PNG"),
    "/untyped": (200, {}, b"a\0b"),
    "/empty": (204, {}, b""),
    "/none": (404, {"Content-Type": "text/plain"}, b"no such page"),
    "/long": (200, {"Content-Type": "text/plain"}, b"x" * 50_000),
    "/deep": (200, {"Content-Type": "text/html"}, b"<div>" * 20_000 + b"deep down"),
    "/comments": (200, {"Content-Type": "text/html"}, b"start " + b"<!--" * 600_000),
    "/large": (200, {"Content-Type": "text/html"}, b"<p>word</p>" * 20_000 + b"<b>end</b>"),
    "/undefined": (200, {"Content-Type": "text/plain; charset=undefined"}, b"plain"),
    "/punycode": (200, {"Content-Type": "text/plain; charset=punycode"}, b"-plain"),
    "/charset": (200, {"Content-Type": "text/plain; charset=no-such"}, b"plain"),
    "/here": (302, {"Location": "/json"}, b""),
    "/round": (302, {"Location": "/round"}, b""),
    "/away": (302, {"Location": "http://169.254.169.254/latest/meta-data"}, b""),
    "/file": (302, {"Location": "file:///etc/passwd"}, b""),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        code, headers, body = ANSWERS[self.path]
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class Site:
    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.port, self.seen = server.server_address[1], server.seen  # type: ignore[attr-defined]

    def url(self, path: str) -> str:
        return f"http://localhost:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    server = ThreadingHTTPServer(("localhost", 0), Handler)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield Site(server)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "(200 text/html, 102 bytes)\n\nTea\n\n# Green\n\nSteep **2** min"),
        ("/latin", "\n\nGrün"),
        ("/json", '(200 application/json, 13 bytes)\n\n{"a": [1, 2]}'),
        ("/gzip", "(200 text/plain, 6 bytes)\n\npacked"),
        ("/empty", "The page is empty."),
        ("/none", "(404 text/plain, 12 bytes)\n\nno such page"),
        ("/charset", "\n\nplain"),
        ("/deep", "deep down"),
        ("/comments", "\n\nstart"),
        ("/large", "word\n\n**end**"),
        ("/undefined", "\n\nplain"),
        ("/punycode", "\n\n-plain"),
        ("/here", '/json (200 application/json, 13 bytes)\n\n{"a": [1, 2]}'),
        (
            "/away",
            (
                "redirects to another host: http://169.254.169.254/latest/meta-data\nCall WebFetch "
                "with that address."
            ),
        ),
    ],
)
async def test_pages_become_text(harness: ToolHarness, site: Site, path: str, said: str) -> None:
    harness.limit(web_private_hosts=(f"localhost:{site.port}",))
    text = await harness.call("WebFetch", url=site.url(path))
    assert text.endswith(said)
    assert text.startswith(site.url(""))
    assert "steal()" not in text
    assert harness.last.status == ("failed" if path == "/none" else "ok")


async def test_an_interrupt_ends_the_conversion_of_a_large_page(
    harness: ToolHarness, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, endless = tmp_path / "pid", tmp_path / "endless.py"
    endless.write_text(
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)\n"
    )
    monkeypatch.setattr(html_to_markdown, "__file__", str(endless))
    harness.limit(web_private_hosts=(f"localhost:{site.port}",))
    call = asyncio.ensure_future(harness.call("WebFetch", url=site.url("/large")))
    await until(lambda: pid.exists() and bool(pid.read_text()))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not os.path.exists(f"/proc/{pid.read_text()}"))


async def refused(harness: ToolHarness, url: str) -> str:
    text = await harness.call("WebFetch", url=url)
    assert harness.last.status == "failed"
    return text


@pytest.mark.parametrize(("path", "problem"), [
    ("/picture", "is no text"),
    ("/untyped", "is no text"),
    ("/brotli", "compressed as br, which was not asked for"),
    ("/broken", "not what its header says, gzip"),
    ("/round", "more than 5 redirects"),
    ("/file", "only http and https addresses can be fetched, not file"),
])  # fmt: skip
async def test_what_is_no_page_is_refused(
    harness: ToolHarness, site: Site, path: str, problem: str
) -> None:
    harness.limit(web_private_hosts=(f"localhost:{site.port}",))
    assert problem in await refused(harness, site.url(path))


@pytest.mark.parametrize(("path", "kept"), [("/long", 1_000), ("/bomb", 1_000)])
async def test_large_pages_are_cut(harness: ToolHarness, site: Site, path: str, kept: int) -> None:
    harness.limit(web_private_hosts=(f"localhost:{site.port}",), web_bytes_max=kept)
    assert f"{kept:,} bytes, the rest is cut)" in await harness.call("WebFetch", url=site.url(path))


async def test_a_silent_server_is_given_up(harness: ToolHarness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        harness.limit(web_private_hosts=(f"127.0.0.1:{port}",), web_timeout_s=0.2)
        said = await refused(harness, f"http://127.0.0.1:{port}/")
    assert (
        said == f"[not-fetched] no complete answer from 127.0.0.1:{port} within 0.2 s. Try "
        "another address."
    )


PRIVATE = (
    *split_words("""
        127.0.0.1 [::1] 0.0.0.0 10.0.0.1 100.64.0.1 169.254.169.254 [fd00::1] [::ffff:7f00:1]
    """),
    *split_words("""
        2130706433 0x7f.1 localhost localhost. LOCALHOST 127.1 [::] metadata.google.internal
    """),
)


@pytest.mark.parametrize("host", PRIVATE)
async def test_S063_private_addresses_are_refused_without_a_connection(
    harness: ToolHarness, site: Site, host: str
) -> None:
    assert "[not-fetched]" in await refused(harness, f"http://{host}:{site.port}/")
    assert site.seen == []


async def test_S063_a_listed_host_is_listed_with_its_port_only(
    harness: ToolHarness, site: Site
) -> None:
    harness.limit(web_private_hosts=("localhost:1", "*.localhost"))
    found = await refused(harness, site.url("/"))
    assert "the setting `tools.web_private_hosts` allows such hosts" in found
    assert site.seen == []


@pytest.mark.parametrize(("url", "problem"), [
    ("ftp://example.com/", "not ftp"),
    ("example.com", "not one without either"),
    ("http://user:word@example.com/", "a name or a password"),
    ("http://exa mple.com/", "not a web address"),
    ("http://example.com:99999/", "not a web address"),
    ("http://[::1/", "not a web address"),
    ("http:///path", "not a web address"),
    ("https://example.com/" + "x" * 9_000, "longer than 8000"),
    ("http://example.com/\x00", "blanks"),
])  # fmt: skip
def test_odd_addresses_are_refused(url: str, problem: str) -> None:
    with pytest.raises(NetError, match=problem):
        parse_url(url)
