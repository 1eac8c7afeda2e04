"""Hosts of `sandbox.network` as the user meets them: real programs in bubblewrap, servers on
loopback.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from longrein.workspace.sandbox import landlock
from tests.timeouts import HANG_S

from .harness import UNTIL_GO, CliHarness, bash, calls, needs_bubblewrap, says
from .test_sandbox import broken_program

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
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


@pytest.fixture
def repository(cli: CliHarness) -> Iterator[str]:
    """`127.0.0.1:PORT` of a server with the git repository `x.git`."""

    class Files(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    folder = cli.folder / "served"
    work, who = folder / "work", ["-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (
        ["init", "-q", str(work)],
        ["-C", str(work), *who, "commit", "-q", "--allow-empty", "-m", "first"],
        ["clone", "-q", "--bare", str(work), str(folder / "x.git")],
        ["-C", str(folder / "x.git"), "update-server-info"],
    ):
        subprocess.run(["git", *words], check=True, capture_output=True)
    made = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
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
        (
            "python3 -c 'import urllib.request as r; "
            'print(r.urlopen("http://{server}/").read().decode())\''
        ),
    ],
)
def test_programs_reach_a_host_that_the_settings_name(
    cli: CliHarness, server: str, command: str
) -> None:
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
        (
            "python3 -c 'import urllib.request as r; r.urlopen(\"http://other.example/\")'",
            "other.example",
        ),
    ],
)
def test_headless_refuses_other_hosts_by_name(
    cli: CliHarness, server: str, command: str, named: str
) -> None:
    network(cli, server)
    cli.plays(calls(bash(command.format(server=server))), says("so"))
    cli.run("-p", "x")
    ((status, told),) = cli.results()
    assert status == "failed"
    assert "[the sandbox refused hosts: " + named in told
    assert f'add "{named}" to sandbox.network' in told


def test_git_clones_from_a_host_that_the_settings_name(cli: CliHarness, repository: str) -> None:
    network(cli, repository)
    cli.plays(
        calls(bash(f"git clone -q http://{repository}/x.git copy && git -C copy log --format=%s")),
        says("so"),
    )
    cli.run("-p", "x")
    ((status, said),) = cli.results()
    assert (status, said.partition("\n")[0]) == ("ok", "first")
    assert "copy/.git (git, in its folder)" in said


def test_own_loopback_needs_no_proxy(cli: CliHarness) -> None:
    network(cli, "pypi.org")
    serve = (
        "python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & "
        "until curl -s -o /dev/null http://127.0.0.1:8123/; do sleep 0.05; done; "
    )
    cli.plays(
        calls(bash(f"{serve}curl -sS http://127.0.0.1:8123/ | head -c 9; kill %1")), says("so")
    )
    cli.run("-p", "x")
    assert cli.results() == [("ok", "<!DOCTYPE")]


def test_a_program_that_uses_no_proxy_is_told_apart(cli: CliHarness) -> None:
    network(cli, "pypi.org")
    cli.plays(
        calls(bash("python3 -c 'import socket; socket.getaddrinfo(\"pypi.org\", 443)'")), says("so")
    )
    cli.run("-p", "x")
    ((_, told),) = cli.results()
    assert "[the sandbox reaches hosts by its proxy (HTTPS_PROXY) only" in told


def test_a_task_that_outlives_the_session_is_told_that_its_network_ended(
    cli: CliHarness, server: str
) -> None:
    network(cli, server)
    line = (
        f"{UNTIL_GO}; curl -sS http://{server}/ > told; curl -sS -p http://{server}/ 2> failed; "
        "touch over"
    )
    cli.plays(calls(bash(line, run_in_background=True)), says("so"))
    cli.settings(f'[sandbox]\nnetwork = ["{server}"]\n[tasks]\npolicy = "keep"\n')
    cli.run("-p", "x", "--background", "exit", "--permission-mode", "acceptEdits")
    cli.go()
    until = time.monotonic() + HANG_S
    while not (cli.project / "over").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert "the network of the sandbox ended with the session" in (cli.project / "told").read_text()
    assert "502" in (cli.project / "failed").read_text()


@pytest.mark.parametrize("entry", ["https://pypi.org", "pypi.org/simple", "127.1"])
def test_an_entry_that_covers_nothing_stops_the_start(cli: CliHarness, entry: str) -> None:
    network(cli, entry)
    cli.plays(says("so"))
    ran = cli.run("-p", "x")
    assert ran.code == 2
    assert f"sandbox.network names '{entry}': " in ran.err


def test_doctor_names_the_hosts(cli: CliHarness) -> None:
    network(cli, "pypi.org", "*.debian.org")
    assert "network by a proxy: pypi.org, *.debian.org; asks for others" in cli.run("doctor").text
    network(cli, "ask")
    assert "network by a proxy: asks for each host" in cli.run("doctor").text


@pytest.mark.skipif(bool(landlock.available()), reason=landlock.available() or "Landlock works")
def test_landlock_has_no_hosts_and_says_so(cli: CliHarness) -> None:
    broken_program(cli)
    network(cli, "pypi.org")
    cli.plays(calls(bash("curl -sS https://pypi.org/")), calls(bash("true")), says("so"))
    ran = cli.run("-p", "x")
    (_, told), _ = cli.results()
    assert "[the sandbox has no network" in told
    assert ran.err.count("Landlock cannot let commands reach single hosts") == 1
    doctor = cli.run("doctor").text
    assert "no network: sandbox.network names hosts, but Landlock cannot" in doctor
    assert "landlock does not stop commands that change mode, times" in doctor
