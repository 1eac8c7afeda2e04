"""`longrein usage`: requests, tokens and money of all sessions of this machine, by day, model and
project.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime

from longrein.app.run_context import RunContext
from longrein.frontends.reports.cost import CostRow, model_after, paid_row
from longrein.frontends.reports.session_lists import table
from longrein.frontends.stdio import say, show
from longrein.steps import steps_of
from longrein.steps.human_text import escape_line, json_page, money, tokens
from longrein.store import Reader, SessionInfo, list_sessions
from longrein_context.events import PAID_EVENTS, SessionError, UsageError

GROUPS = ("day", "model", "project")


Key = tuple[str, str, str]
"""Day of this machine's time zone; `provider/model`, `subagents` or `hooks`; project."""


def usage(
    run_context: RunContext, words: Sequence[str], *, days: int = 0, json: bool = False
) -> int:
    """Show the use of all sessions, by one of `GROUPS` or by each; `days` is that of the newest."""
    if words and words[0] not in GROUPS:
        raise UsageError(f"usage goes by {', '.join(GROUPS)}, not by {escape_line(words[0])}")
    rows: dict[Key, CostRow] = {}
    counted: set[tuple[int, str]] = set()
    for info in list_sessions(run_context.state_dir):
        try:
            _add_session(run_context.state_dir, info, rows, counted)
        except SessionError as error:
            say(f"session {info.session} is left out: {error}")
    kept = sorted({day for day, *_ in rows})[-days:]
    found = {key: row for key, row in rows.items() if key[0] in kept}
    if json:
        show(json_page([_fields(key, row) for key, row in found.items()]))
    elif not found:
        say("no request was made yet")
    for group in words or GROUPS if not json and found else ():
        show(table([*_table(found, group)]))
    return 0


def _add_session(
    state_dir: str, info: SessionInfo, rows: dict[Key, CostRow], counted: set[tuple[int, str]]
) -> None:
    """Add what a session has used; what a fork has from its original counts once."""
    with closing(Reader(state_dir, info.session)) as reader:
        entries = [*reader.of_kind("PrefixSet", *PAID_EVENTS)]
    model = ""
    for step in steps_of(reversed(entries)):
        model = model_after(step, model)
        paid, place = paid_row(step, model), (step.at, type(step).__name__)
        if paid is None or place in counted:
            continue
        counted.add(place)
        day = datetime.fromtimestamp(step.at / 1e6, UTC).astimezone().strftime("%Y-%m-%d")
        key = day, paid.model or paid.purpose, info.cwd
        rows.setdefault(key, CostRow("", "")).add(paid)


def _fields(key: Key, row: CostRow) -> dict[str, object]:
    """Return the fields of a row of `--json`."""
    used = row.usage
    return {
        **dict(zip(GROUPS, key, strict=True)),
        "requests": row.requests,
        "input_tokens": used.input_tokens,
        "cache_read_tokens": used.cache_read_tokens,
        "cache_write_tokens": used.cache_write_tokens,
        "output_tokens": used.output_tokens,
        "usd": row.usd,
    }


def _table(found: Mapping[Key, CostRow], group: str) -> Iterator[tuple[str, ...]]:
    sums: dict[str, CostRow] = {}
    for key, row in found.items():
        sums.setdefault(key[GROUPS.index(group)], CostRow("", "")).add(row)
    yield group, "requests", "input", "from cache", "output", "spent"
    by_name = sorted(sums, reverse=True)
    for name in by_name if group == "day" else sorted(by_name, key=lambda one: -sums[one].usd):
        whole, used = sums[name], sums[name].usage
        read = used.context_tokens
        yield (
            escape_line(name),
            str(whole.requests),
            tokens(read),
            f"{100 * used.cache_read_tokens / read:.0f}%" if read else "",
            tokens(used.output_tokens),
            money(whole.usd),
        )
    yield ("",) * 6
