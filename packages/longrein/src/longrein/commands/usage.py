"""`longrein usage`: requests, tokens and money of all sessions of this machine, by day, model and
project.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime

import msgspec

from longrein.app.run_context import RunContext
from longrein.frontends.reports.session_lists import table
from longrein.frontends.stdio import say, show
from longrein.steps import BreakStep, NoticeStep, RequestStep, Step, SubagentStep, steps_of
from longrein.steps.human_text import escape_line, json_page, money, tokens
from longrein.store import Reader, SessionInfo, list_sessions
from longrein_context.events import PAID_EVENTS, SessionError, Usage, UsageError

GROUPS = ("day", "model", "project")


class UsageRow(msgspec.Struct):
    """Use of one model in one project on one day."""

    day: str
    """Of this machine's time zone."""
    model: str
    """`provider/model`, `subagents` or `hooks`."""
    project: str
    requests: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0

    def add(self, requests: int, usage: Usage, usd: float) -> None:
        """Add requests and what they took."""
        self.requests += requests
        self.input_tokens += usage.input_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        self.output_tokens += usage.output_tokens
        self.usd += usd


def usage(
    run_context: RunContext, words: Sequence[str], *, days: int = 0, json: bool = False
) -> int:
    """Show the use of all sessions, by one of `GROUPS` or by each; `days` is that of the newest."""
    if words and words[0] not in GROUPS:
        raise UsageError(f"usage goes by {', '.join(GROUPS)}, not by {escape_line(words[0])}")
    rows: dict[tuple[str, str, str], UsageRow] = {}
    counted: set[tuple[int, str]] = set()
    for info in list_sessions(run_context.state_dir):
        try:
            _add_session(run_context.state_dir, info, rows, counted)
        except SessionError as error:
            say(f"session {info.session} is left out: {error}")
    kept = sorted({row.day for row in rows.values()})[-days:]
    found = [row for row in rows.values() if row.day in kept]
    if json:
        show(json_page(found))
    elif not found:
        say("no request was made yet")
    for group in words or GROUPS if not json and found else ():
        show(table([*_table(found, group)]))
    return 0


def _add_session(
    state_dir: str,
    info: SessionInfo,
    rows: dict[tuple[str, str, str], UsageRow],
    counted: set[tuple[int, str]],
) -> None:
    """Add what a session has used; what a fork has from its original counts once."""
    with closing(Reader(state_dir, info.session)) as reader:
        entries = [*reader.of_kind("PrefixSet", *PAID_EVENTS)]
    model = ""
    for step in steps_of(reversed(entries)):
        if isinstance(step, BreakStep) and step.prefix:
            model = f"{step.prefix.provider}/{step.prefix.model}"
        key = step.at, type(step).__name__
        paid = _paid(step, model)
        if paid is None or key in counted:
            continue
        counted.add(key)
        name, requests, used = paid
        day = datetime.fromtimestamp(step.at / 1e6, UTC).astimezone().strftime("%Y-%m-%d")
        row = rows.setdefault((day, name, info.cwd), UsageRow(day, name, info.cwd))
        row.add(requests, used, step.usd)


def _paid(step: Step, model: str) -> tuple[str, int, Usage] | None:
    """Return (model, requests, usage) of a step that was paid for."""
    match step:
        case RequestStep(reply=reply) if reply:
            return model, 1, reply.usage
        case RequestStep(failure=failure) if failure and failure.assumed_usd:
            return model, 1, Usage()
        case SubagentStep(ended=end) if end:
            return "subagents", end.steps, end.usage
        case NoticeStep(hook=hook) if hook and hook.usage.context_tokens:
            return "hooks", 1, hook.usage
    return None


def _table(found: Iterable[UsageRow], group: str) -> Iterator[tuple[str, ...]]:
    sums: dict[str, UsageRow] = {}
    for row in found:
        name = str(getattr(row, group))
        whole = sums.setdefault(name, UsageRow(name, "", ""))
        cached = (row.cache_read_tokens, row.cache_write_tokens)
        whole.add(row.requests, Usage(row.input_tokens, *cached, row.output_tokens), row.usd)
    yield group, "requests", "input", "from cache", "output", "spent"
    by_name = sorted(sums.values(), key=lambda row: row.day, reverse=True)
    for row in by_name if group == "day" else sorted(by_name, key=lambda row: -row.usd):
        read = row.input_tokens + row.cache_read_tokens + row.cache_write_tokens
        yield (
            escape_line(row.day),
            str(row.requests),
            tokens(read),
            f"{100 * row.cache_read_tokens / read:.0f}%" if read else "",
            tokens(row.output_tokens),
            money(row.usd),
        )
    yield ("",) * 6
