"""The engine as a middleware of LangChain agents (version 1): requests are what it says, the state stays whole.

    from longrein.library.langchain import ContextMiddleware, engine
    agent = create_agent(model, tools, middleware=[ContextMiddleware(engine(window=200_000, max_output=8_192))])

Needs `pip install longrein[langchain]`.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool

from longrein.context.listed import DICTS, RECALL, RECALL_SAYS, RECALL_TAKES, Engine, Said, usage_of
from longrein.context.listed.dicts import result_content
from longrein.events import AnyPart, ToolCall, ToolResult, text_of
from longrein.library import did_not_fit
from longrein.library import engine as _engine

THEIRS = "messages"
"""Their name for the list."""
Chooser = Callable[[Any], Engine]
"""Gives the engine of a conversation, from what the agent's runtime knows of it."""


class LangChainShape:
    """How LangChain's messages are read and written."""

    def read(self, one: Any) -> Said:
        """See `Shape.read`."""
        match one:
            case SystemMessage():
                return Said("system", system=text_of(_contents(one)))
            case ToolMessage():
                status = "failed" if one.status == "error" else "ok"
                return Said("user", (ToolResult(one.tool_call_id, one.name or "", status, _contents(one)),))
            case AIMessage():
                calls = tuple(ToolCall(call["id"] or "", call["name"], call["args"]) for call in one.tool_calls)
                return Said("assistant", (*_spoken(one), *calls), usage=usage_of(one))
            case _:
                return Said("user", _contents(one))

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        """See `Shape.rewrite`."""
        if isinstance(one, ToolMessage):
            change = changes[0]
            return None if change is None else one.model_copy(update={"content": result_content(change, one.content)})
        spoken = len(_spoken(one) if isinstance(one, AIMessage) else _contents(one))
        fields: dict[str, Any] = {"content": one.content}
        if texts := {n: change for n, change in changes.items() if n < spoken}:
            written = DICTS.rewrite({"role": "user", "content": _without_calls(one)}, texts)
            fields["content"] = (written or {}).get("content") or ""
        if isinstance(one, AIMessage):
            fields["tool_calls"] = _calls(one, {n - spoken: to for n, to in changes.items() if n >= spoken})
        return one.model_copy(update=fields) if fields["content"] or fields.get("tool_calls") else None

    def tell(self, text: str) -> Any:
        """See `Shape.tell`."""
        return HumanMessage(text)


SHAPE = LangChainShape()
engine = partial(_engine, shape=SHAPE)
"""`longrein.library.engine` for lists of LangChain's messages."""


def _without_calls(one: BaseMessage) -> Any:
    """The content but for the blocks that repeat `tool_calls`, as Anthropic's do."""
    if isinstance(one.content, str):
        return one.content
    return [block for block in one.content if isinstance(block, str) or block.get("type") != "tool_use"]


def _contents(one: BaseMessage) -> tuple[AnyPart, ...]:
    return DICTS.read({"role": "user", "content": _without_calls(one)}).parts


def _spoken(one: AIMessage) -> tuple[AnyPart, ...]:
    return _contents(one) if one.content else ()


def _calls(one: AIMessage, changes: Mapping[int, AnyPart | None]) -> list[Any]:
    asked = [(call, changes.get(n, call)) for n, call in enumerate(one.tool_calls)]
    return [
        {**call, "args": to.arguments or {}} if isinstance(to, ToolCall) else call
        for call, to in asked
        if to is not None
    ]


class ContextMiddleware(AgentMiddleware[Any, Any, Any]):
    """Sends what the engine prepares, tells it what was counted, and gives the model the tool `Recall`.

    `engine` is that of one conversation, or a function from the agent's runtime to it.
    """

    def __init__(self, engine: Engine | Chooser) -> None:
        super().__init__()
        self._engine = engine
        self.tools = [_recall_tool(engine)] if isinstance(engine, Engine) else []

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """One request; when it does not fit after all, once more and shorter."""
        engine = self._of(request)
        try:
            return handler(_with(request, engine.prepare(_whole(request))))
        except Exception as error:  # each provider's library has its own; all others are raised on
            if not did_not_fit(engine, error):
                raise
            return handler(_with(request, engine.prepare(_whole(request))))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same, awaited."""
        engine = self._of(request)
        try:
            return await handler(_with(request, await engine.aprepare(_whole(request))))
        except Exception as error:  # each provider's library has its own; all others are raised on
            if not did_not_fit(engine, error):
                raise
            return await handler(_with(request, await engine.aprepare(_whole(request))))

    def _of(self, request: Any) -> Engine:
        return self._engine if isinstance(self._engine, Engine) else self._engine(request.runtime)


def _whole(request: Any) -> list[Any]:
    """The list with the system message, which LangChain keeps apart, at its front."""
    system = [request.system_message] if request.system_message is not None else []
    return [*system, *getattr(request, THEIRS)]


def _with(request: Any, chat: list[Any]) -> Any:
    front = 1 if request.system_message is not None else 0
    return request.override(**{THEIRS: chat[front:]})


def _recall_tool(engine: Engine) -> StructuredTool:
    def recall(handle: str, lines: str = "") -> str:
        return engine.recall(handle, lines)

    return StructuredTool(
        name=RECALL, description=RECALL_SAYS, args_schema=msgspec.to_builtins(RECALL_TAKES), func=recall
    )


def recall_tool(engine: Engine) -> StructuredTool:
    """The tool `Recall` for agents whose middleware is given a function instead of an engine."""
    return _recall_tool(engine)
