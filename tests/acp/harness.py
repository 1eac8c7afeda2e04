"""Harness of the ACP tests: `longrein acp` in a process of its own, with the client of the SDK
on real pipes.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import CliHarness
from tests.piped_process import PipedProcess, piped
from tests.timeouts import HANG_S

acp = pytest.importorskip(
    "acp", reason="needs agent-client-protocol, which `make library` installs"
)

from acp import RequestError, schema  # noqa: E402
from acp.client.connection import ClientSideConnection  # noqa: E402

Update = dict[str, Any]


class Editor:
    """The client side: records what comes, answers as a test wants."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, Update]] = []
        """(session, update) in the order received."""
        self.questions: list[schema.RequestPermissionRequest] = []
        self.choose: Callable[[Any], Any] = lambda question: "once"
        """Question -> id of the option, None for `cancelled`; may be a coroutine."""
        self.forms: list[tuple[str, Any]] = []
        """(message, schema) of each form that was shown."""
        self.fills: dict[str, Any] | None = None
        """What is filled in; None to decline."""
        self.files: dict[str, str] = {}
        """Unsaved buffers."""
        self.written: list[tuple[str, str]] = []
        self.asked: list[str] = []
        """Files that the agent has asked for."""
        self.refuses_writes = False
        self.terminals: dict[str, asyncio.subprocess.Process] = {}
        self.outputs: dict[str, asyncio.Task[bytes]] = {}
        self.terminal_log: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def on_connect(self, connection: Any) -> None:
        self.connection = connection

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(
            (session_id, update.model_dump(mode="json", by_alias=True, exclude_none=True))
        )
        self.news.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> Any:
        question = schema.RequestPermissionRequest(
            sessionId=session_id, toolCall=tool_call, options=options
        )
        self.questions.append(question)
        self.news.set()
        chosen = self.choose(question)
        chosen = await chosen if asyncio.iscoroutine(chosen) else chosen
        if chosen is None:
            return schema.RequestPermissionResponse(
                outcome=schema.DeniedOutcome(outcome="cancelled")
            )
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", optionId=chosen)
        )

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append(
            (
                message,
                mode.requested_schema.model_dump(mode="json", by_alias=True, exclude_none=True),
            )
        )
        if self.fills is None:
            return schema.DeclineElicitationResponse(action="decline")
        return schema.AcceptElicitationResponse(action="accept", content=self.fills)

    # --- files: `files` holds unsaved text; a write saves, as Zed does ----------------------------

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        self.asked.append(path)
        text = self.files[path] if path in self.files else Path(path).read_text()
        return schema.ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> Any:
        self.written.append((path, content))
        if self.refuses_writes:
            raise RequestError(-32603, "the buffer is read-only")
        self.files.pop(path, None)
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    # --- terminals: real processes ----------------------------------------------------------------

    async def create_terminal(
        self, session_id: str, command: str, args: Any, env: Any, cwd: str, **_: Any
    ) -> Any:
        variables = {
            **os.environ,
            "EDITOR_SECRET": "s3cret",
            **{one.name: one.value for one in env or ()},
        }
        process = await asyncio.create_subprocess_exec(
            command,
            *(args or ()),
            cwd=cwd,
            env=variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        terminal = f"t{len(self.terminals)}"
        self.terminals[terminal] = process
        self.outputs[terminal] = asyncio.create_task(process.stdout.read())  # type: ignore[union-attr]
        self.terminal_log.append(("create", terminal))
        self.news.set()
        return schema.CreateTerminalResponse(terminalId=terminal)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        code = await self.terminals[terminal_id].wait()
        self.terminal_log.append(("exit", terminal_id))
        return schema.WaitForTerminalExitResponse(
            exitCode=max(code, 0), signal=None if code >= 0 else "SIGKILL"
        )

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.terminal_log.append(("output", terminal_id))
        data = await self.outputs[terminal_id]
        return schema.TerminalOutputResponse(output=data.decode(), truncated=False)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.terminal_log.append(("kill", terminal_id))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.terminals[terminal_id].pid, signal.SIGKILL)
        return schema.KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.terminal_log.append(("release", terminal_id))
        return schema.ReleaseTerminalResponse()

    # --- what came --------------------------------------------------------------------------------

    def of(self, kind: str, session: str = "") -> list[Update]:
        """Updates of one kind."""
        return [u for s, u in self.updates if u["sessionUpdate"] == kind and session in ("", s)]

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for _, update in self.updates]

    def text(self, kind: str = "agent_message_chunk", session: str = "") -> str:
        """All text of one kind of chunk."""
        return "".join(update["content"].get("text", "") for update in self.of(kind, session))

    def call(self, name: str) -> Update:
        """All fields of the tool call whose title begins with `name`, as they are after its
        updates.
        """
        start = next(u for u in self.of("tool_call") if u["title"].startswith(name))
        fields = dict(start)
        for update in self.of("tool_call_update"):
            if update["toolCallId"] == start["toolCallId"]:
                fields |= update
        return fields

    def statuses(self, name: str) -> list[str]:
        """Each status that a call had."""
        start = next(u for u in self.of("tool_call") if u["title"].startswith(name))
        updates = [
            u
            for u in self.of("tool_call_update")
            if u["toolCallId"] == start["toolCallId"] and "status" in u
        ]
        return [u["status"] for u in (start, *updates)]

    async def wait_for(self, happened: Callable[[], Any]) -> Any:
        """Wait until `happened()` is true."""
        async with asyncio.timeout(HANG_S):
            while not (found := happened()):
                self.news.clear()
                await self.news.wait()
        return found


async def start_agent(cli: CliHarness, *words: str, **env: str) -> PipedProcess:
    """Start `longrein WORDS` in the project of `cli`, as a fork that finds the SDK imported."""
    cli.extensions = ("acp",)
    return await piped(cli.start(*words, stdin=subprocess.PIPE, env=env).process)


class Agent:
    """A running `longrein acp` with an initialized connection."""

    def __init__(
        self,
        process: PipedProcess,
        editor: Editor,
        connection: Any,
        cli: CliHarness,
        messages: list[tuple[str, dict[str, Any]]],
    ) -> None:
        self.process, self.editor, self.connection, self.cli = process, editor, connection, cli
        self.messages = messages
        """Every message as it was on the wire: (`incoming` to the editor or `outgoing`,
        message).
        """

    async def new(self, **more: Any) -> Any:
        return await self.connection.new_session(cwd=str(self.cli.project), mcp_servers=[], **more)

    async def prompt(self, session: str, *blocks: Any) -> str:
        """Send a prompt; return the stop reason."""
        made = [acp.text_block(block) if isinstance(block, str) else block for block in blocks]
        async with asyncio.timeout(HANG_S):
            return str((await self.connection.prompt(session_id=session, prompt=made)).stop_reason)


@contextlib.asynccontextmanager
async def agent(
    cli: CliHarness, *, capabilities: Any = None, editor: Editor | None = None
) -> AsyncIterator[Agent]:
    """Start `longrein acp` in the project of `cli` and initialize it."""
    editor = editor or Editor()
    process = await start_agent(cli, "acp")
    messages: list[tuple[str, dict[str, Any]]] = []
    connection = ClientSideConnection(
        editor,
        process.stdin,
        process.stdout,
        use_unstable_protocol=True,
        observers=[lambda event: messages.append((event.direction.value, event.message))],
    )
    made = Agent(process, editor, connection, cli, messages)
    try:
        async with asyncio.timeout(HANG_S):
            await connection.initialize(protocol_version=1, client_capabilities=capabilities)
        yield made
    finally:
        with contextlib.suppress(Exception):
            await connection.close()
        process.stdin.close()
        try:
            async with asyncio.timeout(HANG_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            raise
        err = (await process.stderr.read()).decode()
        assert "Traceback" not in err, err


FILES = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(readTextFile=True, writeTextFile=True)
)
READ_ONLY = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(readTextFile=True, writeTextFile=False)
)
TERMINALS = schema.ClientCapabilities(terminal=True)


class RawAgent:
    """A running `longrein acp` to which a test writes lines of its own."""

    def __init__(self, process: PipedProcess) -> None:
        self.process = process
        self.lines: list[Any] = []
        """Every line of stdout, decoded."""
        self._id = 0

    def write(self, *lines: Any) -> None:
        """Write lines: bytes as they are, anything else as JSON."""
        for line in lines:
            self.process.stdin.write(
                line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            )

    async def read(self) -> Any:
        """Return the next line of stdout; None at its end."""
        async with asyncio.timeout(HANG_S):
            line = await self.process.stdout.readline()
        if not line:
            return None
        self.lines.append(json.loads(line))
        return self.lines[-1]

    def send(self, method: str, **params: Any) -> int:
        """Send a request; return its id."""
        self._id += 1
        self.write({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    async def answer(self, request: int) -> Any:
        """Read until the answer to a request came."""
        while (message := await self.read()) is not None:
            if message.get("id") == request and "method" not in message:
                return message
        raise AssertionError(f"no answer; {self.lines}")

    async def until(self, method: str) -> Any:
        """Read until a message with this method came."""
        while (message := await self.read()) is not None:
            if message.get("method") == method:
                return message
        raise AssertionError(f"no {method}; {self.lines}")

    async def ask(self, method: str, **params: Any) -> Any:
        """Send a request and return its result, or its error."""
        message = await self.answer(self.send(method, **params))
        return message.get("result") if "result" in message else message["error"]

    async def open(self, cli: CliHarness) -> str:
        """Initialize and open a session."""
        await self.ask("initialize", protocolVersion=1)
        return str(
            (await self.ask("session/new", cwd=str(cli.project), mcpServers=[]))["sessionId"]
        )


@contextlib.asynccontextmanager
async def raw_agent(
    cli: CliHarness, words: Sequence[str] = ("acp",), **env: str
) -> AsyncIterator[RawAgent]:
    process = await start_agent(cli, *words, **env)
    raw = RawAgent(process)
    try:
        yield raw
    finally:
        if not process.has_ended:
            process.stdin.close()
            try:
                async with asyncio.timeout(HANG_S):
                    while await raw.read() is not None:
                        pass
                    await process.wait()
            except TimeoutError:
                process.kill()
                raise
        err = (await process.stderr.read()).decode()
        assert "Traceback" not in err, err


def file(cli: CliHarness, name: str, text: str) -> Path:
    """Write a file of the project."""
    path = cli.project / name
    path.write_text(text)
    return path


__all__ = [
    "Agent",
    "Editor",
    "RawAgent",
    "RequestError",
    "acp",
    "agent",
    "file",
    "raw_agent",
    "schema",
]
