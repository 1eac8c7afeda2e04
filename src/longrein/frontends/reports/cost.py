"""Cost of a session by model and purpose. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from longrein.events import Entry, Usage
from longrein.steps import BreakStep, NoticeStep, RequestStep, SubagentStep, steps_of
from longrein.steps.human_text import counted, money, tokens


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
            case _:
                pass
    return sorted(rows.values(), key=lambda row: -row.usd)
