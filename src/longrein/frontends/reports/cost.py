"""Figures of a session: its cost by model and purpose, and a preview with the last exchange."""

from collections.abc import Iterable, Sequence

import msgspec

from longrein.events import PAID_EVENTS, Entry, Text, Usage, counts_of, text_of
from longrein.frontends.localization import translate
from longrein.steps import BreakStep, NoticeStep, PromptStep, RequestStep, SubagentStep, steps_of
from longrein.steps.human_text import counted, joined, money, tokens
from longrein.store import Reader


class CostRow(msgspec.Struct):
    """Use of one model for one purpose."""

    model: str
    purpose: str
    """`turn`, `summary`, `subagents` or `hooks`."""
    requests: int = 0
    usage: Usage = Usage()
    usd: float = 0.0

    @property
    def line(self) -> str:
        """The row as text: `anthropic/x  turn: 12 requests, 84.2k in (91% from cache), 3.1k out,
        $0.31`.
        """
        used = self.usage
        cached = (
            f" ({100 * used.cache_read_tokens / used.context_tokens:.0f}% from cache)"
            if used.context_tokens
            else ""
        )
        counts = translate(
            f"{tokens(used.context_tokens)} in{cached}, {tokens(used.output_tokens)} out"
        )
        requests = translate(counted(self.requests, "request"))
        purpose = translate(self.purpose)
        return f"{self.model}  {purpose}: {requests}, {counts}, {money(self.usd)}".lstrip()


def cost_rows(entries: Iterable[Entry]) -> Sequence[CostRow]:
    """Sum requests, tokens and money by model and purpose, the most expensive first.

    A subagent's sum includes its own subagents. Requests without an answer count with the money
    they may have cost.
    """
    rows: dict[tuple[str, str], CostRow] = {}
    present = ""

    def add(model: str, purpose: str, requests: int, usage: Usage, usd: float) -> None:
        row = rows.setdefault((model, purpose), CostRow(model, purpose))
        row.requests += requests
        row.usage += usage
        row.usd += usd

    for step in steps_of(entries):
        match step:
            case BreakStep(prefix=prefix) if prefix:
                present = f"{prefix.provider}/{prefix.model}"
            case RequestStep(reply=reply) if reply:
                add(present, step.purpose, 1, reply.usage, step.usd)
            case RequestStep(failure=failure) if failure and failure.assumed_usd:
                add(present, step.purpose, 1, Usage(), step.usd)
            case SubagentStep(ended=end) if end:
                add("", "subagents", end.steps, end.usage, step.usd)
            case NoticeStep(hook=hook) if hook and hook.usage.context_tokens:
                add("", "hooks", 1, hook.usage, step.usd)
    return sorted(rows.values(), key=lambda row: -row.usd)


# --- Preview in a list of sessions ----------------------------------------------------------------


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
        if asked == REPLIES_MAX:
            break
    prefixes = steps_of(reader.of_kind("PrefixSet"))
    prefix = next((step.prefix for step in prefixes if isinstance(step, BreakStep)), None)
    prompts = steps_of(reader.of_kind("UserSpoke"))
    spoke = next((step.message for step in prompts if isinstance(step, PromptStep)), None)
    model = f"{prefix.provider}/{prefix.model}" if prefix else ""
    sums = translate(f"{tokens(usage.context_tokens + usage.output_tokens)} tokens")
    more = "more than " if asked == REPLIES_MAX else ""
    requests = translate(f"{more}{counted(asked, 'request')}")
    head = joined(model, requests, sums, money(usd))
    said = _lines(text_of(spoke.typed)) if spoke is not None else []
    return [head, *(f"› {row}" for row in said[:1]), *_lines(answer)[:TEXT_LINES_MAX]]


def _lines(text: str) -> list[str]:
    return [row[:TEXT_CHARS_MAX] for row in text.splitlines() if row.strip()]
