"""Figures of a session: its cost by model and purpose, and a preview with the last exchange."""

from collections.abc import Iterable, Sequence

import msgspec

from longrein.agent import SubagentView
from longrein.frontends.localization import translate
from longrein.steps import (
    BreakStep,
    NoticeStep,
    PromptStep,
    RequestStep,
    Step,
    SubagentStep,
    steps_of,
)
from longrein.steps.human_text import counted, joined, money, tokens
from longrein.store import Reader
from longrein_context.events import PAID_EVENTS, Entry, Text, Usage, counts_of, text_of


class CostRow(msgspec.Struct):
    """Use of one model for one purpose."""

    model: str
    purpose: str
    """`turn`, `summary`, `subagents` or `hooks`."""
    requests: int = 0
    usage: Usage = Usage()
    usd: float = 0.0
    is_guess: bool = False
    """True if a request was interrupted, so that its cost is an estimate."""

    def add(self, other: "CostRow") -> None:
        """Add what another row has used."""
        self.requests += other.requests
        self.usage += other.usage
        self.usd += other.usd
        self.is_guess |= other.is_guess

    @property
    def name(self) -> str:
        """Model and purpose: `anthropic/x  turn`."""
        return f"{self.model}  {translate(self.purpose)}".lstrip()

    @property
    def figures(self) -> str:
        """The use as text: `12 requests, 84.2k in (91% from cache), 3.1k out, $0.31`."""
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
        usd = money(self.usd)
        spent = translate(f"at most {usd}") if self.is_guess else usd
        return f"{requests}, {counts}, {spent}"


def paid_row(step: Step, model: str) -> CostRow | None:
    """Return what a step has used, None for nothing; `model`: the one that the requests go to.

    A subagent's use includes its own subagents. A request without an answer counts with the money
    that it may have cost.
    """
    match step:
        case RequestStep(reply=reply) if reply:
            is_guess = bool(reply.estimated)
            return CostRow(model, step.purpose, 1, reply.usage, step.usd, is_guess)
        case RequestStep(failure=failure) if failure and failure.assumed_usd:
            return CostRow(model, step.purpose, 1, Usage(), step.usd, True)
        case SubagentStep(ended=end) if end:
            return CostRow("", "subagents", end.steps, end.usage, step.usd)
        case NoticeStep(hook=hook) if hook and hook.usage.context_tokens:
            return CostRow("", "hooks", 1, hook.usage, step.usd)
    return None


def model_after(step: Step, model: str) -> str:
    """Return the model that requests go to after a step."""
    if isinstance(step, BreakStep) and step.prefix:
        return f"{step.prefix.provider}/{step.prefix.model}"
    return model


def usage_rows(
    costs: Sequence[CostRow], working: Sequence[SubagentView]
) -> tuple[tuple[str, str], ...]:
    """Return (name, value) of what a session has used: one sum over its requests and those of
    subagents and hooks; `working`: subagents that have not ended yet.
    """
    whole = CostRow("", "")
    for row in (*costs, *(CostRow("", "", one.steps, usd=one.cost_usd) for one in working)):
        whole.add(row)
    used, spent = whole.usage, money(whole.usd)
    share = ""
    if used.context_tokens:
        share = f" ({100 * used.cache_read_tokens / used.context_tokens:.0f}% of input)"
    return (
        ("requests", str(whole.requests)),
        ("input, not cached", tokens(used.input_tokens)),
        ("read from cache", tokens(used.cache_read_tokens) + share),
        ("written to cache", tokens(used.cache_write_tokens)),
        ("output", tokens(used.output_tokens)),
        ("spent", f"at most {spent}" if whole.is_guess else spent),
    )


class CostTable:
    """Sums requests, tokens and money by model and purpose, step by step."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], CostRow] = {}
        self._model = ""

    def hear(self, step: Step) -> None:
        self._model = model_after(step, self._model)
        if (row := paid_row(step, self._model)) is not None:
            key = row.model, row.purpose
            self._rows.setdefault(key, CostRow(*key)).add(row)

    @property
    def rows(self) -> Sequence[CostRow]:
        """The rows, the most expensive first."""
        return sorted(self._rows.values(), key=lambda row: -row.usd)


def cost_rows(entries: Iterable[Entry]) -> Sequence[CostRow]:
    """Return the rows of a session's cost, as `CostTable`."""
    table = CostTable()
    for step in steps_of(entries):
        table.hear(step)
    return table.rows


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
    sums = translate(f"{tokens(usage.total_tokens)} tokens")
    more = "more than " if asked == REPLIES_MAX else ""
    requests = translate(f"{more}{counted(asked, 'request')}")
    head = joined(model, requests, sums, money(usd))
    said = _lines(text_of(spoke.typed)) if spoke is not None else []
    return [head, *(f"› {row}" for row in said[:1]), *_lines(answer)[:TEXT_LINES_MAX]]


def _lines(text: str) -> list[str]:
    return [row[:TEXT_CHARS_MAX] for row in text.splitlines() if row.strip()]
