"""A few lines about a stored session: figures and the last exchange."""

from collections.abc import Sequence

from longrein.events import (
    PAID_EVENTS,
    ChildEnded,
    HookAnswered,
    PrefixSet,
    Replied,
    Text,
    Usage,
    UserSpoke,
    counts_of,
    text_of,
    usd_of,
)
from longrein.frontends.human_text import counted, joined, money, tokens
from longrein.store import Reader

REPLIES_MAX = 2_000
"""Replies whose tokens and money are summed, with those of subagents and hooks between them; of a
longer session the newest.
"""
TEXT_LINES_MAX = 3
TEXT_CHARS_MAX = 300


def preview_lines(reader: Reader) -> Sequence[str]:
    """Return `model, 12 requests, 84.2k tokens, $0.31`, the last message and the end of the last
    answer.
    """
    usage, usd, asked, answer = Usage(), 0.0, 0, ""
    for entry in reader.of_kind(*PAID_EVENTS):
        usd += usd_of(entry.event)
        if isinstance(entry.event, ChildEnded | HookAnswered):
            usage += counts_of(entry.event.usage)
        if isinstance(entry.event, Replied):
            usage += counts_of(entry.event.usage)
            asked += 1
            answer = (
                answer
                or "".join(
                    part.text for part in entry.event.parts if isinstance(part, Text)
                ).strip()
            )
        if asked == REPLIES_MAX:
            break
    prefix = next(
        (e.event for e in reader.of_kind("PrefixSet") if isinstance(e.event, PrefixSet)), None
    )
    spoke = next(
        (e.event for e in reader.of_kind("UserSpoke") if isinstance(e.event, UserSpoke)), None
    )
    model = f"{prefix.provider}/{prefix.model}" if prefix else ""
    sums = f"{tokens(usage.context_tokens + usage.output_tokens)} tokens"
    more = "more than " if asked == REPLIES_MAX else ""
    head = joined(model, f"{more}{counted(asked, 'request')}", sums, money(usd))
    said = _lines(text_of(spoke.typed)) if spoke is not None else []
    return [head, *(f"› {row}" for row in said[:1]), *_lines(answer)[:TEXT_LINES_MAX]]


def _lines(text: str) -> list[str]:
    return [row[:TEXT_CHARS_MAX] for row in text.splitlines() if row.strip()]
