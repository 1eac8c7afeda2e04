"""Lists of tools as servers send them: one tool with a bad definition costs only itself.

The SDK refuses a whole list for it. So each answer is looked at before the SDK reads it: a tool
that is not valid gets what is usable of its definition, and one without a name is left out.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from longrein.extensions.mcp.tool_specs import usable_schema

VERSIONS = ("2025-11-25", "2026-07-28")
"""Versions of the protocol of which a definition may be."""
NAMED_MAX = 5
"""Tools named in one note."""


@asynccontextmanager
async def with_mended_tools(
    transport: AbstractAsyncContextManager[Any], tell: Callable[[str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a transport, with each list of tools mended; `tell` gets a line on what
    was wrong.
    """
    async with transport as (reading, writing, *_):
        yield _Mending(reading, tell), writing


class _Mending:
    """A stream of messages; all but the messages is the stream's own."""

    def __init__(self, stream: Any, tell: Callable[[str], None]) -> None:
        self._stream, self._tell = stream, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> "_Mending":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.__aexit__(*error)

    def __aiter__(self) -> "_Mending":
        return self

    async def __anext__(self) -> Any:
        return self._mended(await self._stream.__anext__())

    async def receive(self) -> Any:
        return self._mended(await self._stream.receive())

    def _mended(self, said: Any) -> Any:
        message = said.message if isinstance(said, SessionMessage) else None
        result = message.result if isinstance(message, JSONRPCResponse) else None
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            result["tools"], problem = mended_tools(result["tools"])
            if problem:
                self._tell(problem)
        return said


def mended_tools(listed: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
    """Return the tools of a list that can be used, and what was wrong with it; '' for nothing."""
    kept: list[dict[str, Any]] = []
    mended: list[str] = []
    for tool in listed:
        if _is_valid(tool):
            kept.append(tool)
        elif (usable := _usable(tool)) is not None:
            kept.append(usable)
            mended.append(f"{usable['name'][:60]!r}")
    more = f" and {len(mended) - NAMED_MAX} more" if len(mended) > NAMED_MAX else ""
    names = ", ".join(mended[:NAMED_MAX])
    nameless = len(listed) - len(kept)
    problems = [
        *([f"the definition of {names}{more} is not valid; it was mended"] if mended else []),
        *([f"{nameless} of its tools have no name and are left out"] if nameless else []),
    ]
    return kept, "; ".join(problems)


def _is_valid(tool: Any) -> bool:
    for version in VERSIONS:
        try:
            validate_server_result("tools/list", version, {"tools": [tool]})
        except (ValidationError, KeyError):
            continue
        return True
    return False


def _usable(tool: Any) -> dict[str, Any] | None:
    """Return what can be used of a definition; None without a name."""
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(name, str) or not name:
        return None
    schema, described = tool.get("inputSchema"), tool.get("description")
    usable = usable_schema(schema if isinstance(schema, dict) else {})
    properties = {key: one for key, one in usable["properties"].items() if isinstance(one, dict)}
    return {
        "name": name,
        "description": described if isinstance(described, str) else "",
        "inputSchema": {**usable, "properties": properties},
    }
