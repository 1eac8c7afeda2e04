"""A few lines about a stored session: figures and the last exchange."""

from collections.abc import Sequence

from longrein.events import PAID_EVENTS, Text, Usage, counts_of, text_of
from longrein.steps import (
    BreakStep,
    NoticeStep,
    PromptStep,
    RequestStep,
    SubagentStep,
    steps_of,
)
from longrein.steps.human_text import counted, joined, money, tokens
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
    usage = Usage()
    usd = 0.0
    asked = 0
    answer = ""
    for step in steps_of(reader.of_kind(*PAID_EVENTS)):
        usd += step.usd
        match step:
            case SubagentStep(ended=paid) | NoticeStep(hook=paid) if paid:
                usage += counts_of(paid.usage)
            case RequestStep(reply=reply) if reply:
                usage += counts_of(reply.usage)
                asked += 1
                texts = (part.text for part in reply.parts if isinstance(part, Text))
                answer = answer or "".join(texts).strip()
            case _:
                pass
        if asked == REPLIES_MAX:
            break
    prefixes = steps_of(reader.of_kind("PrefixSet"))
    prefix = next((step.prefix for step in prefixes if isinstance(step, BreakStep)), None)
    prompts = steps_of(reader.of_kind("UserSpoke"))
    spoke = next((step.message for step in prompts if isinstance(step, PromptStep)), None)
    model = f"{prefix.provider}/{prefix.model}" if prefix else ""
    sums = f"{tokens(usage.context_tokens + usage.output_tokens)} tokens"
    more = "more than " if asked == REPLIES_MAX else ""
    head = joined(model, f"{more}{counted(asked, 'request')}", sums, money(usd))
    said = _lines(text_of(spoke.typed)) if spoke is not None else []
    return [head, *(f"› {row}" for row in said[:1]), *_lines(answer)[:TEXT_LINES_MAX]]


def _lines(text: str) -> list[str]:
    return [row[:TEXT_CHARS_MAX] for row in text.splitlines() if row.strip()]
