"""The list to be sent: unchanged messages of the caller, rewritten copies, summaries; and originals
by handle.

The order is the caller's. A summary stands at the place of the first message that it replaces.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from longrein_context.clearing.text_features import is_escaped_line, unescape_lines
from longrein_context.events import (
    AnyPart,
    Entry,
    Thinking,
    ToolCall,
    ToolError,
    ToolResult,
    parse_handle,
    parts_for_model,
    text_of,
)
from longrein_context.message_list.intake import TakenMessage
from longrein_context.message_list.message_formats import (
    MessageFormat,
    NeutralMessage,
    is_fixed,
    read_message,
)
from longrein_context.state.request_types import Budget, Item
from longrein_context.state.state import State
from longrein_context.state.token_estimate import estimate_part

CurrentItems = tuple[
    Item | int | None, ...
]  # Present items of a message's parts, None for a part that is not in the view; then kept parts


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message to be sent."""

    one: Any  # The message object; None when nothing of it is left
    taken: TakenMessage  # Record of the message
    said: NeutralMessage  # Neutral form of the message


class ListRenderer:
    """Renderer of the list. It caches rewritten messages, so that an unchanged message stays the
    same object.
    """

    def __init__(self, shape: MessageFormat) -> None:
        self._shape = shape
        self._made: dict[tuple[str, ...], tuple[CurrentItems, Any, OutgoingMessage]] = {}
        self._summaries: dict[str, OutgoingMessage] = {}

    def show(
        self,
        state: State,
        chat: Sequence[Any],
        taken: Sequence[TakenMessage],
        said: Sequence[NeutralMessage],
        kept: Mapping[int, tuple[int, ...]],
    ) -> list[OutgoingMessage]:
        """Return the list to be sent. `kept`: see `kept_parts`."""
        view: list[OutgoingMessage] = []
        waiting = [item for item in state.items if item.kind == "summary"]
        for n, (one, record, reading) in enumerate(zip(chat, taken, said, strict=True)):
            for summary in [item for item in waiting if _summary_starts_at(item, record)]:
                waiting.remove(summary)
                if summary.handle not in record.handles:
                    view.append(self._summary_message(summary))
            message = self._message_to_send(state, one, record, reading, kept.get(n, ()))
            if message.one is not None:
                view.append(message)
        return view

    def _summary_message(self, summary: Item) -> OutgoingMessage:
        message = self._summaries.get(summary.handle)
        if message is None:
            one = self._shape.tell(text_of((summary.part,)))
            taken = TakenMessage(
                "", (summary.handle,), (summary.seqs[0],), summary.key[0], calm=True
            )
            message = self._summaries[summary.handle] = OutgoingMessage(
                one, taken, read_message(self._shape, one)
            )
        return message

    def _message_to_send(
        self,
        state: State,
        one: Any,
        taken: TakenMessage,
        reading: NeutralMessage,
        kept: Collection[int],
    ) -> OutgoingMessage:
        if taken.fixed or not taken.handles:
            return OutgoingMessage(one, taken, reading)
        index, items = state.index, state.items
        now = (
            *(items[index[handle]] if handle in index else None for handle in taken.handles),
            *kept,
        )
        known = self._made.get(taken.handles)
        if known is not None and known[0] == now and known[1] is one and "" not in taken.handles:
            return known[2]
        message = self._rewritten_message(state, one, taken, reading, kept)
        self._made[taken.handles] = (now, one, message)
        return message

    def _rewritten_message(
        self,
        state: State,
        one: Any,
        taken: TakenMessage,
        reading: NeutralMessage,
        kept: Collection[int],
    ) -> OutgoingMessage:
        changes = changes_of(state, taken, reading, kept)
        if not changes:
            return OutgoingMessage(one, taken, reading)
        left = [n for n in range(len(taken.handles)) if changes.get(n, taken) is not None]
        stays = bool(left or reading.system or reading.unread)
        written = self._shape.rewrite(one, changes) if stays else None
        if written is None:
            return OutgoingMessage(None, taken, reading)
        handles, seqs = tuple(taken.handles[n] for n in left), tuple(taken.seqs[n] for n in left)
        record = TakenMessage("", handles, seqs, taken.seq, taken.calm)
        return OutgoingMessage(written, record, read_message(self._shape, written))


def _summary_starts_at(summary: Item, taken: TakenMessage) -> bool:
    first, last = summary.seqs
    return summary.handle in taken.handles or any(first <= seq <= last for seq in taken.seqs)


def kept_parts(said: Sequence[NeutralMessage]) -> Mapping[int, tuple[int, ...]]:
    """Return message -> indices of its parts that are always sent unchanged.

    They are results that hold what the format does not know, the calls of these results, and the
    thinking right before an unread item, which providers want to see together.
    """
    calls = {part.call for one in said for part in one.parts if is_fixed(part)}  # type: ignore[union-attr]
    kept: dict[int, tuple[int, ...]] = {}
    after = False
    for n in range(len(said) - 1, -1, -1):
        one = said[n]
        thinks = bool(one.parts) and all(isinstance(part, Thinking) for part in one.parts)
        after = one.side == "other" or (after and thinks)
        kept[n] = tuple(
            at
            for at, part in enumerate(one.parts)
            if after or is_fixed(part) or (isinstance(part, ToolCall) and part.id in calls)
        )
    return kept


def unread_tokens(
    state: State, taken: Sequence[TakenMessage], said: Sequence[NeutralMessage]
) -> int:
    """Estimate the tokens of the list that the state does not count: what no format has read, and
    parts that are sent although the state has shortened them.
    """
    tokens = sum(block.tokens for one in said for block in one.unread)
    for n, parts in kept_parts(said).items():
        if not parts:
            continue
        changes = changes_of(state, taken[n], said[n])
        for at in parts:
            if at in changes:
                shown = changes[at]
                hidden = estimate_part(shown) if shown is not None else 0
                tokens += max(0, estimate_part(said[n].parts[at]) - hidden)
    return tokens


def changes_of(
    state: State, taken: TakenMessage, said: NeutralMessage, kept: Collection[int] = ()
) -> Mapping[int, AnyPart | None]:
    """Return the parts of a message that are shown differently; None for a part that is not
    shown. Those in `kept` are shown unchanged.
    """
    changes: dict[int, AnyPart | None] = {}
    for n, (handle, seq, part) in enumerate(
        zip(taken.handles, taken.seqs, said.parts, strict=True)
    ):
        if n in kept:
            continue
        at = state.index.get(handle)
        if at is None:
            if handle or any(
                i.seqs[0] <= seq <= i.seqs[1] for i in state.items if i.kind == "summary"
            ):
                changes[n] = None
        elif (item := state.items[at]).kind != "summary" and not _is_shown_unchanged(
            item.part, part
        ):
            changes[n] = item.part
    return changes


def _is_shown_unchanged(item: AnyPart, part: AnyPart) -> bool:
    """Return whether the view shows the part as it is in the list. Ids and names may differ."""
    match item, part:
        case ToolResult(parts=shown), ToolResult(parts=stands):
            return shown == stands
        case ToolCall(arguments=shown), ToolCall(arguments=stands):
            return shown == stands
        case _:
            return item == part


# --- Originals by handle --------------------------------------------------------------------------

PAGE_CHARS_MIN, PAGE_CHARS_MAX = 1_000, 16_000  # Characters of one page
PAGE_CHARS_PER_TOKEN = 0.3  # Characters of one page per usable token: about a tenth of the window
_RANGE = re.compile(r"\s*(?:(\d{1,9})?\s*(-)?\s*(\d{1,9})?)\s*\Z")


def original(entries: Sequence[Entry], handle: str) -> str:
    """Return the whole text of a handle. Raises `ToolError` for a handle that names nothing."""
    wanted = parse_handle(handle)
    if wanted is None or wanted.child:
        told = f"{handle[:40]!r} is no handle of this conversation; handles look like r12 or r12.2."
        raise ToolError(f"[bad-handle] {told}")
    advice = "take the handle from a marker, do not guess one."
    if wanted.seq > len(entries):
        raise ToolError(f"[unknown-handle] There is no entry {handle}; {advice}")
    parts = parts_for_model(entries[wanted.seq - 1].event)
    if not parts or wanted.part > len(parts):
        raise ToolError(f"[unknown-handle] {handle} holds no text; {advice}")
    chosen = parts[wanted.part - 1 : wanted.part] if wanted.part else parts
    return "\n".join(map(_shown, chosen))


def _shown(part: AnyPart) -> str:
    if isinstance(part, ToolCall):
        return f"{part.name} {part.received or part.arguments}"
    return text_of((part,)) or f"({type(part).__name__.lower()}; it stands in the caller's list)"


def page_chars(budget: Budget) -> int:
    """Return the characters of a page in this window."""
    return max(
        PAGE_CHARS_MIN, min(PAGE_CHARS_MAX, round(budget.usable_tokens * PAGE_CHARS_PER_TOKEN))
    )


def page(text: str, handle: str, lines: str, chars_max: int = PAGE_CHARS_MAX) -> str:
    """Return one page of `text` under a line that names the handle, the lines and the next page.

    `lines`: `100-200`, `100-`, `100` or '' for all, 1-based and inclusive. One long line of JSON is
    shown by the line ends that it escapes. A line longer than a page is cut. Raises `ToolError` for
    any other range.
    """
    if (lines or len(text) > chars_max) and is_escaped_line(text.count("\n"), text.count("\\n")):
        text = unescape_lines(text)
    every = text.split("\n")
    first, last = _range(lines, len(every))
    chosen: list[str] = []
    size = 0
    for line in every[first - 1 : last]:
        size += len(line) + 1
        if chosen and size > chars_max:
            break
        chosen.append(line[:chars_max])
    end = first + len(chosen) - 1
    following = f'; next: lines="{end + 1}-"' if end < len(every) else ""
    return f"[{handle}: lines {first}-{end} of {len(every)}{following}]\n" + "\n".join(chosen)


def _range(lines: str, total: int) -> tuple[int, int]:
    match = _RANGE.match(lines)
    if match is None:
        raise ToolError(
            f'[bad-range] lines must look like "100-200" or "100-", not {lines[:40]!r}.'
        )
    first = int(match[1] or 1)
    if match[3]:
        last = int(match[3])
    elif match[2] or not match[1]:
        last = total
    else:
        last = first
    if first < 1 or last < first or first > total:
        raise ToolError(
            f"[bad-range] there are lines 1 to {total}; {lines[:40]!r} is none of them."
        )
    return first, min(last, total)
