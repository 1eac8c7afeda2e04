"""A stdio server that runs in the test itself: what it answers is a table, and what it was sent can
be read.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from longrein.extensions.mcp.mcp_port import ServerHost
from longrein.extensions.mcp.server_config import McpServer
from longrein.workspace import CommandExit, CommandSpec

Answer = Callable[["ScriptedServer", dict[str, Any]], Any]
NAMES = {"name": "fault", "version": "1"}
ALL = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}}
SERVER = McpServer("s", command=("serve",))


class Refusal(Exception):
    """Error that a server answers with: (code, text)."""


def refuse(code: int, text: str) -> Answer:
    """Answer with an error."""

    def answer(_server: "ScriptedServer", _params: dict[str, Any]) -> Any:
        raise Refusal(code, text)

    return answer


def die(code: int | None, errors: str = "", signal: str = "") -> Answer:
    """End the process in place of an answer."""

    def answer(server: "ScriptedServer", _params: dict[str, Any]) -> Any:
        server.end(code, errors, signal)

    return answer


def silent(_server: "ScriptedServer", _params: dict[str, Any]) -> Any:
    """Never answer."""


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


class ScriptedServer:
    """Stands for a `StreamProcess`. `answers`: method -> result, or a function that returns it."""

    def __init__(self, answers: Mapping[str, Any] | None = None, *, can: Any = ALL) -> None:
        self.answers: dict[str, Any] = {
            "initialize": lambda _server, params: {
                "protocolVersion": params["protocolVersion"],
                "capabilities": can,
                "serverInfo": NAMES,
            },
            "tools/list": {"tools": [tool("echo")]},
            "prompts/list": {"prompts": []},
            "resources/list": {"resources": []},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/subscribe": {},
            "tools/call": text("fine"),
            **(answers or {}),
        }
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """What it was sent: (method, parameters)."""
        self.replies: list[dict[str, Any]] = []
        """Answers to its own requests."""
        self.reader = asyncio.StreamReader(limit=16 << 20)
        self.errors = self
        self.text = ""
        """Its standard error."""
        self.exit: CommandExit | None = None
        self._end = asyncio.Event()
        self._left = b""

    @property
    def writer(self) -> "ScriptedServer":
        return self

    async def drain(self) -> None:
        """Nothing waits here."""

    def write(self, data: bytes) -> None:
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self.replies.append(message.get("result") or message["error"])
            return
        method, params = message["method"], message.get("params", {})
        self.asked.append((method, params))
        if "id" not in message:
            return
        answer = self.answers.get(method, refuse(-32601, "Method not found"))
        try:
            result = answer(self, params) if callable(answer) else answer
        except Refusal as refused:
            code, said = refused.args
            self.say(id=message["id"], error={"code": code, "message": said})
            return
        if result is not None:
            self.say(id=message["id"], result=result)

    def say(self, **message: Any) -> None:
        self.print(json.dumps({"jsonrpc": "2.0", **message}))

    def print(self, line: str) -> None:
        if not self.reader.at_eof():
            self.reader.feed_data(line.encode() + b"\n")

    def end(self, code: int | None = 0, errors: str = "", signal: str = "") -> None:
        self.text = errors
        self.exit = CommandExit(code, signal)
        self.reader.feed_eof()
        self._end.set()

    async def ended(self) -> CommandExit:
        await self._end.wait()
        assert self.exit is not None
        return self.exit

    async def close(self) -> None:
        if self.exit is None:
            self.end(None, signal="SIGTERM")

    def calls(self, method: str) -> list[dict[str, Any]]:
        """Parameters of the requests of a method."""
        return [params for name, params in self.asked if name == method]


class Host:
    """What longrein gives the connections: starts `programs` in turn, the last one again."""

    def __init__(self, *programs: Any, **services: Any) -> None:
        self.programs = list(programs)
        self.started: list[CommandSpec] = []
        self.servers: list[ScriptedServer] = []
        self.notices: list[str] = []
        self.updates: list[tuple[str, str]] = []
        self.changes = 0
        given: dict[str, Any] = {
            "environment": lambda: {"PATH": "/usr/bin:/bin"},
            "run_line": self._run_line,
            "cwd": "/work",
            "token_folder": "/nowhere",
            "version": "1",
            "notice": self.notices.append,
            "changed": self._note_change,
            "resource_updated": lambda *update: self.updates.append(update),
            "startup_s": 20.0,
            **services,
        }
        self.port = ServerHost(start_process=self._start, **given)

    def _note_change(self, _server: str) -> None:
        self.changes += 1

    async def _run_line(self, *_: Any) -> bytes:
        return b"{}"

    async def _start(self, spec: CommandSpec) -> Any:
        self.started.append(spec)
        made = self.programs[min(len(self.started), len(self.programs)) - 1]
        if isinstance(made, CommandExit):
            return made
        server = made()
        self.servers.append(server)
        return server


@asynccontextmanager
async def connection(host: Host, server: McpServer = SERVER) -> AsyncIterator[Any]:
    """Yield a connection once it is connected or has failed."""
    from longrein.extensions.mcp.connection import McpConnection

    made = McpConnection(server, host.port)
    made.start()
    try:
        await made.settled()
        yield made
    finally:
        await made.close()


async def until(true: Callable[[], Any]) -> None:
    """Let the other work go on until `true()`."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0)


def pages(field: str, *found: Sequence[Any]) -> Answer:
    """Answer with one page after another."""

    def answer(_server: ScriptedServer, params: dict[str, Any]) -> Any:
        at = int(params.get("cursor") or 0)
        more = {"nextCursor": str(at + 1)} if at + 1 < len(found) else {}
        return {field: list(found[at]), **more}

    return answer
