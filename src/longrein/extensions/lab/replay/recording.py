"""Recorded sessions: the neutral format (JSON lines: a header, then one item a line) and longrein's
own logs.

Messages of the recording agent's own compaction are left out. An input belongs to the first request
whose step is not below its own. Request `t` contains the inputs of requests up to `t` and the
outputs of those before it.
"""

import gzip
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from longrein.context import arguments_text, estimate_text
from longrein.events import (
    AnyEvent,
    AnyPart,
    Asked,
    Entry,
    PrefixSet,
    Reminded,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    UsageError,
    UserSpoke,
    text_of,
)

Kind = Literal["user", "assistant_text", "tool_call", "tool_result"]
CHARS_PER_TOKEN: dict[str, float] = {
    "tool_result": 2.81,
    "tool_call": 3.15,
    "assistant_text": 2.5,
    "user": 3.2,
}
"""Fitted to recorded differences of prompt sizes (median error 14 %)."""
OVERHEAD_TOKENS: dict[str, int] = {
    "tool_result": 31,
    "tool_call": 31,
    "assistant_text": 4,
    "user": 4,
}
"""Tokens of brackets and ids around one block."""


def count_tokens(kind: Kind, text: str) -> int:
    """Estimate the tokens of a block of `kind`."""
    return max(1, round(len(text) / CHARS_PER_TOKEN[kind]) + OVERHEAD_TOKENS[kind])


class Item(msgspec.Struct, frozen=True):
    """A recorded item."""

    request: int
    """Outputs: the request that produced it; inputs: the first request that contains it."""
    output: bool
    kind: Kind
    name: str
    """Tool name; `thinking` for reasoning."""
    text: str
    """Arguments as JSON for a call."""
    tokens: int
    call: str
    """Pairs a call with its result."""
    at_us: int
    """Microseconds UTC; 0 when unknown."""

    @property
    def thinking(self) -> bool:
        """Return True if the item is reasoning."""
        return self.output and self.name == "thinking"


class Recording(msgspec.Struct, frozen=True):
    """A recorded session. Items are ordered by request, inputs before outputs."""

    name: str
    system_tokens: int
    items: tuple[Item, ...]
    requests: int


def base_name(name: str) -> str:
    """Return a file's name without folder and suffixes."""
    return name.rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".jsonl")


def read_recording(name: str, data: bytes) -> Recording:
    """Read a session from a file's bytes, gzipped or not. Raises `UsageError` when it is no
    recording.
    """
    try:
        raw = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        rows = [msgspec.json.decode(line) for line in raw.split(b"\n") if line.strip()]
        if not rows or rows[0].get("type") != "header":
            raise UsageError(f"{name} is no recorded session: its first line is not a header")
        kept = list(_kept(rows[1:]))
        steps = sorted({row["step"] for row in kept if row["role"] == "assistant"})
        placed = [(bisect_left(steps, row["step"]), row) for row in kept]
        found = [_message(request, row) for request, row in placed if request < len(steps)]
    except (OSError, EOFError, msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{name} is no recorded session: {error}") from error
    found.sort(key=lambda item: (item.request, item.output))
    return Recording(
        base_name(name), round(rows[0].get("system_tokens_est", 0)), tuple(found), len(steps)
    )


def _kept(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    after = False
    for row in rows:
        flag = row.get("flag")
        if flag == "compact_boundary":
            after = True
        elif flag != "compact_summary" and not (flag == "attachment" and after):
            after = after and row["role"] != "assistant"
            yield row


def _message(request: int, row: dict[str, Any]) -> Item:
    kind, tokens = row["kind"], row.get("tokens_est")
    text = (row.get("args") or "") if kind == "tool_call" else (row.get("text") or "")
    if tokens is None:
        tokens = count_tokens(kind, text)
    output, name = row["role"] == "assistant", row.get("name") or ""
    return Item(
        request,
        output,
        kind,
        name,
        text,
        int(tokens),
        row.get("call_id") or "",
        _at_us(row.get("ts")),
    )


def _at_us(value: Any) -> int:
    try:
        return round(datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp() * 1e6)
    except ValueError:
        return 0


# --- Recordings from longrein's own logs ----------------------------------------------------------


def of_entries(name: str, entries: Iterable[Entry]) -> Recording:
    """Convert a log to a recording. Failed requests are not counted; results are taken whole."""
    items: list[Item] = []
    request, system, summaries = 0, 0, set[int]()
    for entry in entries:
        event = entry.event
        if isinstance(event, PrefixSet):
            tools = sum(estimate_text(t.name + t.description + str(t.schema)) for t in event.tools)
            system = estimate_text(event.system) + tools
        if isinstance(event, Asked) and event.purpose == "summary":
            summaries.add(entry.seq)
        if isinstance(event, Replied) and event.asked in summaries:
            continue
        output = isinstance(event, Replied)
        for kind, tool, text, call in _told(event):
            items.append(
                Item(request, output, kind, tool, text, count_tokens(kind, text), call, entry.at)
            )
        request += output
    last = max((item.request for item in items if item.output), default=-1)
    kept = [item for item in items if item.request <= last]
    kept.sort(key=lambda item: (item.request, item.output))
    return Recording(name, system, tuple(kept), last + 1)


def _told(event: AnyEvent) -> list[tuple[Kind, str, str, str]]:
    """Return (kind, name, text, call id) of each item that an event adds to the conversation."""
    match event:
        case UserSpoke(parts=parts):
            return [("user", "", text_of(parts), "")]
        case Reminded(text=text) if text:
            return [("user", "reminder", text, "")]
        case ToolEnded(call=call, name=name, parts=parts):
            return [("tool_result", name, text_of(parts), call)]
        case Replied(parts=parts):
            return [told for part in parts if (told := _of_part(part)) is not None]
        case _:
            return []


def _of_part(part: AnyPart) -> tuple[Kind, str, str, str] | None:
    match part:
        case Text(text):
            return "assistant_text", "", text, ""
        case Thinking(text):
            return "assistant_text", "thinking", text, ""
        case ToolCall(id=call, name=name):
            return "tool_call", name, arguments_text(part), call
        case _:
            return None
