"""Context engine as a middleware of LangChain agents (version 1). The agent's state stays whole.

    from longrein_context.integrations.langchain import ContextMiddleware
    engine = ContextMiddleware(window=400_000, max_output=8_192)
    agent = create_agent(model, tools, middleware=[engine])

Needs `langchain` 1.2.18 or later.
"""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.config import get_config

from longrein_context.events import AnyPart, ToolCall, ToolResult, UsageError, text_of
from longrein_context.integrations import StoredEngine, did_not_fit, engine
from longrein_context.message_list import (
    RECALL,
    RECALL_DESCRIPTION,
    RECALL_SCHEMA,
    Engine,
    NeutralMessage,
    usage_of,
)
from longrein_context.message_list.message_formats import (
    content_parts,
    read_blocks,
    result_content,
    rewrite_blocks,
)

CALL_BLOCKS = ("tool_use", "tool_call", "function_call", "custom_tool_call")
"""Types of content blocks that repeat an entry of `tool_calls`."""
MESSAGES_FIELD = "messages"
"""LangChain's name of the message list."""
Chooser = Callable[[Any], Engine]
"""Function from the agent's runtime to the engine of the conversation."""


class LangChainFormat:
    """Format of LangChain's messages."""

    def read(self, one: Any) -> NeutralMessage:
        match one:
            case SystemMessage():
                return NeutralMessage("system", system=text_of(content_parts(one.content)))
            case ToolMessage():
                status = "failed" if one.status == "error" else "ok"
                return NeutralMessage(
                    "user",
                    (
                        ToolResult(
                            one.tool_call_id, one.name or "", status, content_parts(one.content)
                        ),
                    ),
                )
            case AIMessage():
                calls = tuple(
                    ToolCall(call["id"] or "", call["name"], call["args"])
                    for call in one.tool_calls
                )
                said = read_blocks("assistant", _without_calls(one), calls)
                return msgspec.structs.replace(said, usage=usage_of(one))
            case _:
                return read_blocks("user", one.content)

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        if isinstance(one, ToolMessage):
            change = changes[0]
            return (
                None
                if change is None
                else one.model_copy(update={"content": result_content(change, one.content)})
            )
        side = "assistant" if isinstance(one, AIMessage) else "user"
        content = _without_calls(one)
        kept, spoken = rewrite_blocks(side, content, changes)
        fields: dict[str, Any] = {"content": one.content}
        if any(n < spoken for n in changes):
            fields["content"] = "".join(kept) if isinstance(content, str) else kept or ""
        if isinstance(one, AIMessage):
            fields["tool_calls"] = _calls(
                one, {n - spoken: to for n, to in changes.items() if n >= spoken}
            )
            if isinstance(one.content, list) and fields["content"] is one.content:
                fields["content"] = _with_calls(one.content, fields["tool_calls"])
        return (
            one.model_copy(update=fields) if fields["content"] or fields.get("tool_calls") else None
        )

    def tell(self, text: str) -> Any:
        return HumanMessage(text)


FORMAT = LangChainFormat()


def _without_calls(one: BaseMessage) -> Any:
    """Return the content without the blocks that repeat `tool_calls`, as providers' do."""
    if isinstance(one.content, str):
        return one.content if one.content or not isinstance(one, AIMessage) else []
    if not isinstance(one, AIMessage):
        return one.content
    return [
        block
        for block in one.content
        if isinstance(block, str) or block.get("type") not in CALL_BLOCKS
    ]


def _with_calls(content: list[Any], calls: Sequence[Any]) -> list[Any]:
    """Return the content without the blocks that repeat a call which is not in `calls`."""
    ids = [call["id"] for call in calls]
    return [
        block
        for block in content
        if isinstance(block, str)
        or block.get("type") not in CALL_BLOCKS
        or block.get("call_id", block.get("id")) in ids
    ]


def _calls(one: AIMessage, changes: Mapping[int, AnyPart | None]) -> list[Any]:
    asked = [(call, changes.get(n, call)) for n, call in enumerate(one.tool_calls)]
    return [
        {**call, "args": to.arguments or {}} if isinstance(to, ToolCall) else call
        for call, to in asked
        if to is not None
    ]


ENGINES_MAX = 256
"""Engines that a middleware keeps open; the least recently used one is closed first."""
SUMMARISED_ELSEWHERE = (
    "another middleware (SummarizationMiddleware, which deepagents brings along) summarises the "
    "messages before "
    "longrein sees them: what it removes cannot be recalled, and the prompt cache breaks. Leave "
    "it out of the agent"
)


class ContextMiddleware(AgentMiddleware):
    """Middleware that sends the prepared list, reports the usage, and offers the model the tool
    `Recall`.

    Each thread of the agent (`configurable.thread_id`) and each of its subagents has an engine of
    its own.
    """

    make_engine: ClassVar[Callable[..., Engine]] = staticmethod(engine)
    """Makes the engine of a thread; `longrein.integrations.langchain` has one that knows models."""

    def __init__(self, model: "str | Engine | Chooser" = "", **options: Any) -> None:
        """Take the arguments of `make_engine`; `session` is set to the thread's id.

        In place of them it takes one `Engine`, for an agent with a single thread, or a
        function from the runtime to the engine. Raises `UsageError` as `make_engine` does.
        """
        super().__init__()
        self._engines: dict[str, Engine] = {}
        self._given, self._choose = None, None
        self._options: dict[str, Any] = {}
        self._told: set[int] = set()
        if isinstance(model, Engine):
            self._given = model
        elif isinstance(model, str):
            self._options = {"model": model, **options} if model else options
            tried = {name: value for name, value in self._options.items() if name != "state_dir"}
            self.make_engine(**tried)  # report a wrong argument here, not at the first request
        else:
            self._choose = model
        self.tools = [] if self._choose else [_recall_tool(self._of_thread)]

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Make one request; repeat it once, shorter, when the provider refuses its length."""
        engine = self._of(request)
        try:
            return handler(_with(request, engine.prepare(_whole(request))))
        except (
            Exception
        ) as error:  # provider libraries have no common error class; others are re-raised
            if not did_not_fit(engine, error):
                raise
            return handler(_with(request, engine.prepare(_whole(request))))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Make one request in an async loop. See `wrap_model_call`."""
        engine = self._of(request)
        try:
            return await handler(_with(request, await engine.aprepare(_whole(request))))
        except (
            Exception
        ) as error:  # provider libraries have no common error class; others are re-raised
            if not did_not_fit(engine, error):
                raise
            return await handler(_with(request, await engine.aprepare(_whole(request))))

    def engine_of(self, thread: str) -> Engine | None:
        """Return the engine of a thread; None before its first request."""
        return self._engines.get(thread)

    def close(self) -> None:
        """Close the engines that this middleware created."""
        for made in self._engines.values():
            if isinstance(made, StoredEngine) and made is not self._given:
                made.close()
        self._engines.clear()

    def _of(self, request: Any) -> Engine:
        found = self._choose(request.runtime) if self._choose else self._of_thread()
        if id(found) not in self._told and any(
            map(_is_foreign_summary, getattr(request, MESSAGES_FIELD))
        ):
            self._told.add(id(found))
            found.notes.append(SUMMARISED_ELSEWHERE)
            warnings.warn(SUMMARISED_ELSEWHERE, UserWarning, stacklevel=2)
        return found

    def _of_thread(self) -> Engine:
        """Return the engine of the running thread."""
        thread = _thread()
        found = self._engines.pop(thread, None)
        if found is None:
            found = self._made(thread)
        self._engines[thread] = found
        return found

    def _made(self, thread: str) -> Engine:
        if self._given is not None:
            if self._engines:
                raise UsageError(
                    f"this engine belongs to the thread {next(iter(self._engines))!r}, and "
                    f"{thread!r} needs one of its "
                    "own: give ContextMiddleware the arguments of the engine, such as "
                    'ContextMiddleware("openai/gpt-5")'
                )
            return self._given
        if len(self._engines) >= ENGINES_MAX:
            oldest = self._engines.pop(next(iter(self._engines)))
            if isinstance(oldest, StoredEngine):
                oldest.close()
        return self.make_engine(**{"session": thread, **self._options})


def _thread() -> str:
    """Return the id of the running thread with the path of the subagent in it; '' outside of a
    run.
    """
    try:
        configurable = get_config().get("configurable") or {}
    except RuntimeError:  # raised outside of a run, as documented
        return ""
    parent, _, _ = str(configurable.get("checkpoint_ns") or "").rpartition("|")
    return "|".join(filter(None, [str(configurable.get("thread_id") or ""), parent]))


def _is_foreign_summary(message: Any) -> bool:
    """Return whether a summarisation middleware of LangChain or deepagents wrote `message`."""
    return (getattr(message, "additional_kwargs", None) or {}).get("lc_source") == "summarization"


def _whole(request: Any) -> list[Any]:
    """Return the list with the system message, which LangChain keeps apart, first."""
    system = [request.system_message] if request.system_message is not None else []
    return [*system, *getattr(request, MESSAGES_FIELD)]


def _with(request: Any, chat: list[Any]) -> Any:
    front = 1 if request.system_message is not None else 0
    return request.override(**{MESSAGES_FIELD: chat[front:]})


def _recall_tool(of: Callable[[], Engine]) -> StructuredTool:
    def recall(handle: str, lines: str = "") -> str:
        return of().recall(handle, lines)

    return StructuredTool(
        name=RECALL,
        description=RECALL_DESCRIPTION,
        args_schema=msgspec.to_builtins(RECALL_SCHEMA),
        func=recall,
    )


def recall_tool(engine: Engine) -> StructuredTool:
    """Create the tool `Recall` of one engine, for agents whose middleware is given a function
    instead.
    """
    return _recall_tool(lambda: engine)
