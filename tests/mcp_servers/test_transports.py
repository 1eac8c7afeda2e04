"""A7, R102: servers over HTTP that misbehave, and headers of a helper."""

import http.server
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from longrein_context.events import UserSpoke
from tests.e2e.harness import BYPASS, CliHarness, call, calls, says
from tests.mcp_servers.harness import fault, one_call, serve

TOOL = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}


class Handler(http.server.BaseHTTPRequestHandler):
    """A small MCP server over streamable HTTP; the path names what is wrong with it."""

    seen: list[str]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.send_error(405)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(str(self.headers.get("X-Helper")))
        method, result = request.get("method"), None
        match method:
            case "initialize":
                version = request["params"]["protocolVersion"]
                info = {"name": "http", "version": "1"}
                result = {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            case "tools/list":
                result = {"tools": [TOOL]}
            case "tools/call":
                return self._call(request)
        if "id" not in request:
            self.send_response(202)
            return self.end_headers()
        error = {"code": -32601, "message": "Method not found"}
        return self._send({"error": error} if result is None else {"result": result}, request["id"])

    def _call(self, request: dict[str, Any]) -> None:
        match self.path:
            case "/huge":
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                try:
                    for _ in range(100):
                        self.wfile.write(b"x" * 1_000_000)
                except OSError:
                    self.close_connection = True  # the client has had enough
            case "/huge-event":
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    self.wfile.write(b"data: ")
                    for _ in range(100):
                        self.wfile.write(b"x" * 1_000_000)
                except OSError:
                    self.close_connection = True
            case "/garbage":
                self._body(b'{"jsonrpc": ')
            case "/error":
                self.send_error(500)
            case "/elsewhere":
                self.send_response(302)
                self.send_header("Location", "http://127.0.0.1:1/steal")
                self.end_headers()
            case _:
                self._send(
                    {"result": {"content": [{"type": "text", "text": "fine"}]}}, request["id"]
                )

    def _send(self, answer: dict[str, Any], number: Any) -> None:
        self._body(json.dumps({"jsonrpc": "2.0", "id": number, **answer}).encode())

    def _body(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def base() -> Iterator[str]:
    Handler.seen = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


FAULTS = (
    ("/fine", "ok", "fine"),
    ("/huge", "failed", "16 MB|lost"),
    ("/huge-event", "failed", "MB|lost|size"),
    ("/garbage", "failed", "."),
    ("/error", "failed", "."),
    ("/elsewhere", "failed", "."),
)


@pytest.mark.parametrize(("path", "status", "expected"), FAULTS, ids=[row[0] for row in FAULTS])
def test_a_server_over_http(
    cli: CliHarness, base: str, path: str, status: str, expected: str
) -> None:
    serve(cli, s={"type": "http", "url": base + path, "timeout": 20_000})
    found = one_call(cli, call("mcp__s__echo"))
    assert found[0] == status, found
    assert re.search(expected, found[1]), found


def test_headers_of_a_helper(cli: CliHarness, base: str) -> None:
    entry = {
        "type": "http",
        "url": f"{base}/fine",
        "headersHelper": 'echo "{\\"X-Helper\\": \\"$CLAUDE_PROJECT_DIR\\"}"',
    }
    serve(cli, s=entry)
    cli.forks = False  # once over HTTP longrein imports the SDK itself
    assert one_call(cli, call("mcp__s__echo")) == ("ok", "fine")
    assert set(Handler.seen) == {str(cli.project)}


def test_a_helper_that_prints_no_json_fails_its_server(cli: CliHarness, base: str) -> None:
    serve(cli, s={"type": "http", "url": f"{base}/fine", "headersHelper": "echo no"})
    cli.plays(says("done"))
    run = cli.run("-p", "go")
    assert "MCP server s: its headersHelper has not printed a JSON object of texts" in run.err


def test_the_init_line_names_the_servers(cli: CliHarness) -> None:
    serve(cli, s=fault("silent"), off=fault("good", disabled=True), bad={"command": "${NOT_SET}"})
    cli.settings("[mcp]\nwait_s = 0\n")
    cli.plays(says("done"))
    servers = cli.stream("go").lines[0]["mcp_servers"]
    assert servers == [
        {"name": "s", "status": "pending"},
        {"name": "off", "status": "disabled"},
        {"name": "bad", "status": "failed"},
    ]


def test_a_prompt_of_a_server_is_a_message_of_the_user(cli: CliHarness) -> None:
    serve(cli, s=fault("good"))
    cli.forks = False  # once over stdio longrein imports the SDK itself
    cli.plays(calls(call("mcp__s__echo", text="x")), says("done"))
    assert cli.run("-p", '/mcp__s__greet "Ada Lovelace"', BYPASS).code == 0
    (spoken,) = [entry.event for entry in cli.entries() if isinstance(entry.event, UserSpoke)]
    assert "Greet Ada Lovelace now." in str(spoken)
    unknown = cli.run("-p", "/mcp__s__nothing", BYPASS)
    assert unknown.code == 2
    assert "there is no prompt /mcp__s__nothing; there are /mcp__s__greet" in unknown.err
