"""MCP servers for the tests: reference servers that others wrote, and one that misbehaves."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longrein_context.events import PrefixSet
from tests.e2e.harness import BYPASS, CliHarness, Turn, calls, says

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
ROOT = Path(__file__).parent.parent.parent
NODE = ROOT / ".venv/node/node_modules/.bin"
PYPI = ROOT / ".venv/servers/bin"
FAULT = Path(__file__).with_name("fault_server.py")
Entry = dict[str, Any]


def program(name: str) -> str:
    """Path of an installed reference server; skips the test where it is missing."""
    found = next((folder / name for folder in (NODE, PYPI) if (folder / name).exists()), None)
    if found is None:
        pytest.skip(f"{name} is not installed: make library")
    if ROOT.is_relative_to("/tmp") or ROOT.is_relative_to("/var/tmp"):
        pytest.skip("this checkout lies where confined servers see an empty folder")
    return str(found)


def fault(mode: str, *more: str, **entry: Any) -> Entry:
    """Entry of the server that misbehaves."""
    return {"command": sys.executable, "args": ["-S", str(FAULT), mode, *more], **entry}


@contextmanager
def listening(*words: str, **env: str) -> Iterator[int]:
    """Run a program that serves HTTP on a free port, which it gets as PORT, until the end of the
    block.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        words,
        env={**os.environ, "PORT": str(port), **env},
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
    try:
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def serve(cli: CliHarness, **servers: Entry) -> None:
    """Write the user's servers."""
    (cli.home / ".config/longrein/mcp.json").write_text(json.dumps({"mcpServers": servers}))


def late(name: str, **args: Any) -> Turn:
    """A call of a tool that is not listed."""
    return {"name": "CallTool", "arguments": {"name": name, "args": args}}


def one_call(cli: CliHarness, made: Turn, *flags: str) -> tuple[str, str]:
    """Play a session with one call; return (status, text) of its result."""
    cli.plays(calls(made), says("done"))
    run = cli.run("-p", "go", BYPASS, *flags)
    assert (run.code, run.text) == (0, "done\n"), run.told()
    assert "Warning" not in run.err
    return cli.results()[-1]


def prefixes(cli: CliHarness) -> list[PrefixSet]:
    """All prefixes of the session."""
    return [entry.event for entry in cli.entries() if isinstance(entry.event, PrefixSet)]
