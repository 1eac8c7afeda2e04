"""A7, OAuth: login at a server of the SDK through a loopback redirect; tokens in a file of mode 0600."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import CliHarness
from tests.mcp_servers.harness import late, one_call, serve


@pytest.fixture
def address() -> Iterator[str]:
    """URL of a server that wants a login."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("oauth_server.py")), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_login_use_and_logout(cli: CliHarness, address: str) -> None:
    serve(cli, guarded={"type": "http", "url": address})
    before = cli.run("mcp", "test", "guarded")
    assert before.code == 1
    assert "needs login" in before.text, before.told()

    login = cli.start("mcp", "login", "guarded")
    shown = b""
    while b"http://" not in shown:
        shown += os.read(login.process.stderr.fileno(), 4096)  # type: ignore[union-attr]
    found = re.search(r"http://\S+", shown.decode())
    assert found
    with urllib.request.urlopen(found[0], timeout=30) as page:  # the browser; it follows the redirect to the loopback
        assert b"You are logged in." in page.read()
    ended = login.end()
    assert ended.code == 0, ended.told()
    assert "guarded: connected" in ended.text

    (tokens,) = (cli.state / "mcp_tokens").iterdir()
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.parent.stat().st_mode) == 0o700
    assert one_call(cli, late("mcp__guarded__whoami")) == ("ok", "a friend")
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
