"""Context engine as a capability or history processor of Pydantic AI.

    from longrein_context.integrations.pydantic_ai import EngineCapability
    agent = Agent(model, capabilities=[EngineCapability(longrein.engine("openai/gpt-5"))])

The capability leaves the history of the run whole. `history_processor(engine)` is for
`ProcessHistory`: Pydantic AI then keeps the returned list as the history, and the engine continues
from it. Needs `pip install longrein[pydantic-ai]`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pydantic_ai.messages as theirs
from pydantic_ai import RetryModelRequest, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.toolsets import FunctionToolset

from longrein_context import arguments_text
from longrein_context.events import (
    AnyPart,
    Document,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UsageError,
    text_of,
)
from longrein_context.integrations import did_not_fit, engine
from longrein_context.message_list import (
    RECALL,
    RECALL_DESCRIPTION,
    RECALL_SCHEMA,
    Engine,
    NeutralMessage,
    usage_of,
)
from longrein_context.message_list.message_formats import Unread, parsed, unread_item

__all__ = ["EngineCapability", "PydanticFormat", "engine", "history_processor", "recall_tool"]

MESSAGES_FIELD = "messages"
"""Pydantic AI's name of the message list."""
_STATUS = {
    "success": "ok",
    "failed": "failed",
    "retried": "failed",
    "denied": "denied",
    "interrupted": "interrupted",
}


class PydanticFormat:
    """Format of Pydantic AI's messages. Parts that only the framework understands stay
    unchanged.
    """

    def read(self, one: Any) -> NeutralMessage:
        parts = tuple(found for part in _parts(one) if (found := _read(part)) is not None)
        if isinstance(one, theirs.ModelResponse):
            return NeutralMessage("assistant", parts, usage=usage_of(one), unread=_unread(one))
        system = [part.content for part in one.parts if isinstance(part, theirs.SystemPromptPart)]
        return NeutralMessage("user", parts, "\n\n".join(system), unread=_unread(one))

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        parts: list[Any] = []
        n = 0
        for part in one.parts:
            if _read(part) is None:
                parts.append(part)
                continue
            change = changes.get(n, part)
            n += 1
            if change is not None:
                parts.append(part if change is part else _rewritten(part, change))
        return replace(one, parts=parts) if parts else None

    def tell(self, text: str) -> Any:
        return theirs.ModelRequest(parts=[theirs.UserPromptPart(text)])


FORMAT = PydanticFormat()


def _parts(one: Any) -> Sequence[Any]:
    if not isinstance(one, theirs.ModelRequest | theirs.ModelResponse):
        raise UsageError(f"a message of the list is a {type(one).__name__}, not one of Pydantic AI")
    parts: Sequence[Any] = one.parts
    return parts


def _unread(one: Any) -> tuple[Unread, ...]:
    """Return what is sent unchanged: parts of hosted tools, and parts that only the framework
    understands.
    """
    return tuple(
        unread_item(part.part_kind, repr(part))
        for part in one.parts
        if _read(part) is None and not isinstance(part, theirs.SystemPromptPart)
    )


def _read(part: Any) -> AnyPart | None:
    """Return the neutral form of a part; None for a part that is sent unchanged."""
    match part:
        case theirs.UserPromptPart():
            return _prompt(part)
        case theirs.TextPart():
            return Text(part.content)
        case theirs.ThinkingPart():
            return Thinking(part.content)
        case theirs.ToolCallPart():
            raw = part.args
            if isinstance(raw, dict):
                return ToolCall(part.tool_call_id, part.tool_name, raw)
            return ToolCall(part.tool_call_id, part.tool_name, parsed(raw or ""), raw or "")
        case theirs.ToolReturnPart():
            status = _STATUS.get(part.outcome, "ok")
            return ToolResult(
                part.tool_call_id, part.tool_name, status, (Text(part.model_response_str()),)
            )
        case theirs.RetryPromptPart() if part.tool_name:
            text = Text(part.model_response())
            return ToolResult(part.tool_call_id, part.tool_name, "failed", (text,))
        case _:
            return None


def _prompt(part: Any) -> AnyPart:
    if isinstance(part.content, str):
        return Text(part.content)
    texts = [one if isinstance(one, str) else f"({type(one).__name__})" for one in part.content]
    if all(isinstance(one, str) for one in part.content):
        return Text("\n".join(texts))
    shown = "\n".join(texts)
    return Document(f"list:{shown[-200:]}", "multipart/mixed", len(shown), head=shown)


def _rewritten(part: Any, change: AnyPart) -> Any:
    text = text_of((change,))
    match part:
        case theirs.ToolCallPart() if isinstance(change, ToolCall):
            return replace(part, args=arguments_text(change))
        case theirs.ThinkingPart():
            return theirs.TextPart(text)
        case theirs.TextPart():
            return replace(part, content=text, id=None)
        case _:
            return replace(part, content=text)


def history_processor(engine: Engine) -> Callable[[list[Any]], Awaitable[list[Any]]]:
    """Create the processor for `capabilities=[ProcessHistory(history_processor(engine))]`."""

    async def process(chat: list[Any]) -> list[Any]:
        return await engine.aprepare(chat)

    return process


class EngineCapability(AbstractCapability[Any]):
    """Capability that sends the prepared list and offers the model the tool `Recall`.

    The run's history stays whole.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def prepare_model_request(self, _ctx: Any, request_context: Any) -> Any:
        """Prepare one attempt at a request. The history keeps no change made here."""
        view = await self.engine.aprepare(list(getattr(request_context, MESSAGES_FIELD)))
        return replace(request_context, **{MESSAGES_FIELD: view})

    async def on_model_request_error(
        self, _ctx: Any, *, request_context: Any, error: Exception
    ) -> Any:
        """Repeat a request once, shorter, when the provider refuses its length."""
        if request_context.attempt == 1 and isinstance(error, ModelContextWindowExceededError):
            did_not_fit(self.engine, error)
            raise RetryModelRequest from error
        raise error

    def get_toolset(self) -> FunctionToolset[Any]:
        return FunctionToolset([recall_tool(self.engine)])


def recall_tool(engine: Engine) -> Tool[Any]:
    """Create the tool `Recall`, for agents that use the history processor."""

    def recall(handle: str, lines: str = "") -> str:
        return engine.recall(handle, lines)

    schema = {**msgspec.to_builtins(RECALL_SCHEMA), "additionalProperties": False}
    return Tool.from_schema(recall, RECALL, RECALL_DESCRIPTION, schema)
