"""The figures of replayed sessions as a table for people or JSON for programs."""

from collections.abc import Sequence

import msgspec

from longrein.replay.accounting import Account


class Row(msgspec.Struct, frozen=True):
    """One session under one policy, or the sum of several."""

    policy: str
    session: str
    requests: int
    cost: float
    """In units of one uncached input token."""
    keep_all: float
    """What keeping everything costs."""
    cache_read: int
    carried: int
    """Input tokens of all requests."""
    breaks: int
    peak: int
    """Largest request."""
    uses: int
    kept: int
    tool_uses: int
    tool_kept: int

    @classmethod
    def of(cls, policy: str, account: Account) -> "Row":
        """The row of one session."""
        a, r = account, account.recording
        figures = (a.cost, a.keep_all, a.read, a.carried, a.breaks, a.peak, a.uses, a.kept, a.tool_uses, a.tool_kept)
        return cls(policy, r.name, r.requests, *figures)


def total(rows: Sequence[Row]) -> Row:
    """All sessions of one policy together; the peak is the largest."""
    names = [name for name in Row.__struct_fields__ if name not in ("policy", "session", "peak")]
    sums = {name: sum(getattr(row, name) for row in rows) for name in names}
    return Row(policy=rows[0].policy, session="all", peak=max(row.peak for row in rows), **sums)


def as_json(rows: Sequence[Row]) -> str:
    """One JSON list."""
    return msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n"


HEAD = ("policy", "session", "requests", "cost / keep-all", "cache hit", "kept", "kept, tool-only", "breaks", "peak")


def as_table(rows: Sequence[Row]) -> str:
    """A line a session and policy, a sum for each policy with more than one session."""
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, []).append(row)
    every = [one for found in by_policy.values() for one in (*found, *([total(found)] if len(found) > 1 else []))]
    cells = [HEAD, *map(_cells, every)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(HEAD))]
    lines = [
        "  ".join(c.ljust(w) if n < 2 else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    shares = (
        (row.cost, row.keep_all),
        (row.cache_read, row.carried),
        (row.kept, row.uses),
        (row.tool_kept, row.tool_uses),
    )
    figures = [f"{part / whole:.3f}" if whole else "-" for part, whole in shares]
    return row.policy, row.session, str(row.requests), *figures, str(row.breaks), f"{row.peak:,}"
