"""Tool calls as text, for models without native calls, over any wire.

The system text describes the tools, calls are lines `tool: NAME({JSON})`, results are sent as
`tool_result({JSON})`. The log holds ordinary calls and results; only `TextToolModel` knows that the
wire carries text.
"""

import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import is_not
from typing import Any

import msgspec

from longrein.models.model_port import (
    TEXT_WIRE,
    CallDelta,
    Delta,
    Failure,
    Model,
    Reply,
    TextDelta,
    forget_encoded,
    key_source,
    served_as,
)
from longrein.models.wire_base import SessionCaches, own_tools
from longrein.models.wire_content import TextPiece, content_pieces, exact_json, read_arguments
from longrein_context import Item, Request
from longrein_context.events import (
    AnyPart,
    PrefixSet,
    ProviderBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)

# --- Finding calls --------------------------------------------------------------------------------
#
# A call is a line `tool: NAME({JSON})`. Quoted text is never a call: in a code fence other than
# `tool`, in inline code, indented by four blanks, or after `>`. A call that cannot be read is kept
# without arguments, so that the model is told; it is never completed, because a truncated call must
# not run. Everything after an invented `tool_result(` is dropped.


CALL_FENCES = frozenset({"tool", "tool_call", "tool_calls", "tool_code", "tool_use"})
"""Info strings of code fences that hold calls."""
_LINE = re.compile(r"[^\n]*\n?")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)")
_CALL = re.compile(r" {0,3}tool:[ \t]*([A-Za-z_][\w.-]*)[ \t]*(?=[({])")
_TAG = re.compile(r" {0,3}<tool_call>\s*(?=\{)")
_TAG_OPEN = re.compile(r" {0,3}<tool_call>")
_RESULT = re.compile(r" {0,3}tool_result[ \t]*\(")
_MARKS = re.compile(r'["\\{}\[\]]')
_AFTER = re.compile(r"[ \t]*\)?[ \t]*[.;]?[ \t]*(?:\s*</tool_call>)?[ \t]*")
_STARTS = ("tool:", "tool_result(", "<tool_call>", "```", "~~~")


def split_calls(text: str) -> list[tuple[str | ToolCall, str]]:
    """Split `text` into text and calls, in order, each with its source. Blanks around text are
    dropped; the sources together are all of `text` up to an invented result.
    """
    found: list[tuple[str | ToolCall, str]] = []
    words = source = ""
    for part, piece in _parts(text):
        source += piece
        if isinstance(part, str):
            words += part
            continue
        if words.strip():
            before = source[: -len(piece)]
            found.append((words.strip(), before))
            source = piece
        found.append((part, source))
        words = source = ""
    if words.strip():
        found.append((words.strip(), source))
    elif found:
        found[-1] = (found[-1][0], found[-1][1] + source)
    return found


START_CHARS = 64
"""Characters kept of the start of a line; longer than the start of any call."""


class VisibleText:
    """Filter of streaming text: passes on text outside calls, and stops at the first line that
    is a call.
    """

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._line: list[str] = []
        """Pieces of the present line."""
        self._line_shown = 0
        """Number of these pieces that were passed on."""
        self._start = ""
        """Start of the present line, without leading blanks."""
        self._fence = ""
        self._held = False

    @property
    def shown(self) -> str:
        """Text passed on so far."""
        return "".join(self._shown)

    def feed(self, text: str) -> str:
        """Add text and return the text that may be shown now. Looks at each piece once."""
        first = len(self._shown)
        for piece in text.splitlines(keepends=True):
            if self._held:
                break
            self._line.append(piece)
            if len(self._start) < START_CHARS:
                self._start = (self._start + (piece if self._start else piece.lstrip(" ")))[
                    : 2 * START_CHARS
                ]
            whole = piece.endswith("\n")
            if not self._may_show(whole=whole):
                continue
            self._shown += self._line[self._line_shown :]
            self._line_shown = len(self._line)
            if whole:
                self._line = []
                self._line_shown = 0
                self._start = ""
        return "".join(self._shown[first:])

    def _may_show(self, *, whole: bool) -> bool:
        start = self._start
        if not whole:
            return bool(self._fence) or not any(
                start.startswith(w) or w.startswith(start) for w in _STARTS
            )
        line = "".join(self._line)
        mark = _FENCE.match(line)
        if self._fence:
            closes = mark is not None and mark[1].startswith(self._fence) and not mark[2]
            self._fence = "" if closes else self._fence
        elif mark is not None and mark[2].lower() not in CALL_FENCES:
            self._fence = mark[1]
        else:
            self._held = mark is not None or any(p.match(line) for p in (_CALL, _TAG_OPEN, _RESULT))
        return not self._held


def _parts(text: str) -> Iterator[tuple[str | ToolCall, str]]:
    """Yield lines and calls with their sources; marks of a fence around calls are no text."""
    at = 0
    fence = ""
    holds_calls = False
    while at < len(text):
        line = _LINE.match(text, at)
        assert line is not None
        end = line.end()
        mark = _FENCE.match(line[0])
        if mark is not None and (not fence or (mark[1].startswith(fence) and not mark[2])):
            was_calls, holds_calls = holds_calls, not fence and mark[2].lower() in CALL_FENCES
            fence = "" if fence else mark[1]
            yield "" if holds_calls or was_calls else line[0], line[0]
        elif fence and not holds_calls:
            yield line[0], line[0]
        elif _RESULT.match(line[0]):
            return
        elif (found := _call_at(text, at, bare=holds_calls)) is not None:
            call, end = found
            yield call, text[at:end]
        else:
            yield line[0], line[0]
        at = end


def _call_at(text: str, at: int, *, bare: bool) -> tuple[ToolCall, int] | None:
    """Parse the call that begins at `at`; return it and its end."""
    if (match := _CALL.match(text, at)) is not None:
        start = match.end() + (text[match.end()] == "(")
        return _named_call(match[1], text, start)
    tag = _TAG.match(text, at)
    start = tag.end() if tag is not None else at
    if tag is None and not (bare and text[at:].lstrip().startswith("{")):
        return None
    start += len(text[start:]) - len(text[start:].lstrip())
    received, end = balanced_object(text, start)
    whole = repair_arguments(received) or {}
    name = whole.get("name") or whole.get("tool")
    arguments: object = next(
        (whole[key] for key in ("arguments", "args", "parameters", "input") if key in whole), {}
    )
    if not isinstance(name, str):
        return _make_call("unreadable", received, None), end
    return _make_call(
        name, received, arguments if isinstance(arguments, dict) else read_arguments(str(arguments))
    ), end


def _make_call(name: str, received: str, arguments: dict[str, Any] | None) -> ToolCall:
    exact = arguments is not None and exact_json(arguments).decode() == received
    return ToolCall("", name, arguments, "" if exact else received)


def _named_call(name: str, text: str, start: int) -> tuple[ToolCall, int]:
    brace = start + len(text[start:]) - len(text[start:].lstrip())
    if text[brace : brace + 1] == ")" and text[start - 1] == "(":
        return _make_call(name, "", {}), _skip(text, brace)
    if text[brace : brace + 1] != "{":
        line = _LINE.match(text, start)
        received = line[0].strip() if line else ""
        return _make_call(name, received.removesuffix(")"), None), start + len(
            line[0] if line else ""
        )
    received, end = balanced_object(text, brace)
    return _make_call(name, received, repair_arguments(received)), end


def balanced_object(text: str, start: int) -> tuple[str, int]:
    """Find the balanced object at `start`; return it and the end of its call. An unclosed object
    takes all the rest.
    """
    depth = 0
    quoted = False
    at = start
    while (mark := _MARKS.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == "\\":
            at += quoted
        elif mark[0] == '"':
            quoted = not quoted
        elif not quoted:
            depth += 1 if mark[0] in "{[" else -1
            if depth <= 0:
                return text[start:at], _skip(text, at)
    return text[start:], len(text)


def _skip(text: str, at: int) -> int:
    after = _AFTER.match(text, at)
    return after.end() if after else at


# --- Repairing arguments --------------------------------------------------------------------------

_STRING = re.compile(r'(?s)"(?:[^"\\]|\\.)*"')
_COMMA = re.compile(r",(\s*[}\]])")
_ANY_STRING = re.compile(r"""(?s)\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'""")
_WORD = re.compile(r"\b(?:True|False|None)\b")
_ESCAPED = re.compile(r"(?s)\\.")
_BARE_QUOTE = re.compile(r'((?:^|[^\\])(?:\\\\)*)"')
_CONTROL_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def repair_arguments(received: str) -> dict[str, Any] | None:
    """Parse arguments, tolerating raw line breaks in strings, trailing commas and Python
    literals.
    """
    value = read_arguments(received) if received.strip() else None
    if value is not None or not received.strip():
        return value
    escaped = _STRING.sub(
        lambda match: re.sub(r"[\n\r\t]", lambda raw: _CONTROL_ESCAPES[raw[0]], match[0]), received
    )
    value = read_arguments(_without_commas(escaped))
    return value if value is not None else _read_python_literal(received)


def _without_commas(text: str) -> str:
    """Remove commas before a closing bracket, outside strings."""
    parts, at = [], 0
    for string in _STRING.finditer(text):
        parts += [_COMMA.sub(r"\1", text[at : string.start()]), string[0]]
        at = string.end()
    return "".join((*parts, _COMMA.sub(r"\1", text[at:])))


def _read_python_literal(text: str) -> dict[str, Any] | None:
    """Parse a Python literal: single quotes, `True`, `None`."""
    parts, at = [], 0
    for string in _ANY_STRING.finditer(text):
        parts += [_json_words(text[at : string.start()]), _double_quoted(string[0])]
        at = string.end()
    return read_arguments(_without_commas("".join((*parts, _json_words(text[at:])))))


def _json_words(code: str) -> str:
    return _WORD.sub(
        lambda match: {"True": "true", "False": "false", "None": "null"}[match[0]], code
    )


def _double_quoted(string: str) -> str:
    if string.startswith('"'):
        return string
    inner = _ESCAPED.sub(lambda match: "'" if match[0] == "\\'" else match[0], string[1:-1])
    return '"' + _BARE_QUOTE.sub(lambda match: match[1] + '\\"', inner) + '"'


# --- The model ------------------------------------------------------------------------------------


STOPS = ("\ntool_result(",)
"""Stop sequences: the server stops a model that begins to invent a result."""

INTRODUCTION = """

# Tools

You act through the tools below. To call one, write a line that begins with `tool:`, the tool's name, and its arguments
as one JSON object in round brackets:

tool: NAME({"argument": "value"})

Several such lines call several tools. After your calls stop and wait: the results come in the next message, one
`tool_result({...})` for each call. Never write `tool_result` yourself. Calls inside a code fence or inline code count
as quotations and are not carried out. A call that cannot be read is answered by an error; write it again, corrected.

"""  # noqa: E501
"""Description of the protocol in the system text, before the tools."""


class TextToolModel:
    """A `Model` that sends calls and results as text over another model."""

    def __init__(self, inner: Model) -> None:
        self.name = inner.name
        self.provider = inner.provider
        self.model = inner.model
        self.wire, self.budget = inner.wire, inner.budget
        self.key_source = key_source(inner)
        self.served_as = served_as(inner)
        self._inner = inner
        self._sessions = SessionCaches(_RewrittenSession)

    async def aclose(self) -> None:
        """Close idle connections."""
        await self._inner.aclose()

    def forget(self) -> None:
        self._sessions.clear()
        forget_encoded(self._inner)

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `Model.stream`. Text streams until the first line that may be a call."""
        live = VisibleText()
        async for batch in self._inner.stream(self._rewritten(request)):
            out: list[Delta] = []
            for delta in batch:
                match delta:
                    case TextDelta(text):
                        if text := live.feed(text):
                            out.append(TextDelta(text))
                    case Reply():
                        reply = with_calls(delta)
                        out += [*held_deltas(live, reply), reply]
                    case _:
                        out.append(delta)
            if out:
                yield out

    def _rewritten(self, request: Request) -> Request:
        session = self._sessions.of(request)
        prefix = session.with_tools(request.prefix)
        return _joined(msgspec.structs.replace(request, prefix=prefix), _reply_of, session.item)


def _reply_of(item: Item) -> object:
    """Return what the items of one reply have in common that are sent as one text."""
    return item.key[0] if item.kind in ("text", "call") else item.key


def _joined(
    request: Request,
    group_of: Callable[[Item], object],
    join: Callable[[list[Item]], Item],
) -> Request:
    """Return `request` with one item for each group of items that follow each other."""
    groups = [list(of) for _, of in groupby(request.items, group_of)]
    ends = list(accumulate(map(len, groups)))
    marks = tuple(dict.fromkeys(bisect_right(ends, mark) for mark in request.marks))
    return msgspec.structs.replace(request, items=tuple(map(join, groups)), marks=marks)


class TextCallRendering:
    """Sends calls that were read from a text as that text, and their results as a text after it.

    A small model that gets them as calls, with the text or in its place, makes them again.
    """

    def __init__(self) -> None:
        self._sessions = SessionCaches(_RewrittenSession)

    def rewritten(self, request: Request) -> Request:
        """Return `request` as the model knows its own calls."""
        made = [item for item in request.items if item.kind == "call"]
        replies = {item.key[0] for item in made if item.block and item.block.wire == TEXT_WIRE}
        parts = (item.part for item in made if item.key[0] in replies)
        calls = {part.id for part in parts if isinstance(part, ToolCall)}
        session = self._sessions.of(request)

        def group_of(item: Item) -> object:
            return _reply_of(item) if item.key[0] in replies else item.key

        def join(items: list[Item]) -> Item:
            first = items[0]
            if isinstance(first.part, ToolResult):
                return session.item(items, plain_result) if first.part.call in calls else first
            return session.item(items) if first.key[0] in replies else first

        return _joined(request, group_of, join)


class _RewrittenSession:
    """Prefix and items of a session as text; the objects stay the same, so that a wire encodes
    them once.
    """

    def __init__(self) -> None:
        self._prefix: tuple[PrefixSet, PrefixSet] | None = None
        self._items: dict[tuple[int, int, int], tuple[list[Item], Item]] = {}

    def with_tools(self, prefix: PrefixSet) -> PrefixSet:
        """Return `prefix` with its tools in the system text."""
        if self._prefix is None or self._prefix[0] is not prefix:
            self._prefix, self._items = (prefix, with_tools_in_system(prefix)), {}
        return self._prefix[1]

    def item(self, items: list[Item], told: Callable[[ToolResult, str], str] | None = None) -> Item:
        """Return the items of a reply as one text, a result as the text that `told` makes of it;
        any other unchanged.
        """
        first = items[0]
        if not any(isinstance(item.part, ToolCall | ToolResult) for item in items) and not any(
            item.block for item in items
        ):
            return first
        known = self._items.get(first.key)
        if known is None or len(known[0]) != len(items) or any(map(is_not, known[0], items)):
            known = self._items[first.key] = (items, _as_text(items, told or result_text))
        return known[1]


def _as_text(items: Sequence[Item], told: Callable[[ToolResult, str], str]) -> Item:
    """Join what the model wrote, byte for byte where that is known: a server that keeps its prefix
    has it so.
    """
    first = items[0]
    if isinstance(first.part, ToolResult):
        return msgspec.structs.replace(
            first, kind="user", part=Text(told(first.part, first.handle))
        )
    text = ""
    for item in items:
        if item.block is not None and item.block.wire == TEXT_WIRE:
            text += msgspec.json.decode(item.block.raw, type=str)
        elif isinstance(item.part, Text | ToolCall):
            words = item.part.text if isinstance(item.part, Text) else call_text(item.part)
            text += "\n\n" * bool(text) + words
    return msgspec.structs.replace(first, kind="text", part=Text(text), block=None)


def call_text(call: ToolCall) -> str:
    """Write a call as the model would."""
    arguments = call.received if call.arguments is None else exact_json(call.arguments).decode()
    return f"tool: {call.name}({arguments})"


def result_text(result: ToolResult, handle: str = "") -> str:
    """Write a result as one line of JSON, so that its text cannot look like a call."""
    fields = {"tool": result.name, "status": result.status, "output": _output(result, handle)}
    return f"tool_result({exact_json(fields).decode()})"


def plain_result(result: ToolResult, handle: str = "") -> str:
    """Write a result for a model that reads it as a message: in a fence that nothing in it ends."""
    output = _output(result, handle)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", output)), default=0))
    return f"Result of {result.name} ({result.status}):\n{fence}\n{output}\n{fence}"


def _output(result: ToolResult, handle: str) -> str:
    pieces = content_pieces(result, _no_blob, whole=False, pdf=False, handle=handle)
    return "\n".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


def _no_blob(blob: str) -> bytes:
    raise LookupError(blob)


def with_tools_in_system(prefix: PrefixSet) -> PrefixSet:
    """Move the tools of `prefix` into its system text."""
    tools = own_tools(prefix)
    if not tools:
        return prefix
    told = INTRODUCTION + "\n".join(map(_describe_tool, tools))
    return msgspec.structs.replace(prefix, system=prefix.system + told, tools=())


def _describe_tool(tool: ToolSpec) -> str:
    schema = exact_json(tool.schema).decode()
    return (
        f"TOOL\n===\nName: {tool.name}\nDescription: {tool.description}\nArguments: "
        f"{schema}\n{'=' * 15}\n"
    )


def with_calls(reply: Reply) -> Reply | Failure:
    """Turn calls in the text of `reply` into calls."""
    parts: list[AnyPart] = []
    blocks: list[ProviderBlock] = []
    by_part = {block.part: block for block in reply.blocks}
    for n, part in enumerate(reply.parts):
        if isinstance(part, Text):
            for one, source in split_calls(part.text):
                raw = msgspec.json.encode(source).decode()
                blocks.append(ProviderBlock(len(parts), TEXT_WIRE, reply.model, raw))
                parts.append(Text(one) if isinstance(one, str) else one)
            continue
        if n in by_part and isinstance(part, Thinking):
            blocks.append(msgspec.structs.replace(by_part[n], part=len(parts)))
        parts.append(part)
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    if not has_calls and reply.stop == "end" and not any(isinstance(part, Text) for part in parts):
        return Failure(
            "empty", "the model invented a result in place of an answer", usage=reply.usage
        )
    stop = "calls_in_text" if has_calls and reply.stop == "end" else reply.stop
    return Reply(tuple(parts), stop, reply.usage, tuple(blocks), reply.model)


def held_deltas(live: VisibleText, reply: Reply | Failure) -> list[Delta]:
    """Return the deltas that were held back: text that was not shown, and the calls."""
    if isinstance(reply, Failure):
        return []
    out: list[Delta] = []
    text = "\n".join(part.text for part in reply.parts if isinstance(part, Text))
    shown = live.shown.strip()
    if text.startswith(shown) and len(text) > len(shown):
        out.append(TextDelta(text[len(shown) :]))
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    for index, call in enumerate(calls):
        out.append(
            CallDelta(index, call.name, call.received or exact_json(call.arguments).decode())
        )
    return out
