"""The text protocol for tools: for models without native calls, over any wire.

The tools are told in the system text, calls are lines `tool: NAME({JSON})`, results come back as `tool_result({JSON})`.
The log holds ordinary calls and results; only this wrapper knows that the wire carried text.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from longrein.context import Item, Request
from longrein.events import AnyPart, PrefixSet, ProviderBlock, Text, Thinking, ToolCall, ToolResult, ToolSpec
from longrein.models.content import Plain, exact_json, pieces_of
from longrein.models.port import CallDelta, Delta, Failure, Model, Reply, TextDelta
from longrein.models.text_calls import LiveText, TextCall, split_calls

STOPS = ("\ntool_result(",)
"""Stop sequences: a model that goes on to invent the result is stopped by its server."""
SESSIONS_MAX = 64
"""Sessions whose rewritten items are kept."""

INTRODUCTION = """

# Tools

You act through the tools below. To call one, write a line that begins with `tool:`, the tool's name, and its arguments
as one JSON object in round brackets:

tool: NAME({"argument": "value"})

Several such lines call several tools. After your calls stop and wait: the results come in the next message, one
`tool_result({...})` for each call. Never write `tool_result` yourself. Calls inside a code fence or inline code count
as quotations and are not carried out. A call that cannot be read is answered by an error; write it again, corrected.

"""
"""What the model is told of the protocol, before the tools."""


class TextTools:
    """A `Model` whose calls and results travel as text over another one."""

    def __init__(self, inner: Model) -> None:
        self.name, self.provider, self.model = inner.name, inner.provider, inner.model
        self.wire, self.budget = inner.wire, inner.budget
        self._inner = inner
        self._sessions: dict[str, _Rewritten] = {}

    def warm(self) -> None:
        """See `HttpModel.warm`."""
        warm = getattr(self._inner, "warm", None)
        if warm is not None:
            warm()

    async def aclose(self) -> None:
        """Close idle connections."""
        await self._inner.aclose()

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `Model.stream`. Text is shown as it comes until the first line that may be a call."""
        live = LiveText()
        async for batch in self._inner.stream(self._rewritten(request)):
            out: list[Delta] = []
            for delta in batch:
                match delta:
                    case TextDelta(text):
                        if text := live.feed(text):
                            out.append(TextDelta(text))
                    case Reply():
                        reply = with_calls(delta)
                        out += [*what_was_held(live, reply), reply]
                    case _:
                        out.append(delta)
            if out:
                yield out

    def _rewritten(self, request: Request) -> Request:
        key = request.session if request.prefix_seq else f"{request.session} aside"
        known = self._sessions.pop(key, None)
        if known is None or known.original is not request.prefix:
            known = _Rewritten(request.prefix, with_tools_told(request.prefix), {})
        self._sessions[key] = known
        while len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        items = tuple(known.item(item) for item in request.items)
        return msgspec.structs.replace(request, prefix=known.prefix, items=items)


class _Rewritten(msgspec.Struct):
    """One session's prefix and items as text: the same objects in each request, so that a wire encodes them once."""

    original: PrefixSet
    prefix: PrefixSet
    items: dict[tuple[int, int, int], tuple[Item, Item]]

    def item(self, item: Item) -> Item:
        """`item` as text; itself when it is neither call nor result."""
        if not isinstance(item.part, ToolCall | ToolResult):
            return item
        known = self.items.get(item.key)
        if known is None or known[0] is not item:
            known = self.items[item.key] = (item, _as_text(item))
        return known[1]


def _as_text(item: Item) -> Item:
    if isinstance(item.part, ToolCall):
        return msgspec.structs.replace(item, kind="text", part=Text(call_text(item.part)), block=None)
    if isinstance(item.part, ToolResult):
        return msgspec.structs.replace(item, kind="user", part=Text(result_text(item.part, item.handle)))
    return item


def call_text(call: ToolCall) -> str:
    """A call as the model would write it."""
    arguments = call.received if call.arguments is None else exact_json(call.arguments).decode()
    return f"tool: {call.name}({arguments})"


def result_text(result: ToolResult, handle: str = "") -> str:
    """A result in one line of JSON, so that nothing in it can look like a call."""
    pieces = pieces_of(result, _no_blob, whole=False, pdf=False, handle=handle)
    output = "\n".join(piece.text for piece in pieces if isinstance(piece, Plain))
    fields = {"tool": result.name, "status": result.status, "output": output}
    return f"tool_result({exact_json(fields).decode()})"


def _no_blob(blob: str) -> bytes:
    raise LookupError(blob)


def with_tools_told(prefix: PrefixSet) -> PrefixSet:
    """`prefix` with its tools in the system text."""
    if not prefix.tools:
        return prefix
    told = INTRODUCTION + "\n".join(map(_told, prefix.tools))
    return msgspec.structs.replace(prefix, system=prefix.system + told, tools=())


def _told(tool: ToolSpec) -> str:
    schema = exact_json(tool.schema).decode()
    return f"TOOL\n===\nName: {tool.name}\nDescription: {tool.description}\nArguments: {schema}\n{'=' * 15}\n"


def with_calls(reply: Reply) -> Reply | Failure:
    """`reply` with the calls in its text as calls."""
    parts: list[AnyPart] = []
    blocks: list[ProviderBlock] = []
    by_part = {block.part: block for block in reply.blocks}
    for n, part in enumerate(reply.parts):
        if isinstance(part, Text):
            parts += map(_part, split_calls(part.text))
            continue
        if n in by_part and isinstance(part, Thinking):
            blocks.append(msgspec.structs.replace(by_part[n], part=len(parts)))
        parts.append(part)
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    if not has_calls and reply.stop == "end" and not any(isinstance(part, Text) for part in parts):
        return Failure("empty", "the model invented a result in place of an answer", usage=reply.usage)
    stop = "calls" if has_calls and reply.stop == "end" else reply.stop
    return Reply(tuple(parts), stop, reply.usage, tuple(blocks), reply.model)


def _part(found: str | TextCall) -> AnyPart:
    if isinstance(found, str):
        return Text(found)
    exact = found.arguments is not None and exact_json(found.arguments).decode() == found.received
    return ToolCall("", found.name, found.arguments, "" if exact else found.received)


def what_was_held(live: LiveText, reply: Reply | Failure) -> list[Delta]:
    """At the end: the text after what was shown, and the calls."""
    if isinstance(reply, Failure):
        return []
    out: list[Delta] = []
    text = "\n".join(part.text for part in reply.parts if isinstance(part, Text))
    shown = live.shown.strip()
    if text.startswith(shown) and len(text) > len(shown):
        out.append(TextDelta(text[len(shown) :]))
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    for index, call in enumerate(calls):
        out.append(CallDelta(index, call.name, call.received or exact_json(call.arguments).decode()))
    return out
