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

from longrein.steps import (
    BreakStep,
    CallStep,
    NoticeStep,
    PromptStep,
    RequestStep,
    Step,
    TextStep,
    ThinkingStep,
    steps_of,
)
from longrein_context import arguments_text, estimate_text
from longrein_context.events import Entry, UsageError, text_of

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
    lines: int
    """Lines of the whole text."""

    @property
    def thinking(self) -> bool:
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
        text.count("\n") + 1,
    )


def _at_us(value: Any) -> int:
    try:
        return round(datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp() * 1e6)
    except ValueError:
        return 0


# --- Recordings from longrein's own logs ----------------------------------------------------------


def of_entries(name: str, entries: Iterable[Entry]) -> Recording:
    """Convert a log to a recording. Failed requests are not counted, results are taken whole, and
    what belongs to summaries is left out.
    """
    system_tokens, request, found = 0, 0, list[Item]()
    for step in steps_of(entries):
        if step.purpose == "summary":
            continue
        if (told := _told(step)) is not None:
            is_output, kind, tool, text, call = told
            tokens, lines = count_tokens(kind, text), text.count("\n") + 1
            item = Item(request, is_output, kind, tool, text, tokens, call, step.at, lines)
            found.append(item)
        if isinstance(step, BreakStep) and step.prefix is not None:
            system_tokens = estimate_text(step.prefix.system)
            system_tokens += sum(
                estimate_text(t.name + t.description + str(t.schema)) for t in step.prefix.tools
            )
        request += isinstance(step, RequestStep) and step.reply is not None
    last = max((item.request for item in found if item.output), default=-1)
    items = sorted(
        (item for item in found if item.request <= last),
        key=lambda item: (item.request, item.output),
    )
    return Recording(name, system_tokens, tuple(items), last + 1)


def _told(step: Step) -> tuple[bool, Kind, str, str, str] | None:
    """Return (is output, kind, name, text, call id) of what a step adds to the conversation."""
    match step:
        case PromptStep(message=message):
            return False, "user", "", text_of(message.parts), ""
        case NoticeStep(kind="reminder", text=text) if text:
            return False, "user", "reminder", text, ""
        case CallStep(ended=result) if result:
            return False, "tool_result", result.name, text_of(result.parts), step.id
        case TextStep(text=text):
            return True, "assistant_text", "", text, ""
        case ThinkingStep(text=text):
            return True, "assistant_text", "thinking", text, ""
        case CallStep(phase="made" | "cut", made=made):
            return True, "tool_call", made.name, arguments_text(made), made.id
        case _:
            return None
