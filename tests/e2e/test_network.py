"""Hosts of `sandbox.network` as the user meets them: real programs in bubblewrap, servers on loopback."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from .harness import CliHarness, bash, calls, needs_bubblewrap, says

pytestmark = needs_bubblewrap


class Handler(BaseHTTPRequestHandler):
    """Answers `hello`; `/away` leads to another host."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/away" else 200)
        if self.path == "/away":
            self.send_header("Location", "http://other.example/")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """`127.0.0.1:PORT` of a server outside the sandbox."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


def network(cli: CliHarness, *entries: str) -> None:
    cli.settings(f"[sandbox]\nnetwork = {list(entries)!r}".replace("'", '"'))


@pytest.mark.parametrize(
    "command",
    [
        "curl -sS http://{server}/",
        "curl -sS -p http://{server}/",
        "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://{server}/\").read().decode())'",
    ],
)
def test_programs_reach_a_host_that_the_settings_name(cli: CliHarness, server: str, command: str) -> None:
    network(cli, server)
    cli.plays(calls(bash(command.format(server=server))), says("so"))
    assert cli.run("-p", "x").code == 0
    assert cli.results() == [("ok", "hello")]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("curl -sS --fail http://other.example/", "other.example"),
        ("curl -sS https://other.example/", "other.example"),
        ("curl -sS -L --fail http://{server}/away", "other.example"),
        ("curl -sS https://93.184.216.34/", "93.184.216.34"),
        ("curl -sS https://[::ffff:10.0.0.1]/", "[::ffff:a00:1]"),
        ("git clone -q https://other.example/x.git y", "other.example"),
        ("python3 -c 'import urllib.request as r; r.urlopen(\"http://other.example/\")'", "other.example"),
    ],
)
def test_headless_refuses_other_hosts_by_name(cli: CliHarness, server: str, command: str, named: str) -> None:
    network(cli, server)
    cli.plays(calls(bash(command.format(server=server))), says("so"))
    cli.run("-p", "x")
    ((status, told),) = cli.results()
    assert status == "failed"
    assert "[the sandbox refused hosts: " + named in told
    assert f'add "{named}" to sandbox.network' in told
