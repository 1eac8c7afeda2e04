"""Sessions as a table for people or JSON for programs."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from longrein.frontends.safe import escape_line
from longrein.store import SessionInfo

TITLE_CHARS_MAX = 60
"""Of a session's title in the table."""
UNSAID = "(nothing was said)"


def as_json(infos: Sequence[SessionInfo]) -> bytes:
    """One JSON list, newest first."""
    return msgspec.json.format(msgspec.json.encode(infos)) + b"\n"


def as_table(infos: Sequence[SessionInfo]) -> bytes:
    """One line a session, newest first: id, time of the last entry, entries, folder, first words.

    Those in which nothing was said come last, however new.
    """
    if not infos:
        return b'no sessions yet: start one with longrein, or longrein -p "..."\n'
    rows = [("session", "last entry", "entries", "folder", "first words")]
    rows += [_row(info) for info in sorted(infos, key=lambda info: not info.title)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4])) for row in rows
    ]
    return ("\n".join(line.rstrip() for line in lines) + "\n").encode("utf-8", "replace")


def _row(info: SessionInfo) -> tuple[str, str, str, str, str]:
    last = datetime.fromtimestamp(info.updated_at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    title = escape_line(" ".join(info.title.split())) or UNSAID
    shown = title if len(title) <= TITLE_CHARS_MAX else title[: TITLE_CHARS_MAX - 1] + "…"
    return info.session, last, str(info.entries), escape_line(info.cwd), ("(open) " if info.open else "") + shown
