"""R102: a server over HTTP that is killed in a session is found again; the SDK waits for the
prompt.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

from tests.e2e.harness import BYPASS, CliHarness, bash, call, calls, says
from tests.mcp_servers.harness import fault, late, prefixes, program, serve


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start(port: int) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [program("mcp-server-everything"), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not listens(port):
        time.sleep(0.05)
    return process


def test_a_server_over_http_that_is_killed_and_started_again(cli: CliHarness) -> None:
    """The commands of the session only mark the moments; this test kills and starts the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    servers = [start(port)]

    def play(step: str) -> None:
        while not (cli.project / f"{step}.asked").exists():
            time.sleep(0.02)
        if step == "kill":
            os.killpg(servers[-1].pid, signal.SIGKILL)
            servers[-1].wait()
        else:
            servers.append(start(port))
        (cli.project / f"{step}.done").touch()

    thread = threading.Thread(target=lambda: [play("kill"), play("start")])
    thread.start()
    serve(cli, s={"type": "http", "url": f"http://127.0.0.1:{port}/mcp"})
    wait = "touch {0}.asked; until [ -e {0}.done ]; do sleep 0.05; done"
    add = [late("mcp__s__get-sum", a=n, b=40) for n in (1, 2, 3)]
    cli.plays(
        calls(add[0]), calls(bash(wait.format("kill"))), calls(add[1]),
        calls(bash(wait.format("start"))),
        calls(add[2]), says("done"),
    )  # fmt: skip
    run = cli.run("-p", "go", BYPASS)
    thread.join()
    os.killpg(servers[-1].pid, signal.SIGKILL)
    servers[-1].wait()
    assert (run.code, run.text) == (0, "done\n")
    assert [status for status, _ in cli.results()] == ["ok", "ok", "failed", "ok", "ok"], (
        cli.results()
    )
    assert "43" in cli.results()[-1][1]


def test_the_sdk_is_not_imported_before_the_prompt(cli: CliHarness) -> None:
    """A start imports the SDK neither with servers nor without, until a message is there."""
    serve(cli, **{f"s{n}": fault("good") for n in range(5)})
    cli.plays(says("done"))
    code = (
        "import asyncio, sys\nfrom longrein.app import App\nfrom longrein.options import "
        "Options\nfrom longrein.app.run_context import read_run_context\nasync def main():\n    "
        "built = await App(read_run_context(Options()), print).open()\n    walk = "
        "asyncio.ensure_future(built.session.run(once=False))\n    for _ in range(20):\n        "
        "await asyncio.sleep(0)\n    early = [name for name in ('mcp', 'pydantic', 'httpx2', "
        "'anyio') if name in sys.modules]\n    for _ in range(400):\n        states = [state for "
        "_, state in built.deps.extension_parts[0].connections()]\n        if states and "
        "'connecting' not in states:\n            break\n        await asyncio.sleep(0.1)\n    "
        "print(early, states)\n    await built.session.close()\nasyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cli.project,
        env=cli.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.stdout == "[] ['connected', 'connected', 'connected', 'connected', 'connected']\n"
    ), done.stderr


def test_servers_are_waited_for_again_after_a_kill_before_the_first_request(
    cli: CliHarness,
) -> None:
    serve(cli, s=fault("silent"))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("done"))
    running = cli.start("-p", "go", BYPASS)
    assert running.process.stderr is not None
    while b"waiting for MCP servers: s" not in (line := running.process.stderr.readline()):
        assert line, "it has ended"
    running.send(signal.SIGKILL)
    running.end()
    serve(cli, s=fault("good"))
    ran = cli.run("-p", "-c", "go on", BYPASS)
    assert ran.told()[:2] == (0, "done\n"), ran.told()
    assert [spec.name for spec in prefixes(cli)[-1].callable_tools if "echo" in spec.name]
    assert cli.results()[-1] == ("ok", "echo hi")
