"""Questions of MCP servers to the user (elicitation): shown as a line, answered with `/mcp
answer`.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from longrein.tools.arguments import ArgumentMismatch, fit_object
from longrein.tools.text_encoding import clean_text
from longrein_context.events import UsageError

Action = Literal["accept", "decline", "cancel"]
MESSAGE_CHARS_MAX = 1_000


class ServerQuestion(msgspec.Struct, frozen=True):
    """A question that waits for its answer."""

    schema: Mapping[str, Any]
    """JSON schema of the form: an object of plain values."""
    answer: "asyncio.Future[tuple[Action, dict[str, Any]]]"


class Questions:
    """Open questions, at most one of each server."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._open: dict[str, ServerQuestion] = {}

    async def ask(
        self, server: str, message: str, schema: Mapping[str, Any], url: str
    ) -> tuple[Action, dict[str, Any]]:
        """Show a question and wait for its answer; a second one of the same server is declined."""
        if server in self._open:
            return "decline", {}
        question = ServerQuestion(schema, asyncio.get_running_loop().create_future())
        self._open[server] = question
        said = " ".join(clean_text(message)[:MESSAGE_CHARS_MAX].split())
        how = (
            f"open {clean_text(url)[:MESSAGE_CHARS_MAX]} and then type /mcp answer {server}"
            if url
            else _how(server, schema)
        )
        self._notice(f"MCP server {server} asks: {said} ({how}; /mcp decline {server})")
        try:
            return await question.answer
        finally:
            del self._open[server]

    def answer(self, argument: str) -> None:
        """Answer with `SERVER NAME=VALUE …`, or the one value that is asked for. Raises
        `UsageError`.
        """
        server, _, text = argument.partition(" ")
        question = self._question(server)
        properties = question.schema.get("properties") or {}
        try:
            content = fit_object(question.schema, _values(text.strip(), properties), "")
        except ArgumentMismatch as mismatch:
            raise UsageError(f"{mismatch}; {_how(server, question.schema)}") from None
        question.answer.set_result(("accept", content))

    def decline(self, server: str) -> None:
        """Decline to answer. Raises `UsageError`."""
        self._question(server).answer.set_result(("decline", {}))

    def _question(self, server: str) -> ServerQuestion:
        found = self._open.get(server)
        if found is None or found.answer.done():
            raise UsageError(
                f"MCP server {server[:60]!r} asks nothing; {', '.join(self._open) or 'none'} does"
            )
        return found


def _how(server: str, schema: Mapping[str, Any]) -> str:
    """Say how to answer a form."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    names = [
        f"{clean_text(str(name))[:40]}={_kind(one)}" for name, one in list(properties.items())[:20]
    ]
    return f"type /mcp answer {server} {' '.join(names)}".rstrip()


def _kind(schema: Any) -> str:
    choices = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(choices, list):
        return clean_text("|".join(map(str, choices)))[:200]
    kind = schema.get("type") if isinstance(schema, Mapping) else ""
    return {"boolean": "true|false", "integer": "NUMBER", "number": "NUMBER"}.get(str(kind), "TEXT")


def _values(text: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Read `NAME=VALUE …`; a text without a name is the value of the only field."""
    found = re.findall(r'([\w.-]+)=(?:"([^"]*)"|(\S*))', text)
    pairs = {name: quoted or plain for name, quoted, plain in found if name in properties}
    if not pairs and text and len(properties) == 1:
        return {next(iter(properties)): text.strip('"')}
    return pairs
