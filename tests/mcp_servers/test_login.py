"""A7, OAuth: login at a server of the SDK through a loopback redirect; tokens in a file of mode
0600.
"""

import json
import os
import re
import socket
import stat
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import CliHarness
from tests.mcp_servers.harness import late, listening, one_call, serve
from tests.timeouts import HANG_S

SERVER = str(Path(__file__).with_name("oauth_server.py"))


@pytest.fixture
def address() -> Iterator[str]:
    """URL of a server that wants a login."""
    with listening(sys.executable, SERVER) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def log_in(cli: CliHarness) -> str:
    """Log in at the server `guarded` as a person with a browser does; return the address that
    was shown.
    """
    login = cli.start("mcp", "login", "guarded")
    shown = b""
    while piece := os.read(login.process.stderr.fileno(), 4096):  # type: ignore[union-attr]
        shown += piece
        if re.search(rb"http://\S+\n", shown):
            break
    found = re.search(r"http://\S+", shown.decode())
    assert found, login.end().told()
    with urllib.request.urlopen(
        found[0], timeout=HANG_S
    ) as page:  # it follows the redirect to the loopback
        assert b"You are logged in." in page.read()
    ended = login.end()
    assert ended.code == 0, ended.told()
    assert "guarded: connected" in ended.text
    return found[0]


def token_file(cli: CliHarness) -> Path:
    (found,) = (cli.state / "mcp_tokens").iterdir()
    return found


def test_login_use_and_logout(cli: CliHarness, address: str) -> None:
    serve(cli, guarded={"type": "http", "url": address})
    before = cli.run("mcp", "test", "guarded")
    assert before.code == 1
    assert "needs login" in before.text, before.told()

    log_in(cli)
    tokens = token_file(cli)
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.parent.stat().st_mode) == 0o700
    assert one_call(cli, late("mcp__guarded__whoami"))[1].startswith("a friend; renewed 0 times")
    access = re.search(r"access-\w+", tokens.read_text())
    assert access
    log = [path for path in (cli.state / "sessions").rglob("*") if path.is_file()]
    assert not [path for path in log if access[0].encode() in path.read_bytes()]

    assert cli.run("mcp", "logout", "guarded").code == 0
    assert cli.run("mcp", "test", "guarded").code == 1


def test_a_headless_run_without_a_login_says_how_to_log_in(cli: CliHarness, address: str) -> None:
    serve(cli, guarded={"type": "http", "url": address})
    cli.plays({"text": "done"})
    run = cli.run("-p", "go")
    assert (run.code, run.text) == (0, "done\n")
    assert "log in with `longrein mcp login guarded`" in run.err


def test_an_expired_token_is_renewed_without_a_login_by_another_process(cli: CliHarness) -> None:
    """The renewal at the server of the SDK holds once, so it is stored anew."""
    with listening(sys.executable, SERVER) as port:
        serve(cli, guarded={"type": "http", "url": f"http://127.0.0.1:{port}/mcp"})
        log_in(cli)
        stored = json.loads(token_file(cli).read_text())
        token_file(cli).write_text(json.dumps({**stored, "expires_at": 1}))
        before = stored["tokens"]
        assert "renewed 1 times" in one_call(cli, late("mcp__guarded__whoami"))[1]
        after = json.loads(token_file(cli).read_text())["tokens"]
        assert before["refresh_token"] != after["refresh_token"]
        assert "renewed 1 times" in one_call(cli, late("mcp__guarded__whoami"))[1]


def test_a_token_that_cannot_be_renewed_needs_a_login(cli: CliHarness, address: str) -> None:
    serve(cli, guarded={"type": "http", "url": address})
    log_in(cli)
    stored = json.loads(token_file(cli).read_text())
    wrong = {**stored, "expires_at": 1, "tokens": {**stored["tokens"], "refresh_token": "revoked"}}
    token_file(cli).write_text(json.dumps(wrong))
    told = cli.run("mcp", "test", "guarded")
    assert (told.code, "needs login" in told.text) == (1, True), told.told()
    log_in(cli)  # with the registration of before, on its port
    assert json.loads(token_file(cli).read_text())["client"] == stored["client"]


def test_a_client_that_is_registered_by_hand(cli: CliHarness) -> None:
    """`clientId` and `callbackPort`: the server refuses others, and registers nobody."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with listening(
        sys.executable, SERVER, CLIENT="by-hand", REDIRECT=f"http://localhost:{port}/callback"
    ) as own:
        entry = {"type": "http", "url": f"http://127.0.0.1:{own}/mcp"}
        serve(cli, guarded=entry)
        refused = cli.run("mcp", "login", "guarded")
        assert refused.code == 1, refused.told()
        serve(cli, guarded={**entry, "oauth": {"clientId": "by-hand", "callbackPort": port}})
        assert "client_id=by-hand" in log_in(cli)
        assert one_call(cli, late("mcp__guarded__whoami"))[1].endswith("clients by-hand")


def test_another_client_begins_without_the_tokens_of_the_first(
    cli: CliHarness, address: str
) -> None:
    entry = {"type": "http", "url": address}
    serve(cli, guarded=entry)
    log_in(cli)
    serve(cli, guarded={**entry, "oauth": {"clientId": "another"}})
    assert cli.run("mcp", "test", "guarded").code == 1
    stored = json.loads(token_file(cli).read_text())
    assert (stored["tokens"], stored["client"]["client_id"]) == (None, "another")


def test_a_server_leads_no_request_into_the_private_network(cli: CliHarness) -> None:
    """S063: the metadata of its login would be at another port of this machine."""
    seen: list[str] = []
    challenge = ""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.server.server_address[1]} {self.path}")
            self.send_response(401)
            self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    own, other = (server.server_address[1] for server in servers)
    challenge = f'Bearer resource_metadata="http://127.0.0.1:{other}/inside"'
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    serve(cli, guarded={"type": "http", "url": f"http://127.0.0.1:{own}/mcp"})
    told = cli.run("mcp", "login", "guarded")
    for server in servers:
        server.shutdown()
        server.server_close()
    assert told.code == 1, told.told()
    assert "tools.web_private_hosts" in told.text, told.told()
    assert seen
    assert not [one for one in seen if one.startswith(f"{other} ")]
