"""Files and terminals of the editor, for the tools of one session."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from acp import RequestError

from longrein.extensions.acp.editor_session import Peer
from longrein.tools.editor_services import Editor, EditorCommand
from longrein.workspace import CommandExit

READ_S = 10.0
"""Seconds that the editor has to give a file; then the file on disk is used."""
END_S = 5.0
"""Seconds that the editor has to end a command and to give its output."""

ShowTerminal = Callable[[str, str, str], Awaitable[None]]
"""(call, command, terminal id): show the terminal in the call."""


class EditorBridge:
    """Requests to the editor on behalf of one session; the session's id is known once it is
    open.
    """

    def __init__(self, peer: Peer, capabilities: Any) -> None:
        """`capabilities` are those that the editor has told."""
        self._peer = peer
        self._session = ""
        self._show: ShowTerminal | None = None
        files = capabilities.fs
        self.can_read = bool(files and files.read_text_file)
        self.can_write = bool(files and files.write_text_file)
        self._has_terminals = bool(capabilities.terminal)

    def editor(self) -> Editor:
        return Editor(
            self if self.can_read or self.can_write else None, self if self._has_terminals else None
        )

    def connect(self, session: str, show: ShowTerminal) -> None:
        self._session, self._show = session, show

    # --- files (`workspace.editor_workspace.EditorFiles`) -----------------------------------------

    async def read(self, path: str) -> str | None:
        """Return the text of a file with unsaved changes; None when the editor gives none."""
        response = await self._ask("fs/read_text_file", READ_S, path=path)
        text = response.get("content") if response is not None else None
        return text if isinstance(text, str) else None

    async def write(self, path: str, text: str) -> bool:
        """Let the editor write a file; False when it refuses."""
        return await self._ask("fs/write_text_file", None, path=path, content=text) is not None

    # --- terminals (`tools.editor_services.EditorTerminals`) --------------------------------------

    async def run(self, command: EditorCommand) -> tuple[CommandExit, bytes] | None:
        """Run a command in a terminal; None when none could be opened."""
        created = await self._ask(
            "terminal/create",
            READ_S,
            command=command.words[0],
            args=list(command.words[1:]),
            cwd=command.cwd,
            env=[{"name": name, "value": value} for name, value in command.env.items()],
            outputByteLimit=command.output_bytes_max,
        )
        terminal = created.get("terminalId") if created is not None else None
        if not isinstance(terminal, str):
            return None
        try:
            if self._show is not None:
                await self._show(command.call, command.words[-1], terminal)
            return await self._wait(terminal, command)
        except asyncio.CancelledError:
            await self._ask("terminal/kill", END_S, terminalId=terminal)
            raise
        finally:
            await self._ask("terminal/release", END_S, terminalId=terminal)

    async def _wait(self, terminal: str, command: EditorCommand) -> tuple[CommandExit, bytes]:
        cause = "exit"
        waiting = asyncio.ensure_future(
            self._ask("terminal/wait_for_exit", None, terminalId=terminal)
        )
        try:
            await asyncio.wait({waiting}, timeout=command.timeout_s)
            if not waiting.done():
                cause = "timeout"
                await self._ask("terminal/kill", END_S, terminalId=terminal)
                await asyncio.wait({waiting}, timeout=END_S)
        finally:
            waiting.cancel()
        ended = waiting.result() if waiting.done() and not waiting.cancelled() else None
        output = await self._ask("terminal/output", END_S, terminalId=terminal) or {}
        data = str(output.get("output", "")).encode("utf-8", "replace")
        if output.get("truncated"):
            data = b"[the terminal of the editor has dropped the beginning]\n" + data
        status = ended or output.get("exitStatus")
        if not isinstance(status, dict):
            lost = cause if cause == "timeout" else "lost"
            return CommandExit(
                None, cause=lost, message="the editor has not told how it ended"
            ), data
        code, signal = status.get("exitCode"), status.get("signal")
        return CommandExit(code if isinstance(code, int) else None, str(signal or ""), cause), data

    async def _ask(
        self, method: str, limit_s: float | None, **params: Any
    ) -> dict[str, Any] | None:
        """Send a request; None for an error, a wrong answer, a limit or an editor that has gone."""
        try:
            async with asyncio.timeout(limit_s):
                response = await self._peer.send_request(
                    method, {"sessionId": self._session, **params}
                )
        except (RequestError, ConnectionError, TimeoutError):
            return None
        if response is None:
            return {}
        if isinstance(response, dict):
            return response
        return None
