"""Messages of the editor: one JSON-RPC object per line on stdin and stdout.

What is no message is answered here with a JSON-RPC error, so that the connection of the `acp`
package only gets messages that it can handle. Nothing but messages reaches stdout: the descriptor
is kept apart, and what a library prints goes to stderr.
"""

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import msgspec

from longrein.frontends.loop_streams import BufferedOutput, wait_chunk
from longrein_context.events import LongreinError, decode_json

Message = dict[str, Any]

LINE_BYTES_MAX = 64 * 1024 * 1024
"""Largest message; images are sent as base64 within one."""
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
CANCEL_REQUEST = "$/cancel_request"
UNSENT_BYTES_MAX = 1 << 20
"""Bytes that may wait for a slow editor before senders wait, too."""


def take_standard_streams() -> tuple[int, int]:
    """Return descriptors for what are stdin and stdout now; then stdin is empty and stdout
    writes to stderr.
    """
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return incoming, outgoing


class JsonLines:
    """The messages on two descriptors; implements the `Transport` of the `acp` package."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """`on_message` may be set later."""
        self._fd, self._out = incoming, BufferedOutput(outgoing)
        self._sending = asyncio.Lock()
        self._buffer = bytearray()
        self._scanned = 0
        """Bytes of the buffer without a newline."""
        self._skipping = False
        """True if the rest of a line that was too long is skipped."""
        self.prompts: dict[str | int, str] = {}
        """Id of each `session/prompt` without an answer -> its session."""
        self.on_closed: Callable[[], None] = lambda: None
        """Called once when the editor can no longer be written to."""

    # --- the `Transport` protocol -----------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Write a message. Raises `ConnectionError` when the editor has gone; an answer is then
        dropped.
        """
        if "method" not in message:
            self.prompts.pop(message.get("id", ""), None)
        self._out.put(encode(message))
        if len(self._out.unwritten) > UNSENT_BYTES_MAX:
            async with self._sending:
                await self._out.drain()
        if self._out.write_error:
            self.on_closed()
            if "method" in message:
                raise ConnectionError("the editor has closed the connection")
        elif self._out.unwritten:
            asyncio.ensure_future(self._flush())  # noqa: RUF006 - ends by itself; `close` waits for the rest

    async def receive(self) -> Message | None:
        """Return the next message; None at the end of the input. Answers everything that is no
        message.
        """
        while (line := await self._next_line()) is not None:
            if not line.strip():
                continue
            message, problem = parse(line)
            if message is not None:
                self._note(message)
                return message
            await self.refuse(*problem)
        return None

    async def close(self) -> None:
        """Wait a moment for the editor to take the last messages."""
        async with self._sending:
            await self._out.drain(2.0)

    # --- parts ------------------------------------------------------------------------------------

    async def refuse(self, code: int, text: str) -> None:
        """Answer something that has no usable id."""
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})

    async def _flush(self) -> None:
        async with self._sending:
            await self._out.drain()
        if self._out.write_error:
            self.on_closed()

    def _note(self, message: Message) -> None:
        params = message.get("params")
        if (
            message.get("method") == "session/prompt"
            and "id" in message
            and isinstance(params, dict)
        ):
            self.prompts[message["id"]] = str(params.get("sessionId", ""))

    async def _next_line(self) -> bytes | None:
        """Return the next line without its newline; None at the end. A line that is too long is
        answered.
        """
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._scanned = 0
                if not self._skipping:
                    return line
                self._skipping = False
                continue
            self._scanned = len(self._buffer)
            if self._scanned > LINE_BYTES_MAX:
                if not self._skipping:
                    await self.refuse(
                        INVALID_REQUEST, f"the message is larger than {LINE_BYTES_MAX >> 20} MB"
                    )
                self._skipping = True
            if self._skipping:
                self._buffer.clear()
                self._scanned = 0
            try:
                chunk = await wait_chunk(self._fd)
            except LongreinError:
                chunk = b""
            if not chunk:
                rest = bytes(self._buffer)
                self._buffer.clear()
                self._scanned = 0
                return rest if rest.strip() and not self._skipping else None
            self._buffer += chunk


def parse(line: bytes) -> tuple[Message | None, tuple[int, str]]:
    """Return the message of a line, or None with the error code and text of the answer."""
    try:
        message = decode_json(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, (PARSE_ERROR, "Parse error: the line is no JSON")
    if not isinstance(message, dict):
        return None, (
            INVALID_REQUEST,
            "Invalid request: a message is one JSON object on a line of its own",
        )
    if not isinstance(message.get("id"), str | int | None) or isinstance(message.get("id"), bool):
        return None, (
            INVALID_REQUEST,
            "Invalid request: the id is neither a text nor a whole number",
        )
    if "method" in message:
        valid = isinstance(message["method"], str)
    else:
        valid = "id" in message and isinstance(message.get("error"), dict | None)
        valid = valid and ("result" in message or "error" in message)
        error = message.get("error") or {}
        valid = (
            valid
            and isinstance(error.get("code", 0), int)
            and isinstance(error.get("message", ""), str)
        )
    return (
        (message, (0, ""))
        if valid
        else (None, (INVALID_REQUEST, "Invalid request: not a JSON-RPC 2.0 message"))
    )


def encode(message: Message) -> bytes:
    """Return a message as one line; a character that UTF-8 cannot carry becomes `?`."""
    try:
        data = msgspec.json.encode(message)
    except UnicodeEncodeError:  # a lone surrogate in a path or an argument
        data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "replace"
        )
    return data + b"\n"
