"""`longrein inspect` as an installed command: files, `--live` beside a session that runs,
`--compare`.
"""

import asyncio
import json
import os
import re
import signal
import socket
import stat
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import pytest

from longrein.extensions.inspector.page_data import Comparison, Inspection
from longrein.store import Log, Reader, open_log
from longrein_context.events import (
    SCHEMA_VERSION,
    Asked,
    Entry,
    Opened,
    PermissionAsked,
    PrefixSet,
    Replied,
    Text,
    ToolCall,
    UserSpoke,
)
from tests.e2e.harness import BYPASS, CliHarness, bash, call, calls, says
from tests.timeouts import HANG_S

SECRET = "sk-ant-api03-" + "Q7x" * 20


def shown(page: str) -> Any:
    """The data in a page."""
    found = re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def session(cli: CliHarness, *prompts: str) -> str:
    """A session with an edit, a command that fails, and a text that tries to leave the page."""
    cli.plays(
        calls(bash("printf 'a</script><script>1</script>\\033[31m'; exit 3")),
        calls(
            call("Write", file_path=str(cli.project / "new.py"), content=f"one\ntwo\n# {SECRET}\n")
        ),
        says("all <b>done</b>"),
        *(says("more") for _ in prompts),
    )
    assert cli.run("-p", "please", BYPASS).code == 0
    for prompt in prompts:
        assert cli.run("-p", "-c", prompt, BYPASS).code == 0
    return cli.session


def test_a_page_is_written_beside_the_log_for_its_owner_alone(cli: CliHarness) -> None:
    name = session(cli)
    done = cli.run("inspect", "--no-open")
    assert (done.code, done.text) == (0, f"{cli.session_folder(name) / 'inspect.html'}\n")
    page = Path(done.text.strip())
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text()
    found = msgspec.convert(shown(text), Inspection)
    assert (found.session.id, found.session.entries) == (name, len(cli.entries(name)))
    assert [request.status for request in found.requests] == ["ok"] * 3
    rows = {row.kind: row for row in found.transcript}
    assert [(line.sign, line.text) for line in rows["call"].diff][:2] == [
        ("+", "one"),
        ("+", "two"),
    ]
    assert "a</script>" in "".join(row.text for row in found.transcript)
    assert text.count("<script>1") == 0
    assert SECRET not in text
    assert "\x1b" not in text
    again = cli.run("inspect", name[:8], "--no-open")
    assert (again.code, again.text) == (0, done.text)


def test_a_named_file_is_new(cli: CliHarness, tmp_path: Path) -> None:
    session(cli)
    out = tmp_path / "out put.html"
    assert cli.run("inspect", "--out", str(out), "--no-open").code == 0
    before = out.read_bytes()
    told = cli.run("inspect", "--out", str(out), "--no-open")
    assert (told.code, "is there already" in told.err) == (2, True)
    assert out.read_bytes() == before
    nowhere = cli.run("inspect", "--out", str(tmp_path / "none/x.html"), "--no-open")
    assert (nowhere.code, nowhere.err.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["inspect"], 1, "there is no session of"),
        (["inspect", "ffffffff"], 1, "no session begins with ffffffff"),
        (["inspect", "a", "b"], 2, "longrein inspect --compare A B"),
        (["inspect", "--compare", "a"], 2, "--compare takes two sessions"),
        (["inspect", "--compare", "a", "b", "c"], 2, "--compare takes two sessions"),
        (["inspect", "--live", "--out", "x"], 2, "leave out --compare and --out"),
    ],
)
def test_errors_are_one_line(cli: CliHarness, words: list[str], code: int, told: str) -> None:
    done = cli.run(*words, "--no-open")
    assert (done.code, done.err.count("\n"), told in done.err) == (code, 1, True), done.err


def test_the_browser_gets_the_page(cli: CliHarness, tmp_path: Path) -> None:
    session(cli)
    told = tmp_path / "told"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {told}\n')
    browser.chmod(0o755)
    page = cli.run("inspect", env={"BROWSER": f"{browser} %s"}).text.strip()
    assert told.read_text().strip() == Path(page).as_uri()
    told.unlink()
    assert cli.run("inspect", "--no-open", env={"BROWSER": f"{browser} %s"}).code == 0
    assert cli.run("inspect").code == 0
    assert not told.exists()


def test_two_sessions_side_by_side(cli: CliHarness) -> None:
    first = session(cli)
    cli.plays(says("other"))
    assert cli.run("-p", "another", BYPASS).code == 0
    second = next(name for name in cli.sessions if name != first)

    def compared(*words: str) -> Comparison:
        done = cli.run("inspect", "--compare", *words, "--no-open")
        assert (done.code, Path(done.text.strip()).name) == (0, "compare.html"), done.err
        return msgspec.convert(shown(Path(done.text.strip()).read_text()), Comparison)

    two = compared(first, second)
    assert [two.a.session.id, two.b.session.id] == [first, second]
    assert two.b.transcript


def test_a_live_page_goes_on_when_another_process_opens_the_session_again(cli: CliHarness) -> None:
    name = session(cli)
    cli.without_sandbox()
    server = cli.start("inspect", name[:8], "--live", "--no-open")
    url = server.line().decode().strip()
    assert url.startswith("http://127.0.0.1:")
    found = shown(urlopen(url, timeout=HANG_S).read().decode())
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 0), HANG_S) as connection:
        connection.sendall(f"GET {found['live']} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        cli.plays(
            *[says("played before")] * 3,
            calls(bash("until [ -e go ]; do sleep 0.05; done")),
            says("and on"),
        )
        run = cli.start("-p", "-c", "go on", BYPASS)
        heard = ""
        while '"open":true' not in heard or '"go on"' not in heard:
            piece = connection.recv(65_536)
            assert piece, heard
            heard += piece.decode()
        (cli.project / "go").touch()
        assert run.end().code == 0
        while '"and on"' not in heard:
            piece = connection.recv(65_536)
            assert piece, heard
            heard += piece.decode()
        cli.plays(*[says("played before")] * 5, says("later"))
        assert cli.run("-p", "-c", "once more", BYPASS).code == 0
        while '"once more"' not in heard or '"later"' not in heard:
            piece = connection.recv(65_536)
            assert piece, heard
            heard += piece.decode()
        server.send(signal.SIGINT)
        heard += b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
    assert heard.rstrip().endswith("event: end\ndata: {}")
    assert server.end().code == 0


ASKING = "0198c0de-0000-4000-8000-00000000a5c5"


async def open_asking(cli: CliHarness) -> Log:
    """Open a session that waits for an answer."""
    log = await open_log(str(cli.state), ASKING, create=True, wall_us=lambda: 9)
    reply = Replied(4, (ToolCall("c5.0", "Bash", {"command": "make"}),), "calls", cost_usd=0.5)
    events = [
        Opened(SCHEMA_VERSION, ASKING, "n", ("/w",), "/w"),
        PrefixSet("start", "play", "one", "scripted", ""),
        UserSpoke((Text("mend <b>it"),)),
        Asked("turn", 3, 2),
        reply,
        PermissionAsked("c5.0", "Bash", "make", "why"),
    ]
    entries = [Entry(seq, seq, event) for seq, event in enumerate(events, 1)]
    await asyncio.wrap_future(log.append(entries, flush=True))
    return log


def test_the_page_of_all_open_sessions_leads_to_the_live_page_of_each(cli: CliHarness) -> None:
    cli.without_sandbox()
    closed = session(cli)
    cli.plays(calls(bash("until [ -e go ]; do sleep 0.05; done")), says("and on"))
    run = cli.start("-p", "work", BYPASS, "--output-format", "stream-json")
    working = json.loads(run.line())["session_id"]
    run.wait_for("assistant")
    loop = asyncio.new_event_loop()
    asking = loop.run_until_complete(open_asking(cli))
    server = cli.start("inspect", "--live", "--no-open")
    place = urlsplit(server.line().decode().strip())

    def page(path: str) -> Any:
        url = f"http://{place.netloc}{path}?{place.query}"
        return shown(urlopen(url, timeout=HANG_S).read().decode())

    found = page("/")
    assert [(row["session"], row["state"]) for row in found["open_sessions"]] == [
        (ASKING, "asks"),
        (working, "works"),
    ]
    first = found["open_sessions"][0]
    assert (first["question"], first["model"], first["usd"]) == ("Bash make", "play/one", 0.5)
    assert page(f"/{working}")["live"].startswith(f"/{working}/events?")
    for unknown in (f"/{closed}", "/nothing", f"/{working}/x"):
        with pytest.raises(HTTPError, match="404"):
            page(unknown)
    for address, news in (
        (found["live"], "event: update"),
        (page(f"/{working}")["live"], '"and on"'),
    ):
        with socket.create_connection((str(place.hostname), place.port or 0), HANG_S) as connection:
            connection.sendall(f"GET {address} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
            (cli.project / "go").touch()
            heard = ""
            while news not in heard:
                piece = connection.recv(65_536)
                assert piece, heard
                heard += piece.decode()
    assert run.end().code == 0
    loop.run_until_complete(asking.close())
    loop.close()
    server.send(signal.SIGINT)
    assert server.end().code == 0


@pytest.mark.parametrize("of_one", [True, False])
def test_ctrl_c_ends_a_live_page(cli: CliHarness, of_one: bool) -> None:
    name = session(cli)
    server = cli.start("inspect", *([name] if of_one else []), "--live", "--no-open")
    url = server.line().decode().strip()
    token = url.partition("token=")[2]
    os.kill(server.pid, signal.SIGINT)
    done = server.end()
    assert done.code == 0
    assert "Traceback" not in done.err
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), 1).close()
    reader = Reader(str(cli.state), name)
    stored = b"".join(
        path.read_bytes() for path in cli.session_folder(name).rglob("*") if path.is_file()
    )
    reader.close()
    assert token.encode() not in stored
