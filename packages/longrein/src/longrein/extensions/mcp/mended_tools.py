"""Lists of tools as servers send them: one tool with a bad definition costs only itself.

The SDK refuses a whole list for it. So each answer is looked at before the SDK reads it: a tool
that is not valid gets what is usable of its definition, and one without a name is left out.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

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
            wrong = [tool for tool in result["tools"] if not _is_valid(tool)]
            if wrong:
                kept = [one if one not in wrong else _usable(one) for one in result["tools"]]
                result["tools"] = [one for one in kept if one is not None]
                self._tell(_words(wrong))
        return said


def _words(wrong: list[Any]) -> str:
    mended = [one["name"] for one in wrong if _usable(one) is not None]
    names = ", ".join(f"{name[:60]!r}" for name in mended[:NAMED_MAX])
    more = f" and {len(mended) - NAMED_MAX} more" if len(mended) > NAMED_MAX else ""
    nameless = len(wrong) - len(mended)
    return "; ".join(
        [
            *([f"the definition of {names}{more} is not valid; it was mended"] if mended else []),
            *([f"{nameless} of its tools have no name and are left out"] if nameless else []),
        ]
    )


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
    schema = tool.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    described = tool.get("description")
    return {
        "name": name,
        "description": described if isinstance(described, str) else "",
        "inputSchema": {
            **schema,
            "type": "object",
            "properties": {
                str(key): one for key, one in properties.items() if isinstance(one, dict)
            },
            "required": [one for one in _list(schema.get("required")) if isinstance(one, str)],
        },
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
