"""Cost of a session by model and purpose. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from longrein.events import (
    Asked,
    AskFailed,
    ChildEnded,
    Entry,
    HookAnswered,
    PrefixSet,
    Replied,
    Usage,
)
from longrein.events.purposes import Purposes
from longrein.frontends.human_text import counted, money, tokens


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
        figures = (
            f"{tokens(used.context_tokens)} in{cached}, {tokens(used.output_tokens)} out, "
            f"{money(self.usd)}"
        )
        return (
            f"{self.model}  {self.purpose}: {counted(self.requests, 'request')}, {figures}".lstrip()
        )


def cost_rows(entries: Iterable[Entry]) -> Sequence[CostRow]:
    """Sum requests, tokens and money by model and purpose, the most expensive first.

    A subagent's sum includes its own subagents. Requests without an answer count with the money
    they may have cost.
    """
    rows: dict[tuple[str, str], CostRow] = {}
    purposes = Purposes()
    present = ""

    def add(model: str, purpose: str, requests: int, usage: Usage, usd: float) -> None:
        row = rows.setdefault((model, purpose), CostRow(model, purpose))
        row.requests, row.usage, row.usd = (
            row.requests + requests,
            row.usage + usage,
            row.usd + max(0.0, usd),
        )

    for entry in entries:
        match entry.event:
            case PrefixSet(provider=provider, model=model):
                present = f"{provider}/{model}"
            case Asked():
                purposes.note(entry)
            case Replied(asked=asked, usage=usage, cost_usd=usd):
                add(present, purposes.of(asked), 1, usage, usd)
            case AskFailed(asked=asked, assumed_usd=usd) if usd:
                add(present, purposes.of(asked), 1, Usage(), usd)
            case ChildEnded(steps=steps, usage=usage, cost_usd=usd):
                add("", "subagents", steps, usage, usd)
            case HookAnswered(usage=usage, cost_usd=usd) if usage.context_tokens:
                add("", "hooks", 1, usage, usd)
    return sorted(rows.values(), key=lambda row: -row.usd)
